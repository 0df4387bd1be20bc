"""What is read and asked: snippets, facts, tables."""

from __future__ import annotations

import pytest
import torch

from icml24 import datasets
from icml24.papers.patchscopes import data
from icml24.papers.patchscopes.facts import COUNTRIES, DISHES, ENTITIES


def test_snippets_of_the_built_in_text():
    train = data.snippets(60, 3, "train", tables=False)
    other = data.snippets(60, 3, "validation", tables=False)
    for text in train + other:
        assert 20 <= len(text) <= 120
        assert text == text.strip()
        assert "\n" not in text
        assert "[" not in text
    assert train == data.snippets(60, 3, "train", tables=False)
    assert train[:10] != data.snippets(10, 4, "train", tables=False)
    text = data.kjv_text()
    half = len(text) // 2
    assert all(text.find(piece) < half for piece in train)
    assert all(text.rfind(piece) > half - 200 for piece in other)


def test_snippets_reject():
    with pytest.raises(ValueError, match="purpose"):
        data.snippets(3, 0, "test", tables=False)
    with pytest.raises(ValueError, match="count"):
        data.snippets(0, 0, "train", tables=False)


def test_positions_lie_inside():
    sources = [torch.arange(n) for n in (1, 2, 3, 30)] * 20
    positions = data.random_positions(sources, 0)
    assert all(0 <= p < len(ids) for p, ids in zip(positions, sources, strict=True))
    assert all(p >= 2 for p, ids in zip(positions, sources, strict=True) if len(ids) > 2)


def test_capitals_of_the_built_in_list():
    records = data.capitals(tables=False)
    assert len(records) == len(COUNTRIES) == len({r["subject"] for r in records})
    for record in records:
        assert record["prompt_source"].endswith(record["subject"])
        assert record["target_baseline"] == f"The capital city of {record['subject']}"
        assert record["prompt_target"].endswith(" x")


def test_entities_and_chains():
    assert len(ENTITIES) == len({e.name for e in ENTITIES}) == 40
    for entity in ENTITIES:
        assert all(word == word.casefold() and " " not in word for word in entity.category)
        assert entity.name.split()[-1].casefold() not in entity.category
    items = data.two_hop_items()
    assert len(items) == len(COUNTRIES) + 2 * len(DISHES)
    assert all(item.second.endswith(" x") and item.answer not in item.composed for item in items)
    assert {country for _, country in DISHES} <= {country for country, _, _ in COUNTRIES}


def test_unknown_table():
    with pytest.raises(ValueError, match="unknown table"):
        data.relation_rows("country_anthem")


needs_tables = pytest.mark.skipif(
    not datasets.available("patchscopes"), reason="needs the authors' tables: set ICML24_DATA"
)


@needs_tables
def test_tables():
    assert len(data._table_prompts()) > 1900
    records = data.capitals(tables=True)
    assert len(records) == 24
    assert all("\\u" not in record["object"] for record in records)
    train = set(data.snippets(600, 0, "train", tables=True))
    assert not train & set(data.snippets(200, 0, "validation", tables=True))


def test_one_row_a_subject():
    rows = (
        {"subject": "a", "prompt_source": "b only"},
        {"subject": "a", "prompt_source": "the a\nbroken"},
        {"subject": "a", "prompt_source": "the a here"},
        {"subject": "b", "prompt_source": "the b"},
        {"subject": "a", "prompt_source": "a again"},
    )
    assert data.one_per_subject(rows) == [rows[2], rows[3]]
    assert data.one_per_subject(rows, 1) == [rows[2]]
