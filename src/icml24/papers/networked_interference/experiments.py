r"""Sizes of the experiments and the functions from a configuration to results.

`double_robustness`, `rate` and `control_arm` target given nuisances in closed form on the
population `Scalar`; `compare` (in `comparisons`) trains networks on a graph; `misspecified` and `sweep` take the
network apart. Every random stream is named by the seed and by what it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from icml24.common.profiles import choose
from icml24.common.random import generator

from .comparisons import Comparison, Responses, compare, fit, joint_propensity, judge, responses
from .data import SLUG, simulated_parts
from .effects import EFFECTS
from .network import Design, TNet, TNetConfig
from .populations import Nuisances, Scalar, targeted_curve
from .training import TrainConfig, fit_tnet, train_model

__all__ = [
    "FULL",
    "POINTS",
    "QUICK",
    "Comparison",
    "Config",
    "Responses",
    "compare",
    "configure",
    "control_arm",
    "double_robustness",
    "fit",
    "joint_propensity",
    "judge",
    "misspecified",
    "rate",
    "responses",
    "rmse",
    "slope",
    "sweep",
]

KNOTS = [0.25, 0.5, 0.75]
#: Points (t, z) at which dose responses of `Scalar` are compared.
POINTS = [(t, z) for t in (0.0, 1.0) for z in (0.1, 0.3, 0.5, 0.7, 0.9)]
DELTAS = (0.4, 0.2, 0.1, 0.05)
#: The part of the rate experiment that the noise does not yet reach.
FITTED_DELTAS = DELTAS[:3]
METHODS = ("TNet", "plain", "CFR+z", "ND+z")


@dataclass(frozen=True)
class Config:
    """Size of a run.

    Attributes
    ----------
    seed : int
        Base seed of every generator.
    sizes : tuple of int
        Sample sizes of the double-robustness experiment.
    repeats, rate_size, rate_repeats : int
        Repetitions of it; sample size and repetitions of the rate experiment.
    epochs, inner_steps : int
        Of every network.
    network_seeds : int
        Repetitions on a graph (simulated data and weights both new).
    methods : tuple of str
        Of the comparison on graphs.
    heterogeneous_seeds, part_seeds : int
        Repetitions with heterogeneous effects, and of `misspecified` and `sweep`; 0 leaves them out.
    """

    seed: int = 0
    sizes: tuple[int, ...] = (500, 2000, 8000, 32000)
    repeats: int = 10
    rate_size: int = 64000
    rate_repeats: int = 5
    epochs: int = 30
    inner_steps: int = 15
    network_seeds: int = 3
    methods: tuple[str, ...] = METHODS
    heterogeneous_seeds: int = 0
    part_seeds: int = 0

    @property
    def steps(self) -> int:
        """Optimiser steps of a network."""
        return self.epochs * (1 + self.inner_steps)

    @property
    def train(self) -> TrainConfig:
        """Training of a TNet at this size."""
        return TrainConfig(epochs=self.epochs, inner_steps=self.inner_steps)


#: At most a minute on one thread, offline.
QUICK = Config()

#: The size of the recorded results.
FULL = Config(
    epochs=30,
    inner_steps=20,
    network_seeds=5,
    heterogeneous_seeds=3,
    part_seeds=2,
)


def configure(profile: str, **overrides: object) -> Config:
    """Return the configuration of a profile, single fields replaced (see `choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


RIGHT = Nuisances(Scalar.outcome, Scalar.propensity)


def _half(t: object, z: object, x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 0.5)


#: The four cases: which of the two nuisances is right.
CASES = {
    "both right": RIGHT,
    "propensity wrong": RIGHT._replace(propensity=_half),
    "outcome wrong": RIGHT._replace(outcome=_half),
    "both wrong": Nuisances(_half, _half),
}


def double_robustness(config: Config) -> pd.DataFrame:
    """Squared errors of the dose response, targeted and plug-in, over sizes, cases and repetitions.

    Returns
    -------
    pandas.DataFrame
        Columns ``size``, ``case``, ``repeat``, ``targeted`` and ``plug-in``; the last two are mean
        squared errors over `POINTS`.
    """
    truth = torch.tensor([Scalar.response(*point) for point in POINTS], dtype=torch.float64)
    rows = []
    for size in config.sizes:
        for repeat in range(config.repeats):
            sample = Scalar.draw(size, generator(config.seed, SLUG, "robustness", size, repeat))
            for case, nuisances in CASES.items():
                errors = [
                    (curve - truth).square().mean()
                    for curve in targeted_curve(sample, nuisances, POINTS, KNOTS)
                ]
                rows.append((size, case, repeat, *map(float, errors)))
    return pd.DataFrame(rows, columns=["size", "case", "repeat", "targeted", "plug-in"])


def rate(config: Config) -> pd.DataFrame:
    r"""Errors when both nuisances are off by `delta`.

    .. math:: \hat\mu = \mu + \delta (1 + x), \qquad \hat g = g\, e^{\delta x}

    Returns
    -------
    pandas.DataFrame
        Columns ``delta``, ``repeat``, ``targeted``, ``plug-in``: mean squared errors over `POINTS`.
    """
    truth = torch.tensor([Scalar.response(*point) for point in POINTS], dtype=torch.float64)
    rows = []
    for repeat in range(config.rate_repeats):
        sample = Scalar.draw(config.rate_size, generator(config.seed, SLUG, "rate", repeat))
        for delta in DELTAS:
            curves = targeted_curve(sample, _shifted(delta), POINTS, KNOTS)
            rows.append((delta, repeat, *(float((curve - truth).square().mean()) for curve in curves)))
    return pd.DataFrame(rows, columns=["delta", "repeat", "targeted", "plug-in"])


def control_arm(config: Config) -> pd.DataFrame:
    """Wrong outcome model, propensity of the own arm or of the treated arm for all: errors by arm.

    Returns
    -------
    pandas.DataFrame
        Columns ``size``, ``repeat``, ``propensity`` ("arm" or "treated"), ``t`` and ``error``, a mean
        squared error over the five exposures.
    """
    choices = {"arm": Scalar.propensity, "treated": lambda t, z, x: Scalar.propensity(1.0, z, x)}
    rows = []
    for size in config.sizes:
        for repeat in range(config.repeats):
            sample = Scalar.draw(size, generator(config.seed, SLUG, "arms", size, repeat))
            for name, propensity in choices.items():
                curve, _ = targeted_curve(sample, Nuisances(_half, propensity), POINTS, KNOTS)
                for arm in (0.0, 1.0):
                    errors = [
                        (float(value) - Scalar.response(*point)) ** 2
                        for value, point in zip(curve, POINTS, strict=True)
                        if point[0] == arm
                    ]
                    rows.append((size, repeat, name, int(arm), float(np.mean(errors))))
    return pd.DataFrame(rows, columns=["size", "repeat", "propensity", "t", "error"])


def rmse(frame: pd.DataFrame, by: Sequence[str], column: str) -> pd.Series:
    """Root of the mean of squared errors, by groups."""
    return frame.groupby(list(by))[column].mean() ** 0.5


def slope(frame: pd.DataFrame, column: str) -> float:
    """Slope of log error against log delta, over the deltas above the noise."""
    errors = rmse(frame, ["delta"], column).loc[list(FITTED_DELTAS)]
    return float(np.polyfit(np.log(errors.index), np.log(errors), 1)[0])


class BlindTNet(TNet):
    """A `TNet` that keeps a nuisance from seeing the representation, so that it must be wrong."""

    def __init__(self, *args, blind: Sequence[str] = (), **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.blind = frozenset(blind)

    def propensities(self, r: torch.Tensor, design: Design) -> tuple[torch.Tensor, torch.Tensor]:
        """Constants in the covariates when blind."""
        return super().propensities(torch.zeros_like(r) if "propensity" in self.blind else r, design)

    def outcomes(self, r: torch.Tensor, design: Design) -> torch.Tensor:
        """Functions of treatment and exposure alone when blind."""
        return super().outcomes(torch.zeros_like(r) if "outcome" in self.blind else r, design)


#: What is kept blind in `misspecified`.
BLIND = {
    "both see": (),
    "propensity blind": ("propensity",),
    "outcome blind": ("outcome",),
    "both blind": ("outcome", "propensity"),
}


def misspecified(config: Config, name: str = "geometric") -> pd.DataFrame:
    """Networks with blind nuisances, targeted or not; out of sample.

    Returns
    -------
    pandas.DataFrame
        Columns ``case``, ``targeted``, ``seed``, ``effect``, ``average``.
    """
    rows = []
    for seed in range(config.seed, config.seed + config.part_seeds):
        train, test = simulated_parts(name, seed)
        for case, blind in BLIND.items():
            for targeted in (True, False):
                g = generator(seed, SLUG, name, "blind")
                fitted = train_model(
                    lambda f, blind=blind, g=g: BlindTNet(f, blind=blind, generator=g),
                    *(train, replace(config.train, targeted=targeted), g),
                )
                rows += [
                    (case, targeted, seed, effect, average)
                    for _, effect, average, _ in judge(fitted, {"out": test})
                ]
    return pd.DataFrame(rows, columns=["case", "targeted", "seed", "effect", "average"])


#: Settings of the sweep: one of the two changed at a time.
BETAS = (5.0, 20.0, 80.0)
SPACINGS = (0.05, 0.1, 0.25)


def sweep(config: Config, name: str = "geometric") -> pd.DataFrame:
    """Weight of the targeted loss, knots and order of steps, one changed at a time; out of sample.

    Returns
    -------
    pandas.DataFrame
        Columns ``setting``, ``seed``, ``effect``, ``average`` and ``smallest``, the smallest joint
        propensity (a density) of a unit at the two points of the total effect.
    """
    settings = {f"beta = {b:g}": (TNetConfig(), replace(config.train, beta=b)) for b in BETAS}
    settings |= {
        f"knot spacing {s:g}": (TNetConfig(knot_spacing=s), config.train) for s in SPACINGS if s != 0.1
    }
    settings["as many outer as inner steps"] = (
        TNetConfig(),
        replace(config.train, epochs=config.steps // 2, inner_steps=1),
    )
    rows = []
    for seed in range(config.seed, config.seed + config.part_seeds):
        train, test = simulated_parts(name, seed)
        for setting, (net, training) in settings.items():
            fitted = fit_tnet(train, net, training, generator=generator(seed, SLUG, name, "fit"))
            ends = [joint_propensity(fitted, test, *point) for point in EFFECTS["TE"]]
            smallest = float(torch.cat(ends).min())
            rows += [
                (setting, seed, effect, average, smallest)
                for _, effect, average, _ in judge(fitted, {"out": test})
            ]
    return pd.DataFrame(rows, columns=["setting", "seed", "effect", "average", "smallest"])


def _shifted(delta: float) -> Nuisances:
    return Nuisances(
        lambda t, z, x: Scalar.outcome(t, z, x) + delta * (1 + x),
        lambda t, z, x: Scalar.propensity(t, z, x) * torch.exp(delta * x),
    )
