"""How weights answer to similarities."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.sparc import alignment_weights
from icml24.papers.sparc.jacobians import climb, minmax_jacobian, softmax_jacobian


def row(seed=0, p=7):
    return torch.randn(p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def differences(function, s, step=1e-6):
    columns = []
    for j in range(len(s)):
        move = torch.zeros_like(s)
        move[j] = step
        columns.append((function(s + move) - function(s - move)) / (2 * step))
    return torch.stack(columns, 1)


@pytest.mark.equation("eq-sparc-saturation")
def test_softmax_jacobian():
    """E4: closed form, differences; norm 1/P when uniform, linear in 1 - a_max at a corner."""
    s = row()
    found = softmax_jacobian(torch.softmax(s, 0))
    slopes = differences(lambda x: alignment_weights(x, mode="softmax"), s)
    torch.testing.assert_close(found, slopes, rtol=0, atol=1e-8)
    uniform = softmax_jacobian(torch.full((7,), 1 / 7, dtype=torch.float64))
    assert math.isclose(torch.linalg.matrix_norm(uniform, 2), 1 / 7, rel_tol=1e-12)
    norms = []
    for rest in (1e-3, 1e-4):
        corner = torch.full((7,), rest / 6, dtype=torch.float64)
        corner[0] = 1 - rest
        norms.append(float(torch.linalg.matrix_norm(softmax_jacobian(corner), 2)))
    assert math.isclose(norms[0] / norms[1], 10, rel_tol=0.01)


@pytest.mark.equation("eq-sparc-rational")
@pytest.mark.parametrize("threshold", [0.0, 1 / 7, 0.4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_minmax_jacobian(threshold, seed):
    """E5: closed form against differences and autograd of the package's weights."""
    s = row(seed)
    found = minmax_jacobian(s, threshold=threshold)

    def weights(x):
        return alignment_weights(x, threshold=threshold)

    torch.testing.assert_close(found, differences(weights, s), rtol=0, atol=1e-7)
    torch.testing.assert_close(found, torch.autograd.functional.jacobian(weights, s), rtol=0, atol=1e-12)
    assert found.sum(1).abs().max() < 1e-12  # adding a constant to all similarities changes nothing


def test_tied_best_patches_stay_tied_under_minmax():
    """E5: sharpening a near tie by a factor ruins it for the softmax and leaves min-max unmoved."""
    s = torch.tensor([1.0, 0.98, 0.1, 0.0], dtype=torch.float64)
    sharp, soft = (alignment_weights(500 * s, mode=mode) for mode in ("sparse", "softmax"))
    torch.testing.assert_close(sharp, alignment_weights(s))
    assert soft[0] / soft[1] > 1e4
    assert sharp[0] / sharp[1] < 1.03


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_climbing_concentrates_the_softmax_first(seed):
    """E6: gradient ascent with nearly equal worths; the softmax is down to one patch, min-max is not."""
    start = row(seed, 25)
    worth = 1 + 0.1 * torch.rand(25, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    paths = {mode: climb(start, worth, mode=mode, steps=100, rate=10.0) for mode in ("softmax", "sparse")}
    for path in paths.values():
        assert path.shape == (101, 25)
        torch.testing.assert_close(path.sum(1), torch.ones(101, dtype=torch.float64))
        assert float(path[-1] @ worth) > float(path[0] @ worth)
    assert torch.equal(paths["sparse"][0], alignment_weights(start))
    left = {mode: float(1 / path[-1].square().sum()) for mode, path in paths.items()}
    assert left["softmax"] < 2 < 4 < left["sparse"]
