"""Parity numbers and generators that several files of this folder use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def parity():
    """Reference arrays made independently with SciPy and plain loops (see the README of the folder)."""
    with np.load(Path(__file__).parent / "data" / "parity.npz", allow_pickle=False) as stored:
        return {name: torch.from_numpy(np.array(stored[name])) for name in stored.files}


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20240721)
