r"""The two contrasts: pairs within a batch, words within a caption.

Equations eq-sparc-global, eq-sparc-sequence, eq-sparc-total (the paper's equations 1, 6, 7).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.contrastive import symmetric_info_nce

from ._checks import check_mask, check_pair, check_scale, check_sequences
from .alignment import language_grouped

__all__ = [
    "REDUCTIONS",
    "global_contrastive_loss",
    "reference_local_loss",
    "sequence_contrastive_loss",
    "sparc_loss",
]

#: "sample": captions weigh equally (the paper's equation); "token": words do (its listing).
REDUCTIONS = ("sample", "token")


def global_contrastive_loss(image: Tensor, text: Tensor, inverse_temperature: float | Tensor) -> Tensor:
    r"""CLIP's loss: each image finds its caption in the batch, and each caption its image.

    Parameters
    ----------
    image, text : Tensor, shape (B, d), floating
        Pooled embeddings of the pairs; normalised inside.
    inverse_temperature : float or 0-d Tensor
        Factor of the cosines, positive.

    Returns
    -------
    Tensor, scalar
        Nats; mean over rows and columns; differentiable.

    Raises
    ------
    TypeError
        Not floating tensors of one dtype.
    ValueError
        Shapes differ or are not (B, d); ``inverse_temperature <= 0``.

    Notes
    -----
    Source: eq-sparc-global, the paper's equation 1.
    """
    check_pair("image", image, "text", text)
    check_scale(inverse_temperature)
    return symmetric_info_nce(
        inverse_temperature * (F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T)
    )


def sequence_contrastive_loss(
    grouped: Tensor,
    tokens: Tensor,
    mask: Tensor,
    inverse_temperature: float | Tensor,
    *,
    reduction: str = "sample",
) -> Tensor:
    r"""Each word finds its own vision vector among those of its caption, and the other way round.

    Parameters
    ----------
    grouped : Tensor, shape (B, L, d), floating
        Language-grouped vision embeddings.
    tokens : Tensor, shape (B, L, d), floating
    mask : Tensor of bool, shape (B, L)
        True at real tokens; at least one a row. Values and gradients do not depend on what
        stands elsewhere, not even on NaN.
    inverse_temperature : float or 0-d Tensor
    reduction : {"sample", "token"}
        Mean over captions of the mean over their words, or mean over all words.

    Returns
    -------
    Tensor, scalar
        Nats, not negative but for rounding. A caption of one word contributes 0.

    Raises
    ------
    TypeError
        Not floating tensors of one dtype; mask not boolean.
    ValueError
        Shapes that do not fit, a caption without real token (its row is named), unknown
        reduction, ``inverse_temperature <= 0``.

    Notes
    -----
    Source: eq-sparc-sequence, the paper's equation 6; "token" is its listing. Negatives are the
    other words of the same caption, so nothing of size B x B is ever formed.
    """
    check_sequences("grouped", grouped, "tokens", tokens)
    if grouped.shape != tokens.shape:
        raise ValueError(
            f"grouped and tokens must have one shape; got {tuple(grouped.shape)} and {tuple(tokens.shape)}"
        )
    check_mask(mask, tokens)
    check_scale(inverse_temperature)
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}; expected one of {REDUCTIONS}")
    padded = ~mask
    vision = F.normalize(grouped.masked_fill(padded[..., None], 0.0), dim=-1)
    words = F.normalize(tokens.masked_fill(padded[..., None], 0.0), dim=-1)
    logits = inverse_temperature * torch.bmm(vision, words.mT)
    own = logits.diagonal(dim1=1, dim2=2)
    # a large finite number: -inf would make rows of padding NaN, the smallest float overflows in the sum
    fill = max(-1e9, torch.finfo(logits.dtype).min / 2)
    shut = logits.masked_fill(padded[:, :, None] | padded[:, None, :], fill)
    each = (shut.logsumexp(2) + shut.logsumexp(1)) / 2 - own
    each = each.masked_fill(padded, 0.0)  # selects; multiplying by 0 would keep NaN and inf
    if reduction == "token":
        return each.sum() / mask.sum()
    return (each.sum(1) / mask.sum(1)).mean()


def sparc_loss(
    image: Tensor,
    text: Tensor,
    patches: Tensor,
    tokens: Tensor,
    mask: Tensor,
    inverse_temperature: float | Tensor,
    *,
    global_weight: float = 0.5,
    local_weight: float = 1.0,
    threshold: float | None = None,
    mode: str = "sparse",
    reduction: str = "sample",
) -> dict[str, Tensor]:
    r"""Weighted sum of the global and the fine-grained loss.

    .. math:: L = \lambda_g L_g + \lambda_f L_f

    Parameters
    ----------
    image, text : Tensor, shape (B, d), floating
        Pooled embeddings.
    patches : Tensor, shape (B, P, d), floating
    tokens : Tensor, shape (B, L, d), floating
    mask : Tensor of bool, shape (B, L)
        True at real tokens; what stands elsewhere changes nothing, bit for bit.
    inverse_temperature : float or 0-d Tensor
        Shared by both terms.
    global_weight, local_weight : float
        :math:`\lambda_g` (the paper's 0.5) and :math:`\lambda_f` (swept there).
    threshold, mode
        As for `alignment_weights`.
    reduction
        As for `sequence_contrastive_loss`.

    Returns
    -------
    dict of scalar Tensors
        "loss", and the two unweighted terms "global" and "local".

    Raises
    ------
    TypeError, ValueError
        As for the parts.

    Notes
    -----
    Source: eq-sparc-total, the paper's equation 7.
    """
    check_pair("image", image, "text", text)
    check_sequences("tokens", tokens, "patches", patches)
    if image.shape[0] != tokens.shape[0]:
        raise ValueError(
            f"pooled and sequence embeddings need one batch size; got {tuple(image.shape)} and {tuple(tokens.shape)}"
        )
    check_mask(mask, tokens)
    tokens = tokens.masked_fill(~mask[..., None], 0.0)  # else garbage there could reach patches as inf * 0
    grouped = language_grouped(tokens, patches, threshold=threshold, mode=mode)
    local = sequence_contrastive_loss(grouped, tokens, mask, inverse_temperature, reduction=reduction)
    whole = global_contrastive_loss(image, text, inverse_temperature)
    return {"loss": global_weight * whole + local_weight * local, "global": whole, "local": local}


def reference_local_loss(
    patches: Tensor, tokens: Tensor, mask: Tensor, inverse_temperature: float | Tensor
) -> Tensor:
    """The fine-grained loss read off the equations, one caption and one word at a time."""
    captions = []
    for v, t, real in zip(patches, tokens, mask, strict=True):
        t = t[real]
        grouped = []
        for word in t:
            s = v @ word
            low, high = s.min(), s.max()
            kept = (s - low) / (high - low) if high - low > 1e-8 else torch.ones_like(s)
            kept = torch.where(kept >= 1 / len(v), kept, torch.zeros_like(kept))
            grouped.append((kept / kept.sum()) @ v)
        cosines = inverse_temperature * F.cosine_similarity(
            torch.stack(grouped)[:, None], t[None], dim=-1, eps=1e-12
        )
        here = torch.arange(len(t))
        captions.append((F.cross_entropy(cosines, here) + F.cross_entropy(cosines.T, here)) / 2)
    return torch.stack(captions).mean()
