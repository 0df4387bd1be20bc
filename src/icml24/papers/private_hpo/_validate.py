"""Checks of arguments: each message names the argument, the range expected and what was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from icml24.common.checks import nonnegative, number, positive, probability

__all__ = [
    "curve",
    "grid",
    "nonnegative",
    "number",
    "orders",
    "positive",
    "probability",
    "sample_rate",
    "step_grid",
    "steps",
]


def sample_rate(value: Any) -> float:
    """Sampling probability of a record, in (0, 1]."""
    rate = number("sample_rate", value)
    if not 0 < rate <= 1:
        raise ValueError(f"sample_rate must lie in (0, 1]; got {value!r}")
    return rate


def steps(value: Any, name: str = "steps") -> int:
    """A number of steps: a whole number, at least 1."""
    count = number(name, value)
    if not (count >= 1 and count == int(count)):
        raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
    return int(count)


def orders(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Rényi orders as a non-empty float64 vector, each above 1 and finite."""
    try:
        out = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"orders must be numbers above 1; got {values!r}") from error
    if out.ndim != 1 or out.size == 0:
        raise ValueError(f"orders must be a non-empty list of numbers; got an array of shape {out.shape}")
    if not (np.isfinite(out).all() and (out > 1).all()):
        raise ValueError(f"orders must all be above 1 and finite; got {out[~(np.isfinite(out) & (out > 1))]}")
    return out


def curve(name: str, values: Sequence[float] | np.ndarray, size: int) -> np.ndarray:
    """A Rényi curve: one value an order, zero or positive; infinity is allowed."""
    try:
        out = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers; got {values!r}") from error
    if out.shape != (size,):
        raise ValueError(f"{name} must hold one value for each of the {size} orders; got shape {out.shape}")
    if np.isnan(out).any() or (out < 0).any():
        raise ValueError(f"{name} must be zero or positive and not NaN; got {out}")
    return out


def grid(name: str, values: Iterable[Any]) -> tuple[float, ...]:
    """A grid of positive finite numbers, as a non-empty tuple."""
    out = tuple(positive(name, value) for value in values)
    if not out:
        raise ValueError(f"{name} must hold at least one value; got none")
    return out


def step_grid(values: Iterable[Any]) -> tuple[int, ...]:
    """A grid of step counts, as a non-empty tuple of integers."""
    out = tuple(steps(value) for value in values)
    if not out:
        raise ValueError("steps must hold at least one value; got none")
    return out
