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

#: Codes are read 64 bits at a time: eight codes of a byte, whose tables, 8 kB, stay in the nearest cache.
READ = 64
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
    for each dtype, width of the codes and layout. `QuantizedLinear` keeps its codes in the order in which the kernel reads
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
        words = codebooks.shape[1]
        sums = torch.empty(len(rows), codes.shape[0], dtype=table.dtype)
        tile = ROWS if arranged is None else codes.shape[0]
        reads = _reads(codes.detach(), words) if arranged is None else arranged
        bits = 8 * code_dtype(words).itemsize
        flat = _padded(table.detach().flatten(1, 2).transpose(1, 2), READ // bits).transpose(1, 2)
        parts = flat.unflatten(1, (-1, READ // bits)).contiguous()
        _kernel(bits)(parts.numpy(), reads.numpy().view(np.uint64), sums.numpy(), tile)
    return (sums * scales.to(sums.dtype).view(-1)).view(*x.shape[:-1], -1)


def arrange(codes: Tensor, words: int) -> Tensor:
    """Codes (O, I, M) as int64 (reads, O): what the kernel reads one after the other lies in a row."""
    return _reads(codes, words).contiguous()


def code_dtype(words: int) -> torch.dtype:
    """The narrowest of three dtypes that holds codes below `words`."""
    return torch.uint8 if words <= 2**8 else torch.int16 if words <= 2**15 else torch.int32


def _reads(codes: Tensor, words: int) -> Tensor:
    """The codes of a row, as many as fit into 64 bits at a time (the first one lowest), int64 (reads, O)."""
    narrow = codes.reshape(codes.shape[0], -1).to(code_dtype(words))
    flat = _padded(narrow, READ // (8 * narrow.itemsize)).contiguous()
    if flat.storage_offset() * flat.itemsize % 8:
        flat = flat.clone()
    return flat.view(torch.int64).T


def _padded(values: Tensor, size: int) -> Tensor:
    """The last dimension filled up with zeros to a multiple of `size`; words of value zero add nothing."""
    missing = -values.shape[-1] % size
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
def _kernel(bits: int) -> Any:
    """The compiled look-ups: table (batch, reads, codes a read, K), reads (reads, O), sums (batch, O) to fill."""
    import numba  # not at the top: its import takes longer than all that this package does elsewhere

    count, width, mask = READ // bits, np.uint64(bits), np.uint64(2**bits - 1)

    @numba.njit(error_model="numpy")
    def sums(table: np.ndarray, reads: np.ndarray, out: np.ndarray, tile: int) -> None:
        blocks, rows = reads.shape
        for b in range(len(table)):
            total = out[b]
            total[:] = 0
            for top in range(0, rows, tile):
                bottom = min(top + tile, rows)
                for k in range(blocks):
                    part, here = table[b, k], reads[k]
                    for i in range(top, bottom):
                        # one load for all codes, unrolled: the sums of neighbouring rows overlap
                        read, value = here[i], total[i]
                        for n in range(count):
                            value += part[n, (read >> (np.uint64(n) * width)) & mask]
                        total[i] = value

    return sums
