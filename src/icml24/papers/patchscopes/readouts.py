r"""What is read from a patched run, and how it is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .models import ResidualLM

__all__ = [
    "attribute_hit",
    "logit_lens",
    "oracle_accuracy",
    "precision_at_1",
    "rouge_l",
    "strict_hit",
    "surprisal",
]


def logit_lens(model: ResidualLM, h: Tensor) -> Tensor:
    r"""Read a state as if it were the last one: final norm and output matrix.

    Parameters
    ----------
    model : ResidualLM
    h : Tensor, shape (..., d)

    Returns
    -------
    Tensor, shape (..., V)

    Notes
    -----
    Equal to a Patchscope with T = S, i* = i and l* = L (eq-patchscopes-lens).
    """
    if h.shape[-1] != model.d_model:
        raise ValueError(f"h must be states (..., {model.d_model}); got shape {tuple(h.shape)}")
    return model.unembed(h)


def precision_at_1(source_logits: Tensor, patched_logits: Tensor) -> Tensor:
    r"""Whether both distributions have the same most likely token.

    Parameters
    ----------
    source_logits, patched_logits : Tensor, shape (B, V)
        Of the unpatched source run at its position, and of the patched run.

    Returns
    -------
    Tensor, shape (B,)
        0. or 1., in the dtype of `source_logits`.
    """
    source, patched = _pair(source_logits, patched_logits)
    return (source.argmax(-1) == patched.argmax(-1)).to(source_logits.dtype)


def surprisal(source_logits: Tensor, patched_logits: Tensor) -> Tensor:
    r"""How improbable the source model finds the patched run's choice, in nats.

    .. math:: -\log p(\hat a), \qquad p = \mathrm{softmax}(z), \quad \hat a = \arg\max \hat z

    Parameters
    ----------
    source_logits, patched_logits : Tensor, shape (B, V)

    Returns
    -------
    Tensor, shape (B,)
        In the dtype of `source_logits`, float32 for half-precision inputs, in which tiny
        probabilities would vanish.

    Notes
    -----
    Never below :math:`-\log\max p` (eq-patchscopes-floor).
    """
    source, patched = _pair(source_logits, patched_logits)
    if source.dtype in (torch.float16, torch.bfloat16):
        source = source.float()
    logp = source.log_softmax(-1)
    return -logp.gather(-1, patched.argmax(-1, keepdim=True))[..., 0]


def _pair(source: Tensor, patched: Tensor) -> tuple[Tensor, Tensor]:
    if source.dim() != 2 or source.shape != patched.shape or source.shape[-1] == 0:
        raise ValueError(
            f"both logits must have one shape (B, V); got {tuple(source.shape)} and {tuple(patched.shape)}"
        )
    for name, logits in (("source", source), ("patched", patched)):
        if not logits.is_floating_point():
            raise TypeError(f"{name} logits must be floating; got {logits.dtype}")
        if logits.isnan().any():
            raise ValueError(f"{name} logits contain NaN")
    return source, patched


def rouge_l(candidate: Sequence[Any], reference: Sequence[Any]) -> float:
    r"""RougeL-F1 of two token sequences, from their longest common subsequence.

    .. math:: F_1 = \frac{2\,\mathrm{LCS}(c, r)}{|c| + |r|}

    Parameters
    ----------
    candidate, reference : sequence
        Tokens of any comparable kind; a string counts as a sequence of characters.

    Returns
    -------
    float
        In [0, 1]; 0.0 when either is empty.
    """
    if not len(candidate) or not len(reference):
        return 0.0
    row = [0] * (len(reference) + 1)  # row[j]: longest common subsequence with the first j of the reference
    for token in candidate:
        diagonal = 0
        for j, other in enumerate(reference, start=1):
            diagonal, row[j] = row[j], diagonal + 1 if token == other else max(row[j], row[j - 1])
    return 2 * row[-1] / (len(candidate) + len(reference))


def attribute_hit(generated: str, obj: str) -> bool:
    """Whether the object occurs in the generated text, white space removed and case folded.

    Raises
    ------
    ValueError
        A blank object, which any text would contain.
    """
    wanted = _squeezed(obj)
    if not wanted:
        raise ValueError("obj is blank; every text would contain it")
    return wanted in _squeezed(generated)


def strict_hit(generated: str, obj: str) -> bool:
    """As `attribute_hit`, but an object of fewer than four letters must stand as a word of its own."""
    if len(_squeezed(obj)) >= 4:
        return attribute_hit(generated, obj)
    words = "".join(c if c.isalnum() else " " for c in generated.casefold()).split()
    return obj.strip().casefold() in words


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def oracle_accuracy(hits: Tensor) -> dict[str, float]:
    r"""Three ways to summarise success over many configurations.

    Parameters
    ----------
    hits : BoolTensor, shape (configurations, items)

    Returns
    -------
    dict of str to float
        ``oracle``: share of items for which *some* configuration succeeds, chosen after seeing
        the answers (eq-patchscopes-oracle); ``best_single``: the best configuration used for all
        items, still chosen on them; ``mean``: over everything.
    """
    hits = torch.as_tensor(hits)
    if hits.dtype is not torch.bool:
        raise TypeError(f"hits must be boolean; got {hits.dtype}")
    if hits.dim() != 2 or hits.numel() == 0:
        raise ValueError(
            f"hits must have shape (configurations, items), none of them 0; got {tuple(hits.shape)}"
        )
    values = hits.double()
    return {
        "oracle": float(hits.any(dim=0).double().mean()),
        "best_single": float(values.mean(dim=1).max()),
        "mean": float(values.mean()),
    }
