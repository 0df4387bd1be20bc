"""The runner on a Dask cluster: results come back, lost workers are survived, hopeless chapters reported."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import nbformat
import psutil
import pytest
import toybook

from icml24.pipeline import cluster, keys, runner
from icml24.pipeline.errors import ClusterError

WAIT = """
import os, pathlib, time
marks = os.environ.get("TOY_MARKS")
if marks:
    pathlib.Path(marks, f"{SLUG}-{os.getppid()}-{os.getpid()}").touch()
    while not pathlib.Path(marks, "go").exists():
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def address(marks):
    """Scheduler of a cluster of two worker processes that know the folder of marks."""
    import dask
    from distributed import LocalCluster

    settings = {"distributed.scheduler.allowed-failures": 1, "logging.distributed": "critical"}
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with pytest.MonkeyPatch.context() as patch, dask.config.set(settings):
        patch.setenv("TOY_MARKS", str(marks))  # also for the workers that replace killed ones
        with LocalCluster(processes=True, **options) as local:
            yield local.scheduler_address


def test_a_killed_worker_is_survived(book, address, marks):
    for slug, name in (("alpha", "book/one/alpha.md"), ("beta", "book/two/beta.md")):
        toybook.append(book, name, toybook.code_cell(f'SLUG = "{slug}"' + WAIT))
    killed = []

    def kill_alphas_worker():
        deadline = time.monotonic() + 60
        while len(list(marks.glob("*-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        worker = int(next(marks.glob("alpha-*")).name.split("-")[1])
        os.kill(worker, signal.SIGKILL)
        killed.append(worker)
        (marks / "go").touch()

    killer = threading.Thread(target=kill_alphas_worker)
    killer.start()
    with cluster.connect(address) as executor:
        outcomes = runner.run(book, executor=executor)
    killer.join()
    assert [outcome.status for outcome in outcomes] == ["ran", "ran"], [o.error for o in outcomes]
    workers = {int(mark.name.split("-")[1]) for mark in marks.glob("alpha-*")}
    assert len(killed) == 1
    assert len(workers) == 2  # begun on the one that died, done on another
    assert all(keys.is_fresh(book, chapter, "quick") for chapter in book.chapters)
    notebook = nbformat.read(outcomes[0].path, as_version=4)
    assert "204" in str(notebook.cells)
    left = [path.name for path in (book.build / "executed/quick").iterdir()]
    assert sorted(left) == ["alpha.ipynb", "beta.ipynb"]


def test_equal_calls_are_two_calls(address):
    with cluster.connect(address) as executor:  # Dask answers an equal call from memory unless told not to
        calls = [executor.submit(time.monotonic_ns) for _ in range(2)]
        assert len({call.result() for call in calls}) == 2


def test_a_forced_run_runs_and_results_equal_the_local_ones(book, address):
    local = runner.run(book, ["alpha"])[0]
    before = nbformat.read(local.path, as_version=4)
    with cluster.connect(address) as executor:
        outcome = runner.run(book, ["alpha"], executor=executor, force=True)[0]
    assert outcome.status == "ran"
    after = nbformat.read(outcome.path, as_version=4)
    assert after.cells == before.cells
    assert after.metadata.icml24.key == before.metadata.icml24.key
    assert outcome.seconds != local.seconds


def test_a_signal_ends_kernels_on_the_workers(book, address, marks):
    for mark in marks.iterdir():
        mark.unlink()
    toybook.append(book, "book/one/alpha.md", toybook.code_cell('SLUG = "alpha"' + WAIT))
    started = subprocess.Popen(
        toybook.command("run", "alpha", "--scheduler", address),
        cwd=book.root,
        env=toybook.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (begun := list(marks.glob("alpha-*"))):
        assert time.monotonic() < deadline
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.05)
    kernel = psutil.Process(int(begun[0].name.split("-")[2]))
    started.send_signal(signal.SIGTERM)
    assert psutil.wait_procs([kernel], timeout=3)[1] == []
    assert started.wait(timeout=30) == 143
    assert "SIGTERM" in started.stderr.read()
    started.stderr.close()
    assert not list(book.build.rglob("*.ipynb"))


def test_a_chapter_that_kills_each_worker_is_given_up(book, address):
    deadly = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(30)"
    toybook.append(book, "book/one/alpha.md", toybook.code_cell(deadly))
    with cluster.connect(address) as executor:
        alpha, beta = runner.run(book, executor=executor)
    assert (alpha.status, beta.status) == ("failed", "ran")
    assert "ended its worker each time it was tried" in alpha.error


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT_S", 1)
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        cluster.connect("tcp://127.0.0.1:9"),
    ):
        pass
    with (
        pytest.raises(ClusterError, match="no Dask scheduler answers at nonsense"),
        cluster.connect("nonsense://x"),
    ):
        pass
