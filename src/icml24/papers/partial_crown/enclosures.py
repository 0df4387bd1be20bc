r"""Linear enclosures: two affine functions of the input around a quantity, and the interval they give.

Inside the package an enclosure is a *band*: a middle affine function and a radius, both as coefficient
arrays (B, m, d + 1) in the centred coordinate :math:`\delta = z - c` of each box, the constant last. Then
``C @ q`` has the band ``(C @ mid, |C| @ rad)`` for any matrix C: this one line is the sign-aware substitution
of upper and lower bounds (eq-partial_crown-band).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["MARGIN", "Band", "Box", "DerivativeEnclosures", "LinearEnclosure", "meet"]

#: Every interval is widened by this much, relative to the terms that make it: a rounding margin.
MARGIN = 1e-12

Interval = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LinearEnclosure:
    r"""Affine bounds :math:`A_- z + b_- \le q(x) \le A_+ z + b_+` on boxes, and the interval of q.

    Attributes
    ----------
    A_lo, A_hi : Tensor, shape (B, m, d)
        Slopes in the normalised coordinate :math:`z = 2 (x - l)/(u - l) - 1` of the network.
    b_lo, b_hi : Tensor, shape (B, m)
        Constants; the rounding margin is inside.
    lower, upper : Tensor, shape (B, m)
        Certified interval on the box, at least as tight as the affine bounds. All float64.
    """

    A_lo: Tensor
    b_lo: Tensor
    A_hi: Tensor
    b_hi: Tensor
    lower: Tensor
    upper: Tensor


@dataclass(frozen=True)
class DerivativeEnclosures:
    """Enclosures of a network's outputs and of their derivatives, by physical coordinate."""

    u: LinearEnclosure
    du: dict[int, LinearEnclosure]
    d2u: dict[int, LinearEnclosure]


@dataclass(frozen=True)
class Box:
    """Boxes in normalised coordinates: centre, radius and greatest size |z|, each (B, d)."""

    centre: Tensor
    radius: Tensor
    size: Tensor

    @classmethod
    def of(cls, boxes: Tensor, lower: Tensor, upper: Tensor) -> Box:
        """Normalise physical boxes (B, 2, d); the radius is widened for rounding."""
        scale = 2 / (upper - lower)
        z = (boxes - lower) * scale - 1
        centre = 0.5 * (z[:, 0] + z[:, 1])
        shift = 4e-16 * (1 + (boxes.abs().amax(1) + lower.abs()) * scale)
        radius = 0.5 * (z[:, 1] - z[:, 0]) + shift
        return cls(centre, radius, centre.abs() + radius)


@dataclass(frozen=True)
class Band:
    """An enclosure as middle and radius, (B, m, d + 1) each, in the centred coordinate of the boxes."""

    mid: Tensor
    rad: Tensor

    def times(self, factor: Tensor) -> Band:
        """Band of ``factor * q``, factor (B, m)."""
        return Band(factor[..., None] * self.mid, factor.abs()[..., None] * self.rad)

    def through(self, matrix: Tensor) -> Band:
        """Band of ``matrix @ q``."""
        return Band(matrix @ self.mid, matrix.abs() @ self.rad)

    def plus(self, *others: Band) -> Band:
        """Band of the sum."""
        mid, rad = self.mid, self.rad
        for other in others:
            mid, rad = mid + other.mid, rad + other.rad
        return Band(mid, rad)

    def shifted(self, constant: Tensor, slack: Tensor | float = 0.0) -> Band:
        """Band of ``q + constant + e`` with ``|e| <= slack``, both (B, m)."""
        mid, rad = self.mid.clone(), self.rad.clone()
        mid[..., -1] += constant
        rad[..., -1] += slack
        return Band(mid, rad)

    @classmethod
    def between(cls, high: Tensor, low: Tensor) -> Band:
        """Band of two affine bounds given as coefficient arrays."""
        return cls(0.5 * (high + low), 0.5 * (high - low))

    @property
    def edges(self) -> tuple[Tensor, Tensor]:
        """Upper and lower affine bound, coefficient arrays (B, m, d + 1)."""
        return self.mid + self.rad, self.mid - self.rad

    def interval(self, box: Box) -> Interval:
        """Least and greatest value on the boxes, with the margin."""
        high, low = self.edges
        return -_greatest(-low, box), _greatest(high, box)

    def enclosure(self, box: Box, interval: Interval) -> LinearEnclosure:
        """In normalised, uncentred coordinates, with `interval` as the certified interval."""
        high, low = self.edges
        bounds = []
        for sign, edge in ((-1.0, low), (1.0, high)):
            slope = edge[..., :-1]
            shift = (slope * box.centre[:, None]).sum(-1)
            terms = edge[..., -1].abs() + (slope.abs() * box.size[:, None]).sum(-1)
            bounds += [slope, edge[..., -1] - shift + sign * MARGIN * (1 + terms)]
        return LinearEnclosure(*bounds, *interval)


def meet(*intervals: Interval) -> Interval:
    """Intersection of certified intervals; an overflow (NaN) counts as no bound."""
    low, high = intervals[0]
    for other in intervals[1:]:
        low, high = torch.fmax(low, other[0]), torch.fmin(high, other[1])
    return low.nan_to_num(nan=-torch.inf, neginf=-torch.inf), high.nan_to_num(nan=torch.inf, posinf=torch.inf)


def _greatest(edge: Tensor, box: Box) -> Tensor:
    slope, constant = edge[..., :-1], edge[..., -1]
    spread = (slope.abs() * box.radius[:, None]).sum(-1)
    terms = constant.abs() + (slope.abs() * box.size[:, None]).sum(-1)
    return constant + spread + MARGIN * (1 + terms)
