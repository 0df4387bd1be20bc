"""Stored outputs of the released code (see data/SOURCE.md), as float64 tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers import ctag

DATA = Path(__file__).parent / "data"


def _load(name):
    with np.load(DATA / f"{name}.npz") as stored:
        return {key: torch.from_numpy(np.asarray(stored[key], dtype=np.float64)) for key in stored.files}


def _config(stored):
    sample_rate, control_rate, duration = stored["config"].tolist()
    return ctag.SynthConfig(int(sample_rate), int(control_rate), duration)


@pytest.fixture(scope="session")
def data_folder():
    return DATA


@pytest.fixture(scope="session")
def load():
    return _load


@pytest.fixture(scope="session")
def modules():
    return _load("modules")


@pytest.fixture(scope="session")
def config(modules):
    return _config(modules)


@pytest.fixture(scope="session")
def configure():
    return _config


@pytest.fixture(scope="session")
def weights():
    return ctag.load_les_weights(DATA / "les_weights.npz")


@pytest.fixture
def uniform():
    """Uniform float64 draws of a named shape, from a generator of fixed seed."""
    g = torch.Generator().manual_seed(20)

    def draw(*shape, low=0.0, high=1.0):
        return low + (high - low) * torch.rand(*shape, generator=g, dtype=torch.float64)

    return draw
