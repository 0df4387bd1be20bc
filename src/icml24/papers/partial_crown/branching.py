r"""From bounds on boxes to a certificate on a domain: greedy and uniform splitting, and plain sampling."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icml24.common.checks import number, whole
from icml24.common.random import generator as named_generator

from ._checks import as_boxes, as_double

__all__ = ["BranchResult", "greedy_branching", "monte_carlo_extrema", "uniform_branching"]

BoundFunction = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BranchResult:
    """A certificate: the domain is the union of the boxes, and the quantity lies in [lower, upper] on it.

    Attributes
    ----------
    lower, upper : float
        Least lower and greatest upper bound over the leaves.
    boxes : Tensor, shape (M, 2, d)
        The leaves.
    box_lower, box_upper : Tensor, shape (M,)
        Their bounds, intersected with those of their ancestors.
    evaluations : int
        Boxes bounded in all, parents included.
    history : list of (int, float, float)
        (evaluations, lower, upper) after every round.
    """

    lower: float
    upper: float
    boxes: Tensor
    box_lower: Tensor
    box_upper: Tensor
    evaluations: int
    history: list[tuple[int, float, float]]

    @property
    def largest(self) -> float:
        """Certified bound of the absolute value."""
        return max(abs(self.lower), abs(self.upper))


def greedy_branching(
    bound_fn: BoundFunction,
    domain: Any,
    *,
    max_evaluations: int,
    empirical_min: float,
    empirical_max: float,
    batch: int = 64,
) -> BranchResult:
    r"""Split the worst boxes first, until so many have been bounded.

    Parameters
    ----------
    bound_fn : callable
        Boxes (B, 2, d) to lower and upper bounds (B,), for instance ``lambda b: pde.residual_bounds(net, b)``.
    domain : array_like, shape (2, d)
        Lower and upper corner; axes of zero length are never split.
    max_evaluations : int
        Budget, at least 1, the domain included; exceeded by fewer boxes than one split makes.
    empirical_min, empirical_max : float
        Sampled extremes: a box is as bad as its bounds reach beyond them.
    batch : int, default 64
        Boxes taken at once, but never more than a quarter of the heap.

    Returns
    -------
    BranchResult

    Raises
    ------
    ValueError
        Bad domain, ``max_evaluations < 1``, ``batch < 1`` or ``empirical_min > empirical_max``.

    Notes
    -----
    Source: eq-partial_crown-partition. A child keeps the better of its own bounds and its parent's, which makes
    the certificate monotone (eq-partial_crown-monotone). A domain that is a point is bounded once.
    """
    root = _domain(domain)
    budget = whole("max_evaluations", max_evaluations, 1)
    size = whole("batch", batch, 1)
    least, greatest = number("empirical_min", empirical_min), number("empirical_max", empirical_max)
    if least > greatest:
        raise ValueError(f"empirical_min must not exceed empirical_max; got {least} > {greatest}")
    low, high = _bounds(bound_fn, root[None])
    ticket = itertools.count()
    heap = [(-max(least - low[0], high[0] - greatest), next(ticket), low[0], high[0], root)]
    evaluations = 1
    history = [(1, low[0], high[0])]
    axes = [i for i in range(root.shape[1]) if root[0, i] < root[1, i]]
    per_parent = 2 ** len(axes)
    while evaluations < budget and axes:
        left = -(-(budget - evaluations) // per_parent)  # parents that the budget still pays for, rounded up
        parents = [heapq.heappop(heap) for _ in range(min(size, left, max(1, len(heap) // 4)))]
        children = torch.cat([_split(parent[4], axes) for parent in parents])
        low, high = _bounds(bound_fn, children)
        for k, child in enumerate(children):
            _, _, outer_low, outer_high, _ = parents[k // per_parent]
            a, b = max(low[k], outer_low), min(high[k], outer_high)
            heapq.heappush(heap, (-max(least - a, b - greatest), next(ticket), a, b, child))
        evaluations += len(children)
        history.append((evaluations, min(leaf[2] for leaf in heap), max(leaf[3] for leaf in heap)))
    leaves = sorted(heap, key=lambda leaf: leaf[1])
    lower = torch.tensor([leaf[2] for leaf in leaves], dtype=torch.float64)
    upper = torch.tensor([leaf[3] for leaf in leaves], dtype=torch.float64)
    boxes = torch.stack([leaf[4] for leaf in leaves])
    return BranchResult(float(lower.min()), float(upper.max()), boxes, lower, upper, evaluations, history)


def uniform_branching(
    bound_fn: BoundFunction, domain: Any, *, splits: Sequence[int], batch: int = 256
) -> BranchResult:
    """Bound the cells of a regular grid.

    Parameters
    ----------
    bound_fn, domain
        As for `greedy_branching`.
    splits : sequence of int, length d
        Cells along every axis, each at least 1.
    batch : int, default 256
        Boxes bounded in one call.

    Returns
    -------
    BranchResult

    Raises
    ------
    ValueError
        Bad domain, splits or batch.
    """
    root = _domain(domain)
    size = whole("batch", batch, 1)
    counts = [whole("splits", n, 1) for n in splits]
    if len(counts) != root.shape[1]:
        raise ValueError(f"splits needs {root.shape[1]} entries, one an axis; got {counts}")
    edges = []
    for axis, n in enumerate(counts):
        edge = root[0, axis] + (root[1, axis] - root[0, axis]) * torch.arange(n + 1, dtype=torch.float64) / n
        edge[-1] = root[1, axis]  # the cells must cover the domain to the last bit
        edges.append(edge)
    low = torch.cartesian_prod(*(e[:-1] for e in edges)).reshape(-1, len(counts))
    high = torch.cartesian_prod(*(e[1:] for e in edges)).reshape(-1, len(counts))
    boxes = torch.stack((low, high), 1)
    found = [_bounds(bound_fn, part) for part in boxes.split(size)]
    lower = torch.tensor([v for part in found for v in part[0]], dtype=torch.float64)
    upper = torch.tensor([v for part in found for v in part[1]], dtype=torch.float64)
    ends = float(lower.min()), float(upper.max())
    return BranchResult(*ends, boxes, lower, upper, len(boxes), [(len(boxes), *ends)])


def monte_carlo_extrema(
    fn: Callable[[Tensor], Tensor],
    domain: Any,
    n: int,
    *,
    generator: torch.Generator | None = None,
    batch: int = 100_000,
) -> tuple[float, float]:
    """Least and greatest value at uniform points: never more than the true range.

    Parameters
    ----------
    fn : callable
        Points (N, d), float64, to values (N,).
    domain : array_like, shape (2, d)
    n : int
        Points, at least 1.
    generator : torch.Generator, optional
        None is a fixed stream of its own.
    batch : int, default 100_000
        Points evaluated at once.

    Returns
    -------
    (float, float)

    Raises
    ------
    ValueError
        Bad domain, ``n < 1``, ``batch < 1``, or values that are NaN.
    """
    root = _domain(domain)
    left, size = whole("n", n, 1), whole("batch", batch, 1)
    draws = named_generator(0, "monte_carlo_extrema") if generator is None else generator
    low, high = float("inf"), float("-inf")
    while left:
        count = min(left, size)
        x = root[0] + (root[1] - root[0]) * torch.rand(
            count, root.shape[1], generator=draws, dtype=torch.float64
        )
        x = torch.minimum(x, root[1])  # rounding must not carry a point out of the domain
        with torch.no_grad():
            values = fn(x)
        if bool(torch.isnan(values).any()):
            raise ValueError("fn returned NaN: its extremes are not defined")
        low, high = min(low, float(values.min())), max(high, float(values.max()))
        left -= count
    return low, high


def _domain(domain: Any) -> Tensor:
    box = as_double("domain", domain)
    if box.ndim != 2 or len(box) != 2 or box.shape[1] == 0:
        raise ValueError(f"domain must have shape (2, d), lower corner then upper; got {tuple(box.shape)}")
    return as_boxes(box[None], box.shape[1])[0]


def _bounds(bound_fn: BoundFunction, boxes: Tensor) -> tuple[list[float], list[float]]:
    low, high = bound_fn(boxes)
    if low.shape != (len(boxes),) or high.shape != (len(boxes),):
        raise ValueError(
            f"bound_fn must return two tensors of shape ({len(boxes)},); "
            f"got {tuple(low.shape)} and {tuple(high.shape)}"
        )
    if bool((~(low <= high)).any()):
        raise ValueError("bound_fn returned a lower bound above its upper bound, or NaN")
    return low.tolist(), high.tolist()


def _split(box: Tensor, axes: Sequence[int]) -> Tensor:
    """Children of a box halved along `axes`, shape (2 ** len(axes), 2, d)."""
    children = [box]
    for axis in axes:
        middle = 0.5 * (box[0, axis] + box[1, axis])
        halves = []
        for child in children:
            left, right = child.clone(), child.clone()
            left[1, axis], right[0, axis] = middle, middle
            halves += [left, right]
        children = halves
    return torch.stack(children)
