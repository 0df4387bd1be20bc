"""Perplexity, and end-to-end distillation from the original model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common import checks

from . import _validate
from .clusters import permutation, stream

__all__ = ["distill", "perplexity"]


def logits_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Logits (batch, length, vocabulary) of a model that returns them, or an object that holds them."""
    out = model(ids)
    return out if isinstance(out, Tensor) else out.logits


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the mode it was in."""
    mode = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(mode)


def token_rows(name: str, tokens: Tensor, shortest: int = 1) -> Tensor:
    """Token ids (n, length), int64."""
    if not isinstance(tokens, Tensor) or tokens.dtype not in _validate.INTEGERS:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"{name} must be a tensor of token ids; got {kind}")
    if tokens.dim() != 2 or len(tokens) == 0 or tokens.shape[1] < shortest:
        raise ValueError(
            f"{name} must be (sequences, length) with length >= {shortest}; got {tuple(tokens.shape)}"
        )
    return tokens.long()


def perplexity(model: nn.Module, tokens: Tensor, *, context: int, batch_size: int = 16) -> float:
    r"""Exponential of the mean surprise of the next token, in windows side by side.

    .. math:: \exp\Bigl(-\frac1{|I|}\sum_{t \in I} \log p(x_t \mid x_{<t} \text{ of its window})\Bigr)

    Parameters
    ----------
    model : nn.Module
        From ids (batch, length) to logits, or to an object with ``logits``.
    tokens : Tensor, shape (n,) or (sequences, n), integer
        Each sequence is cut into windows of `context` tokens that do not overlap; a rest is dropped.
    context : int
        At least 2: the first token of a window is not predicted.
    batch_size : int, default 16
        Windows a batch; does not change the result beyond rounding.

    Returns
    -------
    float
        1 for a perfect model, the size of the vocabulary for a uniform one.

    Raises
    ------
    ValueError
        ``context < 2``, ``batch_size < 1``, fewer tokens than one window.
    """
    checks.whole("context", context, 2)
    checks.whole("batch_size", batch_size, 1)
    if isinstance(tokens, Tensor) and tokens.dim() == 1:
        tokens = tokens[None]
    rows = token_rows("tokens", tokens, context)
    rows = rows[:, : rows.shape[1] // context * context].reshape(-1, context)
    total = 0.0
    with evaluating(model):
        for ids in rows.split(batch_size):
            logits = logits_of(model, ids)[:, :-1]
            wide = torch.promote_types(logits.dtype, torch.float32)
            total += float(
                F.cross_entropy(logits.flatten(0, 1).to(wide), ids[:, 1:].flatten(), reduction="sum")
            )
    return math.exp(total / (len(rows) * (context - 1)))


def distill(
    student: nn.Module,
    teacher: nn.Module,
    tokens: Tensor,
    *,
    steps: int,
    lr: float,
    batch_size: int,
    generator: torch.Generator | None = None,
    reverse: bool = False,
) -> list[float]:
    """Train what can be trained in a quantised model towards the original's next-token distributions.

    Parameters
    ----------
    student : nn.Module
        Trained in place: its parameters that require gradients (`quantize_model` leaves codebooks,
        scales and everything not quantised so).
    teacher : nn.Module
        Left as it is.
    tokens : Tensor, shape (sequences, length), integer
    steps : int
    lr : float
        Of Adam, betas (0.9, 0.95), constant.
    batch_size : int
        Sequences a step, drawn without replacement within a pass.
    generator : torch.Generator, optional
    reverse : bool, default False
        Minimise KL(student, teacher), as the paper's appendix A writes it, instead of the usual
        KL(teacher, student).

    Returns
    -------
    list of float, length `steps`
        The divergence before each step, nats a token.

    Raises
    ------
    ValueError
        ``steps`` or ``batch_size`` below 1, ``lr <= 0``, nothing to train.
    FloatingPointError
        The divergence is not finite.

    Notes
    -----
    Source: eq-aqlm-distill; the paper's section 4.2 and appendix A.
    """
    rows = token_rows("tokens", tokens)
    checks.whole("steps", steps, 1)
    checks.whole("batch_size", batch_size, 1)
    checks.positive("lr", lr)
    adam = torch.optim.Adam(trainable(student), lr=lr, betas=(0.9, 0.95))
    losses = []
    for pick in batches(len(rows), batch_size, steps, generator):
        ids = rows[pick]
        with torch.no_grad():
            target = F.log_softmax(logits_of(teacher, ids), -1)
        ours = F.log_softmax(logits_of(student, ids), -1)
        first, second = (ours, target) if reverse else (target, ours)
        loss = (first.exp() * (first - second)).sum(-1).mean()
        descend(adam, loss, losses)
    return losses


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that require gradients; at least one."""
    found = [p for p in module.parameters() if p.requires_grad]
    if not found:
        raise ValueError("nothing to train: no parameter of the module requires a gradient")
    return found


def batches(count: int, size: int, steps: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Indices of `steps` batches, without replacement within a pass; a rest smaller than a batch is skipped."""
    size, order, generator = min(size, count), torch.empty(0, dtype=torch.int64), stream(generator)
    for _ in range(steps):
        if len(order) < size:
            order = permutation(count, generator)
        yield order[:size]
        order = order[size:]


def descend(adam: torch.optim.Optimizer, loss: Tensor, losses: list[float]) -> None:
    """Append the loss and take a step."""
    losses.append(float(loss.detach()))
    if not math.isfinite(losses[-1]):
        raise FloatingPointError(f"the loss is {losses[-1]} at step {len(losses) - 1}; lower lr")
    adam.zero_grad()
    loss.backward()
    adam.step()
