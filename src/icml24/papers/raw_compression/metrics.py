r"""How good, how large: PSNR, and Bjontegaard's averages of rate-distortion curves.

Section "Experiments": eq-raw_compression-psnr and eq-raw_compression-bjontegaard.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from ._checks import floating, positive, same_shape

__all__ = ["Curve", "bd_psnr", "bd_rate", "psnr"]


def psnr(x: Tensor, y: Tensor, peak: float) -> Tensor:
    r"""Peak signal-to-noise ratio.

    .. math:: 10 \log_{10}\bigl(P^2 / \operatorname{mean}(x - y)^2\bigr)

    Parameters
    ----------
    x, y : Tensor, one shape, floating
        Same units; the measure is symmetric.
    peak : float
        P, positive, in those units: for raw signals the *exposure-scaled* white.

    Returns
    -------
    Tensor, scalar
        Decibel, over all elements; infinite for equal pictures.

    Raises
    ------
    TypeError
        An argument is not a floating tensor.
    ValueError
        Shapes differ, nothing to compare, or ``peak <= 0``.

    Notes
    -----
    Source: eq-raw_compression-psnr.
    """
    floating("x", x)
    floating("y", y)
    same_shape("x", x, "y", y)
    if x.numel() == 0:
        raise ValueError("x and y are empty")
    return 10 * torch.log10(positive("peak", peak) ** 2 / (x - y).square().mean())


def bd_rate(
    rate_anchor: Any, psnr_anchor: Any, rate_test: Any, psnr_test: Any, *, method: str = "pchip"
) -> float:
    r"""Average extra rate of `test` over `anchor` at equal quality, in percent.

    .. math:: 100\,\Bigl(\exp\Bigl(\frac{1}{q_1 - q_0}\int_{q_0}^{q_1}
        \bigl(\ln r_{\mathrm{test}}(q) - \ln r_{\mathrm{anchor}}(q)\bigr) dq\Bigr) - 1\Bigr)

    Parameters
    ----------
    rate_anchor, rate_test : array_like, shapes (n,) and (m,), n, m >= 4
        Positive rates, any unit that both share.
    psnr_anchor, psnr_test : array_like
        Quality at those rates; must rise strictly with the rate.
    method : {"pchip", "cubic"}
        How log-rate is interpolated over quality: piecewise monotone, or one cubic by least squares.

    Returns
    -------
    float
        Negative: `test` needs fewer bits. The integral runs over the common range of quality.

    Raises
    ------
    ValueError
        Fewer than 4 points, lengths that differ, rates not positive, values not finite, a curve that
        does not rise, no common range, unknown method.

    Notes
    -----
    Source: eq-raw_compression-bjontegaard.
    """
    anchor, test = Curve(rate_anchor, psnr_anchor), Curve(rate_test, psnr_test)
    gap = _mean_gap((anchor.psnr, anchor.log_rate), (test.psnr, test.log_rate), method, "quality")
    return 100 * math.expm1(gap)


def bd_psnr(
    rate_anchor: Any, psnr_anchor: Any, rate_test: Any, psnr_test: Any, *, method: str = "pchip"
) -> float:
    r"""Average extra quality of `test` over `anchor` at equal rate, in dB.

    As `bd_rate`, with quality interpolated over the log-rate and the common range of rates.

    Parameters
    ----------
    rate_anchor, psnr_anchor, rate_test, psnr_test, method
        As for `bd_rate`.

    Returns
    -------
    float
        Positive: `test` is better.

    Raises
    ------
    ValueError
        As for `bd_rate`.

    Notes
    -----
    Source: eq-raw_compression-bjontegaard.
    """
    anchor, test = Curve(rate_anchor, psnr_anchor), Curve(rate_test, psnr_test)
    return _mean_gap((anchor.log_rate, anchor.psnr), (test.log_rate, test.psnr), method, "rate")


class Curve:
    """A rate-distortion curve, sorted by rate and checked.

    Attributes
    ----------
    log_rate, psnr : ndarray, shape (n,)
        Natural logarithm of the rate, and quality; both strictly rising.
    """

    def __init__(self, rate: Any, psnr: Any) -> None:
        rate, psnr = (_numbers(name, values) for name, values in (("rate", rate), ("psnr", psnr)))
        if rate.shape != psnr.shape:
            raise ValueError(f"a curve has one psnr a rate; got {rate.size} rates and {psnr.size} values")
        if rate.size < 4:
            raise ValueError(f"a curve needs at least 4 points; got {rate.size}")
        if not (rate > 0).all():
            raise ValueError("rates must be positive: their logarithm is averaged")
        order = np.argsort(rate)
        self.log_rate, self.psnr = np.log(rate[order]), psnr[order]
        if not ((np.diff(self.log_rate) > 0).all() and (np.diff(self.psnr) > 0).all()):
            raise ValueError("psnr must rise strictly with the rate; keep the points of the upper envelope")


def upper_envelope(rate: np.ndarray, psnr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points that no cheaper point equals: strictly rising in both."""
    order = np.lexsort((-psnr, rate))
    rate, psnr = rate[order], psnr[order]
    best = np.maximum.accumulate(np.concatenate([[-np.inf], psnr[:-1]]))
    keep = psnr > best
    rate, psnr = rate[keep], psnr[keep]
    first = np.concatenate([[True], np.diff(rate) > 0])
    return rate[first], psnr[first]


def at_rate(rate: np.ndarray, psnr: np.ndarray, wanted: float) -> float:
    """Quality of an envelope at a rate: linear in the log-rate; NaN below its cheapest point.

    Above the dearest point the best quality stands: a codec need not spend what it is allowed.
    """
    if not len(rate) or wanted < rate[0]:
        return math.nan
    return float(np.interp(math.log(wanted), np.log(rate), psnr))


def _numbers(name: str, values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    try:
        out = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers; got {values!r}") from error
    if out.ndim != 1 or not np.isfinite(out).all():
        raise ValueError(f"{name} must be a row of finite numbers; got {values!r}")
    return out


def _mean_gap(
    anchor: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], method: str, axis: str
) -> float:
    if method not in ("pchip", "cubic"):
        raise ValueError(f"unknown method {method!r}; expected 'pchip' or 'cubic'")
    low = max(anchor[0][0], test[0][0])
    high = min(anchor[0][-1], test[0][-1])
    if not low < high:
        raise ValueError(f"the two curves have no common range of {axis}: nothing to average over")
    areas = [_integral(*curve, low, high, method) for curve in (anchor, test)]
    return (areas[1] - areas[0]) / (high - low)


def _integral(x: np.ndarray, y: np.ndarray, low: float, high: float, method: str) -> float:
    if method == "pchip":
        return float(PchipInterpolator(x, y).integrate(low, high))
    antiderivative = np.polyint(np.polyfit(x, y, 3))
    return float(np.polyval(antiderivative, high) - np.polyval(antiderivative, low))
