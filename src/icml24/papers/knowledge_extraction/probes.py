r"""Two probes of a frozen model: is a fact readable before its place in a text, and from the bare name?

A probe is a linear classifier on the final hidden state. Because the model has never seen the
probe's task, the *input* embedding may move a little, by a low-rank update; the output matrix and
every other weight stay. Features are standardised with the training people's statistics at the
start (whether the paper normalises them is not known to us).
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.gpt import RotaryGPT
from icml24.papers.knowledge_extraction.adapters import LowRankEmbedding
from icml24.papers.knowledge_extraction.corpora import Corpus, padded
from icml24.papers.knowledge_extraction.people import MONTHS, Person
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES

__all__ = [
    "early_accuracy",
    "p_probe",
    "p_probe_people",
    "probe_classes",
    "probe_size",
    "q_probe",
    "still_to_come",
]

FACTOR_LR, CLASSIFIER_LR, CLASSIFIER_DECAY = 3e-3, 3e-2, 0.1


def probe_size(vocab: int, width: int, classes: int, rank: int) -> int:
    r"""Trainable parameters of one probe, :math:`r(V + d) + C(d + 1)`: the depth does not enter."""
    return rank * (vocab + width) + classes * (width + 1)


def probe_classes(corpus: Corpus) -> tuple[Tensor, list[int]]:
    """Class of every person for every attribute, (N, 6) int64, and the number of classes of each.

    The class is the value; for the birth date it is the month.
    """
    columns, sizes = [], []
    for attribute in ATTRIBUTES:
        labels = [_label(person, attribute) for person in corpus.people]
        names = list(MONTHS) if attribute == "birth_date" else sorted(set(labels))
        columns.append(torch.tensor([names.index(label) for label in labels]))
        sizes.append(len(names))
    return torch.stack(columns, 1), sizes


def p_probe(
    model: RotaryGPT,
    corpus: Corpus,
    *,
    rank: int = 2,
    steps: int = 200,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Read each attribute just before each of the six values, in each person's first biography.

    Parameters
    ----------
    model : RotaryGPT
        Left as it is.
    corpus : Corpus
    rank : int, default 2
        Of the update of the input embedding; 0 for a plain linear probe.
    steps : int, default 200
        Full-batch AdamW steps.
    generator : torch.Generator, optional
        Draws the update's second factor.

    Returns
    -------
    Tensor, shape (6, 6), float64
        Accuracy on the test split: row `k`, the place before the value of the `k`-th sentence
        *as written*; column, the attribute. Training uses the training split alone.

    Raises
    ------
    ValueError
        Empty split, negative rank, fewer than one step.

    Notes
    -----
    One embedding update is shared by the 36 classifiers, whose losses are added.
    """
    return p_probe_people(model, corpus, rank=rank, steps=steps, generator=generator).double().mean(0)


def p_probe_people(
    model: RotaryGPT,
    corpus: Corpus,
    *,
    rank: int = 2,
    steps: int = 200,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Which readings of `p_probe` are right, person by person: (held-out people, 6 places, 6), bool."""
    ids = padded([of_person[0] for of_person in corpus.bio_ids])
    where = torch.tensor([sorted(of_person[0].values()) for of_person in corpus.positions])
    return _probe(model, corpus, ids, where, rank, steps, generator)


def q_probe(
    model: RotaryGPT,
    corpus: Corpus,
    *,
    rank: int = 16,
    steps: int = 200,
    generator: torch.Generator | None = None,
) -> dict[str, float]:
    """Read each attribute from ``EOS first middle last EOS``, at the last token.

    Parameters
    ----------
    model, corpus, rank, steps, generator
        As for `p_probe`.

    Returns
    -------
    dict of attribute to float
        Accuracy on the test split.

    Raises
    ------
    ValueError
        As `p_probe`.
    """
    end = corpus.tokenizer.eos_id
    named = [[end, *corpus.tokenizer.encode(person.full_name), end] for person in corpus.people]
    where = torch.tensor([[len(ids) - 1] for ids in named])
    right = _probe(model, corpus, padded(named), where, rank, steps, generator)
    return dict(zip(ATTRIBUTES, right[:, 0].double().mean(0).tolist(), strict=True))


def still_to_come(corpus: Corpus) -> Tensor:
    """Whether an attribute's sentence lies *after* the place's, (held-out people, 6 places, 6), bool.

    At the place just before its own value an attribute is about to be written, and any model that
    recites knows it; later it has been written. Only the rest is reading ahead.
    """
    orders = [corpus.orders[person][0] for person in corpus.split("test")]
    sentence = torch.tensor([[order.index(attribute) for attribute in ATTRIBUTES] for order in orders])
    return sentence[:, None, :] > torch.arange(len(ATTRIBUTES))[None, :, None]


def early_accuracy(right: Tensor, corpus: Corpus) -> tuple[Tensor, float]:
    """Accuracy of `p_probe_people` where the value is still to come.

    Returns
    -------
    (Tensor (6, 6), float)
        By place and attribute, NaN where it is still to come for nobody; and over all cases.
    """
    early = still_to_come(corpus)
    hits = (right & early).sum(0).double()
    return hits / early.sum(0), float(hits.sum() / early.sum())


def _probe(
    model: RotaryGPT,
    corpus: Corpus,
    ids: Tensor,
    where: Tensor,
    rank: int,
    steps: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Which readings are right: (people of the test split, places, 6), bool."""
    if rank < 0 or steps < 1:
        raise ValueError(f"expected rank >= 0 and steps >= 1; got {rank} and {steps}")
    train, test = (torch.tensor(corpus.split(name)) for name in ("train", "test"))
    frozen = copy.deepcopy(model).requires_grad_(False)
    update = LowRankEmbedding(frozen.wte, rank, generator=generator) if rank else None
    labels, sizes = probe_classes(corpus)

    def features(people: Tensor) -> Tensor:
        kept, places = ids[people], where[people]
        kept = kept[:, : int(places.max()) + 1]  # what comes later has no say
        embeds = None if update is None else update(kept)
        states = frozen.hidden_states(kept, inputs_embeds=embeds)[-1]
        return frozen.ln_f(states[torch.arange(len(people))[:, None], places])

    with torch.no_grad():
        start = features(train)
        mean, scale = start.mean(0), start.std(0, correction=0).clamp_min(1e-6)
    fixed = None if update else (start - mean) / scale
    like = {"dtype": mean.dtype, "device": mean.device}
    weight = torch.zeros(*mean.shape, sum(sizes), **like, requires_grad=True)  # (places, d, classes of all)
    bias = torch.zeros(len(mean), sum(sizes), **like, requires_grad=True)
    optimiser = torch.optim.AdamW(
        [
            {"params": [weight, bias], "lr": CLASSIFIER_LR, "weight_decay": CLASSIFIER_DECAY},
            {"params": [update.U, update.V] if update else [], "lr": FACTOR_LR, "weight_decay": 0.0},
        ]
    )

    def scores(x: Tensor) -> tuple[Tensor, ...]:
        return torch.einsum("npd,pdc->npc", x, weight).add(bias).split(sizes, dim=-1)

    for _ in range(steps):
        x = (features(train) - mean) / scale if fixed is None else fixed
        losses = [
            F.cross_entropy(score.flatten(0, 1), labels[train, column].repeat_interleave(len(mean)))
            for column, score in enumerate(scores(x))
        ]
        optimiser.zero_grad()
        (len(mean) * sum(losses)).backward()
        optimiser.step()
    with torch.no_grad():
        found = [score.argmax(-1) for score in scores((features(test) - mean) / scale)]
    right = [guess == labels[test, column, None] for column, guess in enumerate(found)]
    return torch.stack(right, -1)


def _label(person: Person, attribute: str) -> str:
    return person.birth_month if attribute == "birth_date" else person.value(attribute)
