"""The numerical accountant: against closed forms, a peer library, and brute force."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from icml24.papers.private_hpo import gdp_epsilon, pld_epsilon
from icml24.papers.private_hpo.privacy_loss import Release, _inverse_loss, _loss, composed_epsilon


@pytest.mark.parametrize(
    ("mu", "steps", "delta"),
    [
        (0.3, 100, 1e-5),
        (1.0, 1000, 1e-5),
        (3.0, 10, 1e-9),
        (0.268, 1, 1e-5),
        (1.0, 10, 1e-30),
        (8.0, 4, 1e-5),
    ],
)
def test_full_batch_is_the_gaussian_curve(mu, steps, delta):
    ours = pld_epsilon(math.sqrt(steps) / mu, 1.0, steps, delta)
    assert ours == pytest.approx(gdp_epsilon(mu, delta), rel=5e-3)


def test_parity(accounting):
    for row in accounting["pld"]:
        ours = pld_epsilon(row["noise_multiplier"], row["sample_rate"], row["steps"], row["delta"])
        assert ours == pytest.approx(row["epsilon"], rel=1e-2)


@pytest.mark.equation("eq-private_hpo-loss")
@pytest.mark.parametrize(("q", "sigma", "delta"), [(0.3, 1.0, 1e-3), (0.05, 0.7, 1e-5), (0.9, 3.0, 1e-4)])
def test_one_step_by_brute_force(q, sigma, delta):
    """The hockey-stick divergence of one subsampled step, both directions, by direct integration."""
    z = np.linspace(-14 * sigma, 1 + 14 * sigma, 400_001)
    with_record = (1 - q) * norm.pdf(z, 0, sigma) + q * norm.pdf(z, 1, sigma)
    without = norm.pdf(z, 0, sigma)

    def delta_of(epsilon):
        scale = math.exp(epsilon)
        removed = np.maximum(with_record - scale * without, 0).sum()
        added = np.maximum(without - scale * with_record, 0).sum()
        return max(removed, added) * (z[1] - z[0])

    exact = brentq(lambda e: delta_of(e) - delta, 1e-6, 60.0)
    assert pld_epsilon(sigma, q, 1, delta) == pytest.approx(exact, rel=2e-3)


@pytest.mark.equation("eq-private_hpo-loss")
@pytest.mark.parametrize("q", [0.01, 0.5, 1.0])
def test_loss_is_the_log_likelihood_ratio_and_invertible(q):
    release = Release(0.8, q, 1)
    z = np.linspace(-3, 4, 101)
    mixture = (1 - q) * norm.pdf(z, 0, 0.8) + q * norm.pdf(z, 1, 0.8)
    np.testing.assert_allclose(_loss(release, z), np.log(mixture / norm.pdf(z, 0, 0.8)), atol=1e-10)
    inner = z[z > 0]  # left of zero the loss of a rare record is flat
    np.testing.assert_allclose(_inverse_loss(release, _loss(release, inner)), inner, atol=1e-6)


def test_composition_of_many_draws_by_monte_carlo():
    q, sigma, steps, draws = 0.2, 2.0, 12, 400_000
    epsilon = pld_epsilon(sigma, q, steps, 0.01)
    rng = np.random.default_rng(5)
    z = sigma * rng.standard_normal((draws, steps)) + (rng.random((draws, steps)) < q)
    loss = _loss(Release(sigma, q, 1), z).sum(1)
    gain = np.maximum(-np.expm1(epsilon - loss), 0.0)
    assert abs(gain.mean() - 0.01) < 4 * gain.std() / math.sqrt(draws)


def test_order_of_releases_does_not_matter():
    runs = [Release(3.0, 0.1, 20), Release(5.0, 1.0, 2)]
    assert composed_epsilon(runs, 1e-5) == pytest.approx(composed_epsilon(runs[::-1], 1e-5), rel=1e-9)


def test_finer_grid_agrees():
    coarse, fine = (pld_epsilon(1.5, 0.02, 500, 1e-6, discretization=h) for h in (1e-3, 5e-5))
    assert coarse == pytest.approx(fine, rel=1e-3)


def test_large_delta_gives_zero_and_tiny_noise_stays_finite():
    assert pld_epsilon(50.0, 0.01, 5, 0.5) == 0.0
    assert 1e3 < pld_epsilon(0.02, 0.5, 3, 1e-5) < 1e5


def test_a_thousand_steps_in_two_seconds():
    start = time.process_time()
    pld_epsilon(1.1, 0.01, 1000, 1e-5)
    assert time.process_time() - start < 2.0  # 0.3 s measured


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        ((0.0, 0.1, 10, 1e-5), {}, "noise_multiplier"),
        ((1.0, 1.5, 10, 1e-5), {}, "sample_rate"),
        ((1.0, 0.1, 0, 1e-5), {}, "steps"),
        ((1.0, 0.1, 10, 1.0), {}, "delta"),
        ((1.0, 0.1, 10, 1e-5), {"discretization": 0.0}, "discretization"),
    ],
)
def test_rejects(args, kwargs, match):
    with pytest.raises(ValueError, match=match):
        pld_epsilon(*args, **kwargs)
