r"""Original data sets: a registry, a look-up, and a download that happens only on request.

A file is looked for in ``$ICML24_DATA/<slug>/<file>`` first, then in the cache that
`fetch` fills (``$ICML24_CACHE``, or the user's cache folder). What is found is trusted
only after its SHA-256 equals the registry's. No function but `fetch` opens a connection.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from platformdirs import user_cache_path

__all__ = [
    "REGISTRY",
    "DataFile",
    "DataSet",
    "FetchFailed",
    "FileState",
    "HashMismatch",
    "MissingData",
    "available",
    "cache_folder",
    "fetch",
    "found",
    "how_to_get",
    "locate",
    "verify",
]


class MissingData(FileNotFoundError):
    """A registered file is on this machine neither in ``ICML24_DATA`` nor in the cache."""


class HashMismatch(ValueError):
    """A file is not the one that the registry describes."""


class FetchFailed(OSError):
    """A download did not come through; nothing of it was kept."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: `size` in bytes, `url` None for a derived or supplied file.

    `variant_of` names the file of the same data set whose content this one repeats in
    another format; either of the two satisfies `available`.
    """

    name: str
    sha256: str
    size: int
    url: str | None = None
    variant_of: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set of one chapter: `slug` is the chapter's and the folder's name."""

    name: str
    title: str
    slug: str
    files: tuple[DataFile, ...]
    licence: str
    source: str
    note: str

    def file(self, name: str) -> DataFile:
        """Return the entry of one file; an unknown name is a `KeyError` that lists the known ones."""
        for entry in self.files:
            if entry.name == name:
                return entry
        raise KeyError(
            f"data set {self.name!r} has no file {name!r}; it has {[entry.name for entry in self.files]}"
        )


@dataclass(frozen=True)
class FileState:
    """What `verify` found: `state` is ``"ok"``, ``"missing"`` or ``"corrupt"``."""

    file: str
    state: str
    path: Path | None
    detail: str


def locate(name: str, file: str) -> Path:
    r"""Path of a registered file on this machine, its hash checked.

    Parameters
    ----------
    name : str
        Data set, a key of `REGISTRY`.
    file : str
        One of its files.

    Returns
    -------
    Path
        ``$ICML24_DATA/<slug>/<file>`` when it exists, else the fetched copy.

    Raises
    ------
    KeyError
        The registry has no such data set or file.
    MissingData
        The file is not here; the message holds the command that fetches it.
    HashMismatch
        It is here and is not the registered file.

    Notes
    -----
    A file is hashed once in a process and again only when its size or time stamp changes.
    """
    data = _data_set(name)
    entry = data.file(file)
    for path in _candidates(data, entry):
        if path.is_file():
            _check(path, entry, _digest(path))
            return path
    raise MissingData(f"{name}/{file} is not on this machine: {how_to_get(name, file)}")


def available(name: str, file: str | None = None) -> bool:
    r"""Whether a data set can be used here.

    Parameters
    ----------
    name : str
        Data set; ``"name/file"`` is understood too, so that a claim can name one file.
    file : str, optional
        Ask for this file alone (or a variant of it). Without it, every file that has a
        public address must be here, itself or as a variant; derived files (no address)
        count only when asked for by name.

    Raises
    ------
    KeyError, HashMismatch
        As `locate`: a wrong file is an error, not an absent one.
    """
    if file is None and "/" in name:
        name, file = name.split("/", 1)
    data = _data_set(name)
    if file is not None:
        wanted = [data.file(file)]
    else:
        wanted = [entry for entry in data.files if entry.url] or list(data.files)
    return all(_present_in_some_form(data, entry) for entry in wanted)


def found(slugs: Iterable[str]) -> dict[str, str]:
    """Return SHA-256 by ``"<data set>/<file>"`` of every file of these chapters that is here."""
    chosen = {slugs} if isinstance(slugs, str) else set(slugs)
    hashes: dict[str, str] = {}
    for data in REGISTRY.values():
        if data.slug not in chosen:
            continue
        for entry in data.files:
            try:
                locate(data.name, entry.name)
            except MissingData:
                continue
            hashes[f"{data.name}/{entry.name}"] = entry.sha256
    return hashes


def how_to_get(name: str, file: str | None = None) -> str:
    """Say in a sentence how to obtain a data set or one of its files."""
    data = _data_set(name)
    wanted = data.files if file is None else (data.file(file),)
    supply = f"put {'its files' if file is None else 'it'} into $ICML24_DATA/{data.slug}/"
    if any(entry.url or (entry.variant_of and data.file(entry.variant_of).url) for entry in wanted):
        if file is not None and not data.file(file).url:
            return f"`icml24 data fetch {name}` gets the same content as {data.file(file).variant_of}; or {supply}"
        return f"run `icml24 data fetch {name}`, or {supply}"
    return f"it has no public address; {supply}"


def fetch(name: str, *, progress: bool = False) -> list[Path]:
    r"""Download what a data set offers at public addresses, and check it.

    Parameters
    ----------
    name : str
        Data set, a key of `REGISTRY`.
    progress : bool, default False
        Show a progress bar per file.

    Returns
    -------
    list of Path
        Every file with an address, in registry order; one already here is not fetched again.

    Raises
    ------
    MissingData
        The data set has no public address at all.
    HashMismatch
        What arrived is not the registered file; it is not kept.
    FetchFailed
        No connection, an error of the server, or no room on the disk; nothing is kept.
    """
    data = _data_set(name)
    wanted = [entry for entry in data.files if entry.url]
    if not wanted:
        raise MissingData(f"data set {name!r} cannot be fetched: {how_to_get(name)}")
    return [_fetch_one(data, entry, progress) for entry in wanted]


def verify(name: str) -> list[FileState]:
    """Hash every file of a data set anew (no process cache) and say what is there."""
    data = _data_set(name)
    return [_state(data, entry) for entry in data.files]


def cache_folder() -> Path:
    """Folder that `fetch` fills: ``$ICML24_CACHE``, or ``icml24`` in the user's cache."""
    if chosen := os.environ.get("ICML24_CACHE"):
        return Path(chosen)
    return user_cache_path("icml24")


def _read_registry() -> dict[str, DataSet]:
    content = tomllib.loads((files("icml24") / "datasets.toml").read_text(encoding="utf-8"))
    return {
        name: DataSet(name=name, **{**entry, "files": tuple(DataFile(**one) for one in entry["files"])})
        for name, entry in content.items()
    }


#: Every data set the book knows, by name.
REGISTRY: Mapping[str, DataSet] = _read_registry()

_digests: dict[tuple[str, int, int], str] = {}


def _data_set(name: str) -> DataSet:
    try:
        return REGISTRY[name]
    except KeyError:
        raise KeyError(f"no data set {name!r} in the registry; it has {sorted(REGISTRY)}") from None


def _candidates(data: DataSet, entry: DataFile) -> Iterator[Path]:
    if given := os.environ.get("ICML24_DATA"):
        yield Path(given).expanduser() / data.slug / entry.name
    yield cache_folder() / data.slug / entry.name


def _present_in_some_form(data: DataSet, entry: DataFile) -> bool:
    core = entry.variant_of or entry.name
    forms = [one for one in data.files if core in (one.name, one.variant_of)]
    return any(_is_here(data, one) for one in forms)


def _is_here(data: DataSet, entry: DataFile) -> bool:
    try:
        locate(data.name, entry.name)
    except MissingData:
        return False
    return True


def _digest(path: Path) -> str:
    status = path.stat()
    key = (str(path), status.st_mtime_ns, status.st_size)
    if key not in _digests:
        _digests[key] = _hash(path)
    return _digests[key]


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check(path: Path, entry: DataFile, digest: str) -> None:
    if digest != entry.sha256:
        raise HashMismatch(
            f"{path} is not the registered {entry.name}: SHA-256 {digest[:16]}…, expected {entry.sha256[:16]}… "
            f"({path.stat().st_size} bytes, expected {entry.size}); delete it and get the file again"
        )


def _state(data: DataSet, entry: DataFile) -> FileState:
    for path in _candidates(data, entry):
        if path.is_file():
            try:
                _check(path, entry, _hash(path))
            except HashMismatch as error:
                return FileState(entry.name, "corrupt", path, str(error))
            return FileState(entry.name, "ok", path, f"{entry.size} bytes")
    return FileState(entry.name, "missing", None, how_to_get(data.name, entry.name))


def _fetch_one(data: DataSet, entry: DataFile, progress: bool) -> Path:
    try:
        return locate(data.name, entry.name)
    except MissingData:
        pass
    import pooch
    import requests

    folder = cache_folder() / data.slug
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # one message from here, not pooch's as well
    try:
        kept = pooch.retrieve(
            url=entry.url,
            known_hash=f"sha256:{entry.sha256}",
            fname=entry.name,
            path=folder,
            progressbar=progress,
        )
    except requests.RequestException as error:
        raise FetchFailed(
            f"{data.name}/{entry.name} could not be fetched from {entry.url}: {error}; "
            f"check the connection and try again, or put the file into $ICML24_DATA/{data.slug}/"
        ) from error
    except OSError as error:
        raise FetchFailed(f"{data.name}/{entry.name} could not be stored in {folder}: {error}") from error
    except ValueError as error:
        raise HashMismatch(
            f"{entry.url} did not deliver the registered {entry.name} (SHA-256 {entry.sha256[:16]}…): {error}; "
            "nothing was kept"
        ) from error
    finally:
        logger.setLevel(level)
    return Path(kept)
