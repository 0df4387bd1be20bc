"""Checks of arguments that several modules of this package share."""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common.checks import floating, positive, whole

__all__ = ["distribution", "floating", "positive", "rewards", "whole", "working"]


def distribution(name: str, x: Tensor, size: int) -> Tensor:
    """Return `x` if it is a probability vector of length `size`, else raise ValueError."""
    floating(name, x)
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


def rewards(name: str, x: Tensor) -> Tensor:
    """Return `x` if it is a finite (trajectories, steps) tensor with at least one step."""
    floating(name, x)
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
