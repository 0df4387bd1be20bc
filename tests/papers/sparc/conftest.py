"""Stored reference numbers (an independent loop over words and pairs, float64) and random batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

DATA = Path(__file__).parent / "data"
CASES = ("c0", "c1", "c2")
#: Name in the stored numbers, and what is passed for it.
VARIANTS = {
    "sparse": {},
    "sparse_t50": {"threshold": 0.5},
    "dense": {"mode": "dense"},
    "softmax": {"mode": "softmax"},
}


@pytest.fixture(scope="session")
def arrays():
    with np.load(DATA / "public_losses.npz") as stored:
        return {name: torch.from_numpy(np.asarray(stored[name])) for name in stored.files}


@pytest.fixture(scope="session")
def numbers():
    return json.loads((DATA / "public_losses.json").read_text())


@pytest.fixture(params=CASES)
def case(request, arrays, numbers):
    """One stored batch: name, its tensors, its inverse temperature."""
    name = request.param
    fields = {key: arrays[f"{name}_{key}"] for key in ("patches", "tokens", "mask", "image", "text")}
    return name, fields, numbers[f"{name}_it"]


@pytest.fixture(params=VARIANTS)
def variant(request):
    """One kind of weights: its name in the stored numbers, and its arguments."""
    return request.param, VARIANTS[request.param]


def batch(b=4, length=6, p=9, d=8, seed=0, dtype=torch.float64):
    """Random embeddings and a ragged mask."""
    g = torch.Generator().manual_seed(seed)
    patches = torch.randn(b, p, d, generator=g, dtype=dtype)
    tokens = torch.randn(b, length, d, generator=g, dtype=dtype)
    real = torch.randint(1, length + 1, (b,), generator=g)
    mask = torch.arange(length)[None] < real[:, None]
    return patches, tokens, mask


@pytest.fixture
def make_batch():
    return batch
