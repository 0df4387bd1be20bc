r"""One radius instead of two hyperparameters, and the line that extrapolates it.

The radius :math:`r = \eta T` stands for every (learning rate, steps) pair with that
product; the best radius grows with the privacy budget, and two cheap trials give the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from . import _validate as check

__all__ = [
    "LinearRule",
    "decompose_radius",
    "extrapolation_std",
    "fit_linear_rule",
    "nearest_pair",
    "radius_candidates",
]


@dataclass(frozen=True)
class LinearRule:
    r"""Radius as a function of the budget: :math:`r(\varepsilon) = m\varepsilon + b`.

    Attributes
    ----------
    slope : float
        `m`, in steps times learning rate, a unit of epsilon.
    intercept : float
        `b`, the radius at epsilon = 0; may be negative.
    """

    slope: float
    intercept: float

    def __call__(self, epsilon: float) -> float:
        """Radius at `epsilon`; not clipped to any grid, so it may be negative."""
        return self.slope * epsilon + self.intercept


def fit_linear_rule(epsilons: Sequence[float], radii: Sequence[float]) -> LinearRule:
    r"""Least-squares line through (epsilon, radius) points; through both, when there are two.

    Parameters
    ----------
    epsilons, radii : sequence of float, shape (n,)
        At least two different budgets, each positive; radii finite.

    Returns
    -------
    LinearRule

    Raises
    ------
    ValueError
        Different lengths, non-finite values, or fewer than two distinct budgets.

    Notes
    -----
    Source: eq-private_hpo-line.

    Examples
    --------
    >>> fit_linear_rule([1.0, 2.0], [10.0, 30.0])(4.0)
    70.0
    """
    eps = np.asarray(list(epsilons), dtype=np.float64)
    rs = np.asarray(list(radii), dtype=np.float64)
    if eps.ndim != 1 or eps.shape != rs.shape:
        raise ValueError(
            f"epsilons and radii must be two lists of one length; got {eps.shape} and {rs.shape}"
        )
    if not (np.isfinite(eps).all() and np.isfinite(rs).all()):
        raise ValueError("epsilons and radii must be finite")
    if len(np.unique(eps)) < 2:
        raise ValueError(f"a line needs at least 2 distinct epsilons; got {sorted(set(eps.tolist()))}")
    centred = eps - eps.mean()
    slope = float(centred @ (rs - rs.mean()) / (centred @ centred))
    return LinearRule(slope, float(rs.mean()) - slope * float(eps.mean()))


def extrapolation_std(trial_epsilons: tuple[float, float], final_epsilon: float) -> float:
    r"""Standard deviation of the extrapolated radius, for radii of unit standard deviation.

    .. math:: \bigl((1-u)^2 + u^2\bigr)^{1/2}, \qquad u = (\varepsilon_f - \varepsilon_1)/(\varepsilon_2 - \varepsilon_1)

    Parameters
    ----------
    trial_epsilons : (float, float)
        Budgets of the two rounds.
    final_epsilon : float
        Budget of the final run.

    Returns
    -------
    float
        Source: eq-private_hpo-variance.
    """
    first, second = trial_epsilons
    u = (final_epsilon - first) / (second - first)
    return math.hypot(1 - u, u)


def radius_candidates(
    r: float, etas: Iterable[float], steps: Iterable[int], rtol: float = 0.05
) -> list[tuple[float, int]]:
    r"""Pairs of the grid whose product lies within `rtol` of `r`: :math:`|\eta T - r| \le \mathrm{rtol}\, r`.

    Parameters
    ----------
    r : float
        Radius; positive.
    etas : iterable of float
        Learning rates, each positive.
    steps : iterable of int
        Step counts, each at least 1.
    rtol : float, default 0.05
        Relative tolerance, zero or positive.

    Returns
    -------
    list of (float, int)
        Sorted by learning rate, then steps. Empty when the grid has no such pair.

    Raises
    ------
    ValueError
        A bad argument.

    Notes
    -----
    Source: eq-private_hpo-admissible.
    """
    r, rtol = check.positive("r", r), check.nonnegative("rtol", rtol)
    pairs = _pairs(etas, steps)
    return sorted((eta, count) for eta, count in pairs if abs(eta * count - r) <= rtol * r)


def decompose_radius(
    r: float,
    etas: Iterable[float],
    steps: Iterable[int],
    *,
    rtol: float = 0.05,
    generator: torch.Generator | None = None,
) -> tuple[float, int]:
    r"""Draw one of the `radius_candidates` uniformly.

    Parameters
    ----------
    r, etas, steps, rtol
        As for `radius_candidates`.
    generator : torch.Generator, optional
        The only source of randomness when given.

    Returns
    -------
    (float, int)
        Learning rate and steps. The law is that of drawing grid pairs until one is
        admissible, but the draw always ends.

    Raises
    ------
    ValueError
        A bad argument, or a grid without a candidate: the message gives the nearest product.

    Notes
    -----
    Source: eq-private_hpo-admissible.
    """
    etas, steps = tuple(etas), tuple(steps)
    found = radius_candidates(r, etas, steps, rtol)
    if not found:
        eta, count = nearest_pair(r, etas, steps)
        raise ValueError(
            f"no pair of the grid has a product within rtol = {rtol:g} of r = {r:g}; the nearest product is "
            f"{eta * count:g} (eta = {eta:g}, T = {count}): refine the grid or raise rtol"
        )
    device = "cpu" if generator is None else generator.device
    return found[int(torch.randint(len(found), (), generator=generator, device=device))]


def nearest_pair(r: float, etas: Iterable[float], steps: Iterable[int]) -> tuple[float, int]:
    """Pair whose product is nearest to `r` on a logarithmic scale; the smallest for ``r <= 0``."""
    pairs = sorted(_pairs(etas, steps))
    if r <= 0:
        return min(pairs, key=lambda pair: pair[0] * pair[1])
    return min(pairs, key=lambda pair: abs(math.log(pair[0] * pair[1] / r)))


def _pairs(etas: Iterable[float], steps: Iterable[int]) -> list[tuple[float, int]]:
    counts = check.step_grid(steps)
    return [(eta, count) for eta in check.grid("etas", etas) for count in counts]
