"""The key of an execution: equal keys mean that running again would compute the same page.

What goes in is what a kernel can see: the code cells, the parameters, the source of
every module that they reach, the files of the reached paper, the data sets found, the
number of threads, Python, and the versions of the locked dependencies. Prose, tags and
captions stay out, so editing them executes nothing.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icml24 import datasets
from icml24.pipeline import parameters
from icml24.pipeline.book import Book, Chapter
from icml24.pipeline.files import sha256_bytes, sha256_file
from icml24.pipeline.reach import Reach, reach

__all__ = [
    "THREADS",
    "execution_key",
    "ingredients",
    "is_current",
    "is_fresh",
    "key_of",
    "locked_versions",
    "reached",
    "stored_provenance",
    "versions_used",
]

SCHEME = 1
"""Raised when the meaning of a key changes, so that no older result is taken for a new one."""
THREADS = 1
HOUSE = "icml24"


def execution_key(
    book: Book, chapter: Chapter, profile: str, overrides: Mapping[str, Any] | None = None
) -> str:
    """Content address of a chapter's execution, 64 hexadecimal digits.

    Parameters
    ----------
    overrides : mapping, optional
        Values given with ``-p``, already checked by `parameters.check`.
    """
    return key_of(ingredients(book, chapter, profile, overrides))


def key_of(parts: Mapping[str, Any]) -> str:
    """Hash of the `ingredients` of an execution."""
    return sha256_bytes(json.dumps(parts, sort_keys=True, default=str))


def ingredients(
    book: Book, chapter: Chapter, profile: str, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that a key depends on, by kind; two of these tell why a chapter runs again."""
    found = reached(book, chapter)
    return {
        "scheme": SCHEME,
        "cells": chapter.code_cells(),
        "parameters": parameters.effective(chapter, profile, overrides or {}),
        "modules": {name: sha256_file(path) for name, path in found.modules.items()},
        "files": {_relative(path, book): sha256_file(path) for path in _companions(book, chapter, found)},
        "data": dict(datasets.found([chapter.slug])),
        "threads": THREADS,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": locked_versions(book) or versions_used(found),
    }


def is_fresh(book: Book, chapter: Chapter, profile: str) -> bool:
    """Whether the stored notebook of this profile is whole and was made from what is there now."""
    return is_current(book.executed(profile, chapter.slug), execution_key(book, chapter, profile))


def is_current(path: Path, key: str) -> bool:
    """Whether `path` holds a successful execution of this key."""
    stored = stored_provenance(path)
    return stored is not None and stored.get("key") == key and stored.get("status") == "ok"


def stored_provenance(path: Path) -> dict[str, Any] | None:
    """Metadata that the pipeline stamped on an executed notebook; None when there is no readable one."""
    try:
        return dict(json.loads(path.read_bytes())["metadata"]["icml24"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def reached(book: Book, chapter: Chapter) -> Reach:
    """Modules that a chapter's code reaches, in the book's package and in this one."""
    packages = {book.package: book.package_dir}
    spec = importlib.util.find_spec(HOUSE)
    if book.package != HOUSE and spec is not None and spec.origin is not None:
        packages[HOUSE] = Path(spec.origin).parent
    return reach(chapter.code_cells(), packages)


def versions_used(found: Reach) -> dict[str, str]:
    """Installed version of each distribution that the reached code imports by name."""
    by_import = _distributions()
    names = {name for top in found.foreign for name in by_import.get(top, ())}
    return {name: importlib.metadata.version(name) for name in sorted(names, key=str.lower)}


def _companions(book: Book, chapter: Chapter, found: Reach) -> list[Path]:
    """Files beside the code that the code reads: claims, checkpoints, the figure style.

    All those of a reached paper (and of the chapter's own) count. Elsewhere a file
    belongs to the modules of its folder that name it; one that none names belongs to all.
    """
    papers = book.package_dir / "papers"
    folders = {path.parent for path in found.modules.values()}
    own = {papers / chapter.slug}
    own |= {
        papers / f.relative_to(papers).parts[0] for f in folders if f.is_relative_to(papers) and f != papers
    }
    files = {path for folder in own if folder.is_dir() for path in folder.rglob("*") if _is_data(path)}
    for folder in folders:
        if any(folder.is_relative_to(paper) for paper in own):
            continue
        sources = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
        for path in folder.iterdir():
            namers = {source for source, text in sources.items() if path.name in text}
            if _is_data(path) and (not namers or namers & set(found.modules.values())):
                files.add(path)
    return sorted(files)


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith((".", "__pycache__")) for part in path.parts[-3:])
    return path.is_file() and path.suffix not in (".py", ".pyc") and not hidden


def _relative(path: Path, book: Book) -> str:
    return path.relative_to(book.root).as_posix() if path.is_relative_to(book.root) else path.name


def locked_versions(book: Book) -> dict[str, str]:
    """Installed version of each distribution named in ``requirements.lock``; empty without one."""
    lock = book.root / "requirements.lock"
    if not lock.is_file():
        return {}
    names = re.findall(
        r"^([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*==", lock.read_text(encoding="utf-8"), re.M
    )
    return {name: _installed(name) for name in sorted(set(names), key=str.lower)}


@functools.cache
def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()
