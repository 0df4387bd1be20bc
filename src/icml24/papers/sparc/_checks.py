"""What every public function asks of its tensors, in one voice."""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common.checks import floating

__all__ = ["check_mask", "check_pair", "check_scale", "check_sequences", "shape"]


def shape(x: Tensor) -> tuple[int, ...]:
    """Shape as a plain tuple, for messages."""
    return tuple(x.shape)


def check_floating(**tensors: Tensor) -> None:
    """All are floating tensors of one dtype."""
    for name, x in tensors.items():
        floating(name, x)
    if len({x.dtype for x in tensors.values()}) > 1:
        found = ", ".join(f"{name} {x.dtype}" for name, x in tensors.items())
        raise TypeError(f"all inputs must have one dtype; got {found}")


def check_sequences(first: str, x: Tensor, second: str, y: Tensor) -> None:
    """Two floating stacks [B, n, d], [B, m, d] with equal batch and width, nothing empty."""
    check_floating(**{first: x, second: y})
    if x.ndim != 3 or y.ndim != 3:
        raise ValueError(
            f"{first} and {second} need three axes (batch, items, width); got {shape(x)} and {shape(y)}"
        )
    if x.shape[0] != y.shape[0] or x.shape[2] != y.shape[2]:
        raise ValueError(f"{first} and {second} must agree in batch and width; got {shape(x)} and {shape(y)}")
    if 0 in x.shape or 0 in y.shape:
        raise ValueError(f"{first} and {second} must not be empty; got {shape(x)} and {shape(y)}")


def check_pair(first: str, x: Tensor, second: str, y: Tensor) -> None:
    """Two floating matrices [B, d] of one shape, not empty."""
    check_floating(**{first: x, second: y})
    if x.ndim != 2 or x.shape != y.shape or 0 in x.shape:
        raise ValueError(
            f"{first} and {second} must have one shape (batch, width), not empty; got {shape(x)} and {shape(y)}"
        )


def check_mask(mask: Tensor, tokens: Tensor) -> None:
    """A boolean mask of the tokens' shape with a real token in every row."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be a boolean tensor, true at real tokens; got {getattr(mask, 'dtype', type(mask))}"
        )
    if mask.shape != tokens.shape[:2]:
        raise ValueError(
            f"mask must have the first two axes of tokens, {shape(tokens)[:2]}; got {shape(mask)}"
        )
    empty = ~mask.any(1)
    if empty.any():
        rows = empty.nonzero().flatten().tolist()
        raise ValueError(f"captions without any real token: rows {rows}; drop those pairs from the batch")


def check_scale(inverse_temperature: float | Tensor) -> None:
    """A positive number or 0-d tensor."""
    if isinstance(inverse_temperature, Tensor) and inverse_temperature.ndim:
        raise ValueError(
            f"inverse_temperature is one number (a float or a 0-d tensor); got shape {shape(inverse_temperature)}"
        )
    value = inverse_temperature.item() if isinstance(inverse_temperature, Tensor) else inverse_temperature
    if value <= 0:
        raise ValueError(f"inverse_temperature must be positive; got {value} (pass exp of the learned scale)")
