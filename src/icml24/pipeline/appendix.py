"""Generated fragments and pages of the appendix: equations, errata, data sets, benchmarks, API reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icml24 import datasets, ledger
from icml24.pipeline._page import Page
from icml24.pipeline.book import Book, Chapter
from icml24.pipeline.equations import EquationTest, labels_in, tests_by_label
from icml24.pipeline.errors import BookError
from icml24.pipeline.markup import escape_markdown, list_table

__all__ = ["API", "api_pages", "benchmark_tables", "data_sets", "equation_table", "errata"]

#: Page of the table of contents below which the generated API pages are hung.
API = "book/appendix/api"


def equation_table(book: Book) -> str:
    """Every labelled equation of the chapters: a link to it, what each of its tests checks, and where."""
    tests = tests_by_label(book)
    parts, labels, checked = [], 0, 0
    for chapter in book.chapters:
        own = list(dict.fromkeys(labels_in(chapter.source.read_text(encoding="utf-8"))))
        if not own:
            continue
        labels += len(own)
        checked += sum(label in tests for label in own)
        rows = [[f"{{eq}}`{label}`", f"`{label}`", _says(book, tests.get(label, []))] for label in own]
        title = escape_markdown(chapter.title)
        parts += [
            f"## {title}",
            "",
            list_table(["Equation", "Label", "What its tests check"], rows, "10 30 60"),
        ]
    if not labels:
        return "No chapter has a labelled equation yet.\n"
    return "\n".join([f"{checked} of {labels} labelled equations have at least one test.", "", *parts])


def errata(book: Book) -> str:
    """The errata section of every chapter, in its own words, behind a link to where it stands.

    Code, figures and displayed equations stay on the chapter's page, and so do labels: they may
    stand once only.
    """
    parts = []
    for chapter in book.chapters:
        text = _section(Page.read(book, chapter), f"errata-{chapter.slug}")
        if text:
            where = f"{{ref}}`In the chapter <errata-{chapter.slug}>`"
            parts += [f"## {escape_markdown(chapter.title)}", "", where, "", text, ""]
    return "\n".join(parts) if parts else "No chapter has errata yet.\n"


def data_sets(book: Book) -> str:
    """Every registered data set of the book's chapters, and what runs without it."""
    parts = []
    for data in datasets.REGISTRY.values():
        if data.slug not in book.slugs:
            continue
        chapter = book.chapter(data.slug)
        facts = [
            ["Chapter", f"[{escape_markdown(chapter.title)}](/{chapter.docname})"],
            ["Source", escape_markdown(data.source)],
            ["Licence", escape_markdown(data.licence)],
            ["How to get it", _how_to_get(data)],
            ["Without it", _without(book, chapter, data)],
            ["Note", escape_markdown(data.note)],
        ]
        files = [
            [
                f"`{file.name}`",
                _size(file.size),
                f"`{file.sha256}`",
                "public address" if file.url else "supplied",
            ]
            for file in data.files
        ]
        parts += [
            f"## {escape_markdown(data.title)}",
            "",
            list_table(["Name", f"`{data.name}`"], facts, "15 85"),
            list_table(["File", "Size", "SHA-256", "Where from"], files),
        ]
    return "\n".join(parts) if parts else "No chapter of this book needs an original data set.\n"


def benchmark_tables(book: Book) -> str:
    """Every stored benchmark (``bench/results/*.json``), ours beside the peer.

    Raises
    ------
    BookError
        A results file is no JSON, or lacks a key of the schema.
    """
    parts = []
    for path in sorted((book.root / "bench" / "results").glob("*.json")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            parts.append(_benchmark(held))
        except (ValueError, KeyError, TypeError) as error:
            raise BookError(
                f"{path.relative_to(book.root)} is no benchmark result ({error!r}). Expected the keys name, title, "
                "peer, rows, versions, threads, machine and date; run its benchmark again."
            ) from error
    return "\n".join(parts) if parts else "No benchmark has been run yet: `make bench` fills this page.\n"


def api_pages(book: Book) -> dict[str, str]:
    """Text of one reference page a package, by docname: every chapter's paper, then what they share."""
    pages = {}
    for chapter in book.chapters:
        module = f"{book.package}.papers.{chapter.slug}"
        if (book.package_dir / "papers" / chapter.slug / "__init__.py").is_file():
            intro = f"Public functions of the chapter [{escape_markdown(chapter.title)}](/{chapter.docname})."
            pages[f"{API}/{chapter.slug}"] = _api_page(f"papers.{chapter.slug}", intro, [module])
    shared = [
        f"{book.package}.common.{path.stem}"
        for path in sorted((book.package_dir / "common").glob("*.py"))
        if not path.stem.startswith("_")
    ]
    shared += [f"{book.package}.{name}" for name in ("ledger", "datasets") if _is_module(book, name)]
    if shared:
        pages[f"{API}/common"] = _api_page("Shared modules", "What two papers or more need.", shared)
    return pages


def _section(page: Page, label: str) -> str:
    """Prose of the section with a label, up to the next heading of its level."""
    start = next((heading for heading in page.headings if heading.label == label), None)
    if start is None:
        return ""
    end = next(
        (h.line for h in page.headings if h.line > start.line and h.level <= start.level),
        len(page.text.splitlines()) + 1,
    )
    lines: list[str] = []
    previous = start.line
    for line, text in page.prose:
        if start.line < line < end:
            if line > previous + 1:
                lines.append("")  # a block of the chapter stood between the two
            lines.append(text)
            previous = line
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _says(book: Book, tests: Iterable[EquationTest]) -> str:
    """Return one cell: what each test checks; tests of one file stand behind its name."""
    by_file: dict[str, list[str]] = {}
    for test in tests:
        name = test.path.relative_to(book.root).as_posix()
        by_file.setdefault(name, []).append(escape_markdown(test.says).rstrip("."))
    if not by_file:
        return "**no test**"
    return " ".join(f"{'; '.join(dict.fromkeys(says))} (`{name}`)." for name, says in by_file.items())


def _how_to_get(data: datasets.DataSet) -> str:
    supplied = [file.name for file in data.files if not file.url and not file.variant_of]
    parts = []
    if any(file.url for file in data.files):
        parts.append(f"`icml24 data fetch {data.name}` downloads what has a public address.")
    if supplied:
        names = ", ".join(f"`{name}`" for name in supplied)
        parts.append(f"Put {names} into `$ICML24_DATA/{data.slug}/`.")
    return " ".join(parts)


def _without(book: Book, chapter: Chapter, data: datasets.DataSet) -> str:
    path = book.package_dir / "papers" / chapter.slug / "claims.toml"
    claims = ledger.read_claims(path) if path.is_file() else ()
    bound = [claim.id for claim in claims if claim.dataset and claim.dataset.split("/")[0] == data.name]
    everything = "the chapter runs on its documented default data"
    if not bound:
        return f"{everything.capitalize()}, and every claim is tested."
    which = f"claim {bound[0]} reads" if len(bound) == 1 else f"claims {', '.join(bound)} read"
    return f"{everything.capitalize()}; {which} *not testable here*, the other {len(claims) - len(bound)} do not need it."


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(size / 1e3, 0.1):.1f} kB"


def _benchmark(held: Mapping[str, Any]) -> str:
    rows = [
        [
            escape_markdown(row["what"]),
            f"{_figure(row['ours'])} {row['unit']}",
            f"{_figure(row['peer'])} {row['unit']}",
            f"{row['ratio']:.2f} \\[{row['low']:.2f}, {row['high']:.2f}\\]",
        ]
        for row in held["rows"]
    ]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(held["versions"].items()))
    threads = (
        f"{held['threads']} thread{'s' if held['threads'] != 1 else ''}"
        if held["threads"]
        else "threads not set"
    )
    return "\n".join(
        [
            f"## {escape_markdown(held['title'])}",
            "",
            list_table(["What", "Ours", escape_markdown(held["peer"]), "Peer / ours"], rows),
            f"{escape_markdown(held['machine'])}; {threads}; {held['date']}; {escape_markdown(versions)}.",
            "",
        ]
    )


def _figure(value: float) -> str:
    """Three significant digits, without an exponent for large values."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _api_page(title: str, intro: str, modules: list[str]) -> str:
    lines = [f"# {escape_markdown(title)}", "", intro, ""]
    for module in modules:
        lines += [f"## `{module}`", ""] if len(modules) > 1 else [f"Module `{module}`.", ""]
        lines += ["```{eval-rst}", f".. automodule:: {module}", "   :members:", "```", ""]
    return "\n".join(lines)


def _is_module(book: Book, name: str) -> bool:
    path: Path = book.package_dir / name
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
