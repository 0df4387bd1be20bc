from __future__ import annotations

import base64
import re

import nbformat
import pytest
import stored

from icml24 import ledger
from icml24.pipeline import scoreboard
from icml24.pipeline.records_view import Record


@pytest.fixture
def entries(book):
    alpha, beta = book.chapters
    rows = [stored.row(f"C{n}", verdict) for n, verdict in enumerate(ledger.VERDICTS, start=1)]
    record = Record([stored.row("C1", "not reproduced", text="0.75")], {})
    picture = scoreboard.Picture(stored.png(320, 160), 'A "grey" field')
    return [
        scoreboard.Entry(alpha, rows, record, picture),
        scoreboard.Entry(beta, [stored.row("C1", statement="<b>bold</b>")], None, None),
    ]


def test_every_claim_is_a_chip_that_leads_to_its_ledger(entries):
    html = scoreboard.scoreboard("book/index", entries)
    chips = re.findall(r'<a class="chip ([\w-]+)" href="([^"]+)"', html)
    ledgers = ["one/alpha.html#ledger-alpha"] * 4 + [
        "one/alpha.html#ledger-alpha",
        "two/beta.html#ledger-beta",
    ]
    kinds = [
        "reproduced",
        "direction-only",
        "not-reproduced",
        "not-testable-here",
        "not-reproduced",
        "reproduced",
    ]
    assert chips == list(zip(kinds, ledgers, strict=True))


def test_verdicts_are_words_and_counted(entries):
    html = scoreboard.scoreboard("book/index", entries)
    for verdict, count in zip(ledger.VERDICTS, (2, 1, 1, 1), strict=True):
        assert f">{verdict}</span> {count}" in html
    assert "1 of 3 tested" in html
    assert "1 of 1 tested" in html


def test_live_and_recorded_values_stand_side_by_side(entries):
    html = scoreboard.scoreboard("book/index", entries)
    row = next(
        line for line in html.splitlines() if "Statement of C1" in line and "<td>" in line and "0.75" in line
    )
    assert row.index("1.25") < row.index("0.75")
    assert "needs the full profile" in html


def test_fragments_are_one_block_and_escaped(entries):
    for text in (scoreboard.scoreboard("book/index", entries), scoreboard.gallery("book/index", entries)):
        assert "\n\n" not in text
        assert "<b>" not in text


def test_gallery_shows_a_picture_with_its_words(entries):
    html = scoreboard.gallery("book/index", entries)
    assert '<img src="../figures/alpha.png" alt="A &quot;grey&quot; field" width="320" height="160">' in html
    assert html.count("<img") == 1
    assert "no figure" in html
    assert "Reproduced: 1 of 3 tested claims" in html


def test_an_empty_book_says_so():
    assert "No chapter" in scoreboard.scoreboard("book/index", [])
    assert "No chapter" in scoreboard.gallery("book/index", [])


def cell(png, **mystnb):
    made = nbformat.v4.new_code_cell("draw()", metadata={"mystnb": mystnb} if mystnb else {})
    data = {"image/png": base64.b64encode(png).decode()}
    made.outputs = [nbformat.from_dict(stored.display(data))]
    return made


def test_first_figure_prefers_a_declared_one():
    plain, declared = stored.png(10, 10), stored.png(20, 30)
    notebook = nbformat.v4.new_notebook(
        cells=[
            cell(plain),
            cell(declared, figure={"caption": "What to\nsee", "name": "fig-x"}, image={"alt": "A line"}),
        ]
    )
    found = scoreboard.first_figure(notebook)
    assert (found.data, found.alt, found.size) == (declared, "A line", (20, 30))
    assert scoreboard.first_figure(nbformat.v4.new_notebook(cells=notebook.cells[:1])).data == plain
    assert scoreboard.first_figure(nbformat.v4.new_notebook()) is None
