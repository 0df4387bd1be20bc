r"""Symmetric InfoNCE: the loss that pulls matching pairs of two encoders together.

Rows are one encoder's items, columns the other's; the diagonal (or a mask of positives)
says which belong together. For independent pairs ``log(batch) - loss`` is a lower bound on
the mutual information of the two encodings (van den Oord et al., 2018).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["symmetric_info_nce"]


def symmetric_info_nce(logits: Tensor, positives: Tensor | None = None) -> Tensor:
    r"""Mean cross-entropy of finding the partner, along rows and along columns.

    .. math:: \tfrac12 \Bigl( -\tfrac1n \sum_i \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ij}}}
              -\tfrac1m \sum_j \log \frac{e^{l_{jj}}}{\sum_i e^{l_{ij}}} \Bigr)

    Parameters
    ----------
    logits : Tensor, shape (n, m), floating
        Scaled similarities (cosine over temperature).
    positives : Tensor of bool, shape (n, m), optional
        Which pairs belong together, at least one in every row and column; several share the
        target equally. Default: the diagonal of a square matrix.

    Returns
    -------
    Tensor, scalar
        Nats, not negative; differentiable.

    Raises
    ------
    TypeError
        `logits` is not floating or `positives` not boolean.
    ValueError
        Wrong shapes, no diagonal (n differs from m) without `positives`, an empty batch, or a
        row or column without a positive.
    """
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating; got {logits.dtype}")
    if logits.ndim != 2 or 0 in logits.shape:
        raise ValueError(f"expected logits of shape (n, m), not empty; got {tuple(logits.shape)}")
    if positives is None:
        if logits.shape[0] != logits.shape[1]:
            raise ValueError(
                f"without positives the logits must be square; got {tuple(logits.shape)}: pass a mask"
            )
        positives = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    if positives.dtype != torch.bool:
        raise TypeError(f"positives must be boolean; got {positives.dtype}")
    if positives.shape != logits.shape:
        raise ValueError(
            f"positives must have the shape of logits, {tuple(logits.shape)}; got {tuple(positives.shape)}"
        )
    if not (positives.any(0).all() and positives.any(1).all()):
        raise ValueError("every row and every column needs at least one positive")
    share = positives.to(logits)
    rows = F.cross_entropy(logits, share / share.sum(1, keepdim=True))
    columns = F.cross_entropy(logits.T, (share / share.sum(0, keepdim=True)).T)
    return (rows + columns) / 2
