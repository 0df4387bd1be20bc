r"""From two slices to descendants, from descendants to layers, from layers to candidate edges.

Row i of the p-value matrix asks which late variables still feel the early variable i once all other
early variables are known: its descendants (eq-dht_cit-criterion). Nodes without descendants are the
first layer; taken away, they leave a smaller problem of the same kind (eq-dht_cit-layers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _checks, kernels

__all__ = ["candidate_graph", "descendant_pvalues", "layer_order", "topological_layers"]


def descendant_pvalues(
    early: Any,
    late: Any,
    *,
    test: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None = None,
    round_to: int | None = 4,
) -> np.ndarray:
    """p-values of "late variable j does not feel early variable i, given the other early variables".

    Parameters
    ----------
    early, late : array_like, shape (n, d)
        The two slices of the same units and variables, in any units.
    test : callable, optional
        ``test(x, y, z)`` with arrays of shapes (n,), (n,) and (n, d - 1) returns a p-value (or a tuple
        that begins with one, so `kci_pvalue` itself will do). Default: the kernel test, with its
        shared work done once.
    round_to : int or None, default 4
        Decimals to round to, as the authors do; rounding makes ties. None keeps all digits.

    Returns
    -------
    ndarray, shape (d, d)
        Row = early variable, column = late variable; 0.5 on the diagonal, where nothing is tested.

    Raises
    ------
    ValueError
        Slices that differ in shape or are not two-dimensional, non-finite values, fewer than 8 rows
        for the kernel test, a `test` whose result is not a p-value.

    Notes
    -----
    Source: eq-dht_cit-criterion.
    """
    early, late = _two_slices(early, late)
    if round_to is not None:
        round_to = _checks.whole("round_to", round_to)
    if test is None:
        if len(early) < kernels.LEAST:
            raise ValueError(f"the kernel test needs at least {kernels.LEAST} rows; got {len(early)}")
        pvalues = kernels.pvalue_rows(early, late)
    else:
        d = early.shape[1]
        pvalues = np.full((d, d), 0.5)
        for i in range(d):
            others = [j for j in range(d) if j != i]
            for j in others:
                pvalues[i, j] = _tested(test(early[:, i], late[:, j], early[:, others]))
    return pvalues if round_to is None else pvalues.round(round_to)


def topological_layers(pvalues: Any, alpha: float = 0.05) -> list[np.ndarray]:
    """Nodes in layers, effects first.

    Parameters
    ----------
    pvalues : array_like, shape (d, d)
        In [0, 1]; row = possible cause. The diagonal is ignored.
    alpha : float, default 0.05
        Level: an entry below it is a rejection, "j is a descendant of i".

    Returns
    -------
    list of ndarray of int
        Sorted node indices of each layer; the first layer holds the sinks.

    Raises
    ------
    ValueError
        Not square, entries outside [0, 1], `alpha` outside (0, 1).

    Notes
    -----
    Source: eq-dht_cit-layers. When no remaining row is free of rejections, the weakest one (largest
    p-value; the first in reading order among equals) is withdrawn, for the layer at hand only.
    """
    working = _checks.pvalue_matrix(pvalues)
    alpha = _checks.probability("alpha", alpha)
    np.fill_diagonal(working, 1.0)
    left = np.arange(len(working))
    layers = []
    while len(left):
        part = working[np.ix_(left, left)]  # a copy: withdrawals end with the layer
        leaf = (part >= alpha).all(axis=1)
        while not leaf.any():
            part[np.unravel_index(np.where(part < alpha, part, -1.0).argmax(), part.shape)] = 1.0
            leaf = (part >= alpha).all(axis=1)
        layers.append(left[leaf])
        left = left[~leaf]
    return layers


def layer_order(layers: Sequence[Any]) -> np.ndarray:
    """Edges that the layers allow: from every node to every node of an earlier (lower) layer.

    Parameters
    ----------
    layers : sequence of array_like of int
        As from `topological_layers`; together they hold 0 .. d - 1, each once.

    Returns
    -------
    ndarray of int, shape (d, d)

    Raises
    ------
    ValueError
        A node is missing or occurs twice.
    """
    parts = [np.asarray(layer, dtype=np.int64).ravel() for layer in layers]
    nodes = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    if not np.array_equal(np.sort(nodes), np.arange(len(nodes))):
        raise ValueError(f"layers must hold the nodes 0 .. d - 1, each once; got {sorted(nodes.tolist())}")
    height = np.empty(len(nodes), dtype=np.int64)
    for level, part in enumerate(parts):
        height[part] = level
    return (height[:, None] > height[None, :]).astype(np.int64)


def candidate_graph(pvalues: Any, alpha: float = 0.05) -> np.ndarray:
    """Rejections that go down the layers: the candidate edges, always a directed acyclic graph.

    Parameters
    ----------
    pvalues : array_like, shape (d, d)
    alpha : float, default 0.05

    Returns
    -------
    ndarray of int, shape (d, d)
        ``1`` where the layers allow the edge and ``pvalues < alpha``.

    Raises
    ------
    ValueError
        As `topological_layers`.

    Notes
    -----
    Source: eq-dht_cit-candidates.
    """
    matrix = _checks.pvalue_matrix(pvalues)
    return layer_order(topological_layers(matrix, alpha)) * (matrix < alpha)


def _two_slices(early: Any, late: Any) -> tuple[np.ndarray, np.ndarray]:
    early, late = _checks.array("early", early), _checks.array("late", late)
    if early.ndim != 2 or early.shape != late.shape or 0 in early.shape:
        raise ValueError(
            "early and late must have the same shape (n, d): the same units and variables, seen twice; "
            f"got {early.shape} and {late.shape}"
        )
    return early, late


def _tested(outcome: Any) -> float:
    first = np.asarray(outcome[0] if isinstance(outcome, tuple) else outcome, dtype=np.float64)
    if first.size != 1 or not 0 <= first.item() <= 1:
        raise ValueError(f"test must return one p-value in [0, 1]; got {outcome!r}")
    return first.item()
