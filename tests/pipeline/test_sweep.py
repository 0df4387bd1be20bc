"""A chapter over a grid of parameters: the points, the table, and what happens to failing points."""

from __future__ import annotations

import pandas as pd
import pytest
import toybook

from icml24.pipeline import runner, sweep
from icml24.pipeline.errors import BadParameter, BookError, UnknownChapter, UnknownParameter

ALPHA = "book/one/alpha.md"


def test_grid_is_a_product_in_reading_order(book):
    points = sweep.grid(book, "alpha", [("steps", "2,8"), ("sizes", "[1],[2,3]")])
    assert points == [
        {"steps": 2, "sizes": [1]},
        {"steps": 2, "sizes": [2, 3]},
        {"steps": 8, "sizes": [1]},
        {"steps": 8, "sizes": [2, 3]},
    ]


@pytest.mark.parametrize(
    ("slug", "axes", "error", "said"),
    [
        ("alpah", [("steps", "1")], UnknownChapter, "did you mean alpha"),
        ("alpha", [("step", "1")], UnknownParameter, "did you mean steps"),
        ("alpha", [("steps", "1,two")], BadParameter, "a whole number"),
        ("alpha", [("steps", "1"), ("steps", "2")], BadParameter, "swept twice"),
        ("alpha", [], BookError, "at least one parameter"),
    ],
)
def test_mistakes_are_found_before_any_point_runs(book, slug, axes, error, said):
    with pytest.raises(error, match=said):
        sweep.sweep(book, slug, axes)
    assert not book.build.exists()


def test_table_of_measured_values_and_verdicts(book):
    toybook.append(book, ALPHA, toybook.code_cell("assert steps != 5, 'five is right out'"))
    axes = [("steps", "3,5,8"), ("pair", "(1,2)")]
    result = sweep.sweep(book, "alpha", axes, jobs=2)
    table = result.table
    assert list(table["steps"]) == [3, 5, 8]
    assert list(table["pair"]) == ["[1, 2]"] * 3
    assert list(table["status"]) == ["ran", "failed", "ran"]
    assert list(table["C1"].fillna(-1)) == [14, -1, 204]
    assert list(table["C1 verdict"].fillna("")) == ["not reproduced", "", "reproduced"]
    assert "five is right out" in table["error"][1]
    assert table["seconds"].min() > 0
    for path, stored in (
        (result.csv, pd.read_csv(result.csv)),
        (result.parquet, pd.read_parquet(result.parquet)),
    ):
        assert path.parent == book.build / "sweeps"
        assert list(stored.columns) == list(table.columns)
        assert list(stored["C1"].fillna(-1)) == [14, -1, 204]
    names = {path.name for path in (book.build / "executed/quick").iterdir()}
    assert names == {f"{o.name}.ipynb" if o.ok else f"{o.name}.failed.ipynb" for o in result.outcomes}

    again = sweep.sweep(book, "alpha", axes)
    assert list(again.table["status"]) == ["cached", "failed", "cached"]
    assert again.csv == result.csv
    single = runner.run(book, ["alpha"], overrides={"steps": 3, "pair": (1, 2)})[0]
    assert single.status == "cached"  # a point is an ordinary run


def test_mappings_and_intervals_become_columns(monkeypatch):
    rows = [
        {"id": "C1", "measured": {"a": 1.0, "b": 2.0}, "low": None, "high": None, "verdict": "reproduced"},
        {"id": "C2", "measured": 0.5, "low": 0.4, "high": 0.6, "verdict": "direction only"},
        {"id": "C3", "measured": None, "low": None, "high": None, "verdict": "not testable here"},
    ]
    monkeypatch.setattr(sweep.ledger, "rows_in", lambda notebook: rows)
    assert sweep._measured({}) == {
        "C1.a": 1.0,
        "C1.b": 2.0,
        "C1 verdict": "reproduced",
        "C2": 0.5,
        "C2 low": 0.4,
        "C2 high": 0.6,
        "C2 verdict": "direction only",
        "C3": None,
        "C3 verdict": "not testable here",
    }
