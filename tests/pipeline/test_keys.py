"""The key of an execution: what changes it and what does not, edit by edit."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import toybook

from icml24.pipeline import keys
from icml24.pipeline.book import Book

ALPHA, BETA = "book/one/alpha.md", "book/two/beta.md"


def both(book):
    book = Book.load(book.root)
    return {slug: keys.execution_key(book, book.chapter(slug), "quick") for slug in book.slugs}


def changed(book, edit):
    before = both(book)
    edit()
    after = both(book)
    return {slug for slug in after if before[slug] != after[slug]}


@pytest.mark.parametrize(
    ("name", "text", "slugs"),
    [
        (ALPHA, "\nMore prose, and {eq}`eq-alpha-squares` again.\n", ""),
        (ALPHA, toybook.code_cell("1 + 1"), "alpha"),
        ("src/toybook/papers/alpha/core.py", "\n# a comment\n", "alpha"),
        ("src/toybook/papers/beta/__init__.py", "\nVALUE = 2\n", "beta"),
        ("src/toybook/papers/__init__.py", "\n", "alpha beta"),
        ("src/toybook/__init__.py", "\n", "alpha beta"),
        ("src/toybook/common/numbers.py", "\n", "alpha beta"),
        ("src/toybook/common/extra.py", "\n", "beta"),
        ("src/toybook/common/unused.py", "\n", ""),
        ("src/toybook/papers/alpha/claims.toml", "\n# note\n", "alpha"),
        ("src/toybook/papers/alpha/weights/w.npz", "new", "alpha"),
        ("src/toybook/papers/alpha/__pycache__/core.cpython-311.pyc", "new", ""),
        ("src/toybook/papers/alpha/.core.py.swp", "new", ""),
        ("src/toybook/common/table.csv", "named by nobody", "alpha beta"),
        ("_toc.yml", "# note\n", ""),
        ("requirements.lock", "numpy==0.1\n", "alpha beta"),
        ("README.md", "new", ""),
    ],
)
def test_an_edit_reruns_exactly(book, name, text, slugs):
    (book.root / name).parent.mkdir(parents=True, exist_ok=True)
    assert changed(book, lambda: toybook.append(book, name, text)) == set(slugs.split())


def test_tags_captions_and_cell_order(book):
    ledger_cell = "```{code-cell} ipython3\nledger.report("
    tagged = "```{code-cell} ipython3\n:tags: [hide-input, nbval-ignore-output]\n\nledger.report("
    assert changed(book, lambda: toybook.edit(book, ALPHA, ledger_cell, tagged)) == set()
    swapped = changed(
        book, lambda: toybook.append(book, BETA, toybook.code_cell("x = 1") + toybook.code_cell("x = 2"))
    )
    assert swapped == {"beta"}
    text = (book.root / BETA).read_text()
    one, two = toybook.code_cell("x = 1"), toybook.code_cell("x = 2")
    reordered = text.replace(one + two, two + one)
    assert changed(book, lambda: (book.root / BETA).write_text(reordered)) == {"beta"}


def test_a_file_of_common_belongs_to_the_modules_that_name_it(book):
    toybook.append(book, "src/toybook/common/extra.py", "STYLE = 'toy.mplstyle'\n")
    toybook.append(book, "src/toybook/common/toy.mplstyle", "a")
    assert changed(book, lambda: toybook.append(book, "src/toybook/common/toy.mplstyle", "b")) == {"beta"}


def test_a_new_import_brings_new_dependence(book):
    edit = ("src/toybook/common/unused.py", "\n# touched\n")
    assert changed(book, lambda: toybook.append(book, *edit)) == set()
    toybook.append(book, "src/toybook/common/extra.py", "from toybook.common import unused\n")
    assert changed(book, lambda: toybook.append(book, *edit)) == {"beta"}


def test_profile_overrides_threads_python_and_versions(book, monkeypatch):
    alpha = book.chapter("alpha")

    def key(profile="quick", **overrides):
        return keys.execution_key(book, alpha, profile, overrides)

    found = [key(), key("full"), key(steps=3), key(steps=4), key(seed=1)]
    monkeypatch.setattr(keys, "THREADS", 2)
    found.append(key())
    monkeypatch.undo()
    monkeypatch.setattr(keys.platform, "python_version", lambda: "3.99.0")
    found.append(key())
    monkeypatch.undo()
    toybook.append(book, "requirements.lock", "nbformat==5.0\nno-such-thing==1\n# torch==2\n-r other.txt\n")
    found.append(key())
    versions = keys.ingredients(book, alpha, "quick")["versions"]
    assert set(versions) == {"nbformat", "no-such-thing"}
    assert versions["no-such-thing"] == "absent"
    monkeypatch.setattr(keys, "_installed", lambda name: "9.9")
    found.append(key())
    assert len(set(found)) == len(found)
    assert all(len(value) == 64 for value in found)


def test_data_that_is_found_is_part_of_the_key(book, monkeypatch):
    before = both(book)
    table = {"alpha": {"toy/x.csv": "0" * 64}}
    monkeypatch.setattr(
        keys, "datasets", SimpleNamespace(found=lambda slugs: table.get(next(iter(slugs)), {}))
    )
    after = both(book)
    assert (before["alpha"] != after["alpha"], before["beta"] == after["beta"]) == (True, True)


def test_the_house_modules_that_a_chapter_reaches_count(book):
    modules = keys.ingredients(book, book.chapter("alpha"), "quick")["modules"]
    assert "icml24.ledger" in modules
    assert not any(name.startswith("icml24.pipeline") for name in modules)


def test_key_does_not_depend_on_where_the_book_is(book, tmp_path):
    other = toybook.make(tmp_path / "elsewhere" / "toy")
    assert both(book) == both(other)


def test_freshness_needs_a_whole_run_of_this_key(book):
    alpha = book.chapter("alpha")
    path = book.executed("quick", "alpha")
    assert keys.is_fresh(book, alpha, "quick") is False
    path.parent.mkdir(parents=True)
    key = keys.execution_key(book, alpha, "quick")
    for text, fresh in [
        ("{", False),
        ("[]", False),
        (json.dumps({"metadata": {}}), False),
        (json.dumps({"metadata": {"icml24": {"key": "other", "status": "ok"}}}), False),
        (json.dumps({"metadata": {"icml24": {"key": key, "status": "failed"}}}), False),
        (json.dumps({"metadata": {"icml24": {"key": key, "status": "ok"}}}), True),
    ]:
        path.write_text(text)
        assert keys.is_fresh(book, alpha, "quick") is fresh
    assert keys.is_fresh(book, alpha, "full") is False
