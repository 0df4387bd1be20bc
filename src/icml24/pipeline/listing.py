"""What there is: chapters with their last runs and verdicts, and data sets with their state."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from icml24 import datasets, ledger
from icml24.pipeline import keys, parameters
from icml24.pipeline.book import PROFILES, Book, Chapter
from icml24.pipeline.errors import BookError, nearest

__all__ = [
    "check_data_names",
    "data_entries",
    "entries",
    "show",
    "show_data",
    "show_states",
    "verify",
]


def entries(book: Book, slugs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Chapters as plain dictionaries: where, which parameters, state of each profile's run, verdicts.

    Parameters
    ----------
    slugs : sequence of str
        Only these; empty for all.

    Raises
    ------
    UnknownChapter
        A slug that the book does not have.
    """
    chapters = [book.chapter(slug) for slug in slugs] or book.chapters
    return [_entry(book, chapter) for chapter in chapters]


def show(console: Console, found: Iterable[dict[str, Any]], *, parameters: bool) -> None:
    """Print chapters as a table, and their parameters below when asked."""
    found = list(found)
    table = Table()
    for heading in ("chapter", "title", *PROFILES, "verdicts"):
        table.add_column(heading, no_wrap=heading != "title")
    for entry in found:
        runs = [_run_text(entry["runs"][profile]) for profile in PROFILES]
        counts = "\n".join(f"{count} {verdict}" for verdict, count in entry["verdicts"].items())
        table.add_row(entry["slug"], escape(entry["title"]), *runs, counts)
    console.print(table)
    if not parameters:
        return
    for entry in found:
        table = Table("parameter", "type", "default", "meaning", title=entry["slug"], title_justify="left")
        for item in entry["parameters"]:
            row = (item["name"], item["type"], repr(item["default"]), item["help"])
            table.add_row(*(escape(text) for text in row))
        console.print(table)


def data_entries() -> list[dict[str, Any]]:
    """Registered data sets as plain dictionaries, with the state of each file."""
    found = []
    for name, data in datasets.REGISTRY.items():
        states = {state.file: state.state for state in datasets.verify(name)}
        entry = dataclasses.asdict(data)
        entry["files"] = [{**item, "state": states[item["name"]]} for item in entry["files"]]
        found.append(
            {**entry, "available": datasets.available(name), "how_to_get": datasets.how_to_get(name)}
        )
    return found


def show_data(console: Console, found: Iterable[dict[str, Any]]) -> None:
    """Print data sets as a table of files."""
    for entry in found:
        table = Table("file", "size", "state", title=f"{entry['name']}: {escape(entry['title'])}")
        table.title_justify = "left"
        for item in entry["files"]:
            table.add_row(escape(item["name"]), f"{item['size'] / 1e6:.2f} MB", item["state"])
        console.print(table)
        console.print(f"licence: {escape(entry['licence'])}\n{escape(entry['how_to_get'])}", highlight=False)


def check_data_names(names: Iterable[str]) -> None:
    """Refuse a name that is not in the registry."""
    for name in names:
        if name not in datasets.REGISTRY:
            raise BookError(f"no data set named {name!r}; {nearest(name, datasets.REGISTRY)}")


def verify(names: Sequence[str]) -> list[dict[str, Any]]:
    """State of every file of some data sets (all when none is named), hashed anew."""
    check_data_names(names)
    chosen = names or tuple(datasets.REGISTRY)
    states = [(name, state) for name in chosen for state in datasets.verify(name)]
    return [{"data": name, **dataclasses.asdict(state), "path": _text(state.path)} for name, state in states]


def show_states(console: Console, states: Iterable[dict[str, Any]]) -> None:
    """Print the states that `verify` returned."""
    table = Table("data set", "file", "state", "")
    colours = {"ok": "green", "missing": "yellow", "corrupt": "red"}
    for state in states:
        word = f"[{colours.get(state['state'], 'white')}]{state['state']}[/]"
        table.add_row(state["data"], escape(state["file"]), word, escape(str(state["detail"] or "")))
    console.print(table)


def _entry(book: Book, chapter: Chapter) -> dict[str, Any]:
    paths = {profile: book.executed(profile, chapter.slug) for profile in PROFILES}
    runs = {profile: _run(book, chapter, profile, path) for profile, path in paths.items()}
    best = next(
        (paths[p] for p in reversed(PROFILES) if runs[p]["state"] != "none" and paths[p].is_file()), None
    )
    declared = parameters.declared(chapter).values()
    return {
        "slug": chapter.slug,
        "part": chapter.part,
        "part_title": chapter.part_title,
        "title": chapter.title,
        "source": chapter.source.relative_to(book.root).as_posix(),
        "parameters": [dataclasses.asdict(parameter) for parameter in declared],
        "runs": runs,
        "verdicts": {} if best is None else _verdicts(best),
    }


def _run(book: Book, chapter: Chapter, profile: str, path: Path) -> dict[str, Any]:
    """State of a profile's stored run: ``fresh``, ``stale``, ``failed`` or ``none``."""
    facts = keys.stored_provenance(path)
    kept = {name: facts.get(name) for name in ("started", "wall_s", "peak_mb")} if facts else {}
    if path.with_suffix(".failed.ipynb").is_file():
        return {"state": "failed", **kept}
    if facts is None:
        return {"state": "none"}
    return {"state": "fresh" if keys.is_fresh(book, chapter, profile) else "stale", **kept}


def _run_text(run: dict[str, Any]) -> str:
    colours = {"fresh": "green", "stale": "yellow", "failed": "red"}
    if run["state"] == "none":
        return "–"
    when = f"\n{run['started'][:10]}\n{run['wall_s']:.0f} s" if run.get("started") else ""
    return f"[{colours[run['state']]}]{run['state']}[/]{when}"


def _verdicts(path: Path) -> dict[str, int]:
    rows = ledger.rows_in(json.loads(path.read_bytes()))
    return dict(collections.Counter(row["verdict"] for row in rows))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
