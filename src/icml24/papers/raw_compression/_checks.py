"""Checks of arguments: every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

from torch import Tensor

from icml24.common.checks import finite, floating, number, positive, same_shape, whole

__all__ = ["finite", "floating", "mosaic_shape", "number", "positive", "same_shape", "whole"]


def mosaic_shape(name: str, x: Tensor) -> Tensor:
    """A tensor whose last two sizes are even and at least 2."""
    if x.dim() < 2 or x.shape[-1] < 2 or x.shape[-2] < 2 or x.shape[-1] % 2 or x.shape[-2] % 2:
        raise ValueError(
            f"{name} must end in an even height and width (a Bayer cell is 2 x 2); got shape {tuple(x.shape)}: "
            "crop the last row or column"
        )
    return x
