"""A folder made equal to a plan: what is unchanged is not touched, what is no longer planned goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from icml24.pipeline.files import write_atomic

__all__ = ["Changes", "differs", "mirror", "prune"]

Plan = Mapping[str, bytes]


@dataclass(frozen=True)
class Changes:
    """What `mirror` did: paths below the folder, with ``/`` between parts."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def mirror(folder: Path, plan: Plan) -> Changes:
    """Make `folder` hold exactly the files of `plan`.

    Parameters
    ----------
    folder : Path
        Made when absent. Whatever it holds beside the plan is deleted.
    plan : mapping of str to bytes
        Content by relative path, with ``/`` between parts.

    Returns
    -------
    Changes
        Files whose bytes were already right keep their time stamp, and are in neither list:
        Sphinx decides by time stamps what to read again.
    """
    # Deletions first: a file may have to become a folder of the same name.
    removed = prune(folder, keep=plan)
    written = tuple(name for name, data in sorted(plan.items()) if write_atomic(folder / name, data))
    return Changes(written, removed)


def prune(folder: Path, keep: Iterable[str], suffix: str = "") -> tuple[str, ...]:
    """Delete every file below `folder` that ends in `suffix` and is not in `keep`; then empty folders.

    Returns
    -------
    tuple of str
        Relative paths of the deleted files, sorted.
    """
    if not folder.is_dir():
        return ()
    kept = set(keep)
    removed = []
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name not in kept and name.endswith(suffix):
            path.unlink()
            removed.append(name)
    return tuple(sorted(removed))


def differs(folder: Path, plan: Plan) -> bool:
    """Whether `mirror` would write or delete anything."""
    held = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return held != set(plan) or any((folder / name).read_bytes() != data for name, data in plan.items())
