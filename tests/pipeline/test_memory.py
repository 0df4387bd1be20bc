"""Measuring a process's memory, and ending one that takes too much."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from icml24.pipeline.memory import MemoryWatch, kill_tree

HOLD = "import sys, time; block = bytearray({mb} * 10**6); print('held', flush=True); time.sleep(60)"
CHILD = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {code!r}]); time.sleep(60)"


@pytest.fixture
def start():
    processes = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        kill_tree(process.pid)
        process.wait()
        process.stdout.close()


def test_peak_is_measured_and_survives_the_process(start):
    process = start(HOLD.format(mb=120))
    process.stdout.readline()
    watch = MemoryWatch(None)
    watch.follow(process)
    time.sleep(0.4)
    watch.stop()
    assert 120 < watch.peak_mb < 160
    assert watch.exceeded is False
    assert watch.exit_status is None


@pytest.mark.parametrize("code", [HOLD.format(mb=200), CHILD.format(code=HOLD.format(mb=200))])
def test_a_process_over_its_limit_ends_with_its_children(start, code):
    process = start(code)
    watch = MemoryWatch(100)
    watch.follow(process)
    assert process.wait(timeout=10) == -9
    watch.stop()
    assert watch.exceeded is True
    assert watch.peak_mb > 100
    assert watch.exit_status == -9


def test_a_process_below_its_limit_lives(start):
    process = start(HOLD.format(mb=30))
    process.stdout.readline()
    watch = MemoryWatch(100)
    watch.follow(process)
    time.sleep(0.4)
    assert process.poll() is None
    process.kill()
    process.wait()
    time.sleep(0.2)
    watch.stop()
    assert (watch.exceeded, watch.exit_status) == (False, -9)


def test_kill_tree_takes_descendants_and_knows_the_dead(start):
    process = start(CHILD.format(code="import time; time.sleep(60)"))
    deadline = time.monotonic() + 10
    while not (children := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children
    assert kill_tree(process.pid) is True
    assert process.wait(timeout=5) == -9
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert (len(gone), alive) == (1, [])
    assert kill_tree(process.pid) is False
