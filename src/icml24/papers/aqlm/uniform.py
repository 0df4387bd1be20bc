r"""Baselines on a uniform grid: rounding to the nearest, and GPTQ.

The grid of a row (or of `group_size` inputs of it) reaches from its least to its greatest weight
and contains zero: step :math:`\Delta = (h - l)/(2^b - 1)`, zero point :math:`z = \mathrm{round}(-l/\Delta)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate

__all__ = ["gptq_quantize", "rtn_quantize", "uniform_bits_per_parameter"]


def uniform_bits_per_parameter(in_features: int, bits: int, *, group_size: int | None = None) -> float:
    """Bits a weight on a uniform grid: ``bits + (16 + bits) / group_size``, a step and a zero point a group.

    Parameters
    ----------
    in_features, bits : int
    group_size : int, optional
        Inputs that share a grid; a whole row by default.

    Raises
    ------
    ValueError
        A number below 1, more than 16 bits, or a group size that does not divide the row.
    """
    checks.whole("in_features", in_features, 1)
    return bits + (16 + bits) / _group(in_features, bits, group_size)


def _group(in_features: int, bits: int, group_size: int | None) -> int:
    checks.whole("bits", bits, 1, 16)
    if group_size is None:
        return in_features
    checks.whole("group_size", group_size, 1)
    _validate.divides("group_size", group_size, in_features, "in_features")
    return group_size


def _grid(part: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Step and zero point of each row of `part`, shapes (rows, 1)."""
    low = part.amin(-1, keepdim=True).clamp(max=0)
    high = part.amax(-1, keepdim=True).clamp(min=0)
    flat = (low == 0) & (high == 0)
    low, high = torch.where(flat, -1.0, low), torch.where(flat, 1.0, high)
    step = (high - low) / (2**bits - 1)
    return step, torch.round(-low / step)


def _to_grid(values: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    return (torch.clamp(torch.round(values / step) + zero, 0, 2**bits - 1) - zero) * step


def rtn_quantize(weight: Tensor, bits: int, *, group_size: int | None = None) -> Tensor:
    """Each weight at the nearest point of its grid.

    Parameters
    ----------
    weight : Tensor, shape (out_features, in_features), floating
    bits : int
        From 1 to 16.
    group_size : int, optional
        Inputs that share a grid; a whole row by default.

    Returns
    -------
    Tensor
        The quantised weight in the shape and dtype of `weight`. Halves round to even.

    Raises
    ------
    ValueError
        Bits or group size out of range, values that are not finite.
    """
    _validate.floating("weight", weight, 2)
    parts = weight.detach().unflatten(1, (-1, _group(weight.shape[1], bits, group_size)))
    return _to_grid(parts, *_grid(parts, bits), bits).flatten(1)


def gptq_quantize(
    weight: Tensor,
    gram: Tensor,
    bits: int,
    *,
    group_size: int | None = None,
    damping: float = 0.01,
    act_order: bool = False,
) -> Tensor:
    r"""One column after another on its grid, each error made good by the columns to come.

    With `U` the upper Cholesky factor of the inverse of the damped Gram matrix, column `i` moves
    from :math:`w_i` to :math:`q_i`, and the columns from `i` on lose
    :math:`(w_i - q_i) / U_{ii} \cdot U_{i,i:}`.

    Parameters
    ----------
    weight : Tensor, shape (out_features, in_features), floating
    gram : Tensor, shape (in_features, in_features)
    bits : int
        From 1 to 16.
    group_size : int, optional
        Columns that share a grid, made from the updated weights when its first column is reached;
        by default one grid a row, made from the unchanged weights (dead inputs zeroed).
    damping : float, default 0.01
        This share of the mean diagonal is added to the diagonal; not negative.
    act_order : bool, default False
        Columns in falling order of the diagonal; groups follow that order.

    Returns
    -------
    Tensor
        The quantised weight in the shape and dtype of `weight`; the work is done in float64.

    Raises
    ------
    ValueError
        Bits, group size or damping out of range, shapes that do not fit, values that are not
        finite, or a damped Gram matrix that is not positive definite.

    Notes
    -----
    Source: eq-aqlm-obq; Frantar et al. (2023). Inputs that are always zero get weight zero.
    """
    _validate.layer(weight, gram)
    group = _group(weight.shape[1], bits, group_size)
    if not damping >= 0:
        raise ValueError(f"damping must not be negative; got {damping}")
    w, h = weight.detach().double().clone(), gram.detach().double().clone()
    dead = h.diagonal() == 0
    h.diagonal()[dead] = 1.0
    w[:, dead] = 0.0
    step, zero = _grid(w, bits)
    order = None
    if act_order:
        order = torch.sort(h.diagonal(), descending=True, stable=True).indices
        w, h = w[:, order], h[order][:, order]
    h.diagonal().add_(damping * h.diagonal().mean())
    factor, failed = torch.linalg.cholesky_ex(h)
    if not failed:
        factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(factor), upper=True)
    if failed:
        raise ValueError(
            f"gram is not positive definite with damping = {damping}; raise damping, or use more inputs"
        )
    out = torch.empty_like(w)
    for i in range(w.shape[1]):
        if group_size is not None and i % group == 0:
            step, zero = _grid(w[:, i : i + group], bits)
        out[:, i] = _to_grid(w[:, i : i + 1], step, zero, bits)[:, 0]
        error = (w[:, i] - out[:, i]) / factor[i, i]
        w[:, i:] -= error[:, None] * factor[i, i:]
    if order is not None:
        out = out[:, torch.argsort(order)]
    return out.to(weight.dtype)
