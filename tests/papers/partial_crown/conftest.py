"""Stored references: the authors' code run once, autograd, dense sampling (see the dossier in each file's test)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.partial_crown import TanhMLP

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def stored():
    """Reader of a parity file: name -> dict of float64 tensors."""

    def read(name):
        with np.load(DATA / f"{name}.npz") as file:
            return {key: torch.from_numpy(np.asarray(file[key], dtype=np.float64)) for key in file.files}

    return read


@pytest.fixture(scope="session")
def burgers_net(stored):
    arrays = stored("burgers_net")
    depth = sum(key.startswith("W") for key in arrays)
    return TanhMLP.from_arrays(
        *([arrays[f"{kind}{k}"] for k in range(depth)] for kind in "Wb"), arrays["lb"], arrays["ub"]
    ).requires_grad_(False)


@pytest.fixture(scope="session")
def draw():
    """Uniform numbers from a named stream, never from global state."""

    def uniform(*shape, seed, low=0.0, high=1.0):
        g = torch.Generator().manual_seed(seed)
        return low + (high - low) * torch.rand(*shape, generator=g, dtype=torch.float64)

    return uniform


@pytest.fixture(scope="session")
def boxes_in():
    """`n` boxes of a radius given as a share of the domain, inside it."""

    def boxes(domain, n, radius, seed):
        g = torch.Generator().manual_seed(seed)
        low, high = domain
        half = radius * (high - low)
        centre = low + half + (high - low - 2 * half) * torch.rand(n, 2, generator=g, dtype=torch.float64)
        return torch.stack((centre - half, centre + half), 1)

    return boxes


@pytest.fixture(scope="session")
def points_in():
    """Points (B, n, 2) of boxes, their corners among them."""

    def points(boxes, n, seed):
        g = torch.Generator().manual_seed(seed)
        share = torch.rand(len(boxes), n, 2, generator=g, dtype=torch.float64)
        share[:, :4] = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
        x = boxes[:, None, 0] + (boxes[:, None, 1] - boxes[:, None, 0]) * share
        return torch.maximum(torch.minimum(x, boxes[:, None, 1]), boxes[:, None, 0])

    return points
