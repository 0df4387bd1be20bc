r"""What can be measured on bridges without training: ends, bounds, one-way against two-way.

Part of the chapter's experiments; `experiments` passes these functions on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icml24.common.random import generator as stream

from .bridges import bridge_drift, spectral_direction, two_way_sample
from .manifolds import Manifold, Torus, draw_normal
from .mesh_operators import bumpy_icosphere
from .meshes import Mesh
from .schedules import LinearSchedule

if TYPE_CHECKING:
    from .experiments import Config

__all__ = ["bridge_curves", "bridge_paths", "one_way_path", "spectral_ends", "two_way_errors"]


def spectral_ends(
    config: Config, seed: int, steps: Sequence[int] = (5, 15, 60)
) -> dict[str, dict[int, float]]:
    """Median distance to the end of 64 spectral bridges on the bumpy sphere, by weight and steps."""
    mesh = Mesh(*bumpy_icosphere(2), n_eig=60)
    schedule, out = LinearSchedule(0.2, 0.02), {}
    g = stream(seed, "spectral ends")
    x0, z = (mesh.random_uniform(64, generator=g, dtype=torch.float64) for _ in range(2))
    for weight in ("biharmonic", "diffusion"):
        out[weight] = {}
        for n in steps:
            x = x0
            for i in range(n):
                t = i / n
                step = schedule.rate(t) / n * spectral_direction(mesh, x, z, weight=weight)
                noise = mesh.random_normal_tangent(x, generator=g)
                x = mesh.exp(x, step + math.sqrt(schedule.beta(t) / n) * noise)
            out[weight][n] = float((x - z).norm(dim=1).median())
    return out


def one_way_path(
    manifold: Manifold,
    x0: Tensor,
    z: Tensor,
    schedule: LinearSchedule,
    n_steps: int,
    generator: torch.Generator,
    *,
    until: float | None = None,
    kind: str = "log",
) -> Tensor:
    """Euler-Maruyama path of the bridge from `x0` to `z`: all points, (n_steps + 1, n, D)."""
    end = schedule.T if until is None else until
    h, x, path = end / n_steps, x0, [x0]
    for i in range(n_steps):
        t = x.new_full((len(x),), i * h)
        noise = manifold.tangent_noise(x, draw_normal((len(x), manifold.noise_dim), x, generator))
        step = h * bridge_drift(manifold, x, z, t, schedule, kind=kind)
        x = manifold.exp(x, step + math.sqrt(schedule.beta(i * h) * h) * noise)
        path.append(x)
    return torch.stack(path)


def bridge_curves(
    config: Config, manifolds: dict[str, Manifold], seed: int
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    r"""Mean squared distance to the end over time, from distance 1.2 with :math:`\beta = \tfrac12`.

    Returns, by manifold, (mean, bound, standard error of the mean) at the times k/100.
    """
    schedule, rho0, n_steps = LinearSchedule(0.5, 0.5), 1.2, 100
    s = torch.linspace(0, 1, n_steps + 1, dtype=torch.float64)
    out = {}
    for name, m in manifolds.items():
        g = stream(seed, "curves", name)
        if hasattr(m, "random_uniform"):
            x0 = m.random_uniform(1, generator=g, dtype=torch.float64)
        else:
            x0 = m.origin(s).unsqueeze(0)
        u = m.random_normal_tangent(x0, generator=g)
        z = m.exp(x0, rho0 * u / m.inner(x0, u, u).sqrt().unsqueeze(-1)).expand(config.n_paths, -1)
        path = one_way_path(m, x0.expand(config.n_paths, -1), z, schedule, n_steps, g)
        square = torch.stack([m.dist(x, z) ** 2 for x in path])
        bound = rho0**2 * (1 - s) ** 2 + m.dim * 0.5 * s * (1 - s)
        out[name] = (square.mean(1), bound, square.std(1) / config.n_paths**0.5)
    return out


def bridge_paths(manifold: Manifold, x0: Tensor, z: Tensor, seed: int, *, kind: str = "log") -> Tensor:
    """A few bridges to one end, drawn finely: (steps + 1, n, D)."""
    return one_way_path(manifold, x0, z, LinearSchedule(0.2, 0.02), 150, stream(seed, "paths"), kind=kind)


def two_way_errors(
    config: Config,
    seed: int,
    times: Sequence[float] = (0.55, 0.65, 0.75, 0.85, 0.9, 0.95),
    steps: Sequence[int] = (5, 15),
) -> dict[int, dict[str, list[float]]]:
    r"""Error of :math:`E\,d(X_t, x_1)^2` on T^2 against its exact flat value, one-way and two-way.

    Returns
    -------
    dict
        By number of steps: lists over `times` of the relative error, ``one-way`` and ``two-way``,
        and of the relative standard error of the two-way mean, ``noise``: an error below it is luck.
    """
    m, schedule, n = Torus(2), LinearSchedule(0.2, 0.2), 5 * config.n_paths
    total = schedule.integral(0.0, 1.0)
    g = stream(seed, "two-way")
    x0 = m.from_angles(torch.tensor([[0.3, -0.4]], dtype=torch.float64)).expand(n, -1)
    x1 = m.from_angles(torch.tensor([[-0.5, 0.5]], dtype=torch.float64)).expand(n, -1)
    out: dict[int, dict[str, list[float]]] = {}
    for n_steps in steps:
        rows: dict[str, list[float]] = {"one-way": [], "two-way": [], "noise": []}
        for t in times:
            r = schedule.integral(0.0, t) / total
            exact = float(m.dist(x0[:1], x1[:1]) ** 2) * (1 - r) ** 2 + m.dim * total * r * (1 - r)
            one = one_way_path(m, x0, x1, schedule, n_steps, g, until=t)[-1]
            two = two_way_sample(m, x0, x1, torch.full((n,), t), schedule, n_steps=n_steps, generator=g)
            squares = {"one-way": m.dist(one, x1) ** 2, "two-way": m.dist(two, x1) ** 2}
            for name, square in squares.items():
                rows[name].append(abs(float(square.mean()) - exact) / exact)
            rows["noise"].append(float(squares["two-way"].std()) / n**0.5 / exact)
        out[n_steps] = rows
    return out
