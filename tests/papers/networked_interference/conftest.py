"""Parity numbers, and small random networks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def stored():
    """Function from the name of a parity file to its arrays as tensors."""

    def read(name):
        with np.load(DATA / f"{name}.npz") as archive:
            return {key: torch.from_numpy(np.asarray(archive[key])) for key in archive.files}

    return read


@pytest.fixture
def network():
    """Function from a number of units and a seed to a connected random graph (dense), features and treatment."""

    def make(n=12, features=5, seed=0, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)
        upper = torch.triu((torch.rand(n, n, generator=g) < 0.25).to(dtype), diagonal=1)
        ring = torch.roll(torch.eye(n, dtype=dtype), 1, dims=1)
        adjacency = ((upper + upper.T + ring + ring.T) > 0).to(dtype).fill_diagonal_(0)
        x = torch.rand(n, features, generator=g, dtype=dtype)
        t = (torch.rand(n, generator=g) < 0.5).to(dtype)
        t[:2] = torch.tensor([0.0, 1.0])
        return adjacency, x, t

    return make


@pytest.fixture
def citation_files(monkeypatch):
    """Folder with the citation graphs, set as ICML24_DATA for one test."""
    root = os.environ.get("ICML24_TEST_DATA")
    if not root or not (Path(root) / "networked_interference" / "cora.npz").is_file():
        pytest.skip(
            "needs the citation graphs: set ICML24_TEST_DATA to a folder with networked_interference/cora.npz"
        )
    monkeypatch.setenv("ICML24_DATA", root)
    return Path(root) / "networked_interference"
