r"""A corpus: people, their biographies under one kind of augmentation, and their questions.

Three named streams keep apart what is drawn: people, texts, and (in training) batches. Two
corpora of one seed hold the same people, so variants differ in their texts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from icml24.common.random import generator
from icml24.papers.knowledge_extraction.biographies import first_value_positions, render_biography
from icml24.papers.knowledge_extraction.data import load_pools
from icml24.papers.knowledge_extraction.people import Person, sample_people
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES, QUESTIONS, TEMPLATES
from icml24.papers.knowledge_extraction.tokens import WordTokenizer

__all__ = ["SPLITS", "BioConfig", "Corpus", "Question", "build_corpus"]

SPLITS = ("train", "test")


@dataclass(frozen=True)
class BioConfig:
    """What is written about whom.

    Parameters
    ----------
    n_people : int, default 200
    n_values, n_names : int
        Entries kept of every value pool and of every name pool.
    multiplicity : int, default 1
        Biographies a person, each with its own forms.
    permute : bool, default False
        Shuffle the sentences of each biography.
    fullname : bool, default False
        Name the person in every sentence.
    atomic_values : bool, default True
        Values are single tokens (the birth date stays four).
    celebrity_fraction : float, default 0.0
        If positive, the three augmentations apply to this share of the people (the first ones,
        rounded), who alone are asked about in finetuning; the others have one plain biography
        and are the test split. At 0 they apply to everybody, and the first half is the training
        split.
    seed : int, default 0
        Names the streams of people and texts.

    Raises
    ------
    ValueError
        ``n_people`` or ``multiplicity`` below 1, ``celebrity_fraction`` outside [0, 1].
    """

    n_people: int = 200
    n_values: int = 40
    n_names: int = 100
    multiplicity: int = 1
    permute: bool = False
    fullname: bool = False
    atomic_values: bool = True
    celebrity_fraction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_people < 1:
            raise ValueError(f"a corpus needs at least one person; got n_people = {self.n_people}")
        if self.multiplicity < 1:
            raise ValueError(f"multiplicity counts biographies a person: at least 1; got {self.multiplicity}")
        if not 0.0 <= self.celebrity_fraction <= 1.0:
            raise ValueError(f"celebrity_fraction is a share in [0, 1]; got {self.celebrity_fraction}")


@dataclass(frozen=True)
class Question:
    """A question and its answer as one sequence ``EOS question Answer : value EOS``.

    Attributes
    ----------
    person : int
        Place in the corpus.
    attribute : str
    text : str
        Without the end marks.
    ids : tuple of int
    answer : int
        Index in `ids` of the first token of the value; the answer is ``ids[answer:]``, the
        closing end mark included.
    """

    person: int
    attribute: str
    text: str
    ids: tuple[int, ...]
    answer: int


@dataclass(frozen=True)
class Corpus:
    """Everything a model can be trained on or asked about.

    Attributes
    ----------
    config : BioConfig
    people : list of Person, length N
    texts : list of list of str
        ``texts[i][m]``, biography `m` of person `i`.
    orders : list of list of tuple of str
        Attributes of that biography in the order of its sentences.
    tokenizer : WordTokenizer
        Knows every name, value, form and question, used or not: variants share their ids.
    bio_ids : list of list of list of int
        ``[EOS] + encode(text) + [EOS]``.
    positions : list of list of dict
        As `first_value_positions`.
    questions : list of dict of attribute to Question
    """

    config: BioConfig
    people: list[Person]
    texts: list[list[str]]
    orders: list[list[tuple[str, ...]]]
    tokenizer: WordTokenizer
    bio_ids: list[list[list[int]]]
    positions: list[list[dict[str, int]]]
    questions: list[dict[str, Question]]

    @property
    def celebrities(self) -> int:
        """Number of augmented people when only some are; 0 when everybody is treated alike."""
        return round(self.config.celebrity_fraction * len(self.people))

    def split(self, name: str) -> list[int]:
        """People whose questions are for finetuning ("train") or held out ("test").

        Raises
        ------
        ValueError
            Another name, or a split without people.
        """
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}; expected one of {list(SPLITS)}")
        first = self.celebrities if self.config.celebrity_fraction > 0 else len(self.people) // 2
        chosen = range(first) if name == "train" else range(first, len(self.people))
        if not chosen:
            raise ValueError(
                f"split {name!r} is empty: {len(self.people)} people, the first {first} of them in 'train'"
            )
        return list(chosen)

    @cached_property
    def bios(self) -> tuple[Tensor, Tensor, Tensor]:
        """All biographies padded, (R, length); first row and number of rows of each person, (N,)."""
        counts = torch.tensor([len(of_person) for of_person in self.bio_ids])
        rows = padded([ids for of_person in self.bio_ids for ids in of_person])
        return rows, counts.cumsum(0) - counts, counts

    @cached_property
    def qa(self) -> tuple[Tensor, Tensor]:
        """All questions padded, (6 N, length), person by person; index of each first value token, (6 N,)."""
        asked = [of_person[attribute] for of_person in self.questions for attribute in ATTRIBUTES]
        return padded([q.ids for q in asked]), torch.tensor([q.answer for q in asked])


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Id sequences as rows of one int64 tensor, filled with the padding id on the right."""
    length = max(len(ids) for ids in sequences)
    return torch.tensor([[*ids, *[WordTokenizer.pad_id] * (length - len(ids))] for ids in sequences])


def build_corpus(config: BioConfig, *, people: Sequence[Person] | None = None) -> Corpus:
    """Draw people (unless given), write their biographies and questions, encode everything.

    Parameters
    ----------
    config : BioConfig
    people : sequence of Person, optional
        Used as they are, in this order; `config` then decides on texts only.

    Returns
    -------
    Corpus

    Raises
    ------
    ValueError
        More people than names, or an empty `people`.
    """
    if people is None:
        pools = load_pools(
            n_values=config.n_values, n_names=config.n_names, atomic_values=config.atomic_values
        )
        people = sample_people(config.n_people, pools, generator=generator(config.seed, "people"))
    people = list(people)
    if not people:
        raise ValueError("a corpus needs at least one person; got an empty list")
    tokenizer = _vocabulary(people)
    draw = generator(config.seed, "texts")
    famous = round(config.celebrity_fraction * len(people)) if config.celebrity_fraction > 0 else len(people)
    texts, orders, bio_ids, positions = [], [], [], []
    for place, person in enumerate(people):
        augmented = place < famous
        fullname = config.fullname and augmented
        written, ordered, where = [], [], []
        for _ in range(config.multiplicity if augmented else 1):
            order, chosen = _plan(config.permute and augmented, draw)
            written.append(render_biography(person, order, chosen, TEMPLATES, fullname=fullname))
            where.append(
                first_value_positions(person, order, chosen, TEMPLATES, tokenizer, fullname=fullname)
            )
            ordered.append(order)
        texts.append(written)
        orders.append(ordered)
        positions.append(where)
        bio_ids.append([[tokenizer.eos_id, *tokenizer.encode(text), tokenizer.eos_id] for text in written])
    questions = [_questions(place, person, tokenizer) for place, person in enumerate(people)]
    return Corpus(config, people, texts, orders, tokenizer, bio_ids, positions, questions)


def _plan(permute: bool, draw: torch.Generator) -> tuple[tuple[str, ...], list[int]]:
    """Forms first, then the order; a form belongs to its attribute and moves with it."""
    chosen = {a: int(torch.randint(len(TEMPLATES[a]), (), generator=draw)) for a in ATTRIBUTES}
    places = torch.randperm(len(ATTRIBUTES), generator=draw).tolist() if permute else range(len(ATTRIBUTES))
    order = tuple(ATTRIBUTES[i] for i in places)
    return order, [chosen[a] for a in order]


def _vocabulary(people: Sequence[Person]) -> WordTokenizer:
    forms = [form.format(s="", v="") for a in ATTRIBUTES for form in TEMPLATES[a]]
    asked = [f"{QUESTIONS[a].format(s='')} Answer:" for a in ATTRIBUTES]
    names = [f"{p.full_name} {p.pronoun}" for p in people]
    values = [p.value(a) for p in people for a in ATTRIBUTES]
    return WordTokenizer.from_texts([*forms, *asked, *names, *values])


def _questions(place: int, person: Person, tokenizer: WordTokenizer) -> dict[str, Question]:
    made = {}
    for attribute in ATTRIBUTES:
        prompt = f"{QUESTIONS[attribute].format(s=person.full_name)} Answer:"
        value = person.value(attribute)
        asked, answer = tokenizer.encode(prompt), tokenizer.encode(value)
        ids = (tokenizer.eos_id, *asked, *answer, tokenizer.eos_id)
        made[attribute] = Question(place, attribute, f"{prompt} {value}", ids, 1 + len(asked))
    return made
