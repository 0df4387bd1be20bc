"""Checks of arguments: each message says what was wrong, what was expected and what to do."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

#: How far outside [0, 1] a unit parameter may lie (rounding of an optimiser) before it is refused.
TOLERANCE = 1e-6


def floating(name: str, value: Any) -> Tensor:
    """`value`, which must be a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__} (use torch.as_tensor)")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating; got {value.dtype} (call .float() or .double())")
    return value


def unit(u: Any) -> Tensor:
    """A floating tensor with entries in [0, 1] up to `TOLERANCE`, clamped to [0, 1]."""
    u = floating("unit parameters", u)
    if u.numel():
        low, high = u.detach().aminmax()
        if not (low >= -TOLERANCE and high <= 1 + TOLERANCE):  # also False for NaN
            raise ValueError(
                f"unit parameters must lie in [0, 1]; got values from {low.item():g} to {high.item():g}"
            )
    return u.clamp(0, 1)


def finite(name: str, value: Any) -> Tensor:
    """A floating tensor without NaN and infinity."""
    value = floating(name, value)
    if not torch.isfinite(value.detach()).all():
        raise ValueError(f"{name} must be finite; it holds NaN or infinity")
    return value


def batch(name: str, value: Any, size: int | None = None) -> Tensor:
    """A finite floating vector [B]; with `size`, of exactly that length."""
    value = finite(name, value)
    if value.ndim != 1 or (size is not None and len(value) != size):
        wanted = "(batch,)" if size is None else f"({size},)"
        raise ValueError(f"expected {name} of shape {wanted}; got {tuple(value.shape)}")
    return value


def signal(name: str, value: Any, batch_size: int, length: int) -> Tensor:
    """A finite floating signal [B, length]."""
    value = finite(name, value)
    if tuple(value.shape) != (batch_size, length):
        raise ValueError(f"expected {name} of shape ({batch_size}, {length}); got {tuple(value.shape)}")
    return value


def whole(name: str, value: Any, least: int) -> int:
    """A whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """A positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a positive number; got {value!r}")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive and finite; got {value!r}")
    return float(value)


def audio(name: str, value: Any) -> Tensor:
    """Finite floating sounds [B, T] with at least one sample each."""
    value = finite(name, value)
    if value.ndim != 2 or value.shape[1] == 0:
        raise ValueError(f"expected {name} of shape (batch, samples); got {tuple(value.shape)}")
    return value
