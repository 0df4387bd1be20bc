r"""SCORE, the single-slice baseline: find a leaf by the curvature of the log density.

In an additive noise model with Gaussian noise, the second derivative of the log density along a leaf
is the same at every point (eq-dht_cit-leaf). A kernel Stein estimate of that derivative
(eq-dht_cit-stein), one variance a column: the smallest is taken for the leaf and removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from . import _checks

__all__ = ["score_order", "stein_hessian_diagonal"]


def stein_hessian_diagonal(x: Any, *, eta_g: float = 1e-3, eta_h: float = 1e-3) -> np.ndarray:
    r"""Estimated diagonal of the Hessian of the log density at every sample.

    Parameters
    ----------
    x : array_like, shape (n, d)
        Independent samples, ``n >= 3``, in one unit or standardised: distances mix the columns.
    eta_g, eta_h : float, default 1e-3
        Ridge parameters of the gradient's and of the Hessian's kernel regression; positive.

    Returns
    -------
    ndarray, shape (n, d)
        In inverse squared units of `x`.

    Raises
    ------
    ValueError
        Not two-dimensional, fewer than 3 rows, non-finite values, etas that are not positive, or
        most rows equal (then the median distance, the kernel's width, is zero).

    Notes
    -----
    Source: eq-dht_cit-stein. The width is the lower median of all n^2 distances, zeros included.
    """
    x = _checks.samples("x", x, least=3)
    eta_g, eta_h = _checks.positive("eta_g", eta_g), _checks.positive("eta_h", eta_h)
    x = x - x.mean(axis=0)  # no difference depends on it; the sums below lose fewer digits
    squared = cdist(x, x, "sqeuclidean")
    middle = (squared.size - 1) // 2
    width2 = np.partition(squared, middle, axis=None)[middle]
    if not width2 > 0:
        raise ValueError("x has too many equal rows: the median distance between samples is zero")
    gram = np.exp(-squared / (2 * width2)) / np.sqrt(width2)
    mass = gram.sum(axis=0)[:, None]
    first = gram @ x
    second = gram @ x**2
    gradient = (first - mass * x) / width2
    hessian = (mass * x**2 - 2 * x * first + second) / width2**2 - mass / width2
    score = _ridge_solve(gram, eta_g, gradient)
    return _ridge_solve(gram, eta_h, hessian) - score**2


def score_order(x: Any, *, eta_g: float = 1e-3, eta_h: float = 1e-3) -> list[int]:
    """Causal order of the columns by repeated removal of the leaf, causes first.

    Parameters
    ----------
    x : array_like, shape (n, d)
    eta_g, eta_h : float, default 1e-3
        See `stein_hessian_diagonal`.

    Returns
    -------
    list of int

    Raises
    ------
    ValueError
        As `stein_hessian_diagonal`.

    Notes
    -----
    Source: eq-dht_cit-leaf; the leaf is the column with the smallest variance of the estimate.
    """
    x = _checks.samples("x", x, least=3)
    left = list(range(x.shape[1]))
    leaves = []
    while len(left) > 1:
        spread = stein_hessian_diagonal(x[:, left], eta_g=eta_g, eta_h=eta_h).var(axis=0)
        leaves.append(left.pop(int(spread.argmin())))
    return left + leaves[::-1]


def _ridge_solve(gram: np.ndarray, eta: float, right: np.ndarray) -> np.ndarray:
    return cho_solve(cho_factor(gram + eta * np.eye(len(gram)), overwrite_a=True), right)
