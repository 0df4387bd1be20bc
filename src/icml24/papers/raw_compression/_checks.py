"""Checks of arguments: every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

__all__ = ["finite", "floating", "mosaic_shape", "number", "positive", "same_shape"]


def number(name: str, value: Any, *, least: float = -math.inf, strict: bool = False) -> float:
    """A finite real number at least (`strict`: above) `least`, as a float."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number; got {type(value).__name__}")
    out = float(value)
    low = out <= least if strict else out < least
    if not math.isfinite(out) or low:
        bound = "" if least == -math.inf else f" and {'above' if strict else 'at least'} {least:g}"
        raise ValueError(f"{name} must be finite{bound}; got {value!r}")
    return out


def positive(name: str, value: Any) -> float:
    """A finite number above zero, as a float."""
    return number(name, value, least=0.0, strict=True)


def floating(name: str, x: Any) -> Tensor:
    """A tensor of a floating dtype."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch tensor; got {type(x).__name__}: use torch.as_tensor")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype; got {x.dtype}: convert it, as in x.double()")
    return x


def finite(name: str, x: Tensor) -> Tensor:
    """A tensor without NaN and infinities."""
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise ValueError(f"{name} must be finite; {bad} of its {x.numel()} values are NaN or infinite")
    return x


def mosaic_shape(name: str, x: Tensor) -> Tensor:
    """A tensor whose last two sizes are even and at least 2."""
    if x.dim() < 2 or x.shape[-1] < 2 or x.shape[-2] < 2 or x.shape[-1] % 2 or x.shape[-2] % 2:
        raise ValueError(
            f"{name} must end in an even height and width (a Bayer cell is 2 x 2); got shape {tuple(x.shape)}: "
            "crop the last row or column"
        )
    return x


def same_shape(first: str, x: Tensor, second: str, y: Tensor) -> None:
    """Two tensors of one shape."""
    if x.shape != y.shape:
        raise ValueError(
            f"{first} and {second} must have one shape; got {tuple(x.shape)} and {tuple(y.shape)}"
        )
