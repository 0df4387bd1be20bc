"""The exact accountant: curve, run, composition, calibration, remainder."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from icml24.papers.private_hpo import (
    calibrate_sigma,
    compose_mu,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    remaining_epsilon,
)
from icml24.papers.private_hpo.privacy_loss import Release, composed_epsilon

epsilons = st.floats(0.01, 20.0)
deltas = st.floats(1e-10, 0.01)


@pytest.mark.equation("eq-private_hpo-curve")
@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 0.3), (1.0, 1.0), (2.0, 3.0)])
def test_curve_is_the_best_attack(mu, epsilon):
    """E1: P[L > eps] - e^eps Q[L > eps] over the likelihood-ratio set, by Monte Carlo."""
    rng = np.random.default_rng(7)
    draws = 4_000_000
    z = rng.standard_normal(draws)
    under_q = mu * z - mu**2 / 2 > epsilon  # log-likelihood ratio at x = z
    under_p = mu * (z + mu) - mu**2 / 2 > epsilon  # at x = z + mu
    p, q = under_p.mean(), under_q.mean()
    error = math.sqrt(p * (1 - p) / draws) + math.exp(epsilon) * math.sqrt(q * (1 - q) / draws)
    assert abs(p - math.exp(epsilon) * q - gdp_delta(mu, epsilon)) < 4 * error


@pytest.mark.equation("eq-private_hpo-curve")
@pytest.mark.parametrize("mu", [1e-5, 1e-3, 1e-2])
def test_curve_at_short_shifts(mu):
    """E1: delta(0) tends to mu / sqrt(2 pi), with a relative error of mu^2 / 24."""
    assert gdp_delta(mu, 1e-18) == pytest.approx(mu / math.sqrt(2 * math.pi), rel=mu**2 + 1e-9)


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_curve_by_hand(mu):
    # at eps = mu^2 / 2 the first term is Phi(0) = 1/2
    expected = 0.5 - math.exp(mu**2 / 2) * norm.cdf(-mu)
    assert gdp_delta(mu, mu**2 / 2) == pytest.approx(expected, rel=1e-12)


def test_curve_parity(accounting):
    for row in accounting["gdp_delta"]:
        if row["delta"] > 1e-13:
            assert gdp_delta(row["mu"], row["epsilon"]) == pytest.approx(row["delta"], rel=1e-10)
        else:
            assert gdp_delta(row["mu"], row["epsilon"]) < 1e-12
    for row in accounting["gdp"]:
        assert gdp_epsilon(row["mu"], row["delta"]) == pytest.approx(row["epsilon"], rel=1e-10)
        assert gdp_mu(row["epsilon"], row["delta"]) == pytest.approx(row["mu"], rel=1e-9)


def test_no_overflow_far_out():
    assert gdp_delta(0.01, 10.0) == 0.0
    assert gdp_delta(150.0, 1e-9) == pytest.approx(1.0)
    assert gdp_epsilon(100.0, 1e-5) == pytest.approx(
        100**2 / 2 + 100 * 4.2649, rel=1e-3
    )  # mu^2/2 + mu Phi^-1(1-delta)


@pytest.mark.parametrize("delta", [0.4, 0.05])
def test_epsilon_is_zero_when_delta_suffices(delta):
    mu = 2 * norm.ppf((1 + delta) / 2)  # delta(0; mu) = 2 Phi(mu/2) - 1 = delta
    assert gdp_epsilon(0.999 * mu, delta) == 0.0
    assert gdp_epsilon(1.01 * mu, delta) > 0.0


@settings(deadline=None)
@given(epsilons, deltas)
def test_mu_inverts_epsilon(epsilon, delta):
    assert gdp_epsilon(gdp_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-12), (1e-3, 1e-30), (5e4, 1e-5)])
def test_mu_at_extremes(epsilon, delta):
    assert gdp_epsilon(gdp_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-5)


@settings(deadline=None)
@given(st.floats(0.01, 5.0), st.floats(0.01, 10.0), st.floats(1.01, 2.0))
def test_curve_is_monotone(mu, epsilon, factor):
    assert gdp_delta(mu, epsilon * factor) <= gdp_delta(mu, epsilon) <= gdp_delta(mu * factor, epsilon)


@pytest.mark.equation("eq-private_hpo-run")
@pytest.mark.parametrize(("sigma", "steps"), [(3.0, 9), (20.0, 50)])
def test_run_is_one_shift(sigma, steps):
    """E2: the log-likelihood ratio of T releases is N(+-mu^2/2, mu^2) with mu = sqrt(T) / sigma."""
    rng = np.random.default_rng(11)
    draws = 400_000
    mu = gaussian_mu(sigma, steps)
    for side in (0.0, 1.0):  # record absent, record present
        ratio = np.zeros(draws)
        for _ in range(steps):
            released = side + sigma * rng.standard_normal(draws)
            ratio += norm.logpdf(released, 1.0, sigma) - norm.logpdf(released, 0.0, sigma)
        mean = (2 * side - 1) * mu**2 / 2
        assert abs(ratio.mean() - mean) < 4 * mu / math.sqrt(draws)
        assert abs(ratio.var() - mu**2) < 4 * mu**2 * math.sqrt(2 / draws)


@pytest.mark.equation("eq-private_hpo-composition")
@pytest.mark.parametrize(
    "runs", [[(8.0, 4), (15.0, 30)], [(40.0, 20), (25.0, 5), (60.0, 100)]], ids=["two", "three"]
)
def test_composition_against_privacy_loss(runs):
    """E3: the square root of the sum of squares against FFT composition of unequal releases."""
    mu = compose_mu(gaussian_mu(sigma, steps) for sigma, steps in runs)
    numerical = composed_epsilon([Release(sigma, 1.0, steps) for sigma, steps in runs], 1e-5)
    assert gdp_epsilon(mu, 1e-5) == pytest.approx(numerical, rel=5e-3)


def test_composition_by_hand():
    assert compose_mu([3.0, 4.0]) == pytest.approx(5.0)
    assert compose_mu(iter([0.5])) == 0.5
    assert compose_mu([]) == 0.0


@pytest.mark.equation("eq-private_hpo-calibration")
@settings(deadline=None)
@given(epsilons, deltas, st.integers(1, 500))
def test_calibrated_run_costs_epsilon(epsilon, delta, steps):
    assert gdp_epsilon(gaussian_mu(calibrate_sigma(epsilon, delta, steps), steps), delta) == pytest.approx(
        epsilon, rel=1e-9
    )


def test_calibration_parity(accounting):
    for row in accounting["calibrate"]:
        assert calibrate_sigma(row["epsilon"], row["delta"], row["steps"]) == pytest.approx(
            row["sigma"], rel=2e-5
        )


@pytest.mark.equation("eq-private_hpo-remaining")
@settings(max_examples=50, deadline=None)
@given(st.floats(0.5, 8.0), deltas, st.lists(st.floats(0.01, 0.2), min_size=1, max_size=6))
def test_remainder_makes_the_round_trip(target, delta, shares):
    """E4: everything spent, and the remainder, compose to the target."""
    spent = [target * share for share in shares]
    left = remaining_epsilon(target, delta, spent)
    total = compose_mu([gdp_mu(e, delta) for e in (*spent, left)])
    assert gdp_epsilon(total, delta) == pytest.approx(target, abs=1e-9)


@pytest.mark.equation("eq-private_hpo-remaining")
def test_remainder_reproduces_the_authors_constants(accounting):
    for row in accounting["remaining"]:
        left = remaining_epsilon(row["target"], row["delta"], row["spent"])
        assert left == pytest.approx(row["epsilon"], rel=1e-9)
        assert math.floor(100 * left) / 100 == pytest.approx(row["official_eps_f"])


def test_epsilons_do_not_add():
    # 0.45 of nominal epsilon costs 0.032 of the final one
    assert remaining_epsilon(1.0, 1e-5, [0.05] * 3 + [0.1] * 3) > 0.96 > 1 - 0.45
    assert remaining_epsilon(1.0, 1e-5, []) == pytest.approx(1.0)


def test_trials_beyond_the_target():
    with pytest.raises(ValueError, match=r"trials alone exceed the target.*mu\^2 = 0\.17789.*mu\^2 = 0\.07"):
        remaining_epsilon(1.0, 1e-5, [0.9] * 3)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: gdp_delta(0.0, 1.0), "mu must be positive"),
        (lambda: gdp_delta(1.0, 0.0), "epsilon must be positive"),
        (lambda: gdp_delta(1.0, float("nan")), "epsilon must be positive"),
        (lambda: gdp_epsilon(-1.0, 1e-5), "mu must be positive"),
        (lambda: gdp_epsilon(1.0, 0.0), r"delta must lie in \(0, 1\)"),
        (lambda: gdp_mu(1.0, 1.0), r"delta must lie in \(0, 1\)"),
        (lambda: gdp_mu(math.inf, 1e-5), "epsilon must be positive and finite"),
        (lambda: gaussian_mu(0.0, 5), "noise_multiplier must be positive"),
        (lambda: gaussian_mu(1.0, 0), "steps must be a whole number, at least 1"),
        (lambda: gaussian_mu(1.0, 2.5), "steps must be a whole number"),
        (lambda: gaussian_mu("two", 2), "noise_multiplier must be a number"),
        (lambda: compose_mu([1.0, -1.0]), "mu must be positive"),
        (lambda: calibrate_sigma(-1.0, 1e-5, 5), "epsilon must be positive"),
        (lambda: calibrate_sigma(1.0, 1e-5, -5), "steps"),
        (lambda: remaining_epsilon(0.0, 1e-5, []), "target_epsilon must be positive"),
        (lambda: remaining_epsilon(1.0, 1e-5, [0.1, 0.0]), "spent_epsilons must be positive"),
        (lambda: remaining_epsilon(1.0, 2.0, [0.1]), "delta"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
