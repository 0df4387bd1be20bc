"""How much memory a kernel takes, and the end of one that takes too much."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import psutil

__all__ = ["DEFAULT_LIMIT_MB", "MemoryWatch", "kill_tree"]

DEFAULT_LIMIT_MB = {"quick": 1500, "full": 8000}
INTERVAL_S = 0.1
MB = 1e6


class MemoryWatch:
    """Measures the peak of a kernel and its children, and kills them above a limit.

    Parameters
    ----------
    limit_mb : float or None
        Megabytes (10^6 bytes) of resident memory, children included; None: no limit.

    Attributes
    ----------
    peak_mb : float
        Highest value seen.
    exceeded : bool
        Whether the limit was passed and the kernel killed.
    """

    def __init__(self, limit_mb: float | None) -> None:
        self.limit_mb = limit_mb
        self.peak_mb = 0.0
        self.exceeded = False
        self.pid: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Start measuring a process."""
        self.stop()
        self.process, self.pid = process, process.pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._measure, name=f"memory of {process.pid}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End measuring; the peak stays."""
        self._done.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)

    @property
    def exit_status(self) -> int | None:
        """Exit status of the followed process, negative for a signal; None while it lives."""
        return None if self.process is None else self.process.poll()

    def _measure(self) -> None:
        assert self.pid is not None
        with contextlib.suppress(psutil.Error):
            kernel = psutil.Process(self.pid)
            children: list[psutil.Process] = []
            turn = 0
            while not self._done.wait(INTERVAL_S):
                if turn % 5 == 0:  # listing children reads every process of the machine
                    children = kernel.children(recursive=True)
                turn += 1
                now = kernel.memory_info().rss + sum(_resident(child) for child in children)
                self.peak_mb = max(self.peak_mb, now / MB, _high_water(self.pid) / MB)
                if self.limit_mb is not None and self.peak_mb > self.limit_mb:
                    self.exceeded = True
                    kill_tree(self.pid)
                    return


def kill_tree(pid: int) -> bool:
    """Send SIGKILL to a process, its descendants and its process group; False when it was gone."""
    try:
        process = psutil.Process(pid)
        victims = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return False
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:  # kernels lead their own session
            os.killpg(pid, signal.SIGKILL)
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.kill()
    return True


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _high_water(pid: int) -> float:
    """Peak resident bytes of one process as the kernel of Linux counts them; 0 elsewhere."""
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return float(match.group(1)) * 1024 if match else 0.0
