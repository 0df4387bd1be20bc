r"""Training several methods on a graph, judging them, and looking into the trained network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from icml24.common.random import generator

from .baselines import BASELINES, FittedBaseline, fit_baseline
from .data import SLUG, simulated_parts
from .effects import EFFECTS, average_error, individual_error
from .network import TNetConfig, TNetOutput
from .simulation import NetworkData, naive_parts
from .targeting import fit_perturbation, projected_equations, targeted_mean
from .training import FittedTNet, fit_tnet, row_normalised

if TYPE_CHECKING:
    from .experiments import Config

__all__ = ["Comparison", "Responses", "compare", "fit", "joint_propensity", "judge", "responses"]


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

    def lead(self) -> pd.Series:
        """Mean error of the three average effects, TNet minus plain, by seed; out of sample."""
        out = self.errors[self.errors["sample"] == "out"].pivot_table(
            index="seed", columns="method", values="average"
        )
        return out["TNet"] - out["plain"]

    def over_baselines(self) -> dict[str, float]:
        """Mean error of the three average effects, TNet minus each of the baselines; out of sample."""
        means = self.means().mean(axis=1)
        return {name: float(means["TNet"] - means[name]) for name in BASELINES if name in means}

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
