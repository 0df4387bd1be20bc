r"""People: a unique name and six attributes, drawn independently and uniformly.

The company's city is the one attribute that is no free draw: it is the headquarters of the
company, so it is a function of another attribute (the paper's section on the data set).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES

__all__ = ["DAYS", "MONTHS", "YEARS", "Person", "sample_people"]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS = range(1, 29)
YEARS = range(1900, 2100)

NAME_POOLS = ("first", "middle", "last")
VALUE_POOLS = ("city", "university", "major", "company")


@dataclass(frozen=True)
class Person:
    """One person of the synthetic population.

    Attributes
    ----------
    index : int
        Place in the population; even indices read *He*, odd ones *She*.
    first, middle, last : str
        The name; unique as a triple.
    birth_month, birth_day, birth_year
        Month by name, day 1-28, year 1900-2099.
    birth_city, university, major, company, company_city : str
    """

    index: int
    first: str
    middle: str
    last: str
    birth_month: str
    birth_day: int
    birth_year: int
    birth_city: str
    university: str
    major: str
    company: str
    company_city: str

    @property
    def full_name(self) -> str:
        """First, middle and last name."""
        return f"{self.first} {self.middle} {self.last}"

    @property
    def pronoun(self) -> str:
        """``He`` for an even index, ``She`` for an odd one."""
        return "He" if self.index % 2 == 0 else "She"

    def value(self, attribute: str) -> str:
        """Text of an attribute, for instance ``October 2, 1996``; `ValueError` for an unknown one."""
        if attribute not in ATTRIBUTES:
            raise ValueError(f"unknown attribute {attribute!r}; expected one of {list(ATTRIBUTES)}")
        if attribute == "birth_date":
            return f"{self.birth_month} {self.birth_day}, {self.birth_year}"
        return getattr(self, attribute)


def sample_people(
    n: int, pools: Mapping[str, Sequence], *, generator: torch.Generator | None = None
) -> list[Person]:
    """Draw `n` people with distinct full names.

    Parameters
    ----------
    n : int
        At least 1.
    pools : mapping
        As `load_pools` returns it: lists of strings under ``first``, ``middle``, ``last``,
        ``city``, ``university``, ``major``, and of pairs (company, city) under ``company``.
    generator : torch.Generator, optional
        The only source of randomness.

    Returns
    -------
    list of Person
        Index `i` at place `i`. A name that is taken is drawn again, all three parts.

    Raises
    ------
    ValueError
        ``n < 1``, an absent or empty pool, or more people than distinct names.
    """
    if n < 1:
        raise ValueError(f"a population has at least one person; got n = {n}")
    missing = [name for name in (*NAME_POOLS, *VALUE_POOLS) if not pools.get(name)]
    if missing:
        raise ValueError(f"pools absent or empty: {missing}; expected a mapping as load_pools gives it")
    distinct = 1
    for name in NAME_POOLS:
        distinct *= len(set(pools[name]))
    if n > distinct:
        raise ValueError(f"{n} people need {n} full names; the pools hold {distinct} distinct ones")

    def pick(pool: Sequence):
        return pool[int(torch.randint(len(pool), (), generator=generator))]

    people: list[Person] = []
    taken: set[tuple[str, ...]] = set()
    while len(people) < n:
        name = tuple(pick(pools[part]) for part in NAME_POOLS)
        if name in taken:
            continue
        taken.add(name)
        birth = pick(MONTHS), pick(DAYS), pick(YEARS)
        city, university, major, (company, headquarters) = (pick(pools[part]) for part in VALUE_POOLS)
        people.append(Person(len(people), *name, *birth, city, university, major, company, headquarters))
    return people
