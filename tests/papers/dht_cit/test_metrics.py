"""Distances of graphs: hand-worked, stored numbers, and SID against population regressions."""

from __future__ import annotations

import numpy as np
import pytest

from icml24.papers.dht_cit import (
    ancestors_to_descendants,
    edge_scores,
    order_violations,
    random_dag,
    structural_hamming_distance,
    structural_intervention_distance,
)

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
TURNED = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]])


def shuffled(r, d):
    order = r.permutation(d)
    return random_dag(d, int(r.integers(0, d * (d - 1) // 2 + 1)), generator=r)[np.ix_(order, order)]


def wrong_effects(a, b, r):
    """SID by regression: pairs whose coefficient, adjusted for the parents in b, is not the true effect in a.

    With generic weights the population coefficient equals the effect exactly when the set is valid.
    """
    d = len(a)
    weights = a * r.uniform(0.5, 1.5, (d, d)) * r.choice([-1, 1], (d, d))
    response = np.linalg.inv(np.eye(d) - weights.T)  # total effects: entry (j, i) of i on j
    cov = response @ np.diag(r.uniform(0.5, 1.5, d)) @ response.T
    wrong = 0
    for i in range(d):
        used = [i, *np.flatnonzero(b[:, i])]
        for j in range(d):
            if i == j:
                continue
            estimate = 0.0 if b[j, i] else np.linalg.solve(cov[np.ix_(used, used)], cov[used, j])[0]
            wrong += abs(estimate - response[j, i]) > 1e-9
    return wrong


@pytest.mark.equation("eq-dht_cit-sid")
@pytest.mark.parametrize("seed", range(40))
def test_sid_counts_wrong_effects(seed):
    """E12, by another road than the graphs': population regression."""
    r = np.random.default_rng(seed)
    d = int(r.integers(2, 8))
    a, b = shuffled(r, d), shuffled(r, d)
    assert structural_intervention_distance(a, b) == wrong_effects(a, b, r)
    assert structural_intervention_distance(a, a) == 0
    assert structural_intervention_distance(a, ancestors_to_descendants(a)) == 0
    assert structural_intervention_distance(a, 0 * a) == wrong_effects(a, 0 * a, r)


def test_hand_worked():
    assert structural_hamming_distance(CHAIN, TURNED) == 2
    assert structural_hamming_distance(CHAIN, TURNED, reversal_cost=1) == 1
    # 1 <- 0 turned: the effects of 0 on 1 and 2, and of 1 on 0 and on 2 (0 is a needless but valid set)
    assert structural_intervention_distance(CHAIN, TURNED) == 3
    assert edge_scores(CHAIN, TURNED) == (0.5, 0.5, 0.5)
    assert edge_scores(CHAIN, 0 * CHAIN) == (0.0, 0.0, 0.0)
    assert edge_scores(0 * CHAIN, 0 * CHAIN) == (0.0, 0.0, 0.0)
    assert ancestors_to_descendants(CHAIN).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert order_violations(CHAIN, TURNED) == 1
    assert order_violations(CHAIN, np.triu(np.ones((3, 3)))) == 0  # the diagonal of an order is ignored
    both = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])  # a pair of opposite edges is no reversal
    assert structural_hamming_distance(CHAIN, both, reversal_cost=1) == 2


def test_parity_with_gadjid(parity):
    for case in parity("metrics"):
        a, b = case["a"], case["b"]
        ours = (
            structural_hamming_distance(a, b),
            structural_hamming_distance(a, b, reversal_cost=1),
            structural_intervention_distance(a, b),
            structural_intervention_distance(b, a),
            *edge_scores(a, b),
        )
        np.testing.assert_allclose(ours, case["out"], atol=1e-12)


def test_closure_against_paths():
    r = np.random.default_rng(0)
    for _ in range(20):
        a = shuffled(r, 7)
        powers = sum(np.linalg.matrix_power(a, k) for k in range(1, 7))
        np.testing.assert_array_equal(ancestors_to_descendants(a), powers > 0)


@pytest.mark.parametrize(
    "measure", [structural_hamming_distance, structural_intervention_distance, edge_scores]
)
@pytest.mark.parametrize(
    ("a", "b", "match"),
    [
        (CHAIN[:2], CHAIN, "square"),
        (CHAIN, CHAIN[:2, :2], "shape"),
        (CHAIN * 0.5, CHAIN, "0 and 1"),
        (np.eye(3), CHAIN, "acyclic"),
        (CHAIN, CHAIN * np.nan, "finite"),
    ],
)
def test_rejects(measure, a, b, match):
    with pytest.raises(ValueError, match=match):
        measure(a, b)


def test_rejects_cycles_and_costs():
    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    for pair in ((cycle, CHAIN), (CHAIN, cycle)):
        with pytest.raises(ValueError, match="acyclic"):
            structural_intervention_distance(*pair)
    with pytest.raises(ValueError, match="allowed must have shape"):
        order_violations(CHAIN, np.ones((2, 2)))
    with pytest.raises(ValueError, match="reversal_cost"):
        structural_hamming_distance(CHAIN, CHAIN, reversal_cost=3)
