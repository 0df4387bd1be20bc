"""Ending a run from outside: kernels gone within three seconds, nothing half-written, the next run completes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time

import psutil
import pytest
import toybook

from icml24.pipeline.errors import Interrupted
from icml24.pipeline.signals import signals_raise

WAIT = """
import os, pathlib, subprocess, time
if os.environ.get("TOY_MARKS"):
    child = subprocess.Popen(["sleep", "60"])
    mark = pathlib.Path(os.environ["TOY_MARKS"], f"{os.getpid()}-{child.pid}")
    mark.touch()
    time.sleep(60)
"""
GONE_WITHIN_S = 3.0


@pytest.fixture
def waiting(book, tmp_path):
    """A run of both chapters, each in the middle of a cell; yields (runner, kernels, their children)."""
    marks = tmp_path / "marks"
    marks.mkdir()
    for name in ("book/one/alpha.md", "book/two/beta.md"):
        toybook.append(book, name, toybook.code_cell(WAIT))
    environment = toybook.environment() | {"TOY_MARKS": str(marks)}
    runner = subprocess.Popen(
        toybook.command("run", "--jobs", "2"),
        cwd=book.root,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while len(list(marks.iterdir())) < 2:
        assert time.monotonic() < deadline, "the chapters did not start"
        assert runner.poll() is None, runner.stderr.read()
        time.sleep(0.05)
    pairs = [mark.name.split("-") for mark in marks.iterdir()]
    kernels, children = ([psutil.Process(int(pair[i])) for pair in pairs] for i in (0, 1))
    yield runner, kernels, children
    for process in (*kernels, *children, psutil.Process()):
        if process.pid != psutil.Process().pid and process.is_running():
            process.kill()
    if runner.poll() is None:
        runner.kill()
    runner.wait()
    runner.stderr.close()


def completes(book):
    done = toybook.call(book, "run", "--jobs", "2", "--json")
    assert done.returncode == 0, done.stderr
    return [outcome["status"] for outcome in json.loads(done.stdout)]


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_kernels_and_their_children(book, waiting, signum, status):
    runner, kernels, children = waiting
    sent = time.monotonic()
    runner.send_signal(signum)
    _, alive = psutil.wait_procs([*kernels, *children], timeout=GONE_WITHIN_S)
    assert alive == []
    assert time.monotonic() - sent < GONE_WITHIN_S
    assert runner.wait(timeout=20) == status
    said = runner.stderr.read()
    assert signum.name in said
    assert "Traceback" not in said
    assert list(book.build.rglob("*.ipynb")) + list(book.build.rglob("*.tmp")) == []
    if signum == signal.SIGTERM:
        assert completes(book) == ["ran", "ran"]


def test_kill_9_ends_kernels_and_the_next_run_completes(book, waiting):
    runner, kernels, _ = waiting
    runner.kill()
    _, alive = psutil.wait_procs(kernels, timeout=GONE_WITHIN_S)
    assert alive == []
    assert runner.wait(timeout=5) == -signal.SIGKILL
    assert list(book.build.rglob("*.ipynb")) + list(book.build.rglob("*.tmp")) == []
    assert completes(book) == ["ran", "ran"]


def test_a_finished_chapter_survives_the_signal(book, tmp_path):
    """The run resumes: what had landed before the signal is not run again."""
    toybook.append(book, "book/two/beta.md", toybook.code_cell(WAIT))
    environment = toybook.environment() | {"TOY_MARKS": str(tmp_path)}
    runner = subprocess.Popen(
        toybook.command("run", "-j", "2"), cwd=book.root, env=environment, stderr=subprocess.DEVNULL
    )
    landed, deadline = book.executed("quick", "alpha"), time.monotonic() + 60
    while not (landed.exists() and list(tmp_path.glob("*-*"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    runner.terminate()
    assert runner.wait(timeout=20) == 143
    assert completes(book) == ["cached", "ran"]


def test_signals_raise_once_and_handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted) as caught, signals_raise():
        signal.raise_signal(signal.SIGTERM)
    assert (caught.value.signum, caught.value.status) == (signal.SIGTERM, 143)
    signal.raise_signal(signal.SIGTERM)  # a second one does not stop the cleaning up
    for number, handler in zip(
        (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), (*before, signal.SIG_DFL), strict=True
    ):
        signal.signal(number, handler)
    with signals_raise():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_the_main_thread_nothing_is_installed():
    before, inside = signal.getsignal(signal.SIGTERM), []

    def work():
        with signals_raise():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
