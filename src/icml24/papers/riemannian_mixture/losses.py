r"""Two-way bridge matching: the loss whose minimisers are the two mixture drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .bridges import bridge_direction, check_options, check_rows, times_of
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
        As for `two_way_sample`.

    Returns
    -------
    (total, forward, backward) : three scalars
        Means over the batch; ``total = forward + backward``.

    Raises
    ------
    ValueError
        Unknown names, shapes that do not fit, or times at 0 or T: the targets are infinite there. So
        :math:`\beta_f = 0` with "inverse" never divides by zero.

    Notes
    -----
    eq-riemannian_mixture-loss. Gradients reach the models only.
    """
    _check_weighting(weighting)
    check_options(kind, **spectral_kw)
    for name, rows in (("x0", x0), ("x1", x1), ("xt", xt)):
        check_rows(manifold, rows, name)
        if rows.shape != xt.shape:
            raise ValueError(
                f"{name} and xt must have one shape, got {tuple(rows.shape)} and {tuple(xt.shape)}"
            )
    T, t = schedule.T, times_of(t, xt)
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
    _check_weighting(weighting)
    u = torch.rand(n, generator=generator, dtype=dtype)
    if weighting == "importance":
        return schedule.importance_time(u, eps)
    return eps + u * (schedule.T - 2 * eps)


def _weight(schedule: LinearSchedule, t: Tensor, weighting: str, eps: float) -> Tensor:
    if weighting == "importance":
        return t.new_tensor(schedule.inv_beta_integral(eps, schedule.T - eps))
    return 1 / schedule.beta(t)


def _check_weighting(weighting: str) -> None:
    if weighting not in WEIGHTINGS:
        raise ValueError(f"unknown weighting {weighting!r}; expected one of {list(WEIGHTINGS)}")
