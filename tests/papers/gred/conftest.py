"""Outputs of the authors' code, run in double precision at commit 54733a3, as stored arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parent / "data"


def cases(name: str) -> dict[str, dict[str, np.ndarray]]:
    """Arrays of one file by case."""
    out: dict[str, dict[str, np.ndarray]] = {}
    with np.load(DATA / f"{name}.npz") as stored:
        for key in stored.files:
            case, rest = key.split("/", 1)
            out.setdefault(case, {})[rest] = stored[key]
    return out


def params(case: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters of a case, by the names that `load_reference_params` expects."""
    return {key.removeprefix("param/"): array for key, array in case.items() if key.startswith("param/")}


@pytest.fixture(scope="session")
def layer_cases():
    return cases("layer")


@pytest.fixture(scope="session")
def lru_cases():
    return cases("lru")


@pytest.fixture(scope="session")
def init_cases():
    return cases("init")


@pytest.fixture(scope="session")
def model_cases():
    return cases("model")


@pytest.fixture(scope="session")
def train_cases():
    return cases("train")


@pytest.fixture(scope="session")
def params_of():
    return params
