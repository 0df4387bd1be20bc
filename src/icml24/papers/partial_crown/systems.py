r"""The Schroedinger system and diffusion-sorption: two outputs, and an output behind a ReLU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icml24.common.checks import positive

from .enclosures import MARGIN, Interval, meet
from .equations import (
    at_position,
    at_time,
    centre,
    certify,
    constant,
    fits,
    on_face,
    periodic_gap,
    positions,
    taylor_band,
)
from .networks import TanhMLP, network_derivatives
from .products import product_range, square_range

__all__ = ["DiffusionSorption", "Schrodinger"]


@dataclass(frozen=True)
class Schrodinger:
    r"""Nonlinear Schroedinger equation :math:`i u_t + \tfrac12 u_{xx} + |u|^2 u = 0` for u = h + i v, periodic.

    Outputs of the network are (h, v); u(0, x) = 2 sech x. The certified quantities are squared moduli:
    the residual is real^2 + imag^2, with real part :math:`v_t - \tfrac12 h_{xx} - (h^2 + v^2) h` and imaginary
    part :math:`h_t + \tfrac12 v_{xx} + (h^2 + v^2) v`.

    Parameters
    ----------
    horizon : float, default pi / 2
        Last time; the paper's, shorter ones are cheaper to learn.
    """

    horizon: float = math.pi / 2

    def __post_init__(self) -> None:
        positive("horizon", self.horizon)

    @property
    def domain(self) -> Tensor:
        """Times [0, horizon], positions [-5, 5]."""
        return torch.tensor([[0.0, -5.0], [self.horizon, 5.0]], dtype=torch.float64)

    @property
    def outputs(self) -> int:
        """Two: real and imaginary part."""
        return 2

    def residual_parts(self, net: TanhMLP, x: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary part (N,) of the residual at points (N, 2)."""
        fits(net, 2)
        u, du, d2u = network_derivatives(net, x)
        h, v = u.unbind(1)
        square = h * h + v * v
        real = du[:, 1, 0] - 0.5 * d2u[:, 0, 1] - square * h
        return real, du[:, 0, 0] + 0.5 * d2u[:, 1, 1] + square * v

    def residual(self, net: TanhMLP, x: Tensor) -> Tensor:
        """real^2 + imag^2, shape (N,), at points (N, 2)."""
        real, imaginary = self.residual_parts(net, x)
        return real**2 + imaginary**2

    def residual_bounds(
        self, net: TanhMLP, boxes: Any, *, method: str = "crown", product: str = "neuron"
    ) -> Interval:
        """Certified lower and upper bound (B,) of the squared residual on boxes (B, 2, 2)."""
        c = certify(net, boxes, 2, first=(0,), second=(1,), method=method, product=product)
        h, v = c.interval(output=0), c.interval(output=1)
        parts = []
        for first, second, sign, outer, other in ((1, 0, -1.0, 0, 1), (0, 1, 1.0, 1, 0)):
            ranges = (h, v) if outer == 0 else (v, h)
            along, across, middle, half = _modulus_times(*ranges)
            terms = {(1, 0, first): 1.0, (2, 1, second): 0.5 * sign}
            joint = c.combination(
                {**terms, (0, 0, outer): sign * along, (0, 0, other): sign * across},
                constant(c, sign * middle, half),
            )
            a, b = square_range(ranges[0]), square_range(ranges[1])
            cube = product_range((a[0] + b[0], a[1] + b[1]), ranges[0])
            plain = c.plain(terms, cube if sign > 0 else (-cube[1], -cube[0]))
            parts.append(square_range(meet(joint, plain)))
        return _sum_of_squares(*parts)

    def initial_error(self, net: TanhMLP, x_space: Tensor) -> Tensor:
        """(h - 2 sech x)^2 + v^2, shape (N,), at positions (N,) and t = 0."""
        fits(net, 2)
        x = positions(x_space)
        h, v = net(at_time(x, 0.0)).unbind(1)
        return (h - 2 / torch.cosh(x)) ** 2 + v**2

    def initial_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `initial_error` on boxes with t = 0."""
        checked = on_face(boxes, 0, (0.0,))
        c = certify(net, checked, 2)
        profile = taylor_band(checked, c.sweep.box, net, _minus_two_sech, 10.0)
        return _sum_of_squares(
            square_range(c.combination({(0, 0, 0): 1.0}, profile)), square_range(c.interval(output=1))
        )

    def boundary_error(self, net: TanhMLP, x: Tensor, *, order: int = 0) -> Tensor:
        """|u(t, 5) - u(t, -5)|^2, or of the x-derivatives (order 1), shape (N,), at the times of `x` (N, 2)."""
        fits(net, 2)
        sides = [network_derivatives(net, at_position(x[:, 0], side)) for side in (-5.0, 5.0)]
        gap = sides[1][0] - sides[0][0] if not _order(order) else (sides[1][1] - sides[0][1])[..., 1]
        return (gap**2).sum(1)

    def boundary_bounds(self, net: TanhMLP, boxes: Any, *, order: int = 0) -> Interval:
        """Certified bounds (B,) of `boundary_error` over the times of the boxes."""
        fits(net, 2)
        gaps = [periodic_gap(net, boxes, (-5.0, 5.0), _order(order), output) for output in (0, 1)]
        return _sum_of_squares(*(square_range(gap) for gap in gaps))


@dataclass(frozen=True)
class DiffusionSorption:
    r"""Diffusion with sorption :math:`w_t = (D / R(w)) w_{xx}` of the concentration w = ReLU(u).

    :math:`R(w) = 1 + \frac{1 - \phi}{\phi} \rho_s k_f n_f (w + 10^{-6})^{n_f - 1}`; w(0, x) = 0, w(t, 0) = 1 and
    w(t, 1) = D w_x(t, 1).

    Parameters
    ----------
    horizon : float, default 500.0
    diffusion : float, default 5e-4
    porosity, density, freundlich, exponent : float
        :math:`\phi, \rho_s, k_f, n_f` as in the released code.
    """

    horizon: float = 500.0
    diffusion: float = 5e-4
    porosity: float = 0.29
    density: float = 2880.0
    freundlich: float = 3.5e-4
    exponent: float = 0.874

    def __post_init__(self) -> None:
        for name in ("horizon", "diffusion", "porosity", "density", "freundlich", "exponent"):
            positive(name, getattr(self, name))
        if self.porosity >= 1 or self.exponent >= 1:
            raise ValueError("porosity and exponent must lie in (0, 1): the retardation must fall with w")

    @property
    def domain(self) -> Tensor:
        """Times [0, horizon], positions [0, 1]."""
        return torch.tensor([[0.0, 0.0], [self.horizon, 1.0]], dtype=torch.float64)

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def diffusivity(self, w: Tensor) -> Tensor:
        """D / R(w), increasing and concave in w >= 0."""
        return self.diffusion / (1 + self._sorption * (w + 1e-6) ** (self.exponent - 1))

    def residual(self, net: TanhMLP, x: Tensor) -> Tensor:
        """w_t - D / R(w) w_xx, shape (N,), at points (N, 2); zero where u <= 0."""
        fits(net, 1)
        u, du, d2u = (a[:, 0] for a in network_derivatives(net, x))
        wet = (u > 0).to(u.dtype)
        return wet * (du[:, 0] - self.diffusivity(torch.relu(u)) * d2u[:, 1])

    def residual_bounds(
        self, net: TanhMLP, boxes: Any, *, method: str = "crown", product: str = "neuron"
    ) -> Interval:
        """Certified lower and upper bound (B,) of the residual on boxes (B, 2, 2)."""
        c = certify(net, boxes, 1, first=(0,), second=(1,), method=method, product=product)
        u, second = c.interval(), c.interval(2, 1)
        w = (u[0].clamp(min=0), u[1].clamp(min=0))
        phi = (self.diffusivity(w[0]) * (1 - 1e-14), self.diffusivity(w[1]) * (1 + 1e-14))
        (mp, rp), (ms, rs) = centre(phi), centre(second)
        slope, low, high = self._line(w)
        slope = torch.where(u[0] > 0, slope, torch.zeros_like(slope))
        low, high = torch.where(u[0] > 0, low, phi[0]), torch.where(u[0] > 0, high, phi[1])
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        joint = c.combination(
            {(1, 0, 0): 1.0, (2, 1, 0): -mp, (0, 0, 0): -ms * slope},
            constant(c, mp * ms - ms * middle, ms.abs() * half + rp * rs),
        )
        flux = product_range(phi, second)
        return _behind_relu(u, meet(joint, c.plain({(1, 0, 0): 1.0}, (-flux[1], -flux[0]))))

    def initial_error(self, net: TanhMLP, x_space: Tensor) -> Tensor:
        """ReLU(u)(0, x), shape (N,), at positions (N,)."""
        fits(net, 1)
        return torch.relu(net(at_time(positions(x_space), 0.0))[:, 0])

    def initial_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `initial_error` on boxes with t = 0."""
        u = certify(net, on_face(boxes, 0, (0.0,)), 1).interval()
        return u[0].clamp(min=0), u[1].clamp(min=0)

    def boundary_error(self, net: TanhMLP, x: Tensor) -> Tensor:
        """w - 1 at points (N, 2) with x = 0; w - D w_x at those with x = 1."""
        fits(net, 1)
        on_face(torch.stack((x, x), 1), 1, (0.0, 1.0), "points")
        u, du, _ = network_derivatives(net, x)
        u, slope = u[:, 0], du[:, 0, 1]
        w = torch.relu(u)
        outflow = w - self.diffusion * (u > 0).to(u.dtype) * slope
        return torch.where(x[:, 1] == 0, w - 1, outflow)

    def boundary_bounds(self, net: TanhMLP, boxes: Any) -> Interval:
        """Certified bounds (B,) of `boundary_error` on boxes with x = 0 or x = 1."""
        checked = on_face(boxes, 1, (0.0, 1.0))
        c = certify(net, checked, 1, first=(1,))
        u = c.interval()
        outflow = _behind_relu(u, c.combination({(0, 0, 0): 1.0, (1, 1, 0): -self.diffusion}))
        left = checked[:, 0, 1] == 0
        inflow = tuple(end.clamp(min=0) - 1 for end in u)
        return torch.where(left, inflow[0], outflow[0]), torch.where(left, inflow[1], outflow[1])

    @property
    def _sorption(self) -> float:
        return (1 - self.porosity) / self.porosity * self.density * self.freundlich * self.exponent

    def _line(self, w: Interval) -> tuple[Tensor, Tensor, Tensor]:
        """Secant slope of D / R, and the range of the rest: concave, so ends below and a tangent above."""
        low, high = w
        f_low, f_high = self.diffusivity(low), self.diffusivity(high)
        gap = high - low
        m = 0.5 * (low + high)
        retarded = 1 + self._sorption * (m + 1e-6) ** (self.exponent - 1)
        bend = self._sorption * (1 - self.exponent) * (m + 1e-6) ** (self.exponent - 2)
        tangent = self.diffusion * bend / retarded**2
        slope = torch.where(gap > 1e-9, (f_high - f_low) / gap.clamp(min=1e-9), tangent)
        at_m = self.diffusivity(m) - slope * m
        pad = MARGIN * (f_high + (slope.abs() + tangent) * high)
        above = at_m + (tangent - slope).abs() * 0.5 * gap
        return slope, torch.minimum(f_low - slope * low, f_high - slope * high) - pad, above + pad


def _modulus_times(outer: Interval, other: Interval) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""(a^2 + b^2) a around the middle: slopes in a and b, and middle and radius of the rest.

    The cubic is expanded exactly; its quadratic and cubic terms are bounded by their own ranges.
    """
    (a, ra), (b, rb) = centre(outer), centre(other)
    along, across = 3 * a * a + b * b, 2 * a * b
    squares = a * (3 * ra * ra + rb * rb)  # 3 a da^2 + a db^2: of one sign
    slack = 0.5 * squares.abs() + 2 * b.abs() * ra * rb + ra**3 + ra * rb * rb
    middle = (a * a + b * b) * a - along * a - across * b + 0.5 * squares
    size = (a.abs() + ra + b.abs() + rb) ** 3
    return along, across, middle, slack + MARGIN * size


def _minus_two_sech(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-2 sech and two derivatives; |2 sech'''| < 10."""
    s, t = 1 / torch.cosh(x), torch.tanh(x)
    return -2 * s, 2 * s * t, -2 * (s - 2 * s**3)


def _behind_relu(u: Interval, wet: Interval) -> Interval:
    """Bounds of 1[u > 0] q from those of q: zero joins where u may be negative."""
    low = torch.where(u[0] > 0, wet[0], wet[0].clamp(max=0))
    high = torch.where(u[0] > 0, wet[1], wet[1].clamp(min=0))
    dry = u[1] <= 0
    return torch.where(dry, 0.0, low), torch.where(dry, 0.0, high)


def _sum_of_squares(first: Interval, second: Interval) -> Interval:
    low, high = first[0] + second[0], first[1] + second[1]
    return (low * (1 - 1e-12)).clamp(min=0), high * (1 + 1e-12) + 1e-300


def _order(order: int) -> int:
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (values) or 1 (x-derivatives); got {order!r}")
    return int(order)
