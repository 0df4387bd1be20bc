r"""Exact answers on spheres, found without simulation: the radial Fokker-Planck equation.

From a uniform start the law of a logarithm bridge depends on the distance to its end alone, so
one equation on :math:`[0, \pi]` gives the weights of eq-riemannian_mixture-mixture on a circle
or a sphere of any dimension. Used to judge trained drifts and to draw the weights.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.linalg import solve_banded
from torch import Tensor

from .manifolds import Manifold
from .mixtures import mixture_drift
from .schedules import LinearSchedule

__all__ = ["exact_mixture_drift", "radial_density"]


def radial_density(
    dim: int, schedule: LinearSchedule, times: Tensor, *, cells: int = 300, steps: int = 600
) -> tuple[Tensor, Tensor]:
    r"""Density of a logarithm bridge from the uniform law, as a function of the distance to its end.

    .. math:: \partial_tp = \frac1{\sin^{d-1}\rho}\,\partial_\rho\Bigl[\sin^{d-1}\rho\,
        \bigl(\tfrac{\beta(t)}{\tau(t,T)}\,\rho\,p + \tfrac{\beta(t)}2\,\partial_\rho p\bigr)\Bigr]

    Parameters
    ----------
    dim : int
        Dimension of the sphere; 1 for a circle.
    schedule : LinearSchedule
    times : Tensor, shape (m,)
        Increasing, in (0, T).
    cells, steps : int
        Cells in :math:`[0, \pi]`, implicit time steps up to the last time.

    Returns
    -------
    (rho, density) : Tensors, shapes (cells,) and (m, cells), float64
        Cell centres, and densities with respect to the volume of the unit sphere up to a factor.

    Notes
    -----
    Finite volumes with exponentially fitted fluxes (they stay positive however strong the pull)
    and implicit Euler steps.
    """
    centre, rows = _solve(dim, schedule, tuple(float(t) for t in times), cells, steps)
    return torch.from_numpy(centre.copy()), torch.from_numpy(rows.copy())


def exact_mixture_drift(
    manifold: Manifold, x: Tensor, t: float, dests: Tensor, schedule: LinearSchedule
) -> tuple[Tensor, Tensor]:
    r"""Drift of the mixture of logarithm bridges from the uniform law to given points.

    Parameters
    ----------
    manifold : Manifold
        A sphere, or a torus of one angle.
    x : Tensor, shape (n, D)
    t : float
        In (0, T).
    dests : Tensor, shape (m, D)
        End points, all equally likely.
    schedule : LinearSchedule

    Returns
    -------
    (drift, weights) : shapes (n, D) and (n, m)
        Weights sum to one in a row.
    """
    rho, density = radial_density(manifold.dim, schedule, torch.tensor([t], dtype=torch.float64))
    distance = manifold.dist(x.unsqueeze(1), dests.unsqueeze(0)).double()
    weights = torch.from_numpy(np.interp(distance.numpy(), rho.numpy(), density[0].numpy()))
    weights = weights.clamp_min(1e-300)
    weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
    return mixture_drift(manifold, x, x.new_full((len(x),), t), dests, weights, schedule), weights


@lru_cache(maxsize=32)
def _solve(
    dim: int, schedule: LinearSchedule, stops: tuple[float, ...], cells: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    edge = np.linspace(0, np.pi, cells + 1)
    centre, width = (edge[1:] + edge[:-1]) / 2, edge[1]
    area = np.sin(edge[1:-1]) ** (dim - 1)  # of the inner faces; nothing passes the outer ones
    volume = np.sin(centre) ** (dim - 1) * width
    p, out, done = np.ones(cells), [], 0.0
    for stop in stops:
        count = max(1, round(steps * (stop - done) / stops[-1]))
        dt = (stop - done) / count
        for i in range(count):
            t = done + (i + 1) * dt
            p = _implicit_step(p, volume, area, edge[1:-1], width, schedule, t, dt)
        done = stop
        out.append(p.copy())
    return centre, np.array(out)


def _implicit_step(
    p: np.ndarray,
    volume: np.ndarray,
    area: np.ndarray,
    rho: np.ndarray,
    width: float,
    schedule: LinearSchedule,
    t: float,
    dt: float,
) -> np.ndarray:
    diffusion = schedule.beta(t) / 2
    peclet = np.clip(-schedule.rate(t) * rho * width / diffusion, -500, 500)
    # outward flux through a face: diffusion / width * (B(-Pe) p_left - B(Pe) p_right)
    left = area * diffusion / width * _bernoulli(-peclet)
    right = area * diffusion / width * _bernoulli(peclet)
    diagonal = volume.copy()
    diagonal[:-1] += dt * left
    diagonal[1:] += dt * right
    band = np.zeros((3, len(p)))
    band[0, 1:], band[1], band[2, :-1] = -dt * right, diagonal, -dt * left
    return solve_banded((1, 1), band, volume * p)


def _bernoulli(z: np.ndarray) -> np.ndarray:
    small = np.abs(z) < 1e-6
    return np.where(small, 1 - z / 2, z / np.where(small, 1.0, np.expm1(z)))
