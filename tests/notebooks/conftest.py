"""nbval over the references: text is compared, in the environment in which the references were made."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from icml24.pipeline.bless import kernel_environment
from icml24.pipeline.book import Book

#: Forms of an output that a reference does not hold. A form that the run shows and the
#: reference lacks would fail the cell otherwise; pictures nbval leaves out by itself.
NOT_COMPARED = (
    "text/html",
    "text/latex",
    "text/markdown",
    "image/svg+xml",
    "stderr",
    "application/json",
    "application/javascript",
    "application/vnd.icml24.ledger+json",
    "application/papermill.record/text/plain",
    "application/papermill.record/text/html",
    "application/papermill.record/image/png",
)


def pytest_collectstart(collector: pytest.Collector) -> None:
    if not hasattr(collector, "skip_compare"):
        return
    collector.skip_compare += NOT_COMPARED
    start = collector.setup

    def setup() -> None:
        with mock.patch.dict(os.environ, _environment()):
            start()

    collector.setup = setup


def _environment() -> dict[str, str]:
    folders = [Path(__file__).parent, *Path(__file__).parents]
    root = next(folder for folder in folders if (folder / "_toc.yml").is_file())
    return kernel_environment(Book.load(root))
