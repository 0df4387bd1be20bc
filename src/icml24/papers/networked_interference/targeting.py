r"""Influence function and closed-form targeting: a regression of residuals on the inverse propensity.

Here both nuisances, the outcome model `mu` and the joint propensity `g`, are arrays that
somebody fitted. `fit_perturbation` moves `mu` by a spline in the exposure divided by `g`,
so that the empirical influence function vanishes in every spline direction
(eq-networked_interference-condition); `targeted_mean` averages what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _validate as check
from .splines import truncated_power_basis

__all__ = ["fit_perturbation", "influence_values", "projected_equations", "targeted_mean"]


def fit_perturbation(
    y: Any, t: Any, z: Any, mu: Any, g: Any, knots: Sequence[float], degree: int = 2
) -> tuple[Tensor, Tensor]:
    r"""Least-squares spline perturbation of each arm, in closed form.

    .. math:: w_a = \arg\min_w \sum_{i:\, t_i = a} \bigl(y_i - \hat\mu_i - B(z_i) w / \hat g_i\bigr)^2

    Parameters
    ----------
    y, mu, g : Tensor or array_like, shape (n,)
        Outcome; fitted outcome and fitted joint propensity at each unit's own treatment and
        exposure. `g` is positive and may be scaled by any constant.
    t : Tensor or array_like, shape (n,)
        0 or 1; both arms need units.
    z : Tensor or array_like, shape (n,)
        Exposures in [0, 1].
    knots, degree
        See `truncated_power_basis`; K = degree + 1 + len(knots).

    Returns
    -------
    (Tensor, Tensor), shapes (K,) and (K,)
        Weights of the **treated** arm first, then of the control arm; dtype of `y`. With fewer
        distinct rows than K, the solution of smallest norm.

    Raises
    ------
    ValueError
        ``g <= 0``, an arm without units, `t` not binary, `z` outside [0, 1], or shapes that differ.

    Notes
    -----
    Source: eq-networked_interference-condition. Solved in float64 whatever the dtype given.
    """
    y, t, z, mu, g = _arrays(y, t, z, mu, g)
    design = truncated_power_basis(z, knots, degree) / g[:, None]
    weights = []
    for arm in (1, 0):
        rows = t == arm
        if not bool(rows.any()):
            raise ValueError(
                f"no units with treatment {arm}: each arm needs at least one to fit its perturbation"
            )
        target = (y - mu)[rows].double()[:, None]
        # gelsd: singular systems as well, and the same bits at every call, which gelsy does not give
        weights.append(
            torch.linalg.lstsq(design[rows].double(), target, driver="gelsd").solution[:, 0].to(y.dtype)
        )
    return weights[0], weights[1]


def targeted_mean(
    mu_q: Any, g_q: Any, z: float, weights: Any, knots: Sequence[float], degree: int = 2
) -> Tensor:
    r"""Targeted estimate of a dose response at one arm and exposure.

    .. math:: \tilde\psi(a, z) = \frac1n \sum_i \Bigl[\hat\mu(a, z, x_i) + B(z) w_a / \hat g(a, z \mid x_i)\Bigr]

    Parameters
    ----------
    mu_q, g_q : Tensor or array_like, shape (n,)
        Fitted outcome and propensity of every unit at the arm and exposure asked about; `g_q` positive.
    z : float
        The exposure asked about, in [0, 1].
    weights : Tensor or array_like, shape (K,)
        That arm's weights, from `fit_perturbation`.
    knots, degree
        As in the fit.

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        ``g_q <= 0``, `z` outside [0, 1], or weights of another length than the basis.

    Notes
    -----
    Source: eq-networked_interference-estimate.
    """
    mu_q = check.vector("mu_q", mu_q)
    g_q = check.positive("g_q", check.vector("g_q", g_q, len(mu_q), mu_q)).to(mu_q)
    weights = check.vector("weights", weights, like=mu_q).to(mu_q)
    basis = truncated_power_basis(mu_q.new_tensor([check.level("z", z)]), knots, degree)[0]
    if len(weights) != len(basis):
        raise ValueError(f"weights must have one entry a basis function, {len(basis)}; got {len(weights)}")
    return (mu_q + (basis @ weights) / g_q).mean()


def influence_values(
    y: Any,
    t: Any,
    z: Any,
    mu: Any,
    g: Any,
    mu_query: Any,
    psi: float,
    t0: float,
    z0: float,
    *,
    atol: float = 1e-9,
) -> Tensor:
    r"""Influence function of a dose response at (t0, z0), for an exposure with atoms.

    .. math:: \varphi_i = \frac{1\{t_i = t_0,\, z_i = z_0\}}{\hat g_i} (y_i - \hat\mu_i) + \hat\mu(t_0, z_0, x_i) - \psi

    Parameters
    ----------
    y, t, z, mu, g : Tensor or array_like, shape (n,)
        As for `fit_perturbation`.
    mu_query : Tensor or array_like, shape (n,)
        Fitted outcome of every unit at (t0, z0).
    psi : float
        The value of the dose response, or an estimate of it.
    t0, z0 : float
        The point: 0 or 1, and a share in [0, 1].
    atol : float, default 1e-9
        Two exposures closer than this are the same atom.

    Returns
    -------
    Tensor, shape (n,)
        In the unit of `y`.

    Raises
    ------
    ValueError
        A bad argument; the message names it and its range.

    Notes
    -----
    Source: eq-networked_interference-influence.
    """
    y, t, z, mu, g = _arrays(y, t, z, mu, g)
    mu_query = check.vector("mu_query", mu_query, len(y), y).to(y)
    if check.number("atol", atol) < 0:
        raise ValueError(f"atol must be zero or positive; got {atol!r}")
    hit = (t == check.arm("t0", t0)) & ((z - check.level("z0", z0)).abs() <= atol)
    return hit / g * (y - mu) + mu_query - check.single("psi", psi, y)


def projected_equations(
    y: Any,
    t: Any,
    z: Any,
    mu: Any,
    g: Any,
    weights: tuple[Any, Any],
    knots: Sequence[float],
    degree: int = 2,
) -> Tensor:
    r"""The influence-function equations in every spline direction; zero after targeting.

    .. math:: \frac1n \sum_i 1\{t_i = a\} \frac{B_k(z_i)}{\hat g_i} \bigl(y_i - \hat\mu_i - B(z_i) w_a / \hat g_i\bigr)

    Parameters
    ----------
    y, t, z, mu, g, knots, degree
        As for `fit_perturbation`.
    weights : (Tensor, Tensor), shapes (K,) and (K,)
        Weights of the treated arm, then of the control arm.

    Returns
    -------
    Tensor, shape (2, K)
        Row 0 for the treated arm, row 1 for the control arm, in the unit of `y`.

    Notes
    -----
    Source: eq-networked_interference-condition; minus half the gradient of the targeted loss.
    """
    y, t, z, mu, g = _arrays(y, t, z, mu, g)
    design = truncated_power_basis(z, knots, degree) / g[:, None]
    rows = []
    for arm, w in zip((1, 0), weights, strict=True):
        residual = y - mu - design @ torch.as_tensor(w).to(y)
        rows.append(((t == arm) * residual) @ design / len(y))
    return torch.stack(rows)


def _arrays(y: Any, t: Any, z: Any, mu: Any, g: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    y = check.vector("y", y)
    n = len(y)
    t = check.binary("t", t, n, y).to(y.device)
    z = check.share("z", check.vector("z", z, n, y)).to(y)
    mu = check.vector("mu", mu, n, y).to(y)
    g = check.positive("g", check.vector("g", g, n, y)).to(y)
    return y, t, z, mu, g
