r"""A search for a point outside a certified bound: sampling, then ascent from the points that came closest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.random import generator

from .bounds import bound_network
from .equations import PDE
from .networks import TanhMLP, network_derivatives
from .systems import Schrodinger

__all__ = ["Search", "search", "search_equation"]

#: Points a box from which the ascent starts, and its steps.
STARTS = 2
STEPS = 12


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes
    ----------
    points : int
        Sampled points, each tested against every bound of its box.
    ascended : int
        Points visited by the ascent.
    violations : int
        (point, bound) pairs outside.
    closest : float
        Least distance to a bound over the width of the box's bounds (negative: a violation). Degenerate
        boxes, where that distance is rounding itself, are left out of this figure, not of the test.
    """

    points: int
    ascended: int
    violations: int
    closest: float

    def __add__(self, other: Search) -> Search:
        return Search(
            self.points + other.points,
            self.ascended + other.ascended,
            self.violations + other.violations,
            min(self.closest, other.closest),
        )


def search(
    networks: Mapping[str, TanhMLP],
    boxes: int,
    points: int,
    seed: int,
    *,
    products: tuple[str, ...] = ("neuron",),
) -> Search:
    """Test u, both first and both second derivatives of networks on random boxes of their domains.

    Box radii run from 0 to half the domain; every other network gets corners rounded to float32. All
    evaluations are in float64 and are compared without slack.
    """
    total = Search(0, 0, 0, float("inf"))
    for k, (name, net) in enumerate(networks.items()):
        draws = generator(seed, "soundness", name)
        batch = _random_boxes(net.lower.double(), net.upper.double(), boxes, draws, single=k % 2 == 1)
        for product in products:
            e = bound_network(net, batch, first=(0, 1), second=(0, 1), product=product)
            parts = [e.u, e.du[0], e.du[1], e.d2u[0], e.d2u[1]]
            low = torch.cat([p.lower for p in parts], 1)
            high = torch.cat([p.upper for p in parts], 1)
            total += _hunt(
                lambda x, n=net: _quantities(n, x), batch, low, high, points // len(products), draws
            )
    return total


def search_equation(pde: PDE, net: TanhMLP, boxes: int, points: int, seed: int) -> Search:
    """Test every bound of an equation on random boxes of its domain.

    The residual with both products and by interval arithmetic, `points` split among the three; then the
    initial condition and the boundary condition on both sides, with half of `points` each.
    """
    draws = generator(seed, "soundness", type(pde).__name__)
    low, high = pde.domain
    batch = _random_boxes(low, high, boxes, draws, single=False)
    total = Search(0, 0, 0, float("inf"))
    for options in ({}, {"product": "entry"}, {"method": "ibp"}):
        ends = pde.residual_bounds(net, batch, **options)
        total += _hunt_one(lambda x: pde.residual(net, x), batch, ends, points // 3, draws)
    start = _face(batch, 0, low[0])
    total += _hunt_one(
        lambda x: pde.initial_error(net, x[:, 1]), start, pde.initial_bounds(net, start), points // 2, draws
    )
    for side in (low[1], high[1]):
        face = _face(batch, 1, side)
        for options in ({"order": 0}, {"order": 1}) if isinstance(pde, Schrodinger) else ({},):
            ends = pde.boundary_bounds(net, face, **options)
            total += _hunt_one(
                lambda x, o=options: pde.boundary_error(net, x, **o), face, ends, points // 2, draws
            )
    return total


def _hunt_one(function, boxes: Tensor, ends: tuple[Tensor, Tensor], points: int, draws) -> Search:
    return _hunt(lambda x: function(x)[:, None], boxes, ends[0][:, None], ends[1][:, None], points, draws)


def _face(boxes: Tensor, axis: int, place: Tensor) -> Tensor:
    out = boxes.clone()
    out[..., axis] = place
    return out


def _quantities(net: TanhMLP, x: Tensor) -> Tensor:
    u, du, d2u = network_derivatives(net, x)
    return torch.cat((u, du[..., 0], du[..., 1], d2u[..., 0], d2u[..., 1]), 1)


def _random_boxes(low: Tensor, high: Tensor, n: int, draws: torch.Generator, *, single: bool) -> Tensor:
    centre = low + (high - low) * torch.rand(n, 2, generator=draws, dtype=torch.float64)
    radius = 0.5 * (high - low) * 10 ** (-4 * torch.rand(n, 2, generator=draws, dtype=torch.float64))
    radius[:: max(n // 4, 1)] = 0.0  # some points, too
    boxes = torch.stack((centre - radius, centre + radius), 1)
    boxes = torch.maximum(torch.minimum(boxes, high), low)
    return boxes.float().double() if single else boxes


def _hunt(function, boxes: Tensor, low: Tensor, high: Tensor, points: int, draws: torch.Generator) -> Search:
    n, d = len(boxes), boxes.shape[2]
    size = boxes[:, 1] - boxes[:, 0]
    share = torch.rand(n, points, d, generator=draws, dtype=torch.float64)
    share[:, : 2**d] = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * d)
    x = _inside(boxes, boxes[:, None, 0] + size[:, None] * share)
    with torch.no_grad():
        values = function(x.reshape(-1, d)).double().reshape(n, points, -1)
    outside = int(((values < low[:, None]) | (values > high[:, None])).sum())
    gap = torch.stack((values - low[:, None], high[:, None] - values))  # (2, n, points, quantities)
    visited = 0
    closest = _closest(gap, size, high - low)
    # from the points nearest to each bound, walk along the sign of the gradient in shrinking steps
    start = gap.topk(min(STARTS, points), dim=2, largest=False).indices
    for side, sign in ((0, -1.0), (1, 1.0)):
        for q in range(values.shape[2]):
            at = torch.gather(x, 1, start[side, :, :, q][..., None].expand(-1, -1, d))
            for step in range(STEPS):
                here = at.clone().requires_grad_(True)
                value = function(here.reshape(-1, d))[:, q]
                slope = torch.autograd.grad(value.sum(), here)[0]
                at = _inside(boxes, at + sign * 0.3 * 0.7**step * size[:, None] * torch.sign(slope))
                with torch.no_grad():
                    found = function(at.reshape(-1, d))[:, q].double().reshape(n, -1)
                distance = found - low[:, None, q] if sign < 0 else high[:, None, q] - found
                outside += int((distance < 0).sum())
                visited += distance.numel()
                closest = min(closest, _closest(distance[None, ..., None], size, (high - low)[:, q : q + 1]))
    return Search(n * points, visited, outside, closest)


def _inside(boxes: Tensor, x: Tensor) -> Tensor:
    return torch.maximum(torch.minimum(x, boxes[:, None, 1]), boxes[:, None, 0])


def _closest(gap: Tensor, size: Tensor, width: Tensor) -> float:
    proper = (size > 0).any(1)[:, None] & (width > 0)  # bounds of width zero: an output that is constant
    share = torch.where(proper, gap.amin((0, 2)) / width.clamp(min=1e-300), torch.inf)
    return float(share.min())
