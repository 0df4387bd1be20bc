r"""The two one-dimensional families of the method: spline perturbations and a density on a grid.

`truncated_power_basis` spans the splines in which the targeting step looks for its
perturbation (eq-networked_interference-basis); `grid_density` turns logits into a density of
the exposure, linear between grid points (eq-networked_interference-density).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import _validate as check

__all__ = ["default_knots", "grid_density", "grid_integral", "truncated_power_basis"]


def truncated_power_basis(z: Any, knots: Sequence[float], degree: int = 2) -> Tensor:
    r"""Truncated powers, a basis of the splines of a degree with given knots.

    .. math:: B(z) = \bigl(1, z, \dots, z^p, (z - \kappa_1)_+^p, \dots, (z - \kappa_m)_+^p\bigr)

    Parameters
    ----------
    z : Tensor or array_like, shape (n,) (or any shape)
        Exposures in [0, 1].
    knots : sequence of float
        In (0, 1); may be empty.
    degree : int, default 2
        `p`, at least 1.

    Returns
    -------
    Tensor, shape (n, degree + 1 + len(knots))
        One row a unit (the basis is a new last axis). Dtype of `z` when floating, else the default.

    Raises
    ------
    ValueError
        `z` or a knot out of its range, or a degree below 1.

    Notes
    -----
    Source: eq-networked_interference-basis. Continuous with `degree` - 1 derivatives.

    Examples
    --------
    >>> truncated_power_basis(torch.tensor([0.0, 0.75]), [0.5])
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [1.0000, 0.7500, 0.5625, 0.0625]])
    """
    z = check.share("z", check.tensor("z", z))
    power = check.whole("degree", degree, 1)
    kappa = torch.as_tensor(check.knots(knots), dtype=z.dtype, device=z.device)
    plain = [z**k for k in range(power + 1)]
    return torch.cat([torch.stack(plain, dim=-1), (z[..., None] - kappa).clamp(min=0) ** power], dim=-1)


def default_knots(spacing: float) -> list[float]:
    """Equally spaced knots ``spacing, 2 spacing, ...`` below 1.

    Parameters
    ----------
    spacing : float
        Positive; at 1 or more there is no knot.

    Returns
    -------
    list of float
        ``numpy.arange(spacing, 1, spacing)``, without an end point at 1 that rounding may add.

    Raises
    ------
    ValueError
        `spacing` is not a positive number.
    """
    step = check.number("spacing", spacing)
    if step <= 0:
        raise ValueError(f"spacing must be positive; got {spacing!r}")
    return [float(knot) for knot in np.arange(step, 1, step) if knot < 1 - 1e-12]


def grid_density(logits: Any, z: Any) -> Tensor:
    r"""Softmax mass on a grid of exposures, linear between neighbouring grid points.

    With :math:`p = \mathrm{softmax}(\text{logits})` at :math:`0, 1/M, \dots, 1` and :math:`z`
    between :math:`L/M` and :math:`U/M`: :math:`p_L + (zM - L)(p_U - p_L)`.

    Parameters
    ----------
    logits : Tensor, shape (n, M + 1), floating
        One row a unit, ``M >= 1``.
    z : Tensor or array_like, shape (n,)
        Exposures in [0, 1].

    Returns
    -------
    Tensor, shape (n,)
        A probability mass, about 1/M times a density (`grid_integral` is the factor); dtype of `logits`.

    Raises
    ------
    ValueError
        `z` outside [0, 1], or shapes that do not fit.

    Notes
    -----
    Source: eq-networked_interference-density.

    Examples
    --------
    >>> grid_density(torch.zeros(2, 5), torch.tensor([0.0, 0.3]))
    tensor([0.2000, 0.2000])
    """
    logits = check.tensor("logits", logits)
    if logits.ndim != 2 or logits.shape[1] < 2 or logits.shape[0] == 0:
        raise ValueError(f"logits must have shape (n, M + 1) with n, M >= 1; got {tuple(logits.shape)}")
    z = check.share("z", check.vector("z", z, len(logits), logits)).to(logits)
    return GridPlace.of(z, logits.shape[1] - 1).interpolate(torch.softmax(logits, dim=1))


def grid_integral(mass: Tensor) -> Tensor:
    r"""Integral over [0, 1] of the piecewise linear function through (k/M, p_k).

    Parameters
    ----------
    mass : Tensor, shape (..., M + 1)
        Values at the grid points.

    Returns
    -------
    Tensor, shape (...)
        :math:`\tfrac1M \bigl(\sum_k p_k - \tfrac12 (p_0 + p_M)\bigr)`; the trapezoid rule is exact here.
    """
    return (mass.sum(dim=-1) - (mass[..., 0] + mass[..., -1]) / 2) / (mass.shape[-1] - 1)


class GridPlace(NamedTuple):
    """Where exposures lie on the grid: neighbouring points below and above, and the way between."""

    lower: Tensor
    upper: Tensor
    way: Tensor

    @classmethod
    def of(cls, z: Tensor, steps: int) -> GridPlace:
        """Place exposures, shape (n,), on ``0, 1/steps, ..., 1``; 0 lies on the first cell's left end."""
        upper = torch.ceil(z * steps)
        lower = (upper - 1).clamp(min=0)
        return cls(lower.long()[:, None], upper.long()[:, None], 1 - (upper - z * steps))

    def interpolate(self, mass: Tensor) -> Tensor:
        """Value of each row of `mass`, shape (n, steps + 1), at its place."""
        low = mass.gather(1, self.lower)[:, 0]
        return low + self.way * (mass.gather(1, self.upper)[:, 0] - low)
