r"""SO(3) as a manifold of nine ambient numbers (rows of the matrix), metric :math:`\tfrac12\operatorname{tr}U^\top V`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icml24.common.rotations import hat, random_so3, so3_exp, so3_log, vee

from .manifolds import Manifold

__all__ = ["SO3"]


class SO3(Manifold):
    r"""Rotations with the metric in which lengths are rotation angles.

    Notes
    -----
    With :math:`\tfrac12\operatorname{tr}(U^\top V)` the tangent vector :math:`R\hat w` has length
    :math:`\lVert w\rVert` and the volume is :math:`8\pi^2`. The Frobenius metric doubles squared
    lengths, so a noise level :math:`\beta` there is :math:`\beta/2` here.
    """

    dim, ambient_dim, noise_dim = 3, 9, 3

    @property
    def log_volume(self) -> float:
        r"""Logarithm of :math:`8\pi^2`."""
        return math.log(8 * math.pi**2)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """``R expm(R' V)``."""
        R = _matrix(x)
        return (R @ so3_exp(vee(R.mT @ _matrix(v)))).flatten(-2)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """``R logm(R' S)``."""
        R = _matrix(x)
        return (R @ hat(so3_log(R.mT @ _matrix(y)))).flatten(-2)

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Angle of the rotation from `x` to `y`, in :math:`[0, \pi]`."""
        return torch.linalg.vector_norm(so3_log(_matrix(x).mT @ _matrix(y)), dim=-1)

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Half the Frobenius product."""
        del x
        return 0.5 * (u * v).sum(-1)

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """``R skew(R' W)``."""
        R = _matrix(x)
        return (R @ hat(vee(R.mT @ _matrix(v)))).flatten(-2)

    def project(self, x: Tensor) -> Tensor:
        """Nearest rotation in the Frobenius norm (singular values set to one, determinant kept at +1)."""
        U, _, Vt = torch.linalg.svd(_matrix(x))
        sign = torch.linalg.det(U @ Vt)
        U = torch.cat((U[..., :2], U[..., 2:] * sign[..., None, None]), dim=-1)
        return (U @ Vt).flatten(-2)

    def smooth_project(self, x: Tensor) -> Tensor:
        r"""One Newton-Schulz step, :math:`\tfrac12 X(3I - X^\top X)`.

        The singular value decomposition has no derivative at a rotation, whose singular
        values are equal; this polynomial has the same differential there.
        """
        X = _matrix(x)
        return (1.5 * X - 0.5 * X @ (X.mT @ X)).flatten(-2)

    def tangent_noise(self, x: Tensor, eps: Tensor) -> Tensor:
        """``R hat(eps)``."""
        return (_matrix(x) @ hat(eps)).flatten(-2)

    def random_uniform(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draw `n` rotations from the Haar measure; (n, 9)."""
        return random_so3((n,), generator=generator, dtype=dtype, device=device).flatten(-2)

    def __repr__(self) -> str:
        return "SO3()"


def _matrix(x: Tensor) -> Tensor:
    return x.unflatten(-1, (3, 3))
