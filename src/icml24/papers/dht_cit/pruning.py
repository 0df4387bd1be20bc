r"""Pruning: which candidate causes still explain a variable beside the others?

The authors fit a generalised additive model in R. Here every candidate parent gets a cubic B-spline
basis, the additive model is fitted by least squares, and each parent's whole basis is dropped in turn:
a nested F-test (eq-dht_cit-ftest). No penalty, hence an exact level under Gaussian noise and less
power against very smooth effects than a penalised fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import qr
from scipy.stats import f as f_law

from . import _checks

__all__ = ["gam_prune", "spline_columns"]


def gam_prune(
    candidates: Any,
    data: Any,
    *,
    cutoff: float = 1e-3,
    n_basis: int = 10,
    return_pvalues: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Keep a candidate edge if its cause's spline terms improve the additive fit of its effect.

    Parameters
    ----------
    candidates : array_like of 0/1, shape (d, d)
        Row = cause, zero diagonal.
    data : array_like, shape (n, d)
        One slice (the chapter and the authors take the early one), in any units.
    cutoff : float, default 1e-3
        An edge is kept when its p-value is below.
    n_basis : int, default 10
        Spline functions a predictor, at least 4. With ``p`` candidate causes and
        ``n / p < 3 n_basis`` they are reduced to ``max(4, ceil(n / (3 p)))``.
    return_pvalues : bool, default False

    Returns
    -------
    ndarray of int, shape (d, d)
        The kept edges; with `return_pvalues` also the p-values, NaN off the candidates.

    Raises
    ------
    ValueError
        Wrong shapes, entries other than 0 and 1, non-finite data, `cutoff` outside (0, 1),
        ``n_basis < 4``, or too few rows to fit a variable's causes.

    Notes
    -----
    Source: eq-dht_cit-ftest. A predictor that adds nothing to the span of the others (a constant,
    a copy) has p-value 1.
    """
    data = _checks.samples("data", data)
    d = data.shape[1]
    candidates = _checks.adjacency("candidates", candidates, size=d)
    cutoff = _checks.probability("cutoff", cutoff)
    n_basis = _checks.whole("n_basis", n_basis, least=4)
    pvalues = np.full((d, d), np.nan)
    for node in range(d):
        parents = np.flatnonzero(candidates[:, node])
        if len(parents):
            pvalues[parents, node] = _term_pvalues(data[:, node], data[:, parents], n_basis)
    kept = (np.nan_to_num(pvalues, nan=1.0) < cutoff).astype(np.int64)
    return (kept, pvalues) if return_pvalues else kept


def spline_columns(x: np.ndarray, size: int) -> np.ndarray:
    """Centred cubic B-splines of `x` with knots at its quantiles, the first dropped: (n, size - 1)."""
    knots = np.unique(np.quantile(x, np.linspace(0, 1, size - 2)))  # ties merge knots
    if len(knots) < 2:
        return np.zeros((len(x), 0))
    clamped = np.concatenate([np.repeat(knots[0], 3), knots, np.repeat(knots[-1], 3)])
    basis = BSpline.design_matrix(x, clamped, 3).toarray()
    return (basis - basis.mean(axis=0))[:, 1:]


def _term_pvalues(y: np.ndarray, predictors: np.ndarray, n_basis: int) -> np.ndarray:
    n, p = predictors.shape
    size = n_basis if n / p >= 3 * n_basis else max(4, math.ceil(n / (3 * p)))
    if n <= 1 + p * (size - 1):
        raise ValueError(
            f"data has {n} rows, too few to fit {p} causes with {size - 1} spline terms each; "
            f"give at least {2 + p * (size - 1)} rows or fewer candidates"
        )
    terms = [spline_columns(column, size) for column in predictors.T]
    y = y - y.mean()
    full, rank = _residual_sum(y, np.hstack(terms))
    freedom = n - 1 - rank
    out = np.ones(p)
    for j in range(p):
        rest = [term for k, term in enumerate(terms) if k != j]
        without, reduced = _residual_sum(y, np.hstack([np.zeros((n, 0)), *rest]))
        if rank > reduced and full > 0:
            ratio = (without - full) / (rank - reduced) / (full / freedom)
            out[j] = f_law.sf(max(ratio, 0.0), rank - reduced, freedom)
        elif rank > reduced and without > 0:
            out[j] = 0.0  # an exact fit that needs this term
    return out


def _residual_sum(y: np.ndarray, design: np.ndarray) -> tuple[float, int]:
    """Sum of squared residuals of a least-squares fit, and the rank of the design."""
    if design.shape[1] == 0:
        return float(y @ y), 0
    q, r, _ = qr(design, mode="economic", pivoting=True)
    size = np.abs(np.diag(r))
    rank = int((size > 1e-10 * size[0]).sum()) if size[0] > 0 else 0
    q = q[:, :rank]
    residual = y - q @ (q.T @ y)
    return float(residual @ residual), rank
