r"""Methods that see one slice: SCORE with pruning, DirectLiNGAM and PC.

DirectLiNGAM and PC are causal-learn's, imported when called. PC returns some edges without a
direction; `PCGraph` keeps them apart, because how they are counted decides PC's score.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .pruning import gam_prune
from .stein import score_order

__all__ = ["PCGraph", "direct_lingam", "pc", "quiet_import", "score_cam"]


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import causal-learn without the warning that its progress bars miss a notebook widget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class PCGraph:
    """PC's answer: directed edges, and pairs (i < j) whose direction it leaves open."""

    directed: np.ndarray
    undirected: np.ndarray

    @property
    def oriented(self) -> np.ndarray:
        """All edges, open ones as i -> j with i < j: in our simulations that is always right."""
        return self.directed + self.undirected


def score_cam(x: np.ndarray, *, cutoff: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    """SCORE's full order as allowed edges, and the same pruned by `gam_prune`."""
    rank = np.empty(x.shape[1], dtype=np.int64)
    rank[score_order(x)] = np.arange(x.shape[1])
    allowed = (rank[:, None] < rank[None, :]).astype(np.int64)
    return allowed, gam_prune(allowed, x, cutoff=cutoff)


def direct_lingam(x: np.ndarray, *, threshold: float = 0.1) -> np.ndarray:
    """Edges of DirectLiNGAM with a coefficient above `threshold` in absolute value; row = cause."""
    with quiet_import():
        from causallearn.search.FCMBased import lingam

    model = lingam.DirectLiNGAM()
    model.fit(x)
    return (np.abs(np.asarray(model.adjacency_matrix_).T) > threshold).astype(np.int64)


def pc(x: np.ndarray, *, alpha: float = 0.05) -> PCGraph:
    """PC with Fisher's z test at level `alpha`."""
    with quiet_import():
        from causallearn.search.ConstraintBased.PC import pc as search

    marks = search(x, alpha=alpha, indep_test="fisherz", show_progress=False).G.graph
    tail, head = marks == -1, marks == 1
    directed = (tail & head.T).astype(np.int64)
    undecided = (tail & tail.T) | (head & head.T)
    return PCGraph(directed, np.triu(undecided).astype(np.int64))
