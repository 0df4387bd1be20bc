import pickle

import numpy as np
import pytest
import torch

from icml24.papers.ctag import les_weights as module
from icml24.papers.ctag import load_les_weights


def test_file_and_wheel_agree_bit_for_bit(weights):
    from_wheel = load_les_weights()
    assert list(from_wheel) == list(weights)
    assert len(weights) == 12
    assert all(torch.equal(from_wheel[name], weights[name]) for name in weights)
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_wheel_is_read_not_imported():
    import sys

    load_les_weights()
    assert "evosax" not in sys.modules
    assert "jax" not in sys.modules


def fake_wheel(tmp_path, monkeypatch, content=None):
    if content is not None:
        file = tmp_path / module.WHEEL_FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    monkeypatch.setattr(module, "package_folder", lambda name: tmp_path)


def test_other_pickles_are_refused(tmp_path, monkeypatch):
    fake_wheel(tmp_path, monkeypatch, pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        load_les_weights()


def test_other_versions_are_refused(tmp_path, monkeypatch):
    fake_wheel(tmp_path, monkeypatch)
    with pytest.raises(ImportError, match=r"pip install --no-deps evosax==0\.1\.5"):
        load_les_weights()


def test_absent_package(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps evosax"):
        load_les_weights()


def test_bad_files(tmp_path, weights):
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_les_weights(tmp_path / "nothing.npz")
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    first = next(iter(arrays))
    for change, match in (
        ({name: a for name, a in arrays.items() if name != first}, "lack"),
        (arrays | {first: np.zeros(3, np.float32)}, "shape"),
        (arrays | {first: np.full_like(arrays[first], np.nan)}, "finite"),
    ):
        np.savez(tmp_path / "bad.npz", **change)
        with pytest.raises(ValueError, match=match):
            load_les_weights(str(tmp_path / "bad.npz"))
