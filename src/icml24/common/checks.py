"""Checks of arguments: every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "WrongType",
    "finite",
    "floating",
    "nonnegative",
    "number",
    "positive",
    "probability",
    "same_shape",
    "whole",
]


class WrongType(TypeError, ValueError):
    """An argument of the wrong kind: a TypeError, which callers that await a ValueError catch as well."""


def floating(name: str, value: Any) -> Tensor:
    """`value`, which must be a tensor of a floating dtype (WrongType otherwise)."""
    if not isinstance(value, Tensor):
        raise WrongType(
            f"{name} must be a floating point torch.Tensor; got {type(value).__name__}: use torch.as_tensor"
        )
    if not value.is_floating_point():
        raise WrongType(
            f"{name} must have a floating point dtype; got {value.dtype}: convert it, as in {name}.double()"
        )
    return value


def finite(name: str, value: Any) -> Tensor:
    """`value`, which must be a floating tensor without NaN and infinity (ValueError otherwise)."""
    good = torch.isfinite(floating(name, value).detach())
    if not bool(good.all()):
        bad = int((~good).sum())
        raise ValueError(f"{name} must be finite; {bad} of its {good.numel()} values are NaN or infinite")
    return value


def same_shape(first: str, x: Tensor, second: str, y: Tensor) -> None:
    """Raise ValueError unless the two tensors have one shape."""
    if x.shape != y.shape:
        raise ValueError(
            f"{first} and {second} must have one shape; got {tuple(x.shape)} and {tuple(y.shape)}"
        )


def number(name: str, value: Any, *, least: float = -math.inf, strict: bool = False) -> float:
    """A finite real number, at least (`strict`: above) `least`, as a float.

    Scalars of NumPy and tensors of one entry count as numbers; strings and booleans do not.
    """
    out = _real(name, value)
    if not math.isfinite(out) or (out <= least if strict else out < least):
        bound = "" if least == -math.inf else f" and {'above' if strict else 'at least'} {least:g}"
        raise ValueError(f"{name} must be finite{bound}; got {value!r}")
    return out


def positive(name: str, value: Any) -> float:
    """A finite number above zero, as a float."""
    out = _real(name, value)
    if not 0 < out < math.inf:
        raise ValueError(f"{name} must be positive and finite; got {value!r}")
    return out


def nonnegative(name: str, value: Any) -> float:
    """A finite number, zero or above, as a float."""
    out = _real(name, value)
    if not 0 <= out < math.inf:
        raise ValueError(f"{name} must be zero or positive, and finite; got {value!r}")
    return out


def probability(name: str, value: Any, *, closed: bool = False) -> float:
    """A number strictly between 0 and 1 (`closed`: 0 and 1 are allowed), as a float."""
    out = _real(name, value)
    inside = 0 <= out <= 1 if closed else 0 < out < 1
    if not inside:  # NaN is not
        raise ValueError(f"{name} must lie in {'[0, 1]' if closed else '(0, 1)'}; got {value!r}")
    return out


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """A whole number of an integer type (Python's, NumPy's, a tensor of one), from `least` to `most`."""
    wanted = f"at least {least}" if most is None else f"from {least} to {most}"
    message = f"{name} must be a whole number (an integer), {wanted}; got {value!r}"
    try:
        if isinstance(value, bool):
            raise TypeError
        out = operator.index(value)
    except TypeError:
        raise WrongType(message) from None
    if out < least or (most is not None and out > most):
        raise ValueError(message)
    return out


def _real(name: str, value: Any) -> float:
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise WrongType(f"{name} must be a number; got {value!r}") from None
