r"""The kernel test of conditional independence, and a row of tests that share their work.

Is `x` independent of `y` given `z`? Kernel matrices of all three are centred, the part of `x` and of
`y` that ridge regression on `z` explains is removed, and what is left is multiplied entry by entry
(eq-dht_cit-statistic). The null distribution is a weighted sum of chi-squares; two of its moments
and a gamma distribution give the p-value (eq-dht_cit-gamma).

Cost. A textbook run multiplies n x n matrices four times for every pair and then decomposes them.
Here the residual operator and `x`'s side are computed once a row, and the kernel of a single column
`y` is written as a thin product: it has a few dozen eigenvalues above rounding (pivoted Cholesky).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, lapack
from scipy.spatial.distance import cdist
from scipy.stats import gamma

from . import _checks

__all__ = ["kci_pvalue", "kci_row"]

LEAST = 8
#: Largest diagonal entry that the thin factor of a kernel matrix may leave out.
REMAINDER = 1e-12


def kci_pvalue(x: Any, y: Any, z: Any = None, *, epsilon: float = 1e-3) -> tuple[float, float]:
    r"""p-value and statistic of the kernel test of ``x`` independent of ``y`` given ``z``.

    Parameters
    ----------
    x, y : array_like, shape (n,) or (n, k)
        Paired observations in any unit (every column is standardised); ``n >= 8``.
    z : array_like, shape (n,) or (n, p), optional
        Variables to condition on. None, or no columns: the unconditional test.
    epsilon : float, default 1e-3
        Ridge parameter of the regressions on `z`; positive. Unused without `z`.

    Returns
    -------
    (float, float)
        p-value in [0, 1] and the statistic. A constant `x` or `y` gives ``(1.0, 0.0)``.

    Raises
    ------
    ValueError
        Fewer than 8 rows, differing numbers of rows, non-finite values, ``epsilon <= 0``.

    Notes
    -----
    Source: eq-dht_cit-statistic and eq-dht_cit-gamma; widths and ridge as in causal-learn 0.1.4.8,
    whose p-values it reproduces to about 1e-5 without its eigendecompositions.
    """
    x, z = _inputs(x, z)
    y = _checks.columns("y", y, rows=len(x))
    epsilon = _checks.positive("epsilon", epsilon)
    if z.shape[1] == 0:
        return _unconditional(x, y)
    row = Row(x, z, epsilon)
    return row.test(thin_factor(y, row.theta))


def kci_row(x: Any, ys: Any, z: Any, *, epsilon: float = 1e-3) -> np.ndarray:
    """p-values of `x` against every column of `ys`, all given `z`.

    Parameters
    ----------
    x : array_like, shape (n,) or (n, k)
    ys : array_like, shape (n, m)
        One test a column.
    z : array_like, shape (n,) or (n, p), or None
        Variables to condition on; the regression on them is done once.
    epsilon : float, default 1e-3
        Ridge parameter; positive.

    Returns
    -------
    ndarray, shape (m,)
        The same p-values as `kci_pvalue`, column by column.

    Raises
    ------
    ValueError
        As `kci_pvalue`.
    """
    x, z = _inputs(x, z)
    ys = _checks.columns("ys", ys, rows=len(x))
    epsilon = _checks.positive("epsilon", epsilon)
    if z.shape[1] == 0:
        return np.array([_unconditional(x, column[:, None])[0] for column in ys.T])
    row = Row(x, z, epsilon)
    return row.pvalues([thin_factor(column[:, None], row.theta) for column in ys.T])


class Row:
    """One `x` and one `z`: everything of the test that does not depend on `y`."""

    def __init__(self, x: np.ndarray, z: np.ndarray, epsilon: float) -> None:
        x, z = standardise(x), standardise(z)
        self.theta = conditional_theta(*z.shape)
        self.operator = residual_operator(centred_gram(z, self.theta), epsilon)
        gram = centred_gram(np.hstack([x, 0.5 * z]), self.theta)
        self.left = self.operator @ gram @ self.operator
        self.constant = not x.any()

    def test(self, factor: np.ndarray) -> tuple[float, float]:
        """p-value and statistic against a `y` whose centred kernel is ``factor @ factor.T``."""
        if self.constant or factor.shape[1] == 0:
            return 1.0, 0.0
        right = self.operator @ factor
        product = self.left * (right @ right.T)  # U of eq-dht_cit-facesplit
        statistic = float(product.sum())
        return _gamma_tail(statistic, product.trace(), 2 * np.vdot(product, product)), statistic

    def pvalues(self, factors: Sequence[np.ndarray]) -> np.ndarray:
        return np.array([self.test(factor)[0] for factor in factors])


def pvalue_rows(early: np.ndarray, late: np.ndarray, epsilon: float = 1e-3) -> np.ndarray:
    """p-values of early column i against late column j given the other early columns; diagonal 0.5.

    The kernel width depends on the number of conditioning columns alone, so the `d` factors of the
    late columns serve all rows.
    """
    n, d = early.shape
    out = np.full((d, d), 0.5)
    if d == 1:
        return out
    theta = conditional_theta(n, d - 1)
    factors = [thin_factor(late[:, [j]], theta) for j in range(d)]
    for i in range(d):
        others = [j for j in range(d) if j != i]
        row = Row(early[:, [i]], early[:, others], epsilon)
        out[i, others] = row.pvalues([factors[j] for j in others])
    return out


def conditional_theta(n: int, p: int) -> float:
    """Inverse squared kernel width given `p` conditioning columns and `n` rows."""
    width = 1.2 if n < 200 else 0.7 if n < 1200 else 0.4
    return 1.0 / (width**2 * p)


def standardise(columns: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1 (n - 1); a constant column becomes 0."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0, ddof=1)
    # a constant column leaves rounding noise of its own magnitude behind
    constant = spread <= 1e-14 * np.abs(columns).max(axis=0, initial=0.0)
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, spread))


def centred_gram(columns: np.ndarray, theta: float) -> np.ndarray:
    """``H K H`` of the Gaussian kernel ``exp(-theta |a - b|^2 / 2)`` of the rows, shape (n, n)."""
    gram = np.exp(-0.5 * theta * cdist(columns, columns, "sqeuclidean"))
    mean = gram.mean(axis=0)
    return gram - mean - mean[:, None] + mean.mean()


def residual_operator(gram: np.ndarray, epsilon: float) -> np.ndarray:
    r"""Ridge residuals, :math:`R = \epsilon (K_z + \epsilon I)^{-1}` (eq-dht_cit-residual)."""
    shifted = gram + epsilon * np.eye(len(gram))
    factor, lower = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    inverse, _ = lapack.dpotri(factor, lower=lower)
    return epsilon * (np.tril(inverse) + np.tril(inverse, -1).T)


def thin_factor(columns: np.ndarray, theta: float) -> np.ndarray:
    """Factor V, shape (n, r), with ``V @ V.T`` the centred kernel matrix of the rows to rounding."""
    columns = standardise(columns)
    if not columns.any():
        return np.zeros((len(columns), 0))
    gram = np.exp(-0.5 * theta * cdist(columns, columns, "sqeuclidean"))
    packed, pivots, rank, _ = lapack.dpstrf(gram, tol=REMAINDER, lower=1)
    factor = np.empty((len(gram), rank))
    factor[pivots - 1] = np.tril(packed)[:, :rank]
    return factor - factor.mean(axis=0)


def _unconditional(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    n = len(x)
    width = 0.8 if n < 200 else 0.5 if n < 1200 else 0.3
    x, y = standardise(x), standardise(y)
    if not x.any() or not y.any():
        return 1.0, 0.0
    left, right = (centred_gram(side, side.shape[1] / width**2) for side in (x, y))
    statistic = float(np.vdot(left, right))
    mean = left.trace() * right.trace() / n
    variance = 2 * np.vdot(left, left) * np.vdot(right, right) / n**2
    return _gamma_tail(statistic, mean, variance), statistic


def _gamma_tail(statistic: float, mean: float, variance: float) -> float:
    """P(G > statistic) of the gamma law with this mean and variance (eq-dht_cit-gamma)."""
    if not variance > 0:
        return 1.0
    return float(gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def _inputs(x: Any, z: Any) -> tuple[np.ndarray, np.ndarray]:
    x = _checks.columns("x", x)
    if len(x) < LEAST:
        raise ValueError(f"the test needs at least {LEAST} rows; got {len(x)}")
    z = np.zeros((len(x), 0)) if z is None else _checks.columns("z", z, rows=len(x))
    return x, z
