"""Fixtures of the house's tests: a toy book in a temporary folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import toybook


@pytest.fixture
def book(tmp_path):
    """A fresh toy book of two chapters, nothing executed."""
    return toybook.make(tmp_path / "toy")
