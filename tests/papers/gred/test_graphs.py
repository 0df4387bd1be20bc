"""Circulants, hard pairs, 1-WL and the block models."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.gred import (
    csl_graph,
    hop_masks,
    sbm_cluster,
    sbm_pattern,
    shortest_path_distances,
    wl_color_histogram,
)
from icml24.papers.gred.experiments import csl_classes, expressiveness, hop_sizes
from icml24.papers.gred.graphs import graph_from_edges, hard_pairs


def test_circulant_by_hand():
    adj = csl_graph(7, 3)
    assert adj.dtype == torch.bool
    assert adj[0].nonzero().flatten().tolist() == [1, 3, 4, 6]
    assert torch.equal(adj, adj.T)
    assert csl_graph(8, 4).sum(dim=1).tolist() == [3] * 8  # half the way round: one partner, not two


@pytest.mark.parametrize(("n", "skip"), [(10, 1), (10, 9), (10, 0), (10, -2), (3, 2)])
def test_bad_circulants(n, skip):
    with pytest.raises(ValueError, match=r"skip|n must"):
        csl_graph(n, skip)


@pytest.mark.equation("eq-gred-sizes")
def test_hop_sizes_of_the_pairs():
    """E8 by hand: which pairs the sizes of the distance sets tell apart."""
    sizes = {name: tuple(map(hop_sizes, pair)) for name, pair in hard_pairs().items()}
    assert sizes["C6 / two C3"] == ([(1, 2, 2, 1)] * 6, [(1, 2)] * 6)
    assert sizes["K3,3 / prism"] == ([(1, 3, 2)] * 6,) * 2
    assert sizes["rook 4x4 / Shrikhande"] == ([(1, 6, 9)] * 16,) * 2
    assert csl_classes() == (9, 1)
    assert hop_sizes(csl_graph(41, 6))[0] == hop_sizes(csl_graph(41, 16))[0] == (1, 4, 8, 12, 10, 6)


@pytest.mark.equation("eq-gred-sizes")
@pytest.mark.parametrize("seed", [0, 3])
def test_table_of_expressiveness(seed):
    table = expressiveness(seed).set_index("pair")
    assert not table["1-WL"].any()
    same = [
        *(table["2 hops"]),
        *(table.loc[["K3,3 / prism", "rook 4x4 / Shrikhande"], ["3 hops", "all hops"]].to_numpy().ravel()),
        table.loc["decalin / bicyclopentyl", "3 hops"],
    ]
    apart = [
        *(table.loc[["C6 / two C3", "CSL(41, 2) / CSL(41, 3)"], ["3 hops", "all hops"]].to_numpy().ravel()),
        table.loc["decalin / bicyclopentyl", "all hops"],
    ]
    assert len(same) == 10
    assert max(same) < 1e-10
    assert min(apart) > 1e-6


def test_strongly_regular_pair_is_what_it_says():
    """Both have parameters (16, 6, 2, 2), and are not isomorphic: neighbours form triangles or a hexagon."""
    rook, shrikhande = hard_pairs()["rook 4x4 / Shrikhande"]
    kinds = []
    for adj in (rook, shrikhande):
        a = adj.double()
        common = a @ a
        assert torch.equal(common, 6 * torch.eye(16) + 2 * a + 2 * (1 - a - torch.eye(16)))
        near = adj[0].nonzero().flatten()
        kinds.append(int(shortest_path_distances(adj[near][:, near]).max()))
    assert kinds == [1, 3]


def test_wl_is_blind_to_names_and_sees_features():
    g = torch.Generator().manual_seed(0)
    drawn = (torch.rand(12, 12, generator=g) < 0.3).triu(1)
    adj, x = drawn | drawn.T, torch.randint(3, (12, 2), generator=g)
    order = torch.randperm(12, generator=g)
    moved = adj[order][:, order]
    assert wl_color_histogram(moved) == wl_color_histogram(adj)
    assert wl_color_histogram(moved, x[order]) == wl_color_histogram(adj, x)
    assert wl_color_histogram(adj, x) != wl_color_histogram(adj)
    assert wl_color_histogram(adj, x.double()) == wl_color_histogram(adj, x)
    assert sum(count for _, count in wl_color_histogram(adj)) == 12


def test_wl_rounds():
    """Paths and stars: degrees after one round, ends of a path later."""
    path = graph_from_edges(6, [(i, i + 1) for i in range(5)])
    assert [sorted(c for _, c in wl_color_histogram(path, rounds=r)) for r in range(3)] == [
        [6],
        [2, 4],
        [2, 2, 2],
    ]
    cycle = graph_from_edges(6, [(i, (i + 1) % 6) for i in range(6)])
    assert wl_color_histogram(path, rounds=0) == wl_color_histogram(cycle, rounds=0)
    assert wl_color_histogram(path) != wl_color_histogram(cycle)
    # both regular, of different degrees: one class each at once, yet told apart
    assert wl_color_histogram(csl_graph(9, 2)) != wl_color_histogram(csl_graph(9, 2) | csl_graph(9, 3))
    assert wl_color_histogram(torch.zeros(0, 0)) == ()


def test_bad_wl_inputs():
    with pytest.raises(ValueError, match="one graph"):
        wl_color_histogram(torch.zeros(2, 3, 3))
    with pytest.raises(ValueError, match="features"):
        wl_color_histogram(torch.zeros(3, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="NaN"):
        wl_color_histogram(torch.zeros(2, 2), torch.full((2,), float("nan")))
    with pytest.raises(ValueError, match="rounds"):
        wl_color_histogram(torch.zeros(2, 2), rounds=-1)


def test_cluster_follows_its_recipe(global_random_state):
    before = global_random_state()
    graphs = sbm_cluster(60, generator=torch.Generator().manual_seed(0))
    inside, between = [], []
    for graph in graphs:
        n = len(graph.labels)
        assert graph.adj.dtype == torch.bool
        assert graph.adj.shape == (n, n)
        assert torch.equal(graph.adj, graph.adj.T)
        assert not graph.adj.diagonal().any()
        sizes = torch.bincount(graph.labels, minlength=6)
        assert int(sizes.min()) >= 5
        assert int(sizes.max()) <= 34
        marked = graph.tokens.nonzero().flatten()
        assert sorted(graph.tokens[marked].tolist()) == [1, 2, 3, 4, 5, 6]
        assert torch.equal(graph.tokens[marked], graph.labels[marked] + 1)
        same = graph.labels[:, None] == graph.labels[None, :]
        off = ~torch.eye(n, dtype=torch.bool)
        inside.append(graph.adj[same & off])
        between.append(graph.adj[~same])
    # entries above and below the diagonal are one draw: twice the standard error of independent ones
    for drawn, p in ((torch.cat(inside), 0.55), (torch.cat(between), 0.25)):
        error = (2 * p * (1 - p) / len(drawn)) ** 0.5
        assert abs(float(drawn.double().mean()) - p) < 4 * error
    assert global_random_state() == before


def test_pattern_follows_its_recipe():
    graphs = sbm_pattern(60, generator=torch.Generator().manual_seed(1))
    inner, outer = [], []
    for graph in graphs:
        n = len(graph.labels)
        assert torch.equal(graph.adj, graph.adj.T)
        assert not graph.adj.diagonal().any()
        assert int(graph.labels.sum()) == 20
        assert 45 <= n <= 190
        assert set(graph.tokens.tolist()) <= {0, 1, 2}
        planted = graph.labels == 1
        inner.append(graph.adj[planted][:, planted][~torch.eye(20, dtype=torch.bool)])
        outer.append(graph.adj[planted][:, ~planted].flatten())
    assert abs(float(torch.cat(outer).double().mean()) - 0.5) < 4 * (0.25 / len(torch.cat(outer))) ** 0.5
    # 60 graphs share at most 100 patterns of 190 pairs; at least 40 of them are different
    assert abs(float(torch.cat(inner).double().mean()) - 0.5) < 4 * (0.25 / (40 * 190)) ** 0.5


@pytest.mark.parametrize("draw", [sbm_cluster, sbm_pattern])
def test_seeds_and_counts(draw):
    one, two = (draw(3, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert all(
        torch.equal(a.adj, b.adj) and torch.equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True)
    )
    assert draw(0) == []
    with pytest.raises(ValueError, match="num_graphs"):
        draw(-1)
    with pytest.raises(AttributeError):
        one[0].adj = None


def test_pairs_in_reach_do_not_grow_with_hops():
    """E11: the number of pairs over all hops is at most N^2, whatever the number of hops."""
    adj = csl_graph(41, 2)
    dist = shortest_path_distances(adj)
    for hops in (1, 3, 12, 30):
        pairs = int(hop_masks(dist, hops).sum())
        assert pairs == int((dist < hops).sum())
        assert pairs <= 41 * 41
    assert int(hop_masks(dist, 30).sum()) == 41 * 41
