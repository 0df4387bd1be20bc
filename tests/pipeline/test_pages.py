from __future__ import annotations

import re

import nbformat
import pytest
import stored

from icml24.pipeline import downloads, pages
from icml24.pipeline.records_view import Record

ROWS = [stored.row("C1"), stored.row("C2", "not reproduced")]


def outputs(source):
    return [stored.ledger_output("alpha", ROWS)] if "ledger.report" in source else [stored.stream("hello\n")]


@pytest.fixture
def executed(book):
    """Make alpha's executed notebook with a cell of injected parameters, as Papermill leaves it."""

    def make(**stamp):
        notebook = nbformat.read(stored.store(book, "alpha", outputs, **stamp), as_version=4)
        cell = nbformat.v4.new_code_cell("seed = 3", metadata={"tags": ["injected-parameters"]})
        notebook.cells.insert(3, cell)
        return notebook

    return make


def render(book, notebook, **options):
    return pages.chapter_page(book.chapter("alpha"), notebook, links=downloads.links("alpha"), **options)


def box_of(page):
    return next(cell.source for cell in page.cells if cell["id"].endswith("-provenance"))


def test_box_stands_under_the_title(book, executed):
    page = render(book, executed())
    nbformat.validate(page)
    assert page.cells[0].source == "(chap-alpha)=\n# Alpha rays"
    assert page.cells[1].source.startswith('<div class="chapter-meta">')
    assert page.cells[2].source.startswith("## Overview")


def test_box_tells_what_the_run_stamped(book, executed):
    box = box_of(render(book, executed(dirty=True, data={"alpha/x.csv": "ab" * 32})))
    text = " ".join(re.sub(r"<[^>]+>", " ", box).split())
    for part in (
        "quick", "seed = 0", "rate = 0.5", "2026-11-30 15:00", "0123456789ab with uncommitted changes", "12.3 s",
        "457 MB", "A processor, 2 cores, Linux x86_64, 1 thread used", "torch 2.13.0", f"sha256 {'ab' * 32}",
        "icml24 run alpha --force", "icml24 run alpha -p seed 1", "icml24 run alpha --profile full",
    ):  # fmt: skip
        assert part in text, part
    assert "\n\n" not in box, "a blank line would end the HTML block"


def test_without_data_the_box_says_so(book, executed):
    assert "built-in default data" in box_of(render(book, executed()))


def test_rerun_repeats_profile_and_overrides(book, executed):
    box = box_of(render(book, executed(profile="full", overrides={"rate": 0.25}, seed=4)))
    assert "icml24 run alpha --profile full -p rate 0.25 --force" in box
    assert "-p seed 5" in box


def test_what_a_run_prints_is_escaped(book, executed):
    box = box_of(
        render(book, executed(machine={"cpu": "<script>alert(1)</script>"}, parameters={"a": "<b>"}))
    )
    assert "<script>" not in box
    assert "<b>" not in box


def test_downloads_are_relative_to_the_page(book, executed):
    box = box_of(render(book, executed()))
    assert re.findall(r'href="([^"]+)"', box) == [
        "../../downloads/alpha/alpha.ipynb",
        "../../downloads/alpha/alpha-clean.ipynb",
        "../../downloads/alpha/alpha.md",
    ]


def test_injected_parameters_are_not_shown_and_the_input_is_not_changed(book, executed):
    notebook = executed()
    before = nbformat.writes(notebook)
    page = render(book, notebook)
    assert "seed = 3" not in [cell.source for cell in page.cells]
    assert nbformat.writes(notebook) == before


def test_same_results_make_the_same_bytes(book, executed):
    first, second = executed(), executed()
    for cell in second.cells:
        cell.metadata["papermill"] = {"duration": 1.5}
        cell.metadata["execution"] = {"iopub.status.busy": "2026"}
    second.metadata["papermill"] = {"duration": 3}
    second.cells[3]["id"] = first.cells[3]["id"]
    assert nbformat.writes(render(book, first)) == nbformat.writes(render(book, second))


def ledger_of(page):
    return next(
        output["data"]
        for cell in page.cells
        for output in cell.get("outputs", ())
        if "table" in output.get("data", {}).get("text/html", "")
    )


def test_ledger_is_drawn_anew_without_the_stored_forms(book, executed):
    data = ledger_of(render(book, executed()))
    assert set(data) == {"text/html"}
    assert 'id="ledger-alpha"' in data["text/html"]
    assert "Full run" not in data["text/html"]


def test_recorded_run_stands_beside_the_live_one(book, executed):
    record = Record(
        [stored.row("C1", "direction only", text="99.5")], stored.STAMP, {"alpha/x.csv": "cd" * 32}
    )
    page = render(book, executed(), record=record)
    table = ledger_of(page)["text/html"]
    assert "Full run" in table
    assert "99.5" in table
    assert "not recorded" in table  # C2
    assert "cd" * 32 in box_of(page)


def test_warning_comes_before_everything_but_the_title(book, executed):
    page = render(book, executed(), warning="**Old.**")
    assert page.cells[0].source.endswith("# Alpha rays")
    assert page.cells[1].source == "```{warning}\n**Old.**\n```"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# T\n\nbody", ("# T", "body")),
        ("(x)=\n# T", ("(x)=\n# T", "")),
        ("no title", ("", "no title")),
        ("```python\n# a comment\n```\n# T", ("", "```python\n# a comment\n```\n# T")),
        ("## Two\n# One", ("## Two\n# One", "")),
    ],
)
def test_split_at_title(text, expected):
    assert pages.split_at_title(text) == expected


def test_page_without_title_keeps_its_text(book, executed):
    notebook = executed()
    notebook.cells[0].source = "no title here"
    page = render(book, notebook)
    assert [cell.source[:13] for cell in page.cells[:2]] == ['<div class="c', "no title here"]
