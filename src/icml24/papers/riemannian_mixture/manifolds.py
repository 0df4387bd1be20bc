r"""Manifolds in ambient coordinates: flat space, spheres and tori in closed form.

Every point and every tangent vector is a row of :math:`D` ambient numbers. A manifold
knows how to walk along a geodesic (`exp`), how to look along one (`log`), how to drop the
normal part of a vector (`to_tangent`), and how to draw a tangent normal. Nothing else of
the paper depends on which manifold it is (eq-riemannian_mixture-explog).

The forms are those that keep all digits: angles come from ``atan2``, never from ``arccos``,
and every quotient that is 0/0 at coincident points is replaced by its limit, so that
derivatives stay finite there too.
"""

from __future__ import annotations

import abc
import math
import operator
from typing import SupportsIndex

import torch
from torch import Tensor

__all__ = ["Euclidean", "Manifold", "Sphere", "Torus", "check_dim", "dot", "draw_normal"]


class Manifold(abc.ABC):
    r"""What the rest of the package needs to know about a manifold.

    Attributes
    ----------
    dim, ambient_dim, noise_dim : int
        Dimension :math:`d`, length :math:`D` of a stored row, and how many standard normals
        `tangent_noise` consumes for one tangent vector.

    Notes
    -----
    Compact manifolds also have the property `log_volume` and the method
    ``random_uniform(n, *, generator=None, dtype=None, device=None)``, shape (n, D).
    Floating inputs of either precision are accepted; results have the inputs' dtype.
    """

    dim: int
    ambient_dim: int
    noise_dim: int

    @abc.abstractmethod
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Walk from `x` along the geodesic with velocity `v` for unit time; (..., D)."""

    @abc.abstractmethod
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Tangent vector at `x` whose `exp` is `y`, as long as their distance; (..., D)."""

    @abc.abstractmethod
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance, shape (...)."""

    @abc.abstractmethod
    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Orthogonal projection of the ambient vector `v` onto the tangent space at `x`."""

    @abc.abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Nearby point of the manifold; the identity on it up to rounding."""

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Riemannian inner product of two tangent vectors at `x`, shape (...)."""
        del x
        return dot(u, v)

    def tangent_noise(self, x: Tensor, eps: Tensor) -> Tensor:
        r"""Turn standard normals into a tangent normal at `x`.

        Parameters
        ----------
        x : Tensor, shape (..., D)
        eps : Tensor, shape (..., noise_dim)
            Standard normal numbers.

        Returns
        -------
        Tensor, shape (..., D)
            Standard normal in any orthonormal frame of the tangent space.
        """
        return self.to_tangent(x, eps)

    def random_normal_tangent(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw a standard tangent normal at each row of `x`; (..., D)."""
        return self.tangent_noise(x, draw_normal((*x.shape[:-1], self.noise_dim), x, generator))

    def smooth_project(self, x: Tensor) -> Tensor:
        r"""Project a point that is already near the manifold, differentiably.

        The differential at a point of the manifold is the *orthogonal* projection onto the
        tangent space, which is what eq-riemannian_mixture-divergence needs. Default: `project`.
        """
        return self.project(x)

    def tidy(self, x: Tensor) -> Tensor:
        """Remove what rounding added to the result of `exp`. Default: `smooth_project`."""
        return self.smooth_project(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"


class Euclidean(Manifold):
    r"""Flat space :math:`\mathbb R^d`; here every formula of the paper is exact.

    Parameters
    ----------
    dim : int
        At least 1.

    Raises
    ------
    ValueError
        ``dim < 1``.
    """

    def __init__(self, dim: int) -> None:
        self.dim = self.ambient_dim = self.noise_dim = check_dim("Euclidean", dim)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """``x + v``."""
        return x + v

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """``y - x``."""
        return y - x

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Length of ``y - x``."""
        return torch.linalg.vector_norm(y - x, dim=-1)

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """`v` itself."""
        del x
        return v

    def project(self, x: Tensor) -> Tensor:
        """`x` itself."""
        return x


class Sphere(Manifold):
    r"""Unit sphere :math:`S^d` as unit rows of :math:`\mathbb R^{d+1}`.

    .. math::
        \exp_x v &= \cos\lVert v\rVert\, x + \tfrac{\sin\lVert v\rVert}{\lVert v\rVert}\, v, \\
        \log_x y &= \tfrac{\theta}{\lVert u\rVert}\,u,\quad u = y - \langle x, y\rangle x,\quad
        \theta = \operatorname{atan2}(\lVert u\rVert, \langle x, y\rangle)

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
    At the exact antipode no direction is preferred; `log` then takes a fixed one of length
    :math:`\pi`, so that ``exp(log) = id`` still holds. eq-riemannian_mixture-explog.
    """

    def __init__(self, dim: int = 2) -> None:
        self.dim = check_dim("Sphere", dim)
        self.ambient_dim = self.noise_dim = self.dim + 1

    @property
    def log_volume(self) -> float:
        r"""Logarithm of :math:`2\pi^{(d+1)/2}/\Gamma(\tfrac{d+1}{2})`."""
        half = (self.dim + 1) / 2
        return math.log(2) + half * math.log(math.pi) - math.lgamma(half)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Great circle from `x` with velocity `v`, followed for unit time."""
        length = dot(v, v, keepdim=True).sqrt() if not v.requires_grad else _norm(v)
        return torch.addcmul(length.cos() * x, torch.sinc(length / math.pi), v)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Initial velocity of the great circle from `x` to `y`."""
        cosine = dot(x, y, keepdim=True)
        u = torch.addcmul(y, cosine, x, value=-1)
        sine = dot(u, u, keepdim=True).sqrt() if not u.requires_grad else _norm(u)
        away = sine > 0
        theta = torch.atan2(sine, cosine)
        v = torch.where(away, theta / torch.where(away, sine, 1.0), 1.0) * u
        antipodal = ~away & (cosine < 0)
        return torch.where(antipodal, self._any_direction(x), v) if bool(antipodal.any()) else v

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Angle between `x` and `y`, in :math:`[0, \pi]`."""
        cosine = dot(x, y, keepdim=True)
        sine = torch.linalg.vector_norm(torch.addcmul(y, cosine, x, value=-1), dim=-1)
        return torch.atan2(sine, cosine.squeeze(-1))

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Subtract the part of `v` along `x`."""
        return v - dot(x, v, keepdim=True) / dot(x, x, keepdim=True) * x

    def project(self, x: Tensor) -> Tensor:
        """Divide by the norm."""
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)

    def random_uniform(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draw `n` points from the uniform law; (n, D)."""
        return self.project(torch.randn(n, self.ambient_dim, generator=generator, dtype=dtype, device=device))

    def _any_direction(self, x: Tensor) -> Tensor:
        axis = torch.zeros_like(x).scatter_(-1, x.abs().argmin(-1, keepdim=True), 1.0)
        return math.pi * self.project(self.to_tangent(x, axis))


class Torus(Manifold):
    r"""Flat torus :math:`T^d`: a point is :math:`(\cos a_1, \sin a_1, \cos a_2, \sin a_2, \dots)`.

    Per angle, with :math:`J(c, s) = (-s, c)`: :math:`\exp_x v = \cos\alpha\,x + \sin\alpha\,Jx`
    for :math:`\alpha = \langle v, Jx\rangle`, and :math:`\log_x y = \alpha\,Jx` for
    :math:`\alpha = \operatorname{atan2}(\langle y, Jx\rangle, \langle y, x\rangle)`.

    Parameters
    ----------
    dim : int, default 2
        Number of angles, at least 1. Cosine and sine of one angle are neighbours (interleaved),
        not all cosines first.

    Raises
    ------
    ValueError
        ``dim < 1``.
    """

    def __init__(self, dim: int = 2) -> None:
        self.dim = check_dim("Torus", dim)
        self.ambient_dim = self.noise_dim = 2 * self.dim

    @property
    def log_volume(self) -> float:
        r"""Logarithm of :math:`(2\pi)^d`."""
        return self.dim * math.log(2 * math.pi)

    def from_angles(self, a: Tensor) -> Tensor:
        """Angles in radians, (..., d), to points, (..., 2 d)."""
        if a.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} angles in the last dimension, got {a.shape[-1]}")
        return torch.stack((a.cos(), a.sin()), dim=-1).flatten(-2)

    def to_angles(self, x: Tensor) -> Tensor:
        r"""Points, (..., 2 d), to angles in :math:`(-\pi, \pi]`, (..., d)."""
        if x.shape[-1] != self.ambient_dim:
            raise ValueError(f"expected {self.ambient_dim} numbers in the last dimension, got {x.shape[-1]}")
        c, s = _blocks(x)
        angle = torch.atan2(s, c)
        return torch.where(angle <= -math.pi, -angle, angle)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Turn each angle by the signed length of its block of `v`."""
        c, s = _blocks(x)
        turn = _turn(c, s, v)
        cos, sin = turn.cos(), turn.sin()
        return torch.stack((cos * c - sin * s, cos * s + sin * c), dim=-1).flatten(-2)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Shortest turn of each angle, as a tangent vector."""
        c, s = _blocks(x)
        turn = self._turns(x, y)
        return torch.stack((-s * turn, c * turn), dim=-1).flatten(-2)

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Root of the sum of squared angles between blocks."""
        return torch.linalg.vector_norm(self._turns(x, y), dim=-1)

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Keep of each block of `v` what is orthogonal to the block of `x`."""
        c, s = _blocks(x)
        turn = _turn(c, s, v) / (c * c + s * s)
        return torch.stack((-s * turn, c * turn), dim=-1).flatten(-2)

    def project(self, x: Tensor) -> Tensor:
        """Divide each block by its norm."""
        blocks = x.unflatten(-1, (self.dim, 2))
        return (blocks / torch.linalg.vector_norm(blocks, dim=-1, keepdim=True)).flatten(-2)

    def random_uniform(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draw `n` points from the uniform law; (n, 2 d)."""
        u = torch.rand(n, self.dim, generator=generator, dtype=dtype, device=device)
        return self.from_angles((2 * u - 1) * math.pi)

    @staticmethod
    def _turns(x: Tensor, y: Tensor) -> Tensor:
        (c, s), (cy, sy) = _blocks(x), _blocks(y)
        return torch.atan2(c * sy - s * cy, c * cy + s * sy)


def check_dim(name: str, dim: int) -> int:
    """Return `dim`, or raise a ValueError that names the manifold."""
    if isinstance(dim, bool) or not isinstance(dim, SupportsIndex) or operator.index(dim) < 1:
        raise ValueError(f"{name}: dim must be >= 1 (an integer), got {dim!r}")
    return operator.index(dim)


def dot(u: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
    """Ambient Euclidean inner product over the last dimension."""
    if u.shape[-1] == 3 and v.shape[-1] == 3:  # a reduction over so few numbers is slow
        out = u[..., 0] * v[..., 0] + u[..., 1] * v[..., 1] + u[..., 2] * v[..., 2]
        return out.unsqueeze(-1) if keepdim else out
    if u.shape[-1] == 2 and v.shape[-1] == 2:
        out = u[..., 0] * v[..., 0] + u[..., 1] * v[..., 1]
        return out.unsqueeze(-1) if keepdim else out
    return (u * v).sum(-1, keepdim=keepdim)


def draw_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normals with the dtype and device of `like`."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def _norm(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(v, dim=-1, keepdim=True)  # its derivative at zero is zero, not NaN


def _blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0::2], x[..., 1::2]


def _turn(c: Tensor, s: Tensor, v: Tensor) -> Tensor:
    return c * v[..., 1::2] - s * v[..., 0::2]
