r"""The objective: bits and squared error, traded at a price.

Section "The codec, piece by piece": eq-raw_compression-objective.
"""

from __future__ import annotations

from numbers import Real

from torch import Tensor

from ._checks import floating, number
from .codec import CodecOutput

__all__ = ["lagrangians", "rate_distortion_loss"]


def rate_distortion_loss(output: CodecOutput, target: Tensor, lam: Tensor | float) -> Tensor:
    r"""Bits plus weighted squared error, per sample.

    .. math:: L = \frac1B \sum_b \frac{R_b + \lambda_b \lVert \hat x_b - t_b \rVert^2}{n}

    Parameters
    ----------
    output : CodecOutput
    target : Tensor, shape (B, 4, h, w)
        Recorrupted, clean or noisy planes; that choice is the whole difference between the methods.
    lam : Tensor, shape (B,) or scalar, or float
        Bits per unit of squared error (unit: noise variance), zero or positive.

    Returns
    -------
    Tensor, scalar
        Bits per sample; ``n = 4 h w`` samples a picture.

    Raises
    ------
    TypeError
        `target` or `lam` is not a floating tensor.
    ValueError
        Shapes do not fit, or a negative `lam`.

    Notes
    -----
    Source: eq-raw_compression-objective.
    """
    return lagrangians(output, target, lam).mean()


def lagrangians(output: CodecOutput, target: Tensor, lam: Tensor | float) -> Tensor:
    """The terms of `rate_distortion_loss`, one a picture, shape (B,)."""
    floating("target", target)
    lam = target.new_tensor(number("lam", lam)) if isinstance(lam, Real) else floating("lam", lam)
    if target.shape != output.x_hat.shape:
        raise ValueError(f"target must have shape {tuple(output.x_hat.shape)}; got {tuple(target.shape)}")
    if lam.dim() and lam.shape != output.bits.shape:
        raise ValueError(f"lam must be a scalar or have shape ({len(target)},); got {tuple(lam.shape)}")
    if not bool((lam >= 0).all()):
        raise ValueError("lam must be zero or positive (and not NaN)")
    error = (output.x_hat - target).square().sum(dim=(1, 2, 3))
    return (output.bits + lam * error) / target[0].numel()
