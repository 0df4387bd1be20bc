r"""The noise schedule, its clock and the times at which a loss is taken.

:math:`\sigma_t^2 = \beta(t)` is linear; :math:`\tau(s,t) = \int_s^t\beta` is the clock of
eq-riemannian_mixture-timechange, and :math:`\beta(t)/\tau(t,T)` the rate at which a bridge is pulled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LinearSchedule"]

Time = float | Tensor


@dataclass(frozen=True)
class LinearSchedule:
    r"""Linear noise schedule :math:`\beta(t) = \beta_0 + (\beta_f - \beta_0)\,t/T`.

    Parameters
    ----------
    beta_0, beta_f : float
        Squared noise per unit time at ``t = 0`` and ``t = T``; not negative, not both zero.
    T : float, default 1.0
        Horizon, positive.

    Raises
    ------
    ValueError
        A field outside these ranges; the message names it.

    Notes
    -----
    Every method takes tensors (any shape) or floats and returns the same kind.
    """

    beta_0: float = 0.2
    beta_f: float = 0.001
    T: float = 1.0

    def __post_init__(self) -> None:
        for name in ("beta_0", "beta_f", "T"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be finite and not negative, got {value!r}")
        if self.T == 0:
            raise ValueError("T must be positive, got 0")
        if self.beta_0 == 0 and self.beta_f == 0:
            raise ValueError("beta_0 and beta_f must not both be zero: the process would have no noise")

    def beta(self, t: Time) -> Time:
        """Squared noise per unit time at `t`."""
        return self.beta_0 + (self.beta_f - self.beta_0) * (t / self.T)

    def integral(self, s: Time, t: Time) -> Time:
        r"""Clock :math:`\tau(s, t) = \int_s^t \beta`: the trapezoid rule, exact here."""
        return (t - s) * (self.beta_0 + (self.beta_f - self.beta_0) * (s + t) / (2 * self.T))

    def rate(self, t: Time) -> Time:
        r"""Pull of a bridge towards its end, :math:`\beta(t)/\tau(t,T)`; infinite at ``t = T``.

        Computed as :math:`\frac{2\beta(t)}{(T-t)(\beta(t)+\beta_f)}`, which is :math:`2/(T-t)`
        when :math:`\beta_f = 0`: nothing cancels near the end.
        """
        beta = self.beta(t)
        share = 2.0 if self.beta_f == 0 else 2 * beta / (beta + self.beta_f)
        left = self.T - t
        if isinstance(left, Tensor):
            return share / left
        return share / left if left else math.inf

    def reverse(self) -> LinearSchedule:
        """Return the schedule of the time-reversed process: the ends swapped."""
        return LinearSchedule(self.beta_f, self.beta_0, self.T)

    def inv_beta_integral(self, s: Time, t: Time) -> Time:
        r"""Return :math:`\int_s^t 1/\beta`; the normaliser :math:`Z` of the importance density.

        :math:`\frac T\delta\log\frac{\beta(t)}{\beta(s)}` with :math:`\delta = \beta_f-\beta_0`, written
        with ``log1p`` so that a small :math:`\delta` loses no digits; :math:`(t-s)/\beta_0` for
        :math:`\delta = 0`. Infinite when the interval touches a zero of :math:`\beta`.
        """
        delta = self.beta_f - self.beta_0
        if delta == 0:
            return (t - s) / self.beta_0
        start = self.beta(s)
        if isinstance(start, Tensor) or isinstance(t, Tensor):
            return (self.T / delta) * torch.log1p(torch.as_tensor(delta * (t - s) / (self.T * start)))
        if start <= 0 or self.beta(t) <= 0:
            return math.inf if t != s else 0.0
        return self.T / delta * math.log1p(delta * (t - s) / (self.T * start))

    def importance_time(self, u: Time, eps: float = 1e-3) -> Time:
        r"""Inverse distribution function of the density :math:`\propto 1/\beta` on :math:`[\epsilon, T-\epsilon]`.

        Parameters
        ----------
        u : float or Tensor
            Uniform numbers in [0, 1].
        eps : float, default 1e-3
            Distance kept from both ends, in ``[0, T/2)``.

        Returns
        -------
        float or Tensor
            :math:`\epsilon + \frac{T\beta(\epsilon)}{\delta}\bigl[(\beta(T-\epsilon)/\beta(\epsilon))^u - 1\bigr]`,
            in closed form (eq-riemannian_mixture-importance); uniform for a constant schedule.

        Raises
        ------
        ValueError
            `eps` out of range, or zero where :math:`1/\beta` is not integrable.
        """
        if not 0 <= eps < self.T / 2:
            raise ValueError(f"eps must lie in [0, T/2) = [0, {self.T / 2:g}), got {eps!r}")
        if eps == 0 and min(self.beta_0, self.beta_f) == 0:
            raise ValueError("1/beta is not integrable where beta is zero: take eps > 0")
        length, delta, start = self.T - 2 * eps, self.beta_f - self.beta_0, self.beta(eps)
        if delta == 0:
            return eps + u * length
        power = math.log1p(delta * length / (self.T * start))
        grown = torch.expm1(u * power) if isinstance(u, Tensor) else math.expm1(u * power)
        return eps + (self.T * start / delta) * grown
