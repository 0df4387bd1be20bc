r"""The error of a quantised layer on its inputs, through one matrix.

With inputs as rows of `X`, `n` of them, and :math:`D = \hat W - W`,

.. math:: \tfrac1n \lVert X W^\top - X \hat W^\top \rVert_F^2 = \mathrm{tr}(D\,G\,D^\top),
          \qquad G = X^\top X / n ,

so only `G` is kept, however many inputs are seen (eq-aqlm-objective).
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate

__all__ = ["GramAccumulator", "activation_gram", "layer_mse"]


def activation_gram(x: Tensor) -> Tensor:
    r"""Mean outer product of inputs with themselves, :math:`X^\top X / n`.

    Parameters
    ----------
    x : Tensor, shape (..., d), floating
        One input a row; all leading dimensions count as rows.

    Returns
    -------
    Tensor, shape (d, d)
        Symmetric, dtype of `x`.

    Raises
    ------
    ValueError
        No rows, a scalar, or values that are not finite.
    """
    _validate.floating("x", x)
    if x.dim() == 0:
        raise ValueError("x must have at least one dimension, the features; got a scalar")
    rows = x.reshape(-1, x.shape[-1])
    return rows.T @ rows / len(rows)


class GramAccumulator:
    r"""Running mean of outer products, :math:`G \leftarrow \frac{n}{n+k}G + \frac1{n+k}X_k^\top X_k`.

    Parameters
    ----------
    dim : int
        Number of features.
    dtype : torch.dtype, default torch.float64
        Of the sum; inputs are converted.

    Attributes
    ----------
    value : Tensor, shape (dim, dim)
    count : int
        Rows seen so far.

    Raises
    ------
    ValueError
        ``dim < 1``; in `update`, another number of features or values that are not finite.
    """

    def __init__(self, dim: int, dtype: torch.dtype = torch.float64) -> None:
        checks.whole("dim", dim, 1)
        self.count = 0
        self.value = torch.zeros(dim, dim, dtype=dtype)

    def update(self, x: Tensor) -> None:
        """Take in the rows of `x`, shape (..., dim)."""
        _validate.floating("x", x)
        if x.shape[-1:] != self.value.shape[:1]:
            raise ValueError(f"x must have {len(self.value)} features; got shape {tuple(x.shape)}")
        rows = x.detach().reshape(-1, x.shape[-1]).to(self.value.dtype)
        if self.value.device != rows.device:
            self.value = self.value.to(rows.device)
        total = self.count + len(rows)
        self.value = self.value * (self.count / total) + rows.T @ (rows / total)
        self.count = total


def layer_mse(weight: Tensor, weight_hat: Tensor, gram: Tensor) -> Tensor:
    r"""Mean squared error of an output unit, :math:`\mathrm{tr}(D G D^\top) / d_{out}`.

    Parameters
    ----------
    weight, weight_hat : Tensor, shape (out_features, in_features)
    gram : Tensor, shape (in_features, in_features)
        As `activation_gram`; a float64 one keeps the sum in float64.

    Returns
    -------
    Tensor, scalar, dtype of `weight`
        Differentiable in both weights.

    Raises
    ------
    ValueError
        Shapes that do not fit, or values that are not finite.
    """
    _validate.layer(weight, gram)
    _validate.floating("weight_hat", weight_hat, 2)
    if weight.shape != weight_hat.shape:
        raise ValueError(
            f"weight and weight_hat differ in shape: {tuple(weight.shape)} and {tuple(weight_hat.shape)}"
        )
    difference = (weight_hat - weight).to(torch.promote_types(weight.dtype, gram.dtype))
    return ((difference @ gram.to(difference.dtype)) * difference).sum().div(len(weight)).to(weight.dtype)
