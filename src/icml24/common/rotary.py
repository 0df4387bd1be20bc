r"""Rotary positions: queries and keys are turned by angles proportional to their position.

Su et al., *RoFormer* (2021), over the full head width and in the half-split layout: coordinate
`j` of the first half is paired with coordinate `j` of the second.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["apply_rotary", "rotary_tables"]


def rotary_tables(
    length: int,
    head_dim: int,
    base: float = 10000.0,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Cosines and sines of the rotary angles.

    .. math:: m\,\theta_j, \qquad \theta_j = \mathrm{base}^{-2j/d_h}, \quad j = 0, \dots, d_h/2 - 1

    Parameters
    ----------
    length : int
        Positions ``0 .. length - 1``.
    head_dim : int
        Head width :math:`d_h`, even.
    base : float, default 10000.0
    dtype, device
        Of the result; the angles are computed in float64 and rounded once, at the end.

    Returns
    -------
    (cos, sin) : Tensor, shape (length, head_dim // 2)

    Raises
    ------
    ValueError
        Negative length, `head_dim` odd or below 2, `base` not positive.
    """
    if length < 0:
        raise ValueError(f"length must not be negative; got {length}")
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"rotary positions turn pairs: head_dim must be even and at least 2; got {head_dim}")
    if not base > 0:
        raise ValueError(f"base must be positive; got {base}")
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    angles = torch.arange(length, dtype=torch.float64, device=device)[:, None] * base**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    r"""Turn each pair of coordinates :math:`(u_j, w_j)` by its position's angle.

    .. math:: (u, w) \mapsto (u\cos m\theta - w\sin m\theta,\; w\cos m\theta + u\sin m\theta)

    Parameters
    ----------
    x : Tensor, shape (..., length, head_dim), floating
        First half of the last axis is `u`, second half `w` (half-split layout).
    cos, sin : Tensor, shape (length, head_dim // 2)
        From `rotary_tables`; rows ``m : m + length`` of a longer table shift every position by `m`.

    Returns
    -------
    Tensor
        Shape of `x`; a rotation, so norms are kept.

    Raises
    ------
    ValueError
        Tables that do not fit `x`.
    """
    if min(x.dim(), cos.dim()) < 2 or cos.shape != sin.shape or 2 * cos.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"expected x (..., length, head_dim) and tables (length, head_dim // 2); "
            f"got {tuple(x.shape)}, {tuple(cos.shape)}, {tuple(sin.shape)}"
        )
    if cos.shape[-2] != x.shape[-2]:
        raise ValueError(f"x has {x.shape[-2]} positions, the tables {cos.shape[-2]}; slice the tables")
    # (u, w) cos + (w, u) (-sin, sin): four passes over x, where two halves and a cat take seven.
    both, signed = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return torch.addcmul(x * both, x.roll(x.shape[-1] // 2, dims=-1), signed)
