r"""Running and rendering whole chapters: the runner beside jupyter-book, which executes the same chapters itself.

Both sides start from the same sources in temporary folders, with nothing executed, one
thread a kernel, and must come to the same measured claims. The order alternates from
repeat to repeat. Run it on an idle machine: `python bench/pipeline.py [--book FOLDER]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import harness
import nbformat
import yaml

from icml24 import ledger
from icml24.pipeline.book import Book
from icml24.pipeline.kernels import kernel_spec

COPIED = ("_config.yml", "_toc.yml", "pyproject.toml", "requirements.lock", "book", "src", "tests", "bench")
PEER = "jupyter-book build, execute_notebooks: force"
PACKAGES = ("jupyter-book", "myst-nb", "papermill", "nbclient", "ipykernel", "jupytext", "torch")
IDLE_LOAD = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--book", type=Path, default=Path(__file__).parents[1], help="folder with _toc.yml")
    parser.add_argument("--repeats", type=int, default=2, help="interleaved pairs of measurements")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="folder of the result (default: bench/results)")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > IDLE_LOAD:
        print(f"warning: load average {load:.1f}, the machine is not idle; side-by-side ratios will be off")
    if arguments.out is not None:
        harness.RESULTS = arguments.out
    with tempfile.TemporaryDirectory(prefix="icml24-bench-") as folder:
        rows = measure(Book.load(arguments.book), Path(folder), arguments.jobs, arguments.repeats)
    title = f"Executing and rendering the book ({len(Book.load(arguments.book).chapters)} chapters)"
    if load > IDLE_LOAD:
        title += f", on a busy machine (load {load:.1f})"
    harness.write("pipeline", title, PEER, rows, PACKAGES)


def measure(book: Book, folder: Path, jobs: int, repeats: int) -> list[dict[str, object]]:
    """Rows of the table: execution, execution and rendering, and the two kinds of warm run."""
    ours = copy(book, folder / "ours")
    peer = copy(book, folder / "peer")
    let_jupyter_book_execute(peer)
    seconds: dict[str, list[float]] = {"peer": [], "run": [], "build": [], "warm": []}
    for repeat in range(repeats):
        sides: list[Callable[[], None]] = [
            lambda: time_ours(ours, jobs, seconds),
            lambda: time_peer(peer, seconds),
        ]
        for side in sides if repeat % 2 == 0 else reversed(sides):
            side()
        check_equal(ours, peer)
    whole = [run + build for run, build in zip(seconds["run"], seconds["build"], strict=True)]
    count = len(book.chapters)
    return [
        row(
            f"{count} chapters from nothing: icml24 run --jobs {jobs} (theirs: executed and rendered)",
            seconds["run"],
            seconds["peer"],
        ),
        row(
            f"{count} chapters from nothing to a site: run --jobs {jobs}, then build", whole, seconds["peer"]
        ),
        row("the same again after an edit of prose", seconds["warm"], seconds["peer"]),
    ]


def copy(book: Book, root: Path) -> Book:
    """Sources of the book, with nothing executed."""
    root.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
    for name in COPIED:
        source = book.root / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignore)
        elif source.is_file():
            shutil.copy2(source, root / name)
    return Book.load(root)


def let_jupyter_book_execute(book: Book) -> None:
    """Change the settings of a copy so that jupyter-book runs each chapter; its landing page becomes plain."""
    config = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf8"))
    config["execute"] = {"execute_notebooks": "force", "timeout": -1}
    (book.root / "_config.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf8")
    toc = yaml.safe_load((book.root / "_toc.yml").read_text(encoding="utf8"))
    wanted = {chapter.docname for chapter in book.chapters}
    for part in toc["parts"]:
        part["chapters"] = [c for c in part["chapters"] or [] if c["file"].removesuffix(".md") in wanted]
    toc["parts"] = [part for part in toc["parts"] if part["chapters"]]
    toc["root"] = "book/landing"
    (book.root / "book/landing.md").write_text("# Landing page\n", encoding="utf8")
    (book.root / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf8")


def time_ours(book: Book, jobs: int, seconds: dict[str, list[float]]) -> None:
    shutil.rmtree(book.build, ignore_errors=True)
    command = [sys.executable, "-m", "icml24.cli"]
    seconds["run"].append(timed(book, [*command, "run", "--jobs", str(jobs)]))
    seconds["build"].append(timed(book, [*command, "build"]))
    source = book.chapters[0].source
    source.write_text(source.read_text(encoding="utf8") + "\nA sentence more.\n", encoding="utf8")
    again = timed(book, [*command, "run", "--jobs", str(jobs)]) + timed(book, [*command, "build"])
    seconds["warm"].append(again)


def time_peer(book: Book, seconds: dict[str, list[float]]) -> None:
    shutil.rmtree(book.build, ignore_errors=True)
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", str(book.root), "--path-output", str(book.root), "-q"]
    seconds["peer"].append(timed(book, command))
    failures = list(book.build.rglob("*.err.log"))
    if failures:
        sys.exit(f"jupyter-book failed to execute {failures[0].stem}:\n{failures[0].read_text()[-2000:]}")


def timed(book: Book, command: list[str]) -> float:
    """Wall seconds of a command in the book's folder, with the kernels' own environment on both sides."""
    environment = os.environ | kernel_spec(book.root, book.package)["env"]
    del environment["MPLBACKEND"]
    environment.pop("ICML24_DATA", None)

    def run() -> None:
        done = subprocess.run(command, cwd=book.root, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")

    return harness.seconds(run)


def check_equal(ours: Book, peer: Book) -> None:
    """Stop when the two sides did not measure the same claims: then they did not do the same work."""
    for chapter in ours.chapters:
        theirs = peer.build / "jupyter_execute" / f"{chapter.docname}.ipynb"
        sides = [ours.executed("quick", chapter.slug), theirs]
        rows = [ledger.rows_in(nbformat.read(path, as_version=4)) for path in sides]
        if not rows[0] or json.dumps(rows[0], sort_keys=True) != json.dumps(rows[1], sort_keys=True):
            sys.exit(f"the two sides disagree on the claims of {chapter.slug}:\n{rows[0]}\n{rows[1]}")


def row(what: str, ours: list[float], peer: list[float]) -> dict[str, object]:
    """Row of the table; with so few repeats the interval is the range of the ratios."""
    ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    return {
        "what": what,
        "ours": statistics.median(ours),
        "peer": statistics.median(peer),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "unit": "s",
    }


if __name__ == "__main__":
    main()
