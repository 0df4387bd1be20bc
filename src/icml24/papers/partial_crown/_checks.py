"""Checks of arguments that only this paper needs; the shared ones are in `icml24.common.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml24.common.checks import WrongType, finite

__all__ = ["as_boxes", "as_double", "choice", "coordinates", "interval"]


def as_double(name: str, value: Any) -> Tensor:
    """`value` (tensor, array, list or number) as a detached, finite float64 tensor."""
    try:
        out = value.detach() if isinstance(value, Tensor) else torch.from_numpy(_array(value))
    except (TypeError, ValueError):
        raise WrongType(f"{name} must hold real numbers; got {type(value).__name__}") from None
    if out.dtype == torch.bool or out.is_complex():
        raise WrongType(f"{name} must hold real numbers; got dtype {out.dtype}")
    return finite(name, out.to(torch.float64))


def _array(value: Any) -> np.ndarray:
    # a copy in C order: tensors take neither negative strides nor read-only memory
    return np.array(value, np.float64, order="C")


def interval(lower: Any, upper: Any, names: tuple[str, str] = ("lower", "upper")) -> tuple[Tensor, Tensor]:
    """Two float64 tensors of one (broadcast) shape with lower <= upper everywhere."""
    low, high = as_double(names[0], lower), as_double(names[1], upper)
    try:
        low, high = torch.broadcast_tensors(low, high)
    except RuntimeError:
        raise ValueError(
            f"{names[0]} and {names[1]} must have one shape; got {tuple(low.shape)} and {tuple(high.shape)}"
        ) from None
    wrong = low > high
    if bool(wrong.any()):
        raise ValueError(
            f"{names[0]} exceeds {names[1]} in {int(wrong.sum())} of {wrong.numel()} intervals; "
            "give the smaller end first"
        )
    return low, high


def as_boxes(boxes: Any, dimension: int) -> Tensor:
    """Boxes (B, 2, d) in float64, lower corner first; the messages name the shapes."""
    out = as_double("boxes", boxes)
    if out.ndim != 3 or out.shape[1] != 2 or out.shape[2] != dimension:
        raise ValueError(
            f"boxes must have shape (B, 2, {dimension}), lower corner then upper corner, for a network of "
            f"{dimension} inputs; got {tuple(out.shape)}"
        )
    wrong = (out[:, 0] > out[:, 1]).any(dim=1)
    if bool(wrong.any()):
        raise ValueError(
            f"box lower corner exceeds upper corner in {int(wrong.sum())} of {len(out)} boxes; "
            "boxes[:, 0] is the lower corner"
        )
    return out


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """`value`, which must be one of `options`."""
    if value not in options:
        raise ValueError(f"unknown {name} {value!r}; expected one of {list(options)}")
    return value


def coordinates(name: str, value: Sequence[int], dimension: int) -> tuple[int, ...]:
    """Distinct coordinate indices in 0 .. dimension - 1."""
    out = tuple(int(i) for i in value)
    if len(set(out)) != len(out) or any(not 0 <= i < dimension for i in out):
        raise ValueError(f"{name} must list distinct coordinates in 0..{dimension - 1}; got {value!r}")
    return out
