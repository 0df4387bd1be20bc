"""Records: only a whole full run writes one, in a stable order, and reading gives back what was written."""

from __future__ import annotations

import json

import nbformat
import pytest

from icml24 import ledger
from icml24.pipeline import records, records_view
from icml24.pipeline.errors import BookError

STAMP = {
    "status": "ok",
    "versions": {"torch": "2.13.0", "numpy": "2.4.6"},
    "slug": "alpha",
    "profile": "full",
    "key": "k" * 64,
    "commit": "c" * 40,
    "dirty": False,
    "parameters": {"seed": 3, "profile": "full"},
    "overrides": {},
    "seed": 3,
    "threads": 1,
    "wall_s": 812.5,
    "peak_mb": 901.0,
    "machine": {"system": "Linux x86_64", "cpu": "a processor", "cores": 2},
    "data": {"toy/b.csv": "b" * 64, "toy/a.csv": "a" * 64},
    "started": "2026-01-02T03:04:05+00:00",
}
ROW = {
    "id": "C1",
    "statement": "Größer als <zwei>",
    "paper_value": "2",
    "source": "abstract",
    "metric": "m",
    "test": "> 2",
    "scale": "s",
    "measured": 0.1 + 0.2,
    "text": "0.3",
    "low": None,
    "high": None,
    "verdict": "not reproduced",
    "reason": "",
    "failed": ["> 2"],
}


def notebook(rows=(ROW,), **changes):
    data = {ledger.MIME: {"slug": "alpha", "profile": "full", "rows": list(rows)}, "text/plain": "…"}
    cell = nbformat.v4.new_code_cell("report()", outputs=[nbformat.v4.new_output("display_data", data=data)])
    made = nbformat.v4.new_notebook(cells=[cell])
    made.metadata["icml24"] = nbformat.from_dict({**STAMP, **changes})
    return made


def test_a_record_holds_rows_provenance_and_data(book):
    assert records.write(book, "alpha", notebook())
    held = json.loads(book.record("alpha").read_text(encoding="utf-8"))
    assert list(held) == ["slug", "provenance", "data", "rows"]
    assert held["rows"] == [ROW]
    assert held["rows"][0]["measured"] == 0.1 + 0.2
    assert list(held["data"]) == ["toy/a.csv", "toy/b.csv"]
    kept = held["provenance"]
    for key in ("commit", "dirty", "seed", "threads", "wall_s", "peak_mb", "started", "profile"):
        assert kept[key] == STAMP[key]
    assert kept["versions"] == STAMP["versions"]
    assert kept["parameters"] == STAMP["parameters"]
    assert kept["machine"] == STAMP["machine"]
    assert "key" not in kept


def test_reading_gives_back_what_was_written(book):
    assert records.load(book, "alpha") is None
    records.write(book, "alpha", notebook())
    record = records.load(book, "alpha")
    assert record.rows == [ROW]
    assert record.provenance["commit"] == STAMP["commit"]
    assert records.load is records_view.load


def test_bytes_do_not_depend_on_the_order_in_which_things_came(book):
    records.write(book, "alpha", notebook())
    before = book.record("alpha").read_bytes()
    other = notebook()
    stamp = dict(reversed(list(other.metadata["icml24"].items())))
    for key in ("versions", "data", "machine", "parameters"):
        stamp[key] = dict(reversed(list(stamp[key].items())))
    other.metadata["icml24"] = nbformat.from_dict(stamp)
    assert records.write(book, "alpha", other) is False  # the same bytes: not touched
    assert book.record("alpha").read_bytes() == before
    assert before.endswith(b"\n")
    assert "Größer" in before.decode()


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: notebook(profile="quick"), "profile is 'quick', not 'full'"),
        (lambda: notebook(status="failed"), "status is 'failed'"),
        (lambda: notebook(slug="beta"), "slug is 'beta'"),
        (lambda: notebook(overrides={"seed": 3}), r"parameters were overridden \(seed\)"),
        (lambda: notebook(rows=()), "it reported no claims"),
        (lambda: nbformat.v4.new_notebook(), "slug is None.*it reported no claims"),
    ],
)
def test_what_is_no_full_run_writes_nothing(book, made, match):
    records.write(book, "alpha", notebook())
    before = book.record("alpha").read_bytes()
    with pytest.raises(BookError, match=match):
        records.write(book, "alpha", made())
    assert book.record("alpha").read_bytes() == before


def test_a_run_at_full_writes_the_record_itself(book):
    """The runner calls `write`; a run at quick, or with a parameter of one's own, does not."""
    from icml24.pipeline import runner

    runner.run(book, ["alpha"], "quick")
    runner.run(book, ["alpha"], "full", {"steps": 9})
    assert not book.record("alpha").exists()
    (outcome,) = runner.run(book, ["alpha"], "full")
    assert outcome.status == "ran", outcome.error
    record = records.load(book, "alpha")
    assert [row["id"] for row in record.rows] == ["C1", "C2"]
    assert record.provenance["profile"] == "full"
    assert record.provenance["wall_s"] > 0
