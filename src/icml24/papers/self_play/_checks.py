"""Checks of arguments that several modules of this package share."""

from __future__ import annotations

import operator

import torch
from torch import Tensor

__all__ = ["count", "distribution", "floating", "positive", "rewards", "working"]


def floating(x: object, name: str) -> Tensor:
    """Return `x` if it is a floating point tensor, else raise TypeError."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a floating point torch.Tensor; got {type(x).__name__}")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating point tensor; got {x.dtype}: convert it with .double()")
    return x


def distribution(x: Tensor, name: str, size: int) -> Tensor:
    """Return `x` if it is a probability vector of length `size`, else raise ValueError."""
    floating(x, name)
    if x.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},); got {tuple(x.shape)}")
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} must be finite; got NaN or infinite entries")
    if (x < 0).any():
        raise ValueError(f"{name} must be non-negative; its smallest entry is {x.min().item():.3g}")
    total = x.double().sum().item()
    slack = max(1e-5, 64 * torch.finfo(x.dtype).eps)  # averages of many rounded iterates stay within it
    if abs(total - 1) > slack:
        raise ValueError(f"{name} must sum to 1; it sums to {total:.6g}: divide it by its sum")
    return x


def count(value: int, name: str, least: int = 1) -> int:
    """Return `value` as an int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}")
    return number


def positive(value: float, name: str) -> float:
    """Return `value` as a finite float above zero."""
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be positive and finite; got {value}")
    return number


def rewards(x: Tensor, name: str) -> Tensor:
    """Return `x` if it is a finite (trajectories, steps) tensor with at least one step."""
    floating(x, name)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(
            f"{name} must have shape (trajectories, steps) with steps >= 1; got {tuple(x.shape)}"
        )
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} must be finite; got NaN or infinite rewards")
    return x


def working(x: Tensor) -> Tensor:
    """Detached copy of `x` in double precision where the device has it."""
    return x.detach() if x.device.type == "mps" else x.detach().double()
