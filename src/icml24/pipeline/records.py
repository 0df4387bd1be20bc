"""Records of full runs: written by the run itself, committed, shown beside the live results.

A record holds the ledger's rows, where they come from, and which data they saw. Nobody
edits one: what a reader finds there came out of a notebook that ran to its end.
"""

from __future__ import annotations

import json
from typing import Any

import nbformat

from icml24 import ledger
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError
from icml24.pipeline.files import write_atomic
from icml24.pipeline.records_view import Record, load

__all__ = ["Record", "load", "write"]

#: What the record keeps of the notebook's metadata, in this order.
PROVENANCE = (
    "profile",
    "commit",
    "dirty",
    "started",
    "wall_s",
    "peak_mb",
    "machine",
    "threads",
    "seed",
    "parameters",
    "versions",
)


def write(book: Book, slug: str, notebook: nbformat.NotebookNode) -> bool:
    """Write ``book/records/<slug>.json`` from a full run's notebook.

    Parameters
    ----------
    book : Book
    slug : str
    notebook : NotebookNode
        Executed to its end at full without overrides, provenance stamped.

    Returns
    -------
    bool
        False when the record already held exactly this.

    Raises
    ------
    BookError
        The notebook is of another chapter or profile, failed, had parameters overridden,
        or reported no claims; the old record stays.
    """
    stamp = notebook.metadata.get("icml24", {})
    expected = {"slug": slug, "profile": "full", "status": "ok"}
    wrong = [
        f"{key} is {stamp.get(key)!r}, not {value!r}"
        for key, value in expected.items()
        if stamp.get(key) != value
    ]
    if stamp.get("overrides"):
        wrong.append(f"parameters were overridden ({', '.join(sorted(stamp['overrides']))})")
    rows = ledger.rows_in(notebook)
    if not rows:
        wrong.append("it reported no claims")
    if wrong:
        raise BookError(
            f"no record of {slug} was written: {'; '.join(wrong)}. A record comes from a whole run: "
            f"`icml24 run {slug} --profile full`."
        )
    content: dict[str, Any] = {
        "slug": slug,
        "provenance": {key: stamp[key] for key in PROVENANCE if key in stamp},
        "data": dict(sorted(stamp.get("data", {}).items())),
        "rows": rows,
    }
    for key in ("parameters", "versions", "machine"):
        if key in content["provenance"]:
            content["provenance"][key] = dict(sorted(content["provenance"][key].items()))
    return write_atomic(
        book.record(slug), json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
