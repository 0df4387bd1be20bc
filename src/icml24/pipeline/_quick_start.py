"""Imports nbformat without the slowest thing it can bring: two seconds saved at the start of each command.

nbformat imports jsonschema, which imports ``rfc3987_syntax`` where it finds it (Jupyter's
server installs it) to check internationalised addresses; that package compiles a
grammar on import. Notebooks hold no such addresses, and jsonschema does without it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

__all__: list[str] = []


@contextlib.contextmanager
def _absent(name: str) -> Iterator[None]:
    """Let imports of `name` fail for a while, unless it has been imported already."""
    modules: dict[str, Any] = sys.modules
    hidden = name not in modules
    if hidden:
        modules[name] = None
    try:
        yield
    finally:
        if hidden:
            del modules[name]


with _absent("rfc3987_syntax"):
    import nbformat as _nbformat  # noqa: F401
