"""Copies of results at any address that Papermill can write: a folder, ``s3://…``, ``gs://…`` and so on."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from icml24.pipeline.errors import BookError, WriteFailed
from icml24.pipeline.files import write_atomic

__all__ = ["check_target", "copy"]

_NEEDS = {"s3": "boto3", "gs": "gcsfs", "abs": "azure.storage.blob", "adl": "azure.datalake.store"}


def check_target(prefix: str) -> None:
    """Refuse, before anything runs, an address that cannot be written.

    Raises
    ------
    BookError
        An unknown scheme, one whose library is not installed, or a local path that is a file.
    """
    scheme = _scheme(prefix)
    if not scheme:
        if Path(prefix).exists() and not Path(prefix).is_dir():
            raise BookError(f"--output {prefix} is a file; expected a folder or an address such as s3://….")
        return
    from papermill.iorw import papermill_io

    known = {name.removesuffix("://") for name, _ in papermill_io._handlers if "://" in name}
    if scheme not in known:
        raise BookError(
            f"--output {prefix}: Papermill knows no {scheme}://; expected {', '.join(sorted(known))}."
        )
    needed = _NEEDS.get(scheme)
    if needed is not None and not _installed(needed):
        raise BookError(f"--output {prefix} needs the package {needed}, which is not installed here.")


def copy(path: Path, prefix: str, profile: str) -> str:
    """Write the notebook at `path` as ``<prefix>/<profile>/<name>`` and return that address.

    Raises
    ------
    WriteFailed
        The target refused it; the local copy is untouched.
    """
    target = f"{prefix.rstrip('/')}/{profile}/{path.name}"
    if not _scheme(prefix):
        write_atomic(target, path.read_bytes())
        return target
    from papermill.iorw import papermill_io

    try:
        papermill_io.write(path.read_text(encoding="utf-8"), target)
    except Exception as error:
        raise WriteFailed(
            f"cannot write {target}: {type(error).__name__}: {error}. The local copy {path} is whole; "
            "run again to retry."
        ) from error
    return target


def _scheme(prefix: str) -> str:
    return prefix.split("://", 1)[0] if "://" in prefix else ""


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
