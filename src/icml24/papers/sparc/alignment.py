r"""From words and patches to one vision vector a word.

Equations eq-sparc-similarity, eq-sparc-minmax, eq-sparc-weights, eq-sparc-grouped (the paper's
equations 2 to 5). Everything is plain differentiable torch: no stop-gradient anywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_floating, check_sequences, shape

__all__ = ["MODES", "alignment_weights", "language_grouped", "minmax_normalize", "token_patch_similarity"]

#: `sparse` is the paper's; `dense` drops the threshold; `softmax` replaces min-max by a softmax.
MODES = ("sparse", "dense", "softmax")


def token_patch_similarity(tokens: Tensor, patches: Tensor) -> Tensor:
    r"""Inner product of every word with every patch of its own image.

    .. math:: s_{lp} = \langle t_l, v_p \rangle

    Parameters
    ----------
    tokens : Tensor, shape (B, L, d), floating
        Word embeddings, padded places included.
    patches : Tensor, shape (B, P, d), floating
        Patch embeddings of the same pairs.

    Returns
    -------
    Tensor, shape (B, L, P)
        Raw inner products, not cosines (a common confusion: the loss uses cosines, this does not).

    Raises
    ------
    TypeError
        Not floating tensors of one dtype.
    ValueError
        Wrong rank, different batch or width, nothing inside.

    Notes
    -----
    Source: eq-sparc-similarity; section 3 of the paper.
    """
    check_sequences("tokens", tokens, "patches", patches)
    return torch.bmm(tokens, patches.mT)


def minmax_normalize(similarity: Tensor, *, eps: float = 1e-8) -> Tensor:
    r"""Shift and scale each row to the interval [0, 1].

    .. math:: \hat s_p = \frac{s_p - \min_q s_q}{\max_q s_q - \min_q s_q}

    Parameters
    ----------
    similarity : Tensor, shape (..., P), floating
        Rows are words, the last axis runs over patches.
    eps : float, default 1e-8
        A row whose range is at most `eps` counts as constant, in the unit of `similarity`.

    Returns
    -------
    Tensor, shape (..., P)
        Same dtype. A constant row is all ones with gradient zero (the quotient is 0/0 there).
        Rows with NaN stay NaN.

    Raises
    ------
    TypeError
        Not a floating tensor.
    ValueError
        No axis, or no patches; `eps` negative.

    Notes
    -----
    Source: eq-sparc-minmax, the paper's equation 2; constant rows are this book's addition.
    """
    check_floating(similarity=similarity)
    if similarity.ndim == 0 or similarity.shape[-1] == 0:
        raise ValueError(f"similarity needs a last axis of patches, not empty; got {shape(similarity)}")
    if eps < 0:
        raise ValueError(f"eps must not be negative; got {eps}")
    low, high = similarity.amin(-1, keepdim=True), similarity.amax(-1, keepdim=True)
    constant = high - low <= eps
    spread = (high - low).masked_fill(constant, 1.0)  # no 0/0, not even in the backward pass
    return ((similarity - low) / spread).masked_fill(constant, 1.0)


def alignment_weights(
    similarity: Tensor, *, threshold: float | None = None, mode: str = "sparse", eps: float = 1e-8
) -> Tensor:
    r"""Share of each patch in a word: min-max, threshold, normalise.

    .. math:: a_p = \tilde s_p \Big/ \sum_r \tilde s_r , \qquad
              \tilde s_p = \hat s_p\, [\hat s_p \ge \sigma]

    Parameters
    ----------
    similarity : Tensor, shape (..., P), floating
    threshold : float, optional
        :math:`\sigma` in [0, 1]; default 1/P. Used by `mode` "sparse" alone.
    mode : {"sparse", "dense", "softmax"}
        "dense" is a threshold of 0; "softmax" takes :math:`a = \operatorname{softmax}(s)` instead.
    eps : float, default 1e-8
        As for `minmax_normalize`.

    Returns
    -------
    Tensor, shape (..., P)
        Not negative, each row sums to one.

    Raises
    ------
    TypeError
        Not a floating tensor.
    ValueError
        Unknown mode, threshold outside [0, 1], empty rows.

    Notes
    -----
    Source: eq-sparc-weights, the paper's equations 3 and 4. The largest normalised similarity is
    exactly one, so the denominator is at least one and needs no guard.
    """
    check_floating(similarity=similarity)
    _check_mode(mode, threshold)
    if similarity.ndim == 0 or similarity.shape[-1] == 0:
        raise ValueError(f"similarity needs a last axis of patches, not empty; got {shape(similarity)}")
    if mode == "softmax":
        return torch.softmax(similarity, -1)
    kept = minmax_normalize(similarity, eps=eps)
    if mode == "sparse":
        sigma = 1 / similarity.shape[-1] if threshold is None else threshold
        kept = kept.masked_fill(kept < sigma, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def language_grouped(
    tokens: Tensor, patches: Tensor, *, threshold: float | None = None, mode: str = "sparse"
) -> Tensor:
    r"""Each word's own vision vector: the weighted mean of its patches.

    .. math:: c_l = \sum_p a_{lp}\, v_p

    Parameters
    ----------
    tokens : Tensor, shape (B, L, d), floating
    patches : Tensor, shape (B, P, d), floating
    threshold, mode
        As for `alignment_weights`.

    Returns
    -------
    Tensor, shape (B, L, d)
        Row by row: what stands in one token's place moves no other token's row.

    Raises
    ------
    TypeError, ValueError
        As for `token_patch_similarity` and `alignment_weights`.

    Notes
    -----
    Source: eq-sparc-grouped, the paper's equation 5. Cost 4 B L P d flops.
    """
    _check_mode(mode, threshold)
    weights = alignment_weights(token_patch_similarity(tokens, patches), threshold=threshold, mode=mode)
    return torch.bmm(weights, patches)


def _check_mode(mode: str, threshold: float | None) -> None:
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; expected one of {MODES}")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold is a normalised similarity in [0, 1]; got {threshold}")
