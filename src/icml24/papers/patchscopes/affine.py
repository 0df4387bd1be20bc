r"""Affine maps between the states of two layers or two models (eq-patchscopes-affine)."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["AffineMap", "fit_affine", "r_squared"]


class AffineMap(NamedTuple):
    r"""The map :math:`h \mapsto h W + b` (rows are states).

    Parameters
    ----------
    weight : Tensor, shape (d_in, d_out)
    bias : Tensor, shape (d_out,)
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        """States (..., d_in) to (..., d_out)."""
        if h.shape[-1] != self.weight.shape[0]:
            raise ValueError(
                f"this map takes states of width {self.weight.shape[0]}; got shape {tuple(h.shape)}"
            )
        return h @ self.weight + self.bias

    def then(self, following: AffineMap) -> AffineMap:
        """This map, then the `following` one: again affine (eq-patchscopes-composition)."""
        bias = following(self.bias)
        return AffineMap(self.weight @ following.weight, bias)


def fit_affine(X: Tensor, Y: Tensor, *, ridge: float = 0.0) -> AffineMap:
    r"""Least-squares affine map from rows of `X` to rows of `Y`.

    .. math:: \min_{W, b}\; \lVert XW + 1b^\top - Y \rVert_F^2 + \lambda \lVert W \rVert_F^2

    Parameters
    ----------
    X : Tensor or array, shape (N, d_in), floating
    Y : Tensor or array, shape (N, d_out), floating
    ridge : float, default 0.0
        :math:`\lambda`, in squared units of `X` (it is added to the diagonal of the centred Gram
        matrix); the bias is not penalised. At 0 the minimum-norm solution is taken.

    Returns
    -------
    AffineMap
        In the dtype of the inputs; computed in float64.

    Raises
    ------
    ValueError
        Different numbers of rows, fewer than one, wrong shapes, values that are not finite, a
        negative ridge.

    Warns
    -----
    UserWarning
        ``ridge = 0`` and N <= d_in + 1: the map interpolates its data and predicts nothing.
    """
    X, Y = torch.as_tensor(X), torch.as_tensor(Y)
    for name, value in (("X", X), ("Y", Y)):
        if value.dim() != 2 or not value.numel():
            raise ValueError(f"{name} must have shape (N, d), N >= 1; got {tuple(value.shape)}")
        if not value.is_floating_point():
            raise TypeError(f"{name} must be floating; got {value.dtype}")
        if not value.isfinite().all():
            raise ValueError(f"{name} has values that are not finite")
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same rows; got {len(X)} and {len(Y)}")
    if not 0 <= ridge < float("inf"):
        raise ValueError(f"ridge must be finite and at least 0; got {ridge}")
    rows, width = X.shape
    if ridge == 0 and rows <= width + 1:
        warnings.warn(
            f"interpolating fit: {rows} rows for {width} + 1 unknowns a column; use more rows or ridge > 0",
            UserWarning,
            stacklevel=2,
        )
    x, y = X.detach().double(), Y.detach().double()
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    if ridge == 0:
        weight = torch.linalg.lstsq(x, y, driver="gelsd").solution
    else:
        gram = x.T @ x
        gram.diagonal().add_(ridge)
        weight = torch.cholesky_solve(x.T @ y, torch.linalg.cholesky(gram))
    dtype = torch.promote_types(X.dtype, Y.dtype)
    return AffineMap(weight.to(dtype), (mean_y - mean_x @ weight).to(dtype))


def relative_ridge(X: Tensor, share: float = 1e-3) -> float:
    """`share` times the mean diagonal entry of the centred Gram matrix of `X`: a ridge without units."""
    x = X.detach().double()
    return share * float((x - x.mean(0)).square().sum()) / X.shape[1]


def r_squared(mapping: AffineMap, X: Tensor, Y: Tensor) -> float:
    """Share of the variance of `Y` that the map explains on these rows (all columns pooled)."""
    residual = (mapping(X) - Y).double().square().sum()
    return 1 - float(residual / (Y - Y.mean(0)).double().square().sum())
