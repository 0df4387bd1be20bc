r"""How far apart two graphs are: edges (SHD, precision, recall), orders, interventions (SID)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _checks

__all__ = [
    "ancestors_to_descendants",
    "edge_scores",
    "order_violations",
    "structural_hamming_distance",
    "structural_intervention_distance",
]


def structural_hamming_distance(a: Any, b: Any, *, reversal_cost: int = 2) -> int:
    """Edges to insert, delete or turn around to get from one graph to the other.

    Parameters
    ----------
    a, b : array_like of 0/1, shape (d, d)
    reversal_cost : {1, 2}
        A turned edge counts as a deletion and an insertion (2, the authors' evaluation) or once.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        Not square, shapes that differ, entries other than 0 and 1, another `reversal_cost`.
    """
    a, b = _pair(a, b)
    if reversal_cost not in (1, 2):
        raise ValueError(f"reversal_cost must be 1 or 2; got {reversal_cost!r}")
    difference = int(np.abs(a - b).sum())
    if reversal_cost == 2:
        return difference
    return difference - int(((a > a.T) & (b < b.T)).sum())


def edge_scores(a: Any, b: Any) -> tuple[float, float, float]:
    """Precision, recall and F1 of the directed edges of `b`, truth `a` first; 0 where undefined.

    Parameters
    ----------
    a, b : array_like of 0/1, shape (d, d)
        True and estimated graph.

    Returns
    -------
    (float, float, float)

    Raises
    ------
    ValueError
        As `structural_hamming_distance`.
    """
    a, b = _pair(a, b)
    hits, found, true = int((a * b).sum()), int(b.sum()), int(a.sum())
    precision = hits / found if found else 0.0
    recall = hits / true if true else 0.0
    return precision, recall, 2 * hits / (found + true) if found + true else 0.0


def order_violations(a: Any, allowed: Any) -> int:
    """Number of true edges that an order forbids (``D_top``).

    Parameters
    ----------
    a : array_like of 0/1, shape (d, d)
        True graph.
    allowed : array_like of 0/1, shape (d, d)
        1 where the order allows the edge, as from `layer_order`. Its diagonal is ignored.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        As `structural_hamming_distance`.
    """
    a = _checks.adjacency("a", a)
    allowed = _checks.adjacency("allowed", allowed, size=len(a), loops=True)
    return int((a * (1 - allowed)).sum())


def ancestors_to_descendants(a: Any) -> np.ndarray:
    """Transitive closure: 1 where the column is a descendant of the row; zero diagonal.

    Parameters
    ----------
    a : array_like of 0/1, shape (d, d)

    Returns
    -------
    ndarray of int, shape (d, d)

    Raises
    ------
    ValueError
        Not square, entries other than 0 and 1, a self-loop.
    """
    graph = _checks.adjacency("a", a)
    reach = _reach(graph)
    np.fill_diagonal(reach, False)
    return reach.astype(np.int64)


def structural_intervention_distance(a: Any, b: Any) -> int:
    r"""Number of pairs whose intervention effect the parents of `b` get wrong in `a`.

    Parameters
    ----------
    a, b : array_like of 0/1, shape (d, d)
        True graph first, estimate second; both acyclic. Not symmetric.

    Returns
    -------
    int
        Between 0 and ``d (d - 1)``.

    Raises
    ------
    ValueError
        As `structural_hamming_distance`, or a graph that is not acyclic.

    Notes
    -----
    Source: eq-dht_cit-sid (Peters and Buehlmann, 2015).
    """
    a, b = _pair(a, b)
    _checks.acyclic("a", a)
    _checks.acyclic("b", b)
    below = _reach(a)
    d = len(a)
    return sum(
        not _adjusts(a, below, i, j, np.flatnonzero(b[:, i])) for i in range(d) for j in range(d) if i != j
    )


def _adjusts(a: np.ndarray, below: np.ndarray, i: int, j: int, chosen: np.ndarray) -> bool:
    """Does adjusting for `chosen` give the effect of i on j in `a`? `below` includes the node itself."""
    if j in chosen:  # the estimate says that j causes i, hence no effect on j
        return not below[i, j]
    on_path = below[i] & below[:, j]
    on_path[i] = False
    if below[on_path][:, chosen].any():  # the set would block or bias a causal path
        return False
    backdoor = a.copy()
    backdoor[i, on_path] = 0
    return not _connected(backdoor, i, j, chosen)


def _connected(a: np.ndarray, start: int, end: int, given: np.ndarray) -> bool:
    """Is there an open path between two nodes given others? Breadth first over (node, arrived from)."""
    blocked = np.zeros(len(a), dtype=bool)
    blocked[given] = True
    opens = _reach(a)[:, given].any(axis=1)  # a collider is open if it leads into the given set
    seen = set()
    todo = [(start, "child")]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        node, arrived = state
        if node == end:
            return True
        if arrived == "child" and not blocked[node]:
            todo += [(int(parent), "child") for parent in np.flatnonzero(a[:, node])]
            todo += [(int(child), "parent") for child in np.flatnonzero(a[node])]
        if arrived == "parent":
            if not blocked[node]:
                todo += [(int(child), "parent") for child in np.flatnonzero(a[node])]
            if opens[node]:
                todo += [(int(parent), "child") for parent in np.flatnonzero(a[:, node])]
    return False


def _reach(graph: np.ndarray) -> np.ndarray:
    """Reflexive transitive closure as booleans, by repeated squaring."""
    reach = graph.astype(bool) | np.eye(len(graph), dtype=bool)
    for _ in range(max(len(graph) - 1, 1).bit_length()):
        reach = reach.astype(np.int64) @ reach.astype(np.int64) > 0
    return reach


def _pair(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    a = _checks.adjacency("a", a)
    return a, _checks.adjacency("b", b, size=len(a))
