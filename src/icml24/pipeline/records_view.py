"""The recorded full run of a chapter, as the pages show it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError

__all__ = ["Record", "load"]


@dataclass(frozen=True)
class Record:
    """Ledger rows of a full run, the provenance stamped by that run, and the hashes of the data it saw."""

    rows: list[dict[str, Any]]
    provenance: Mapping[str, Any]
    data: Mapping[str, str] = field(default_factory=dict)


def load(book: Book, slug: str) -> Record | None:
    """Return the record of a chapter, or None while no full run has been recorded.

    Raises
    ------
    BookError
        The file is no JSON, or holds no ledger rows.
    """
    path = book.record(slug)
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        rows = held["rows"]
        if not isinstance(rows, list) or not all("id" in row and "verdict" in row for row in rows):
            raise TypeError("its rows are no ledger rows")
    except (ValueError, KeyError, TypeError) as error:
        raise BookError(
            f"{path.relative_to(book.root)} is not the record of a full run ({error}). Expected JSON with "
            f"`rows`; `icml24 run {slug} --profile full --force` writes it anew."
        ) from error
    return Record(rows, held.get("provenance", {}), held.get("data", {}))
