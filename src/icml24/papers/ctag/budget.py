r"""What a budget of renders buys blind search (eq-ctag-extremes)."""

from __future__ import annotations

import math

from scipy.integrate import quad
from scipy.stats import norm

from . import _checks

__all__ = ["draws_needed", "expected_best"]


def expected_best(n: int) -> float:
    r"""Expected largest of `n` independent standard normal scores.

    .. math:: \mathbb E \max_i Z_i = \int z\, n\, \Phi(z)^{n-1} \varphi(z)\, dz

    It grows like :math:`\sqrt{2 \log n}`.
    """
    n = _checks.whole("n", n, 1)
    # the maximum is n phi(z) Phi(z)^(n-1)-distributed; in logarithms, so that a large n does not underflow
    value, _ = quad(
        lambda z: z * math.exp(math.log(n) + (n - 1) * norm.logcdf(z) + norm.logpdf(z)), -12, 12, limit=400
    )
    return float(value)


def draws_needed(score: float) -> float:
    """Number of normal draws of which, on average, one exceeds `score` standard deviations above the mean."""
    return float(1 / norm.sf(score))
