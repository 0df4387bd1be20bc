"""Stored reference numbers: the authors' code, causal-learn 0.1.4.8, gadjid 0.1.0, statsmodels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def parity():
    """Cases of a stored file, each a mapping of name (without its number) to array."""

    def load(name: str) -> list[dict[str, np.ndarray]]:
        with np.load(DATA / f"{name}.npz", allow_pickle=False) as stored:
            values = {key: stored[key] for key in stored.files}
        cases = []
        for index in range(int(values.pop("n"))):
            ends = str(index)
            cases.append(
                {key.removesuffix(ends).rstrip("_"): v for key, v in values.items() if key.endswith(ends)}
            )
        return cases

    return load
