"""What the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from icml24.pipeline.errors import BookError, Interrupted

if TYPE_CHECKING:
    from icml24.pipeline.book import Book
    from icml24.pipeline.runner import Outcome
    from icml24.pipeline.sweep import Sweep

__all__ = [
    "House",
    "as_dicts",
    "cores",
    "err",
    "out",
    "outcomes_as_json",
    "print_json",
    "print_sweep_json",
    "report_failures",
    "show_findings",
    "show_problems",
    "show_sweep",
]

EXIT_AFTER_SIGNAL_S = 5.0

out = Console()
err = Console(stderr=True)


class House(click.Group):
    """Group of commands whose expected errors are messages, and whose signals are exit statuses."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a `BookError` ends with its message alone, a signal with 128 + its number."""
        from icml24 import datasets

        try:
            return super().invoke(ctx)
        except BookError as error:
            _say(str(error))
            raise SystemExit(error.status) from None
        except (datasets.MissingData, datasets.HashMismatch, datasets.FetchFailed) as error:
            _say(str(error))
            raise SystemExit(1) from None
        except Interrupted as error:
            name = signal.Signals(error.signum).name
            _say(
                f"ended by {name}: kernels are gone, finished chapters are kept, nothing is half-written. "
                "The same command resumes."
            )
            _leave_soon(error.status)
            raise SystemExit(error.status) from None
        except KeyboardInterrupt:
            _say("ended by SIGINT; nothing is half-written.")
            raise SystemExit(128 + signal.SIGINT) from None


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def as_dicts(items: Iterable[Any]) -> list[dict[str, Any]]:
    """Dataclasses as dictionaries."""
    return [dataclasses.asdict(item) for item in items]


def outcomes_as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Outcomes of a run, paths as strings."""
    return [item | {"path": item["path"] and str(item["path"])} for item in as_dicts(outcomes)]


def report_failures(book: Book, outcomes: Sequence[Outcome]) -> None:
    """Print the table of failures, if any, and exit with status 1."""
    from icml24.pipeline.progress import failure_table

    failed = [outcome for outcome in outcomes if not outcome.ok]
    if failed:
        err.print(failure_table(failed, book.root))
        raise SystemExit(1)


def show_problems(problems: Sequence[Any]) -> None:
    """Print what `check` found."""
    for problem in problems:
        out.print(
            f"[bold]{escape(problem.where)}[/]: {escape(problem.what)}", highlight=False, soft_wrap=True
        )
        out.print(f"    {escape(problem.fix)}", highlight=False, soft_wrap=True)
    out.print(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}", highlight=False)


def show_findings(findings: Sequence[Any]) -> None:
    """Print what `doctor` found."""
    table = Table("", "what", "found", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(
            "[green]ok[/]" if finding.ok else "[red]no[/]", escape(finding.name), escape(finding.detail)
        )
    out.print(table)


def show_sweep(book: Book, result: Sweep) -> None:
    """Print a sweep's table and where it was written."""
    frame = result.table.drop(columns=["error"])
    table = Table(*(escape(str(name)) for name in frame.columns))
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(f"{value:.4g}" if isinstance(value, float) else str(value)) for value in row))
    out.print(table)
    for path in (result.csv, result.parquet):
        out.print(str(path.relative_to(book.root)), highlight=False, soft_wrap=True)


def print_sweep_json(result: Sweep) -> None:
    """Print a sweep's table and the names of its files as JSON."""
    rows = json.loads(result.table.to_json(orient="records"))
    print_json({"rows": rows, "csv": str(result.csv), "parquet": str(result.parquet)})


def _say(message: str) -> None:
    err.print(f"[bold red]icml24:[/] {escape(message)}", highlight=False, soft_wrap=True)


def _leave_soon(status: int) -> None:
    """Leave even if a thread does not notice that its kernel is gone."""
    timer = threading.Timer(EXIT_AFTER_SIGNAL_S, os._exit, [status])
    timer.daemon = True
    timer.start()
