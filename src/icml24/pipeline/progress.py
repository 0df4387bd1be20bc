"""What a run shows while it works: bars on a terminal, one line per finished chapter elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from icml24.pipeline.runner import Event, Listener, Outcome

__all__ = ["failure_table", "following", "stepping"]

_MARKS = {
    "ran": "[green]ran[/]",
    "cached": "[cyan]unchanged[/]",
    "failed": "[red]failed[/]",
    "cancelled": "[yellow]cancelled[/]",
}


@contextlib.contextmanager
def following(console: Console, total: int) -> Iterator[Listener]:
    """Yield a listener for `runner.run` that shows `total` jobs on `console`."""
    if not console.is_terminal:
        yield lambda event: _print_finished(console, event)
        return
    with _bars(console) as progress:
        whole = progress.add_task("chapters", total=total)
        bars: dict[str, TaskID] = {}

        def tell(event: Event) -> None:
            if event.kind == "finished":
                if event.name in bars:
                    progress.remove_task(bars.pop(event.name))
                progress.advance(whole)
                _print_finished(progress.console, event)
            elif event.kind == "cell":
                if event.name not in bars:
                    bars[event.name] = progress.add_task(event.name, total=event.total)
                progress.update(bars[event.name], completed=event.done - 1)

        yield tell


@contextlib.contextmanager
def stepping(console: Console, what: str) -> Iterator[None]:
    """Show that a step of unknown length is going on."""
    if not console.is_terminal:
        yield
        return
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    ) as bar:
        bar.add_task(what, total=None)
        yield


def failure_table(outcomes: Sequence[Outcome], root: object = None) -> Table:
    """Table of what failed: chapter, cell, error, and the notebook kept for debugging."""
    table = Table(title="Chapters that failed", title_justify="left", show_lines=True)
    for heading in ("chapter", "cell", "error", "notebook as far as it got"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        if outcome.ok:
            continue
        kept = "" if outcome.path is None else str(outcome.path)
        if root is not None:
            kept = kept.removeprefix(f"{root}/")
        table.add_row(*(_literal(text) for text in (outcome.name, outcome.cell, outcome.error, kept)))
    return table


def _print_finished(console: Console, event: Event) -> None:
    if event.kind != "finished" or event.outcome is None:
        return
    outcome = event.outcome
    measured = f"{outcome.seconds:7.1f} s {outcome.peak_mb:7.0f} MB" if outcome.ok else ""
    console.print(f"{_MARKS[outcome.status]:>20} {_literal(event.name)} {measured}", highlight=False)


def _literal(text: str) -> str:
    """Text that rich prints as it is, brackets included."""
    return text.replace("[", r"\[")


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
