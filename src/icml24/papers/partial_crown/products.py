r"""Lines around a product on a rectangle (McCormick), and the same at one half: the centred product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._checks import as_double, interval

__all__ = ["mccormick", "product_range", "square_range"]

Plane = tuple[Tensor, Tensor, Tensor]


def mccormick(
    x_lo: Any, x_hi: Any, y_lo: Any, y_hi: Any, *, alpha_lower: Any = 0.5, alpha_upper: Any = 0.5
) -> tuple[Plane, Plane]:
    r"""Planes below and above x y on rectangles.

    .. math::
       \begin{aligned}
       x y &\ge \alpha (\underline y x + \underline x y - \underline x \underline y)
       + (1 - \alpha)(\overline y x + \overline x y - \overline x \overline y) \\
       x y &\le \alpha (\underline y x + \overline x y - \overline x \underline y)
       + (1 - \alpha)(\overline y x + \underline x y - \underline x \overline y)
       \end{aligned}

    Parameters
    ----------
    x_lo, x_hi, y_lo, y_hi : array_like, one shape
        Corners, lower <= upper.
    alpha_lower, alpha_upper : float or array_like, default 0.5
        Weights in [0, 1] of the first of the two planes on either side.

    Returns
    -------
    (cx, cy, c), (cx, cy, c) : tuples of Tensor, float64
        Lower and upper plane ``cx * x + cy * y + c``.

    Raises
    ------
    ValueError
        A lower end above its upper end, NaN, infinity, or a weight outside [0, 1].

    Notes
    -----
    Source: eq-partial_crown-mccormick. In exact arithmetic; the certifier adds its rounding margins itself.
    """
    xl, xu = interval(x_lo, x_hi, ("x_lo", "x_hi"))
    yl, yu = interval(y_lo, y_hi, ("y_lo", "y_hi"))
    try:
        xl, xu, yl, yu = torch.broadcast_tensors(xl, xu, yl, yu)
    except RuntimeError:
        raise ValueError(
            f"x and y must have one shape; got {tuple(xl.shape)} and {tuple(yl.shape)}"
        ) from None
    al, au = _weight("alpha_lower", alpha_lower), _weight("alpha_upper", alpha_upper)
    lower = (al * yl + (1 - al) * yu, al * xl + (1 - al) * xu, -al * xl * yl - (1 - al) * xu * yu)
    upper = (au * yl + (1 - au) * yu, au * xu + (1 - au) * xl, -au * xu * yl - (1 - au) * xl * yu)
    return lower, upper


def product_range(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Exact range of the product of two intervals."""
    corners = torch.stack((x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]))
    return corners.amin(0), corners.amax(0)


def square_range(x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Exact range of the square of an interval."""
    low, high = x[0] ** 2, x[1] ** 2
    least = torch.where((x[0] <= 0) & (x[1] >= 0), torch.zeros_like(low), torch.minimum(low, high))
    return least, torch.maximum(low, high)


def _weight(name: str, alpha: Any) -> Tensor:
    out = as_double(name, alpha)
    if bool(((out < 0) | (out > 1)).any()):
        raise ValueError(f"{name} must lie in [0, 1]; got {alpha!r}")
    return out
