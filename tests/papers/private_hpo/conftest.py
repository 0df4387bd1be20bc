"""Stored reference numbers: closed forms at 40 digits, dp-accounting 0.6.0, opacus 1.6.0."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def accounting():
    return json.loads((DATA / "accounting.json").read_text())


@pytest.fixture(scope="session")
def dp_step():
    with np.load(DATA / "dp_step.npz") as stored:
        return {name: torch.from_numpy(np.asarray(stored[name])) for name in stored.files}
