r"""Sizes of the experiments and the functions from a configuration to results.

`double_robustness`, `rate` and `control_arm` target given nuisances in closed form on the
population `Scalar`; `compare` trains networks on a graph; `misspecified` and `sweep` take the
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

from .baselines import FittedBaseline, fit_baseline
from .data import SLUG, simulated_parts
from .effects import EFFECTS, average_error, individual_error
from .network import Design, TNet, TNetConfig, TNetOutput
from .populations import Nuisances, Scalar, targeted_curve
from .simulation import NetworkData, naive_parts
from .targeting import fit_perturbation, projected_equations, targeted_mean
from .training import FittedTNet, TrainConfig, fit_tnet, row_normalised, train_model

__all__ = [
    "FULL",
    "POINTS",
    "QUICK",
    "Comparison",
    "Config",
    "Responses",
    "compare",
    "config_of",
    "control_arm",
    "double_robustness",
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


def config_of(profile: str, **overrides: object) -> Config:
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


@dataclass(frozen=True)
class Comparison:
    """Errors of several methods on one graph.

    Attributes
    ----------
    errors : pandas.DataFrame
        Columns ``method``, ``seed``, ``sample`` ("within" or "out"), ``effect``, ``average`` and
        ``individual``, the two errors in the unit of the outcome.
    fitted : dict of str to fitted method
        Of the first seed, with its networks `train` and `test`.
    """

    errors: pd.DataFrame
    fitted: dict[str, FittedTNet | FittedBaseline]
    train: NetworkData
    test: NetworkData

    def means(self, column: str = "average", sample: str = "out") -> pd.DataFrame:
        """Mean error over seeds, a row a method and a column an effect."""
        chosen = self.errors[self.errors["sample"] == sample]
        table = chosen.pivot_table(index="method", columns="effect", values=column, sort=False)
        return table[[*EFFECTS]]

    def bars(self) -> dict[str, float]:
        """The quantities of the bars B1 to B4, out of sample."""
        average, individual = self.means("average"), self.means("individual")
        return {
            "B1 ME individual, TNet - plain": float(
                individual.loc["TNet", "ME"] - individual.loc["plain", "ME"]
            ),
            "B1 TE individual, TNet - plain": float(
                individual.loc["TNet", "TE"] - individual.loc["plain", "TE"]
            ),
            "B2 TE average, TNet": float(average.loc["TNet", "TE"]),
            "B2 TE average, TNet - plain": float(average.loc["TNet", "TE"] - average.loc["plain", "TE"]),
            "B3 mean average, TNet": float(average.loc["TNet"].mean()),
            "B4 ME average, naive - TNet": float(average.loc["naive", "ME"] - average.loc["TNet", "ME"]),
        }


def compare(
    config: Config,
    name: str,
    *,
    heterogeneous: bool = False,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
) -> Comparison:
    """Train every method on a graph and judge it there and on the test graph.

    Parameters
    ----------
    config : Config
    name : {"cora", "citeseer", "geometric"}
    heterogeneous : bool
        Effects that vary between units.
    methods : sequence of str, optional
        Those of `config` by default; "treated" is TNet with the authors' shortcut. The naive
        contrast of the training graph is always there, as an estimate of the main effect.
    seeds : int, optional
        ``config.network_seeds`` by default.

    Returns
    -------
    Comparison
    """
    rows, first = [], None
    for seed in range(config.seed, config.seed + (seeds or config.network_seeds)):
        train, test = simulated_parts(name, seed, heterogeneous=heterogeneous)
        naive = abs(float(naive_parts(train)["naive"]) - 1)
        rows += [("naive", seed, sample, "ME", naive, np.nan) for sample in ("within", "out")]
        fits = {
            m: fit(m, train, config, generator(seed, SLUG, name, "fit")) for m in methods or config.methods
        }
        for method, fitted in fits.items():
            rows += [(method, seed, *row) for row in judge(fitted, {"within": train, "out": test})]
        first = first or (fits, train, test)
    columns = ["method", "seed", "sample", "effect", "average", "individual"]
    return Comparison(pd.DataFrame(rows, columns=columns), *first)


def fit(method: str, train: NetworkData, config: Config, g: torch.Generator) -> FittedTNet | FittedBaseline:
    """Train one method by name; the result has ``predict(data, t, z)``."""
    if method == "TNet":
        return fit_tnet(train, train=config.train, generator=g)
    if method == "plain":
        return fit_tnet(train, train=replace(config.train, targeted=False), generator=g)
    if method == "treated":
        return fit_tnet(train, TNetConfig(propensity="treated"), config.train, generator=g)
    return fit_baseline(method, train, config.steps, g)


def judge(
    fitted: FittedTNet | FittedBaseline, samples: dict[str, NetworkData]
) -> list[tuple[str, str, float, float]]:
    """Errors of a fitted method: rows (sample, effect, average, individual)."""
    rows = []
    for sample, data in samples.items():
        for effect, (first, second) in EFFECTS.items():
            pieces = [fitted.predict(data, *first).double(), fitted.predict(data, *second).double()]
            pieces += [data.truth(*first).double(), data.truth(*second).double()]
            rows.append((sample, effect, float(average_error(*pieces)), float(individual_error(*pieces))))
    return rows


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
        Columns ``setting``, ``seed``, ``effect``, ``average``.
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
            rows += [
                (setting, seed, effect, average) for _, effect, average, _ in judge(fitted, {"out": test})
            ]
    return pd.DataFrame(rows, columns=["setting", "seed", "effect", "average"])


@torch.no_grad()
def joint_propensity(fitted: FittedTNet, data: NetworkData, t: float, z: float) -> torch.Tensor:
    """Fitted joint propensity of every unit at a treatment and an exposure, as a density; shape (n,)."""
    out = _forward(fitted, data, torch.full_like(data.t, t), torch.full_like(data.t, z))
    return out.propensity * out.density * fitted.model.config.n_grid


@dataclass(frozen=True)
class Responses:
    """Dose responses of one network: a row an arm (control first), a column an exposure.

    Attributes
    ----------
    z : ndarray, shape (m,)
    curves : dict of str to ndarray, shape (2, m)
    equations : dict of str to float
        Largest projected influence equation on the training graph, in standardised units.
    """

    z: np.ndarray
    curves: dict[str, np.ndarray]
    equations: dict[str, float]


@torch.no_grad()
def responses(comparison: Comparison, points: int = 21) -> Responses:
    """True, plain, learned and closed-form targeted dose responses on the training graph.

    The closed form takes the outcome and the propensities of the trained TNet and replaces its
    learned spline by `fit_perturbation`.
    """
    fitted, data = comparison.fitted["TNet"], comparison.train
    knots = fitted.model.knots
    own = _forward(fitted, data, data.t, data.z)
    y = (data.y - fitted.y_mean) / fitted.y_std
    arrays = [v.double() for v in (y, data.t, data.z, own.outcome, own.propensity * own.density)]
    learned = (fitted.model.epsilon1.double(), fitted.model.epsilon0.double())
    solved = fit_perturbation(*arrays, knots)
    grid = np.linspace(0, 1, points)
    curves = {name: np.empty((2, points)) for name in ("truth", "plain", "TNet", "TNet, closed form")}
    for arm in (0, 1):
        for k, z in enumerate(grid):
            out = _forward(fitted, data, torch.full_like(data.t, arm), torch.full_like(data.t, z))
            g = (out.propensity * out.density).double()
            closed = targeted_mean(out.outcome.double(), g, float(z), solved[0 if arm else 1], knots)
            curves["truth"][arm, k] = data.truth(float(arm), float(z)).mean()
            curves["plain"][arm, k] = comparison.fitted["plain"].predict(data, arm, float(z)).mean()
            curves["TNet"][arm, k] = fitted.predict(data, arm, float(z)).mean()
            curves["TNet, closed form"][arm, k] = fitted.y_mean + fitted.y_std * closed
    zero = tuple(torch.zeros_like(w) for w in solved)
    equations = {
        name: float(projected_equations(*arrays, w, knots).abs().max())
        for name, w in (("no perturbation", zero), ("learned spline", learned), ("closed form", solved))
    }
    return Responses(grid, curves, equations)


def _forward(fitted: FittedTNet, data: NetworkData, t: torch.Tensor, z: torch.Tensor) -> TNetOutput:
    x = row_normalised(data.x).to(fitted.model.encoder.weight)
    return fitted.model(data.adjacency, x, t, z)


def _shifted(delta: float) -> Nuisances:
    return Nuisances(
        lambda t, z, x: Scalar.outcome(t, z, x) + delta * (1 + x),
        lambda t, z, x: Scalar.propensity(t, z, x) * torch.exp(delta * x),
    )
