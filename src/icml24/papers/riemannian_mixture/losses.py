r"""Two-way bridge matching: the loss whose minimisers are the two mixture drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .bridges import KINDS, bridge_direction, check_rows
from .manifolds import Manifold
from .schedules import LinearSchedule

__all__ = ["bridge_matching_loss", "draw_times"]

WEIGHTINGS = ("inverse", "importance")
Drift = Callable[[Tensor, Tensor], Tensor]


def bridge_matching_loss(
    model_f: Drift,
    model_b: Drift,
    manifold: Manifold,
    schedule: LinearSchedule,
    x0: Tensor,
    x1: Tensor,
    t: Tensor,
    xt: Tensor,
    *,
    weighting: str = "inverse",
    eps: float = 1e-3,
    kind: str = "log",
    **spectral_kw: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Weighted squared distance of two drifts to the drifts of the bridges drawn.

    .. math::
        \tfrac12 w(t)\Bigl[\bigl\lVert f(X_t,t) - \tfrac{\beta(t)}{\tau(t,T)}\log_{X_t}x_1\bigr\rVert^2
        + \bigl\lVert b(X_t,T-t) - \tfrac{\beta(t)}{\tau(0,t)}\log_{X_t}x_0\bigr\rVert^2\Bigr]

    Parameters
    ----------
    model_f, model_b : callable
        Functions of (n, D) points and (n,) times; `model_b` is given the *reverse* time ``T - t``.
    manifold : Manifold
    schedule : LinearSchedule
    x0, x1, xt : Tensor, shape (n, D)
        Ends of the bridges and their points at time `t`, from `two_way_sample`.
    t : Tensor, shape (n,)
        Strictly inside (0, T).
    weighting : {"inverse", "importance"}
        "inverse": :math:`w = 1/\beta(t)`, for uniform times. "importance":
        :math:`w = \int_\epsilon^{T-\epsilon}1/\beta`, for times from `importance_time`.
    eps : float, default 1e-3
        Ends left out; enters the constant of "importance" only.
    kind, **spectral_kw
        As for `bridge_drift`.

    Returns
    -------
    (total, forward, backward) : three scalars
        Means over the batch; ``total = forward + backward``.

    Raises
    ------
    ValueError
        Unknown names, shapes that do not fit, times at 0 or T (the targets are infinite there), or
        :math:`\beta(t) = 0` with "inverse".

    Notes
    -----
    eq-riemannian_mixture-loss. Gradients reach the models only.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"unknown weighting {weighting!r}; expected one of {list(WEIGHTINGS)}")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; expected one of {list(KINDS)}")
    for name, rows in (("x0", x0), ("x1", x1), ("xt", xt)):
        check_rows(manifold, rows, name)
    T = schedule.T
    t = torch.as_tensor(t, dtype=xt.dtype, device=xt.device).expand(len(xt))
    if not bool(((t > 0) & (t < T)).all()):
        raise ValueError(
            f"t must lie strictly inside (0, T) = (0, {T:g}): the targets are infinite at the ends"
        )
    with torch.no_grad():
        to_end = bridge_direction(manifold, xt, x1, kind=kind, **spectral_kw)
        to_start = bridge_direction(manifold, xt, x0, kind=kind, **spectral_kw)
        target_f = schedule.rate(t).unsqueeze(-1) * to_end
        target_b = schedule.reverse().rate(T - t).unsqueeze(-1) * to_start
        weight = _weight(schedule, t, weighting, eps)
    losses = []
    for model, time, target in ((model_f, t, target_f), (model_b, T - t, target_b)):
        gap = model(xt, time) - target
        losses.append((0.5 * weight * manifold.inner(xt, gap, gap)).mean())
    return losses[0] + losses[1], losses[0], losses[1]


def draw_times(
    schedule: LinearSchedule,
    n: int,
    *,
    weighting: str = "inverse",
    eps: float = 1e-3,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw the times that go with a weighting; (n,), in [eps, T - eps]."""
    u = torch.rand(n, generator=generator, dtype=dtype)
    if weighting == "importance":
        return schedule.importance_time(u, eps)
    return eps + u * (schedule.T - 2 * eps)


def _weight(schedule: LinearSchedule, t: Tensor, weighting: str, eps: float) -> Tensor:
    if weighting == "importance":
        return t.new_tensor(schedule.inv_beta_integral(eps, schedule.T - eps))
    beta = schedule.beta(t)
    if not bool((beta > 0).all()):
        raise ValueError(
            'weighting="inverse" divides by beta(t), which is zero here: use "importance" or beta_f > 0'
        )
    return 1 / beta
