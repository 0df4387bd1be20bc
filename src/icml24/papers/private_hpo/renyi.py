r"""Rényi accounting: the general method, always on the safe side of the exact one.

Needed where a run is not one Gaussian shift: subsampled steps, and the private
selection of the best of a random number of runs. A mechanism is described by its Rényi
divergence :math:`\rho(\lambda)` at a list of orders :math:`\lambda > 1`; curves of
independent releases add, and one conversion turns a curve into :math:`(\varepsilon, \delta)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from . import _validate as check

__all__ = ["private_selection_rdp", "rdp_subsampled_gaussian", "rdp_to_epsilon"]

CONVERSIONS = ("improved", "classic")
CHUNK = 1 << 18  # quadrature points held at once
REACH = 14.0  # standard deviations kept on either side of the tilted densities


def rdp_subsampled_gaussian(
    noise_multiplier: float, sample_rate: float, steps: int, orders: Sequence[float]
) -> np.ndarray:
    r"""Rényi divergence of `steps` Poisson-subsampled Gaussian releases.

    .. math:: \rho(\alpha) = \frac{T}{\alpha - 1} \log \mathbb{E}_{z \sim N(0, \sigma^2)}
              \bigl(1 - q + q\, e^{(2z - 1)/(2\sigma^2)}\bigr)^{\alpha}

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over the clipping norm; positive.
    sample_rate : float
        Probability `q` with which each record enters a step, in (0, 1].
    steps : int
        At least 1.
    orders : sequence of float, shape (m,)
        Each above 1; whole or fractional.

    Returns
    -------
    ndarray, shape (m,), float64

    Raises
    ------
    ValueError
        A bad argument.

    Notes
    -----
    Source: eq-private_hpo-renyi at ``q = 1``, where the value is exactly
    :math:`T \alpha / (2\sigma^2)`. Whole orders are the binomial sum of Mironov, Talwar and
    Zhang (2019); fractional orders integrate the expectation itself by the trapezoidal
    rule, which converges geometrically for this integrand, and are *exact*, not an
    interpolated upper bound.
    """
    sigma = check.positive("noise_multiplier", noise_multiplier)
    q = check.sample_rate(sample_rate)
    count = check.steps(steps)
    alphas = check.orders(orders)
    if q == 1.0:
        return count * alphas / (2 * sigma**2)
    log_moments = [
        _binomial_log_moment(q, sigma, int(alpha))
        if alpha.is_integer()
        else _integral_log_moment(q, sigma, alpha)
        for alpha in alphas.tolist()
    ]
    return count * np.maximum(np.asarray(log_moments), 0.0) / (alphas - 1)


def rdp_to_epsilon(
    orders: Sequence[float], rdp: Sequence[float], delta: float, conversion: str = "improved"
) -> tuple[float, float]:
    r"""Epsilon that a Rényi curve proves at `delta`, and the order that proves it.

    Parameters
    ----------
    orders : sequence of float, shape (m,)
        Each above 1.
    rdp : sequence of float, shape (m,)
        Rényi divergence at each order; zero or positive, infinity allowed.
    delta : float
        In (0, 1).
    conversion : {"improved", "classic"}
        "improved": :math:`\rho(\alpha) + \log(1 - 1/\alpha) - (\log\delta + \log\alpha)/(\alpha - 1)`;
        "classic": :math:`\rho(\alpha) + \log(1/\delta)/(\alpha - 1)`, never smaller.

    Returns
    -------
    (float, float)
        Smallest epsilon over the orders, not below zero, and its order. When that order is
        the first or last of the list, the list is too short and epsilon larger than need be.

    Raises
    ------
    ValueError
        A bad argument, or an unknown conversion (the message lists them).

    Notes
    -----
    Source: eq-private_hpo-conversion.
    """
    alphas = check.orders(orders)
    curve = check.curve("rdp", rdp, alphas.size)
    log_delta = math.log(check.probability("delta", delta))
    if conversion == "improved":
        epsilons = curve + np.log1p(-1 / alphas) - (log_delta + np.log(alphas)) / (alphas - 1)
    elif conversion == "classic":
        epsilons = curve - log_delta / (alphas - 1)
    else:
        raise ValueError(f"unknown conversion {conversion!r}; expected one of {list(CONVERSIONS)}")
    best = int(np.argmin(epsilons))
    return max(float(epsilons[best]), 0.0), float(alphas[best])


def private_selection_rdp(
    orders: Sequence[float], rdp: Sequence[float], mean: float, shape: float
) -> np.ndarray:
    r"""Rényi curve of "run J times, J random, and publish the best" (Papernot and Steinke).

    Parameters
    ----------
    orders : sequence of float, shape (m,)
        Each above 1; a dense list, since the bound searches it.
    rdp : sequence of float, shape (m,)
        Curve of one base run at these orders.
    mean : float
        Expected number of repetitions E[J], at least 1.
    shape : float
        Law of J. ``math.inf``: Poisson(mean), where J = 0 publishes a constant. Otherwise
        truncated negative binomial with this shape, zero or positive: 1 geometric, 0 logarithmic.

    Returns
    -------
    ndarray, shape (m,), float64
        Curve of the published run; repetitions not published cost nothing else.

    Raises
    ------
    ValueError
        A bad argument.

    Notes
    -----
    Source: eq-private_hpo-selection. The truncated law's bound is made monotone in the
    order, since a Rényi curve is; the Poisson bound is used as it stands. The Poisson
    law's inner delta is read off the base curve by the improved conversion.
    """
    alphas = check.orders(orders)
    curve = check.curve("rdp", rdp, alphas.size)
    mean = check.positive("mean", mean)
    if mean < 1:
        raise ValueError(f"mean must be at least 1 (the expected number of runs); got {mean!r}")
    if isinstance(shape, (int, float, np.number)) and math.isinf(shape) and shape > 0:
        return _poisson_selection(alphas, curve, mean)
    shape = check.nonnegative("shape", shape)
    log_inverse_gamma = -math.log(_negative_binomial_gamma(mean, shape))
    inner = (1 - 1 / alphas) * curve + log_inverse_gamma / alphas
    out = curve + math.log(mean) / (alphas - 1) + (1 + shape) * inner.min()
    ascending = np.argsort(alphas, kind="stable")
    out[ascending] = np.minimum.accumulate(out[ascending][::-1])[::-1]
    return out


def _binomial_log_moment(q: float, sigma: float, alpha: int) -> float:
    k = np.arange(alpha + 1, dtype=np.float64)
    log_binomial = gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
    terms = log_binomial + k * math.log(q) + (alpha - k) * math.log1p(-q) + k * (k - 1) / (2 * sigma**2)
    return float(logsumexp(terms))


def _integral_log_moment(q: float, sigma: float, alpha: float) -> float:
    # The integrand's logarithm has branch points at distance pi sigma^2 from the real line: stay below that scale.
    spacing = min(sigma / 8, math.pi * sigma**2 / 6)
    low, high = -REACH * sigma, alpha + REACH * sigma
    points = math.ceil((high - low) / spacing) + 1
    total = -math.inf
    for first in range(0, points, CHUNK):
        z = low + spacing * np.arange(first, min(first + CHUNK, points))
        ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2))
        total = float(np.logaddexp(total, logsumexp(alpha * ratio - z**2 / (2 * sigma**2))))
    return total + math.log(spacing) - math.log(sigma) - 0.5 * math.log(2 * math.pi)


def _negative_binomial_gamma(mean: float, shape: float) -> float:
    if mean == 1.0:
        return 1.0
    if shape == 1.0:
        return 1 / mean

    def log_mean(log_gamma: float) -> float:
        miss = -math.expm1(log_gamma)  # 1 - gamma
        if shape == 0.0:
            return math.log(miss) - log_gamma - math.log(-log_gamma)
        return math.log(shape) + math.log(miss) - log_gamma - math.log(-math.expm1(shape * log_gamma))

    low, high = -1.0, -1e-12
    while log_mean(low) < math.log(mean):
        low *= 2
    while log_mean(high) >= math.log(mean):  # a mean next to 1, or a very large shape
        high /= 16
        if high > -1e-40:
            return 1.0
    root = brentq(lambda s: log_mean(s) - math.log(mean), low, high, xtol=1e-60, rtol=1e-14)
    return math.exp(root)


def _poisson_selection(alphas: np.ndarray, curve: np.ndarray, mean: float) -> np.ndarray:
    epsilon_hat = np.log1p(1 / (alphas - 1))  # (m,): one inner epsilon an order
    log_delta = (alphas - 1) * (curve - epsilon_hat[:, None] + np.log1p(-1 / alphas)) - np.log(alphas)
    delta_hat = np.exp(np.minimum(log_delta.min(axis=1), 0.0))
    return curve + mean * delta_hat + math.log(mean) / (alphas - 1)
