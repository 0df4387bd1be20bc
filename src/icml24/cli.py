"""The command line ``icml24``: thin commands over `icml24.pipeline`, each of which is also a function."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from icml24.pipeline import console, options

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from icml24.pipeline.book import Book

__all__ = ["main"]


def _book() -> Book:
    from icml24.pipeline.book import Book

    return Book.load()


@contextlib.contextmanager
def _executor(address: str | None) -> Iterator[Executor | None]:
    """Executor of a scheduler, or None: threads of this process."""
    if address is None:
        yield None
        return
    from icml24.pipeline.cluster import connect

    with connect(address) as executor:
        yield executor


@click.group(
    cls=console.House, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="icml24")
def main() -> None:
    """Run, check and publish the book: chapters whose every number was computed by the code beside it.

    Commands work on the book around the current folder (the one with _toc.yml).

    \b
      icml24 list                        what there is, and how fresh it is
      icml24 run && icml24 build         bring everything up to date, then make the site
      icml24 run private_hpo -p seed 3   one chapter with a parameter of your own
      icml24 serve                       read the site on this machine
    """


@main.command("list")
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@options.as_json
def list_(slugs: tuple[str, ...], as_json: bool) -> None:
    """Show chapters, their last runs and verdicts; with SLUGs, their parameters too.

    A run is fresh when nothing that it depends on has changed since: its code cells,
    the modules they import, data, libraries.

    \b
      icml24 list
      icml24 list self_play              which parameters -p may set
    """
    from icml24.pipeline import listing

    entries = listing.entries(_book(), slugs)
    if as_json:
        console.print_json(entries)
    else:
        listing.show(console.out, entries, parameters=bool(slugs))


@main.command()
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@click.option(
    "-p",
    "--parameter",
    "pairs",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter of the chapter (repeatable). The published run stays as it is.",
)
@options.running
def run(
    slugs: tuple[str, ...],
    pairs: tuple[tuple[str, str], ...],
    profile: str,
    jobs: int,
    scheduler: str | None,
    force: bool,
    memory_limit: float | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Execute chapters that changed (all, or the SLUGs given).

    A chapter is left alone when its code cells, parameters, imported modules, data and
    libraries are the same as at its last run; prose never matters. One that fails does
    not stop the others: a table at the end says which cell and why, the notebook so far
    is kept beside the last good one, and the exit status is 1.

    \b
      icml24 run                                     what changed, on all cores
      icml24 run self_play --profile full            the long version of one chapter
      icml24 run private_hpo -p seed 3 -p sizes 8,16 with parameters of your own
      icml24 run --scheduler tcp://head:8786 --output s3://bucket/book
    """
    from icml24.pipeline import parameters, progress, runner

    book = _book()
    work = runner.plan(book, slugs, profile, {})
    if pairs:
        work = [runner.Job(job.chapter, profile, parameters.parse(job.chapter, pairs)) for job in work]
    with _executor(scheduler) as executor, progress.following(console.err, len(work)) as tell:
        outcomes = runner.run_jobs(
            book,
            work,
            jobs=jobs,
            executor=executor,
            force=force,
            memory_mb=memory_limit,
            on_event=tell,
            output=output,
        )
    if as_json:
        console.print_json(console.outcomes_as_json(outcomes))
    console.report_failures(book, outcomes)


@main.command()
@click.argument("slug")
@click.option(
    "-p",
    "--parameter",
    "axes",
    nargs=2,
    multiple=True,
    required=True,
    metavar="NAME V1,V2,…",
    help="Values to try; several -p make a grid. Write lists in brackets: [1,2],[3].",
)
@options.running
def sweep(
    slug: str,
    axes: tuple[tuple[str, str], ...],
    profile: str,
    jobs: int,
    scheduler: str | None,
    force: bool,
    memory_limit: float | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Run one chapter over a grid of parameters and tabulate what its claims measured.

    Points are ordinary runs and are re-used like them. The table (a row per point:
    parameters, seconds, measured values, verdicts) is written as CSV and Parquet
    below _build/sweeps.

    \b
      icml24 sweep private_hpo -p seed 0,1,2,3
      icml24 sweep self_play -p seed 0,1 -p rate 0.1,0.3 --jobs 2
    """
    from icml24.pipeline import progress
    from icml24.pipeline import sweep as sweeps

    book = _book()
    total = len(sweeps.grid(book, slug, axes, profile))
    with _executor(scheduler) as executor, progress.following(console.err, total) as tell:
        result = sweeps.sweep(
            book,
            slug,
            axes,
            profile,
            jobs=jobs,
            executor=executor,
            force=force,
            memory_mb=memory_limit,
            on_event=tell,
            output=output,
        )
    if as_json:
        console.print_sweep_json(result)
    else:
        console.show_sweep(book, result)
    console.report_failures(book, result.outcomes)


@main.command()
@options.profile
@click.option(
    "--allow-stale", is_flag=True, help="Show the last good run of failed or changed chapters, marked."
)
def build(profile: str, allow_stale: bool) -> None:
    """Make the site in _build/html from executed chapters; nothing runs, nothing is fetched.

    Refuses when a chapter failed or is out of date: run `icml24 run` first, or publish
    the last good state with --allow-stale, which marks those pages. Every warning of the
    rendering is an error.
    """
    from icml24.pipeline import build as builder
    from icml24.pipeline import progress

    book = _book()
    with progress.stepping(console.err, "rendering the site"):
        folder = builder.build(book, profile, allow_stale)
    console.out.print(f"{folder / 'index.html'}", highlight=False, soft_wrap=True)


@main.command()
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@options.as_json
def check(slugs: tuple[str, ...], as_json: bool) -> None:
    """Check that chapters, packages, tests, references, claims and equations fit together.

    Nothing is executed. Each problem says where it is, what is wrong and how to put it
    right; the exit status is 1 when there is one.
    """
    from icml24.pipeline import check as checks
    from icml24.pipeline import progress

    book = _book()
    for slug in slugs:
        book.chapter(slug)
    with progress.stepping(console.err, "checking"):
        problems = checks.check(book, slugs or None)
    if as_json:
        console.print_json(console.as_dicts(problems))
    else:
        console.show_problems(problems)
    if problems:
        raise SystemExit(1)


@main.command()
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
def bless(slugs: tuple[str, ...]) -> None:
    """Renew the reference notebooks that `make test` compares with.

    All of them, or the SLUGs given. A chapter runs without ICML24_DATA, so that every
    machine can repeat it; only text outputs are kept. Read the difference before you
    commit it.
    """
    from icml24.pipeline import bless as blessing
    from icml24.pipeline import progress

    book = _book()
    chapters = [book.chapter(slug) for slug in slugs] or book.chapters
    for slug in (chapter.slug for chapter in chapters):
        with progress.stepping(console.err, f"running {slug}"):
            path = blessing.bless(book, slug)
        console.out.print(str(path), highlight=False, soft_wrap=True)


@main.command()
@click.argument("slug")
@click.option(
    "--part", required=True, help="Folder below book/ that the chapter goes to: language, learning, …"
)
def new(slug: str, part: str) -> None:
    """Lay out the places of a new chapter: text, package, claims, tests.

    \b
      icml24 new my_paper --part learning
    """
    from icml24.pipeline import new as scaffold

    for path in scaffold.new(_book(), slug, part):
        console.out.print(str(path), highlight=False, soft_wrap=True)


@main.command()
@options.as_json
def doctor(as_json: bool) -> None:
    """Look at this machine: Python, versions against the lock, data, browser, disk."""
    from icml24.pipeline import doctor as diagnosis
    from icml24.pipeline import progress

    book = _book()
    with progress.stepping(console.err, "looking around"):
        findings = diagnosis.doctor(book)
    if as_json:
        console.print_json(console.as_dicts(findings))
    else:
        console.show_findings(findings)
    if not all(finding.ok for finding in findings):
        raise SystemExit(1)


@main.group()
def data() -> None:
    """Original data sets: what is registered, what is here, and where to get the rest.

    No other command downloads anything. Every chapter also runs without them, on a
    built-in default; claims that need an original then read "not testable here".
    """


@data.command("list")
@options.as_json
def data_list(as_json: bool) -> None:
    """Show registered data sets and whether they are on this machine."""
    from icml24.pipeline import listing

    entries = listing.data_entries()
    if as_json:
        console.print_json(entries)
    else:
        listing.show_data(console.out, entries)


@data.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.as_json
def data_fetch(names: tuple[str, ...], as_json: bool) -> None:
    """Download data sets from their public addresses and verify them.

    A file that does not have the registered hash is an error, and is not kept.
    """
    from icml24 import datasets
    from icml24.pipeline import listing

    listing.check_data_names(names)
    paths = [str(path) for name in names for path in datasets.fetch(name, progress=not as_json)]
    if as_json:
        console.print_json(paths)
    else:
        for path in paths:
            console.out.print(path, highlight=False, soft_wrap=True)


@data.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.as_json
def data_verify(names: tuple[str, ...], as_json: bool) -> None:
    """Hash the files that are here anew; exit status 1 when one is corrupt."""
    from icml24.pipeline import listing

    states = listing.verify(names)
    if as_json:
        console.print_json(states)
    else:
        listing.show_states(console.out, states)
    if any(state["state"] == "corrupt" for state in states):
        raise SystemExit(1)


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one.")
def serve(port: int) -> None:
    """Serve the built site on this machine only, until Ctrl-C."""
    from icml24.pipeline import serve as server

    server.serve(_book(), port)


if __name__ == "__main__":
    main(prog_name="icml24")
