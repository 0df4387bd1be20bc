"""One chapter over a grid of parameters, and the measured values of its claims in one table."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from icml24 import ledger
from icml24.pipeline import parameters
from icml24.pipeline.book import Book, check_profile
from icml24.pipeline.errors import BadParameter, BookError
from icml24.pipeline.files import write_atomic
from icml24.pipeline.runner import Job, Listener, Outcome, run_jobs

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sweep", "grid", "sweep"]


@dataclass(frozen=True)
class Sweep:
    """Result of a sweep: a row per point of the grid, and the files that hold it.

    Attributes
    ----------
    table : DataFrame
        The swept parameters; ``status``, ``seconds``, ``peak_mb``, ``error``; for each
        claim a column of its measured value (``C1``, or ``C1.name`` for each part of a
        mapping), its interval where there is one, and ``C1 verdict``.
    csv, parquet : Path
    outcomes : tuple of Outcome
    """

    table: pd.DataFrame
    csv: Path
    parquet: Path
    outcomes: tuple[Outcome, ...]


def grid(
    book: Book, slug: str, axes: Iterable[tuple[str, str]], profile: str = "quick"
) -> list[dict[str, Any]]:
    """Points of a grid as complete parameter values of the swept names, in reading order.

    Parameters
    ----------
    axes : iterable of (str, str)
        Name and ``V1,V2,…``; commas inside brackets and quotes do not separate.

    Raises
    ------
    UnknownChapter, UnknownParameter, BadParameter
        Everything is checked before any point runs.
    """
    chapter = book.chapter(slug)
    check_profile(profile)
    columns: dict[str, list[Any]] = {}
    for name, text in axes:
        if name in columns:
            raise BadParameter(
                f"parameter {name!r} is swept twice; give all its values at once: -p {name} V1,V2."
            )
        values = []
        for word in parameters.split_values(text):
            checked = parameters.parse(chapter, [(name, word)])
            values.append(checked.get(name, parameters.declared(chapter)[name].default))
        columns[name] = values
    if not columns:
        raise BookError(
            "a sweep needs at least one parameter: -p NAME V1,V2,… (`icml24 list SLUG` shows them)."
        )
    return [dict(zip(columns, point, strict=True)) for point in itertools.product(*columns.values())]


def sweep(
    book: Book,
    slug: str,
    axes: Sequence[tuple[str, str]],
    profile: str = "quick",
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    force: bool = False,
    memory_mb: float | None = None,
    on_event: Listener | None = None,
    output: str | None = None,
) -> Sweep:
    """Run a chapter at every point of a grid and collect what its ledger measured.

    Points are ordinary runs with ``-p``: each is stored, and taken from the store when
    nothing changed. Parameters are as in `runner.run` and `grid`. A point that fails
    keeps its row, with the error.
    """
    points = grid(book, slug, axes, profile)
    chapter = book.chapter(slug)
    work = [Job(chapter, profile, parameters.check(chapter, point)) for point in points]
    outcomes = run_jobs(
        book,
        work,
        jobs=jobs,
        executor=executor,
        force=force,
        memory_mb=memory_mb,
        on_event=on_event,
        output=output,
    )
    table = _table(points, outcomes)
    name = f"{slug}-{profile}-{parameters.overrides_hash(dict(axes))}"
    csv, parquet = (book.build / "sweeps" / f"{name}.{suffix}" for suffix in ("csv", "parquet"))
    write_atomic(csv, table.to_csv(index=False))
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    write_atomic(parquet, buffer.getvalue())
    return Sweep(table, csv, parquet, tuple(outcomes))


def _table(points: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for point, outcome in zip(points, outcomes, strict=True):
        row = {name: _cell(value) for name, value in point.items()}
        row |= {"status": outcome.status, "seconds": outcome.seconds, "peak_mb": outcome.peak_mb}
        row["error"] = outcome.error or None
        if outcome.ok and outcome.path is not None:
            row |= _measured(nbformat.read(outcome.path, as_version=4))
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(value: Any) -> Any:
    """Value that a column can hold; lists and the like as JSON."""
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def _measured(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for row in ledger.rows_in(notebook):
        name, measured = row["id"], row["measured"]
        if isinstance(measured, Mapping):
            columns |= {f"{name}.{part}": value for part, value in measured.items()}
        else:
            columns[name] = measured
        columns |= {f"{name} {end}": row[end] for end in ("low", "high") if row.get(end) is not None}
        columns[f"{name} verdict"] = row["verdict"]
    return columns
