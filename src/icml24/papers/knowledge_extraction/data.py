r"""The pools from which names and values are drawn.

================  =======  =====================================================
pool              entries  file of the first author's generator
================  =======  =====================================================
first, middle     400 each ``first_name.txt``, ``middle_name.txt``
last              1,000    ``last_name.txt``
city              200      ``city.txt``
university        300      ``university.txt``
major             100      ``field.txt``
company           263      ``company.txt``, each line ``company; headquarters city``
================  =======  =====================================================

Original pools: ``facebookresearch/PhysicsLM4`` at commit 7580696, Apache-2.0, read from
``ICML24_DATA`` or fetched on request and never part of this book. Without them the pools are
built here, in the same sizes, from the lists of the package Faker: names are Faker's own,
cities, universities and companies are composed from them, majors are the hundred pairs of two
short lists below. Everything is sorted before it is shuffled by a fixed stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache

import torch

from icml24 import datasets
from icml24.common.random import generator
from icml24.papers.knowledge_extraction.people import MONTHS
from icml24.papers.knowledge_extraction.tokens import atomic, split_words

__all__ = ["SIZES", "load_pools", "pools_source"]

SLUG = "knowledge_extraction"
FILES = {
    "first": "first_name.txt",
    "middle": "middle_name.txt",
    "last": "last_name.txt",
    "city": "city.txt",
    "university": "university.txt",
    "major": "field.txt",
    "company": "company.txt",
}

#: Entries of each pool, the same for both sources.
SIZES = {
    "first": 400,
    "middle": 400,
    "last": 1000,
    "city": 200,
    "university": 300,
    "major": 100,
    "company": 263,
}

APPROACHES = (
    "Applied", "Comparative", "Computational", "Experimental", "General",
    "Historical", "Industrial", "Molecular", "Social", "Theoretical",
)  # fmt: skip
SUBJECTS = (
    "Anthropology", "Biology", "Chemistry", "Economics", "Geology",
    "Linguistics", "Mathematics", "Medicine", "Physics", "Psychology",
)  # fmt: skip


def pools_source() -> str:
    """Which pools `load_pools` uses here: ``"original"`` or ``"Faker"``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the look-up imports a progress bar that misses its notebook widgets
        return "original" if datasets.available(SLUG) else "Faker"


def load_pools(
    *, n_values: int | None = None, n_names: int | None = None, atomic_values: bool = False
) -> dict[str, list]:
    """Pools of names and values.

    Parameters
    ----------
    n_values : int, optional
        Keep the first entries of the pools city, university, major and company.
    n_names : int, optional
        The same for the pools first, middle and last. Asking for more than there are keeps all.
    atomic_values : bool, default False
        Join the parts of a value by underscores (`tokens.atomic`), so that nearly every value is
        one token.

    Returns
    -------
    dict
        Lists of str under ``first``, ``middle``, ``last``, ``city``, ``university``, ``major``;
        under ``company`` a list of pairs (company, headquarters city).

    Raises
    ------
    ValueError
        A number below 1.
    ImportError
        Neither the original pools nor Faker are here.
    HashMismatch
        An original file is not the registered one.
    """
    for name, count in (("n_values", n_values), ("n_names", n_names)):
        if count is not None and count < 1:
            raise ValueError(f"{name} keeps the first entries of a pool: at least 1; got {count}")
    pools = _original() if pools_source() == "original" else _from_faker()
    change: Callable[[str], str] = atomic if atomic_values else str
    return {
        **{name: list(pools[name][:n_names]) for name in ("first", "middle", "last")},
        **{name: [change(v) for v in pools[name][:n_values]] for name in ("city", "university", "major")},
        "company": [(change(c), change(city)) for c, city in pools["company"][:n_values]],
    }


def _original() -> dict[str, list]:
    pools: dict[str, list] = {}
    for name, file in FILES.items():
        lines = datasets.locate(SLUG, file).read_text(encoding="utf-8").splitlines()
        pools[name] = [line.strip() for line in lines if line.strip()]
    pools["company"] = [tuple(part.strip() for part in line.split(";")) for line in pools["company"]]
    return pools


@lru_cache(maxsize=1)
def _from_faker() -> dict[str, list]:
    try:
        from faker import Faker
        from faker.providers.person.en_US import Provider as Names
    except ImportError as error:
        raise ImportError(
            "the offline pools are built from the package Faker; run `pip install Faker`"
        ) from error
    fake = Faker("en_US")
    fake.seed_instance(235)
    givens = _one_word(Names.first_names)
    lasts = _one_word(Names.last_names)
    spare = [name for name in givens if name not in lasts]  # a dropped surname is replaced by a given name
    last = _shuffled([*lasts, *spare][: SIZES["last"]], "last")
    city = _distinct(lambda: f"{fake.city()}, {fake.state_abbr(include_territories=False)}", "city")
    towns = [name.partition(",")[0] for name in city]
    made = _shuffled(
        {f"University of {town}" for town in towns}
        | {f"{name} University" for name in lasts[::8]}
        | {f"{name} College" for name in lasts[4::8]},
        "university",
    )
    company = _distinct(fake.company, "company")
    # Squaring a uniform number makes headquarters cluster, as in the original list.
    seats = (torch.rand(len(company), generator=generator(0, SLUG, "seats")) ** 2 * len(city)).long().tolist()
    return {
        "first": _shuffled(givens, "first")[: SIZES["first"]],
        "middle": _shuffled(givens, "middle")[: SIZES["middle"]],
        "last": last,
        "city": city,
        "university": made[: SIZES["university"]],
        "major": _shuffled((f"{a} {s}" for a in APPROACHES for s in SUBJECTS), "major"),
        "company": [(name, city[seat]) for name, seat in zip(company, seats, strict=True)],
    }


def _one_word(names: Iterable[str]) -> list[str]:
    """Distinct one-token names in sorted order; a name that is a month would blur two vocabularies."""
    return sorted({name for name in names if len(split_words(name)) == 1} - set(MONTHS))


def _shuffled(entries: Iterable[str], pool: str) -> list[str]:
    ordered = sorted(set(entries))
    return [
        ordered[i] for i in torch.randperm(len(ordered), generator=generator(0, SLUG, "pools", pool)).tolist()
    ]


def _distinct(draw: Callable[[], str], pool: str) -> list[str]:
    """As many distinct draws as the pool has entries; distinct before any comma, too."""
    entries: dict[str, str] = {}
    while len(entries) < SIZES[pool]:
        entry = draw()
        entries.setdefault(entry if pool == "company" else entry.partition(",")[0], entry)
    return _shuffled(entries.values(), pool)
