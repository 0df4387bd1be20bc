"""SCORE: the Stein estimate and the leaf it finds."""

from __future__ import annotations

import numpy as np
import pytest

from icml24.papers.dht_cit import score_order, stein_hessian_diagonal


@pytest.mark.equation("eq-dht_cit-stein")
@pytest.mark.parametrize("d", [1, 2])
def test_standard_normal_has_curvature_minus_one(d):
    """E11: the log density of N(0, I) has Hessian -I everywhere; the ridge biases the mean by some 0.2."""
    samples = [np.random.default_rng(seed).standard_normal((800, d)) for seed in range(3)]
    means = [stein_hessian_diagonal(x).mean() for x in samples]
    assert np.mean(means) == pytest.approx(-1, abs=0.25)
    wide = [stein_hessian_diagonal(3 * x).mean() for x in samples]  # curvature falls with the variance
    assert np.mean(wide) == pytest.approx(-1 / 9, abs=0.04)


@pytest.mark.equation("eq-dht_cit-stein")
def test_estimate_sums_over_pairs():
    """The estimate from the definition: derivatives of the kernel, pair by pair, and a plain inverse."""
    x = np.random.default_rng(1).standard_normal((40, 2)) * [1, 2] + 100
    difference = x[:, None] - x[None]
    distance = np.sqrt((difference**2).sum(-1))
    s = np.sort(distance.ravel())[(1600 - 1) // 2]
    gram = np.exp(-(distance**2) / (2 * s**2)) / s
    first = -np.einsum("kij,ki->kj", difference, gram) / s**2
    second = np.einsum("kij,ki->kj", difference**2 / s**4 - 1 / s**2, gram)
    inverse = np.linalg.inv(gram + 0.01 * np.eye(40))
    direct = -((inverse @ first) ** 2) + np.linalg.inv(gram + 0.1 * np.eye(40)) @ second
    ours = stein_hessian_diagonal(x, eta_g=0.01, eta_h=0.1)
    np.testing.assert_allclose(ours, direct, rtol=1e-8, atol=1e-8)


@pytest.mark.equation("eq-dht_cit-leaf")
def test_leaf_has_the_flattest_curvature():
    """X -> Y nonlinear: along the leaf Y the true second derivative is constant, along X it is not."""
    r = np.random.default_rng(0)
    wins = 0
    for _ in range(6):
        x = r.standard_normal(300)
        y = 2 * np.sin(2 * x) + 0.5 * r.standard_normal(300)
        data = np.column_stack([y, x])  # the leaf is column 0
        wins += score_order(data) == [1, 0]
    assert wins == 6
    estimate = stein_hessian_diagonal(data)
    assert estimate[:, 0].var() < 0.5 * estimate[:, 1].var()
    # closed form of d2 log p / dx2 for this model: its variance is large, that of -1/sigma^2 is zero
    slope, bend = 4 * np.cos(2 * x), -8 * np.sin(2 * x)
    exact = -1 + ((y - 2 * np.sin(2 * x)) * bend - slope**2) / 0.25
    assert exact.var() > 100


def test_parity_with_authors(parity):
    for case in parity("stein"):
        ours, scale = stein_hessian_diagonal(case["x"]), np.abs(case["hess"]).max()
        # their distances come from a matrix product: about 1e-8 of the largest entry
        np.testing.assert_allclose(ours, case["hess"], rtol=0, atol=1e-6 * scale)
        assert score_order(case["x"]) == case["order"].tolist()


def test_order_of_one_and_of_a_shift():
    x = np.random.default_rng(2).standard_normal((30, 3))
    assert score_order(x[:, :1]) == [0]
    assert score_order(x) == score_order(x + 5)
    assert all(type(v) is int for v in score_order(x))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: stein_hessian_diagonal(np.zeros(5)), "shape"),
        (lambda: stein_hessian_diagonal(np.zeros((2, 2))), "rows"),
        (lambda: stein_hessian_diagonal(np.ones((20, 2))), "median"),
        (lambda: stein_hessian_diagonal(np.full((20, 2), np.nan)), "finite"),
        (lambda: score_order(np.eye(5), eta_g=0.0), "eta_g"),
        (lambda: score_order(np.eye(5), eta_h=-1.0), "eta_h"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
