"""What holds a book together, checked from its sources: nothing is imported, executed or rendered.

Rules about one chapter are in `_rules_text` and `_rules_code`; those about the book as a
whole stand beside them. A rule yields every problem it sees, each with a place and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from icml24.pipeline import _rules_code, _rules_text
from icml24.pipeline._page import Page, Problem, relative
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError

__all__ = ["Problem", "check"]


def check(book: Book, slugs: Iterable[str] | None = None) -> list[Problem]:
    r"""Return every problem of a book, or of some of its chapters.

    Parameters
    ----------
    book : Book
    slugs : iterable of str, optional
        Chapters to check. Without it all of them, and also what belongs to no chapter:
        packages, tests, references and records left over, marks without an equation.

    Returns
    -------
    list of Problem
        In the order of chapters and rules; empty when all is well.

    Raises
    ------
    UnknownChapter
        A slug that ``_toc.yml`` does not list.
    """
    chosen = [book.chapter(slug).slug for slug in slugs] if slugs else list(book.slugs)
    pages = {chapter.slug: Page.read(book, chapter) for chapter in book.chapters}
    unreadable = {slug: problem for slug, page in pages.items() if (problem := _unreadable(page))}
    readable = {slug: page for slug, page in pages.items() if slug not in unreadable}
    problems: list[Problem] = []
    for slug in chosen:
        if slug in unreadable:
            problems.append(unreadable[slug])
            continue
        for rule in (*_rules_text.RULES, *_rules_code.RULES):
            problems += _parsed(rule(pages[slug]), book)
    problems += _rules_text.labels_are_whole(readable, set(chosen) & set(readable))
    if not slugs:
        problems += _parsed(_rules_code.nothing_orphaned(book, pages), book)
    return list(dict.fromkeys(problems))


def _unreadable(page: Page) -> Problem | None:
    """Return the one problem of a source that cannot be read as a notebook at all."""
    try:
        _ = page.notebook
    except BookError as error:
        return Problem(page.where(), str(error), "Nothing else of this chapter was checked.")
    return None


def _parsed(problems: Iterator[Problem], book: Book) -> Iterator[Problem]:
    """Yield problems, and one more when a rule meets a file that is not Python."""
    try:
        yield from problems
    except SyntaxError as error:
        where = relative(Path(error.filename or "?"), book.root)
        yield Problem(
            f"{where}:{error.lineno}",
            f"not Python: {error.msg}",
            "Correct it; what needs this file was not checked.",
        )
