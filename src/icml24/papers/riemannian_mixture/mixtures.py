r"""The mixture's drift where it can be written down: a weighted mean, and the normal case.

`mixture_drift` is eq-riemannian_mixture-mixture for given weights; `gaussian_drifts` is
eq-riemannian_mixture-gaussian, the exact pair of drifts between two normals in flat space.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .bridges import check_rows, times_of
from .manifolds import Manifold
from .schedules import LinearSchedule

__all__ = ["gaussian_drifts", "mixture_drift"]

Drift = Callable[[Tensor, Tensor], Tensor]


def mixture_drift(
    manifold: Manifold, x: Tensor, t: Tensor, dests: Tensor, weights: Tensor, schedule: LinearSchedule
) -> Tensor:
    r"""Weighted mean of the tangent directions from each point to every destination.

    .. math:: \eta(x,t) = \frac{\beta(t)}{\tau(t,T)}\,\frac{\sum_j w_j\log_x(z_j)}{\sum_j w_j}

    Parameters
    ----------
    manifold : Manifold
    x : Tensor, shape (n, D)
    t : Tensor, shape (n,)
        Times in [0, T).
    dests : Tensor, shape (m, D)
        Destinations :math:`z_j`.
    weights : Tensor, shape (n, m)
        Not negative, normalised here; row i belongs to point i.
    schedule : LinearSchedule

    Returns
    -------
    Tensor, shape (n, D)

    Raises
    ------
    ValueError
        Shapes that do not fit, a negative weight, or a row of weights that sums to zero.
    """
    check_rows(manifold, x, "x")
    check_rows(manifold, dests, "dests")
    if tuple(weights.shape) != (len(x), len(dests)):
        raise ValueError(f"weights must have shape {(len(x), len(dests))}, got {tuple(weights.shape)}")
    total = weights.sum(-1, keepdim=True)
    if not bool((weights >= 0).all()) or not bool((total > 0).all()):
        raise ValueError("weights must not be negative, and each row needs a positive sum")
    logs = manifold.log(x.unsqueeze(1), dests.unsqueeze(0))  # (n, m, D)
    mean = ((weights / total).to(x.dtype).unsqueeze(1) @ logs).squeeze(1)
    rate = schedule.rate(times_of(t, x))
    return rate.unsqueeze(-1) * mean


def gaussian_drifts(
    mean0: Tensor | float,
    std0: float,
    mean1: Tensor | float,
    std1: float,
    schedule: LinearSchedule,
) -> tuple[Drift, Drift]:
    r"""Exact drifts between :math:`\mathcal N(m_0, s_0^2I)` and :math:`\mathcal N(m_1, s_1^2I)` in flat space.

    With :math:`r = \tau(0,t)/\tau_T`, :math:`\tau_T = \tau(0,T)`, :math:`\kappa = \beta(t)/\tau_T`,
    :math:`V = (1-r)^2s_0^2 + r^2s_1^2 + \tau_Tr(1-r)` and :math:`u = (x - (1-r)m_0 - rm_1)/V`:

    .. math::
        f^*(x,t) &= \kappa\bigl[(m_1-m_0) + u\,(rs_1^2 - (1-r)s_0^2 - \tau_Tr)\bigr]\\
        b^*(x,T-t) &= \kappa\bigl[-(m_1-m_0) + u\,((1-r)s_0^2 - rs_1^2 - \tau_T(1-r))\bigr]

    Parameters
    ----------
    mean0, mean1 : Tensor of shape (d,), or float
    std0, std1 : float
        Positive.
    schedule : LinearSchedule

    Returns
    -------
    (f, b) : two functions of (n, d) points and (n,) times
        `f` takes the time t, `b` the reverse time ``s = T - t``. Both are finite at both ends.

    Raises
    ------
    ValueError
        A standard deviation that is not positive.

    Notes
    -----
    eq-riemannian_mixture-gaussian. Their sum is :math:`\beta\nabla\log p_t` exactly
    (eq-riemannian_mixture-score).
    """
    for name, value in (("std0", std0), ("std1", std1)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value!r}")
    total = schedule.integral(0.0, schedule.T)

    def parts(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        t = times_of(t, x).unsqueeze(-1)
        m0, m1 = (torch.as_tensor(m, dtype=x.dtype, device=x.device) for m in (mean0, mean1))
        r = schedule.integral(torch.zeros_like(t), t) / total
        V = (1 - r) ** 2 * std0**2 + r**2 * std1**2 + total * r * (1 - r)
        return r, schedule.beta(t) / total, m1 - m0, (x - (1 - r) * m0 - r * m1) / V

    def f(x: Tensor, t: Tensor) -> Tensor:
        r, kappa, shift, u = parts(x, t)
        return kappa * (shift + u * (r * std1**2 - (1 - r) * std0**2 - total * r))

    def b(x: Tensor, s: Tensor) -> Tensor:
        r, kappa, shift, u = parts(x, schedule.T - torch.as_tensor(s, dtype=x.dtype, device=x.device))
        return kappa * (-shift + u * ((1 - r) * std0**2 - r * std1**2 - total * (1 - r)))

    return f, b
