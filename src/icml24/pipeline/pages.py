"""A chapter's page: its executed notebook with provenance, downloads and the ledger as readers see it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from html import escape
from typing import Any

import nbformat

from icml24 import ledger
from icml24.pipeline.book import Chapter
from icml24.pipeline.markup import href, one_block
from icml24.pipeline.records_view import Record

__all__ = ["chapter_page", "is_injected", "ledger_anchor", "provenance_html", "split_at_title"]

Links = Mapping[str, str]

#: Metadata that an execution stamps and no page shows; without it, equal results are equal bytes.
_VOLATILE = ("papermill", "execution", "icml24", "language_info", "widgets")


def chapter_page(
    chapter: Chapter,
    notebook: nbformat.NotebookNode,
    *,
    links: Links,
    record: Record | None = None,
    warning: str | None = None,
) -> nbformat.NotebookNode:
    """Notebook to render in place of a chapter's source.

    Parameters
    ----------
    chapter : Chapter
        Where the page stands.
    notebook : NotebookNode
        Executed, with the metadata ``icml24`` that its run stamped. It is not changed.
    links : mapping of str to str
        Label of each download, and its path from the site's root.
    record : Record, optional
        The recorded full run; its verdicts stand beside the live ones.
    warning : str, optional
        Markdown shown in a box at the top, for a page that is not up to date.

    Returns
    -------
    NotebookNode
        The cell of injected parameters is gone (the provenance box lists them), what kind of
        box and where it stands does not depend on the chapter's text.
    """
    page = copy.deepcopy(notebook)
    stamp = dict(page.metadata.get("icml24", {}))
    page.cells = [_shown(cell) for cell in page.cells if not is_injected(cell)]
    for cell in page.cells:
        if cell.cell_type == "code":
            _render_ledger(chapter, cell, record)
    box = provenance_html(chapter, stamp, links, record)
    before, after = split_at_title(page.cells[0].source) if page.cells else ("", "")
    head = [_markdown(chapter, "title", before)] if before else []
    if warning:
        head.append(_markdown(chapter, "warning", f"```{{warning}}\n{warning}\n```"))
    head.append(_markdown(chapter, "provenance", box))
    if before:
        head += [_markdown(chapter, "opening", after)] if after else []
        page.cells = head + page.cells[1:]
    else:
        page.cells = head + page.cells
    page.metadata = {key: value for key, value in page.metadata.items() if key not in _VOLATILE}
    page.metadata = nbformat.from_dict(page.metadata)
    return page


def is_injected(cell: nbformat.NotebookNode) -> bool:
    """Whether Papermill put this cell in, to set parameters."""
    return "injected-parameters" in cell.metadata.get("tags", [])


def ledger_anchor(slug: str) -> str:
    """Id of a chapter's ledger, to link to."""
    return f"ledger-{slug}"


def split_at_title(text: str) -> tuple[str, str]:
    """Split a page's first text behind its title; without a title nothing is before the split.

    Examples
    --------
    >>> split_at_title("(chap-toy)=\\n# Toy\\n\\nOnce upon a time")
    ('(chap-toy)=\\n# Toy', 'Once upon a time')
    """
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if re.match(r"#\s+\S", line):
            return "\n".join(lines[: index + 1]), "\n".join(lines[index + 1 :]).strip("\n")
        if re.match(r"\s*(`{3,}|~{3,}|:{3,})", line):
            break
    return "", text


def provenance_html(chapter: Chapter, stamp: Mapping[str, Any], links: Links, record: Record | None) -> str:
    """One block of HTML: the downloads, and folded below them what produced the page and how to rerun it."""
    anchors = (
        f'<a href="{href(chapter.docname, path)}" download>{escape(label)}</a>'
        for label, path in links.items()
    )
    facts = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>\n'
        for name, value in _facts(stamp, record)
    )
    return one_block(
        [
            '<div class="chapter-meta">',
            f'<p class="downloads">Download: {" ".join(anchors)}</p>',
            '<details class="provenance"><summary>How this page was computed, and how to rerun it</summary>',
            f'<table class="results"><tbody>\n{facts}</tbody></table>',
            '<p class="rerun-title">Rerun this</p>',
            f'<div class="highlight"><pre>{escape(_rerun(chapter.slug, stamp))}</pre></div>',
            "</details>",
            "</div>",
        ]
    )


def _markdown(chapter: Chapter, name: str, source: str) -> nbformat.NotebookNode:
    cell = nbformat.v4.new_markdown_cell(source)
    cell["id"] = f"{chapter.slug[:50]}-{name}"
    return cell


def _shown(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    for key in _VOLATILE:
        cell.metadata.pop(key, None)
    return cell


def _render_ledger(chapter: Chapter, cell: nbformat.NotebookNode, record: Record | None) -> None:
    """Draw the stored rows anew, beside those of the recorded full run."""
    for output in cell.outputs:
        held = output.get("data", {}).get(ledger.MIME)
        if held is None:
            continue
        table = ledger.render_html(held["rows"], record.rows if record else None)
        output["data"] = {"text/html": f'<div id="{ledger_anchor(chapter.slug)}">{table}</div>'}


def _facts(stamp: Mapping[str, Any], record: Record | None) -> list[tuple[str, str]]:
    """Name and HTML of each line of the box, leaving out what the run did not stamp."""
    facts: list[tuple[str, str | None]] = [
        ("Profile", _text(stamp.get("profile"))),
        (
            "Parameters",
            _code(f"{k} = {v!r}" for k, v in stamp.get("parameters", {}).items() if k != "profile"),
        ),
        ("Seed", _text(stamp.get("seed"))),
        ("Executed", _text(_day(stamp.get("started")))),
        ("Commit", _commit(stamp)),
        ("Wall time", _measure(stamp.get("wall_s"), "{:.1f} s")),
        ("Peak memory", _measure(stamp.get("peak_mb"), "{:,.0f} MB")),
        ("Machine", _text(_machine(stamp))),
        ("Data", _data(stamp.get("data", {}))),
        (
            "Versions",
            _code(f"{name} {version}" for name, version in sorted(stamp.get("versions", {}).items())),
        ),
    ]
    if record is not None:
        facts.append(("Full run", _full_run(record)))
    return [(name, value) for name, value in facts if value]


def _text(value: object) -> str | None:
    return None if value is None or value == "" else escape(str(value))


def _code(values: Any) -> str | None:
    return ", ".join(f"<code>{escape(value)}</code>" for value in values) or None


def _measure(value: object, form: str) -> str | None:
    return form.format(value) if isinstance(value, int | float) else None


def _day(started: object) -> str | None:
    return str(started).replace("T", " ")[:16] if started else None


def _commit(stamp: Mapping[str, Any]) -> str | None:
    commit = stamp.get("commit")
    if not commit:
        return None
    dirty = " with uncommitted changes" if stamp.get("dirty") else ""
    return f"<code>{escape(str(commit)[:12])}</code>{dirty}"


def _machine(stamp: Mapping[str, Any]) -> str | None:
    machine, threads = stamp.get("machine", {}), stamp.get("threads")
    parts = [str(machine[key]) for key in ("cpu", "system") if machine.get(key)]
    if machine.get("cores"):
        parts.insert(1 if machine.get("cpu") else 0, f"{machine['cores']} cores")
    if threads:
        parts.append(f"{threads} thread{'s' if threads != 1 else ''} used")
    return ", ".join(parts) or None


def _data(hashes: Mapping[str, str]) -> str:
    if not hashes:
        return "built-in default data; no original data set was used"
    return "<br>".join(
        f"{escape(name)}: <code>sha256 {escape(digest)}</code>" for name, digest in sorted(hashes.items())
    )


def _full_run(record: Record) -> str:
    """When, from which commit and on which data the recorded column of the ledger was computed."""
    stamp = record.provenance
    commit, day = _commit(stamp), _day(stamp.get("started"))
    wall = _measure(stamp.get("wall_s"), "{:,.0f} s")
    parts = filter(None, [day and escape(day), commit and f"commit {commit}", wall, _text(_machine(stamp))])
    return f"{', '.join(parts) or 'recorded'}<br>{_data(record.data)}"


def _rerun(slug: str, stamp: Mapping[str, Any]) -> str:
    """Return commands that repeat this run, change one parameter, and run at full size."""
    overrides = "".join(f" -p {name} {value}" for name, value in stamp.get("overrides", {}).items())
    full = " --profile full" if stamp.get("profile") == "full" else ""
    seed = stamp.get("seed")
    other = seed + 1 if isinstance(seed, int) else 1
    lines = [
        f"icml24 run {slug}{full}{overrides} --force   # this run again",
        f"icml24 run {slug}{full} -p seed {other}   # another seed; any parameter above works the same way",
    ]
    if not full:
        lines.append(f"icml24 run {slug} --profile full   # at the size of the recorded results")
    return "\n".join(lines)
