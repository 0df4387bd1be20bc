"""Stored numbers of the released code, small batches, a small network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.pepflow import PepFlow, PepFlowConfig, State, data, random_so3
from icml24.papers.pepflow.batches import collate

DATA = Path(__file__).parent / "data"

SIZES = {
    "c_s": 16, "c_z": 8, "c_hidden": 8, "no_heads": 2, "no_qk_points": 3, "no_v_points": 4,
    "seq_tfmr_num_heads": 2, "seq_tfmr_num_layers": 1, "num_blocks": 2,
}  # fmt: skip


@pytest.fixture(scope="session")
def parity():
    def load(name):
        with np.load(DATA / f"{name}.npz") as file:
            return {key: torch.from_numpy(np.array(value)) for key, value in file.items()}

    return load


@pytest.fixture(scope="session")
def complexes():
    return data.peptide_complexes()


@pytest.fixture(scope="session")
def sizes():
    return SIZES


@pytest.fixture
def batch(complexes):
    """Two complexes of different lengths, float64, so that the first is padded."""
    short = {k: v[5:] for k, v in complexes["1BD2"].items()}
    rows = [short, complexes["3KPR"]]
    return {k: v.double() if v.is_floating_point() else v for k, v in collate(rows).items()}


@pytest.fixture(scope="session")
def model():
    """A small network, float64, in which no layer is silent."""
    net = PepFlow(PepFlowConfig(**SIZES), generator=torch.Generator().manual_seed(0)).double()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return net.eval()


@pytest.fixture(scope="session")
def random_state():
    """Function (B, L, seed) -> a random state of float64."""

    def draw(B, L, seed=0):
        like = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
        return State(
            random_so3((B, L), **like),
            torch.randn(B, L, 3, **like),
            2 * torch.pi * torch.rand(B, L, 5, **like),
            5 * torch.randn(B, L, 20, **like),
        )

    return draw
