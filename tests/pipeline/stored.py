"""Executed notebooks written without a kernel: a chapter's cells with outputs given by the test, and its key.

What a run stamps and what the pipeline asks of it is real (`keys.execution_key`); only the
outputs are made up, so that tests of the pages start in milliseconds.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from icml24 import ledger
from icml24.pipeline import keys
from icml24.pipeline.book import Book

STAMP = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
    "versions": {"numpy": "2.4.6", "torch": "2.13.0"},
    "parameters": {"profile": "quick", "seed": 0, "rate": 0.5},
    "overrides": {},
    "seed": 0,
    "threads": 1,
    "wall_s": 12.34,
    "peak_mb": 456.7,
    "machine": {"cpu": "A processor", "cores": 2, "system": "Linux x86_64"},
    "data": {},
    "started": "2026-11-30T15:00:00+00:00",
    "status": "ok",
}

Outputs = Callable[[str], Sequence[Mapping[str, Any]]]


def row(id: str, verdict: str = "reproduced", **fields: Any) -> dict[str, Any]:
    """A ledger row with every field that `ledger.report` stores."""
    plain = {
        "statement": f"Statement of {id}",
        "paper_value": "1.0",
        "source": "abstract",
        "metric": "a metric",
        "test": ">= 1",
        "scale": "a toy",
        "measured": 1.25,
        "text": "1.25",
        "low": None,
        "high": None,
        "reason": "needs the full profile" if verdict == "not testable here" else "",
        "failed": [],
    }
    return {"id": id, "verdict": verdict} | plain | fields


def ledger_output(slug: str, rows: Sequence[Mapping[str, Any]], profile: str = "quick") -> dict[str, Any]:
    """The one output that `ledger.report` displays."""
    return display(ledger.Ledger(slug, profile, rows).mimebundle())


def display(data: Mapping[str, Any]) -> dict[str, Any]:
    """A display_data output."""
    return {"output_type": "display_data", "metadata": {}, "data": dict(data)}


def stream(text: str) -> dict[str, Any]:
    """What a cell printed."""
    return {"output_type": "stream", "name": "stdout", "text": text}


def png(width: int = 320, height: int = 160) -> bytes:
    """A valid grey PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = zlib.compress((b"\0" + b"\xb0" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def picture(width: int = 320, height: int = 160) -> dict[str, Any]:
    """The output of a cell that drew a figure."""
    return display({"image/png": base64.b64encode(png(width, height)).decode(), "text/plain": "<Figure>"})


def store(
    book: Book, slug: str, outputs: Outputs = lambda source: (), profile: str = "quick", **stamp: Any
) -> Path:
    """Write the executed notebook of a chapter, fresh as of now; `outputs` maps a cell's source to its outputs."""
    chapter = book.chapter(slug)
    notebook = chapter.notebook()
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.outputs = [nbformat.from_dict(dict(output)) for output in outputs(cell.source)]
    own = {"slug": slug, "profile": profile, "key": keys.execution_key(book, chapter, profile)}
    notebook.metadata["icml24"] = nbformat.from_dict(STAMP | own | stamp)
    path = book.executed(profile, slug)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
