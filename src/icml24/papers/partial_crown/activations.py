r"""Lines around tanh and its derivatives, sound for every slope (eq-partial_crown-line).

For a slope a, the best upper line has intercept :math:`\max_z f(z) - a z`: a maximum over the two ends and
the solutions of f'(z) = a, which are known in closed form (eq-partial_crown-roots). So a slope can be chosen
by any means, for instance by a few halvings towards the line of least area (eq-partial_crown-area): soundness
rests on the intercept alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._checks import choice, interval

__all__ = ["KINDS", "activation_range", "critical_points", "derivative", "relax_activation", "value"]

KINDS = ("tanh", "dtanh", "d2tanh")
#: Halvings of the slope: it starts in the exact range of f' on the interval.
HALVINGS = 14
#: Outward pad for rounding, relative to the terms of a line.
PAD = 1e-13
_PEAK = math.atanh(1 / math.sqrt(3))  # where tanh'' is extreme
#: Where tanh''' is least: tanh'''' = 0, tanh^2 = 2/3.
_TROUGH = math.atanh(math.sqrt(2 / 3))


def value(kind: str, z: Tensor) -> Tensor:
    """The function named by `kind` at `z`."""
    return _of_tanh(kind, torch.tanh(z))


def derivative(kind: str, z: Tensor) -> Tensor:
    """The derivative of the function named by `kind` at `z`."""
    s = torch.tanh(z)
    q = 1 - s * s
    if kind == "tanh":
        return q
    return -2 * s * q if kind == "dtanh" else q * (6 * s * s - 2)


def critical_points(kind: str, slope: Tensor) -> tuple[Tensor, Tensor]:
    r"""Solutions of f'(z) = slope, and tanh of them.

    Parameters
    ----------
    kind : {"tanh", "dtanh", "d2tanh"}
    slope : Tensor, shape (...), float64

    Returns
    -------
    z, s : Tensor, shape (R, ...)
        R = 2, 2 or 4 candidates with ``s = tanh(z)``; infinite (or NaN) z where there is none.

    Notes
    -----
    Source: eq-partial_crown-roots. With :math:`q = 1 - s^2`: tanh' = q; tanh'' = -2 s q, a cubic in s solved by
    the cosine of a third of an angle; tanh''' = 4 q - 6 q^2. z is taken as asinh(s / sqrt q), which stays
    accurate where s is next to one.
    """
    if kind == "tanh":
        q = slope
        s = torch.sqrt((1 - q).clamp(min=0))
        z = torch.asinh(s / torch.sqrt(q))
        return torch.stack((z, -z)), torch.stack((s, -s))
    if kind == "dtanh":
        size = slope.abs()
        third = torch.acos((-0.75 * math.sqrt(3) * size).clamp(min=-1)) / 3
        outer = (2 / math.sqrt(3)) * torch.cos(third)
        inner = (2 / math.sqrt(3)) * torch.cos(third - 2 * math.pi / 3)
        far = torch.asinh(outer / torch.sqrt(size / (2 * outer)))
        near = torch.asinh(inner / torch.sqrt(1 - inner * inner))
        side = torch.where(slope > 0, -1.0, 1.0).to(slope)
        return torch.stack((side * far, side * near)), torch.stack((side * outer, side * inner))
    root = torch.sqrt((4 - 6 * slope).clamp(min=0))
    zs, ss = [], []
    for q in (slope / (2 + root), (2 + root) / 6):
        s = torch.sqrt((1 - q).clamp(min=0))
        z = torch.asinh(s / torch.sqrt(q))  # NaN where q < 0: no such point
        zs += [z, -z]
        ss += [s, -s]
    return torch.stack(zs), torch.stack(ss)


def activation_range(kind: str, lower: Any, upper: Any) -> tuple[Tensor, Tensor]:
    r"""Least and greatest value of tanh, tanh' or tanh'' on intervals.

    Parameters
    ----------
    kind : {"tanh", "dtanh", "d2tanh"}
    lower, upper : array_like, one shape
        Ends of the intervals, ``lower <= upper``, finite.

    Returns
    -------
    (Tensor, Tensor)
        float64, in the shape of the input; widened by 1e-13.

    Raises
    ------
    ValueError
        Unknown kind, ``lower > upper``, NaN or infinity.
    """
    choice("kind", kind, KINDS)
    low, high = interval(lower, upper)
    return _range(kind, low, high)


def relax_activation(kind: str, lower: Any, upper: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Lines of least area below and above tanh, tanh' or tanh'' on intervals.

    .. math:: a_- z + b_- \le f(z) \le a_+ z + b_+ , \qquad z \in [l, u]

    Parameters
    ----------
    kind : {"tanh", "dtanh", "d2tanh"}
    lower, upper : array_like, one shape
        Ends of the intervals, ``lower <= upper``, finite. Degenerate intervals are allowed.

    Returns
    -------
    slope_lo, intercept_lo, slope_hi, intercept_hi : Tensor
        float64, in the shape of the input.

    Raises
    ------
    ValueError
        Unknown kind, ``lower > upper``, NaN or infinity.

    Notes
    -----
    Source: eq-partial_crown-line and eq-partial_crown-area. The released code distinguishes convex, concave and
    mixed intervals and searches tangents; the closed form needs no cases and no tolerance.

    Examples
    --------
    >>> a, b, c, d = relax_activation("tanh", [0.0], [1.0])
    >>> bool(a + b <= torch.tanh(torch.tensor(1.0))) and bool(c + d >= torch.tanh(torch.tensor(1.0)))
    True
    """
    choice("kind", kind, KINDS)
    low, high = interval(lower, upper)
    return _relax(kind, low, high)


def _range(kind: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    ends = (value(kind, low), value(kind, high))
    least, greatest = torch.minimum(*ends), torch.maximum(*ends)
    if kind == "dtanh":
        greatest = torch.where((low <= 0) & (high >= 0), torch.ones_like(greatest), greatest)
    elif kind == "d2tanh":
        peak = 4 / (3 * math.sqrt(3))
        greatest = torch.where((low <= -_PEAK) & (high >= -_PEAK), greatest.new_tensor(peak), greatest)
        least = torch.where((low <= _PEAK) & (high >= _PEAK), least.new_tensor(-peak), least)
    return least - PAD, greatest + PAD


def _relax(kind: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`relax_activation` without the checks."""
    f_low, f_high = value(kind, low), value(kind, high)
    middle = 0.5 * (low + high)
    bracket = _slope_bracket(kind, low, high)
    size = torch.maximum(low.abs(), high.abs())
    out = []
    for sign in (-1.0, 1.0):
        small, large = bracket
        for _ in range(HALVINGS):
            slope = 0.5 * (small + large)
            _, at = _extreme(kind, sign, slope, low, high, f_low, f_high)
            # the greatest value of sign (f - a z) lies right of the middle: turning the line that way lowers it
            rise = (at > middle) if sign > 0 else (at < middle)
            small, large = torch.where(rise, slope, small), torch.where(rise, large, slope)
        slope = 0.5 * (small + large)
        best, _ = _extreme(kind, sign, slope, low, high, f_low, f_high)
        out += [slope, sign * (best + PAD * (1 + slope.abs() * size))]
    return out[0], out[1], out[2], out[3]


def _extreme(
    kind: str, sign: float, slope: Tensor, low: Tensor, high: Tensor, f_low: Tensor, f_high: Tensor
) -> tuple[Tensor, Tensor]:
    """Greatest value of ``sign * (f(z) - slope z)`` on [low, high], and where it is taken."""
    z, s = critical_points(kind, slope)
    inside = (z > low) & (z < high)  # False for NaN
    z = torch.where(inside, z, low)
    f = torch.where(inside, _of_tanh(kind, s), f_low)
    best = sign * (f_low - slope * low)
    where = low
    for zi, fi in ((high, f_high), *zip(z, f, strict=True)):
        candidate = sign * (fi - slope * zi)
        better = candidate > best
        best = torch.where(better, candidate, best)
        where = torch.where(better, zi, where)
    return best, where


def _slope_bracket(kind: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Range of f' on [low, high]: by the mean value theorem the best slope lies in it."""
    marks = {"tanh": (0.0,), "dtanh": (-_PEAK, _PEAK), "d2tanh": (-_TROUGH, 0.0, _TROUGH)}[kind]
    points = [low, high, *(torch.clamp(low.new_tensor(mark), low, high) for mark in marks)]
    slopes = torch.stack([derivative(kind, z) for z in points])
    return slopes.amin(0), slopes.amax(0)


def _of_tanh(kind: str, s: Tensor) -> Tensor:
    if kind == "tanh":
        return s
    q = 1 - s * s
    return q if kind == "dtanh" else -2 * s * q
