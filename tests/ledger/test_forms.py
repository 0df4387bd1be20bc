"""The ledger's forms: plain text that is stable across machines, HTML, and rows in a notebook."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import nbformat

from icml24 import ledger
from icml24.ledger import Measured, Untestable


def test_plain_text_does_not_change_with_the_machine(claims, one_file):
    """Two machines: raw figures differ in the last digits, verdicts and plain text do not."""
    claims(
        {"test": {"operator": ">", "threshold": 0.5}},
        {"test": {"operator": ">", "threshold": 0.9}, "direction": {"operator": ">", "threshold": 0}},
        {"test": {"of": "*", "operator": "<", "threshold": 0.1}},
        {"test": {"operator": "is_true"}, "dataset": "measurements"},
    )
    one = ledger.report("demo", {"C1": Measured(0.7, 0.6, 0.8), "C2": 0.8, "C3": {"a": 0.11, "b": 0.05}})
    two = ledger.report(
        "demo", {"C1": Measured(0.70001, 0.61, 0.79), "C2": 0.79999, "C3": {"a": 0.12, "b": 0.2}}
    )
    assert one.rows != two.rows
    assert one.mimebundle()["text/plain"] == two.mimebundle()["text/plain"]
    assert repr(one).splitlines()[:4] == [
        "Claims of demo, profile quick",
        "C1  reproduced",
        "C2  direction only: only the weaker test holds",
        "C3  not reproduced",
    ]
    assert set(one.verdicts.values()) == set(ledger.VERDICTS)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_html_escapes_everything_it_is_given(claims):
    nasty = "<script>alert('&')</script>"
    texts = {key: f"{key} {nasty}" for key in ("statement", "paper_value", "source", "metric", "scale")}
    claims(
        texts | {"test": {"of": nasty, "operator": "<", "threshold": 1}},
        texts | {"test": {"operator": "is_true"}},
    )
    made = ledger.report("demo", {"C1": {nasty: 0.5}, "C2": Untestable(nasty)})
    reader = _Reader()
    reader.feed(ledger.render_html(made.rows, made.rows))
    assert "script" not in {tag for tag, _ in reader.tags}
    assert "".join(reader.text).count(nasty) >= 2 * len(texts) + 3


def test_html_is_a_table_a_screen_reader_can_follow(claims):
    claims({"test": {"operator": ">", "threshold": 0}}, {"test": {"operator": ">", "threshold": 0}})
    rows = ledger.report("demo", {"C1": 1.0, "C2": -1.0}).rows
    html = ledger.render_html(rows)
    reader = _Reader()
    reader.feed(html)
    scopes = [attrs["scope"] for tag, attrs in reader.tags if tag == "th"]
    assert scopes == ["col"] * 4 + ["row"] * 2
    assert 'class="verdict verdict-not-reproduced">not reproduced<' in html
    region = reader.tags[0][1]
    assert (region["role"], region["tabindex"]) == ("region", "0")
    assert region["aria-label"]


def test_how_a_claim_was_measured_takes_the_whole_width_below_it(claims):
    claims({"test": {"operator": ">", "threshold": 0}})
    rows = ledger.report("demo", {"C1": 1.0}).rows
    for recorded, columns in ((None, 4), (rows, 5)):
        reader = _Reader()
        reader.feed(ledger.render_html(rows, recorded))
        spans = [int(attrs["colspan"]) for tag, attrs in reader.tags if tag == "td" and "colspan" in attrs]
        heads = sum(tag == "th" and attrs["scope"] == "col" for tag, attrs in reader.tags)
        assert spans == [columns] == [heads]


def test_a_long_list_of_figures_stands_below_its_row(claims):
    """In its own column it would be a word wide and a page tall."""
    claims({"test": {"operator": ">", "threshold": 0}})
    live = ledger.report("demo", {"C1": 1.0}).rows
    many = ", ".join(f"figure {k} 0.125" for k in range(12))
    full = ledger.report("demo", {"C1": Measured(1.0, text=many)}, profile="full").rows
    html = ledger.render_html(live, full)
    assert html.count(many) == 1
    assert f"full run: {many}</small>" in html
    assert "listed below<br>" in html
    assert "listed below" not in ledger.render_html(live, live)


def test_the_full_run_stands_beside_the_live_one(claims):
    claims(*[{"test": {"operator": ">", "threshold": 0.5}}] * 2)
    live = ledger.report("demo", {"C1": 0.4, "C2": 0.4}).rows
    full = ledger.report("demo", {"C1": Measured(0.6, text="0.61 ± 0.02"), "C2": 0.4}, profile="full").rows
    html = ledger.render_html(live, full[:1])
    assert '<th scope="col">Full run</th>' in html
    assert "0.61 ± 0.02<br>" in html
    assert html.count("not recorded") == 1  # C2 is not in the record
    assert "Full run" not in ledger.render_html(live)


CELLS = [
    "from icml24 import ledger; from icml24.ledger import Measured",
    "ledger.report('demo', {'C1': Measured(0.1 + 0.2, low=0.1, high=1/3), 'C2': {'a': True, 'b': 1e-300}})",
    "_ = ledger.report('demo', {'C1': 0.1, 'C2': {'a': False, 'b': 2}})",
]


def test_rows_come_back_from_an_executed_notebook(claims, tmp_path, monkeypatch):
    """What a kernel displayed, written to a file and read again, equals what was measured, to the bit."""
    from nbclient import NotebookClient

    package = claims(
        {"test": {"operator": "<", "threshold": 0.3}},
        {
            "test": [
                {"of": "a", "operator": "is_true"},
                {"of": "b", "operator": "<", "threshold": 1},
            ]
        },
    )
    source = Path(ledger.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(source)]))
    monkeypatch.setenv("ICML24_PACKAGE", package)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    nbformat.write(notebook, tmp_path / "demo.ipynb")
    back = nbformat.read(tmp_path / "demo.ipynb", as_version=4)
    nbformat.validate(back)
    assert [len(cell.outputs) for cell in back.cells] == [0, 1, 1]  # one display each, none doubled
    assert set(back.cells[1].outputs[0].data) == {"text/plain", "text/html", ledger.MIME}
    rows = ledger.rows_in(back)
    assert [row["id"] for row in rows] == ["C1", "C2", "C1", "C2"]
    assert rows[0]["measured"] == 0.1 + 0.2
    assert (rows[0]["low"], rows[0]["high"]) == (0.1, 1 / 3)
    assert rows[1]["measured"] == {"a": True, "b": 1e-300}
    verdicts = [row["verdict"] for row in rows]
    assert verdicts == ["not reproduced", "reproduced", "reproduced", "not reproduced"]


def test_rows_of_a_notebook_without_a_ledger():
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("a"), nbformat.v4.new_code_cell("1")]
    )
    assert ledger.rows_in(notebook) == []


def test_outside_a_notebook_the_table_is_printed(claims, capsys):
    claims({"test": {"operator": ">", "threshold": 0}})
    ledger.report("demo", {"C1": 1.0})
    assert capsys.readouterr().out == "Claims of demo, profile quick\nC1  reproduced\n"


def test_claims_of_a_file_are_read_without_importing_the_package(claims, tmp_path):
    package = claims({"test": {"operator": ">", "threshold": 0}})
    path = tmp_path / package / "papers" / "demo" / "claims.toml"
    assert ledger.read_claims(path) == ledger.load_claims("demo") == ledger.load_claims("demo", package)
