"""The book's small Sphinx extensions, loaded from where the site loads them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "book" / "_ext"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("the norm |x| is", r"the norm \|x\| is"),
        ("``|x|`` and :math:`|y|` and `|z|`", "``|x|`` and :math:`|y|` and `|z|`"),
        (r"already \| so", r"already \| so"),
        ("Source: eq-toy-one, the paper's (4).", "Source: :eq:`eq-toy-one`, the paper's (4)."),
        ("Source: ``eq-toy-one`` and `eq-toy-one`", "Source: :eq:`eq-toy-one` and :eq:`eq-toy-one`"),
        (":eq:`eq-toy-one` stays", ":eq:`eq-toy-one` stays"),
        ("eq-toy-none has no page", "eq-toy-none has no page"),
        (">>> a | b", ">>> a | b"),
    ],
)
def test_docstring_lines(line, expected):
    assert load("docstrings").adapt([line], {"eq-toy-one"}) == [expected]


def test_formulas_and_literal_blocks_are_left_alone():
    text = ["|a|", "", ".. math:: |b|", "", "   |c|", "", "Like so::", "", "    |d|", "", "|e|"]
    adapted = load("docstrings").adapt(text, set())
    assert adapted == [r"\|a\|", *text[1:-1], r"\|e\|"]


def test_download_menu_replaces_the_themes(tmp_path):
    menu = {"book/one/alpha": [["executed notebook", "downloads/a/a.ipynb"]]}
    (tmp_path / "downloads.json").write_text(json.dumps(menu))
    app = SimpleNamespace(srcdir=tmp_path)
    offer = load("page_downloads").offer
    found = {}
    for page in ("book/one/alpha", "book/index"):
        context = {
            "header_buttons": [
                {"label": "fullscreen-button"},
                {"label": "download-buttons", "buttons": ["old"]},
            ],
            "pathto": lambda path, resource: f"../../{path}",
        }
        offer(app, page, "page.html", context, None)
        group, other = context["header_buttons"]
        assert other["label"] == "fullscreen-button"
        found[page] = [button.get("url") for button in group["buttons"]]
    assert found == {"book/one/alpha": ["../../downloads/a/a.ipynb", None], "book/index": [None]}


def test_mathjax_is_copied_small_and_once(tmp_path):
    offline = load("offline_assets")
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    offline.copy_mathjax(app, None)
    target = tmp_path / "_static" / "mathjax"
    assert (target / "tex-mml-chtml.js").is_file()
    assert list((target / "output/chtml/fonts/woff-v2").glob("*.woff"))
    assert sum(p.stat().st_size for p in target.rglob("*") if p.is_file()) < 3_000_000
    before = {p: p.stat().st_mtime_ns for p in target.rglob("*")}
    offline.copy_mathjax(app, None)
    assert {p: p.stat().st_mtime_ns for p in target.rglob("*")} == before


def test_a_missing_carrier_of_mathjax_is_named(monkeypatch):
    from sphinx.errors import ExtensionError

    offline = load("offline_assets")
    monkeypatch.setattr(offline, "find_spec", lambda name: None)
    with pytest.raises(ExtensionError, match="sphinx-mathjax-offline is not installed"):
        offline.mathjax_folder()
