"""Lay out what jupyter-book renders: executed chapters, plain pages, and everything generated.

`plan` computes every byte of the stage folder, `stage` makes the folder equal to it. A page whose
bytes are the same keeps its time stamp, so that Sphinx reads again only what changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml

from icml24 import ledger
from icml24.pipeline import appendix, downloads, equations, keys, pages, records_view, scoreboard
from icml24.pipeline.book import Book, Chapter, check_profile
from icml24.pipeline.errors import BookError, StaleBook
from icml24.pipeline.markup import escape_markdown
from icml24.pipeline.mirror import Changes, mirror

__all__ = ["Executed", "plan", "select", "stage", "with_text_of_today"]

GENERATED = "book/_generated"
EXTRA = "extra"
BESIDE = ("downloads", "figures")
"""Folders of `EXTRA` that the finished site holds beside its pages."""


@dataclass(frozen=True)
class Executed:
    """A chapter's last good notebook, and its source as one without outputs.

    `stale` says in Markdown why the notebook is not up to date, or is None.
    """

    chapter: Chapter
    notebook: nbformat.NotebookNode
    source: nbformat.NotebookNode
    stale: str | None


def stage(book: Book, profile: str = "quick", allow_stale: bool = False) -> Changes:
    """Make ``_build/stage`` what the book is now.

    Parameters
    ----------
    book : Book
    profile : {"quick", "full"}
        Whose executed notebooks are published.
    allow_stale : bool
        Show the last good run of a chapter that failed or changed, with a warning on top.

    Raises
    ------
    StaleBook
        A chapter is missing, failed or out of date; all of them are named, and the stage is
        left as it was. With `allow_stale`, only a chapter without any good run is an error.
    """
    return mirror(book.stage, plan(book, profile, allow_stale))


def plan(book: Book, profile: str = "quick", allow_stale: bool = False) -> dict[str, bytes]:
    """Content of every file of the stage folder, by relative path (see `stage`)."""
    executed = select(book, profile, allow_stale)
    files = dict(_copied(book))
    menu: dict[str, list[list[str]]] = {}
    entries = []
    for item in executed:
        chapter, links = item.chapter, downloads.links(item.chapter.slug)
        record = records_view.load(book, chapter.slug)
        page = pages.chapter_page(chapter, item.notebook, links=links, record=record, warning=item.stale)
        files[f"{chapter.docname}.ipynb"] = (nbformat.writes(page).rstrip("\n") + "\n").encode()
        for path, data in downloads.chapter_files(book, chapter, item.notebook, item.source).items():
            files[f"{EXTRA}/{path}"] = data
        menu[chapter.docname] = [[label, path] for label, path in links.items()]
        picture = scoreboard.first_figure(item.notebook)
        if picture:
            files[f"{EXTRA}/{scoreboard.picture_path(chapter.slug)}"] = picture.data
        entries.append(scoreboard.Entry(chapter, ledger.rows_in(item.notebook), record, picture))
    toc = _read_toc(book)
    root = str(toc["root"]).removesuffix(".md")
    fragments = {
        "scoreboard": scoreboard.scoreboard(root, entries),
        "gallery": scoreboard.gallery(root, entries),
        "equations": appendix.equation_table(book),
        "errata": appendix.errata(book),
        "datasets": appendix.data_sets(book),
        "benchmarks": appendix.benchmark_tables(book),
    }
    api = appendix.api_pages(book) if appendix.API in set(_documents(toc)) else {}
    files |= {f"{GENERATED}/{name}.md": text.encode() for name, text in fragments.items()}
    files |= {f"{name}.md": text.encode() for name, text in api.items()}
    files["equations.json"] = (json.dumps(_equation_labels(book), indent=1) + "\n").encode()
    files["downloads.json"] = (json.dumps(menu, indent=1) + "\n").encode()
    files["_toc.yml"] = yaml.safe_dump(_with_sections(toc, list(api)), sort_keys=False).encode()
    return files


def select(book: Book, profile: str, allow_stale: bool = False) -> list[Executed]:
    """Return the notebook to publish for every chapter; refuse what is not whole (see `stage`)."""
    check_profile(profile)
    chosen, faults = [], []
    for chapter in book.chapters:
        path = book.executed(profile, chapter.slug)
        fresh = path.is_file() and keys.is_fresh(book, chapter, profile)
        reason = None if fresh else _why(path, profile)
        if reason is None or (allow_stale and path.is_file()):
            source = chapter.notebook()
            notebook = with_text_of_today(source, _read_notebook(path))
            chosen.append(Executed(chapter, notebook, source, reason and _warning(reason, notebook)))
        else:
            faults.append(f"{chapter.slug}: {reason}")
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        what = "has no good run to show" if allow_stale else "is not up to date, so nothing was published"
        help_ = (
            "" if allow_stale else "; `icml24 build --allow-stale` shows the last good run of each, marked"
        )
        raise StaleBook(
            f"the book {what} (profile {profile}):\n{lines}\n"
            f"Run `icml24 run{' --profile full' if profile == 'full' else ''}` first{help_}."
        )
    return chosen


def with_text_of_today(
    source: nbformat.NotebookNode, executed: nbformat.NotebookNode
) -> nbformat.NotebookNode:
    """Return the chapter as its source is now, with the outputs of an executed notebook.

    An edit of prose, tags or captions executes nothing, so a fresh execution may hold an older
    text. Cells are matched by their code, in order; where the code differs (a stale chapter),
    the executed notebook is returned as it is.
    """
    own = [cell for cell in executed.cells if cell.cell_type == "code" and not pages.is_injected(cell)]
    today = copy.deepcopy(source)
    cells = [cell for cell in today.cells if cell.cell_type == "code"]
    if [cell.source for cell in cells] != [cell.source for cell in own]:
        return executed
    for cell, run in zip(cells, own, strict=True):
        cell.outputs, cell.execution_count = run.outputs, run.execution_count
    injected = [cell for cell in executed.cells if pages.is_injected(cell)]
    after = [index for index, cell in enumerate(today.cells) if "parameters" in cell.metadata.get("tags", [])]
    place = after[0] + 1 if after else 0
    today.cells[place:place] = injected
    today.metadata = executed.metadata
    return today


def _why(path: Path, profile: str) -> str:
    """Say why a chapter has no fresh notebook."""
    failed = path.with_name(f"{path.stem}.failed.ipynb")
    if failed.is_file():
        error = _read_notebook(failed).metadata.get("icml24", {}).get("error")
        return f"its last run failed{f' ({_one_line(error)})' if error else ''}"
    if path.is_file():
        return "its code, parameters, data or libraries changed since its last run"
    return f"it has not been run with profile {profile}"


def _one_line(error: Any) -> str:
    if isinstance(error, dict):
        cell = error.get("cell")
        parts = [str(error[key]) for key in ("ename", "evalue") if error.get(key)]
        return ": ".join([*([f"cell {cell}"] if cell is not None else []), *parts])
    return " ".join(str(error).split())


def _warning(reason: str, notebook: nbformat.NotebookNode) -> str:
    started = str(notebook.metadata.get("icml24", {}).get("started", ""))[:10]
    when = f" of {started}" if started else ""
    return (
        f"**This page is not up to date.** It shows the last good run{when}, "
        f"because since then {escape_markdown(reason)}. Text and results may not match."
    )


def _equation_labels(book: Book) -> list[str]:
    """Return the labels that docstrings may link to."""
    texts = (chapter.source.read_text(encoding="utf-8") for chapter in book.chapters)
    return [label for text in texts for label in equations.labels_in(text)]


def _read_notebook(path: Path) -> nbformat.NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        raise BookError(
            f"{path} is not a notebook ({error}). Expected what `icml24 run` writes; run the chapter with --force."
        ) from error


def _read_toc(book: Book) -> dict[str, Any]:
    toc = yaml.safe_load((book.root / "_toc.yml").read_text(encoding="utf-8"))
    if "root" not in toc:
        raise BookError("_toc.yml names no root page; expected `root: book/index`.")
    return dict(toc)


def _entries(toc: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every entry of the table of contents that names a file, at any depth."""
    pending: list[Any] = [toc]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(value)
        elif isinstance(value, dict):
            if "file" in value:
                yield value
            pending += [value[key] for key in ("sections", "chapters", "parts") if value.get(key)]


def _documents(toc: dict[str, Any]) -> list[str]:
    names = [str(toc["root"]), *(str(entry["file"]) for entry in _entries(toc))]
    return [name.removesuffix(".md") for name in names]


def _with_sections(toc: dict[str, Any], sections: Iterable[str]) -> dict[str, Any]:
    """Hang the generated API pages below their page in the table of contents."""
    toc, names = copy.deepcopy(toc), list(sections)
    toc["parts"] = [part for part in toc.get("parts") or [] if part.get("chapters")]
    for entry in _entries(toc):
        if str(entry["file"]).removesuffix(".md") == appendix.API and names:
            entry["sections"] = [{"file": name} for name in names]
    if not toc["parts"]:
        del toc["parts"]
    return toc


def _copied(book: Book) -> Iterator[tuple[str, bytes]]:
    """Yield configuration, plain pages, and whatever else the pages use (styles, pictures, bibliography)."""
    chapters = {chapter.docname for chapter in book.chapters}
    for docname in _documents(_read_toc(book)):
        if docname in chapters:
            continue
        for suffix in (".md", ".rst", ".ipynb"):
            path = book.root / f"{docname}{suffix}"
            if path.is_file():
                yield f"{docname}{suffix}", path.read_bytes()
    config = book.root / "_config.yml"
    if not config.is_file():
        raise BookError(f"{config} is missing; it holds the settings of the site.")
    yield "_config.yml", config.read_bytes()
    for path in sorted((book.root / "book").rglob("*")):
        name = path.relative_to(book.root).as_posix()
        if path.is_file() and _is_material(name):
            yield name, path.read_bytes()


def _is_material(name: str) -> bool:
    """Whether a file below ``book/`` is used by pages rather than being one."""
    skipped = name.startswith("book/records/") or "__pycache__" in name or "/." in name
    return not skipped and not name.endswith((".md", ".rst", ".ipynb"))
