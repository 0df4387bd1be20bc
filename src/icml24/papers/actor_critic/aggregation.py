r"""From scores of many runs to statements about techniques.

Robust means with stratified intervals (Agarwal et al., 2021), the marginal view of the
paper (mean over all agents that share a technique), and Shapley's division of one agent's
gain over plain SAC among its three techniques.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from icml24.common.checks import WrongType, probability, whole
from icml24.common.random import generator as stream

from .agents import FAMILIES, AgentSpec, techniques

__all__ = [
    "bootstrap_iqm",
    "first_order_effects",
    "iqm",
    "probability_of_improvement",
    "second_order_effects",
    "shapley_contributions",
    "spearman",
]


def iqm(scores: Tensor | ArrayLike) -> Tensor:
    r"""Mean of the middle half of all scores.

    Parameters
    ----------
    scores : Tensor or array_like, any shape
        Flattened; :math:`\lfloor n/4 \rfloor` values are dropped at each end.

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        No scores, or NaN among them.

    Notes
    -----
    Source: eq-actor_critic-iqm.
    """
    return _iqm(_scores("scores", scores).reshape(-1))


def bootstrap_iqm(
    scores: Tensor | ArrayLike,
    *,
    reps: int = 2000,
    confidence: float = 0.95,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`iqm` with a percentile interval; runs are resampled within each task.

    Parameters
    ----------
    scores : Tensor or array_like, shape (runs, tasks)
    reps : int, default 2000
        Resamples, at least 1.
    confidence : float in (0, 1), default 0.95
    generator : torch.Generator, optional
        None draws from a fixed stream.

    Returns
    -------
    (Tensor, Tensor, Tensor)
        Point, lower and upper end, each of shape ().

    Raises
    ------
    ValueError
        `scores` is not a finite, non-empty table, or an option out of range.
    """
    table = _table("scores", scores)
    tail = (1 - probability("confidence", confidence)) / 2
    whole("reps", reps, 1)
    g = stream(0, "actor_critic", "bootstrap") if generator is None else generator
    picks = torch.randint(len(table), (reps, *table.shape), generator=g).to(table.device)
    drawn = table.unsqueeze(0).expand(reps, -1, -1).gather(1, picks)
    low, high = torch.quantile(_iqm(drawn.flatten(1)), table.new_tensor([tail, 1 - tail]))
    return _iqm(table.reshape(-1)), low, high


def probability_of_improvement(x: Tensor | ArrayLike, y: Tensor | ArrayLike) -> Tensor:
    """Chance that a run of `x` beats a run of `y` on the same task, ties counting half, mean over tasks.

    Parameters
    ----------
    x, y : Tensor or array_like, shapes (runs_x, tasks) and (runs_y, tasks)

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        Not two finite tables with the same number of tasks.
    """
    x, y = _table("x", x), _table("y", y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x and y must have the same tasks; got {x.shape[1]} and {y.shape[1]} columns")
    gap = x.unsqueeze(1) - y.unsqueeze(0).to(x)
    return ((gap > 0).to(x) + 0.5 * (gap == 0).to(x)).mean()


def spearman(a: Tensor | ArrayLike, b: Tensor | ArrayLike) -> Tensor:
    """Rank correlation: Pearson's correlation of ranks, ties sharing their mean rank.

    Parameters
    ----------
    a, b : Tensor or array_like, shape (n,), ``n >= 2``

    Returns
    -------
    Tensor, shape ()
        NaN when one argument is constant.

    Raises
    ------
    ValueError
        Not two finite vectors of one length, at least 2.

    Notes
    -----
    Source: eq-actor_critic-spearman.
    """
    a, b = _scores("a", a), _scores("b", b)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ValueError(
            f"a and b must be vectors of one length, at least 2; got {tuple(a.shape)}, {tuple(b.shape)}"
        )
    ranks = torch.stack([_mid_ranks(a), _mid_ranks(b)])
    centred = ranks - ranks.mean(1, keepdim=True)
    return ((centred[0] @ centred[1]) / (centred[0].norm() * centred[1].norm())).to(a.dtype)


def first_order_effects(scores: Mapping[AgentSpec, float], family: str) -> dict[str, float]:
    """Mean score of all agents that share a technique of a family.

    Parameters
    ----------
    scores : mapping of AgentSpec to float
        Any part of the grid, not empty.
    family : {"critic", "network", "plasticity"}

    Returns
    -------
    dict of str to float
        In the family's order; NaN where no agent has the technique. Effects are differences
        from the entry ``"none"``.

    Raises
    ------
    ValueError
        Unknown family, no scores, NaN scores or agents outside the grid.

    Notes
    -----
    Source: eq-actor_critic-marginal.
    """
    names = techniques(family)
    _check_grid(scores)
    return {
        name: _mean([score for spec, score in scores.items() if getattr(spec, family) == name])
        for name in names
    }


def second_order_effects(scores: Mapping[AgentSpec, float], family_a: str, family_b: str) -> Tensor:
    """Mean score of all agents that share a technique of each of two families.

    Parameters
    ----------
    scores : mapping of AgentSpec to float
    family_a, family_b : str
        Rows and columns; different families.

    Returns
    -------
    Tensor, shape (4, 4), float64
        NaN where no agent has the pair.

    Raises
    ------
    ValueError
        As for `first_order_effects`, or one family given twice.
    """
    rows, columns = techniques(family_a), techniques(family_b)
    if family_a == family_b:
        raise ValueError(f"expected two different families; got {family_a!r} twice")
    _check_grid(scores)
    cells = [
        [
            _mean(
                [
                    s
                    for spec, s in scores.items()
                    if (getattr(spec, family_a), getattr(spec, family_b)) == pair
                ]
            )
            for pair in itertools.product([row], columns)
        ]
        for row in rows
    ]
    return torch.tensor(cells, dtype=torch.float64)


def shapley_contributions(scores: Mapping[AgentSpec, float], spec: AgentSpec) -> dict[str, float]:
    r"""Divide an agent's gain over plain SAC among its three techniques.

    Parameters
    ----------
    scores : mapping of AgentSpec to float
        Must hold `spec` and every agent got by setting some of its techniques to ``"none"``.
    spec : AgentSpec

    Returns
    -------
    dict of str to float
        Keys ``"critic"``, ``"network"``, ``"plasticity"``; they sum to ``scores[spec] - scores[SAC]``.

    Raises
    ------
    KeyError
        An agent is missing; the message names it.

    Notes
    -----
    Source: eq-actor_critic-shapley.
    """
    total = dict.fromkeys(FAMILIES, 0.0)
    orders = list(itertools.permutations(FAMILIES))
    for order in orders:
        agent = AgentSpec()
        for family in order:
            after = replace(agent, **{family: getattr(spec, family)})
            total[family] += _score_of(scores, after) - _score_of(scores, agent)
            agent = after
    return {family: value / len(orders) for family, value in total.items()}


def _iqm(values: Tensor) -> Tensor:
    n = values.shape[-1]
    return values.sort(-1).values[..., n // 4 : n - n // 4].mean(-1)


def _mid_ranks(x: Tensor) -> Tensor:
    _, place, counts = torch.unique(x, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts.double() - 1) / 2)[place]


def _scores(name: str, values: Tensor | ArrayLike) -> Tensor:
    try:
        out = values if isinstance(values, Tensor) else torch.tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise WrongType(
            f"{name} must be a tensor or an array of numbers; got {type(values).__name__}"
        ) from None
    if out.dtype == torch.bool or out.is_complex():
        raise WrongType(f"{name} must hold real numbers; got {out.dtype}")
    out = out if out.is_floating_point() else out.double()
    if out.numel() == 0:
        raise ValueError(f"{name} is empty, shape {tuple(out.shape)}; expected at least one score")
    if not bool(torch.isfinite(out).all()):
        raise ValueError(f"{name} must be finite; explain failed runs before averaging over them")
    return out


def _table(name: str, values: Tensor | ArrayLike) -> Tensor:
    out = _scores(name, values)
    if out.ndim != 2:
        raise ValueError(f"{name} must have shape (runs, tasks); got {tuple(out.shape)}")
    return out


def _check_grid(scores: Mapping[AgentSpec, float]) -> None:
    if len(scores) == 0:
        raise ValueError("scores is empty; expected at least one agent's score")
    for spec, score in scores.items():
        if not isinstance(spec, AgentSpec) or any(getattr(spec, f) not in FAMILIES[f] for f in FAMILIES):
            raise ValueError(f"scores must be keyed by agents of the grid; got {spec!r}")
        if not math.isfinite(float(score)):
            raise ValueError(f"the score of {spec.name!r} is not finite: {score!r}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(map(float, values)) / len(values) if values else math.nan


def _score_of(scores: Mapping[AgentSpec, float], spec: AgentSpec) -> float:
    if spec not in scores:
        raise KeyError(f"the score of {spec.name!r} is missing ({spec}); Shapley's division needs it")
    return float(scores[spec])
