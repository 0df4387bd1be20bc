r"""Pretraining on biographies, mixed training, and finetuning on questions.

One biography a row, padded on the right: positions are relative and attention is causal, so
this equals packed windows with a mask between documents, and is shorter. Targets that are
padding never reach the loss (or the output matrix).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common.gpt import RotaryGPT
from icml24.common.random import generator
from icml24.common.schedules import warmup_decay
from icml24.papers.knowledge_extraction.adapters import apply_lora
from icml24.papers.knowledge_extraction.corpora import Corpus
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES
from icml24.papers.knowledge_extraction.tokens import WordTokenizer

__all__ = ["TrainConfig", "finetune_qa", "next_token_loss", "pretrain"]

#: Called after each optimiser step with the number of steps taken.
Callback = Callable[[int], object]


@dataclass(frozen=True)
class TrainConfig:
    """Optimiser and length of a run; the defaults are those of pretraining.

    Parameters
    ----------
    steps, batch_size : int
        Optimiser steps, and sequences a step.
    lr, weight_decay, betas, eps : float
        AdamW; the decay acts on every parameter.
    warmup : int
        Steps of linear warm-up.
    clip : float
        Largest norm of the gradient.
    seed : int
        Names the stream of batches.

    Raises
    ------
    ValueError
        A count below 1, or a rate, decay or clip that is negative or not finite.
    """

    steps: int = 500
    batch_size: int = 25
    lr: float = 4e-3
    weight_decay: float = 0.1
    warmup: int = 50
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1 or self.warmup < 0:
            raise ValueError(
                f"expected steps >= 1, batch_size >= 1, warmup >= 0; "
                f"got {self.steps}, {self.batch_size}, {self.warmup}"
            )
        for name in ("lr", "weight_decay", "eps", "clip"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative; got {value}")


def next_token_loss(model: RotaryGPT, ids: Tensor, keep: Tensor | None = None) -> Tensor:
    r"""Mean cross entropy of the next token.

    .. math:: L = -\frac{1}{|I|} \sum_{(b,t) \in I} \log p(\mathrm{ids}_{b,t+1} \mid \mathrm{ids}_{b,\le t})

    Parameters
    ----------
    model : RotaryGPT
    ids : Tensor, shape (B, T), int64
        Padded on the right.
    keep : Tensor, shape (B, T - 1), bool, optional
        Targets ``ids[:, 1:]`` that count, the set `I`; default all that are not padding.

    Returns
    -------
    Tensor, scalar, in nats a token
    """
    targets = ids[:, 1:]
    counted = targets != WordTokenizer.pad_id if keep is None else keep
    states = model.hidden_states(ids[:, :-1])[-1]
    return F.cross_entropy(model.unembed(states[counted]), targets[counted])


def pretrain(
    model: RotaryGPT,
    corpus: Corpus,
    config: TrainConfig,
    *,
    qa_ratio: float = 0.0,
    callback: Callback | None = None,
) -> dict[str, list[float]]:
    """Train on the biographies of *all* people, in place.

    Parameters
    ----------
    model : RotaryGPT
    corpus : Corpus
    config : TrainConfig
        Cosine decay to a tenth of the rate.
    qa_ratio : float, default 0.0
        Mixed training: so many questions of the training split for each biography of a batch,
        drawn independently of it; the two mean losses are added.
    callback : callable, optional
        Called with the number of steps taken after each of them.

    Returns
    -------
    dict
        ``loss`` (biographies), ``qa_loss`` (empty without questions), one value a step, nats a token.

    Raises
    ------
    ValueError
        Negative or non-finite `qa_ratio`, or a training split without people when it is positive.
    RuntimeError
        The loss is not finite; the message names the step.

    Notes
    -----
    An epoch shows every person once, in a new order, by one biography drawn uniformly among his
    or hers. So variants of equal steps see every person equally often.
    """
    if not (math.isfinite(qa_ratio) and qa_ratio >= 0):
        raise ValueError(f"qa_ratio counts questions a biography: finite and not negative; got {qa_ratio}")
    rows, first, counts = corpus.bios
    draw = generator(config.seed, "biographies")
    people = _epochs(len(corpus.people), config.batch_size, draw)
    asked = None
    if qa_ratio > 0:
        size = max(1, round(qa_ratio * config.batch_size))
        asked = _questions(corpus, size, generator(config.seed, "questions"))
    history: dict[str, list[float]] = {"loss": [], "qa_loss": []}

    def losses() -> Iterator[tuple[str, Tensor]]:
        chosen = next(people)
        which = (torch.rand(len(chosen), generator=draw, dtype=torch.float64) * counts[chosen]).long()
        yield "loss", next_token_loss(model, _trimmed(rows[first[chosen] + which]))
        if asked is not None:
            yield "qa_loss", next_token_loss(model, next(asked)[0])

    _optimise(model.parameters(), config, losses, history, kind="cosine", floor=0.1, callback=callback)
    return history


def finetune_qa(
    model: RotaryGPT,
    corpus: Corpus,
    config: TrainConfig,
    *,
    lora: tuple[int, int] | None = None,
    answer_only: bool = True,
    callback: Callback | None = None,
) -> dict[str, list[float]]:
    """Train on the questions of the training split only, in place.

    Parameters
    ----------
    model : RotaryGPT
        Usually pretrained; give a copy to keep the original.
    corpus : Corpus
    config : TrainConfig
        Linear decay to zero.
    lora : (int, int), optional
        Ranks of the updates of query and value projections and of the embedding (`apply_lora`);
        by default every parameter is trained.
    answer_only : bool, default True
        Count the tokens of the value and the end mark only; otherwise every token.
    callback : callable, optional
        Called with the number of steps taken after each of them.

    Returns
    -------
    dict
        ``loss``, one value a step, nats a counted token.

    Raises
    ------
    ValueError
        A training split without people, or ranks that `apply_lora` refuses.
    RuntimeError
        The loss is not finite; the message names the step.
    """
    asked = _questions(corpus, config.batch_size, generator(config.seed, "questions"))
    parameters: Iterable[nn.Parameter] = model.parameters()
    if lora is not None:
        qv_rank, embedding_rank = lora
        parameters = apply_lora(
            model,
            qv_rank=qv_rank,
            embedding_rank=embedding_rank,
            generator=generator(config.seed, "adapters"),
        )
    history: dict[str, list[float]] = {"loss": []}

    def losses() -> Iterator[tuple[str, Tensor]]:
        ids, answer = next(asked)
        keep = None
        if answer_only:
            places = torch.arange(1, ids.shape[1])
            keep = (places >= answer[:, None]) & (ids[:, 1:] != WordTokenizer.pad_id)
        yield "loss", next_token_loss(model, ids, keep)

    _optimise(parameters, config, losses, history, kind="linear", floor=0.0, callback=callback)
    return history


def _optimise(
    parameters: Iterable[nn.Parameter],
    config: TrainConfig,
    losses: Callable[[], Iterator[tuple[str, Tensor]]],
    history: dict[str, list[float]],
    *,
    kind: str,
    floor: float,
    callback: Callback | None,
) -> None:
    """AdamW on the sum of the losses; each is recorded under its name."""
    trained = list(parameters)
    optimiser = torch.optim.AdamW(
        trained,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    for step in range(config.steps):
        rate = config.lr * warmup_decay(step, config.steps, warmup=config.warmup, floor=floor, kind=kind)
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        for name, loss in losses():
            value = loss.item()
            if not math.isfinite(value):
                raise RuntimeError(f"{name} is {value} at step {step}; lower the rate (lr = {config.lr})")
            loss.backward()  # one after the other: gradients add, graphs do not
            history[name].append(value)
        nn.utils.clip_grad_norm_(trained, config.clip)
        optimiser.step()
        if callback is not None:
            callback(step + 1)


def _questions(corpus: Corpus, size: int, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches (ids, place of the answer) of the training split's questions, reshuffled every epoch."""
    rows, answer = corpus.qa
    people = torch.tensor(corpus.split("train"))
    asked = (people[:, None] * len(ATTRIBUTES) + torch.arange(len(ATTRIBUTES))).flatten()
    for chosen in _epochs(len(asked), size, draw):
        batch = asked[chosen]
        yield _trimmed(rows[batch]), answer[batch]


def _epochs(n: int, size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Batches of `size` indices below `n`, from one permutation after another without a gap."""
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < size:
            waiting = torch.cat((waiting, torch.randperm(n, generator=draw)))
        yield waiting[:size]
        waiting = waiting[size:]


def _trimmed(rows: Tensor) -> Tensor:
    """Rows cut to the longest of them."""
    return rows[:, : int((rows != WordTokenizer.pad_id).sum(1).max())]
