"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import click

from icml24.pipeline.book import PROFILES
from icml24.pipeline.console import cores

__all__ = ["as_json", "profile", "running"]


def _together(*decorators: Any) -> Any:
    """Several decorators as one."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


profile = click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="quick",
    show_default=True,
    help="quick: a minute or so a chapter on one core. full: as long as the paper's question needs.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
running = _together(
    profile,
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        default=cores,
        help="Chapters side by side, one thread each; results do not depend on it.  [default: all cores]",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Run on a Dask cluster instead: tcp://host:8786."),
    click.option("--force", is_flag=True, help="Run also what has not changed."),
    click.option(
        "--memory-limit",
        type=click.FloatRange(min=1),
        metavar="MB",
        help="End a kernel that takes more.  [default: 1500 for quick, 8000 for full]",
    ),
    click.option(
        "--output",
        metavar="PREFIX",
        help="Write results there as well: a folder, s3://bucket/…, or any address Papermill knows.",
    ),
    as_json,
)
