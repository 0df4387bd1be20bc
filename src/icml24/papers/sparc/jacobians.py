r"""How weights move when similarities move: softmax against min-max.

Equations eq-sparc-saturation (the paper's equation 8) and eq-sparc-rational, and the winner-takes-all
iteration that sets them apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .alignment import alignment_weights

__all__ = ["climb", "minmax_jacobian", "softmax_jacobian"]


def softmax_jacobian(weights: Tensor) -> Tensor:
    r"""Jacobian of a softmax in its logits, :math:`\partial a_i / \partial s_j = a_i (\delta_{ij} - a_j)`.

    Parameters
    ----------
    weights : Tensor, shape (..., P)
        The softmax itself.

    Returns
    -------
    Tensor, shape (..., P, P)
    """
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def minmax_jacobian(similarity: Tensor, *, threshold: float = 0.0) -> Tensor:
    r"""Jacobian of min-max weights in the similarities, away from ties and from the threshold.

    Parameters
    ----------
    similarity : Tensor, shape (P,)
        One row with a unique maximum and a unique minimum.
    threshold : float, default 0.0
        As for `alignment_weights`; 0 is the dense mode.

    Returns
    -------
    Tensor, shape (P, P)
        Entry (i, j) is :math:`\partial a_i / \partial s_j`.

    Notes
    -----
    Source: eq-sparc-rational, the chain rule through the normalisation to sum one and the
    min-max step: the arg-max moves all entries by their own value, the arg-min by what is missing.
    """
    low, high = similarity.argmin(), similarity.argmax()
    spread = similarity[high] - similarity[low]
    full = (similarity - similarity[low]) / spread
    keep = (full >= threshold).to(similarity)
    step = torch.diag(keep / spread)
    step[:, high] -= keep * full / spread
    step[:, low] -= keep * (1 - full) / spread
    kept = full * keep
    weights = kept / kept.sum()
    return (torch.eye(len(kept), dtype=kept.dtype) - weights[:, None]) @ step / kept.sum()


def climb(
    start: Tensor, worth: Tensor, *, mode: str, steps: int, rate: float, threshold: float | None = None
) -> Tensor:
    r"""Gradient ascent of the similarities on the weighted worth :math:`\sum_p a_p u_p`.

    Parameters
    ----------
    start : Tensor, shape (P,)
        Similarities to begin with.
    worth : Tensor, shape (P,)
        What each patch is worth to the word.
    mode, threshold
        As for `alignment_weights`.
    steps : int
    rate : float
        Step length.

    Returns
    -------
    Tensor, shape (steps + 1, P)
        The weights after each step, the first row before any.
    """
    s = start.detach().clone().requires_grad_(True)
    path = []
    for _ in range(steps):
        weights = alignment_weights(s, mode=mode, threshold=threshold)
        path.append(weights.detach())
        (slope,) = torch.autograd.grad((weights * worth).sum(), s)
        s = (s + rate * slope).detach().requires_grad_(True)
    path.append(alignment_weights(s, mode=mode, threshold=threshold).detach())
    return torch.stack(path)
