r"""Other ways to let words see patches: FILIP, PACL, GLoRIA.

Equations eq-sparc-filip, eq-sparc-pacl, eq-sparc-gloria, as the paper describes them (section 4 and
appendix D). All three compare every image with every caption of the batch, hence B x B tensors.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.contrastive import symmetric_info_nce

from ._checks import check_floating, check_mask, check_scale, check_sequences, shape

__all__ = ["filip_loss", "filip_similarity", "gloria_local_loss", "pacl_loss"]


def filip_similarity(patches: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    r"""FILIP's two scores: best word of each patch, best patch of each word.

    .. math:: I_{ij} = \frac1P \sum_p \max_{l} \cos(v_{ip}, t_{jl}) , \qquad
              T_{ji} = \frac1{L_j} \sum_{l} \max_p \cos(v_{ip}, t_{jl})

    Parameters
    ----------
    patches : Tensor, shape (B, P, d), floating
    tokens : Tensor, shape (B, L, d), floating
    mask : Tensor of bool, shape (B, L)
        True at real tokens: maximum and mean run over those alone.

    Returns
    -------
    (Tensor, Tensor), both of shape (B, B)
        I[image, text] and T[text, image]; they are different matrices, not transposes.

    Raises
    ------
    TypeError, ValueError
        As for `token_patch_similarity`; a mask that does not fit, an empty caption.

    Notes
    -----
    Source: eq-sparc-filip. Memory B^2 L P.
    """
    check_sequences("tokens", tokens, "patches", patches)
    check_mask(mask, tokens)
    return filip_scores(patches, tokens, mask)


def filip_scores(patches: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """`filip_similarity` without checks, for any numbers of images and of texts."""
    words = F.normalize(tokens.masked_fill(~mask[..., None], 0.0), dim=-1)
    cosines = torch.einsum("ipd,jld->ijpl", F.normalize(patches, dim=-1), words)
    for_patches = cosines.masked_fill(~mask[None, :, None, :], -torch.inf).amax(3).mean(2)
    for_words = cosines.amax(2).masked_fill(~mask[None], 0.0).sum(2) / mask.sum(1)
    return for_patches, for_words.T


def filip_loss(patches: Tensor, tokens: Tensor, mask: Tensor, inverse_temperature: float | Tensor) -> Tensor:
    r"""Contrast of both FILIP scores over the batch.

    Parameters
    ----------
    patches, tokens, mask
        As for `filip_similarity`.
    inverse_temperature : float or 0-d Tensor
        Positive.

    Returns
    -------
    Tensor, scalar
        Mean of the two cross-entropies, each along the rows of its own matrix; nats.

    Raises
    ------
    TypeError, ValueError
        As for `filip_similarity`; ``inverse_temperature <= 0``.
    """
    check_scale(inverse_temperature)
    to_text, to_image = filip_similarity(patches, tokens, mask)
    pairs = torch.arange(len(patches), device=patches.device)
    return (
        F.cross_entropy(inverse_temperature * to_text, pairs)
        + F.cross_entropy(inverse_temperature * to_image, pairs)
    ) / 2


def pacl_loss(patches: Tensor, text: Tensor, inverse_temperature: float | Tensor) -> Tensor:
    r"""PACL: the pooled caption picks patches by a softmax of cosines, and is compared with their mean.

    Parameters
    ----------
    patches : Tensor, shape (B, P, d), floating
    text : Tensor, shape (B, d), floating
        Pooled captions.
    inverse_temperature : float or 0-d Tensor
        Positive; no temperature inside the softmax over patches.

    Returns
    -------
    Tensor, scalar
        Nats.

    Raises
    ------
    TypeError
        Not floating tensors of one dtype.
    ValueError
        Shapes that do not fit; ``inverse_temperature <= 0``.

    Notes
    -----
    Source: eq-sparc-pacl. Trained from scratch here, without the frozen encoder of the original.
    """
    check_floating(patches=patches, text=text)
    if patches.ndim != 3 or text.ndim != 2 or shape(patches)[::2] != shape(text) or 0 in patches.shape:
        raise ValueError(
            f"expected patches (batch, patches, width) and text (batch, width); got {shape(patches)} and {shape(text)}"
        )
    check_scale(inverse_temperature)
    return symmetric_info_nce(inverse_temperature * pacl_scores(patches, text))


def pacl_scores(patches: Tensor, text: Tensor) -> Tensor:
    """Cosines [image, text] of PACL, for any numbers of images and of texts."""
    words = F.normalize(text, dim=-1)
    cosines = torch.einsum("ipd,jd->ijp", F.normalize(patches, dim=-1), words)
    attended = torch.einsum("ijp,ipd->ijd", torch.softmax(cosines, -1), patches)
    return (F.normalize(attended, dim=-1) * words).sum(-1)


def gloria_local_loss(
    patches: Tensor,
    tokens: Tensor,
    mask: Tensor,
    inverse_temperature: float | Tensor,
    *,
    token_temperature: float = 4.0,
) -> Tensor:
    r"""GLoRIA's local term: every word of every caption attends to every image.

    .. math:: Z_{ij} = \frac1\kappa \log \sum_{l} e^{\kappa \cos(c_{ijl}, t_{jl})} , \qquad
              c_{ijl} = \sum_p \operatorname{softmax}_p
              \bigl(\langle t_{jl}, v_{ip}\rangle / \sqrt d\bigr)\, v_{ip}

    Parameters
    ----------
    patches : Tensor, shape (B, P, d), floating
    tokens : Tensor, shape (B, L, d), floating
    mask : Tensor of bool, shape (B, L)
    inverse_temperature : float or 0-d Tensor
        Factor of `Z`, positive.
    token_temperature : float, default 4.0
        :math:`\kappa`, positive.

    Returns
    -------
    Tensor, scalar
        The local term alone; add `global_contrastive_loss` for the whole objective.

    Raises
    ------
    TypeError, ValueError
        As for `filip_similarity`; a temperature that is not positive.

    Notes
    -----
    Source: eq-sparc-gloria. The vectors c (B^2 L d numbers) are never formed: their products with
    the word come from the similarities, their lengths from the patches' Gram matrix.
    """
    check_sequences("tokens", tokens, "patches", patches)
    check_mask(mask, tokens)
    check_scale(inverse_temperature)
    if not token_temperature > 0:
        raise ValueError(f"token_temperature must be positive; got {token_temperature}")
    return symmetric_info_nce(inverse_temperature * gloria_scores(patches, tokens, mask, token_temperature))


def gloria_scores(patches: Tensor, tokens: Tensor, mask: Tensor, token_temperature: float) -> Tensor:
    """GLoRIA's matching scores [image, text], for any numbers of images and of texts."""
    tokens = tokens.masked_fill(~mask[..., None], 0.0)
    similarity = torch.einsum("jld,ipd->ijlp", tokens, patches)
    weights = torch.softmax(similarity / math.sqrt(tokens.shape[-1]), -1)
    products = (weights * similarity).sum(-1)
    flat = weights.flatten(1, 2)  # image, text x word, patch
    gram = torch.bmm(patches, patches.mT)
    squares = (torch.bmm(flat, gram) * flat).sum(-1).view_as(products)
    # patches that cancel leave nothing of a square but rounding, and the root has no gradient at zero
    limits = torch.finfo(squares.dtype)
    longest = gram.detach().diagonal(dim1=1, dim2=2).amax(1)
    floor = (limits.eps * longest).clamp_min(limits.tiny)[:, None, None]
    lengths = tokens.square().sum(-1).masked_fill(~mask, 1.0).clamp_min(1e-24).sqrt()
    cosines = products / (torch.maximum(squares, floor).sqrt() * lengths)
    shut = (token_temperature * cosines).masked_fill(~mask[None], -torch.inf)
    return shut.logsumexp(-1) / token_temperature
