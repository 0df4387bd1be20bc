"""The Rényi accountant and private selection."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from icml24.papers.private_hpo import (
    gdp_epsilon,
    pld_epsilon,
    private_selection_rdp,
    rdp_subsampled_gaussian,
    rdp_to_epsilon,
)

DENSE = np.concatenate([1 + np.geomspace(1e-3, 1, 60)[:-1], np.geomspace(2, 4000, 600)])


@pytest.mark.equation("eq-private_hpo-renyi")
@pytest.mark.parametrize(("sigma", "steps", "alpha"), [(2.0, 1, 1.5), (5.0, 20, 4.0), (30.0, 300, 17.3)])
def test_gaussian_divergence_is_the_integral(sigma, steps, alpha):
    """E10: (1/(alpha-1)) log E_Q[(dP/dQ)^alpha] of one step by quadrature, times the steps."""

    def integrand(z):
        return math.exp(alpha * norm.logpdf(z, 1, sigma) + (1 - alpha) * norm.logpdf(z, 0, sigma))

    value, _ = quad(integrand, alpha - 12 * sigma, alpha + 12 * sigma, epsabs=0, epsrel=1e-10, limit=400)
    ours = rdp_subsampled_gaussian(sigma, 1.0, steps, [alpha])[0]
    assert ours == pytest.approx(steps * math.log(value) / (alpha - 1), rel=1e-8)


@pytest.mark.parametrize(("q", "sigma", "alpha"), [(0.2, 4.0, 1.25), (0.01, 0.8, 3.5), (0.5, 1.0, 2.0)])
def test_subsampled_divergence_is_the_integral(q, sigma, alpha):
    def integrand(z):
        ratio = 1 - q + q * math.exp((2 * z - 1) / (2 * sigma**2))
        return norm.pdf(z, 0, sigma) * ratio**alpha

    value, _ = quad(
        integrand, -12 * sigma, alpha + 12 * sigma, epsabs=0, epsrel=1e-11, limit=800, points=[0, alpha]
    )
    ours = rdp_subsampled_gaussian(sigma, q, 7, [alpha])[0]
    assert ours == pytest.approx(7 * math.log(value) / (alpha - 1), rel=1e-6)


def test_fractional_orders_are_exact_not_an_upper_bound():
    # dp-accounting 0.6 answers 0.616 here
    assert rdp_subsampled_gaussian(4.0, 0.2, 100, [1.25])[0] == pytest.approx(0.15979, rel=1e-4)


def test_fractional_and_whole_orders_join():
    whole = rdp_subsampled_gaussian(1.3, 0.05, 10, [3, 8])
    near = rdp_subsampled_gaussian(1.3, 0.05, 10, [3 + 1e-7, 8 - 1e-7])
    np.testing.assert_allclose(near, whole, rtol=1e-5)


def test_divergence_parity(accounting):
    for row in accounting["rdp"]:
        setting = row["noise_multiplier"], row["sample_rate"], row["steps"]
        np.testing.assert_allclose(rdp_subsampled_gaussian(*setting, row["orders"]), row["rdp"], rtol=1e-6)
        fractional = rdp_subsampled_gaussian(*setting, row["fractional_orders"])
        np.testing.assert_allclose(fractional, row["fractional_rdp"], rtol=1e-6)  # 1e-3 asked for
        epsilon, order = rdp_to_epsilon(row["orders"], row["rdp"], row["delta"])
        assert epsilon == pytest.approx(row["epsilon_improved"], rel=1e-6)
        assert order == row["best_order"]
        classic, _ = rdp_to_epsilon(row["orders"], row["rdp"], row["delta"], "classic")
        assert classic == pytest.approx(row["epsilon_classic"], rel=1e-6)


@pytest.mark.equation("eq-private_hpo-conversion")
@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("mu", [0.1, 0.3, 1.0, 3.0])
def test_conversion_is_safe_and_close(mu, delta):
    """E10: never below the exact epsilon, and within 15 % of it."""
    curve = DENSE * mu**2 / 2
    improved, order = rdp_to_epsilon(DENSE, curve, delta)
    classic, _ = rdp_to_epsilon(DENSE, curve, delta, "classic")
    exact = gdp_epsilon(mu, delta)
    assert exact <= improved <= 1.15 * exact
    assert improved <= classic
    assert DENSE[0] < order < DENSE[-1]


@pytest.mark.equation("eq-private_hpo-conversion")
def test_conversion_rests_on_its_inequality():
    """E10: (1 - e^-x)_+ <= e^((a-1) x) (a-1)^(a-1) / a^a, with equality where a e^-x = a - 1."""
    x = np.linspace(-3, 8, 2001)
    for alpha in (1.1, 2.0, 7.5, 40.0):
        bound = np.exp((alpha - 1) * x + (alpha - 1) * np.log(alpha - 1) - alpha * np.log(alpha))
        assert (np.maximum(-np.expm1(-x), 0) <= bound * (1 + 1e-12)).all()
        touch = math.log(alpha / (alpha - 1))
        at = math.exp((alpha - 1) * touch + (alpha - 1) * math.log(alpha - 1) - alpha * math.log(alpha))
        assert -math.expm1(-touch) == pytest.approx(at, rel=1e-12)


@pytest.mark.parametrize("steps", [10, 100])
def test_renyi_above_privacy_loss_above_exact(steps):
    sigma = 12.0
    curve = rdp_subsampled_gaussian(sigma, 1.0, steps, DENSE)
    exact = gdp_epsilon(math.sqrt(steps) / sigma, 1e-5)
    assert rdp_to_epsilon(DENSE, curve, 1e-5)[0] >= pld_epsilon(sigma, 1.0, steps, 1e-5) >= exact * 0.995


def test_epsilon_is_never_negative():
    assert rdp_to_epsilon([2.0, 4.0], [0.0, 0.0], 0.9)[0] == 0.0


def test_infinite_orders_are_passed_over():
    epsilon, order = rdp_to_epsilon([2.0, 3.0], [math.inf, 0.5], 1e-5)
    assert order == 3.0
    assert math.isfinite(epsilon)


def test_selection_parity(accounting):
    for row in accounting["selection"]:
        poisson = row["shape"] == "inf"
        shape = math.inf if poisson else row["shape"]
        ours = private_selection_rdp(row["orders"], row["base_rdp"], row["mean"], shape)
        stored = [math.inf if value is None else value for value in row["rdp"]]
        np.testing.assert_allclose(ours, stored, rtol=2e-2 if poisson else 1e-5)


@pytest.mark.equation("eq-private_hpo-selection")
def test_selection_of_seven_runs_costs_one():
    """E13: Poisson(7) repetitions of a run of epsilon 0.405 cost about 1."""
    mu, delta = 0.14555, 1 / 7000
    curve = private_selection_rdp(DENSE, DENSE * mu**2 / 2, 7.0, math.inf)
    assert rdp_to_epsilon(DENSE, curve, delta)[0] == pytest.approx(1.0, rel=2e-2)
    assert gdp_epsilon(mu, delta) == pytest.approx(0.405, rel=2e-3)


@pytest.mark.equation("eq-private_hpo-selection")
@pytest.mark.parametrize("alpha", [1.5, 3.0, 10.0])
def test_selection_bounds_an_exact_case(alpha):
    """E13: the exact Rényi divergence of the best of J ~ Poisson draws of a two-outcome run."""
    mean = 4.0
    p, q = np.array([0.70, 0.30]), np.array([0.64, 0.36])  # outcome 1 scores higher
    orders = np.sort(np.append(DENSE[DENSE < 300], alpha))
    base = np.log((p ** orders[:, None] * q ** (1 - orders[:, None])).sum(1)) / (orders - 1)
    bound = private_selection_rdp(orders, base, mean, math.inf)[np.searchsorted(orders, alpha)]

    def published(outcomes):  # nothing, 0, 1
        none, low = math.exp(-mean), math.exp(-mean * outcomes[1])  # no draw at all; no draw of 1
        return np.array([none, low - none, 1 - low])

    exact = np.log((published(p) ** alpha * published(q) ** (1 - alpha)).sum()) / (alpha - 1)
    assert 0 < exact <= bound


@pytest.mark.equation("eq-private_hpo-geometric")
def test_geometric_selection_triples_pure_privacy():
    """E13: density q(y) gamma / (gamma + (1-gamma) Q(>y))^2, and its ratio at most e^(3 eps)."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(300):
        p = rng.dirichlet(np.ones(6))
        epsilon = rng.uniform(0.05, 1.0)
        q = p * np.exp(rng.choice([-0.5, 0.5], 6) * epsilon)
        q /= q.sum()
        pure = np.abs(np.log(p / q)).max()
        gamma = rng.uniform(0.02, 0.9)
        published = []
        for law in (p, q):
            at_most = np.cumsum(law)  # outcomes in increasing order of score
            cdf = gamma * at_most / (1 - (1 - gamma) * at_most)
            masses = np.diff(cdf, prepend=0.0)
            # Monte-Carlo-free check of the sum: sum_j gamma (1-gamma)^(j-1) F^j
            j = np.arange(1, 4000)
            direct = (gamma * (1 - gamma) ** (j - 1) * at_most[2] ** j).sum()
            assert cdf[2] == pytest.approx(direct, rel=1e-9)
            published.append(masses)
        ratio = np.abs(np.log(published[0] / published[1])).max()
        assert ratio <= 3 * pure + 1e-12
        worst = max(worst, ratio / max(pure, 1e-6))
    assert worst > 1.2  # selection does cost something


@pytest.mark.parametrize(("mean", "shape"), [(20.0, 0.5), (5.0, 0.0), (7.0, 1.0), (3.0, 4.0), (1.0, 1.0)])
def test_truncated_law_has_the_mean_asked_for(mean, shape):
    from icml24.papers.private_hpo.renyi import _negative_binomial_gamma

    gamma = _negative_binomial_gamma(mean, shape)
    j = np.arange(1, 20_000)
    if shape == 0:
        log_mass = j * math.log1p(-gamma) - np.log(j)
    else:
        from scipy.special import gammaln

        log_mass = j * np.log1p(-min(gamma, 1 - 1e-12)) + gammaln(j + shape) - gammaln(j + 1)
    mass = np.exp(log_mass - log_mass.max())
    assert (j * mass).sum() / mass.sum() == pytest.approx(mean, rel=1e-6)


def test_truncated_law_at_its_ends():
    # a mean next to 1 is one run; a very large shape is a truncated Poisson law of the same mean
    curve = DENSE * 0.02
    once = np.minimum.accumulate((curve + 1.5 * ((1 - 1 / DENSE) * curve).min())[::-1])[::-1]
    for mean in (1.0, 1 + 1e-14, 1 + 1e-12):
        np.testing.assert_allclose(private_selection_rdp(DENSE, curve, mean, 0.5), once, rtol=1e-6)
    from icml24.papers.private_hpo.renyi import _negative_binomial_gamma

    rate = brentq(lambda a: a / -math.expm1(-a) - 7.0, 1.0, 10.0)  # mean of a zero-truncated Poisson law
    for shape in (1e6, 1e9):
        assert -math.log(_negative_binomial_gamma(7.0, shape)) * shape == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("shape", [0.0, 1.0, 3.0, math.inf])
def test_selection_costs_more_than_one_run_and_orders_may_be_unsorted(shape):
    curve = DENSE * 0.02
    out = private_selection_rdp(DENSE, curve, 5.0, shape)
    assert (out >= curve).all()
    shuffle = np.random.default_rng(0).permutation(DENSE.size)
    np.testing.assert_allclose(
        private_selection_rdp(DENSE[shuffle], curve[shuffle], 5.0, shape), out[shuffle]
    )


def test_base_epsilon_for_a_target_exists():
    def total(mu):
        return rdp_to_epsilon(DENSE, private_selection_rdp(DENSE, DENSE * mu**2 / 2, 7.0, math.inf), 1e-5)[0]

    assert 0.01 < brentq(lambda mu: total(mu) - 1.0, 0.01, 0.5) < 0.2


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: rdp_subsampled_gaussian(0.0, 0.1, 1, [2]), "noise_multiplier"),
        (lambda: rdp_subsampled_gaussian(1.0, 0.0, 1, [2]), r"sample_rate must lie in \(0, 1\]"),
        (lambda: rdp_subsampled_gaussian(1.0, 1.1, 1, [2]), "sample_rate"),
        (lambda: rdp_subsampled_gaussian(1.0, 0.1, 0, [2]), "steps"),
        (lambda: rdp_subsampled_gaussian(1.0, 0.1, 1, [1.0, 2.0]), "orders must all be above 1"),
        (lambda: rdp_subsampled_gaussian(1.0, 0.1, 1, []), "orders must be a non-empty"),
        (lambda: rdp_to_epsilon([2, 3], [0.1], 1e-5), "one value for each of the 2 orders"),
        (lambda: rdp_to_epsilon([2, 3], [0.1, math.nan], 1e-5), "not NaN"),
        (lambda: rdp_to_epsilon([2, 3], [0.1, -0.1], 1e-5), "zero or positive"),
        (lambda: rdp_to_epsilon([2, 3], [0.1, 0.2], 0.0), "delta"),
        (lambda: rdp_to_epsilon([2], [0.1], 1e-5, "best"), r"unknown conversion 'best'.*improved.*classic"),
        (lambda: private_selection_rdp([2], [0.1], 0.5, 1.0), "mean must be at least 1"),
        (lambda: private_selection_rdp([2], [0.1], 5.0, -0.5), "shape must be zero or positive"),
        (lambda: private_selection_rdp([0.5], [0.1], 5.0, 1.0), "orders must all be above 1"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
