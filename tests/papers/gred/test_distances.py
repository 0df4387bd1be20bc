"""Distances against scipy, and distance sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path

from icml24.common.checks import WrongType
from icml24.papers.gred import csl_graph, hop_masks, shortest_path_distances


def random_graph(n: int, p: float, seed: int) -> torch.Tensor:
    drawn = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < p
    return drawn.triu(1) | drawn.triu(1).T


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (2, 0.0), (9, 0.2), (30, 0.05), (30, 0.4)])
def test_distances_equal_scipy(n, p):
    adj = random_graph(n, p, n)
    truth = shortest_path(adj.numpy().astype(float), unweighted=True)
    found = shortest_path_distances(adj)
    assert found.dtype == torch.int64
    assert np.array_equal(found.numpy(), np.where(np.isinf(truth), -1, truth))


@pytest.mark.parametrize("case", ["full", "half", "none", "sparse"])
def test_distances_of_the_authors(layer_cases, case):
    stored = layer_cases[case]
    found = shortest_path_distances(torch.from_numpy(stored["adj"]))
    assert np.array_equal(found.numpy(), stored["dist"])


def test_path_by_hand():
    path = torch.diag(torch.ones(3), 1) + torch.diag(torch.ones(3), -1)
    assert shortest_path_distances(path)[0].tolist() == [0, 1, 2, 3]
    assert shortest_path_distances(path, max_distance=2)[0].tolist() == [0, 1, 2, -1]
    assert shortest_path_distances(path, max_distance=0)[0].tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float16, torch.float64])
def test_any_dtype_weights_and_loops_do_not_matter(dtype):
    adj = random_graph(12, 0.2, 3)
    weighted = (adj * 3).to(dtype)
    weighted.fill_diagonal_(1)
    assert torch.equal(shortest_path_distances(weighted), shortest_path_distances(adj))


def test_batch_equals_one_by_one():
    batch = torch.stack([random_graph(10, 0.2, s) for s in range(4)])
    alone = torch.stack([shortest_path_distances(adj) for adj in batch])
    assert torch.equal(shortest_path_distances(batch), alone)
    assert shortest_path_distances(torch.zeros(0, 5, 5)).shape == (0, 5, 5)
    assert shortest_path_distances(torch.zeros(0, 0)).shape == (0, 0)


@pytest.mark.equation("eq-gred-sets")
def test_sets_are_those_of_walks():
    """N_k by another road: pairs that a walk of length k joins and no shorter one does."""
    adj = random_graph(14, 0.15, 5)
    masks = hop_masks(shortest_path_distances(adj))
    walk, seen = torch.eye(14, dtype=torch.float64), torch.zeros(14, 14, dtype=torch.bool)
    for mask in masks:
        assert torch.equal(mask, (walk > 0) & ~seen)
        seen |= walk > 0
        walk = walk @ adj.double()
    assert masks.sum(dim=0).max() == 1  # sets of different hops are disjoint
    assert torch.equal(masks[0], torch.eye(14, dtype=torch.bool))


def test_unreachable_pairs_are_in_no_set():
    dist = shortest_path_distances(torch.zeros(3, 3))
    assert hop_masks(dist).shape == (1, 3, 3)
    assert torch.equal(hop_masks(dist, 4).sum(dim=0), torch.eye(3, dtype=torch.int64))


def test_number_of_hops_counts_hop_zero():
    dist = shortest_path_distances(csl_graph(9, 2)).expand(2, -1, -1)
    assert hop_masks(dist).shape == (2, 3, 9, 9)
    assert hop_masks(dist, 5).shape == (2, 5, 9, 9)
    assert not hop_masks(dist, 5)[:, 3:].any()


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (torch.zeros(3, 4), r"adj must be \(N,N\) or \(B,N,N\)"),
        (torch.zeros(3), r"adj must be \(N,N\) or \(B,N,N\)"),
        (torch.zeros(1, 2, 3, 3), r"adj must be \(N,N\) or \(B,N,N\)"),
        (torch.ones(3, 3).triu(1), "undirected graph expected"),
        (torch.full((2, 2), float("nan")), "adj contains NaN"),
        ([[0, 1], [1, 0]], "torch.Tensor"),
    ],
)
def test_bad_adjacency(bad, match):
    with pytest.raises(ValueError, match=match):
        shortest_path_distances(bad)


@pytest.mark.parametrize("hops", [0, -1, np.int64(0)])
def test_too_few_hops(hops):
    with pytest.raises(ValueError, match="num_hops must be >= 1"):
        hop_masks(torch.zeros(2, 2, dtype=torch.int64), hops)


@pytest.mark.parametrize("hops", [1.5, True, "2"])
def test_hops_of_a_wrong_type(hops):
    with pytest.raises(WrongType, match="num_hops"):
        hop_masks(torch.zeros(2, 2, dtype=torch.int64), hops)


def test_floating_distances_are_refused():
    with pytest.raises(WrongType, match="integer"):
        hop_masks(torch.zeros(2, 2))
    with pytest.raises(WrongType, match="integer"):
        hop_masks(torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"dist must be \(N,N\)"):
        hop_masks(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="max_distance"):
        shortest_path_distances(torch.zeros(2, 2), max_distance=-1)
