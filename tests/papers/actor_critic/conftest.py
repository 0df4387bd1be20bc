"""Stored reference numbers: the update functions of BRO, official TOP, community ReDo, rliable, NumPy and SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.actor_critic import Batch


@pytest.fixture(scope="session")
def parity():
    with np.load(Path(__file__).parent / "data/parity.npz") as stored:
        return {name: torch.from_numpy(np.asarray(stored[name])) for name in stored.files}


@pytest.fixture
def make_batch():
    def make(n, size, obs=4, action=2, *, seed=0, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=g, dtype=dtype)

        return Batch(
            normal(n, size, obs),
            torch.tanh(normal(n, size, action)),
            normal(n, size),
            (normal(n, size) > -1).to(dtype),
            normal(n, size, obs),
        )

    return make
