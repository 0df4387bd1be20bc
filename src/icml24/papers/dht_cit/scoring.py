"""Rows of the comparison tables: what is counted of a graph, of descendants, of edges left open."""

from __future__ import annotations

import numpy as np

from .baselines import PCGraph
from .metrics import (
    ancestors_to_descendants,
    edge_scores,
    structural_hamming_distance,
    structural_intervention_distance,
)

__all__ = ["descendant_scores", "half_scores", "scores"]


def scores(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """SHD (a reversal costs 2 or 1), SID (truth first), precision, recall and F1 of an estimate."""
    precision, recall, f1 = edge_scores(truth, found)
    try:
        sid = structural_intervention_distance(truth, found)
    except ValueError:  # a cycle (PC, rarely): no adjustment is right
        sid = len(truth) * (len(truth) - 1)
    return {
        "shd2": structural_hamming_distance(truth, found),
        "shd1": structural_hamming_distance(truth, found, reversal_cost=1),
        "sid": sid,
        "precision": precision,
        "recall": recall,
        "f1": f1,
    }


def descendant_scores(truth: np.ndarray, pvalues: np.ndarray, alpha: float = 0.05) -> dict[str, float]:
    """Rejections at level `alpha` against the descendants of the true graph."""
    below = ancestors_to_descendants(truth)
    rejected = (pvalues < alpha).astype(np.int64)
    np.fill_diagonal(rejected, 0)
    precision, recall, f1 = edge_scores(below, rejected)
    return {"desc_precision": precision, "desc_recall": recall, "desc_f1": f1}


def half_scores(truth: np.ndarray, answer: PCGraph) -> dict[str, float]:
    """PC's scores with every open edge between true neighbours half right (our order orients it well)."""
    lucky = int((answer.undirected * truth).sum())
    hits = int((answer.oriented * truth).sum()) - 0.5 * lucky
    size = int(answer.oriented.sum() + truth.sum())
    shd2 = structural_hamming_distance(truth, answer.oriented) + lucky
    return {"half_shd2": shd2, "half_f1": 2 * hits / size if size else 0.0}
