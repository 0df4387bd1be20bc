r"""The discrete half of a round: beam search over the codes, with codebooks and scales fixed.

Rows of the weight do not interact, so every output group has a beam of its own, and all of them
move in step. Replacing word `u` by `v` in one block of a row with residual :math:`D = W - \hat W`
changes its loss by

.. math:: -2 s \langle v - u, P \rangle + s^2 (v G_{jj} v^\top - u G_{jj} u^\top),
          \qquad P = \bigl((D + s\,u\,e_j)\,G\bigr)_j ,

where :math:`(\cdot)_j` are the columns of group `j` (eq-aqlm-change). The product with `G` is
taken once a group: within a group only the group's own block of `D` moves.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate
from .clusters import permutation
from .formats import blocks, matrix, partition

__all__ = ["beam_search_codes", "beam_search_codes_l2"]


def beam_search_codes(
    weight: Tensor,
    codes: Tensor,
    codebooks: Tensor,
    scales: Tensor,
    gram: Tensor,
    *,
    beam_size: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One sweep over all codes that looks at the error on the inputs.

    Parameters
    ----------
    weight : Tensor, shape (out_features, in_features)
    codes : Tensor, shape (O, I, M), integer
        The start; left as it is.
    codebooks : Tensor, shape (M, K, g_out, g_in)
    scales : Tensor, shape (O, 1, 1, 1)
    gram : Tensor, shape (in_features, in_features)
        Converted to the dtype of `codebooks`.
    beam_size : int, default 1
        Hypotheses kept for each output group; 1 is coordinate descent.
    generator : torch.Generator, optional
        Draws the order: a permutation of the input groups, then for every visited group one of
        the codebooks. Without it the natural order.

    Returns
    -------
    Tensor, shape (O, I, M), int64
        Never worse than `codes`, up to rounding. Ties go to the lowest index.

    Raises
    ------
    ValueError
        ``beam_size < 1``, shapes that do not fit, a code outside its codebook, values that are
        not finite.

    Notes
    -----
    Source: the paper's phase 1; eq-aqlm-change. Cost about
    ``2 h d_out d_in**2 + 2 h d_out d_in M K`` operations for beam size h.
    """
    _validate.problem(weight, codes, codebooks, scales, gram)
    checks.whole("beam_size", beam_size, 1)
    weight, codebooks, scales = weight.detach(), codebooks.detach(), scales.detach()
    dtype = codebooks.dtype
    return search(
        weight.to(dtype), codes.long(), codebooks, scales.to(dtype), gram.to(dtype), beam_size, generator
    )


def search(
    weight: Tensor,
    codes: Tensor,
    codebooks: Tensor,
    scales: Tensor,
    gram: Tensor,
    beam_size: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Unchecked `beam_search_codes`: int64 codes, everything else of one dtype."""
    groups_out, groups_in, _ = codes.shape
    books, words, g_out, g_in = codebooks.shape
    flat = codebooks.flatten(2)  # [M, K, g_out g_in]
    rest = (weight - matrix(blocks(codes, codebooks, scales))).view(groups_out, 1, g_out, -1)
    loss = ((rest @ gram) * rest).sum((2, 3))  # [O, H]
    codes = codes[:, None].clone()  # [O, H, I, M]
    s = scales.view(groups_out, 1)
    for j, order in _visits(groups_in, books, generator):
        columns = slice(j * g_in, (j + 1) * g_in)
        corner = gram[columns, columns]
        energy = ((codebooks @ corner) * codebooks).sum((2, 3))  # [M, K]: v G_jj v^T
        block = rest[..., columns]  # [O, H, g_out, g_in]
        outside = rest @ gram[:, columns] - block @ corner
        chosen = codes[:, :, j].clone()  # [O, H, M]
        parent = None
        for m in order:
            old = chosen[..., m]
            block = block + s[..., None, None] * codebooks[m][old]
            field = (outside + block @ corner).flatten(2)
            change = torch.addcmul((-2 * s)[..., None] * (field @ flat[m].T), (s * s)[..., None], energy[m])
            base = loss - change.gather(2, old[..., None]).squeeze(2)
            loss, picked = _lowest((base[..., None] + change).flatten(1), beam_size)
            source, new = picked // words, picked % words
            if beam_size > 1:
                outside, block, chosen = (_rows(part, source) for part in (outside, block, chosen))
                parent = source if parent is None else parent.gather(1, source)
            chosen[..., m] = new
            block = block - s[..., None, None] * codebooks[m][new]
        if parent is not None:
            rest, codes = _rows(rest, parent), _rows(codes, parent)
        rest[..., columns] = block
        codes[:, :, j] = chosen
    return codes[:, 0].contiguous()


def _visits(groups: int, books: int, generator: torch.Generator | None) -> Iterator[tuple[int, list[int]]]:
    if generator is None:
        yield from ((j, list(range(books))) for j in range(groups))
        return
    for j in permutation(groups, generator).tolist():
        yield j, permutation(books, generator).tolist()


def _rows(part: Tensor, source: Tensor) -> Tensor:
    """Hypotheses (dimension 1) picked one output group at a time."""
    index = source.view(*source.shape, *(1,) * (part.dim() - 2)).expand(*source.shape, *part.shape[2:])
    return part.gather(1, index)


def _lowest(losses: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` lowest of each row in rising order, ties to the lowest index (top-k does not promise it)."""
    count = min(count, losses.shape[1])
    if count == 1:
        index = losses.argmin(1, keepdim=True)
        return losses.gather(1, index), index
    left, picked = losses.clone(), []
    for _ in range(count):
        picked.append(left.argmin(1, keepdim=True))
        left.scatter_(1, picked[-1], torch.inf)
    index = torch.cat(picked, 1)
    return losses.gather(1, index), index


def beam_search_codes_l2(
    weight: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor, *, beam_size: int = 1
) -> Tensor:
    """The same without inputs: squared error of the weights, one beam for every block.

    With the unit matrix in place of `gram` the loss is a sum over blocks, so each block is
    searched alone, over its M codes in their order.

    Parameters
    ----------
    weight, codes, codebooks, scales
        As `beam_search_codes`.
    beam_size : int, default 1

    Returns
    -------
    Tensor, shape (O, I, M), int64

    Raises
    ------
    ValueError
        As `beam_search_codes`.

    Notes
    -----
    The released routine of this kind does not carry residuals over to their new places after a
    selection, so for M >= 3 and wide beams it scores children by other parents' residuals; this
    one does carry them.
    """
    _validate.problem(weight, codes, codebooks, scales)
    checks.whole("beam_size", beam_size, 1)
    return _search_l2(weight.detach(), codes.long(), codebooks.detach(), scales.detach(), beam_size)


def _search_l2(
    weight: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor, beam_size: int, *, carry: bool = True
) -> Tensor:
    """Beam search of every block; ``carry=False`` is the released routine's slip, for the chapter to show."""
    dtype = codebooks.dtype
    books, words, g_out, g_in = codebooks.shape
    flat = codebooks.flatten(2)
    count = codes.shape[0] * codes.shape[1]
    s = scales.to(dtype).expand(-1, codes.shape[1], -1, -1).reshape(count, 1)
    rest = partition(weight.to(dtype), g_out, g_in) - blocks(codes, codebooks, scales.to(dtype))
    rest = rest.reshape(count, 1, -1)  # [N, H, g_out g_in]
    chosen = codes.reshape(count, 1, books)
    for m in range(books):
        bare = rest + s[..., None] * flat[m][chosen[..., m]]
        score = (s * s)[..., None] * flat[m].square().sum(1) - (2 * s)[..., None] * (bare @ flat[m].T)
        score = score + bare.square().sum(2, keepdim=True)
        _, picked = _lowest(score.flatten(1), beam_size)
        source, new = picked // words, picked % words
        chosen = _rows(chosen, source)
        chosen[..., m] = new
        if carry or bare.shape[1] == 1:
            bare = _rows(bare, source)
        else:
            bare = bare[:, torch.arange(source.shape[1]) % bare.shape[1]]
        rest = bare - s[..., None] * flat[m][new]
    return chosen[:, 0].reshape(codes.shape)
