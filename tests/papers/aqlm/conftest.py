"""Stored numbers: the released code's outputs in float64, independent numpy references, a look-up kernel's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.aqlm import AQLMConfig

DATA = Path(__file__).parent / "data"


def arrays(name):
    with np.load(DATA / f"public_{name}.npz") as stored:
        return {key: torch.from_numpy(stored[key]) for key in stored.files}


def facts(name):
    return json.loads((DATA / f"public_{name}.json").read_text())


@pytest.fixture(scope="session")
def core():
    return arrays("core")


@pytest.fixture(scope="session")
def core_facts():
    return facts("core")


@pytest.fixture(scope="session")
def extra():
    return arrays("extra")


@pytest.fixture(scope="session")
def extra_facts():
    return facts("extra")


@pytest.fixture
def problem():
    """A random layer in additive code: weight, codes, codebooks, scales, gram, all float64."""

    def make(o=5, i=3, m=2, k=4, g_out=1, g_in=4, seed=0, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)
        weight = torch.randn(o * g_out, i * g_in, generator=g, dtype=dtype)
        x = torch.randn(40, i * g_in, generator=g, dtype=dtype) @ torch.randn(
            i * g_in, i * g_in, generator=g, dtype=dtype
        )
        codes = torch.randint(k, (o, i, m), generator=g)
        books = torch.randn(m, k, g_out, g_in, generator=g, dtype=dtype)
        scales = torch.rand(o, 1, 1, 1, generator=g, dtype=dtype) + 0.5
        return weight, codes, books, scales, x.T @ x / len(x)

    return make


@pytest.fixture
def tiny_config():
    return AQLMConfig(
        num_codebooks=2,
        nbits_per_codebook=3,
        in_group_size=4,
        kmeans_max_iter=10,
        adam_steps=10,
        lr=1e-3,
        max_rounds=3,
    )
