"""The criterion in closed form: Markov reduction, support, the lag-2 counterexample, decay."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from icml24.papers.dht_cit import (
    SubsampledConfig,
    ancestors_to_descendants,
    descendant_pvalues,
    random_dag,
    sample_noise,
    simulate_slices,
)
from icml24.papers.dht_cit.linear import (
    partial_correlation,
    partial_covariance,
    propagation,
    unrolled_covariance,
)


def system(seed, d=6):
    r = np.random.default_rng(seed)
    graph = random_dag(d, int(r.integers(3, d * (d - 1) // 2)), generator=r)
    return graph, graph * r.uniform(0.3, 1, (d, d)) * r.choice([-1, 1], (d, d)), r.uniform(0.3, 0.9, d)


def slice_of(t, d):
    return list(range(t * d, (t + 1) * d))


def fisher_z(x, y, z):
    """p-value of a zero partial correlation, by regression."""
    design = np.column_stack([np.ones(len(x)), z])
    a, b = (v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x, y))
    r = (a @ b) / np.sqrt((a @ a) * (b @ b))
    return float(2 * norm.sf(abs(np.arctanh(r)) * np.sqrt(len(x) - z.shape[1] - 3)))


@pytest.mark.equation("eq-dht_cit-markov")
@pytest.mark.parametrize("seed", range(5))
def test_past_adds_nothing(seed):
    """E1; with a lag-2 edge it does add something."""
    graph, weights, own = system(seed)
    cov = unrolled_covariance(weights, own, 5)
    for late in (3, 4):
        left = partial_covariance(cov, slice_of(late, 6), slice_of(0, 6) + slice_of(1, 6), slice_of(2, 6))
        np.testing.assert_allclose(left, 0, atol=1e-10)
    lagged = unrolled_covariance(weights, own, 5, lag2=0.5 * graph)
    assert np.abs(partial_covariance(lagged, slice_of(3, 6), slice_of(1, 6), slice_of(2, 6))).max() > 1e-3


@pytest.mark.equation("eq-dht_cit-criterion")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gap", [1, 2, 3])
def test_criterion_in_closed_form(seed, gap):
    """E2: the partial correlation given all other early variables vanishes off the descendants only."""
    graph, weights, own = system(seed)
    cov = unrolled_covariance(weights, own, 2 + gap)
    found = np.zeros((6, 6), dtype=int)
    for i in range(6):
        others = [6 + k for k in range(6) if k != i]
        for j in range(6):
            if i != j:
                found[i, j] = abs(partial_correlation(cov, 6 + i, (1 + gap) * 6 + j, others)) > 1e-9
    np.testing.assert_array_equal(found, ancestors_to_descendants(graph))


@pytest.mark.equation("eq-dht_cit-criterion")
@pytest.mark.parametrize("seed", range(3))
def test_criterion_on_data(seed):
    """The package's matrix of tests, with Fisher's z in place of the kernel, on simulated linear slices."""
    r = np.random.default_rng(seed)
    graph = random_dag(5, 5, generator=r)
    noise = sample_noise(4, 20_000, 5, std=1.0, generator=r)
    x = simulate_slices(graph, noise, config=SubsampledConfig("linear", "linear", normalize=False))
    pvalues = descendant_pvalues(x[1], x[3], test=fisher_z, round_to=None)
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_array_equal((pvalues < 1e-4)[off], ancestors_to_descendants(graph).astype(bool)[off])


@pytest.mark.equation("eq-dht_cit-support")
@pytest.mark.parametrize("gap", [1, 2, 3])
def test_propagation_is_the_regression_and_has_its_support(gap):
    graph, weights, own = system(11)
    cov = unrolled_covariance(weights, own, 2 + gap)
    early, late = slice_of(1, 6), slice_of(1 + gap, 6)
    coefficients = np.linalg.solve(cov[np.ix_(early, early)], cov[np.ix_(early, late)]).T
    ours = propagation(weights, own, gap)
    np.testing.assert_allclose(ours, coefficients, atol=1e-9)
    below = ancestors_to_descendants(graph).T + np.eye(6, dtype=int)
    np.testing.assert_array_equal(np.abs(ours) > 1e-12, below == 1)
    silent = own.copy()
    silent[0] = 0.0  # E4: without its own past a variable cannot be seen one slice later
    assert not propagation(weights, silent, gap)[:, 0].any()


@pytest.mark.equation("eq-dht_cit-lag2")
def test_lag2_counterexample():
    """E3: 2 is no descendant of 1, yet a lag-2 edge from their common cause connects them."""
    weights = np.zeros((3, 3))
    weights[0, 1] = weights[0, 2] = 0.8
    lag2 = np.zeros((3, 3))
    lag2[0, 2] = 0.5
    # variable 1 of slice 3, variable 2 of slice 4, given variables 0 and 2 of slice 3
    for edges, value in ((lag2, 0.1010), (0 * lag2, 0.0)):
        cov = unrolled_covariance(weights, [0.6] * 3, 5, lag2=edges)
        assert partial_correlation(cov, 10, 14, [9, 11]) == pytest.approx(value, abs=5e-5)


@pytest.mark.equation("eq-dht_cit-decay")
def test_decay_with_equal_self_effects():
    _, weights, _ = system(3)
    for gap in (1, 2, 5):
        paths = np.linalg.matrix_power(np.linalg.inv(np.eye(6) - weights.T), gap)
        np.testing.assert_allclose(propagation(weights, np.full(6, 0.7), gap), 0.7**gap * paths, atol=1e-9)
    one = propagation([[0, 0.5], [0, 0]], [0.7, 0.7], 4)
    assert one[1, 0] == pytest.approx(4 * 0.5 * 0.7**4)  # the edge can be taken at any of four times


@pytest.mark.parametrize("bad", [([[0, 0], [1, 0]], [1, 1]), (np.zeros((2, 2)), [1, 1, 1])])
def test_rejects(bad):
    with pytest.raises(ValueError, match="upper triangular"):
        propagation(*bad)
