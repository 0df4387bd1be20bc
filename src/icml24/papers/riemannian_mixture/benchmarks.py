r"""Large tori, H^2 and SO(3) in both profiles; in `full` the original earth data and Spot.

Same training loop, same number of optimiser steps for every method in a row of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.common.rotations import so3_exp, so3_log

from . import data
from .experiments import Config, density_map, map_integral
from .hyperboloid import Hyperboloid, wrapped_normal
from .manifolds import Sphere, Torus
from .measures import face_shares, history, nll_rows, off_manifold, paired_gap, total_variation
from .meshes import Mesh
from .rotation_manifold import SO3
from .sampling import sample
from .schedules import LinearSchedule
from .training import Trained, Training, train_mixture, train_rfm, train_rsgm

__all__ = ["EARTH", "earth", "hyperboloid", "rotations", "spot", "steps_on_a_curved_manifold", "tori"]

#: Training of the earth models; the steps are the argument of `earth`.
EARTH = Training(
    steps=1500,
    batch=512,
    hidden=96,
    layers=4,
    act="sin",
    schedule=LinearSchedule(0.1, 0.001),
    weighting="importance",
)
SPOT_STEPS = 450
RSGM_WALK = 30  # steps of the noising walk; the original uses 100


def earth(
    rows: Tensor,
    config: Config,
    seed: int,
    *,
    steps: int,
    seeds: int = 1,
    with_rsgm: bool = False,
    keep: tuple[int, ...] = (),
    with_map: bool = False,
) -> dict[str, object]:
    """Test NLL of mixture, flow matching, (score matching,) kernel density and uniform law on earth data.

    Parameters
    ----------
    rows : Tensor, shape (n, 3)
    config, seed
    steps : int
        Optimiser steps of every method.
    seeds : int
        Training seeds of mixture and flow matching, on one split; the NLL are means over them.
    with_rsgm : bool
        Score matching too, one seed.
    keep : tuple of int
        Steps at which mixture and flow matching are judged on the way (first seed): ``history``.
    with_map : bool
        Whether to return ``map``, its ``integral`` and ``samples`` of the first mixture.
    """
    m, training = Sphere(2), replace(EARTH, steps=steps)
    train, valid, test = data.split(rows, stream(seed, "earth split"))
    draw, prior = data.drawer(train), data.uniform_drawer(m)
    some = range(seed, seed + seeds)
    runs = {
        "mixture": [train_mixture(m, draw, prior, training, s, keep) for s in some],
        "RFM": [train_rfm(m, draw, prior, training, s, keep) for s in some],
    }
    if with_rsgm:
        runs["RSGM"] = [train_rsgm(m, draw, replace(training, n_sim=RSGM_WALK), seed)]
    nll = {name: [nll_rows(run, m, test, config.ode_steps) for run in each] for name, each in runs.items()}
    by_seed = {name: [float(one.mean()) for one in each] for name, each in nll.items()}
    kappa, kde = data.kernel_density(train, valid, test)
    out: dict[str, object] = {name: sum(values) / len(values) for name, values in by_seed.items()}
    out |= {
        "steps": steps,
        "by seed": by_seed,
        "gap": paired_gap(nll["mixture"], nll["RFM"], seed),
        "KDE": kde,
        "kappa": kappa,
        "uniform": m.log_volume,
        "data": rows,
        "history": {
            name: history(runs[name][0], m, test, config.ode_steps) for name in ("mixture", "RFM") if keep
        },
    }
    if with_map:
        mixture = runs["mixture"][0]
        start = m.random_uniform(len(rows), generator=stream(seed, "earth start"))
        walk = sample(mixture.models[0], m, training.schedule, start, generator=stream(seed, "earth walk"))
        grid = density_map(mixture, m, config)
        out |= {"map": grid, "integral": map_integral(*grid), "samples": walk, "off": off_manifold(m, walk)}
    return out


def tori(config: Config, seed: int) -> dict[int, dict[str, float]]:
    """Wrapped normal of width 0.2 on T^n by n: nats a dimension and CPU seconds per 1,000 steps.

    Mixture, flow matching and score matching at the same number of steps; the walk of score
    matching has `RSGM_WALK` steps.
    """
    out = {}
    for dim in config.tori_dims:
        m, prior = Torus(dim), data.uniform_drawer(Torus(dim))

        def draw(n: int, g: torch.Generator, m: Torus = m) -> Tensor:
            return data.torus_normal(m, n, generator=g)

        test = draw(min(config.n_test, 300), stream(seed, "tori test", dim))
        runs: dict[str, Trained] = {
            "mixture": train_mixture(m, draw, prior, config.tori, seed),
            "RFM": train_rfm(m, draw, prior, config.tori, seed),
            "RSGM": train_rsgm(m, draw, replace(config.tori, n_sim=RSGM_WALK), seed),
        }
        steps = min(config.ode_steps, 30)
        out[dim] = {name: float(nll_rows(run, m, test, steps).mean()) / dim for name, run in runs.items()}
        out[dim] |= {f"seconds {name}": 1000 * run.seconds / config.tori.steps for name, run in runs.items()}
        out[dim]["truth"] = -float(data.torus_normal_log_prob(m, test).mean()) / dim
    return out


def hyperboloid(config: Config, seed: int) -> dict[str, object]:
    """Four modes on H^2 from a wrapped normal: total variation on a 12 x 12 grid of the Poincare ball."""
    m, n = Hyperboloid(2), config.n_samples

    def prior(n: int, g: torch.Generator) -> Tensor:
        return wrapped_normal(m, n, std=0.5, generator=g)

    def draw(n: int, g: torch.Generator) -> Tensor:
        return data.hyperboloid_modes(m, n, g)

    trained = train_mixture(m, draw, prior, config.h2, seed)
    start = prior(n, stream(seed, "h2 start"))
    walk = sample(trained.models[0], m, config.h2.schedule, start, generator=stream(seed, "h2 walk"))
    fresh, again = draw(n, stream(seed, "h2 data")), draw(n, stream(seed, "h2 again"))
    of_walk, of_data, of_again, of_prior = (_ball_histogram(m, x) for x in (walk, fresh, again, start))
    return {
        "tv": total_variation(of_walk, of_data),
        "data tv": total_variation(of_again, of_data),
        "prior tv": total_variation(of_prior, of_data),
        "samples": m.to_ball(walk),
        "data": m.to_ball(fresh),
        "off": off_manifold(m, walk),
    }


def rotations(config: Config, seed: int) -> dict[str, object]:
    """Three modes on SO(3): median angle to the nearest centre, of samples and of data."""
    m, n = SO3(), min(config.n_samples, 5000)

    def draw(n: int, g: torch.Generator) -> Tensor:
        return data.so3_modes(m, n, g)

    trained = train_mixture(m, draw, data.uniform_drawer(m), config.so3, seed)
    start = m.random_uniform(n, generator=stream(seed, "so3 start"))
    walk = sample(trained.models[0], m, config.so3.schedule, start, generator=stream(seed, "so3 walk"))
    fresh = draw(n, stream(seed, "so3 data"))
    (angles, nearest), (data_angles, _) = (_nearest_centre(m, x) for x in (walk, fresh))
    return {
        "median": float(angles.median()),
        "data median": float(data_angles.median()),
        "shares": [float((nearest == k).double().mean()) for k in range(len(data.SO3_CENTRES))],
        "angles": angles,
        "data angles": data_angles,
        "samples": so3_log(walk.unflatten(-1, (3, 3))),
        "data": so3_log(fresh.unflatten(-1, (3, 3))),
        "off": off_manifold(m, walk),
    }


def spot(
    config: Config, seed: int, *, k: int = 10, steps: int = SPOT_STEPS, upsample: int = 2
) -> dict[str, object]:
    """Generation on Spot: the `k`-th eigenfunction as target, judged on the faces of the original mesh."""
    vertices, faces = data.obj("spot")
    mesh = Mesh(vertices, faces, n_eig=100)
    fine_vertices, fine_faces, mass = data.mesh_target(vertices, faces, k, upsample=upsample)
    pick = _face_drawer(fine_vertices, fine_faces, mass)
    training = Training(
        steps=steps,
        batch=128,
        hidden=128,
        layers=3,
        schedule=LinearSchedule(0.2, 0.001),
        weighting="importance",
        kind="spectral",
    )
    trained = train_mixture(mesh, pick, data.uniform_drawer(mesh), training, seed)
    n = 3000
    start = mesh.random_uniform(n, generator=stream(seed, "spot start"))
    walk = sample(
        trained.models[0], mesh, training.schedule, start, n_steps=60, generator=stream(seed, "spot walk")
    )
    # subdivision numbers the children of a face consecutively: 4^upsample of them
    target = torch.from_numpy(mass.reshape(len(faces), -1).sum(1))
    groups = _coarse_groups(mesh, 100)
    coarse = [
        torch.zeros(100, dtype=torch.float64).index_add_(0, groups, share)
        for share in (face_shares(mesh, walk), target, mesh.areas / mesh.areas.sum(),
                      face_shares(mesh, pick(n, stream(seed, "spot fresh"))))
    ]  # fmt: skip
    return {
        "mesh": mesh,
        "target": target,
        "shares": face_shares(mesh, walk),
        "samples tv": total_variation(coarse[0], coarse[1]),
        "uniform tv": total_variation(coarse[2], coarse[1]),
        "data tv": total_variation(coarse[3], coarse[1]),
        "off": off_manifold(mesh, walk),
    }


def steps_on_a_curved_manifold(
    rows: Tensor, config: Config, seed: int, *, steps: int = 200
) -> dict[int, list[float]]:
    """Test NLL on the globe by the number of simulation steps in training, one value a seed."""
    m = Sphere(2)
    train, _, test = data.split(rows, stream(seed, "curved split"))
    draw, prior, out = data.drawer(train), data.uniform_drawer(m), {}
    for n_sim in config.sims:
        training = replace(EARTH, steps=steps, n_sim=n_sim)
        runs = (train_mixture(m, draw, prior, training, s) for s in range(seed, seed + config.seeds))
        out[n_sim] = [float(nll_rows(run, m, test, config.ode_steps).mean()) for run in runs]
    return out


def _ball_histogram(m: Hyperboloid, x: Tensor) -> Tensor:
    ball = m.to_ball(x).clamp(-1, 1)
    cell = ((ball + 1) / 2 * 12).long().clamp(0, 11)
    count = torch.bincount(cell[:, 0] * 12 + cell[:, 1], minlength=144).double()
    return count / count.sum()


def _nearest_centre(m: SO3, x: Tensor) -> tuple[Tensor, Tensor]:
    centres = so3_exp(torch.tensor(data.SO3_CENTRES)).flatten(-2)
    angle = m.dist(x.unsqueeze(1), centres.unsqueeze(0))
    nearest = angle.min(1)
    return nearest.values, nearest.indices


def _face_drawer(
    vertices: np.ndarray, faces: np.ndarray, mass: np.ndarray
) -> Callable[[int, torch.Generator], Tensor]:
    corners, weight = torch.from_numpy(vertices[faces]), torch.from_numpy(mass)
    cumulative = weight.cumsum(0)

    def draw(n: int, generator: torch.Generator) -> Tensor:
        u, a, b = torch.rand(3, n, generator=generator, dtype=torch.float64)
        face = torch.searchsorted(cumulative, u * cumulative[-1]).clamp_max(len(weight) - 1)
        root = a.sqrt()
        bary = torch.stack((1 - root, root * (1 - b), root * b), dim=-1)
        return (bary.unsqueeze(-2) @ corners[face]).squeeze(-2).float()

    return draw


def _coarse_groups(mesh: Mesh, count: int) -> Tensor:
    """Group faces around `count` spread-out centroids (farthest-point order), so that cells hold many points."""
    centroid = mesh.vertices[mesh.faces].mean(1)
    distance = torch.full((len(centroid),), math.inf, dtype=torch.float64)
    group = torch.zeros(len(centroid), dtype=torch.int64)
    seed = 0
    for k in range(count):
        d = (centroid - centroid[seed]).norm(dim=1)
        group[d < distance] = k
        distance = torch.minimum(distance, d)
        seed = int(distance.argmax())
    return group
