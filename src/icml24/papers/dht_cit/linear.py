r"""The linear Gaussian case, where the criterion can be worked out without data.

Slices obey ``X^t = A' X^t + D X^(t-1) + L2' X^(t-2) + e^t`` with ``A[i, j]`` the weight of i -> j.
Unrolled over time this is one big linear system, so every covariance and partial covariance has a
closed form (eq-dht_cit-markov, eq-dht_cit-support, eq-dht_cit-lag2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _checks

__all__ = ["partial_correlation", "partial_covariance", "propagation", "unrolled_covariance"]


def propagation(weights: Any, self_effects: Any, gap: int = 1) -> np.ndarray:
    r"""Effect of slice a on slice a + gap: entry (j, i) is that of variable i on variable j.

    Parameters
    ----------
    weights : array_like, shape (d, d)
        Weights within a slice, strictly upper triangular; row = cause.
    self_effects : array_like, shape (d,)
        Weight of each variable's own past.
    gap : int
        Slices between the two, at least 1.

    Returns
    -------
    ndarray, shape (d, d)
        :math:`\bigl((I - A^\top)^{-1} D\bigr)^{\text{gap}}` (eq-dht_cit-support).
    """
    weights, own = _system(weights, self_effects)
    step = np.linalg.solve(np.eye(len(own)) - weights.T, np.diag(own))
    return np.linalg.matrix_power(step, _checks.whole("gap", gap, least=1))


def unrolled_covariance(weights: Any, self_effects: Any, n_slices: int, *, lag2: Any = None) -> np.ndarray:
    """Covariance of all slices, driven by unit noise from nothing: shape (n_slices d, n_slices d).

    Parameters
    ----------
    weights, self_effects
        As for `propagation`.
    n_slices : int
        Slices 0, 1, ...; variable i of slice t has index ``t * d + i``.
    lag2 : array_like, shape (d, d), optional
        Weights from two slices before; row = cause.

    Returns
    -------
    ndarray
    """
    weights, own = _system(weights, self_effects)
    d = len(own)
    second = np.zeros((d, d)) if lag2 is None else _checks.array("lag2", lag2)
    n_slices = _checks.whole("n_slices", n_slices, least=1)
    system = (
        np.kron(np.eye(n_slices), weights.T)
        + np.kron(np.eye(n_slices, k=-1), np.diag(own))
        + np.kron(np.eye(n_slices, k=-2), second.T)
    )
    response = np.linalg.inv(np.eye(n_slices * d) - system)
    return response @ response.T


def partial_covariance(
    covariance: np.ndarray, left: Sequence[int], right: Sequence[int], given: Sequence[int]
) -> np.ndarray:
    """Covariance of two groups of variables given a third, shape (len(left), len(right))."""
    block = covariance[np.ix_(left, right)]
    if not len(given):
        return block
    inner = np.linalg.solve(covariance[np.ix_(given, given)], covariance[np.ix_(given, right)])
    return block - covariance[np.ix_(left, given)] @ inner


def partial_correlation(covariance: np.ndarray, i: int, j: int, given: Sequence[int]) -> float:
    """Correlation of variables i and j given others."""
    inner = partial_covariance(covariance, [i, j], [i, j], given)
    return float(inner[0, 1] / np.sqrt(inner[0, 0] * inner[1, 1]))


def _system(weights: Any, self_effects: Any) -> tuple[np.ndarray, np.ndarray]:
    weights, own = _checks.array("weights", weights), _checks.array("self_effects", self_effects)
    if own.ndim != 1 or weights.shape != (len(own), len(own)) or np.tril(weights).any():
        raise ValueError(
            "weights must be strictly upper triangular, shape (d, d), and self_effects have shape (d,); "
            f"got {weights.shape} and {own.shape}"
        )
    return weights, own
