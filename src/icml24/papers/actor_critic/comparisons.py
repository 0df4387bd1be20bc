r"""Comparisons of techniques over a table of scores: a row per seed, a column per agent.

Intervals resample the runs of a group of agents as a whole, so they count differences between
the agents of a group as noise, besides those between seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from icml24.common.random import numpy_generator

from .agents import FAMILIES, AgentSpec

__all__ = ["difference_of_cells", "effects", "grid_scores", "layer_norm_advantage"]


def grid_scores(frame: pd.DataFrame, column: str = "score") -> dict[str, pd.DataFrame]:
    """Scores by task: a row per seed, a column per agent of the frame, keyed by `AgentSpec`."""
    out = {}
    for task, part in frame.groupby("task", sort=False):
        keyed = part.assign(
            spec=[
                AgentSpec(*row) for row in part[["critic", "network", "plasticity"]].itertuples(index=False)
            ]
        )
        out[str(task)] = keyed.pivot(index="seed", columns="spec", values=column)
    return out


def effects(scores: pd.DataFrame, *, draws: int = 2000) -> dict[str, dict[str, tuple[float, float, float]]]:
    """First-order effects of every technique but ``"none"``, with 95 % intervals.

    Parameters
    ----------
    scores : DataFrame
        A row per seed, a column per agent.

    Returns
    -------
    dict of str to dict of str to (point, low, high)
        By family and technique; runs are resampled within the two groups whose means are compared.
    """
    out: dict[str, dict[str, tuple[float, float, float]]] = {}
    for family, names in FAMILIES.items():
        plain = _runs(scores, family, "none")
        out[family] = {
            name: _interval([(1, _runs(scores, family, name)), (-1, plain)], draws, name)
            for name in names
            if name != "none"
        }
    return out


def layer_norm_advantage(
    scores: pd.DataFrame, rival: str, *, draws: int = 2000
) -> tuple[float, float, float]:
    """Marginal effect of layer norm minus that of a critic technique, with a 95 % interval.

    Runs are resampled within each of the four groups of agents whose means are compared.

    Parameters
    ----------
    scores : DataFrame
        A row per seed, a column per agent (see `grid_scores`).
    rival : {"cdq", "gpl", "top"}

    Returns
    -------
    (float, float, float)
        Point, lower and upper end.
    """
    groups = [
        (1, _runs(scores, "network", "layer_norm")),
        (-1, _runs(scores, "network", "none")),
        (-1, _runs(scores, "critic", rival)),
        (1, _runs(scores, "critic", "none")),
    ]
    return _interval(groups, draws, rival)


def difference_of_cells(
    scores: pd.DataFrame, first: dict[str, str], second: dict[str, str], *, draws: int = 2000
) -> tuple[float, float, float]:
    """Mean score of the agents with some techniques minus that with others, with a 95 % interval.

    Parameters
    ----------
    scores : DataFrame
        A row per seed, a column per agent.
    first, second : dict of str to str
        Technique by family; families left out are averaged over.

    Returns
    -------
    (float, float, float)
        Point, lower and upper end.
    """
    parts = []
    for sign, chosen in ((1, first), (-1, second)):
        specs = [s for s in scores.columns if all(getattr(s, f) == v for f, v in chosen.items())]
        parts.append((sign, scores[specs].to_numpy().ravel()))
    return _interval(parts, draws, "cells")


def _interval(groups: Sequence[tuple[int, np.ndarray]], draws: int, name: str) -> tuple[float, float, float]:
    """Signed sum of group means, with a bootstrap interval that resamples within each group."""
    g = numpy_generator(0, "actor_critic", "effects", name)
    drawn = sum(sign * g.choice(runs, (draws, len(runs))).mean(1) for sign, runs in groups)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(sum(sign * runs.mean() for sign, runs in groups)), float(low), float(high)


def _runs(scores: pd.DataFrame, family: str, technique: str) -> np.ndarray:
    chosen = [spec for spec in scores.columns if getattr(spec, family) == technique]
    return scores[chosen].to_numpy().ravel()
