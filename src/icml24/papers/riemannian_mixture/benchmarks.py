r"""Experiments of the `full` profile: the original earth data, large tori, H^2, SO(3), Spot.

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
from icml24.common.rotations import so3_exp

from . import data
from .experiments import Config, face_shares, mean_nll, total_variation
from .hyperboloid import Hyperboloid, wrapped_normal
from .likelihoods import flow_log_likelihood
from .manifolds import Sphere, Torus
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
RSGM_WALK = 30  # steps of the noising walk; the original uses 100


def earth(
    rows: Tensor,
    config: Config,
    seed: int,
    *,
    steps: int,
    with_rsgm: bool = False,
    keep: tuple[int, ...] = (),
) -> dict[str, object]:
    """Test NLL of mixture, flow matching, (score matching,) kernel density and uniform law on earth data.

    Parameters
    ----------
    rows : Tensor, shape (n, 3)
    config, seed
    steps : int
        Optimiser steps of every method.
    with_rsgm : bool
    keep : tuple of int
        Steps at which mixture and flow matching are judged on the way.
    """
    m, training = Sphere(2), replace(EARTH, steps=steps)
    train, valid, test = data.split(rows, stream(seed, "earth split"))
    draw, prior = data.drawer(train), data.uniform_drawer(m)
    mixture = train_mixture(m, draw, prior, training, seed, keep)
    rfm = train_rfm(m, draw, prior, training, seed, keep)
    runs = {"mixture": mixture, "RFM": rfm}
    if with_rsgm:
        runs["RSGM"] = train_rsgm(m, draw, replace(training, n_sim=RSGM_WALK), seed)
    kappa, kde = data.kernel_density(train, valid, test)
    out: dict[str, object] = {name: mean_nll(run, m, test, config.ode_steps) for name, run in runs.items()}
    out |= {f"seconds {name}": run.seconds for name, run in runs.items()}
    out |= {
        "steps": steps,
        "KDE": kde,
        "kappa": kappa,
        "uniform": m.log_volume,
        "trained": mixture,
        "data": rows,
    }
    out["history"] = {
        name: {step: _judge(run, step, m, test, config.ode_steps) for step in (*keep, steps)}
        for name, run in (("mixture", mixture), ("RFM", rfm))
    }
    return out


def tori(
    config: Config, seed: int, dims: tuple[int, ...] = (2, 10, 50), steps: int = 500
) -> dict[int, dict[str, float]]:
    """Wrapped normal of width 0.2 on T^n: nats a dimension, by n, mixture and flow matching."""
    out = {}
    training = Training(
        steps=steps, batch=512, hidden=192, layers=3, schedule=LinearSchedule(0.2, 0.2), n_sim=8
    )
    for dim in dims:
        m = Torus(dim)

        def draw(n: int, g: torch.Generator, m: Torus = m) -> Tensor:
            return data.torus_normal(m, n, generator=g)

        test = draw(500, stream(seed, "tori test", dim))
        mixture = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
        rfm = train_rfm(m, draw, data.uniform_drawer(m), training, seed)
        out[dim] = {
            "mixture": mean_nll(mixture, m, test, 30) / dim,
            "RFM": mean_nll(rfm, m, test, 30) / dim,
            "truth": -float(data.torus_normal_log_prob(m, test).mean()) / dim,
            "seconds mixture": mixture.seconds,
            "seconds RFM": rfm.seconds,
        }
    return out


def hyperboloid(config: Config, seed: int, steps: int = 1200) -> dict[str, object]:
    """Four modes on H^2 from a wrapped normal: total variation on a 12 x 12 grid of the Poincare ball."""
    m = Hyperboloid(2)
    training = Training(steps=steps, batch=512, hidden=128, layers=3, schedule=LinearSchedule(0.2, 0.001))

    def prior(n: int, g: torch.Generator) -> Tensor:
        return wrapped_normal(m, n, std=0.5, generator=g)

    def draw(n: int, g: torch.Generator) -> Tensor:
        return data.hyperboloid_modes(m, n, g)

    trained = train_mixture(m, draw, prior, training, seed)
    walk = sample(
        trained.models[0], m, training.schedule, prior(20_000, stream(seed, "h2 start")),
        generator=stream(seed, "h2 walk"),
    )  # fmt: skip
    fresh, again = draw(20_000, stream(seed, "h2 data")), draw(20_000, stream(seed, "h2 again"))
    histograms = [
        _ball_histogram(m, x) for x in (walk, fresh, again, prior(20_000, stream(seed, "h2 prior")))
    ]
    return {
        "tv": total_variation(histograms[0], histograms[1]),
        "data tv": total_variation(histograms[2], histograms[1]),
        "prior tv": total_variation(histograms[3], histograms[1]),
        "samples": m.to_ball(walk),
        "data": m.to_ball(fresh),
    }


def rotations(config: Config, seed: int, steps: int = 800) -> dict[str, object]:
    """Three modes on SO(3): median angle to the nearest centre, of samples and of data."""
    m = SO3()
    training = Training(steps=steps, batch=512, hidden=128, layers=3, schedule=LinearSchedule(0.1, 0.001))

    def draw(n: int, g: torch.Generator) -> Tensor:
        return data.so3_modes(m, n, g)

    trained = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
    start = m.random_uniform(5000, generator=stream(seed, "so3 start"))
    walk = sample(trained.models[0], m, training.schedule, start, generator=stream(seed, "so3 walk"))
    fresh = draw(5000, stream(seed, "so3 data"))
    angles = [_nearest_centre(m, x) for x in (walk, fresh)]
    return {
        "median": float(angles[0][0].median()),
        "data median": float(angles[1][0].median()),
        "shares": [float((angles[0][1] == k).double().mean()) for k in range(3)],
        "angles": angles[0][0],
        "data angles": angles[1][0],
    }


def spot(config: Config, seed: int, *, k: int = 10, steps: int = 300, upsample: int = 2) -> dict[str, object]:
    """Generation on Spot: the `k`-th eigenfunction as target, judged on the faces of the original mesh."""
    vertices, faces = data.obj("spot")
    mesh = Mesh(vertices, faces, n_eig=100)
    fine_vertices, fine_faces, mass = data.mesh_target(vertices, faces, k, upsample=upsample)
    pick = _face_drawer(fine_vertices, fine_faces, mass)
    training = Training(
        steps=steps, batch=128, hidden=128, layers=3, schedule=LinearSchedule(0.2, 0.001), kind="spectral"
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
        "seconds": trained.seconds,
    }


def steps_on_a_curved_manifold(
    rows: Tensor, config: Config, seed: int, *, steps: int = 300
) -> dict[int, float]:
    """Test NLL on the globe by the number of simulation steps in training."""
    m = Sphere(2)
    train, _, test = data.split(rows, stream(seed, "curved split"))
    out = {}
    for n_sim in config.sims:
        training = replace(EARTH, steps=steps, n_sim=n_sim)
        trained = train_mixture(m, data.drawer(train), data.uniform_drawer(m), training, seed)
        out[n_sim] = mean_nll(trained, m, test, config.ode_steps)
    return out


def _judge(run: Trained, step: int, m: Sphere, test: Tensor, ode_steps: int) -> float:
    if step not in run.snapshots:
        return mean_nll(run, m, test, ode_steps)
    from .baselines import rfm_velocity
    from .likelihoods import pf_ode_drift

    models = run.snapshots[step]
    velocity = pf_ode_drift(*models) if len(models) == 2 else rfm_velocity(models[0])
    return -float(flow_log_likelihood(velocity, m, test, span=run.span, n_steps=ode_steps)[0].mean())


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
