"""Checks of arguments: each message names the argument, what was expected and what was given."""

from __future__ import annotations

from typing import Any

import numpy as np

from icml24.common.checks import positive, probability, whole

__all__ = [
    "acyclic",
    "adjacency",
    "array",
    "columns",
    "positive",
    "probability",
    "pvalue_matrix",
    "random_generator",
    "samples",
    "whole",
]


def array(name: str, value: Any) -> np.ndarray:
    """`value` as a finite float64 array; tensors, lists and integer arrays are converted."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    try:
        out = np.asarray(value, dtype=np.float64, order="C")  # one layout, one rounding
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of real numbers; {error}") from None
    if not np.isfinite(out).all():
        raise ValueError(f"{name} must be finite; drop or impute missing and infinite values first")
    return out


def columns(name: str, value: Any, *, rows: int | None = None) -> np.ndarray:
    """`value` as a finite float64 matrix with `rows` rows; one dimension reads as one column."""
    out = array(name, value)
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim != 2:
        raise ValueError(f"{name} must have shape (n,) or (n, k); got {out.shape}")
    if rows is not None and len(out) != rows:
        raise ValueError(f"{name} must have as many rows as x, {rows}; got {len(out)}")
    return out


def samples(name: str, value: Any, *, least: int = 2) -> np.ndarray:
    """`value` as a finite float64 matrix (n, d), n at least `least`, d at least 1."""
    out = array(name, value)
    if out.ndim != 2 or out.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, d) with d >= 1; got {out.shape}")
    if len(out) < least:
        raise ValueError(f"{name} needs at least {least} rows (samples); got {len(out)}")
    return out


def adjacency(name: str, value: Any, *, size: int | None = None, loops: bool = False) -> np.ndarray:
    """`value` as a square 0/1 integer array; row = cause. The diagonal must be zero unless `loops`."""
    out = array(name, value)
    if out.ndim != 2 or out.shape[0] != out.shape[1]:
        raise ValueError(f"{name} must be a square adjacency, shape (d, d); got {out.shape}")
    if size is not None and len(out) != size:
        raise ValueError(f"{name} must have shape ({size}, {size}); got {out.shape}")
    if not np.isin(out, (0.0, 1.0)).all():
        raise ValueError(f"{name} must hold 0 and 1 only (row = cause); weights are not part of a graph")
    if not loops and out.diagonal().any():
        raise ValueError(f"{name} must be acyclic, with a zero diagonal; a node cannot cause itself")
    return out.astype(np.int64)


def acyclic(name: str, graph: np.ndarray) -> np.ndarray:
    """`graph` unchanged if it has no directed cycle (sources are peeled off until none is left)."""
    left = np.arange(len(graph))
    while len(left):
        sources = ~graph[np.ix_(left, left)].any(axis=0)
        if not sources.any():
            raise ValueError(f"{name} must be acyclic; nodes {left.tolist()} hold a directed cycle")
        left = left[~sources]
    return graph


def pvalue_matrix(value: Any) -> np.ndarray:
    """`value` as a square float64 copy with entries in [0, 1]."""
    out = array("pvalues", value).copy()
    if out.ndim != 2 or out.shape[0] != out.shape[1]:
        raise ValueError(f"pvalues must be a square matrix, shape (d, d); got {out.shape}")
    if ((out < 0) | (out > 1)).any():
        raise ValueError("pvalues must lie in [0, 1]")
    return out


def random_generator(value: Any) -> np.random.Generator:
    """`value` if it is a NumPy generator."""
    if not isinstance(value, np.random.Generator):
        raise TypeError(f"generator must be a numpy.random.Generator; got {type(value).__name__}")
    return value
