"""Rendering by the real jupyter-book: what is accepted, what is refused, and what a refusal leaves behind."""

from __future__ import annotations

import os
import re
import shutil

import pytest
import stored
import toybook

from icml24.pipeline import build
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError, StaleBook

pytestmark = pytest.mark.slow


def outputs(source):
    return [stored.ledger_output("alpha", [stored.row("C1")])] if "ledger.report" in source else []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A rendered toy book; tests that use it only look."""
    book = toybook.make(tmp_path_factory.mktemp("built") / "toy")
    for chapter in book.chapters:
        stored.store(book, chapter.slug, outputs)
    build.build(book)
    return book


@pytest.fixture
def copy(built, tmp_path):
    """A rendered book of the test's own."""
    shutil.copytree(built.root, tmp_path / "copy")
    return Book.load(tmp_path / "copy")


def page(book, name):
    return (book.html / f"book/{name}.html").read_text()


def test_site_holds_every_page(built):
    assert build.is_published(built)
    assert (built.html / "index.html").is_file()
    assert "Two chapters." in page(built, "index")
    alpha = page(built, "one/alpha")
    assert "Sums of squares" in alpha
    assert 'id="ledger-alpha"' in alpha
    assert "How this page was computed" in alpha
    assert "Alpha rays" in page(built, "two/beta")  # a reference across parts


def test_nothing_of_this_machine_is_on_a_page(built):
    text = page(built, "one/alpha") + page(built, "two/beta") + page(built, "index")
    assert str(built.root) not in text
    assert os.uname().nodename not in re.sub(r"<[^>]+>", " ", text).split()


def test_rendering_again_changes_no_page(built):
    def pages():
        return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in (built.html / "book").rglob("*.html")}

    before = pages()
    (built.build / ".rendered").unlink()  # else nothing would be rendered
    build.build(built)
    assert pages() == before


@pytest.fixture
def renderings(monkeypatch):
    """Counts renderings."""
    seen, render = [], build._render
    monkeypatch.setattr(build, "_render", lambda book: (seen.append(book), render(book)))
    return seen


def test_nothing_is_rendered_when_nothing_changed(copy, renderings):
    build.build(copy)  # the copy has new time stamps
    assert len(renderings) == 1
    build.build(Book.load(copy.root))
    assert len(renderings) == 1


@pytest.mark.parametrize("change", ["page", "prose", "docstring"])
def test_a_change_of_page_prose_or_docstring_is_rendered(copy, renderings, change):
    build.build(copy)
    if change == "page":
        (copy.html / "book/one/alpha.html").unlink()
    elif change == "prose":
        toybook.edit(copy, "book/index.md", "Two chapters.", "Two short chapters.")
    else:
        toybook.append(copy, "src/toybook/common/numbers.py", '\n\ndef late():\n    """Come late."""\n')
        for chapter in copy.chapters:
            stored.store(copy, chapter.slug, outputs)
    build.build(Book.load(copy.root))
    assert len(renderings) == 2
    assert "Sums of squares" in page(copy, "one/alpha")


def test_a_warning_is_an_error_now_and_the_next_time(copy):
    """Sphinx is silent about pages that it has read before: a second build must not pass for that reason."""
    toybook.edit(copy, "book/index.md", "Two chapters.", "See {ref}`nowhere`.")
    toybook.edit(copy, "book/two/beta.md", "{eq}`eq-beta-mean`", "{numref}`fig-beta-none`")
    for _ in range(2):
        with pytest.raises(BookError) as caught:
            build.build(copy)
        assert "book/index.md:3: WARNING: undefined label: 'nowhere'" in str(caught.value)
        cell = r"book/two/beta\.md \(cell \d+, line \d+ of the staged notebook\).*fig-beta-none"
        assert re.search(cell, str(caught.value))
        assert not build.is_published(copy)
    toybook.edit(copy, "book/index.md", "See {ref}`nowhere`.", "See {ref}`chap-alpha`.")
    toybook.edit(copy, "book/two/beta.md", "{numref}`fig-beta-none`", "{eq}`eq-beta-mean`")
    build.build(copy)
    assert build.is_published(copy)


def test_a_stale_chapter_leaves_the_site_as_it_was(copy):
    before = page(copy, "one/alpha")
    assert build.is_published(copy)
    toybook.edit(copy, "src/toybook/papers/alpha/core.py", "sum(", "0 + sum(")
    assert not build.is_published(copy)
    with pytest.raises(StaleBook, match="alpha: its code"):
        build.build(copy)
    assert page(copy, "one/alpha") == before
    build.build(copy, allow_stale=True)
    assert "not up to date" in page(copy, "one/alpha")
    assert "not up to date" not in page(copy, "two/beta")


def test_pages_of_a_chapter_taken_out_disappear(copy):
    assert (copy.html / "downloads/beta/beta.md").is_file()
    toybook.edit(copy, "_toc.yml", "chapters: [{file: book/two/beta}]", "chapters: []")
    build.build(Book.load(copy.root))
    assert not (copy.html / "book/two/beta.html").exists()
    assert not (copy.html / "downloads/beta").exists()
    assert (copy.html / "downloads/alpha/alpha.md").is_file()
    assert "Beta decay" not in page(copy, "one/alpha")
