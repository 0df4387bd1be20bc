"""The book as its table of contents tells it."""

from __future__ import annotations

import jupytext
import pytest
import toybook

from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError, UnknownChapter, UnknownProfile


def test_chapters_in_order_with_their_parts(book):
    assert book.slugs == ("alpha", "beta")
    alpha = book.chapter("alpha")
    assert (alpha.part, alpha.part_title, alpha.docname) == ("one", "First things", "book/one/alpha")
    assert alpha.source == book.root / "book/one/alpha.md"
    assert alpha.title == "Alpha rays"
    assert (book.package, book.title) == ("toybook", "A toy book")


def test_found_from_a_folder_below(book, monkeypatch):
    monkeypatch.chdir(book.root / "book" / "one")
    assert Book.load() == book


def test_outside_of_any_book(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BookError, match=r"no book here.*_toc\.yml"):
        Book.load()


@pytest.mark.parametrize(
    ("asked", "said"), [("alpa", "did you mean alpha"), ("zzzz", "known are: alpha, beta")]
)
def test_unknown_chapter_lists_names(book, asked, said):
    with pytest.raises(UnknownChapter, match=said):
        book.chapter(asked)


def test_paths(book):
    root = book.root
    assert book.executed("full", "alpha") == root / "_build/executed/full/alpha.ipynb"
    assert book.record("alpha") == root / "book/records/alpha.json"
    assert book.reference("beta") == root / "tests/notebooks/beta.ipynb"
    assert book.package_dir == root / "src/toybook"
    assert (book.stage, book.html) == (root / "_build/stage", root / "_build/html")
    with pytest.raises(UnknownProfile, match="quick or full"):
        book.executed("fast", "alpha")


def test_notebook_ids_are_stable_and_code_is_jupytexts(book):
    alpha = book.chapter("alpha")
    first, second = alpha.notebook(), alpha.notebook()
    assert [cell.id for cell in first.cells] == [f"alpha-{i:03d}" for i in range(len(first.cells))]
    assert first == second
    assert (first.nbformat, first.nbformat_minor) == (4, 5)
    assert first.metadata.kernelspec.name == "python3"
    read = jupytext.read(alpha.source)
    assert alpha.code_cells() == [cell.source for cell in read.cells if cell.cell_type == "code"]
    assert len(alpha.code_cells()) == 3


def test_plain_pages_and_sections(book):
    toybook.edit(
        book,
        "_toc.yml",
        "[{file: book/two/beta}]",
        "[{file: book/two/page, sections: [{file: book/two/beta.md}]}]",
    )
    (book.root / "book/two/page.md").write_text("# A page\n\nNo code.\n")
    loaded = Book.load(book.root)
    assert loaded.slugs == ("alpha", "beta")
    assert loaded.chapter("beta").docname == "book/two/beta"
    assert loaded.chapter("beta").part_title == "Second things"


def test_title_ignores_comments_in_code(book):
    toybook.edit(
        book,
        "book/one/alpha.md",
        "# Alpha rays",
        "````{note}\n# not this\n```\n# nor this\n````\n\n# The `title` #",
    )
    assert book.chapter("alpha").title == "The `title`"


def test_missing_file_and_double_slug(book):
    toybook.edit(book, "_toc.yml", "book/two/beta", "book/two/gamma")
    with pytest.raises(BookError, match=r"lists book/two/gamma, but .*gamma\.md is not there"):
        Book.load(book.root)
    (book.root / "book/two/gamma.md").unlink(missing_ok=True)
    (book.root / "book/two/alpha.md").write_text(toybook.ALPHA)
    toybook.edit(book, "_toc.yml", "book/two/gamma", "book/two/alpha")
    with pytest.raises(BookError, match="two chapters named alpha"):
        Book.load(book.root)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("_toc.yml", "a: [", "not valid YAML"),
        ("_toc.yml", "- a\n", "expected a mapping"),
        ("pyproject.toml", "[tool", "not valid TOML"),
    ],
)
def test_broken_settings_are_named(book, name, text, said):
    (book.root / name).write_text(text)
    with pytest.raises(BookError, match=said) as caught:
        Book.load(book.root)
    assert name in str(caught.value)
