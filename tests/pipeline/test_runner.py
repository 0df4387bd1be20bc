"""Running chapters: what is executed and what is not, what lands where, and what failures look like."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import Executor, Future
from pathlib import Path

import nbformat
import pytest
import toybook

from icml24.pipeline import execute as execution
from icml24.pipeline import keys, runner
from icml24.pipeline.errors import BadParameter, BookError, UnknownChapter, UnknownParameter, UnknownProfile
from icml24.pipeline.execute import Result

ALPHA = "book/one/alpha.md"


def statuses(outcomes):
    return {outcome.slug: outcome.status for outcome in outcomes}


def cell_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    return [cell.outputs for cell in cells if cell.cell_type == "code"]


def left_in(book):
    return sorted(
        path.relative_to(book.build / "executed").as_posix() for path in book.build.rglob("executed/*/*")
    )


class Inline(Executor):
    """Runs `work` in place of the execution, at once, in this thread."""

    def __init__(self, work):
        self.work = work
        self.tasks = []

    def submit(self, fn, /, task):
        assert fn is execution.execute
        self.tasks.append(task)
        future = Future()
        try:
            future.set_result(self.work(task))
        except Exception as error:
            future.set_exception(error)
        return future


def succeed(task):
    """Result of a task as `execute` makes it, without a kernel."""
    notebook = nbformat.reads(task.source, as_version=4)
    notebook.metadata["icml24"] = {**task.facts, "wall_s": 2.5, "peak_mb": 60.0, "status": "ok"}
    return Result(task.name, nbformat.writes(notebook) + "\n", True, 2.5, 60.0)


def test_what_runs_again_after_an_edit(book):
    events = []
    first = runner.run(book, jobs=2, on_event=events.append)
    assert statuses(first) == {"alpha": "ran", "beta": "ran"}
    assert left_in(book) == ["quick/alpha.ipynb", "quick/beta.ipynb"]
    assert {(e.kind, e.name) for e in events} == {
        (k, s) for k in ("queued", "cell", "finished") for s in book.slugs
    }
    assert [e.done for e in events if (e.kind, e.name) == ("cell", "alpha")] == [1, 2, 3]

    again = runner.run(book)
    assert statuses(again) == {"alpha": "cached", "beta": "cached"}
    assert again[0].seconds == pytest.approx(first[0].seconds, abs=1e-3)

    toybook.edit(book, ALPHA, "Sums of squares", "Sums of integer squares")
    assert statuses(runner.run(book)) == {"alpha": "cached", "beta": "cached"}

    toybook.append(book, "src/toybook/papers/alpha/core.py", "\n# edited\n")
    assert statuses(runner.run(book)) == {"alpha": "ran", "beta": "cached"}

    toybook.append(book, "src/toybook/common/extra.py", "\n# edited\n")
    assert statuses(runner.run(book)) == {"alpha": "cached", "beta": "ran"}


def test_one_job_and_two_give_the_same_bits_and_a_stamp(book):
    one = runner.run(book, jobs=1)
    stored = [cell_outputs(outcome.path) for outcome in one]
    assert "204" in str(stored[0])
    two = runner.run(book, jobs=2, force=True)
    assert statuses(two) == {"alpha": "ran", "beta": "ran"}
    assert [cell_outputs(outcome.path) for outcome in two] == stored

    notebook = nbformat.read(two[0].path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec == {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    stamp = notebook.metadata.icml24
    assert stamp.key == keys.execution_key(book, book.chapter("alpha"), "quick")
    kept = {
        name: stamp[name] for name in ("slug", "profile", "status", "seed", "threads", "overrides", "data")
    }
    assert kept == {
        "slug": "alpha",
        "profile": "quick",
        "status": "ok",
        "seed": 0,
        "threads": 1,
        "overrides": {},
        "data": {},
    }
    assert stamp.parameters.steps == 8
    assert {"commit", "dirty", "versions", "machine", "started", "wall_s", "peak_mb"} <= set(stamp)
    assert str(book.root) not in two[0].path.read_text()
    source = [cell.source for cell in notebook.cells]
    assert source == [cell.source for cell in book.chapter("alpha").notebook().cells]


def test_a_failure_stops_nobody_and_keeps_the_last_good_run(book):
    runner.run(book, ["alpha"], executor=Inline(succeed))
    good = book.executed("quick", "alpha").read_bytes()
    toybook.append(book, ALPHA, toybook.code_cell("print('so far')\nraise RuntimeError('broken on purpose')"))
    alpha, beta = runner.run(book, jobs=2)
    assert (alpha.status, beta.status) == ("failed", "ran")
    assert alpha.cell == "[4] print('so far')"
    assert alpha.error == "RuntimeError: broken on purpose"
    assert alpha.path == book.build / "executed/quick/alpha.failed.ipynb"
    assert "so far" in str(cell_outputs(alpha.path))
    assert book.executed("quick", "alpha").read_bytes() == good
    assert keys.is_fresh(book, book.chapter("alpha"), "quick") is False

    toybook.edit(book, ALPHA, "raise RuntimeError('broken on purpose')", "1 + 1")
    assert statuses(runner.run(book)) == {"alpha": "ran", "beta": "cached"}
    assert left_in(book) == ["quick/alpha.ipynb", "quick/beta.ipynb"]


def test_overrides_run_beside_the_published_one(book):
    outcome = runner.run(book, ["alpha"], "full", {"steps": 3, "pair": [7, 8], "label": 'a "b"'})[0]
    assert outcome.status == "ran"
    assert outcome.path.name == f"{outcome.name}.ipynb"
    assert outcome.name.startswith("alpha-")
    assert left_in(book) == [f"full/{outcome.name}.ipynb"]
    text = str(cell_outputs(outcome.path))
    assert 'a "b" (7, 8)' in text.replace("\\'", "'")
    assert "4727.5" in text  # half the sum of the first 30 squares
    assert (
        runner.run(book, ["alpha"], "full", {"pair": (7, 8), "label": 'a "b"', "steps": 3})[0].status
        == "cached"
    )
    assert not book.record("alpha").exists()


def test_a_full_run_is_recorded_and_an_equal_override_is_no_override(book):
    outcome = runner.run(book, ["beta"], "full", {"seed": 0})[0]
    assert (outcome.status, outcome.name, outcome.overrides) == ("ran", "beta", {})
    record = json.loads(book.record("beta").read_text())
    assert record["slug"] == "beta"
    assert [row["verdict"] for row in record["rows"]] == ["reproduced"]
    injected = nbformat.read(outcome.path, as_version=4).cells[2]
    assert "profile = 'full'" in injected.source


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"slugs": ["alpah"]}, UnknownChapter),
        ({"profile": "fast"}, UnknownProfile),
        ({"slugs": ["alpha"], "overrides": {"stepz": 1}}, UnknownParameter),
        ({"slugs": ["alpha"], "overrides": {"steps": "x"}}, BadParameter),
        ({"slugs": ["alpha", "beta"], "overrides": {"steps": 3}}, UnknownParameter),
        ({"jobs": 0}, BookError),
        ({"output": "nowhere://x"}, BookError),
    ],
)
def test_mistakes_are_found_before_anything_starts(book, arguments, error):
    started = Inline(succeed)
    with pytest.raises(error):
        runner.run(book, executor=started, **arguments)
    assert started.tasks == []
    assert not book.build.exists()


def test_a_full_disk_fails_the_chapter_and_not_the_run(book, monkeypatch):
    real = Path.replace

    def replace(path, target):
        if "alpha" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    alpha, beta = runner.run(book, executor=Inline(succeed))
    assert (alpha.status, beta.status) == ("failed", "ran")
    assert "No space left on device" in alpha.error
    assert "alpha.ipynb" in alpha.error
    assert left_in(book) == ["quick/beta.ipynb"]


def test_a_chapter_that_cannot_be_prepared_fails_alone(book, monkeypatch):
    toybook.edit(book, ALPHA, ":tags: [parameters]\n", "")
    alpha, beta = runner.run(book, executor=Inline(succeed))
    assert (alpha.status, beta.status) == ("failed", "ran")
    assert "0 code cells tagged 'parameters'" in alpha.error
    monkeypatch.setattr(
        keys.datasets, "found", lambda slugs: _raise(keys.datasets.HashMismatch("x.csv is corrupt"))
    )
    alpha, beta = runner.run(book, executor=Inline(succeed))
    assert (beta.status, beta.error) == ("failed", "x.csv is corrupt")


def _raise(error):
    raise error


class KilledWorker(Exception):
    """Named as Dask's."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KilledWorker("x"), "chapter alpha ended its worker each time"),
        (ModuleNotFoundError("no", name="toybook"), "the worker cannot import toybook"),
        (OSError("lost"), "OSError: lost"),
    ],
)
def test_errors_of_the_executor_are_explained(book, error, said):
    def work(task):
        raise error

    outcome = runner.run(book, ["alpha"], executor=Inline(work))[0]
    assert outcome.status == "failed"
    assert said in outcome.error
    assert left_in(book) == []


def test_a_cancelled_future_is_an_outcome(book):
    class Cancelling(Executor):
        def submit(self, fn, /, task):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    assert runner.run(book, ["alpha"], executor=Cancelling())[0].status == "cancelled"


def test_an_edit_during_the_run_is_not_taken_for_fresh(book):
    def work(task):
        toybook.append(book, "src/toybook/papers/alpha/core.py", "\n# edited meanwhile\n")
        return succeed(task)

    assert runner.run(book, ["alpha"], executor=Inline(work))[0].status == "ran"
    assert keys.is_fresh(book, book.chapter("alpha"), "quick") is False
    assert runner.run(book, ["alpha"], executor=Inline(succeed))[0].status == "ran"
    assert runner.run(book, ["alpha"])[0].status == "cached"


def test_a_source_removed_during_the_run_loses_no_result(book):
    def work(task):
        book.chapter("alpha").source.unlink()
        return succeed(task)

    outcome = runner.run(book, ["alpha"], executor=Inline(work))[0]
    assert outcome.status == "ran"
    assert keys.stored_provenance(outcome.path)["key"] == "sources changed during the run"


def test_memory_limits_and_task_contents(book, monkeypatch):
    monkeypatch.setenv("ICML24_DATA", "some/data")  # as seen from here, not from the kernel's folder
    seen = Inline(succeed)
    runner.run(book, ["alpha"], executor=seen)
    runner.run(book, ["alpha"], "full", executor=seen)
    runner.run(book, ["alpha"], executor=seen, memory_mb=77, force=True)
    assert [task.memory_mb for task in seen.tasks] == [1500, 8000, 77]
    assert [task.parameters for task in seen.tasks] == [{}, {"profile": "full"}, {}]
    assert {task.data_folder for task in seen.tasks} == {str(Path.cwd() / "some/data")}


def test_the_longest_chapter_starts_first(book):
    def slow_beta(task):
        result = succeed(task)
        seconds = 9.0 if task.slug == "beta" else 1.0
        return Result(
            result.name, result.text.replace('"wall_s": 2.5', f'"wall_s": {seconds}'), True, seconds, 1.0
        )

    seen = Inline(slow_beta)
    runner.run(book, executor=seen)
    outcomes = runner.run(book, executor=seen, force=True)
    assert [task.slug for task in seen.tasks] == ["alpha", "beta", "beta", "alpha"]
    assert [outcome.slug for outcome in outcomes] == ["alpha", "beta"]


def test_results_are_copied_to_a_target(book, tmp_path):
    target = tmp_path / "share"
    for status in ("ran", "cached"):  # what was not executed again is copied as well
        (target / "quick" / "alpha.ipynb").unlink(missing_ok=True)
        outcome = runner.run(book, ["alpha"], executor=Inline(succeed), output=str(target))[0]
        assert outcome.status == status
        assert (target / "quick" / "alpha.ipynb").read_bytes() == outcome.path.read_bytes()


def test_targets_that_cannot_be_written(book, tmp_path, monkeypatch):
    from papermill.iorw import papermill_io

    from icml24.pipeline import targets

    with pytest.raises(BookError, match="boto3"):
        targets.check_target("s3://bucket/x")
    (tmp_path / "file").write_text("")
    with pytest.raises(BookError, match="expected a folder"):
        targets.check_target(str(tmp_path / "file"))

    written = {}

    class Store:
        def write(self, text, path):
            if "closed" in path:
                raise PermissionError("not yours")
            written[path] = text

    monkeypatch.setattr(papermill_io, "_handlers", [("toy://", Store()), *papermill_io._handlers])
    done = runner.run(book, ["alpha"], executor=Inline(succeed), output="toy://open/")[0]
    assert written == {"toy://open/quick/alpha.ipynb": done.path.read_text()}
    failed = runner.run(book, ["alpha"], executor=Inline(succeed), output="toy://closed")[0]
    assert failed.status == "failed"
    assert "toy://closed/quick/alpha.ipynb: PermissionError: not yours" in failed.error
    assert runner.run(book, ["alpha"])[0].status == "cached"
