r"""The rotation group SO(3): exponential, logarithm, geodesics, Haar measure.

A rotation is a 3 x 3 matrix; its logarithm a rotation vector, axis times angle in radians.
The logarithm goes through the quaternion with the largest entry as pivot, so it keeps its
digits at the identity and at half turns alike.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["hat", "quaternion_rotation", "random_so3", "so3_exp", "so3_geodesic", "so3_log", "vee"]


def hat(w: Tensor) -> Tensor:
    """Rotation vector, (..., 3), to its skew matrix, (..., 3, 3); ``hat(w) @ u`` is a cross product."""
    a, b, c = w.unbind(-1)
    o = torch.zeros_like(a)
    return torch.stack((o, -c, b, c, o, -a, -b, a, o), dim=-1).unflatten(-1, (3, 3))


def vee(matrix: Tensor) -> Tensor:
    """Rotation vector of the skew part of a matrix, (..., 3, 3) to (..., 3)."""
    m = matrix
    return 0.5 * torch.stack(
        (m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]), dim=-1
    )


def so3_exp(w: Tensor) -> Tensor:
    r"""Rotation about `w` by its length (Rodrigues).

    .. math:: \cos\theta\,I + \frac{\sin\theta}{\theta}\hat w + \frac{1-\cos\theta}{\theta^2}ww^\top

    Parameters
    ----------
    w : Tensor, shape (..., 3)
        Rotation vectors in radians.

    Returns
    -------
    Tensor, shape (..., 3, 3)
    """
    theta = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    cos = theta.cos().squeeze(-1)
    x, y, z = w.unbind(-1)
    p, q, r = (torch.sinc(theta / math.pi) * w).unbind(-1)
    u, v, s = (0.5 * torch.sinc(theta / (2 * math.pi)) ** 2 * w).unbind(-1)
    xy, xz, yz = u * y, u * z, v * z
    return torch.stack(
        (cos + u * x, xy - r, xz + q, xy + r, cos + v * y, yz - p, xz - q, yz + p, cos + s * z), dim=-1
    ).unflatten(-1, (3, 3))


def so3_log(R: Tensor) -> Tensor:
    r"""Rotation vector of a rotation, of length at most :math:`\pi`.

    Parameters
    ----------
    R : Tensor, shape (..., 3, 3)
        Rotation matrices.

    Returns
    -------
    Tensor, shape (..., 3)
        At a half turn both signs of the axis are right; one is returned.

    Notes
    -----
    The four products of a unit quaternion with its largest entry are linear in `R`; the
    angle is ``2 atan2(|vector part|, scalar part)``.
    """
    m = R
    d0, d1, d2 = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    a, b, c = (
        m[..., 2, 1] - m[..., 1, 2],
        m[..., 0, 2] - m[..., 2, 0],
        m[..., 1, 0] - m[..., 0, 1],
    )
    ab, ac, bc = (
        m[..., 0, 1] + m[..., 1, 0],
        m[..., 0, 2] + m[..., 2, 0],
        m[..., 1, 2] + m[..., 2, 1],
    )
    rows = torch.stack(  # 4 q_i q_j for the quaternion q = (w, x, y, z)
        (
            1 + d0 + d1 + d2, a, b, c,
            a, 1 + d0 - d1 - d2, ab, ac,
            b, ab, 1 - d0 + d1 - d2, bc,
            c, ac, bc, 1 - d0 - d1 + d2,
        ),
        dim=-1,
    ).unflatten(-1, (4, 4))  # fmt: skip
    pivot = rows.diagonal(dim1=-2, dim2=-1).argmax(-1)
    row = rows.gather(-2, pivot[..., None, None].expand(*pivot.shape, 1, 4)).squeeze(-2)
    row = torch.where(row[..., :1] < 0, -row, row)
    scalar, vector = row[..., :1], row[..., 1:]
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    turned = length > 0
    angle = 2 * torch.atan2(length, scalar)
    return torch.where(turned, angle / torch.where(turned, length, 1.0), 2 / scalar.clamp_min(1.0)) * vector


def so3_geodesic(t: Tensor | float, R1: Tensor, R0: Tensor) -> Tensor:
    r"""Point at time `t` of the geodesic from `R0` (``t = 0``) to `R1` (``t = 1``).

    .. math:: R_0\exp\bigl(t\log(R_0^\top R_1)\bigr)

    Parameters
    ----------
    t : float or Tensor
        Broadcasts against rotation vectors, shape (..., 3).
    R1, R0 : Tensor, shape (..., 3, 3)

    Returns
    -------
    Tensor, shape (..., 3, 3)
    """
    return R0 @ so3_exp(t * so3_log(R0.transpose(-1, -2) @ R1))


def quaternion_rotation(q: Tensor) -> Tensor:
    """Rotation of a unit quaternion, scalar part first; (..., 4) to (..., 3, 3)."""
    w, x, y, z = q.unbind(-1)
    return torch.stack(
        (
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ),
        dim=-1,
    ).unflatten(-1, (3, 3))  # fmt: skip


def random_so3(
    shape: tuple[int, ...],
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw from the Haar measure: normalised normal quaternions; ``(*shape, 3, 3)``."""
    q = torch.randn(*shape, 4, generator=generator, dtype=dtype, device=device)
    return quaternion_rotation(q / torch.linalg.vector_norm(q, dim=-1, keepdim=True))
