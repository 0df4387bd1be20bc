r"""Graphs on purpose: circulants, pairs that are hard to tell apart, and stochastic block models.

Block models follow the published recipe of the *benchmarking GNNs* data sets. `wl_color_histogram`
is one-dimensional Weisfeiler-Leman refinement, the yardstick of message passing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.checks import WrongType, whole

from .distances import _edges

__all__ = [
    "SBMGraph",
    "csl_graph",
    "graph_from_edges",
    "hard_pairs",
    "sbm_cluster",
    "sbm_pattern",
    "wl_color_histogram",
]

CLUSTERS, COMMUNITIES = 6, 5
SIZES = (5, 35)  # community sizes: the upper end is excluded, as in numpy's randint
P_CLUSTER, Q_CLUSTER = 0.55, 0.25
P_PATTERN, Q_PATTERN = 0.5, 0.35
#: Nodes of the planted pattern, edges inside it and towards the graph, number of patterns drawn.
PATTERN_NODES, PATTERN_P, PATTERN_Q, PATTERNS = 20, 0.5, 0.5, 100


@dataclass(frozen=True)
class SBMGraph:
    """A graph with tokens and labels on its nodes.

    Attributes
    ----------
    adj : Tensor, shape (n, n), bool
    tokens, labels : Tensor, shape (n,), int64
    """

    adj: Tensor
    tokens: Tensor
    labels: Tensor


def csl_graph(n: int, skip: int) -> Tensor:
    """Circulant graph: a cycle of `n` nodes, each also joined to those `skip` steps ahead and behind.

    Parameters
    ----------
    n : int
        Nodes, at least 4.
    skip : int
        In 2..n-2.

    Returns
    -------
    Tensor, shape (n, n), bool
    """
    n, skip = whole("n", n, 4), whole("skip", skip)
    if not 2 <= skip <= n - 2:
        raise ValueError(f"skip must lie in 2..n-2 = 2..{n - 2}; got {skip}")
    gap = torch.arange(n)
    gap = (gap[:, None] - gap[None, :]) % n
    return (gap == 1) | (gap == n - 1) | (gap == skip) | (gap == n - skip)


def graph_from_edges(n: int, edges: list[tuple[int, int]]) -> Tensor:
    """Adjacency matrix (n, n), bool, of a list of edges."""
    adj = torch.zeros(n, n, dtype=torch.bool)
    for i, j in edges:
        adj[i, j] = adj[j, i] = True
    return adj


def hard_pairs() -> dict[str, tuple[Tensor, Tensor]]:
    """Pairs of graphs with equal numbers of nodes and edges and equal degrees, by name."""
    hexagon = [(i, (i + 1) % 6) for i in range(6)]
    triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    decalin = [(i, i + 1) for i in range(9)] + [(5, 0), (9, 0)]
    bicyclopentyl = [(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 1) % 5) for i in range(5)]
    bipartite = [(i, j) for i in range(3) for j in range(3, 6)]
    prism = [*triangles, (0, 3), (1, 4), (2, 5)]
    return {
        "C6 / two C3": (graph_from_edges(6, hexagon), graph_from_edges(6, triangles)),
        "decalin / bicyclopentyl": (
            graph_from_edges(10, decalin),
            graph_from_edges(10, [*bicyclopentyl, (0, 5)]),
        ),
        "CSL(41, 2) / CSL(41, 3)": (csl_graph(41, 2), csl_graph(41, 3)),
        "K3,3 / prism": (graph_from_edges(6, bipartite), graph_from_edges(6, prism)),
        "rook 4x4 / Shrikhande": (
            _grid4({(0, 1), (0, 2), (0, 3)}, rook=True),
            _grid4({(0, 1), (1, 0), (1, 1)}),
        ),
    }


def wl_color_histogram(adj: Tensor, features: Tensor | None = None, rounds: int | None = None) -> tuple:
    r"""Colours of 1-WL refinement with their counts.

    A node's next colour is a digest of its own colour and of the sorted colours of its neighbours, so colours of
    different graphs can be compared.

    Parameters
    ----------
    adj : Tensor, shape (N, N)
        Symmetric; the diagonal is ignored.
    features : Tensor, shape (N,) or (N, d), optional
        Initial colours; None gives all nodes one colour.
    rounds : int, optional
        Rounds of refinement; None goes on until a round splits no class.

    Returns
    -------
    tuple of (colour, count)
        Sorted. Tuples of two graphs are equal if and only if 1-WL does not tell them apart (after
        `rounds` rounds, if given).

    Raises
    ------
    ValueError
        Wrong shapes, NaN, an adjacency matrix that is not symmetric.
    """
    edges = _edges(adj)
    if edges.ndim != 2:
        raise ValueError(f"adj must be (N,N), one graph; got shape {tuple(edges.shape)}")
    n = len(edges)
    limit = None if rounds is None else whole("rounds", rounds)
    neighbours = [row.nonzero().flatten().tolist() for row in edges]
    colours = _initial_colours(n, features)
    done = 0
    while limit is None or done < limit:
        classes = len(set(colours))
        colours = [_digest(colours[v], *sorted(colours[u] for u in neighbours[v])) for v in range(n)]
        done += 1
        if limit is None and len(set(colours)) == classes:
            break
    return tuple(sorted((c, colours.count(c)) for c in set(colours)))


def sbm_cluster(num_graphs: int, *, generator: torch.Generator | None = None) -> list[SBMGraph]:
    """Six communities, one labelled node in each; find everybody's community (CLUSTER).

    Community sizes are uniform integers in [5, 35), edges have probability 0.55 inside and 0.25
    between. Token r + 1 marks one random node of community r, all others have token 0.

    Parameters
    ----------
    num_graphs : int
    generator : torch.Generator, optional
        None is torch's global generator.

    Returns
    -------
    list of SBMGraph
        Labels are communities 0..5; the order of nodes is random.
    """
    out = []
    for _ in range(whole("num_graphs", num_graphs)):
        labels = _communities(CLUSTERS, generator)
        adj = _block_edges(labels, P_CLUSTER, Q_CLUSTER, generator)
        tokens = torch.zeros_like(labels)
        for r in range(CLUSTERS):
            members = (labels == r).nonzero().flatten()
            tokens[members[int(torch.randint(len(members), (1,), generator=generator))]] = r + 1
        out.append(SBMGraph(adj, tokens, labels))
    return out


def sbm_pattern(num_graphs: int, *, generator: torch.Generator | None = None) -> list[SBMGraph]:
    """Five communities and a planted pattern of twenty nodes; find the pattern (PATTERN).

    Edges have probability 0.5 inside a community and 0.35 between. One of 100 random patterns, drawn
    once a call, is planted: inner edges and edges to the graph have probability 0.5. Tokens are
    random in {0, 1, 2}; a pattern carries its own.

    Parameters
    ----------
    num_graphs : int
    generator : torch.Generator, optional
        None is torch's global generator.

    Returns
    -------
    list of SBMGraph
        Label 1 marks nodes of the pattern; the order of nodes is random.
    """
    count = whole("num_graphs", num_graphs)
    k = PATTERN_NODES
    patterns = [
        (
            _symmetric(torch.full((k, k), PATTERN_P), generator),
            torch.randint(3, (k,), generator=generator),
        )
        for _ in range(PATTERNS if count else 0)
    ]
    out = []
    for _ in range(count):
        blocks = _communities(COMMUNITIES, generator)
        n = len(blocks)
        inner, marks = patterns[int(torch.randint(PATTERNS, (1,), generator=generator))]
        adj = torch.zeros(n + k, n + k, dtype=torch.bool)
        adj[:n, :n] = _block_edges(blocks, P_PATTERN, Q_PATTERN, generator)
        adj[n:, n:] = inner
        adj[n:, :n] = torch.rand(k, n, generator=generator) < PATTERN_Q
        adj[:n, n:] = adj[n:, :n].T
        tokens = torch.cat([torch.randint(3, (n,), generator=generator), marks])
        labels = torch.cat([torch.zeros(n, dtype=torch.int64), torch.ones(k, dtype=torch.int64)])
        order = torch.randperm(n + k, generator=generator)
        out.append(SBMGraph(adj[order][:, order], tokens[order], labels[order]))
    return out


def _grid4(steps: set[tuple[int, int]], *, rook: bool = False) -> Tensor:
    """Cayley graph on the 4 by 4 torus; `rook` adds the same steps along the other axis."""
    steps = steps | {(b, a) for a, b in steps} if rook else steps
    both = steps | {(-a, -b) for a, b in steps}
    edges = [
        (4 * i + j, 4 * ((i + a) % 4) + (j + b) % 4) for i in range(4) for j in range(4) for a, b in both
    ]
    return graph_from_edges(16, edges)


def _initial_colours(n: int, features: Tensor | None) -> list[str]:
    if features is None:
        return [_digest("node")] * n
    if not isinstance(features, Tensor):
        raise WrongType(f"features must be a torch.Tensor; got {type(features).__name__}")
    if features.ndim not in (1, 2) or len(features) != n:
        raise ValueError(
            f"features must be ({n},) or ({n},d), a row for each node; got {tuple(features.shape)}"
        )
    if features.is_floating_point() and bool(features.isnan().any()):
        raise ValueError("features contain NaN, which equals nothing, not even itself")
    rows = features.detach().reshape(n, -1).double() + 0.0  # + 0.0: minus zero is zero
    return [_digest("node", *map(repr, row)) for row in rows.tolist()]


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _communities(count: int, generator: torch.Generator | None) -> Tensor:
    """Labels of a graph's nodes in random order."""
    sizes = torch.randint(*SIZES, (count,), generator=generator)
    labels = torch.repeat_interleave(torch.arange(count), sizes)
    return labels[torch.randperm(len(labels), generator=generator)]


def _block_edges(labels: Tensor, p: float, q: float, generator: torch.Generator | None) -> Tensor:
    same = labels[:, None] == labels[None, :]
    return _symmetric(torch.where(same, p, q), generator)


def _symmetric(probability: Tensor, generator: torch.Generator | None) -> Tensor:
    """Symmetric draws, diagonal empty."""
    drawn = (torch.rand(probability.shape, generator=generator) < probability).triu(1)
    return drawn | drawn.T
