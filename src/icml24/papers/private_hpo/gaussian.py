r"""Exact accounting of full-batch Gaussian releases, in one number.

Section "What a private search costs" of the chapter. A run of :math:`T` full-batch steps with noise
multiplier :math:`\sigma` is as private as one Gaussian shift of length
:math:`\mu = \sqrt T / \sigma`; runs compose by Pythagoras; and :math:`(\varepsilon,
\delta)` is read off the curve of that shift. Everything here is float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

from . import _validate as check

__all__ = [
    "calibrate_sigma",
    "compose_mu",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "remaining_epsilon",
]

SQRT_HALF = math.sqrt(0.5)
SQRT_HALF_PI = math.sqrt(math.pi / 2)
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
TINY = 1e-320  # keeps a logarithm finite, and its root search monotone, where delta has underflowed


def gdp_delta(mu: float, epsilon: float) -> float:
    r"""Smallest delta at which a Gaussian shift of length `mu` is (epsilon, delta)-private.

    .. math:: \delta(\varepsilon; \mu) = \Phi(-\varepsilon/\mu + \mu/2)
              - e^{\varepsilon}\, \Phi(-\varepsilon/\mu - \mu/2)

    Parameters
    ----------
    mu : float
        Length of the shift in noise standard deviations; positive.
    epsilon : float
        Positive; natural logarithm of the odds ratio.

    Returns
    -------
    float
        In [0, 1). Underflows to 0.0 only below about 1e-308.

    Raises
    ------
    ValueError
        `mu` or `epsilon` not positive and finite.

    Notes
    -----
    Source: eq-private_hpo-curve. The two densities at the two arguments differ by exactly
    :math:`e^\varepsilon`, so the difference is one density times a difference of Mills
    ratios: no overflow at large :math:`\varepsilon/\mu`, no cancellation in the tail.

    Examples
    --------
    >>> round(gdp_delta(1.0, 2.0), 6)
    0.020924
    """
    return math.exp(_log_delta(check.positive("mu", mu), check.positive("epsilon", epsilon)))


def gdp_epsilon(mu: float, delta: float) -> float:
    r"""Epsilon at which a Gaussian shift of length `mu` is (epsilon, delta)-private.

    Parameters
    ----------
    mu : float
        Length of the shift; positive.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The root of `gdp_delta` in epsilon; 0.0 when already :math:`\delta(0) \le \delta`.

    Raises
    ------
    ValueError
        `mu` not positive and finite, or `delta` outside (0, 1).

    Notes
    -----
    Source: eq-private_hpo-curve. Bracketing root search on the logarithm of delta,
    which decreases strictly in epsilon.
    """
    mu = check.positive("mu", mu)
    delta = check.probability("delta", delta)
    if math.erf(mu / 2 * SQRT_HALF) <= delta:
        return 0.0
    target = math.log(delta)
    top = mu * mu / 2 + 40 * mu + 1
    return float(brentq(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, top, xtol=1e-13, rtol=1e-14))


def gdp_mu(epsilon: float, delta: float) -> float:
    r"""Longest Gaussian shift that is (epsilon, delta)-private: the inverse of `gdp_epsilon`.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Positive, in noise standard deviations.

    Raises
    ------
    ValueError
        `epsilon` not positive and finite, or `delta` outside (0, 1).

    Notes
    -----
    Source: eq-private_hpo-curve. Delta increases strictly in mu; the search runs in
    :math:`\log\mu`, so that short shifts keep their relative precision.

    Examples
    --------
    >>> round(gdp_mu(1.0, 1e-5), 6)
    0.268051
    """
    epsilon = check.positive("epsilon", epsilon)
    target = math.log(check.probability("delta", delta))

    def gap(log_mu: float) -> float:
        return _log_delta(math.exp(log_mu), epsilon) - target

    low, high = math.log(1e-9), math.log(200.0)
    while gap(low) > 0:
        low -= 10.0
    while gap(high) < 0:
        high += 2.0
    return math.exp(brentq(gap, low, high, xtol=1e-14, rtol=1e-14))


def gaussian_mu(noise_multiplier: float, steps: int) -> float:
    r"""Shift of a whole full-batch run: :math:`\mu = \sqrt T/\sigma`.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over the clipping norm, on the *summed* gradient; positive.
    steps : int
        Number of full-batch releases, at least 1. (Subsampled steps are not Gaussian:
        see `pld_epsilon`.)

    Returns
    -------
    float

    Raises
    ------
    ValueError
        `noise_multiplier` not positive and finite, or `steps` < 1.

    Notes
    -----
    Source: eq-private_hpo-run.
    """
    return math.sqrt(check.steps(steps)) / check.positive("noise_multiplier", noise_multiplier)


def compose_mu(mus: Iterable[float]) -> float:
    r"""Shift of several runs together, adaptively chosen or not: :math:`(\sum_j \mu_j^2)^{1/2}`.

    Parameters
    ----------
    mus : iterable of float
        One shift a run, each positive. Not epsilons: those do not add up in any simple way.

    Returns
    -------
    float
        0.0 for no runs at all.

    Raises
    ------
    ValueError
        A shift that is not positive and finite.

    Notes
    -----
    Source: eq-private_hpo-composition (Dong, Roth and Su, Corollary 3.3).
    """
    return math.hypot(*(check.positive("mu", mu) for mu in mus))


def calibrate_sigma(epsilon: float, delta: float, steps: int) -> float:
    r"""Noise multiplier that makes `steps` full-batch steps exactly (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float
        Positive: the budget of the run alone.
    delta : float
        In (0, 1).
    steps : int
        At least 1.

    Returns
    -------
    float
        :math:`\sqrt T / \mu(\varepsilon, \delta)`.

    Raises
    ------
    ValueError
        As `gdp_mu` and `gaussian_mu`.

    Notes
    -----
    Source: eq-private_hpo-calibration. A numerical accountant is the general method, and
    is conservative by up to its own error tolerance; at full batch this root is exact.
    """
    return math.sqrt(check.steps(steps)) / gdp_mu(epsilon, delta)


def remaining_epsilon(target_epsilon: float, delta: float, spent_epsilons: Sequence[float]) -> float:
    r"""Budget of the final run when runs of the given budgets have been made.

    .. math:: \mu_f^2 = \mu(\varepsilon^\star, \delta)^2 - \sum_j \mu(\varepsilon_j, \delta)^2

    Parameters
    ----------
    target_epsilon : float
        Budget of everything together; positive.
    delta : float
        In (0, 1); the same for the target and for every run.
    spent_epsilons : sequence of float
        Budget of each run made, in any order; each positive. May be empty.

    Returns
    -------
    float
        Epsilon of the final run: all runs and it compose to exactly `target_epsilon`.

    Raises
    ------
    ValueError
        A bad argument, or runs that exceed the target by themselves.

    Notes
    -----
    Source: eq-private_hpo-remaining.

    Examples
    --------
    >>> round(remaining_epsilon(1.0, 1e-5, [0.05] * 3 + [0.1] * 3), 4)
    0.9685
    """
    target = gdp_mu(check.positive("target_epsilon", target_epsilon), delta) ** 2
    spent = math.fsum(
        gdp_mu(check.positive("each of spent_epsilons", epsilon), delta) ** 2 for epsilon in spent_epsilons
    )
    left = target - spent
    if left <= 0:
        raise ValueError(
            f"the trials alone exceed the target: they cost mu^2 = {spent:.6g}, and epsilon = {target_epsilon:g} "
            f"at delta = {delta:g} allows mu^2 = {target:.6g}; use fewer or cheaper trials, or a larger target"
        )
    return gdp_epsilon(math.sqrt(left), delta)


def _log_delta(mu: float, epsilon: float) -> float:
    # log of phi(a) [M(-a) - M(mu - a)], a = -eps/mu + mu/2, M the Mills ratio; phi(a - mu) = e^-eps phi(a)
    a = -epsilon / mu + mu / 2
    log_density = -0.5 * a * a - LOG_SQRT_2PI
    lower = _mills(mu - a)
    if a <= 0:
        return log_density + math.log(max(_mills(-a) - lower, TINY))
    return math.log(max(float(ndtr(a)) - math.exp(log_density) * lower, TINY))


def _mills(x: float) -> float:
    return SQRT_HALF_PI * float(erfcx(x * SQRT_HALF))
