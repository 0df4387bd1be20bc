"""Runs chapters: what is fresh is left alone, the rest goes side by side to an executor.

The executor runs `execute.execute` and may be anything with the interface of
`concurrent.futures`: threads here (each chapter is a process of its own already, its
kernel), or a cluster's. Only this module writes results, and each is written whole.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import nbformat

from icml24.pipeline import keys, parameters, provenance, targets
from icml24.pipeline.book import Book, Chapter, check_profile
from icml24.pipeline.errors import BookError
from icml24.pipeline.execute import LISTENERS, Result, Task, execute
from icml24.pipeline.files import write_atomic
from icml24.pipeline.kernels import kill_kernels
from icml24.pipeline.memory import DEFAULT_LIMIT_MB
from icml24.pipeline.signals import signals_raise

__all__ = ["Event", "Job", "Outcome", "plan", "run", "run_jobs"]


@dataclass(frozen=True)
class Job:
    """A chapter to be executed with given parameters.

    A run with overrides has a name of its own, so that it never takes the place of the
    published one.
    """

    chapter: Chapter
    profile: str
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Slug and hash of the overrides."""
        suffix = f"-{parameters.overrides_hash(self.overrides)}" if self.overrides else ""
        return self.chapter.slug + suffix

    def path(self, book: Book) -> Path:
        """Where the executed notebook lands."""
        return book.executed(self.profile, self.name)

    def failed_path(self, book: Book) -> Path:
        """Where a run that failed is kept for debugging."""
        return self.path(book).with_suffix(".failed.ipynb")


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes
    ----------
    status : str
        ``ran``, ``cached`` (nothing had changed), ``failed`` or ``cancelled``.
    path : Path or None
        The executed notebook; of a failed run, the notebook as far as it got.
    seconds, peak_mb : float
        Of the execution, also when it was an earlier one.
    cell, error : str
        Where and why it failed; empty otherwise.
    """

    slug: str
    status: Literal["ran", "cached", "failed", "cancelled"]
    path: Path | None
    seconds: float = 0.0
    peak_mb: float = 0.0
    cell: str = ""
    error: str = ""
    name: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is a whole and current notebook."""
        return self.status in ("ran", "cached")


@dataclass(frozen=True)
class Event:
    """Something happened: ``queued``, ``cell`` (begun, of how many) or ``finished`` (with its outcome)."""

    kind: Literal["queued", "cell", "finished"]
    name: str
    done: int = 0
    total: int = 0
    outcome: Outcome | None = None


Listener = Callable[[Event], None]


def plan(book: Book, slugs: Iterable[str], profile: str, overrides: Mapping[str, Any]) -> list[Job]:
    """Jobs of a run, every name and value checked.

    Parameters
    ----------
    slugs : iterable of str
        Empty for all chapters.
    overrides : mapping of str to object
        Parameters given to each of them.

    Raises
    ------
    UnknownChapter, UnknownProfile, UnknownParameter, BadParameter
        Before anything has started.
    """
    check_profile(profile)
    chapters = [book.chapter(slug) for slug in dict.fromkeys(slugs)] or list(book.chapters)
    if not overrides:  # a chapter that cannot be read fails alone, later
        return [Job(chapter, profile) for chapter in chapters]
    return [Job(chapter, profile, parameters.check(chapter, overrides)) for chapter in chapters]


def run(
    book: Book,
    slugs: Iterable[str] = (),
    profile: str = "quick",
    overrides: Mapping[str, Any] | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    force: bool = False,
    memory_mb: float | None = None,
    on_event: Listener | None = None,
    output: str | None = None,
) -> list[Outcome]:
    """Bring chapters up to date and say what came of each, in the order asked for.

    Parameters
    ----------
    book : Book
    slugs : iterable of str
        Chapters; empty for all of them.
    profile : {"quick", "full"}
    overrides : mapping, optional
        Parameters as ``-p`` gives them, already Python values.
    jobs : int, default 1
        How many run side by side when no `executor` is given. Results do not depend on it.
    executor : concurrent.futures.Executor, optional
        Where to run instead of in threads of this process; it is not shut down.
    force : bool
        Run also what is fresh.
    memory_mb : float, optional
        Limit of a kernel and its children; by default 1500 (quick) or 8000 (full).
    on_event : callable, optional
        Told of `Event`, from several threads.
    output : str, optional
        Folder or address (``s3://…``) where results are written besides the local copy.

    Returns
    -------
    list of Outcome
        A failure is an outcome; it does not stop the others.

    Raises
    ------
    BookError
        Something was wrong before anything started.
    Interrupted
        SIGINT, SIGTERM or SIGHUP came: kernels are gone, finished chapters are kept.
    """
    work = plan(book, slugs, profile, overrides or {})
    return run_jobs(
        book,
        work,
        jobs=jobs,
        executor=executor,
        force=force,
        memory_mb=memory_mb,
        on_event=on_event,
        output=output,
    )


def run_jobs(
    book: Book,
    work: Sequence[Job],
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    force: bool = False,
    memory_mb: float | None = None,
    on_event: Listener | None = None,
    output: str | None = None,
) -> list[Outcome]:
    """As `run`, for jobs that `plan` made (a sweep runs one chapter many times)."""
    if jobs < 1:
        raise BookError(f"--jobs must be at least 1; got {jobs}.")
    if output is not None:
        targets.check_target(output)
    session = _Session(book, uuid.uuid4().hex, memory_mb, on_event or (lambda event: None), output)
    outcomes: dict[str, Outcome] = {}
    todo: list[tuple[Job, dict[str, Any]]] = []
    for job in {job.name: job for job in work}.values():
        try:
            parts = keys.ingredients(book, job.chapter, job.profile, job.overrides)
        except (BookError, OSError, ValueError) as error:  # no parameter cell, a corrupt data set, …
            outcomes[job.name] = session.finish(_failed(job, str(error)), job)
            continue
        cached = None if force else session.cached(job, keys.key_of(parts))
        if cached is None:
            todo.append((job, parts))
        else:
            outcomes[job.name] = session.finish(cached, job)
    todo.sort(key=lambda item: -_expected_seconds(book, item[0]))  # long ones first: less idle at the end
    if todo:
        outcomes |= session.execute(todo, jobs, executor)
    return [outcomes[job.name] for job in work]


class _Session:
    """One call of `run_jobs`: submits, waits, lands, and cleans up after a signal."""

    def __init__(
        self, book: Book, token: str, memory_mb: float | None, tell: Listener, output: str | None
    ) -> None:
        self.book, self.token, self.memory_mb = book, token, memory_mb
        self.tell, self.output = tell, output
        self.commit, self.dirty = provenance.repository_state(book.root)

    def cached(self, job: Job, key: str) -> Outcome | None:
        """Outcome of a job that needs no run, or None."""
        path = job.path(self.book)
        if not keys.is_current(path, key):
            return None
        facts = keys.stored_provenance(path) or {}
        seconds, peak = float(facts.get("wall_s", 0)), float(facts.get("peak_mb", 0))
        job.failed_path(self.book).unlink(missing_ok=True)
        return Outcome(job.chapter.slug, "cached", path, seconds, peak, "", "", job.name, job.overrides)

    def execute(
        self, todo: Sequence[tuple[Job, dict[str, Any]]], jobs: int, executor: Executor | None
    ) -> dict[str, Outcome]:
        """Run what is not fresh, landing each result as it comes."""
        pool = executor or ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="chapter")
        outcomes: dict[str, Outcome] = {}
        pending: dict[Future[Result], tuple[Job, str]] = {}
        try:
            with signals_raise():
                for job, parts in todo:
                    task = self._task(job, parts)
                    LISTENERS[self.token, task.name] = lambda name, done, total: self.tell(
                        Event("cell", name, done, total)
                    )
                    self.tell(Event("queued", job.name))
                    pending[pool.submit(execute, task)] = (job, task.facts["key"])
                while pending:
                    done, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                    for future in done:
                        job, key = pending.pop(future)
                        outcomes[job.name] = self.finish(self._land(job, key, future), job)
        except BaseException:
            self._abandon(pool, pending)
            raise
        finally:
            for job, _ in todo:
                LISTENERS.pop((self.token, job.name), None)
            if executor is None:
                pool.shutdown(wait=not pending, cancel_futures=True)
        return outcomes

    def finish(self, outcome: Outcome, job: Job) -> Outcome:
        """Copy a good result to the output target, tell the listener, and return the outcome."""
        if outcome.ok and self.output is not None and outcome.path is not None:
            try:
                targets.copy(outcome.path, self.output, job.profile)
            except BookError as error:
                outcome = _failed(job, str(error), outcome.path, outcome.seconds, outcome.peak_mb)
        self.tell(Event("finished", job.name, outcome=outcome))
        return outcome

    def _task(self, job: Job, parts: Mapping[str, Any]) -> Task:
        found = keys.reached(self.book, job.chapter)
        versions = {"python": platform.python_version(), **keys.versions_used(found)}
        facts = {
            "slug": job.chapter.slug,
            "profile": job.profile,
            "key": keys.key_of(parts),
            "commit": self.commit,
            "dirty": self.dirty,
            "versions": versions,
            "parameters": parts["parameters"],
            "overrides": dict(job.overrides),
            "seed": parts["parameters"].get("seed"),
            "threads": parts["threads"],
            "data": parts["data"],
        }
        return Task(
            name=job.name,
            slug=job.chapter.slug,
            root=str(self.book.root),
            package=self.book.package,
            source=nbformat.writes(job.chapter.notebook()),
            parameters=parameters.injected(job.profile, job.overrides),
            memory_mb=DEFAULT_LIMIT_MB[job.profile] if self.memory_mb is None else self.memory_mb,
            token=self.token,
            versions=versions,
            facts=facts,
            data_folder=_absolute(os.environ.get("ICML24_DATA", "")),
        )

    def _land(self, job: Job, key: str, future: Future[Result]) -> Outcome:
        """Write what a task returned; what went wrong becomes a failed outcome."""
        try:
            result = future.result()
        except CancelledError:
            return Outcome(
                job.chapter.slug, "cancelled", None, error="cancelled by its executor", name=job.name
            )
        except Exception as error:
            return _failed(job, _executor_error(job, error))
        path = job.path(self.book) if result.ok else job.failed_path(self.book)
        try:
            write_atomic(path, self._with_honest_key(job, key, result))
            if result.ok:
                job.failed_path(self.book).unlink(missing_ok=True)
                self._record(job, path)
        except BookError as error:
            return _failed(job, str(error), None, result.seconds, result.peak_mb)
        if not result.ok:
            return _failed(job, result.error, path, result.seconds, result.peak_mb, result.cell)
        slug, seconds, peak = job.chapter.slug, result.seconds, result.peak_mb
        return Outcome(slug, "ran", path, seconds, peak, "", "", job.name, job.overrides)

    def _with_honest_key(self, job: Job, key: str, result: Result) -> str:
        """Text to store; when sources were edited during the run, without the key they had before."""
        try:
            unchanged = keys.execution_key(self.book, job.chapter, job.profile, job.overrides) == key
        except (BookError, OSError, ValueError):  # in the middle of an edit, or of a download
            unchanged = False
        if unchanged:
            return result.text
        notebook = json.loads(result.text)
        notebook["metadata"]["icml24"]["key"] = "sources changed during the run"
        return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"

    def _record(self, job: Job, path: Path) -> None:
        """Keep the results of a full run in the book's records."""
        if job.profile == "full" and not job.overrides:
            from icml24.pipeline import records

            records.write(self.book, job.chapter.slug, nbformat.read(path, as_version=4))

    def _abandon(self, pool: Executor, pending: Mapping[Future[Result], Any]) -> None:
        for future in pending:
            future.cancel()
        kill_kernels(self.token)
        remote = getattr(pool, "kill_kernels", None)
        if remote is not None:
            remote(self.token)


def _absolute(folder: str) -> str:
    """Folder as a kernel finds it, whose working folder is another; empty stays empty."""
    return str(Path(folder).absolute()) if folder else ""


def _expected_seconds(book: Book, job: Job) -> float:
    """How long a job took last time; unknown ones are taken for long."""
    facts = keys.stored_provenance(job.path(book)) or keys.stored_provenance(
        book.executed(job.profile, job.chapter.slug)
    )
    return float(facts["wall_s"]) if facts and "wall_s" in facts else float("inf")


def _failed(
    job: Job, error: str, path: Path | None = None, seconds: float = 0.0, peak: float = 0.0, cell: str = ""
) -> Outcome:
    return Outcome(job.chapter.slug, "failed", path, seconds, peak, cell, error, job.name, job.overrides)


def _executor_error(job: Job, error: Exception) -> str:
    """Say what it means that an executor, not a chapter, raised."""
    kind = type(error).__name__
    if kind == "KilledWorker":
        return (
            f"chapter {job.chapter.slug} ended its worker each time it was tried, most likely by its memory. "
            "Give workers more memory, or find out with --jobs 1 on one machine."
        )
    if kind in ("BrokenProcessPool", "BrokenThreadPool", "BrokenExecutor"):
        return f"the executor broke while chapter {job.chapter.slug} was running ({error}); run again."
    if isinstance(error, ModuleNotFoundError):
        return f"the worker cannot import {error.name}; install icml24 and its lock on every worker."
    return f"{kind}: {error}"
