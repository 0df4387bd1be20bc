r"""Drawing from a trained mixture: geodesic random walk, or the deterministic flow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .bridges import check_count, check_rows
from .manifolds import Manifold
from .schedules import LinearSchedule

__all__ = ["sample"]

MODES = ("sde", "ode")


@torch.no_grad()
def sample(
    model_f: Callable[[Tensor, Tensor], Tensor],
    manifold: Manifold,
    schedule: LinearSchedule,
    x0: Tensor,
    *,
    model_b: Callable[[Tensor, Tensor], Tensor] | None = None,
    n_steps: int = 100,
    eps: float = 1e-3,
    mode: str = "sde",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Carry points of the prior to the data's end.

    .. math::
        \text{sde:}\quad &x \leftarrow \exp_x\bigl(f(x,t)h + \sqrt{\beta(t)h}\,n\bigr), \\
        \text{ode:}\quad &x \leftarrow \exp_x\bigl(\tfrac12[f(x,t) - b(x,T-t)]\,h\bigr)

    Parameters
    ----------
    model_f : callable
        Forward drift of (n, D) points and (n,) times.
    manifold : Manifold
    schedule : LinearSchedule
    x0 : Tensor, shape (n, D)
        Points of the prior.
    model_b : callable, optional
        Backward drift; needed by "ode".
    n_steps : int, default 100
    eps : float, default 1e-3
        The walk stops at ``T - eps``.
    mode : {"sde", "ode"}
    generator : torch.Generator, optional

    Returns
    -------
    Tensor, shape (n, D)
        On the manifold, dtype of `x0`.

    Raises
    ------
    ValueError
        Unknown mode, "ode" without `model_b`, ``n_steps < 1``, `eps` outside [0, T), wrong shape.

    Notes
    -----
    eq-riemannian_mixture-mixture (sde) and eq-riemannian_mixture-flow (ode).
    """
    check_rows(manifold, x0, "x0")
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; expected one of {list(MODES)}")
    if mode == "ode" and model_b is None:
        raise ValueError('mode="ode" needs both drifts: give model_b')
    n_steps = check_count("n_steps", n_steps)
    if not 0 <= eps < schedule.T:
        raise ValueError(f"eps must lie in [0, T) = [0, {schedule.T:g}), got {eps!r}")
    h = (schedule.T - eps) / n_steps
    x = x0
    for i in range(n_steps):
        t = x.new_full((len(x),), i * h)
        step = model_f(x, t) * h
        if mode == "sde":
            spread = (schedule.beta(i * h) * h) ** 0.5
            step = step + spread * manifold.random_normal_tangent(x, generator=generator)
        else:
            step = 0.5 * (step - model_b(x, schedule.T - t) * h)
        x = manifold.tidy(manifold.exp(x, step))
    return x
