"""Parity numbers, and the laboratory's files for whoever has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def parity() -> Path:
    """Folder of the numbers to compare with."""
    return Path(__file__).parent / "data"


@pytest.fixture
def laboratory_files(monkeypatch) -> Path:
    """Folder with the laboratory's files, set as ICML24_DATA for one test."""
    root = os.environ.get("ICML24_TEST_DATA")
    if not root or not (Path(root) / "nanomorphology" / "dataset_labeled.csv").is_file():
        pytest.skip(
            "needs the laboratory's files, which have no licence and are not in the repository: set "
            "ICML24_TEST_DATA to a folder that holds nanomorphology/dataset_labeled.csv"
        )
    monkeypatch.setenv("ICML24_DATA", root)
    return Path(root) / "nanomorphology"
