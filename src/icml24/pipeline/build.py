"""Render the staged book into ``_build/html``: jupyter-book, warnings as errors, nothing executed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from icml24.pipeline import keys, stage
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError
from icml24.pipeline.files import sha256_bytes, sha256_file, write_atomic
from icml24.pipeline.mirror import differs, mirror, prune

__all__ = ["build", "is_published"]

#: Present from the start of a rendering to its success. After a failure Sphinx would find its
#: pages already read, and pass in silence over the warnings that they raised.
_MARK = ".rendering"
#: What the last good rendering read and what it wrote, as two hashes.
_STAMP = ".rendered"


def build(book: Book, profile: str = "quick", allow_stale: bool = False) -> Path:
    """Stage the book and render it; returns the site's folder.

    Nothing is rendered when the staged pages, the package's sources (their docstrings are pages),
    the locked versions and the site's files are those of the last good rendering.

    Parameters
    ----------
    book : Book
    profile : {"quick", "full"}
        Whose executed notebooks are published.
    allow_stale : bool
        Publish the last good run of chapters that failed or changed, marked as such.

    Raises
    ------
    StaleBook
        A chapter is missing, failed or out of date; the site is left as it was.
    BookError
        jupyter-book warned or failed; the message lists what it said. The next build reads
        every page again.
    """
    stage.stage(book, profile, allow_stale)
    mark, stamp, doctrees = book.build / _MARK, book.build / _STAMP, book.build / ".doctrees"
    read = _read_by_rendering(book)
    if not mark.exists() and stamp.is_file() and stamp.read_text() == f"{read} {_listing(book.html)}\n":
        return book.html
    if mark.exists():
        shutil.rmtree(doctrees, ignore_errors=True)
    mark.touch()
    _render(book)
    _complete(book)
    mark.unlink()
    write_atomic(stamp, f"{read} {_listing(book.html)}\n")
    return book.html


def is_published(book: Book, profile: str = "quick") -> bool:
    """Whether ``_build/html`` shows the book as it is now: chapters fresh, stage current, last rendering good."""
    if not (book.html / "index.html").is_file() or (book.build / _MARK).exists():
        return False
    try:
        return not differs(book.stage, stage.plan(book, profile))
    except BookError:
        return False


def _read_by_rendering(book: Book) -> str:
    """Hash of everything that a rendering reads."""
    sources = sorted(p for p in book.package_dir.rglob("*.py") if p.is_file())
    staged = sorted(p for p in book.stage.rglob("*") if p.is_file())
    parts = [f"{path.relative_to(book.root).as_posix()} {sha256_file(path)}" for path in [*staged, *sources]]
    parts += [f"{name}=={version}" for name, version in keys.locked_versions(book).items()]
    return sha256_bytes("\n".join(parts))


def _listing(folder: Path) -> str:
    """Hash of the names, sizes and times of all files of a folder."""
    held = sorted((p.as_posix(), p.stat()) for p in folder.rglob("*") if p.is_file())
    return sha256_bytes("\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in held))


def _render(book: Book) -> None:
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", str(book.stage)]
    command += ["--path-output", str(book.root), "-W", "--keep-going", "-q"]
    path = [str(book.source_dir), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "agg",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=book.root)
    if done.returncode:
        said = _complaints(book, done.stderr + done.stdout)
        raise BookError(
            f"jupyter-book did not accept the book (exit status {done.returncode}):\n{said}\n"
            "Correct the pages named above; each path is below the book's folder."
        )


def _complaints(book: Book, output: str) -> str:
    """Warnings and errors of a rendering, with paths as in the book's sources."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).replace(f"{book.stage}/", "").replace(f"{book.root}/", "")
    plain = re.sub(r"(\S+)\.ipynb:(\d+):", _place, plain)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    wanted = [line for line in lines if re.search(r"WARNING|ERROR|CRITICAL|Error|[Ee]xception", line)]
    return "\n".join(f"  {line}" for line in dict.fromkeys(wanted or lines[-15:]))


def _place(match: re.Match[str]) -> str:
    """Page and cell of a warning: MyST-NB numbers lines as 10,000 times the cell plus the line in it."""
    cell, line = divmod(int(match.group(2)), 10_000)
    where = f"cell {cell}, line {line}" if cell else f"line {line}"
    return f"{match.group(1)}.md ({where} of the staged notebook):"


def _complete(book: Book) -> None:
    """Bring downloads and figures beside the pages; delete those, and pages, that the book no longer has."""
    staged = {p.relative_to(book.stage).as_posix(): p for p in book.stage.rglob("*") if p.is_file()}
    sources = (name.rpartition(".") for name in staged if name.startswith("book/"))
    pages = {f"{docname}.html" for docname, _, suffix in sources if suffix in ("md", "rst", "ipynb")}
    prune(book.html / "book", {page.removeprefix("book/") for page in pages}, suffix=".html")
    for folder in stage.BESIDE:
        below = f"{stage.EXTRA}/{folder}/"
        mirror(
            book.html / folder,
            {
                name.removeprefix(below): path.read_bytes()
                for name, path in staged.items()
                if name.startswith(below)
            },
        )
    write_atomic(book.html / ".nojekyll", b"")  # GitHub Pages would leave out folders such as _static
