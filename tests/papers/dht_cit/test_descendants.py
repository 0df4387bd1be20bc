"""Layers and candidates: exact oracles, any matrix, the authors' numbers, the whole method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icml24.papers.dht_cit import (
    DHTResult,
    ancestors_to_descendants,
    candidate_graph,
    descendant_pvalues,
    dht_cit,
    gam_prune,
    kci_pvalue,
    layer_order,
    order_violations,
    random_dag,
    sample_noise,
    simulate_slices,
    topological_layers,
)

MATRICES = st.integers(1, 7).flatmap(
    lambda d: hnp.arrays(
        np.float64, (d, d), elements=st.sampled_from([0.0, 0.01, 0.03, 0.04, 0.05, 0.06, 0.5, 1.0])
    )
)


def problem(d=4, edges=4, n=120, seed=0):
    r = np.random.default_rng(seed)
    graph = random_dag(d, edges, generator=r)
    x = simulate_slices(graph, sample_noise(5, n, d, generator=r))
    return graph, x[1], x[4]


@pytest.mark.equation("eq-dht_cit-layers")
@pytest.mark.parametrize("seed", range(20))
def test_exact_oracle(seed):
    """E5: layer = longest path to a sink; no true edge is forbidden; candidates = descendants."""
    r = np.random.default_rng(seed)
    d = int(r.integers(1, 9))
    graph = random_dag(d, int(r.integers(0, d * (d - 1) // 2 + 1)), generator=r)
    shuffle = r.permutation(d)
    graph = graph[np.ix_(shuffle, shuffle)]
    below = ancestors_to_descendants(graph)
    layers = topological_layers(1.0 - below)

    def longest(node):
        return max((1 + longest(child) for child in np.flatnonzero(graph[node])), default=0)

    for level, layer in enumerate(layers):
        assert [longest(v) for v in layer] == [level] * len(layer)
    assert order_violations(graph, layer_order(layers)) == 0
    np.testing.assert_array_equal(candidate_graph(1.0 - below), below)


@pytest.mark.equation("eq-dht_cit-candidates")
@settings(max_examples=150, deadline=None)
@given(MATRICES)
def test_candidates_are_acyclic_for_any_matrix(pvalues):
    """E6: termination, a partition, a directed acyclic graph within the rejections."""
    kept = pvalues.copy()
    layers = topological_layers(pvalues, 0.05)
    np.testing.assert_array_equal(pvalues, kept)
    assert sorted(np.concatenate(layers).tolist()) == list(range(len(pvalues)))
    graph = candidate_graph(pvalues, 0.05)
    assert not np.linalg.matrix_power(graph, len(graph)).any()  # no walk of d steps: no cycle
    assert not graph[pvalues >= 0.05].any()
    rejected = (pvalues < 0.05) & ~np.eye(len(pvalues), dtype=bool)
    dropped = rejected & (graph == 0)
    height = {int(v): k for k, layer in enumerate(layers) for v in layer}
    assert all(height[i] <= height[j] for i, j in np.argwhere(dropped))  # only upward or level ones go


def test_parity_with_authors(parity):
    for case in parity("layers"):
        alpha = float(case["alpha"])
        layers = topological_layers(case["p"], alpha)
        level = np.empty(len(case["p"]), dtype=int)
        for k, layer in enumerate(layers):
            level[layer] = k
        np.testing.assert_array_equal(level, case["layer"])
        np.testing.assert_array_equal(layer_order(layers), case["order"])
        np.testing.assert_array_equal(candidate_graph(case["p"], alpha), case["cand"])


def test_weakest_rejection_is_withdrawn_for_one_layer():
    """A two-cycle and a third node: 0.04 at (1, 0) goes first, (0, 1) stays."""
    p = np.array([[0.5, 0.01, 0.9], [0.04, 0.5, 0.9], [0.02, 0.9, 0.5]])
    assert [layer.tolist() for layer in topological_layers(p)] == [[1], [0], [2]]
    np.testing.assert_array_equal(candidate_graph(p), [[0, 1, 0], [0, 0, 0], [1, 0, 0]])
    tie = np.array([[0.5, 0.01], [0.01, 0.5]])  # among equals the first in reading order is withdrawn
    assert [layer.tolist() for layer in topological_layers(tie)] == [[0], [1]]
    np.testing.assert_array_equal(candidate_graph(tie), [[0, 0], [1, 0]])


def test_level_is_strict():
    assert candidate_graph([[0.5, 0.05], [0.9, 0.5]]).sum() == 0
    assert candidate_graph([[0.5, 0.0499], [0.9, 0.5]]).sum() == 1


def test_relabelling():
    _, early, late = problem(seed=2)
    pvalues = descendant_pvalues(early, late, round_to=None)
    shuffle = np.array([2, 0, 3, 1])
    again = descendant_pvalues(early[:, shuffle], late[:, shuffle], round_to=None)
    np.testing.assert_allclose(again, pvalues[np.ix_(shuffle, shuffle)], atol=1e-8)
    for a, b in zip(topological_layers(again), topological_layers(pvalues), strict=True):
        assert sorted(shuffle[a].tolist()) == b.tolist()


def test_matrix_is_a_loop_of_tests():
    _, early, late = problem()
    fast = descendant_pvalues(early, late, round_to=None)
    slow = descendant_pvalues(early, late, round_to=None, test=kci_pvalue)
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    np.testing.assert_array_equal(fast.diagonal(), 0.5)
    np.testing.assert_array_equal(descendant_pvalues(early, late), fast.round(4))
    assert np.array_equal(descendant_pvalues(early, late), descendant_pvalues(early, late))


def test_own_test_sees_the_right_columns():
    early, late = np.arange(24.0).reshape(8, 3), -np.arange(24.0).reshape(8, 3)
    seen = []

    def test(x, y, z):
        seen.append((x[0], y[0], tuple(z[0])))
        return 0.25

    assert (descendant_pvalues(early, late, test=test)[~np.eye(3, dtype=bool)] == 0.25).all()
    assert seen[:2] == [(0.0, -1.0, (1.0, 2.0)), (0.0, -2.0, (1.0, 2.0))]
    assert seen[-1] == (2.0, -1.0, (0.0, 1.0))
    assert len(seen) == 6


def test_one_and_two_variables():
    _, early, late = problem(2, 1)
    assert descendant_pvalues(early, late).shape == (2, 2)
    single = dht_cit(early[:, :1], late[:, :1])
    assert single.pvalues.tolist() == [[0.5]]
    assert single.graph.tolist() == [[0]]
    assert [v.tolist() for v in single.layers] == [[0]]


def test_whole_method_is_its_parts():
    graph, early, late = problem(4, 3, 300, seed=1)
    before = early.copy(), late.copy()
    found = dht_cit(torch.from_numpy(early).float(), late)
    found = dht_cit(early, late)
    assert isinstance(found, DHTResult)
    np.testing.assert_array_equal(found.pvalues, descendant_pvalues(early, late))
    np.testing.assert_array_equal(found.candidates, candidate_graph(found.pvalues))
    np.testing.assert_array_equal(found.order, layer_order(found.layers))
    np.testing.assert_array_equal(found.graph, gam_prune(found.candidates, early))
    assert (found.graph <= found.candidates).all()
    assert (found.candidates <= found.order).all()
    np.testing.assert_array_equal(early, before[0])
    np.testing.assert_array_equal(late, before[1])
    assert np.abs(found.graph - graph).sum() <= 2


BAD = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: dht_cit(np.zeros((9, 2)), np.zeros((9, 3))), r"same shape \(n, d\)"),
        (lambda: dht_cit(np.zeros(9), np.zeros(9)), r"same shape \(n, d\)"),
        (lambda: dht_cit(np.zeros((0, 2)), np.zeros((0, 2))), r"same shape \(n, d\)"),
        (lambda: descendant_pvalues(np.full((9, 2), np.nan), np.zeros((9, 2))), "finite"),
        (lambda: descendant_pvalues(np.zeros((9, 2)), np.full((9, 2), np.inf)), "finite"),
        (lambda: descendant_pvalues(np.zeros((7, 2)), np.zeros((7, 2))), "at least 8"),
        (lambda: descendant_pvalues(np.zeros((9, 2)), np.zeros((9, 2)), test=lambda *a: 2.0), "p-value"),
        (lambda: descendant_pvalues(np.zeros((9, 2)), np.zeros((9, 2)), test=lambda *a: [0.1, 0.2]), "one p"),
        (lambda: dht_cit(np.zeros((9, 2)), np.zeros((9, 2)), alpha=0.0), "alpha"),
        (lambda: dht_cit(np.zeros((9, 2)), np.zeros((9, 2)), cutoff=1.0), "cutoff"),
        (lambda: topological_layers(BAD, 1.0), "alpha"),
        (lambda: topological_layers(BAD[:1]), "square"),
        (lambda: topological_layers(BAD + 1), r"\[0, 1\]"),
        (lambda: topological_layers(BAD * np.nan), "finite"),
        (lambda: candidate_graph(-BAD), r"\[0, 1\]"),
        (lambda: layer_order([[0], [0]]), "once"),
        (lambda: layer_order([[0], [2]]), "once"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
