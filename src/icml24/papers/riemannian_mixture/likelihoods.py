r"""Likelihoods: the probability flow of the two drifts, and divergences of tangent fields.

eq-riemannian_mixture-flow gives the velocity, eq-riemannian_mixture-likelihood the change of
log density along it, eq-riemannian_mixture-divergence the divergence from ambient derivatives.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .bridges import check_count, check_rows, times_of
from .manifolds import Euclidean, Manifold
from .meshes import Mesh
from .schedules import LinearSchedule

__all__ = ["divergence", "flow_log_likelihood", "log_likelihood", "pf_ode_drift", "value_and_divergence"]

METHODS = ("rk4", "euler")
EXACT_UP_TO = 12  # ambient numbers; above it one random probe a sample replaces the trace
Drift = Callable[[Tensor, Tensor], Tensor]


def pf_ode_drift(model_f: Drift, model_b: Drift, T: float = 1.0) -> Drift:
    r"""Velocity of the probability flow from data to prior.

    .. math:: v(y,s) = \tfrac12\bigl[b(y,s) - f(y,T-s)\bigr]

    Parameters
    ----------
    model_f, model_b : callable
        Drifts as in `bridge_matching_loss`.
    T : float, default 1.0

    Returns
    -------
    callable
        ``v(y, s)`` with y (n, D) and s (n,) or a number, the time *since the data*.
    """

    def velocity(y: Tensor, s: Tensor) -> Tensor:
        s = torch.as_tensor(s, dtype=y.dtype, device=y.device)
        return 0.5 * (model_b(y, s) - model_f(y, T - s))

    return velocity


def divergence(manifold: Manifold, fn: Drift, x: Tensor, t: Tensor, *, probe: Tensor | None = None) -> Tensor:
    r"""Riemannian divergence of a tangent field from its ambient derivatives.

    .. math:: \operatorname{div}v(x) = \operatorname{tr}\,D(v\circ\pi)(x)

    with :math:`\pi` the manifold's `smooth_project`, whose differential is orthogonal.

    Parameters
    ----------
    manifold : Manifold
    fn : callable
        ``fn(x, t)`` with x (n, D) and t (n,) returns tangent vectors, (n, D); row i depends on
        row i alone. It is called once with the whole batch.
    x : Tensor, shape (n, D)
    t : Tensor, shape (n,), or a number
    probe : Tensor, shape (n, D), optional
        Hutchinson's estimate :math:`\langle\epsilon, D(v\circ\pi)\,\epsilon\rangle` with this
        probe instead of the exact trace.

    Returns
    -------
    Tensor, shape (n,)
        Detached.

    Raises
    ------
    ValueError
        Wrong shapes.

    Notes
    -----
    eq-riemannian_mixture-divergence. **On a** `Mesh` the result is that of each face alone and is
    biased: the field turns where it crosses an edge, and no derivative inside a face sees it.
    """
    return value_and_divergence(manifold, fn, x, t, probe)[1]


def log_likelihood(
    model_f: Drift,
    model_b: Drift,
    manifold: Manifold,
    schedule: LinearSchedule,
    x: Tensor,
    *,
    prior_log_prob: Callable[[Tensor], Tensor] | None = None,
    n_steps: int = 100,
    eps: float = 1e-3,
    method: str = "rk4",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Log density of the trained model at given points, by the probability-flow equation.

    .. math:: \log p(x) = \log\Gamma(y_{T-\epsilon}) + \int_0^{T-\epsilon}\operatorname{div}v(y_s,s)\,ds,\qquad
        \dot y = v(y,s),\ y_0 = x

    Parameters
    ----------
    model_f, model_b : callable
    manifold : Manifold
    schedule : LinearSchedule
    x : Tensor, shape (n, D)
    prior_log_prob : callable, optional
        Log density of the prior at (n, D) points, shape (n,). Default: the uniform law.
    n_steps : int, default 100
        Steps of fixed size.
    eps : float, default 1e-3
        Left out before the prior's end.
    method : {"rk4", "euler"}
    generator : torch.Generator, optional
        Source of the probes used above 12 ambient numbers; default: a generator of its own with
        seed 0, so that the result is a function of its arguments.

    Returns
    -------
    Tensor, shape (n,)
        Nats with respect to the Riemannian volume.

    Raises
    ------
    ValueError
        Wrong last dimension, unknown method, ``n_steps < 1``, `eps` outside [0, T), or no prior
        on a manifold without uniform law.
    """
    if not 0 <= eps < schedule.T:
        raise ValueError(f"eps must lie in [0, T) = [0, {schedule.T:g}), got {eps!r}")
    velocity = pf_ode_drift(model_f, model_b, schedule.T)
    return flow_log_likelihood(
        velocity,
        manifold,
        x,
        span=(0.0, schedule.T - eps),
        prior_log_prob=prior_log_prob,
        n_steps=n_steps,
        method=method,
        generator=generator,
    )[0]


def flow_log_likelihood(
    velocity: Drift,
    manifold: Manifold,
    x: Tensor,
    *,
    span: tuple[float, float] = (0.0, 1.0),
    prior_log_prob: Callable[[Tensor], Tensor] | None = None,
    n_steps: int = 100,
    method: str = "rk4",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Log density pulled back along any flow from data to prior, and where the flow ends.

    Parameters
    ----------
    velocity : callable
        ``v(y, s)``; tangent.
    span : (float, float)
        First and last time.
    others
        As for `log_likelihood`.

    Returns
    -------
    (log density, end point) : shapes (n,) and (n, D)

    Notes
    -----
    Points are projected before every evaluation and after every step.
    """
    check_rows(manifold, x, "x")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; expected one of {list(METHODS)}")
    n_steps = check_count("n_steps", n_steps)
    if prior_log_prob is None:
        if not hasattr(manifold, "log_volume"):
            raise ValueError(f"{manifold!r} has no uniform law: give prior_log_prob")
        log_volume = manifold.log_volume
    probe = _probe(x, generator) if manifold.ambient_dim > EXACT_UP_TO else None
    start, stop = span
    h = (stop - start) / n_steps
    y, change = manifold.smooth_project(x.detach()), x.new_zeros(len(x))

    def rates(y: Tensor, s: float) -> tuple[Tensor, Tensor]:
        return value_and_divergence(manifold, velocity, manifold.smooth_project(y), s, probe)

    for i in range(n_steps):
        s = start + i * h
        v1, d1 = rates(y, s)
        if method == "euler":
            dy, dl = v1, d1
        else:
            v2, d2 = rates(y + h / 2 * v1, s + h / 2)
            v3, d3 = rates(y + h / 2 * v2, s + h / 2)
            v4, d4 = rates(y + h * v3, s + h)
            dy, dl = (v1 + 2 * v2 + 2 * v3 + v4) / 6, (d1 + 2 * d2 + 2 * d3 + d4) / 6
        y = manifold.project(y + h * dy).detach()
        change = change + h * dl
    prior = prior_log_prob(y) if prior_log_prob is not None else torch.full_like(change, -log_volume)
    return (prior + change).detach(), y


def value_and_divergence(
    manifold: Manifold, fn: Drift, x: Tensor, t: Tensor | float, probe: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Field and divergence from one evaluation, (n, D) and (n,), both detached; see `divergence`."""
    check_rows(manifold, x, "x")
    if probe is not None and probe.shape != x.shape:
        raise ValueError(f"probe must have the shape of x, {tuple(x.shape)}, got {tuple(probe.shape)}")
    with torch.inference_mode(False), torch.enable_grad():
        y = x.detach().clone().requires_grad_(True)
        t = times_of(torch.as_tensor(t, dtype=x.dtype, device=x.device).clone(), x)
        probe = None if probe is None else probe.clone()
        value = fn(manifold.smooth_project(y), t)
        if not value.requires_grad:  # a field that does not depend on the point, such as zero
            constant_is_tangent = isinstance(manifold, Euclidean | Mesh)
            if bool(value.any()) and not constant_is_tangent:
                raise ValueError(
                    "fn returned a field without a graph (no_grad or detach inside?): its divergence is unknown; "
                    "let fn be differentiable in the point"
                )
            return value.detach(), x.new_zeros(len(x))
        if probe is not None:
            (row,) = torch.autograd.grad((value * probe).sum(), y, allow_unused=True)
            trace = x.new_zeros(len(x)) if row is None else (row * probe).sum(-1)
            return value.detach(), trace.detach()
        trace = x.new_zeros(len(x))
        last = x.shape[-1] - 1
        for i in range(last + 1):
            (row,) = torch.autograd.grad(value[:, i].sum(), y, retain_graph=i < last, allow_unused=True)
            if row is not None:
                trace = trace + row[:, i]
    return value.detach(), trace.detach()


def _probe(x: Tensor, generator: torch.Generator | None) -> Tensor:
    generator = generator or torch.Generator(device=x.device).manual_seed(0)
    bits = torch.randint(0, 2, x.shape, generator=generator, device=x.device)
    return 2 * bits.to(x.dtype) - 1
