"""`new`: four places that run at once, claim nothing, and overwrite nothing."""

from __future__ import annotations

import textwrap

import pytest
import toybook
import wholebook
import yaml

from icml24 import ledger
from icml24.pipeline import check, runner
from icml24.pipeline import new as scaffold
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError, WriteFailed

PLACES = [
    "book/one/delta_rays.md",
    "src/toybook/papers/delta_rays/__init__.py",
    "src/toybook/papers/delta_rays/experiments.py",
    "src/toybook/papers/delta_rays/claims.toml",
    "tests/papers/delta_rays/test_experiments.py",
    "_toc.yml",
]


def tree(root):
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in root.rglob("*")
        if p.is_file() and "_build" not in p.parts
    }


def test_it_lays_out_the_places_and_lists_the_chapter(book):
    written = scaffold.new(book, "delta_rays", "one")
    assert [path.relative_to(book.root).as_posix() for path in written] == PLACES
    again = Book.load(book.root)
    assert again.slugs == ("alpha", "delta_rays", "beta")
    chapter = again.chapter("delta_rays")
    assert (chapter.title, chapter.part, chapter.part_title) == ("Delta rays", "one", "First things")
    for path in written:
        assert "@slug" not in path.read_text()
        assert "@package" not in path.read_text()


def test_what_is_laid_out_runs_and_claims_nothing(book):
    import nbformat

    scaffold.new(book, "delta_rays", "two")
    (outcome,) = runner.run(Book.load(book.root), ["delta_rays"])
    assert outcome.status == "ran", outcome.error
    rows = ledger.rows_in(nbformat.read(outcome.path, as_version=4))
    assert [(row["verdict"], row["reason"]) for row in rows] == [("not testable here", "not measured yet")]


def test_its_checks_fail_until_it_is_filled(tmp_path):
    """Its form is right from the start; what is missing is what an author must bring."""
    book = wholebook.make(tmp_path / "whole")
    scaffold.new(book, "delta", "one")
    problems = check.check(Book.load(book.root), ["delta"])
    said = "\n".join(map(str, problems))
    for missing in (
        "words of prose, expected 1500",
        "0 labelled equations, expected at least 8",
        "0 figures, expected at least 3",
        "0 exercises, expected at least 2",
        "1 claims can be tested offline at quick, expected at least 4",
        "the chapter has no tests",
        "the chapter has no reference notebook",
    ):
        assert missing in said
    assert len(problems) == 7, (
        said
    )  # nothing else: sections, parameters, report, interface, bytes are in order


@pytest.mark.parametrize(
    ("slug", "part", "match"),
    [
        ("Delta", "one", "slug 'Delta' cannot name"),
        ("delta-rays", "one", "slug 'delta-rays' cannot name"),
        ("2nd", "one", "slug '2nd' cannot name"),
        ("lambda", "one", "slug 'lambda' cannot name"),
        ("../x", "one", "cannot name"),
        ("delta", "../one", "part '../one' cannot name"),
        (
            "alpha",
            "two",
            r"there is a chapter alpha already \(src/toybook/papers/alpha/__init__.py, .*nothing was written",
        ),
    ],
)
def test_names_it_refuses(book, slug, part, match):
    before = tree(book.root)
    with pytest.raises(BookError, match=match):
        scaffold.new(book, slug, part)
    assert tree(book.root) == before


@pytest.mark.parametrize("place", [*PLACES[:-1], "tests/notebooks/delta_rays.ipynb"])
def test_it_overwrites_nothing(book, place):
    path = book.root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    before = tree(book.root)
    with pytest.raises(BookError, match="already") as error:
        scaffold.new(book, "delta_rays", "one")
    assert place in str(error.value)
    assert tree(book.root) == before


def test_a_disk_that_fills_up_leaves_nothing_begun(book, monkeypatch):
    before = tree(book.root)
    real, calls = scaffold.write_atomic, []

    def full(path, text):
        calls.append(path)
        if len(calls) == 4:
            raise WriteFailed(f"cannot write {path}: No space left on device")
        return real(path, text)

    monkeypatch.setattr(scaffold, "write_atomic", full)
    with pytest.raises(WriteFailed, match="No space left"):
        scaffold.new(book, "delta_rays", "one")
    assert tree(book.root) == before
    assert not (book.package_dir / "papers" / "delta_rays").exists()
    monkeypatch.undo()
    assert len(scaffold.new(book, "delta_rays", "one")) == len(PLACES)


TOC = """\
# The one list.
format: jb-book
root: book/index
parts:
  - caption: Learning systems  # last part
    numbered: 1
    chapters:
      - file: book/learning/private_hpo  # first
        sections:
          - file: book/learning/more
      # - file: book/learning/self_play
  - caption: Appendix
    chapters:
      - file: book/appendix/api
"""


def test_a_chapter_goes_behind_the_last_of_its_part_and_comments_stay():
    text = scaffold._listed(TOC, "book/learning/delta", "learning")
    added = [line for line in text.splitlines() if line not in TOC.splitlines()]
    assert added == ["      - file: book/learning/delta"]
    assert [line for line in text.splitlines() if line not in added] == TOC.splitlines()
    part = yaml.safe_load(text)["parts"][0]
    assert [entry["file"] for entry in part["chapters"]] == [
        "book/learning/private_hpo",
        "book/learning/delta",
    ]
    assert part["chapters"][0]["sections"] == [{"file": "book/learning/more"}]


def test_the_first_chapter_of_a_part_brings_the_part_before_the_appendix():
    parts = yaml.safe_load(scaffold._listed(TOC, "book/language/aqlm", "language"))["parts"]
    assert [part["caption"] for part in parts] == ["Learning systems", "Language models", "Appendix"]
    assert parts[1] == {
        "caption": "Language models",
        "numbered": 1,
        "chapters": [{"file": "book/language/aqlm"}],
    }


def test_a_table_of_contents_without_parts_and_one_in_flow_style():
    bare = scaffold._listed("format: jb-book\nroot: book/index\n", "book/own/delta", "own")
    assert yaml.safe_load(bare)["parts"][0]["chapters"] == [{"file": "book/own/delta"}]
    flow = scaffold._listed(textwrap.dedent(toybook.FILES["_toc.yml"]), "book/two/delta", "two")
    assert "[{file: book/two/beta}, {file: book/two/delta}]" in flow


def test_a_table_of_contents_that_cannot_be_added_to(book):
    toc = book.root / "_toc.yml"
    toc.write_text(
        "{format: jb-book, root: book/index, parts: [{caption: A, chapters: [{file: book/one/alpha, title: x}]}]}\n"
    )
    before = tree(book.root)
    with pytest.raises(BookError, match="by hand"):
        scaffold.new(Book.load(book.root), "delta", "one")
    assert tree(book.root) == before
