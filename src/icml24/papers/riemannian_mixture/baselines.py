r"""The methods the mixture is compared with: Riemannian flow matching and score matching.

Riemannian flow matching (RFM) regresses the velocity of geodesics; nothing is simulated where
geodesics are closed. The Riemannian score-based model (RSGM) noises the data with a simulated
Brownian motion and regresses the score of the heat kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .bridges import check_count, check_rows, times_of
from .manifolds import Manifold, Sphere, Torus, draw_normal
from .schedules import LinearSchedule

__all__ = [
    "brownian_walk",
    "rfm_loss",
    "rfm_velocity",
    "rsgm_loss",
    "rsgm_velocity",
    "sphere_log_heat_kernel",
]

Drift = Callable[[Tensor, Tensor], Tensor]
SERIES_FROM = 0.5  # clock time from which the heat-kernel series replaces Varadhan's limit
SERIES_TERMS = 25


def rfm_loss(model: Drift, manifold: Manifold, x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    r"""Riemannian flow matching along geodesics.

    .. math:: \mathbb E\bigl\lVert u(x_t,t) - \tfrac{\log_{x_t}x_1}{1-t}\bigr\rVert^2,\qquad
        x_t = \exp_{x_0}(t\log_{x_0}x_1)

    Parameters
    ----------
    model : callable
        Velocity from prior to data, of (n, D) points and (n,) times.
    manifold : Manifold
        With a logarithm.
    x0, x1 : Tensor, shape (n, D)
    t : Tensor, shape (n,)
        Times in [0, 1); usual: uniform on [0.001, 0.999].

    Returns
    -------
    Tensor, scalar
    """
    check_rows(manifold, x0, "x0")
    check_rows(manifold, x1, "x1")
    with torch.no_grad():
        column = times_of(t, x0).unsqueeze(-1)
        xt = manifold.exp(x0, column * manifold.log(x0, x1))
        target = manifold.log(xt, x1) / (1 - column)
    gap = model(xt, column.squeeze(-1)) - target
    return manifold.inner(xt, gap, gap).mean()


def rfm_velocity(model: Drift) -> Drift:
    """Velocity from data to prior, ``v(y, s) = -u(y, 1 - s)``, for `flow_log_likelihood`."""
    return lambda y, s: -model(y, 1 - torch.as_tensor(s, dtype=y.dtype, device=y.device))


def rsgm_loss(
    model: Drift,
    manifold: Manifold,
    schedule: LinearSchedule,
    x1: Tensor,
    t: Tensor,
    *,
    n_steps: int = 100,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Denoising score matching with a simulated Brownian motion.

    .. math:: \mathbb E\bigl\lVert m(x_t,t) - \sqrt\tau\,\nabla\log p_\tau(x_t\mid x_1)\bigr\rVert^2,\quad
        \tau = \tau(0,t)

    Parameters
    ----------
    model : callable
        Predicts :math:`\sqrt\tau` times the score; the loss weight is then :math:`\tau`.
    manifold : Manifold
        `Sphere` of dimension 2 or `Torus` when some :math:`\tau\ge\tfrac12`: their heat kernels are
        known; below that Varadhan's :math:`\log_{x_t}(x_1)/\tau` serves on every manifold.
    schedule : LinearSchedule
        Usual: 0.001 to 6.
    x1 : Tensor, shape (n, D)
        Data.
    t : Tensor, shape (n,)
        Times since the data, in (0, T].
    n_steps : int, default 100
        Steps of the walk.
    generator : torch.Generator, optional

    Returns
    -------
    Tensor, scalar
    """
    check_rows(manifold, x1, "x1")
    t = times_of(t, x1)
    clock = schedule.integral(torch.zeros_like(t), t)
    xt = brownian_walk(manifold, x1, clock, n_steps=n_steps, generator=generator)
    with torch.no_grad():
        target = clock.sqrt().unsqueeze(-1) * _heat_score(manifold, xt, x1, clock)
    gap = model(xt, t) - target
    return manifold.inner(xt, gap, gap).mean()


def rsgm_velocity(model: Drift, schedule: LinearSchedule) -> Drift:
    r"""Probability flow from data to prior, :math:`-\tfrac12\beta(s)\nabla\log p_s`."""

    def velocity(y: Tensor, s: Tensor) -> Tensor:
        s = torch.as_tensor(s, dtype=y.dtype, device=y.device)
        clock = schedule.integral(torch.zeros_like(s), s)
        return (-0.5 * schedule.beta(s) / clock.sqrt()).unsqueeze(-1) * model(y, s)

    return velocity


@torch.no_grad()
def brownian_walk(
    manifold: Manifold,
    x: Tensor,
    clock: Tensor,
    *,
    n_steps: int = 100,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Geodesic random walk from `x` whose total variance a direction is `clock`, (n,)."""
    n_steps = check_count("n_steps", n_steps)
    spread = (clock / n_steps).sqrt().unsqueeze(-1)
    for _ in range(n_steps):
        eps = draw_normal((len(x), manifold.noise_dim), x, generator)
        x = manifold.exp(x, spread * manifold.tangent_noise(x, eps))
    return manifold.tidy(x)


def sphere_log_heat_kernel(x: Tensor, y: Tensor, t: Tensor, n_terms: int = 50) -> Tensor:
    r"""Log heat kernel of :math:`S^2`, generator :math:`\tfrac12\Delta`, by its spectral series.

    .. math:: \log\frac1{4\pi}\sum_{n=0}^{N-1}(2n+1)\,e^{-n(n+1)t/2}\,P_n(\langle x,y\rangle)

    Parameters
    ----------
    x, y : Tensor, shape (..., 3)
        Unit rows.
    t : Tensor, shape (...), or float
        Positive times; the smaller, the more terms are needed.
    n_terms : int, default 50
        Number of terms, :math:`N`.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        Rows that are not of length 3, ``n_terms < 1``.

    Notes
    -----
    A truncated series can be negative where the kernel is tiny; it is clamped at the smallest
    normal number, so the result is finite and then wrong. Used by the baseline RSGM and the tests only.
    """
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ValueError(f"expected rows of length 3, got {x.shape[-1]} and {y.shape[-1]}")
    if n_terms < 1:
        raise ValueError(f"n_terms must be at least 1, got {n_terms!r}")
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    z = (x * y).sum(-1)
    before, now = torch.ones_like(z), z
    total = torch.ones_like(z) + 0 * t
    for n in range(1, n_terms):
        total = total + (2 * n + 1) * torch.exp(-n * (n + 1) * t / 2) * now
        before, now = now, ((2 * n + 1) * z * now - n * before) / (n + 1)
    return total.clamp_min(torch.finfo(x.dtype).tiny).log() - math.log(4 * math.pi)


def _heat_score(manifold: Manifold, x: Tensor, y: Tensor, clock: Tensor) -> Tensor:
    score = manifold.log(x, y) / clock.unsqueeze(-1)  # Varadhan: t log p -> -dist^2 / 2
    late = clock >= SERIES_FROM
    if not bool(late.any()):
        return score
    if isinstance(manifold, Torus):
        exact = _torus_score(manifold, x[late], y[late], clock[late])
    elif isinstance(manifold, Sphere) and manifold.dim == 2:
        with torch.enable_grad():
            z = x[late].detach().requires_grad_(True)
            total = sphere_log_heat_kernel(z, y[late], clock[late], SERIES_TERMS).sum()
            (gradient,) = torch.autograd.grad(total, z)
        exact = manifold.to_tangent(x[late], gradient)
    else:
        raise NotImplementedError(
            f"no heat-kernel series for {manifold!r}; keep the clock below {SERIES_FROM} (a smaller beta)"
        )
    score[late] = exact
    return score


def _torus_score(manifold: Torus, x: Tensor, y: Tensor, clock: Tensor) -> Tensor:
    """Score of the wrapped normal, angle by angle, from five images of the centre."""
    angle = manifold.to_angles(x) - manifold.to_angles(y)
    angle = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
    image = angle.unsqueeze(-1) + 2 * math.pi * torch.arange(-2, 3, dtype=x.dtype)
    variance = clock[:, None, None]
    weight = torch.softmax(-(image**2) / (2 * variance), dim=-1)
    turn = -(weight * image / variance).sum(-1)
    c, s = x[..., 0::2], x[..., 1::2]
    return torch.stack((-s * turn, c * turn), dim=-1).flatten(-2)
