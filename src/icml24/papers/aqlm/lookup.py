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

EIGHT = (
    8  # codes of a row that are read in one go: their tables, 8 kB for 256 words, stay in the nearest cache
)
ROWS = 512  # output rows of a tile when codes lie as in the format, so that what is read with them is still there


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
    for each pair of dtypes. `QuantizedLinear` keeps its codes in the order in which the kernel reads
    them, which on large layers is twice as fast.
    """
    _validate.code_words(codes, codebooks, scales)
    if codebooks.shape[2] != 1:
        raise ValueError(f"look-up works for out_group_size = 1 only; got {codebooks.shape[2]}")
    _validate.inputs(x, codes.shape[1] * codebooks.shape[3])
    if scales is None:
        raise TypeError("scales must be a tensor [out groups, 1, 1, 1]; got None")
    return lookup(x, codes, codebooks, scales)


def lookup(
    x: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor, arranged: Tensor | None = None
) -> Tensor:
    """Unchecked `lut_matvec`; `arranged` is what `arrange` made of the codes."""
    rows = x.reshape(-1, x.shape[-1]).to(codebooks.dtype)
    table = _table(rows, codebooks)
    slow = torch.is_grad_enabled() and (table.requires_grad or scales.requires_grad)
    if slow or table.device.type != "cpu" or table.dtype not in (torch.float32, torch.float64):
        sums = _reference_sums(table, codes.long())
    else:
        sums = torch.empty(len(rows), codes.shape[0], dtype=table.dtype)
        tile = ROWS if arranged is None else codes.shape[0]
        eights = (_in_eights(codes.detach()) if arranged is None else arranged).numpy()
        flat = _padded(table.detach().flatten(1, 2).transpose(1, 2)).transpose(1, 2)
        _kernel()(flat.unflatten(1, (-1, EIGHT)).contiguous().numpy(), eights, sums.numpy(), tile)
    return (sums * scales.to(sums.dtype).view(-1)).view(*x.shape[:-1], -1)


def arrange(codes: Tensor) -> Tensor:
    """Codes (O, I, M) as (blocks, O, 8): what the kernel reads one after the other lies in a row."""
    return _in_eights(codes).contiguous()


def _in_eights(codes: Tensor) -> Tensor:
    return _padded(codes.reshape(codes.shape[0], -1)).unflatten(1, (-1, EIGHT)).transpose(0, 1)


def _padded(values: Tensor) -> Tensor:
    """The last dimension filled up with zeros to a multiple of eight; words of value zero add nothing."""
    missing = -values.shape[-1] % EIGHT
    return torch.cat((values, values.new_zeros(*values.shape[:-1], missing)), -1) if missing else values


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
    """The compiled look-ups: table (batch, blocks, 8, K), codes (blocks, O, 8), sums (batch, O) to fill."""
    import numba  # not at the top: its import takes longer than all that this package does elsewhere

    @numba.njit(error_model="numpy")
    def sums(table: np.ndarray, codes: np.ndarray, out: np.ndarray, tile: int) -> None:
        blocks, rows, _ = codes.shape
        for b in range(len(table)):
            total = out[b]
            total[:] = 0
            for top in range(0, rows, tile):
                bottom = min(top + tile, rows)
                for k in range(blocks):
                    part, here = table[b, k], codes[k]
                    for i in range(top, bottom):
                        # a sum of fours: the additions of one need not wait for those of the other
                        total[i] += (
                            (part[0, here[i, 0]] + part[1, here[i, 1]])
                            + (part[2, here[i, 2]] + part[3, here[i, 3]])
                        ) + (
                            (part[4, here[i, 4]] + part[5, here[i, 5]])
                            + (part[6, here[i, 6]] + part[7, here[i, 7]])
                        )

    return sums
