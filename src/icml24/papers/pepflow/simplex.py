r"""Residue types as points of a simplex, moved in the space of logits (eq-pepflow-simplex).

A type is a corner; its logits are `k` there and ``-k`` elsewhere, so that the softmax is nearly,
not quite, one-hot. Straight lines between logits give curves inside the simplex.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draw_types", "sequence_to_logits"]


def sequence_to_logits(
    seq: Tensor, k: float = 5.0, num_classes: int = 20, dtype: torch.dtype = torch.float32
) -> Tensor:
    r"""Logits of residue types: `k` on the type, ``-k`` on all others.

    Parameters
    ----------
    seq : Tensor, shape (...), integer
        Types; those outside ``0 .. num_classes - 1`` (unknown, padding) give ``-k`` everywhere.
    k : float, default 5.0
        Half the distance of the two levels; finite and positive.
    num_classes : int, default 20
    dtype : torch.dtype, default float32
        Of the result.

    Returns
    -------
    Tensor, shape (..., num_classes)

    Raises
    ------
    TypeError
        `seq` is not an integer tensor.
    ValueError
        `k` is not positive and finite, or ``num_classes < 1``.
    """
    if not isinstance(seq, Tensor) or seq.is_floating_point() or seq.is_complex() or seq.dtype == torch.bool:
        raise TypeError(
            "seq must be an integer tensor of residue types; use torch.as_tensor(..., dtype=long)"
        )
    if not 0 < k < float("inf"):
        raise ValueError(f"k must be positive and finite; got {k}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1; got {num_classes}")
    hit = seq.unsqueeze(-1) == torch.arange(num_classes, device=seq.device)
    level = torch.tensor(float(k), dtype=dtype, device=seq.device)
    return torch.where(hit, level, -level)


def draw_types(logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    r"""One type a row from softmax(logits) + 1e-8; (..., 20) to (...), long.

    Notes
    -----
    Inverse-transform sampling, one uniform number a row: the same draw on every machine whose
    generator agrees, whatever its multinomial kernel does. No gradient passes.
    """
    with torch.no_grad():
        weight = torch.softmax(logits, dim=-1) + 1e-8
        total = weight.cumsum(-1)
        u = torch.rand(logits.shape[:-1], generator=generator, dtype=logits.dtype, device=logits.device)
        at = torch.searchsorted(total, (u * total[..., -1]).unsqueeze(-1), right=True)
        return at.squeeze(-1).clamp_max(logits.shape[-1] - 1)
