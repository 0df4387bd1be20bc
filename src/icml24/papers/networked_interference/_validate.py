"""Checks of arguments: each message says what was wrong, what was expected and what was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml24.common.checks import number, whole

__all__ = [
    "arm",
    "binary",
    "knots",
    "level",
    "number",
    "positive",
    "share",
    "single",
    "tensor",
    "vector",
    "whole",
]


def tensor(name: str, value: Any, like: Tensor | None = None) -> Tensor:
    """`value` as a floating tensor; integers and booleans take the dtype of `like`, or the default."""
    if isinstance(value, np.ndarray) and (min(value.strides, default=0) < 0 or not value.flags.writeable):
        value = (
            value.copy()
        )  # torch can share neither memory that runs backwards nor memory that is read-only
    try:
        out = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be numbers in a tensor or an array; got {type(value).__name__}"
        ) from error
    if out.is_complex():
        raise ValueError(f"{name} must be real; got {out.dtype}")
    if not out.is_floating_point():
        out = out.to(
            like.dtype if like is not None and like.is_floating_point() else torch.get_default_dtype()
        )
    if not bool(torch.isfinite(out).all()):
        raise ValueError(f"{name} must be finite; it holds NaN or infinite values")
    return out


def vector(name: str, value: Any, size: int | None = None, like: Tensor | None = None) -> Tensor:
    """A finite floating vector, of `size` entries when that is given, with at least one entry."""
    out = tensor(name, value, like)
    if out.ndim != 1 or out.numel() == 0:
        raise ValueError(f"{name} must be a non-empty vector, shape (n,); got shape {tuple(out.shape)}")
    if size is not None and len(out) != size:
        raise ValueError(f"{name} must have one entry a unit, {size}; got {len(out)}")
    return out


def binary(name: str, value: Any, size: int | None = None, like: Tensor | None = None) -> Tensor:
    """A vector of zeros and ones."""
    out = vector(name, value, size, like)
    if not bool(((out == 0) | (out == 1)).all()):
        raise ValueError(f"{name} must be binary, 0 or 1 for every unit; got values such as {_odd(out)}")
    return out


def share(name: str, value: Tensor) -> Tensor:
    """A tensor whose entries lie in [0, 1]."""
    if not bool(((value >= 0) & (value <= 1)).all()):
        raise ValueError(
            f"{name} must lie in [0, 1], a share of treated neighbours; "
            f"got values from {float(value.detach().min()):g} to {float(value.detach().max()):g}"
        )
    return value


def positive(name: str, value: Tensor) -> Tensor:
    """A tensor of positive entries."""
    if not bool((value > 0).all()):
        raise ValueError(
            f"{name} must be positive everywhere; the smallest value is {float(value.detach().min()):g}"
        )
    return value


def arm(name: str, value: Any) -> float:
    """A treatment: 0 or 1, or a boolean."""
    out = number(name, int(value) if isinstance(value, bool) else value)
    if out not in (0.0, 1.0):
        raise ValueError(f"{name} must be binary, 0 or 1; got {value!r}")
    return out


def level(name: str, value: Any) -> float:
    """An exposure: a number in [0, 1]."""
    out = number(name, value)
    if not 0 <= out <= 1:
        raise ValueError(f"{name} must lie in [0, 1], a share of treated neighbours; got {value!r}")
    return out


def single(name: str, value: Any, like: Tensor) -> Tensor:
    """A finite number as a tensor of no dimensions, with the dtype of `like`; gradients are kept."""
    if not isinstance(value, Tensor):
        return like.new_tensor(number(name, value))
    out = tensor(name, value, like)
    if out.ndim:
        raise ValueError(f"{name} must be one number; got shape {tuple(out.shape)}")
    return out.to(like)


def knots(values: Sequence[float] | Tensor) -> list[float]:
    """Knots of a spline, each strictly between 0 and 1."""
    try:
        out = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ValueError(f"knots must be a sequence of numbers in (0, 1); got {values!r}") from error
    if not all(0 < value < 1 for value in out):
        raise ValueError(f"knots must lie strictly between 0 and 1; got {out}")
    return out


def _odd(values: Tensor) -> list[float]:
    return values[(values != 0) & (values != 1)][:3].tolist()
