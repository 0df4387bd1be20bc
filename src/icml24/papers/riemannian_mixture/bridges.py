r"""Bridges to a given point and the two-way simulation of their marginals.

The logarithm bridge moves along the geodesic to its end (eq-riemannian_mixture-endpoint), the
spectral bridge down a spectral distance (eq-riemannian_mixture-spectral). Training needs neither
the heat kernel nor a divergence, only these directions and a handful of steps.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from .manifolds import Manifold, draw_normal
from .meshes import Mesh
from .schedules import LinearSchedule

__all__ = [
    "bridge_direction",
    "bridge_drift",
    "spectral_direction",
    "spectral_sqdist",
    "spectral_weights",
    "two_way_sample",
]

KINDS = ("log", "spectral")
GRIDS = ("left", "linspace")
WEIGHTS = ("biharmonic", "diffusion")
_CLAMP = 1e-20  # of the squared gradient: D^2 is flat at its minimum and at its other stationary points


def spectral_weights(lam: Tensor, weight: str = "biharmonic", tau: float = 0.25) -> Tensor:
    r"""Weights of the eigenfunctions in a spectral distance.

    Parameters
    ----------
    lam : Tensor, shape (K,)
        Positive eigenvalues of :math:`-\Delta`.
    weight : {"biharmonic", "diffusion"}
        :math:`\lambda^{-2}` or :math:`e^{-2\tau\lambda}`.
    tau : float, default 0.25
        Diffusion time; used by "diffusion" only.

    Returns
    -------
    Tensor, shape (K,)

    Raises
    ------
    ValueError
        Unknown `weight`.
    """
    _check_name("weight", weight, WEIGHTS)
    return lam**-2 if weight == "biharmonic" else torch.exp(-2 * tau * lam)


def spectral_sqdist(
    mesh: Mesh, x: Tensor, dest: Tensor, *, weight: str = "biharmonic", tau: float = 0.25
) -> Tensor:
    r"""Squared spectral distance :math:`D^2(x,z) = \sum_i w(\lambda_i)(\varphi_i(x) - \varphi_i(z))^2`; (n,)."""
    w = spectral_weights(mesh.eigenvalues.to(x.dtype), weight, tau)
    return (w * (mesh.eig_fn(x) - mesh.eig_fn(dest)) ** 2).sum(-1)


def spectral_direction(
    mesh: Mesh, x: Tensor, dest: Tensor, *, weight: str = "biharmonic", tau: float = 0.25
) -> Tensor:
    r"""Direction that lowers a spectral distance at unit relative speed.

    .. math:: s(x, z) = -\frac{2D^2\,\nabla D^2}{\lVert\nabla D^2\rVert^2} = -\frac{D\,\nabla D}{\lVert\nabla D\rVert^2}

    Parameters
    ----------
    mesh : Mesh
    x, dest : Tensor, shape (n, 3)
        Points of the mesh.
    weight, tau
        As for `spectral_weights`.

    Returns
    -------
    Tensor, shape (n, 3)
        In the plane of the face of `x`; ``<s, grad D> = -D``.

    Raises
    ------
    TypeError
        `mesh` is not a `Mesh`.
    ValueError
        Unknown `weight`.
    """
    _check_mesh(mesh)
    point, face = mesh.closest_point(x)
    w = spectral_weights(mesh.eigenvalues.to(x.dtype), weight, tau)
    return _spectral_step(mesh, point, face, mesh.eig_fn(dest), w)


def bridge_direction(
    manifold: Manifold,
    x: Tensor,
    dest: Tensor,
    *,
    kind: str = "log",
    weight: str = "biharmonic",
    tau: float = 0.25,
) -> Tensor:
    """Return what a bridge's rate multiplies: ``log_x(dest)`` or the spectral direction; (n, D)."""
    check_options(kind, weight=weight, tau=tau)
    if kind == "log":
        return manifold.log(x, dest)
    return spectral_direction(_check_mesh(manifold), x, dest, weight=weight, tau=tau)


def bridge_drift(
    manifold: Manifold,
    x: Tensor,
    dest: Tensor,
    t: Tensor,
    schedule: LinearSchedule,
    *,
    kind: str = "log",
    weight: str = "biharmonic",
    tau: float = 0.25,
) -> Tensor:
    r"""Drift :math:`\frac{\beta(t)}{\tau(t,T)}\,\log_x(z)` of the bridge that ends at `dest`.

    Parameters
    ----------
    manifold : Manifold
    x, dest : Tensor, shape (n, D)
    t : Tensor, shape (n,)
        Times in [0, T); a number is taken for all rows.
    schedule : LinearSchedule
    kind : {"log", "spectral"}
    weight, tau
        As for `spectral_weights`; used by "spectral" only, checked always.

    Returns
    -------
    Tensor, shape (n, D)

    Raises
    ------
    ValueError
        Unknown `kind` or `weight`, shapes that do not fit.
    TypeError
        "spectral" on a manifold that is no `Mesh`.
    NotImplementedError
        "log" on a `Mesh`.

    Notes
    -----
    eq-riemannian_mixture-bridge.
    """
    check_rows(manifold, x, "x")
    check_rows(manifold, dest, "dest")
    direction = bridge_direction(manifold, x, dest, kind=kind, weight=weight, tau=tau)
    return schedule.rate(times_of(t, x)).unsqueeze(-1) * direction


@torch.no_grad()
def two_way_sample(
    manifold: Manifold,
    x0: Tensor,
    x1: Tensor,
    t: Tensor,
    schedule: LinearSchedule,
    *,
    n_steps: int = 15,
    noise: Tensor | None = None,
    generator: torch.Generator | None = None,
    grid: str = "left",
    kind: str = "log",
    **spectral_kw: Any,
) -> Tensor:
    r"""Draw :math:`X_t` of each bridge by a geodesic random walk from the nearer end.

    Rows with ``t < T/2`` start at `x0` and are pulled to `x1`; the others start at `x1`, run the
    reversed schedule for ``T - t`` and are pulled to `x0`.

    Parameters
    ----------
    manifold : Manifold
    x0, x1 : Tensor, shape (n, D)
        Ends of the bridges at times 0 and T.
    t : Tensor, shape (n,)
        Times in [0, T].
    schedule : LinearSchedule
    n_steps : int, default 15
        Steps of every walk, whatever its length.
    noise : Tensor, shape (n_steps, n, noise_dim), optional
        Standard normals to use instead of drawing them.
    generator : torch.Generator, optional
    grid : {"left", "linspace"}
        "left": step `i` uses the time ``i h`` (Euler-Maruyama). "linspace": the times are
        spread over both ends although the step stays ``h``; what the released code does.
    kind : {"log", "spectral"}
    **spectral_kw
        `weight` and `tau`, as for `spectral_weights`; used by "spectral" only, checked always.

    Returns
    -------
    Tensor, shape (n, D)
        Points of the manifold; no gradient.

    Raises
    ------
    ValueError
        Shapes that do not fit, times outside [0, T], ``n_steps < 1``, unknown names.
    TypeError
        "spectral" on a manifold that is no `Mesh`; unknown options.
    """
    check_options(kind, **spectral_kw)
    _check_name("grid", grid, GRIDS)
    n_steps = check_count("n_steps", n_steps)
    check_rows(manifold, x0, "x0")
    check_rows(manifold, x1, "x1")
    if x0.shape != x1.shape:
        raise ValueError(f"x0 and x1 must have one shape, got {tuple(x0.shape)} and {tuple(x1.shape)}")
    n = len(x0)
    t = times_of(t, x0)
    if not bool(((t >= 0) & (t <= schedule.T)).all()):
        raise ValueError(
            f"t must lie in [0, T] = [0, {schedule.T:g}], got values from {t.min():g} to {t.max():g}"
        )
    shape = (n_steps, n, manifold.noise_dim)
    if noise is None:
        noise = draw_normal(shape, x0, generator)
    elif tuple(noise.shape) != shape:
        raise ValueError(f"noise must have shape (n_steps, n, noise_dim) = {shape}, got {tuple(noise.shape)}")
    noise = noise.to(x0.dtype)
    forward = t < schedule.T / 2
    mask = forward.unsqueeze(-1)
    start, dest = torch.where(mask, x0, x1), torch.where(mask, x1, x0)
    pull, spread = _step_tables(schedule, forward, t, n_steps, grid)
    if kind == "spectral":
        return _walk_on_mesh(_check_mesh(manifold), start, dest, pull, noise * spread, **spectral_kw)
    x = start
    for i in range(n_steps):
        step = torch.addcmul(manifold.tangent_noise(x, noise[i]) * spread[i], pull[i], manifold.log(x, dest))
        x = manifold.exp(x, step)
    return manifold.tidy(x)


def check_rows(manifold: Manifold, x: Tensor, name: str) -> None:
    """Raise a ValueError with both sizes unless `x` has shape (n, D)."""
    if x.ndim != 2 or x.shape[-1] != manifold.ambient_dim:
        raise ValueError(
            f"{name} must have shape (n, {manifold.ambient_dim}) on {manifold!r}; its last dimension is "
            f"{x.shape[-1] if x.ndim else 'missing'}, expected {manifold.ambient_dim} (got shape {tuple(x.shape)})"
        )


def check_options(kind: str, **spectral_kw: Any) -> None:
    """Refuse unknown options of a bridge (TypeError), unknown names and negative diffusion times (ValueError)."""
    _check_name("kind", kind, KINDS)
    if unknown := sorted(spectral_kw.keys() - {"weight", "tau"}):
        raise TypeError(f"unknown options {unknown}; a bridge takes weight and tau")
    _check_name("weight", spectral_kw.get("weight", WEIGHTS[0]), WEIGHTS)
    if not spectral_kw.get("tau", 0.0) >= 0:
        raise ValueError(f"tau must not be negative, got {spectral_kw['tau']!r}")


def check_count(name: str, value: SupportsIndex) -> int:
    """Return a number of steps as an int, or raise a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < 1:
        raise ValueError(f"{name} must be at least 1 (an integer), got {value!r}")
    return operator.index(value)


def times_of(t: Tensor | float, x: Tensor) -> Tensor:
    """Times for the rows of `x`, shape (n,), with its dtype; a number is taken for all rows."""
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    if t.ndim == 0 or t.shape == (1,):
        return t.expand(len(x))
    if t.shape != (len(x),):
        raise ValueError(f"t must have shape (n,) = ({len(x)},) or be a number, got shape {tuple(t.shape)}")
    return t


def _step_tables(
    schedule: LinearSchedule, forward: Tensor, t: Tensor, n_steps: int, grid: str
) -> tuple[Tensor, Tensor]:
    """Per step and row: rate times step, and standard deviation of the noise; each (N, n, 1)."""
    T = schedule.T
    b0, bf = t.new_tensor(schedule.beta_0), t.new_tensor(schedule.beta_f)
    first, last = torch.where(forward, b0, bf), torch.where(forward, bf, b0)
    end = torch.where(forward, t, T - t)
    h = end / n_steps
    if grid == "left":
        share = torch.arange(n_steps, dtype=t.dtype, device=t.device) / n_steps
    else:
        share = torch.linspace(0, 1, n_steps, dtype=t.dtype, device=t.device)
    s = share.unsqueeze(-1) * end
    beta = first + (last - first) * (s / T)
    rate = 2 * beta / ((beta + last) * (T - s))  # s <= T/2: neither factor below vanishes
    return (rate * h).unsqueeze(-1), (beta * h).sqrt().unsqueeze(-1)


def _walk_on_mesh(
    mesh: Mesh,
    start: Tensor,
    dest: Tensor,
    pull: Tensor,
    scaled_noise: Tensor,
    *,
    weight: str = "biharmonic",
    tau: float = 0.25,
) -> Tensor:
    w = spectral_weights(mesh.eigenvalues.to(start.dtype), weight, tau)
    target = mesh.eig_fn(dest)  # once a trajectory
    x, face = mesh.closest_point(start)
    for i in range(len(pull)):
        step = pull[i] * _spectral_step(mesh, x, face, target, w) + mesh.in_plane(scaled_noise[i], face)
        x, face = mesh.closest_point(x + step)  # the one search of this step
    return x


def _spectral_step(mesh: Mesh, x: Tensor, face: Tensor, target: Tensor, w: Tensor) -> Tensor:
    gap = mesh.eigenfunctions_at(x, face) - target
    weighted = w * gap
    square = (weighted * gap).sum(-1, keepdim=True)
    gradient = 2 * mesh.gradient_of(weighted, face)
    return -2 * square * gradient / (gradient * gradient).sum(-1, keepdim=True).clamp_min(_CLAMP)


def _check_name(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {field} {value!r}; expected one of {list(allowed)}")


def _check_mesh(manifold: Manifold) -> Mesh:
    if not isinstance(manifold, Mesh):
        raise TypeError(f"the spectral bridge needs a Mesh, got {manifold!r}; elsewhere use kind='log'")
    return manifold
