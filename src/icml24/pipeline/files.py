"""Files that are either whole or absent, and the hashes that tell them apart."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from pathlib import Path

from icml24.pipeline.errors import WriteFailed

__all__ = ["sha256_bytes", "sha256_file", "write_atomic"]


def write_atomic(path: Path | str, data: str | bytes) -> bool:
    """Write a file so that a reader sees the old content or the new, never a part.

    The bytes go to a temporary name in the same folder (which holds the process id,
    for several machines may share the folder), reach the disk, and are then renamed.

    Parameters
    ----------
    path : Path or str
        Where to write; missing parent folders are made.
    data : str or bytes
        A string is written as UTF-8.

    Returns
    -------
    bool
        False when the file already holds exactly these bytes; it is then left alone,
        modification time included.

    Raises
    ------
    WriteFailed
        Disk full, folder not writable, and so on. The temporary file is removed, an
        older file under the final name stays as it was.
    """
    path = Path(path)
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise WriteFailed(
            f"cannot write {path}: {error.strerror or error} ({len(content):,} bytes wanted). "
            "Nothing was left half-written; make room or permission there and run again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


def sha256_bytes(data: str | bytes) -> str:
    """Hexadecimal SHA-256 of bytes, or of a string's UTF-8 form."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Hexadecimal SHA-256 of a file's content, read in pieces."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
