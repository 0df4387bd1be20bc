"""The whole method: p-values, layers, candidate edges, pruning (DHT-CIT)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _checks
from .descendants import candidate_graph, descendant_pvalues, layer_order, topological_layers
from .pruning import gam_prune

__all__ = ["DHTResult", "dht_cit"]


@dataclass(frozen=True)
class DHTResult:
    """What each stage found, d variables.

    Attributes
    ----------
    pvalues : ndarray, shape (d, d)
        Row = early variable, column = late one, rounded to 4 decimals.
    layers : list of ndarray of int
        Sinks first.
    order : ndarray of int, shape (d, d)
        Edges that the layers allow.
    candidates : ndarray of int, shape (d, d)
        Allowed edges with a rejection.
    graph : ndarray of int, shape (d, d)
        Candidates that survive pruning: the estimate; row = cause.
    """

    pvalues: np.ndarray
    layers: list[np.ndarray]
    order: np.ndarray
    candidates: np.ndarray
    graph: np.ndarray


def dht_cit(
    early: Any,
    late: Any,
    *,
    alpha: float = 0.05,
    cutoff: float = 1e-3,
    test: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None = None,
) -> DHTResult:
    """Estimate the summary graph from two slices.

    Parameters
    ----------
    early, late : array_like, shape (n, d)
        The same units and variables at two times, any number of hidden slices apart.
    alpha : float, default 0.05
        Level of the independence tests.
    cutoff : float, default 1e-3
        Level of the pruning, which looks at `early` alone.
    test : callable, optional
        Conditional independence test, see `descendant_pvalues`.

    Returns
    -------
    DHTResult

    Raises
    ------
    ValueError
        As `descendant_pvalues`, `topological_layers` and `gam_prune`.
    """
    alpha = _checks.probability("alpha", alpha)
    cutoff = _checks.probability("cutoff", cutoff)
    pvalues = descendant_pvalues(early, late, test=test)
    layers = topological_layers(pvalues, alpha)
    candidates = candidate_graph(pvalues, alpha)
    graph = gam_prune(candidates, early, cutoff=cutoff)
    return DHTResult(pvalues, layers, layer_order(layers), candidates, graph)
