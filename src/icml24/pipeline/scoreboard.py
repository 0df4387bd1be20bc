"""Fragments of the landing page: which claims held up, and a picture from every chapter."""

from __future__ import annotations

import base64
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import nbformat

from icml24 import ledger
from icml24.pipeline.book import Chapter
from icml24.pipeline.markup import href, one_block, verdict_class
from icml24.pipeline.pages import ledger_anchor
from icml24.pipeline.records_view import Record

__all__ = ["Entry", "Picture", "first_figure", "gallery", "picture_path", "scoreboard"]


@dataclass(frozen=True)
class Picture:
    """A PNG with the words that stand for it."""

    data: bytes
    alt: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, from the file's header."""
        width, height = struct.unpack(">II", self.data[16:24])
        return width, height


@dataclass(frozen=True)
class Entry:
    """One chapter as the landing page shows it."""

    chapter: Chapter
    rows: Sequence[Mapping[str, Any]]
    record: Record | None
    picture: Picture | None


def first_figure(notebook: nbformat.NotebookNode) -> Picture | None:
    """First PNG of an executed notebook, those declared as figures (with alt text) before all others."""
    plain: Picture | None = None
    for cell in notebook.cells:
        options = cell.metadata.get("mystnb", {})
        for output in cell.get("outputs", ()):
            png = output.get("data", {}).get("image/png")
            if not png:
                continue
            alt = options.get("image", {}).get("alt") or ""
            caption = options.get("figure", {}).get("caption") or ""
            picture = Picture(base64.b64decode("".join(png)), " ".join((alt or caption).split()))
            if options.get("figure"):
                return picture
            plain = plain or picture
    return plain


def picture_path(slug: str) -> str:
    """Path of a chapter's picture from the site's root."""
    return f"figures/{slug}.png"


def scoreboard(docname: str, entries: Iterable[Entry]) -> str:
    """Table papers x claims with a chip a claim, then each paper's claims, live beside recorded.

    Parameters
    ----------
    docname : str
        Page that includes the fragment; links are relative to it.
    entries : iterable of Entry
        One a chapter, in the book's order.
    """
    entries = list(entries)
    if not entries:
        return "*No chapter has been published yet.*\n"
    total = Counter(row["verdict"] for entry in entries for row in entry.rows)
    lines = [
        '<p class="legend">Verdicts: '
        + " ".join(f'<span class="total">{_badge(name)} {total[name]}</span>' for name in ledger.VERDICTS)
        + "</p>",
        '<div class="table-scroll" role="region" tabindex="0" aria-label="Claims of every paper">',
        '<table class="scoreboard"><caption>Claims of every paper, in the live run and in the recorded '
        "full run. Each chip leads to the chapter's ledger.</caption>",
        '<thead><tr><th scope="col">Paper</th><th scope="col">Reproduced</th><th scope="col">Live claims</th>'
        '<th scope="col">Full run</th></tr></thead><tbody>',
        *(_paper(docname, entry) for entry in entries),
        "</tbody></table></div>",
        *(_claims(docname, entry) for entry in entries),
    ]
    return one_block(lines)


def gallery(docname: str, entries: Iterable[Entry]) -> str:
    """Card a chapter: its first figure, title, part, and how many claims held up."""
    cards = [_card(docname, entry) for entry in entries]
    if not cards:
        return "*No chapter has been published yet.*\n"
    return one_block(['<div class="gallery">', *cards, "</div>"])


def _badge(verdict: str) -> str:
    return f'<span class="verdict verdict-{verdict_class(verdict)}">{escape(verdict)}</span>'


def _page(docname: str, chapter: Chapter, anchor: str = "") -> str:
    return href(docname, f"{chapter.docname}.html") + (f"#{anchor}" if anchor else "")


def _paper(docname: str, entry: Entry) -> str:
    chapter = entry.chapter
    return (
        f'<tr><th scope="row"><a href="{_page(docname, chapter)}">{escape(chapter.title)}</a></th>'
        f"<td>{_count(entry.rows)}</td><td>{_chips(docname, entry, entry.rows)}</td>"
        f"<td>{_chips(docname, entry, entry.record.rows) if entry.record else 'not recorded'}</td></tr>"
    )


def _count(rows: Sequence[Mapping[str, Any]]) -> str:
    held = sum(row["verdict"] == "reproduced" for row in rows)
    tested = sum(row["verdict"] != "not testable here" for row in rows)
    return f"{held} of {tested} tested"


_MARKS = dict(zip(ledger.VERDICTS, ("✓", "↗", "✗", "–"), strict=True))


def _chips(docname: str, entry: Entry, rows: Iterable[Mapping[str, Any]]) -> str:
    target = _page(docname, entry.chapter, ledger_anchor(entry.chapter.slug))
    return " ".join(
        f'<a class="chip {verdict_class(row["verdict"])}" href="{target}" title="{escape(row["statement"])}">'
        f'<span aria-hidden="true">{_MARKS.get(row["verdict"], "")}</span> {escape(row["id"])}'
        f'<span class="visually-hidden"> {escape(row["verdict"])}</span></a>'
        for row in rows
    )


def _claims(docname: str, entry: Entry) -> str:
    """Folded table of one paper: claim, paper, live value and verdict, recorded value and verdict."""
    recorded = {row["id"]: row for row in entry.record.rows} if entry.record else {}
    target = _page(docname, entry.chapter, ledger_anchor(entry.chapter.slug))
    rows = "".join(
        f'<tr><th scope="row"><a href="{target}">{escape(row["id"])}</a> {escape(row["statement"])}</th>'
        f"<td>{escape(row['paper_value'])}</td>{_value(row)}{_value(recorded.get(row['id']))}</tr>\n"
        for row in entry.rows
    )
    title = escape(entry.chapter.title)
    return (
        f'<details class="claims"><summary>{title} <span class="count">({_count(entry.rows)})</span></summary>\n'
        f'<div class="table-scroll" role="region" tabindex="0" aria-label="Claims of {title}">'
        '<table class="scoreboard"><thead><tr><th scope="col">Claim</th><th scope="col">Paper</th>'
        '<th scope="col">Live</th><th scope="col">Full run</th></tr></thead><tbody>\n'
        f"{rows}</tbody></table></div></details>"
    )


def _value(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "<td>not recorded</td>"
    reason = f"<br><small>{escape(row['reason'])}</small>" if row.get("reason") else ""
    return f"<td>{escape(row['text'])}<br>{_badge(row['verdict'])}{reason}</td>"


def _card(docname: str, entry: Entry) -> str:
    chapter, picture = entry.chapter, entry.picture
    if picture is None:
        image = '<p class="no-figure">no figure</p>'
    else:
        width, height = picture.size
        image = (
            f'<img src="{href(docname, picture_path(chapter.slug))}" alt="{escape(picture.alt, quote=True)}" '
            f'width="{width}" height="{height}">'
        )
    return (
        f'<div class="entry">{image}\n<div class="words">'
        f'<p class="name"><a href="{_page(docname, chapter)}">{escape(chapter.title)}</a></p>'
        f'<p class="part">{escape(chapter.part_title)}</p>'
        f"<p>Reproduced: {_count(entry.rows)} claims</p></div></div>"
    )
