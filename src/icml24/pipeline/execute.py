"""One chapter's execution: Papermill on a notebook in memory, in a kernel of its own.

`execute` is what an executor is given. It needs nothing but its argument and an
installed `icml24`, so it runs in a thread here or on any worker of a cluster; it
returns the finished notebook as text, and whoever submitted it writes the file.
"""

from __future__ import annotations

import copy
import logging
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from icml24.pipeline import provenance
from icml24.pipeline.kernels import NAME, kernel_spec, manager_class
from icml24.pipeline.memory import MemoryWatch

__all__ = ["LISTENERS", "Result", "Task", "execute"]

KERNEL_START_TRIES = 3
START_TIMEOUT_S = 120

LISTENERS: dict[tuple[str, str], Callable[[str, int, int], None]] = {}
"""By token and task name: who in this process is told (name, code cells begun, code cells in all)."""

_registering = threading.Lock()
_registered = False


@dataclass(frozen=True)
class Task:
    """Everything an execution needs; travels to a worker by pickle.

    Attributes
    ----------
    name : str
        Slug, with the hash of the overrides when there are any.
    slug, root, package : str
    source : str
        The chapter as notebook JSON.
    parameters : dict
        What is injected; empty for the quick profile.
    memory_mb : float or None
        Limit of the kernel and its children.
    token : str
        Names the run that this belongs to.
    versions : dict
        Distributions the key was computed with; a worker that has others refuses.
    facts : dict
        Stamped on the notebook beside what is measured.
    data_folder : str
        ``ICML24_DATA`` of the one who submits; empty for none.
    """

    name: str
    slug: str
    root: str
    package: str
    source: str
    parameters: dict[str, Any]
    memory_mb: float | None
    token: str
    versions: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    data_folder: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a task: the notebook's text, whole or as far as it got, and what was measured."""

    name: str
    text: str
    ok: bool
    seconds: float
    peak_mb: float
    cell: str = ""
    error: str = ""


@dataclass(frozen=True)
class Failure:
    """Why an execution ended early: number and first line of the code cell, kind and words of the error."""

    cell: int
    line: str
    ename: str
    evalue: str

    @property
    def where(self) -> str:
        """The cell, as the failure table names it."""
        return f"[{self.cell}] {self.line}" if self.cell else "before the first cell"

    @property
    def what(self) -> str:
        """The error in one line or a few."""
        return f"{self.ename}: {self.evalue}" if self.ename else self.evalue


def execute(task: Task) -> Result:
    """Run a chapter's notebook from its first cell to its last, or to the first that raises.

    A raising cell, a dead kernel and a passed memory limit are results, not exceptions:
    the notebook as far as it got comes back with the cell and the reason.
    """
    started, clock = provenance.now(), time.monotonic()
    notebook = nbformat.reads(task.source, as_version=4)
    watch = MemoryWatch(task.memory_mb)
    wrong = _wrong_machine(task)
    failure = Failure(0, "", "", wrong) if wrong else _run(task, notebook, watch)
    seconds = time.monotonic() - clock
    provenance.clean(notebook, task.slug, task.root)
    facts = {
        **task.facts,
        "wall_s": round(seconds, 3),
        "peak_mb": round(watch.peak_mb, 1),
        "machine": provenance.machine(),
        "started": started,
        "status": "failed" if failure else "ok",
    }
    if failure:
        facts["error"] = asdict(failure)
    provenance.stamp(notebook, facts)
    text = nbformat.writes(notebook) + "\n"
    cell, error = (failure.where, failure.what) if failure else ("", "")
    return Result(task.name, text, failure is None, seconds, watch.peak_mb, cell, error)


def _wrong_machine(task: Task) -> str:
    """Why this worker cannot stand in for the machine that computed the key; empty when it can."""
    differing = provenance.differing_versions(task.versions)
    if not differing:
        return ""
    listed = ", ".join(f"{name} {here} (expected {wanted})" for name, (wanted, here) in differing.items())
    return f"this worker has other versions than the one that submitted: {listed}. Install the lock there."


def _run(task: Task, notebook: nbformat.NotebookNode, watch: MemoryWatch) -> Failure | None:
    """Execute `notebook` in place; return None, or how it failed."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    _register_with_papermill()
    spec = kernel_spec(task.root, task.package)
    spec["env"]["ICML24_DATA"] = task.data_folder
    folder = task.root if Path(task.root).is_dir() else tempfile.gettempdir()
    progress = _Progress(task, notebook)
    for attempt in range(KERNEL_START_TRIES):
        try:
            papermill.execute_notebook(
                copy.deepcopy(notebook),
                None,
                task.parameters,
                engine_name=NAME,
                kernel_name=NAME,
                language="python",
                progress_bar=False,
                request_save_on_cell_execute=False,
                start_timeout=START_TIMEOUT_S,
                executed=progress.take,
                kernel_manager_class=manager_class(spec, watch, task.token, folder),
                on_cell_start=progress.begin,
                coalesce_streams=True,
            )
        except PapermillExecutionError as error:
            progress.finish(notebook)
            return progress.failure(_strip_ansi(str(error.evalue)), str(error.ename))
        except Exception as error:
            never_ran = progress.begun == 0 and not watch.exceeded
            if never_ran and attempt + 1 < KERNEL_START_TRIES and watch.exit_status != -signal.SIGKILL:
                continue  # a port taken in between, a start that timed out
            progress.finish(notebook)
            return progress.failure(_death(task, watch, error))
        progress.finish(notebook)
        return _left_early(notebook, progress)
    raise AssertionError("unreachable")


def _left_early(notebook: nbformat.NotebookNode, progress: _Progress) -> Failure | None:
    """Refuse what Papermill takes for success: a cell that called ``sys.exit()``, the rest not run."""
    for cell in notebook.cells:
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return progress.failure("the cell left the notebook early; those below did not run", "SystemExit")
    return None


class _Progress:
    """Follows an execution from inside: which cell is running, and the notebook so far."""

    def __init__(self, task: Task, notebook: nbformat.NotebookNode) -> None:
        self.task = task
        self.total = sum(cell.cell_type == "code" for cell in notebook.cells)
        self.begun = 0
        self.source = ""
        self.executed: nbformat.NotebookNode | None = None

    def take(self, notebook: nbformat.NotebookNode) -> None:
        """Keep hold of the notebook that the engine fills, for it is lost when Papermill raises."""
        self.executed, self.begun, self.source = notebook, 0, ""
        self.total = sum(cell.cell_type == "code" for cell in notebook.cells)

    def begin(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        """Note that a cell starts (nbclient calls this)."""
        del cell_index
        if cell.cell_type != "code":
            return
        self.begun += 1
        self.source = cell.source
        listener = LISTENERS.get((self.task.token, self.task.name))
        if listener is not None:
            listener(self.task.name, self.begun, self.total)

    def finish(self, notebook: nbformat.NotebookNode) -> None:
        """Put what was executed in the place of the notebook that was handed in."""
        if self.executed is not None:
            notebook.cells = self.executed.cells
            notebook.metadata = self.executed.metadata

    def failure(self, evalue: str, ename: str = "") -> Failure:
        """Failure in the cell that was running."""
        line = next((text.strip() for text in self.source.splitlines() if text.strip()), "")
        return Failure(self.begun, line[:70], ename, evalue)


def _death(task: Task, watch: MemoryWatch, error: Exception) -> str:
    """Say why a kernel is gone."""
    if watch.exceeded:
        return (
            f"memory limit exceeded: chapter {task.slug} reached {watch.peak_mb:,.0f} MB, allowed are "
            f"{watch.limit_mb:,.0f} MB. Give it more with --memory-limit MB, or let the cell use less."
        )
    status = watch.exit_status
    if status is None:
        return _strip_ansi(f"{type(error).__name__}: {error}")
    if status < 0:
        name = signal.Signals(-status).name if -status in signal.valid_signals() else str(-status)
        hint = " (often the system's answer to exhausted memory)" if name == "SIGKILL" else ""
        return f"the kernel died by {name}{hint}; its peak was {watch.peak_mb:,.0f} MB."
    return f"the kernel ended by itself with exit status {status}; a cell must not leave the interpreter."


def _strip_ansi(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def _register_with_papermill() -> None:
    """Teach Papermill, under our kernel's name only, to hand the notebook out and to write tuples."""
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.translators import PythonTranslator, papermill_translators

    global _registered
    with _registering:
        if _registered:
            return

        class Engine(NBClientEngine):
            @classmethod
            def execute_managed_notebook(
                cls, nb_man: Any, kernel_name: str, executed: Callable[[Any], None], **kwargs: Any
            ) -> Any:
                executed(nb_man.nb)
                return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)

        class Translator(PythonTranslator):
            @classmethod
            def translate(cls, value: Any) -> str:
                if isinstance(value, tuple):
                    return f"({''.join(cls.translate(item) + ', ' for item in value)})"
                return str(super().translate(value))

            @classmethod
            def translate_str(cls, value: str) -> str:
                return repr(value)

        papermill_translators.register(NAME, Translator)
        papermill_engines.register(NAME, Engine)
        _registered = True
        for name in ("papermill", "papermill.translators"):  # failures come back as results
            logging.getLogger(name).setLevel(logging.CRITICAL)
