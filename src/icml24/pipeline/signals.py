"""Signals that end a program, as an exception that cleans up on its way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from icml24.pipeline.errors import Interrupted

__all__ = ["signals_raise"]


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Turn the signals that end a program into `Interrupted`, once (in the main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [getattr(signal, name) for name in names]
    previous = {number: signal.getsignal(number) for number in numbers}

    def handle(signum: int, frame: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning up
        raise Interrupted(signum)

    for number in numbers:
        if previous[number] is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        if any(signal.getsignal(number) is handle for number in numbers):
            for number, old in previous.items():
                signal.signal(number, old)
