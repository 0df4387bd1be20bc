r"""Matrix times vector by looking up: the weight is never built.

For one input, :math:`T_{j,m,k} = \langle x_j, C_{m,k} \rangle` takes :math:`d_{in} M K`
multiply-adds, and then :math:`y_i = s_i \sum_{j,m} T_{j,m,b_{i,j,m}}` is
:math:`d_{out} I M` look-ups and additions (eq-aqlm-lookup).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import _validate

__all__ = ["lut_matvec"]

ROWS, COLUMNS = 512, 64  # a tile: so many output rows, and so many codes of each; its tables fit the cache


def lut_matvec(x: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor) -> Tensor:
    """Outputs of a quantised layer, from tables of inner products.

    Parameters
    ----------
    x : Tensor, shape (..., in_features), floating
    codes : Tensor, shape (O, I, M), any integer dtype
        uint8 is the fast one: the codes are what is read from memory.
    codebooks : Tensor, shape (M, K, 1, g_in)
    scales : Tensor, shape (O, 1, 1, 1)

    Returns
    -------
    Tensor, shape (..., O)
        Dtype of `codebooks`. Differentiable in `x`, codebooks and scales, then without the
        compiled kernel.

    Raises
    ------
    ValueError
        ``g_out != 1``, a last dimension of `x` other than ``I * g_in``, shapes that do not fit,
        a code outside its codebook.

    Notes
    -----
    Source: eq-aqlm-lookup, the paper's kernel for CPUs. One thread; the kernel is compiled at its first call
    for each pair of dtypes.
    """
    _validate.code_words(codes, codebooks, scales)
    _validate.floating("x", x)
    width = codes.shape[1] * codebooks.shape[3]
    if codebooks.shape[2] != 1:
        raise ValueError(f"look-up works for out_group_size = 1 only; got {codebooks.shape[2]}")
    if x.dim() == 0 or x.shape[-1] != width:
        raise ValueError(
            f"x must have {width} features (in groups times in_group_size); got {tuple(x.shape)}"
        )
    if scales is None:
        raise TypeError("scales must be a tensor [out groups, 1, 1, 1]; got None")
    return lookup(x, codes, codebooks, scales)


def lookup(x: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor) -> Tensor:
    """Unchecked `lut_matvec`."""
    rows = x.reshape(-1, x.shape[-1]).to(codebooks.dtype)
    table = _table(rows, codebooks)
    slow = torch.is_grad_enabled() and (table.requires_grad or scales.requires_grad)
    if slow or table.device.type != "cpu" or table.dtype not in (torch.float32, torch.float64):
        sums = _reference_sums(table, codes.long())
    else:
        sums = torch.empty(len(rows), codes.shape[0], dtype=table.dtype)
        flat = codes.detach().reshape(codes.shape[0], -1).contiguous().numpy()
        _kernel()(table.detach().flatten(1, 2).contiguous().numpy(), flat, sums.numpy())
    return (sums * scales.to(sums.dtype).view(-1)).view(*x.shape[:-1], -1)


def _table(rows: Tensor, codebooks: Tensor) -> Tensor:
    """Inner products of every input group with every word, shape (batch, I, M, K)."""
    groups = rows.unflatten(1, (-1, codebooks.shape[3]))
    return (groups @ codebooks.flatten(0, 2).T).unflatten(2, codebooks.shape[:2])


def _reference_sums(table: Tensor, codes: Tensor) -> Tensor:
    """The look-ups in plain torch, shape (batch, O); needs a temporary as large as the codes in int64."""
    index = codes.permute(1, 2, 0)[None].expand(len(table), -1, -1, -1)  # [batch, I, M, O]
    return table.gather(3, index).sum((1, 2))


@cache
def _kernel() -> Any:
    """The compiled look-ups: (batch, I M, K) table, (O, I M) codes, (batch, O) sums to fill."""
    import numba  # not at the top: its import takes longer than all that this package does elsewhere

    @numba.njit(fastmath=True, error_model="numpy")
    def sums(table: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        rows, width = codes.shape
        for b in range(len(table)):
            out[b, :] = 0
            for top in range(0, rows, ROWS):
                bottom = min(top + ROWS, rows)
                for left in range(0, width, COLUMNS):
                    count = min(left + COLUMNS, width) - left
                    fours = count - count % 4
                    part = table[b, left : left + count]
                    for i in range(top, bottom):
                        row = codes[i, left : left + count]
                        t0 = out[b, i]  # four sums: one addition need not wait for the other
                        t1 = t2 = t3 = 0 * t0
                        for c in range(0, fours, 4):
                            t0 += part[c, row[c]]
                            t1 += part[c + 1, row[c + 1]]
                            t2 += part[c + 2, row[c + 2]]
                            t3 += part[c + 3, row[c + 3]]
                        for c in range(fours, count):
                            t0 += part[c, row[c]]
                        out[b, i] = (t0 + t1) + (t2 + t3)

    return sums
