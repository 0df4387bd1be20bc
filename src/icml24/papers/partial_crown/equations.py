r"""Burgers' and the Allen-Cahn equation: residuals, conditions, and certified bounds of both.

Coordinates are (t, x). A nonlinear term is enclosed by an affine function of the network's outputs plus a
remainder, so that the whole residual becomes one linear combination (eq-partial_crown-residual).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from icml24.common.checks import WrongType, positive

from ._checks import as_boxes, as_double
from .bounds import Certified
from .enclosures import MARGIN, Band, Box, Interval, meet
from .networks import TanhMLP, network_derivatives
from .products import product_range, square_range

__all__ = ["PDE", "AllenCahn", "Burgers", "cosine_profile", "sine_profile", "taylor_band"]

INPUTS = 2


@runtime_checkable
class PDE(Protocol):
    """What training, sampling and certification ask of an equation; all points and boxes in (t, x)."""

    @property
    def domain(self) -> Tensor:
        """Lower and upper corner, shape (2, 2)."""

    @property
    def outputs(self) -> int:
        """Outputs of the network."""

    def residual(self, net: TanhMLP, x: Tensor) -> Tensor:
        """Residual (N,) at points (N, 2)."""

    def residual_bounds(
        self, net: TanhMLP, boxes: Any, *, method: str = "crown", product: str = "neuron"
    ) -> Interval:
        """Certified interval of `residual` on boxes (B, 2, 2)."""

    def initial_error(self, net: TanhMLP, x_space: Tensor) -> Tensor:
        """Error (N,) of the initial condition at positions (N,)."""

    def initial_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified interval of `initial_error` on boxes with t = t0."""

    def boundary_error(self, net: TanhMLP, x: Tensor) -> Tensor:
        """Error (N,) of the boundary condition at points (N, 2) of the boundary."""

    def boundary_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified interval of `boundary_error` on boxes of the boundary."""


@dataclass(frozen=True)
class Burgers:
    r"""Viscous Burgers equation :math:`u_t + u u_x = \nu u_{xx}`, u(0, x) = -sin(pi x), u(t, +-1) = 0.

    Parameters
    ----------
    viscosity : float, default 0.01 / pi
        :math:`\nu`, positive.
    """

    viscosity: float = 0.01 / math.pi

    def __post_init__(self) -> None:
        positive("viscosity", self.viscosity)

    @property
    def domain(self) -> Tensor:
        """Times [0, 1], positions [-1, 1]."""
        return torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def residual(self, net: TanhMLP, x: Tensor) -> Tensor:
        """u_t + u u_x - nu u_xx, shape (N,), at points (N, 2)."""
        u, du, d2u = _scalar(net, x)
        return du[:, 0] + u * du[:, 1] - self.viscosity * d2u[:, 1]

    def residual_bounds(
        self, net: TanhMLP, boxes: Any, *, method: str = "crown", product: str = "neuron"
    ) -> Interval:
        """Certified lower and upper bound (B,) of the residual on boxes (B, 2, 2); see `bound_network`."""
        c = certify(net, boxes, 1, first=(0, 1), second=(1,), method=method, product=product)
        u, ux = c.interval(), c.interval(1, 1)
        (mu, ru), (mx, rx) = centre(u), centre(ux)
        # u u_x = mx u + mu u_x - mu mx + (u - mu)(u_x - mx)
        joint = c.combination(
            {(1, 0, 0): 1.0, (1, 1, 0): mu, (0, 0, 0): mx, (2, 1, 0): -self.viscosity},
            constant(c, -mu * mx, ru * rx),
        )
        flux = product_range(u, ux)
        plain = c.plain({(1, 0, 0): 1.0, (2, 1, 0): -self.viscosity}, flux)
        return meet(joint, plain)

    def initial_error(self, net: TanhMLP, x_space: Tensor) -> Tensor:
        """u(0, x) + sin(pi x), shape (N,), at positions (N,)."""
        x = positions(x_space)
        return net(at_time(x, 0.0))[:, 0] + torch.sin(math.pi * x)

    def initial_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `initial_error` on boxes with t = 0."""
        checked = on_face(boxes, 0, (0.0,))
        c = certify(net, checked, 1)
        return c.combination({(0, 0, 0): 1.0}, sine_profile(checked, c.sweep.box, net, 1.0))

    def boundary_error(self, net: TanhMLP, x: Tensor) -> Tensor:
        """The boundary value u itself, shape (N,), at points (N, 2) with x = -1 or x = 1."""
        on_face(torch.stack((x, x), 1), 1, (-1.0, 1.0), "points")
        return net(x)[:, 0]

    def boundary_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of u on boxes with x = -1 or x = 1."""
        return certify(net, on_face(boxes, 1, (-1.0, 1.0)), 1).interval()


@dataclass(frozen=True)
class AllenCahn:
    r"""Allen-Cahn equation :math:`u_t + 5 u^3 - 5 u = 10^{-4} u_{xx}`, periodic, u(0, x) = x^2 cos(pi x).

    Parameters
    ----------
    diffusion : float, default 1e-4
    reaction : float, default 5.0
    """

    diffusion: float = 1e-4
    reaction: float = 5.0

    def __post_init__(self) -> None:
        positive("diffusion", self.diffusion)
        positive("reaction", self.reaction)

    @property
    def domain(self) -> Tensor:
        """Times [0, 1], positions [-1, 1]."""
        return torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def residual(self, net: TanhMLP, x: Tensor) -> Tensor:
        """u_t + 5 u^3 - 5 u - 1e-4 u_xx, shape (N,), at points (N, 2)."""
        u, du, d2u = _scalar(net, x)
        return du[:, 0] + self.reaction * (u**3 - u) - self.diffusion * d2u[:, 1]

    def residual_bounds(
        self, net: TanhMLP, boxes: Any, *, method: str = "crown", product: str = "neuron"
    ) -> Interval:
        """Certified lower and upper bound (B,) of the residual on boxes (B, 2, 2)."""
        c = certify(net, boxes, 1, first=(0,), second=(1,), method=method, product=product)
        slope, low, high = _cubic_lines(*c.interval())
        middle, half = 0.5 * self.reaction * (low + high), 0.5 * self.reaction * (high - low)
        terms = {(1, 0, 0): 1.0, (2, 1, 0): -self.diffusion}
        joint = c.combination({**terms, (0, 0, 0): self.reaction * slope}, constant(c, middle, half))
        flat = _cubic_range(*c.interval(), torch.zeros_like(slope))
        return meet(joint, c.plain(terms, (self.reaction * flat[0], self.reaction * flat[1])))

    def initial_error(self, net: TanhMLP, x_space: Tensor) -> Tensor:
        """u(0, x) - x^2 cos(pi x), shape (N,), at positions (N,)."""
        x = positions(x_space)
        return net(at_time(x, 0.0))[:, 0] - x**2 * torch.cos(math.pi * x)

    def initial_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `initial_error` on boxes with t = 0."""
        checked = on_face(boxes, 0, (0.0,))
        c = certify(net, checked, 1)
        return c.combination({(0, 0, 0): 1.0}, cosine_profile(checked, c.sweep.box, net))

    def boundary_error(self, net: TanhMLP, x: Tensor) -> Tensor:
        """u(t, 1) - u(t, -1), shape (N,), at the times of the points (N, 2); their positions do not matter."""
        return (net(at_position(x[:, 0], 1.0)) - net(at_position(x[:, 0], -1.0)))[:, 0]

    def boundary_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `boundary_error` over the times of the boxes."""
        return periodic_gap(net, boxes, (-1.0, 1.0))


def certify(
    net: TanhMLP,
    boxes: Any,
    outputs: int,
    *,
    first: tuple[int, ...] = (),
    second: tuple[int, ...] = (),
    method: str = "crown",
    product: str = "neuron",
) -> Certified:
    """`Certified.of` for a network of two inputs and so many outputs."""
    fits(net, outputs)
    with torch.no_grad():
        return Certified.of(net, boxes, first=first, second=second, method=method, product=product)


def fits(net: TanhMLP, outputs: int) -> None:
    """Raise unless `net` maps (t, x) to so many outputs."""
    if not isinstance(net, TanhMLP):
        raise WrongType(
            f"net must be a TanhMLP (other activations are not bounded); got {type(net).__name__}"
        )
    if net.dimension != INPUTS or net.outputs != outputs:
        raise ValueError(
            f"this equation needs a network of {INPUTS} inputs (t, x) and {outputs} output(s); "
            f"got {net.dimension} and {net.outputs}"
        )


def centre(x: Interval) -> tuple[Tensor, Tensor]:
    """Middle and radius of an interval; the radius is widened for the rounding of both."""
    mid = 0.5 * (x[0] + x[1])
    return mid, 0.5 * (x[1] - x[0]) + 2e-16 * mid.abs()


def constant(c: Certified, mid: Tensor, rad: Tensor) -> Band:
    """Band (B, 1, 3) that is constant on every box, with the rounding of its terms."""
    middle = torch.zeros(len(mid), 1, INPUTS + 1, dtype=torch.float64)
    radius = middle.clone()
    middle[:, 0, -1], radius[:, 0, -1] = mid, rad + MARGIN * mid.abs()
    return Band(middle, radius)


def taylor_band(
    boxes: Tensor, box: Box, net: TanhMLP, derivatives: Callable[[Tensor], tuple[Tensor, ...]], third: float
) -> Band:
    r"""Band of a function g of the position, by its second-order expansion at the middle of the box.

    .. math:: g(x) \in g(m) + g'(m)(x - m) + \tfrac12 (x - m)^2 \, g''([x]), \qquad
       g''([x]) \subseteq g''(m) \pm r \sup |g'''|

    Parameters
    ----------
    boxes : Tensor, shape (B, 2, 2)
    box : Box
        The same in the network's normalised coordinates.
    net : TanhMLP
    derivatives : callable
        Positions (B,) to ``(g, g', g'')``.
    third : float
        A bound of |g'''| on the boxes.

    Notes
    -----
    Source: eq-partial_crown-taylor.
    """
    # upcast before dividing: a single-precision network must not round the scale
    lower, upper = (end.detach().to(torch.float64)[1] for end in (net.lower, net.upper))
    scale = 2 / (upper - lower)
    m = (box.centre[:, 1] + 1) / scale + lower
    r = box.radius[:, 1] / scale
    g, g1, g2 = derivatives(m)
    low = (g2 - third * r).clamp(max=0) * 0.5 * r * r
    high = (g2 + third * r).clamp(min=0) * 0.5 * r * r
    mid = torch.zeros(len(m), 1, INPUTS + 1, dtype=torch.float64)
    rad = torch.zeros_like(mid)
    mid[:, 0, 1] = g1 / scale
    mid[:, 0, -1] = g + 0.5 * (low + high)
    # the middle is known up to the rounding of m and lower
    rad[:, 0, -1] = 0.5 * (high - low) + MARGIN * (1 + g.abs() + g1.abs() * (1 + m.abs() + lower.abs()))
    return Band(mid, rad)


def sine_profile(boxes: Tensor, box: Box, net: TanhMLP, sign: float) -> Band:
    """Band of ``sign * sin(pi x)``; |g'''| <= pi^3."""

    def g(x: Tensor) -> tuple[Tensor, ...]:
        s, c = torch.sin(math.pi * x), torch.cos(math.pi * x)
        return sign * s, sign * math.pi * c, -sign * math.pi**2 * s

    return taylor_band(boxes, box, net, g, math.pi**3)


def cosine_profile(boxes: Tensor, box: Box, net: TanhMLP) -> Band:
    """Band of ``-x^2 cos(pi x)``; |g'''| <= 6 pi + 6 pi^2 |x| + pi^3 x^2, with |x| at most the boxes' size."""

    def g(x: Tensor) -> tuple[Tensor, ...]:
        s, c = torch.sin(math.pi * x), torch.cos(math.pi * x)
        return (
            -(x**2) * c,
            -2 * x * c + math.pi * x**2 * s,
            -2 * c + 4 * math.pi * x * s + math.pi**2 * x**2 * c,
        )

    size = max(1.0, float(boxes[..., 1].abs().max())) if len(boxes) else 1.0
    return taylor_band(boxes, box, net, g, 6 * math.pi + 6 * math.pi**2 * size + math.pi**3 * size**2)


def periodic_gap(
    net: TanhMLP, boxes: Any, sides: tuple[float, float], order: int = 0, output: int = 0
) -> Interval:
    """Certified bounds (B,) of the difference of an output (or x-derivative) between two sides, in time."""
    checked = as_boxes(boxes, INPUTS)
    bands = []
    intervals = []
    for side in sides:
        face = checked.clone()
        face[..., 1] = side
        c = certify(net, face, net.outputs, first=(1,) if order else ())
        band = c.sweep.bands[order, order]
        # constants in x: move the (tiny) radius in x into the constant, keep the slope in t
        spread = (band.mid[..., 1].abs() + band.rad[..., 1].abs()) * c.sweep.box.radius[:, None, 1]
        mid, rad = band.mid.clone(), band.rad.clone()
        mid[..., 1], rad[..., 1] = 0.0, 0.0
        rad[..., -1] = rad[..., -1] + spread + MARGIN * (1 + mid[..., -1].abs())
        bands.append(Band(mid[:, output : output + 1], rad[:, output : output + 1]))
        intervals.append(c.interval(order, order, output))
    low, high = Band(bands[1].mid - bands[0].mid, bands[1].rad + bands[0].rad).interval(c.sweep.box)
    plain = (intervals[1][0] - intervals[0][1], intervals[1][1] - intervals[0][0])
    size = 1e-15 * (intervals[0][0].abs() + intervals[1][1].abs() + intervals[0][1].abs())
    return meet((low[:, 0], high[:, 0]), (plain[0] - size, plain[1] + size))


def on_face(boxes: Any, axis: int, places: tuple[float, ...], what: str = "boxes") -> Tensor:
    """Boxes that are degenerate in `axis`, at one of `places`."""
    checked = as_boxes(boxes, INPUTS)
    ends = checked[:, :, axis]
    fits_one = torch.stack([(ends == place).all(1) for place in places]).any(0)
    if not bool(fits_one.all()):
        name = ("t", "x")[axis]
        raise ValueError(
            f"{what} must have {name} = {' or '.join(f'{p:g}' for p in places)} exactly; "
            f"{int((~fits_one).sum())} of {len(checked)} have not"
        )
    return checked


def positions(x: Tensor) -> Tensor:
    """Positions or times (N,) as a floating tensor."""
    if not isinstance(x, Tensor):
        x = as_double("x_space", x)
    if x.ndim != 1:
        raise ValueError(f"x_space must have shape (N,); got {tuple(x.shape)}")
    return x


def at_time(x: Tensor, t: float) -> Tensor:
    """Points (t, x) for positions (N,)."""
    return torch.stack((torch.full_like(x, t), x), 1)


def at_position(t: Tensor, x: float) -> Tensor:
    """Points (t, x) for times (N,)."""
    return torch.stack((t, torch.full_like(t, x)), 1)


def _scalar(net: TanhMLP, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    fits(net, 1)
    u, du, d2u = network_derivatives(net, x)
    return u[:, 0], du[:, 0], d2u[:, 0]


def _cubic_lines(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slope a of u^3 - u, and the exact range of the rest, u^3 - u - a u, on [low, high]."""
    slope = (low * low + low * high + high * high) - 1  # the secant's
    return slope, *_cubic_range(low, high, slope)


def _cubic_range(low: Tensor, high: Tensor, slope: Tensor) -> Interval:
    root = torch.sqrt(((1 + slope) / 3).clamp(min=0))
    points = torch.stack((low, high, torch.clamp(root, low, high), torch.clamp(-root, low, high)))
    values = points**3 - (1 + slope) * points
    pad = MARGIN * (
        1 + square_range((low, high))[1] ** 1.5 + (1 + slope).abs() * high.abs().maximum(low.abs())
    )
    return values.amin(0) - pad, values.amax(0) + pad
