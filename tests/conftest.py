"""One thread a process and no original data: every machine runs the same tests on the same inputs."""

from __future__ import annotations

import os

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
for _name in THREADS:
    os.environ[_name] = "1"
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.pop("ICML24_DATA", None)

import pytest  # noqa: E402


@pytest.fixture
def global_random_state():
    """State of the global generators, to compare after a call that must not touch them."""
    import random

    import numpy as np
    import torch

    def state() -> tuple[object, ...]:
        kind, keys, pos, *rest = np.random.get_state()  # noqa: NPY002
        return (
            random.getstate(),
            kind,
            keys.tobytes(),
            pos,
            tuple(rest),
            torch.get_rng_state().numpy().tobytes(),
        )

    return state
