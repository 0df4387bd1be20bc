r"""Side-by-side timing: ours and a peer, interleaved in one run, on the same inputs.

A ratio taken in two runs measures the machine's mood. Here each repeat times both, in
alternating order, and the reported ratio is the median over repeats of peer / ours, with a
percentile bootstrap interval. A ratio above 1 means that ours is faster.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"


def seconds(call: Callable[[], object], number: int = 1) -> float:
    """Wall seconds of one call, averaged over `number` calls in a row."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def compare(
    what: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    repeats: int = 15,
    number: int = 1,
    peer_number: int | None = None,
    unit: str = "s",
) -> dict[str, object]:
    """One row of a benchmark table.

    Parameters
    ----------
    what : str
        What both sides compute, with the sizes.
    ours, peer : callable
        No arguments; both are called once before the clock starts.
    repeats : int
        Interleaved pairs.
    number, peer_number : int
        Calls inside one measurement (`peer_number` defaults to `number`).
    unit : {"s", "ms", "us"}
        Unit of the two times in the row.

    Returns
    -------
    dict with the keys of the results schema: what, ours, peer, ratio, low, high, unit.
    """
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    ours()
    peer()
    pairs = []
    for repeat in range(repeats):
        sides = [(0, ours, number), (1, peer, peer_number or number)]
        measured = [0.0, 0.0]
        for index, call, count in sides if repeat % 2 == 0 else reversed(sides):
            measured[index] = seconds(call, count)
        pairs.append(measured)
    times = np.asarray(pairs)
    ratios = times[:, 1] / times[:, 0]
    picks = np.random.default_rng(0).integers(0, repeats, size=(2000, repeats))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return {
        "what": what,
        "ours": float(np.median(times[:, 0]) * scale),
        "peer": float(np.median(times[:, 1]) * scale),
        "ratio": float(np.median(ratios)),
        "low": float(low),
        "high": float(high),
        "unit": unit,
    }


def write(
    name: str, title: str, peer: str, rows: Sequence[dict[str, object]], packages: Sequence[str]
) -> Path:
    """Store a benchmark's rows with versions, threads and machine; returns the file.

    The write is atomic: the table on the book's page is either the old one or the new one.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {
        "name": name,
        "title": title,
        "peer": peer,
        "rows": list(rows),
        "versions": {package: metadata.version(package) for package in packages},
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or None,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": dt.date.today().isoformat(),
    }
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
    temporary.replace(path)
    for row in rows:
        print(
            f"{name}: {row['what']}: ours {row['ours']:.3g} {row['unit']}, peer {row['peer']:.3g} {row['unit']}, "
            f"ratio {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        )
    return path
