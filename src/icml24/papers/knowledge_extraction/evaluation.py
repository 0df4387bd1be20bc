r"""What a model knows: by continuing a biography, and by answering a question.

Answers are judged by greedy decoding and exact match. For a greedy decoder that is the same as
asking whether every token of the answer is the likeliest one *given the right tokens before it*,
so one forward pass replaces the decoding.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from icml24.common.gpt import RotaryGPT
from icml24.papers.knowledge_extraction.corpora import Corpus
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES
from icml24.papers.knowledge_extraction.tokens import WordTokenizer

__all__ = ["evaluate_bio", "evaluate_qa", "exact_match", "first_token_accuracy", "right_answers"]

CHUNK = 256  # sequences a forward pass; bounds memory, changes no result


def first_token_accuracy(logits: Tensor, targets: Tensor, positions: Tensor) -> float:
    """Share of rows whose likeliest next token, at the given place, is the first token of the value.

    Parameters
    ----------
    logits : Tensor, shape (B, T, V)
    targets : Tensor, shape (B,), int
        First token of each value.
    positions : Tensor, shape (B,), int
        Index of the token just before it, in 0 .. T - 1.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ValueError
        Shapes that do not fit, no rows, or logits that are NaN.
    IndexError
        A position outside the sequence.
    """
    targets, positions = torch.as_tensor(targets), torch.as_tensor(positions)
    if logits.dim() != 3 or targets.shape != logits.shape[:1] or positions.shape != logits.shape[:1]:
        raise ValueError(
            f"expected logits (B, T, V), targets (B,), positions (B,); got {tuple(logits.shape)}, "
            f"{tuple(targets.shape)}, {tuple(positions.shape)}"
        )
    if len(targets) == 0:
        raise ValueError("no rows: an accuracy needs at least one")
    if bool(((positions < 0) | (positions >= logits.shape[1])).any()):
        raise IndexError(f"positions must lie in 0..{logits.shape[1] - 1}; got {positions.tolist()}")
    chosen = logits[torch.arange(len(targets)), positions.long()]
    if bool(chosen.isnan().any()):
        raise ValueError("logits hold NaN at the positions asked for")
    return (chosen.argmax(-1) == targets).double().mean().item()


def exact_match(predicted: Tensor, target: Tensor, lengths: Tensor) -> float:
    """Share of rows that agree in their first ``lengths`` ids.

    Parameters
    ----------
    predicted, target : Tensor, shape (B, T), int
    lengths : Tensor, shape (B,), int
        From 1 to T; what follows in a row is ignored.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ValueError
        Shapes that do not fit, no rows, or a length outside 1 .. T.
    """
    predicted, target, lengths = (torch.as_tensor(x) for x in (predicted, target, lengths))
    if predicted.dim() != 2 or target.shape != predicted.shape or lengths.shape != predicted.shape[:1]:
        raise ValueError(
            f"expected predicted and target (B, T), lengths (B,); got {tuple(predicted.shape)}, "
            f"{tuple(target.shape)}, {tuple(lengths.shape)}"
        )
    if len(lengths) == 0:
        raise ValueError("no rows: an accuracy needs at least one")
    if bool(((lengths < 1) | (lengths > predicted.shape[1])).any()):
        raise ValueError(f"lengths must lie in 1..{predicted.shape[1]}; got {lengths.tolist()}")
    ignored = torch.arange(predicted.shape[1]) >= lengths[:, None]
    return ((predicted == target) | ignored).all(1).double().mean().item()


@torch.no_grad()
def evaluate_qa(
    model: RotaryGPT, corpus: Corpus, split: Literal["train", "test"]
) -> dict[str, dict[str, float]]:
    """Accuracy of greedy answers about the people of a split.

    Parameters
    ----------
    model : RotaryGPT
    corpus : Corpus
    split : {"train", "test"}

    Returns
    -------
    dict
        ``{"first": {attribute: accuracy}, "exact": {attribute: accuracy}}``: first token of the
        value, and the whole value with the end mark.

    Raises
    ------
    ValueError
        Unknown or empty split.
    """
    first, exact = right_answers(model, corpus, split)
    return {
        name: dict(zip(ATTRIBUTES, right.double().mean(0).tolist(), strict=True))
        for name, right in (("first", first), ("exact", exact))
    }


@torch.no_grad()
def right_answers(model: RotaryGPT, corpus: Corpus, split: str) -> tuple[Tensor, Tensor]:
    """Which answers are right, person by person: first token and whole value, each (people, 6) bool."""
    rows, answer = corpus.qa
    people = torch.tensor(corpus.split(split))
    asked = (people[:, None] * len(ATTRIBUTES) + torch.arange(len(ATTRIBUTES))).flatten()
    predicted, target, lengths = _answers(model, rows[asked], answer[asked])
    matches = (predicted == target) | (torch.arange(target.shape[1]) >= lengths[:, None])
    return matches[:, 0].view(len(people), -1), matches.all(1).view(len(people), -1)


@torch.no_grad()
def evaluate_bio(model: RotaryGPT, corpus: Corpus, split: Literal["train", "test"]) -> dict[str, float]:
    """First-token accuracy of every attribute inside the *training* text of a split's people.

    The biography is each person's first one: a measure of memory, not of generalisation.

    Returns
    -------
    dict of attribute to float in [0, 1]

    Raises
    ------
    ValueError
        Unknown or empty split.
    """
    people = corpus.split(split)
    rows, first, _ = corpus.bios
    ids = rows[first[torch.tensor(people)]]
    where = torch.tensor([[corpus.positions[i][0][a] for a in ATTRIBUTES] for i in people])
    guesses = []
    for part, places in zip(ids.split(CHUNK), where.split(CHUNK), strict=True):
        states = model.hidden_states(part)[-1]
        guesses.append(model.unembed(states[torch.arange(len(part))[:, None], places]).argmax(-1))
    right = torch.cat(guesses) == ids.gather(1, where + 1)
    return dict(zip(ATTRIBUTES, right.double().mean(0).tolist(), strict=True))


def _answers(model: RotaryGPT, rows: Tensor, answer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Likeliest tokens over the answer given the right ones before; the right ones; their number."""
    lengths = (rows != WordTokenizer.pad_id).sum(1) - answer
    width = int(lengths.max())
    places = answer[:, None] + torch.arange(width)
    target = torch.cat((rows, rows.new_zeros(len(rows), width)), 1).gather(1, places)
    guesses = []
    for part, spots in zip(rows.split(CHUNK), places.split(CHUNK), strict=True):
        states = model.hidden_states(part)[-1]
        spots = (spots - 1).clamp_max(part.shape[1] - 1)
        guesses.append(model.unembed(states[torch.arange(len(part))[:, None], spots]).argmax(-1))
    return torch.cat(guesses), target, lengths
