"""Checks of arguments: each message names the argument, what was expected and what was given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icml24.common import checks

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def floating(name: str, value: Any, dims: int | None = None) -> Tensor:
    """A finite tensor of a floating type, with `dims` dimensions and no empty one."""
    checks.floating(name, value)
    if dims is not None and value.dim() != dims:
        raise ValueError(f"{name} must have {dims} dimensions; got shape {tuple(value.shape)}")
    if value.numel() == 0:
        raise ValueError(f"{name} is empty: shape {tuple(value.shape)}")
    return checks.finite(name, value)


def layer(weight: Any, gram: Any) -> tuple[Tensor, Tensor]:
    """A weight (out, in) and the Gram matrix (in, in) of its inputs."""
    floating("weight", weight, 2)
    floating("gram", gram, 2)
    width = weight.shape[1]
    if tuple(gram.shape) != (width, width):
        raise ValueError(
            f"gram must be (in_features, in_features) = {(width, width)} for a weight of shape "
            f"{tuple(weight.shape)}; got {tuple(gram.shape)}"
        )
    return weight, gram


def code_words(codes: Any, codebooks: Any, scales: Any = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Codes [O, I, M], codebooks [M, K, g_out, g_in] and scales [O, 1, 1, 1] that fit together."""
    floating("codebooks", codebooks, 4)
    if not isinstance(codes, Tensor) or codes.dtype not in INTEGERS:
        kind = codes.dtype if isinstance(codes, Tensor) else type(codes).__name__
        raise TypeError(f"codes must be a tensor of integers; got {kind}")
    if codes.dim() != 3 or codes.numel() == 0 or codes.shape[2] != codebooks.shape[0]:
        raise ValueError(
            f"codes must be [out groups, in groups, {codebooks.shape[0]}] for codebooks of shape "
            f"{tuple(codebooks.shape)}; got {tuple(codes.shape)}"
        )
    words = codebooks.shape[1]
    bounds = torch.iinfo(codes.dtype)
    if bounds.min < 0 or bounds.max >= words:
        low, high = (int(end) for end in codes.aminmax())
        if low < 0 or high >= words:
            raise ValueError(f"codes must lie in [0, {words}); they range from {low} to {high}")
    if scales is not None:
        floating("scales", scales)
        if tuple(scales.shape) != (codes.shape[0], 1, 1, 1):
            raise ValueError(
                f"scales must be {(codes.shape[0], 1, 1, 1)} for codes of shape {tuple(codes.shape)}; "
                f"got {tuple(scales.shape)}"
            )
    return codes, codebooks, scales


def problem(weight: Any, codes: Any, codebooks: Any, scales: Any, gram: Any = None) -> None:
    """A whole layer: weight, its additive code and (if given) the Gram matrix."""
    if gram is None:
        floating("weight", weight, 2)
    else:
        layer(weight, gram)
    if scales is None:
        raise TypeError("scales must be a tensor [out groups, 1, 1, 1]; got None")
    code_words(codes, codebooks, scales)
    fits = (codes.shape[0] * codebooks.shape[2], codes.shape[1] * codebooks.shape[3])
    if tuple(weight.shape) != fits:
        raise ValueError(
            f"weight must be {fits} for codes {tuple(codes.shape)} and codebooks {tuple(codebooks.shape)}; "
            f"got {tuple(weight.shape)}"
        )


def divides(name: str, group: int, features: int, what: str) -> None:
    """A group size that divides a number of features."""
    if features % group:
        raise ValueError(f"{name} = {group} does not divide {what} = {features}; choose a divisor")


def inputs(x: Any, width: int) -> None:
    """Inputs (..., width) of a layer, finite."""
    floating("x", x)
    if x.dim() == 0 or x.shape[-1] != width:
        raise ValueError(
            f"x must have {width} features (in groups times in_group_size); got {tuple(x.shape)}"
        )
