"""Stored reference numbers: closed forms and seeded simulations by numpy and scipy; no official code exists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def reference():
    with np.load(DATA / "reference.npz") as stored:
        return {name: np.asarray(stored[name]) for name in stored.files}


@pytest.fixture
def g():
    return torch.Generator().manual_seed(7)
