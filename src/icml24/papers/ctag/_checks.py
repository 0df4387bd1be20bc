"""Checks of arguments: each message says what was wrong, what was expected and what to do."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from icml24.common.checks import finite, floating, positive, whole

__all__ = ["TOLERANCE", "audio", "batch", "finite", "floating", "positive", "signal", "unit", "whole"]

#: How far outside [0, 1] a unit parameter may lie (rounding of an optimiser) before it is refused.
TOLERANCE = 1e-6


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


def audio(name: str, value: Any) -> Tensor:
    """Finite floating sounds [B, T] with at least one sample each."""
    value = finite(name, value)
    if value.ndim != 2 or value.shape[1] == 0:
        raise ValueError(f"expected {name} of shape (batch, samples); got {tuple(value.shape)}")
    return value
