"""Reference notebooks: what a chapter prints on a machine without any original data.

A reference holds the chapter's code cells and the text they printed, nothing else: no
pictures, no HTML, no clock. nbval runs it again and compares. Prose is not in it, so a
corrected sentence leaves it as it is, and equal runs give equal bytes.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from icml24.pipeline import parameters
from icml24.pipeline.book import KERNELSPEC, Book, Chapter
from icml24.pipeline.errors import ChapterFailed
from icml24.pipeline.execute import Task, execute
from icml24.pipeline.files import write_atomic
from icml24.pipeline.kernels import kernel_spec, kill_kernels
from icml24.pipeline.memory import DEFAULT_LIMIT_MB

__all__ = ["bless", "compared_cells", "differences", "kernel_environment", "reference_of"]

PROFILE = "quick"
SANITIZE = "sanitize.cfg"

#: Tags that change what nbval does; no other tag matters to a reference.
_TAGS = re.compile(r"nbval-.*|raises-exception")
_IGNORED = {"nbval-ignore-output", "nbval-skip"}
_COMMENT = re.compile(r"^\s*#+\s*(NBVAL_IGNORE_OUTPUT|PYTEST_VALIDATE_IGNORE_OUTPUT|NBVAL_SKIP)\s*$", re.M)


def bless(book: Book, slug: str) -> Path:
    r"""Run a chapter at quick, without original data, and keep what it printed as its reference.

    Parameters
    ----------
    book : Book
    slug : str

    Returns
    -------
    Path
        ``tests/notebooks/<slug>.ipynb``; not touched when the same bytes came out again.

    Raises
    ------
    UnknownChapter
        ``_toc.yml`` lists no such chapter.
    ChapterFailed
        A cell raised or the kernel died; the old reference stays as it was.
    """
    chapter = book.chapter(slug)
    executed = _execute(book, chapter)
    path = book.reference(slug)
    reference = reference_of(executed, slug, _patterns(path.with_name(SANITIZE)))
    write_atomic(path, nbformat.writes(reference) + "\n")
    return path


def reference_of(
    executed: nbformat.NotebookNode, slug: str, patterns: Mapping[str, str] | None = None
) -> nbformat.NotebookNode:
    """Reduce an executed notebook to what a reference holds.

    Parameters
    ----------
    executed : NotebookNode
        It is not changed.
    slug : str
        Prefix of the cell ids, whose number is that of nbval's ``Cell N``.
    patterns : mapping of regular expression to replacement, optional
        Applied to every text, as nbval does with its sanitizing file.
    """
    cells: list[nbformat.NotebookNode] = []
    for cell in executed.cells:
        if cell.cell_type != "code":
            continue
        tags = [tag for tag in cell.metadata.get("tags", []) if _TAGS.fullmatch(tag)]
        kept = nbformat.v4.new_code_cell(
            cell.source,
            id=f"{slug[:60]}-{len(cells):03d}",
            metadata={"tags": tags} if tags else {},
            execution_count=len(cells) + 1,
        )
        if not _is_ignored(kept):
            kept.outputs = list(_texts(cell, kept.execution_count, patterns or {}))
        cells.append(kept)
    metadata = {"kernelspec": dict(KERNELSPEC), "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def differences(chapter: Chapter, reference: nbformat.NotebookNode) -> list[str]:
    """Say where a reference's code, or a tag that nbval obeys, is not the chapter's; empty when nowhere."""
    theirs = [cell for cell in reference.cells if cell.cell_type == "code"]
    ours = [cell for cell in chapter.notebook().cells if cell.cell_type == "code"]
    if len(theirs) != len(ours):
        return [f"the reference of {chapter.slug} has {len(theirs)} code cells, its chapter {len(ours)}"]
    found = []
    for index, (old, new) in enumerate(zip(theirs, ours, strict=True)):
        if old.source != new.source:
            found.append(
                f"code cell {index} of {chapter.slug} differs from its reference: {_first(new.source)}"
            )
        elif _nbval_tags(old) != _nbval_tags(new):
            found.append(
                f"code cell {index} of {chapter.slug} has the tags {sorted(_nbval_tags(new))} for nbval, "
                f"its reference {sorted(_nbval_tags(old))}"
            )
    return found


def compared_cells(reference: nbformat.NotebookNode) -> list[int]:
    """Numbers (nbval's, code cells from 0) of the cells whose stored text a fresh run must repeat.

    A cell that nbval runs without comparing does not count: one without an execution count,
    one told to ignore its output, or one that stored no text but a figure's ``<Figure …>``.
    """
    code = [cell for cell in reference.cells if cell.cell_type == "code"]
    return [
        index
        for index, cell in enumerate(code)
        if cell.execution_count is not None and not _is_ignored(cell) and _has_text(cell)
    ]


def kernel_environment(book: Book) -> dict[str, str]:
    """Environment in which references are made and compared: the book's kernels', and no original data."""
    spec: dict[str, str] = kernel_spec(book.root, book.package)["env"]
    return {**spec, "ICML24_DATA": "", "ICML24_CACHE": os.devnull}


def _execute(book: Book, chapter: Chapter) -> nbformat.NotebookNode:
    token = uuid.uuid4().hex
    task = Task(
        name=f"bless {chapter.slug}",
        slug=chapter.slug,
        root=str(book.root),
        package=book.package,
        source=nbformat.writes(chapter.notebook()),
        parameters=parameters.injected(PROFILE, {}),
        memory_mb=DEFAULT_LIMIT_MB[PROFILE],
        token=token,
    )
    try:
        with _environment(kernel_environment(book)):
            result = execute(task)
    except BaseException:
        kill_kernels(token)
        raise
    if not result.ok:
        raise ChapterFailed(
            f"chapter {chapter.slug} cannot be blessed: cell {result.cell} failed with {result.error}. "
            f"Expected a whole run at {PROFILE} without ICML24_DATA; its old reference was not touched. "
            f"`env -u ICML24_DATA icml24 run {chapter.slug} --force` keeps the notebook as far as it gets."
        )
    return nbformat.reads(result.text, as_version=4)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change this process's environment for a while; kernels inherit it."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _texts(
    cell: nbformat.NotebookNode, count: int, patterns: Mapping[str, str]
) -> Iterator[nbformat.NotebookNode]:
    """Outputs of a cell reduced to text: what it printed, and the plain form of what it displayed."""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield nbformat.v4.new_output(
                "stream", name="stdout", text=_sanitize("".join(output.text), patterns)
            )
        elif output.output_type in ("display_data", "execute_result") and "text/plain" in output.data:
            data = {"text/plain": _sanitize("".join(output.data["text/plain"]), patterns)}
            extra: dict[str, Any] = (
                {"execution_count": count} if output.output_type == "execute_result" else {}
            )
            yield nbformat.v4.new_output(output.output_type, data=data, **extra)


def _sanitize(text: str, patterns: Mapping[str, str]) -> str:
    for pattern, replacement in patterns.items():
        text = re.sub(pattern, replacement, text)
    return text


def _patterns(path: Path) -> dict[str, str]:
    """Pairs of a sanitizing file, in the format that nbval reads."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    return dict(re.findall(r"^regex: (.*)$\n^replace: (.*)$", text, flags=re.MULTILINE))


def _nbval_tags(cell: nbformat.NotebookNode) -> set[str]:
    return {tag for tag in cell.metadata.get("tags", []) if _TAGS.fullmatch(tag)}


def _is_ignored(cell: nbformat.NotebookNode) -> bool:
    return bool(_nbval_tags(cell) & _IGNORED) or _COMMENT.search(cell.source) is not None


def _has_text(cell: nbformat.NotebookNode) -> bool:
    texts = ["".join(o.get("text") or o.get("data", {}).get("text/plain", "")) for o in cell.outputs]
    return any(text.strip() and not text.startswith("<Figure size") for text in texts)


def _first(source: str) -> str:
    return next((line.strip()[:60] for line in source.splitlines() if line.strip()), "an empty cell")
