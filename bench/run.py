"""Run the benchmarks one after another, each in its own process: ``python bench/run.py [NAME ...]``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_A_BENCHMARK = {"harness", "run"}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def names() -> list[str]:
    """Every benchmark in this folder."""
    return sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NOT_A_BENCHMARK)


def main(wanted: list[str]) -> int:
    """Exit status: the number of benchmarks that failed."""
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(names())}")
    environment = os.environ | dict.fromkeys(THREADS, "1")
    failed = 0
    for name in wanted or names():
        print(f"== {name}", flush=True)
        failed += subprocess.run([sys.executable, HERE / f"{name}.py"], env=environment).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
