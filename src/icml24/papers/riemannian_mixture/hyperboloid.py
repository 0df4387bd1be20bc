r"""Hyperbolic space :math:`H^d` as the upper sheet of a hyperboloid, and its wrapped normal.

With the Minkowski product :math:`\langle x, y\rangle = -x_0y_0 + x_1y_1 + \dots + x_dy_d` the
points are :math:`\langle x, x\rangle = -1,\ x_0 > 0`. The space is not compact: there is no
uniform law to start from, and the prior is a wrapped normal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .manifolds import Manifold, check_dim, dot, draw_normal

__all__ = ["Hyperboloid", "wrapped_normal", "wrapped_normal_log_prob"]

_TINY = 1e-30  # below it a squared length is zero; its root is still a normal number in float32


class Hyperboloid(Manifold):
    r"""Hyperbolic space of curvature -1 in the hyperboloid model.

    .. math::
        \exp_x v &= \cosh\lVert v\rVert\,x + \tfrac{\sinh\lVert v\rVert}{\lVert v\rVert}v, \\
        \log_x y &= \tfrac{\rho}{\sinh\rho}\bigl(y - (1 + \tfrac q2)x\bigr), \\
        q &= \langle x-y, x-y\rangle,\ \rho = 2\operatorname{asinh}\tfrac{\sqrt q}{2}

    Parameters
    ----------
    dim : int, default 2
        At least 1.

    Raises
    ------
    ValueError
        ``dim < 1``.

    Notes
    -----
    `project` divides by :math:`\sqrt{-\langle x,x\rangle}`: its differential is orthogonal in the
    Minkowski product. Moving :math:`x_0` alone ("vertical" projection) is not, and changes
    divergences by :math:`v_0/x_0` (eq-riemannian_mixture-divergence).
    """

    def __init__(self, dim: int = 2) -> None:
        self.dim = self.noise_dim = check_dim("Hyperboloid", dim)
        self.ambient_dim = self.dim + 1

    def origin(self, like: Tensor) -> Tensor:
        """Return :math:`o = (1, 0, \\dots, 0)` with the dtype and device of `like`; (D,)."""
        o = torch.zeros(self.ambient_dim, dtype=like.dtype, device=like.device)
        o[0] = 1
        return o

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Walk along the geodesic; the result is put back onto the sheet."""
        length = self._product(v, v).clamp_min(_TINY).sqrt()
        return self.tidy(torch.addcmul(length.cosh() * x, _sinhc(length), v))

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Initial velocity of the geodesic from `x` to `y`."""
        gap = x - y
        q = self._product(gap, gap).clamp_min(_TINY)
        root = q.sqrt()
        rho = 2 * torch.asinh(root / 2)
        # sinh(rho) = 2 sinh(rho/2) cosh(rho/2), both known without another exponential
        return torch.addcmul(y, 1 + q / 2, x, value=-1) * (rho / (root * (1 + q / 4).sqrt()))

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Distance :math:`2\operatorname{asinh}(\sqrt q/2)`; no digits are lost near zero."""
        q = self._product(x - y, x - y).squeeze(-1)
        rho = 2 * torch.asinh(q.clamp_min(_TINY).sqrt() / 2)
        return torch.where(q > _TINY, rho, torch.zeros_like(rho))

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Minkowski product; positive on tangent vectors."""
        del x
        return self._product(u, v).squeeze(-1)

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Remove the part along `x`, in the Minkowski product."""
        return v - self._product(x, v) / self._product(x, x) * x

    def project(self, x: Tensor) -> Tensor:
        """Scale the row until its Minkowski square is -1."""
        return x / (-self._product(x, x)).clamp_min(_TINY).sqrt()

    def tidy(self, x: Tensor) -> Tensor:
        """Recompute the zeroth entry from the others: far from the origin this loses the fewest digits."""
        rest = x[..., 1:]
        return torch.cat(((1 + dot(rest, rest, keepdim=True)).sqrt(), rest), dim=-1)

    def tangent_noise(self, x: Tensor, eps: Tensor) -> Tensor:
        """Normal at the origin, (0, eps), carried to `x` by parallel transport."""
        v = torch.cat((torch.zeros_like(eps[..., :1]), eps), dim=-1)
        return self.transport_from_origin(x, v)

    def transport_from_origin(self, x: Tensor, v: Tensor) -> Tensor:
        r"""Parallel transport from :math:`T_o` to :math:`T_x` along the geodesic; an isometry.

        .. math:: v \mapsto v + \frac{\langle x, v\rangle}{1 - \langle o, x\rangle}(o + x)
        """
        o = self.origin(x)
        return v + self._product(x, v) / (1 + x[..., :1]) * (o + x)

    def transport_to_origin(self, x: Tensor, v: Tensor) -> Tensor:
        """Inverse of `transport_from_origin`; the zeroth entry of the result is zero."""
        o = self.origin(x)
        return v - v[..., :1] / (1 + x[..., :1]) * (o + x)

    def from_ball(self, b: Tensor) -> Tensor:
        """Points of the Poincare ball, (..., d), to the sheet, (..., d + 1)."""
        if b.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} ball coordinates in the last dimension, got {b.shape[-1]}")
        square = (b * b).sum(-1, keepdim=True)
        if not bool((square < 1).all()):
            raise ValueError("a point of the Poincare ball has norm below 1; got norm >= 1")
        return torch.cat((1 + square, 2 * b), dim=-1) / (1 - square)

    def to_ball(self, x: Tensor) -> Tensor:
        """Points of the sheet, (..., d + 1), to the Poincare ball, (..., d)."""
        if x.shape[-1] != self.ambient_dim:
            raise ValueError(f"expected {self.ambient_dim} numbers in the last dimension, got {x.shape[-1]}")
        return x[..., 1:] / (1 + x[..., :1])

    @staticmethod
    def _product(u: Tensor, v: Tensor) -> Tensor:
        if u.shape[-1] == 3:  # a reduction over two numbers is slow; two products are not
            return (u[..., 1] * v[..., 1] + u[..., 2] * v[..., 2] - u[..., 0] * v[..., 0]).unsqueeze(-1)
        p = u * v
        return p[..., 1:].sum(-1, keepdim=True) - p[..., :1]


def wrapped_normal(
    manifold: Hyperboloid,
    n: int,
    *,
    std: float | Tensor = 1.0,
    center: Tensor | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Draw from the wrapped normal: a normal at the origin, transported, then `exp`.

    Parameters
    ----------
    manifold : Hyperboloid
    n : int
        Number of points.
    std : float or Tensor of shape (d,), default 1.0
        Standard deviations in the tangent space at the origin, scaled *before* transport.
    center : Tensor, shape (D,), optional
        Default: the origin.
    generator : torch.Generator, optional
    dtype : torch.dtype, optional
        Default: that of `center`, else torch's default.

    Returns
    -------
    Tensor, shape (n, D)
    """
    if dtype is None:
        dtype = center.dtype if center is not None else torch.get_default_dtype()
    like = torch.empty(0, dtype=dtype)
    u = draw_normal((n, manifold.dim), like, generator) * std
    center = manifold.origin(like) if center is None else center.to(dtype)
    return manifold.exp(center.expand(n, -1), manifold.tangent_noise(center.expand(n, -1), u))


def wrapped_normal_log_prob(
    manifold: Hyperboloid, x: Tensor, *, std: float | Tensor = 1.0, center: Tensor | None = None
) -> Tensor:
    r"""Log density of `wrapped_normal` with respect to the hyperbolic volume.

    .. math:: \log\mathcal N(u; 0, \mathrm{diag}\,s^2) - (d-1)\log\frac{\sinh\lVert u\rVert}{\lVert u\rVert}

    with :math:`u` the transported logarithm of `x`. Shape (...).
    """
    d = manifold.dim
    center = manifold.origin(x) if center is None else center.to(x.dtype)
    u = manifold.transport_to_origin(center, manifold.log(center.expand_as(x), x))[..., 1:]
    s = torch.as_tensor(std, dtype=x.dtype).expand(d)
    normal = -0.5 * ((u / s) ** 2).sum(-1) - s.log().sum() - d / 2 * math.log(2 * math.pi)
    return normal - (d - 1) * _sinhc((u * u).sum(-1).clamp_min(_TINY).sqrt()).log()


def _sinhc(z: Tensor) -> Tensor:
    return z.sinh() / z  # z is at least sqrt(_TINY): the quotient is then 1 to the last digit
