"""A new chapter's four places: page, package, tests and claims, laid out for an author to fill.

What is laid out runs, and claims nothing: every claim reads "not testable here" until
there is a measurement, and `icml24 check SLUG` lists what is still missing.
"""

from __future__ import annotations

import contextlib
import keyword
import re
from pathlib import Path
from typing import Any

import yaml

from icml24.pipeline import _templates
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError
from icml24.pipeline.files import write_atomic

__all__ = ["new"]

#: Captions of the parts, for the first chapter of one.
CAPTIONS = {
    "generative": "Generative models",
    "language": "Language models",
    "structure": "Structure and science",
    "learning": "Learning systems",
}


def new(book: Book, slug: str, part: str) -> list[Path]:
    r"""Lay out a chapter and list it in ``_toc.yml``.

    Parameters
    ----------
    book : Book
    slug : str
        Lower-case letters, digits and underscores: it names a Python package.
    part : str
        Folder below ``book/``; a part that the table of contents lacks is added to it.

    Returns
    -------
    list of Path
        The files written, ``_toc.yml`` last.

    Raises
    ------
    BookError
        A name that is no valid one, or a place that is taken already: nothing is
        overwritten, and what was begun is taken back when a file cannot be written.
    """
    for what, name in (("slug", slug), ("part", part)):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            raise BookError(
                f"{what} {name!r} cannot name a Python package; expected lower-case letters, digits and "
                "underscores, a letter first."
            )
    files = _files(book, slug, part)
    taken = [path for path in (*files, book.reference(slug)) if path.exists()]
    if slug in book.slugs or taken:
        listed = ", ".join(path.relative_to(book.root).as_posix() for path in taken) or "_toc.yml lists it"
        raise BookError(
            f"there is a chapter {slug} already ({listed}); nothing was written. Choose another slug."
        )
    toc = book.root / "_toc.yml"
    contents = _listed(toc.read_text(encoding="utf-8"), f"book/{part}/{slug}", part)
    written: list[Path] = []
    try:
        for path, text in (*files.items(), (toc, contents)):
            write_atomic(path, text)
            written.append(path)
    except BaseException:
        for path in set(written) - {toc}:
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()  # only when it is empty
        raise
    return written


def _files(book: Book, slug: str, part: str) -> dict[Path, str]:
    values = {"slug": slug, "package": book.package, "title": slug.replace("_", " ").capitalize()}
    package = book.package_dir / "papers" / slug
    templates = {
        book.root / "book" / part / f"{slug}.md": _templates.CHAPTER,
        package / "__init__.py": _templates.PACKAGE,
        package / "experiments.py": _templates.EXPERIMENTS,
        package / "claims.toml": _templates.CLAIMS,
        book.root / "tests" / "papers" / slug / "test_experiments.py": _templates.TESTS,
    }
    return {path: _templates.fill(text, values) for path, text in templates.items()}


def _listed(toc: str, docname: str, part: str) -> str:
    """Table of contents with the chapter behind the last one of its part; comments stay."""
    lines = toc.splitlines()
    entry = re.compile(rf"(\s*)- file: book/{part}/\w+\s*(#.*)?$")
    own = [i for i, line in enumerate(lines) if entry.match(line)]
    if own:
        indent = min(_indent(lines[i]) for i in own)  # a deeper one is a section of a chapter
        last = max(i for i in own if _indent(lines[i]) == indent)
        end = last + 1
        while end < len(lines) and lines[end].strip() and _indent(lines[end]) > indent:
            end += 1  # sections of that chapter
        lines.insert(end, " " * indent + f"- file: {docname}")
    elif flow := list(re.finditer(rf"\{{\s*file: book/{part}/\w+\s*\}}", toc)):
        cut = flow[-1].end()
        lines = (toc[:cut] + f", {{file: {docname}}}" + toc[cut:]).splitlines()
    else:
        caption = CAPTIONS.get(part, part.replace("_", " ").capitalize())
        place = next((i for i, line in enumerate(lines) if re.match(r"\s*- caption: Appendix\b", line)), None)
        if place is None and not any(line.strip() == "parts:" for line in lines):
            lines.append("parts:")
        block = f"  - caption: {caption}\n    numbered: 1\n    chapters:\n      - file: {docname}"
        lines[len(lines) if place is None else place : len(lines) if place is None else place] = (
            block.splitlines()
        )
    text = "\n".join(lines) + "\n"
    if docname not in _files_in(text) or set(_files_in(toc)) - set(_files_in(text)):
        raise BookError(
            f"_toc.yml is written in a way that no line can be added to; add `- file: {docname}` to its part "
            f"by hand, and lay the files out again. Nothing was written."
        )
    return text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _files_in(text: str) -> list[str]:
    """Every ``file`` of a table of contents; none when it is not valid."""
    try:
        pending: list[Any] = [yaml.safe_load(text)]
    except yaml.YAMLError:
        return []
    found = []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "file" in value:
                found.append(str(value["file"]))
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return found
