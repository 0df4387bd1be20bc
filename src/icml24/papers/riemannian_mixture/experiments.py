r"""The chapter's experiments: `QUICK` and `FULL` are two instances of one frozen configuration.

Each function takes a configuration and a seed and returns plain numbers and tensors; drawing is
done in `figures`. Every number of steps is fixed in the configuration; nothing stops by the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from icml24.common.random import generator as stream

from . import data
from .bridge_checks import bridge_curves, bridge_paths, spectral_ends, two_way_errors
from .bridges import spectral_sqdist, two_way_sample
from .likelihoods import flow_log_likelihood
from .manifolds import Sphere, Torus
from .measures import face_shares, history, nll_rows, off_manifold, paired_gap, total_variation
from .mesh_operators import bumpy_icosphere, icosphere
from .meshes import Mesh, SmoothNormalMesh, points_on_faces
from .networks import DriftMLP
from .reference import exact_mixture_drift
from .sampling import sample
from .schedules import LinearSchedule
from .training import Trained, Training, train_mixture, train_rfm

__all__ = [
    "CIRCLE_MODES",
    "FULL",
    "PROFILES",
    "QUICK",
    "Config",
    "bridge_curves",
    "bridge_paths",
    "circle",
    "density_map",
    "distance_fields",
    "map_integral",
    "mesh_generation",
    "mesh_mass",
    "mesh_steps",
    "quakes",
    "simulation_steps",
    "spectral_ends",
    "torsions",
    "torus_race",
    "two_way_errors",
]

#: Weight, angle and width of the two modes on the circle.
CIRCLE_MODES = ((0.6, -1.0, 0.3), (0.4, 1.5, 0.5))

_SPHERE = LinearSchedule(0.1, 0.001)
_FLAT = LinearSchedule(0.2, 0.2)
_MESH = LinearSchedule(0.2, 0.001)


@dataclass(frozen=True)
class Config:
    r"""Sizes of every experiment; the fields not explained here are training runs.

    Attributes
    ----------
    seeds : int
        Training seeds of an experiment: the base seed and those after it. Data and split stay the same.
    sims : tuple of int
        Numbers of simulation steps compared.
    tori_dims : tuple of int
        Dimensions of the large tori.
    keep : tuple of int
        Steps of `quakes` after which the models are judged on the way.
    n_test, n_samples, ode_steps, map_steps : int
        Test points of synthetic laws; samples on H^2 and SO(3); Runge-Kutta steps of a likelihood
        and of a density map.
    n_paths : int
        Bridges in a Monte Carlo check.
    map_shape : (int, int)
        Rows and columns of a density map.
    """

    circle: Training = field(
        default_factory=lambda: Training(steps=700, batch=256, hidden=64, layers=2, schedule=_FLAT)
    )
    torus: Training = field(
        default_factory=lambda: Training(steps=400, batch=256, hidden=64, layers=3, schedule=_FLAT)
    )
    ablation: Training = field(
        default_factory=lambda: Training(steps=120, batch=256, hidden=48, layers=3, schedule=_FLAT)
    )
    torsions: Training = field(
        default_factory=lambda: Training(steps=250, batch=256, hidden=64, layers=3, schedule=_SPHERE)
    )
    quakes: Training = field(
        default_factory=lambda: Training(
            steps=350, batch=256, hidden=64, layers=3, act="sin", schedule=_SPHERE, weighting="importance"
        )
    )
    mesh: Training = field(
        default_factory=lambda: Training(
            steps=150,
            batch=64,
            hidden=96,
            layers=3,
            schedule=_MESH,
            n_sim=10,
            weighting="importance",
            kind="spectral",
        )
    )
    tori: Training = field(
        default_factory=lambda: Training(
            steps=60, batch=256, hidden=64, layers=3, schedule=_FLAT, n_sim=8, warmup=20
        )
    )
    h2: Training = field(
        default_factory=lambda: Training(
            steps=300, batch=256, hidden=64, lr=5e-3, schedule=_MESH, weighting="importance", warmup=30
        )
    )
    so3: Training = field(
        default_factory=lambda: Training(steps=100, batch=256, hidden=64, schedule=_SPHERE, warmup=30)
    )
    seeds: int = 1
    sims: tuple[int, ...] = (2, 15, 50)
    tori_dims: tuple[int, ...] = (2, 10)
    keep: tuple[int, ...] = (50, 100, 200)
    n_test: int = 600
    n_samples: int = 2000
    ode_steps: int = 12
    map_steps: int = 8
    n_paths: int = 4000
    map_shape: tuple[int, int] = (30, 60)


QUICK = Config()
FULL = replace(
    QUICK,
    torus=replace(QUICK.torus, steps=600, batch=512, hidden=128),
    ablation=replace(QUICK.ablation, steps=200, batch=512, hidden=96),
    torsions=replace(QUICK.torsions, steps=1200, batch=512, hidden=128),
    mesh=replace(QUICK.mesh, steps=300),
    quakes=replace(QUICK.quakes, steps=800, batch=512),
    tori=replace(QUICK.tori, steps=500, hidden=192, warmup=100),
    h2=replace(QUICK.h2, steps=1000, batch=512, hidden=128, warmup=100),
    so3=replace(QUICK.so3, steps=600, batch=512, hidden=128, warmup=100),
    seeds=3,
    sims=(2, 5, 15, 50),
    tori_dims=(2, 10, 50),
    keep=(50, 100, 200, 400),
    n_test=1000,
    n_samples=20_000,
    ode_steps=24,
    map_steps=12,
    map_shape=(90, 180),
)
PROFILES = {"quick": QUICK, "full": FULL}


def circle(config: Config, seed: int) -> dict[str, object]:
    r"""Two modes on a circle: likelihood, mode weights, and the trained drift against the exact one.

    Returns a dict: ``nll``, ``nll_fine`` (twice the ODE steps), ``truth``, ``mass`` (share of samples
    near mode one), ``times``, ``cosines`` (of the two drift fields, in the mean over the law at that
    time), ``angle``, ``trained`` and ``exact`` (angular drift on a grid, by time), ``samples``, ``off``.
    """
    m, training = Torus(1), config.circle
    draw = lambda n, g: data.torus_normal(m, n, modes=CIRCLE_MODES, generator=g)  # noqa: E731
    trained = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
    test = draw(config.n_test, stream(seed, "circle test"))
    ends = draw(1500, stream(seed, "circle ends"))
    n = 400  # points the two drifts are compared at
    angle = torch.linspace(-math.pi, math.pi, 145)[:-1].unsqueeze(1)
    grid = m.from_angles(angle)
    times, cosines, ours, theirs = (0.2, 0.5, 0.8), [], [], []
    for t in times:
        x0, at = m.random_uniform(n, generator=stream(seed, "circle prior")), torch.full((n,), t)
        xt = two_way_sample(m, x0, ends[:n], at, training.schedule, n_steps=50, generator=stream(seed, "xt"))
        f, exact = trained.models[0](xt, at), exact_mixture_drift(m, xt, t, ends, training.schedule)[0]
        cosines.append(float((f * exact).sum() / (f.norm() * exact.norm())))
        on_grid = torch.full((len(grid),), t)
        ours.append(_angular(grid, trained.models[0](grid, on_grid)))
        theirs.append(_angular(grid, exact_mixture_drift(m, grid, t, ends, training.schedule)[0]))
    x = sample(
        trained.models[0],
        m,
        training.schedule,
        m.random_uniform(4000, generator=stream(seed, "circle start")),
        generator=stream(seed, "circle walk"),
    )
    samples = m.to_angles(x).squeeze(1)
    return {
        "nll": float(nll_rows(trained, m, test, config.ode_steps).mean()),
        "nll_fine": float(nll_rows(trained, m, test, 2 * config.ode_steps).mean()),
        "truth": -float(data.torus_normal_log_prob(m, test, CIRCLE_MODES).mean()),
        "mass": float(((samples > -2.2) & (samples < 0.1)).float().mean()),
        "times": times,
        "cosines": cosines,
        "angle": angle.squeeze(1),
        "trained": ours,
        "exact": theirs,
        "samples": samples,
        "off": off_manifold(m, x),
    }


def torus_race(config: Config, seed: int) -> dict[str, object]:
    """A wrapped normal of width 0.2 on T^2: nats a dimension of mixture, flow matching, truth, uniform.

    Means over the training seeds; ``by seed`` holds the single runs, ``gap`` a `paired_gap`.
    """
    m, training, prior = Torus(2), config.torus, data.uniform_drawer(Torus(2))
    draw = lambda n, g: data.torus_normal(m, n, generator=g)  # noqa: E731
    test = draw(max(config.n_test, 1500), stream(seed, "torus test"))
    rows = {
        name: [
            nll_rows(train(m, draw, prior, training, s), m, test, config.ode_steps) / m.dim
            for s in _seeds(config, seed)
        ]
        for name, train in (("mixture", train_mixture), ("RFM", train_rfm))
    }
    return _means(rows) | {
        "gap": paired_gap(rows["mixture"], rows["RFM"], seed),
        "truth": -float(data.torus_normal_log_prob(m, test).mean()) / m.dim,
        "uniform": m.log_volume / m.dim,
    }


def simulation_steps(config: Config, seed: int) -> dict[int, list[float]]:
    """Test likelihood on T^2 (nats a dimension) by the number of simulation steps, one value a seed."""
    m, prior = Torus(2), data.uniform_drawer(Torus(2))
    draw = lambda n, g: data.torus_normal(m, n, generator=g)  # noqa: E731
    test = draw(config.n_test, stream(seed, "ablation test"))
    out = {}
    for n_sim in config.sims:
        training = replace(config.ablation, n_sim=n_sim)
        runs = (train_mixture(m, draw, prior, training, s) for s in _seeds(config, seed))
        out[n_sim] = [float(nll_rows(run, m, test, config.ode_steps).mean()) / m.dim for run in runs]
    return out


def torsions(config: Config, seed: int) -> dict[str, object]:
    """Backbone angles of proteins on T^2: NLL of mixture and flow matching as in `torus_race`, samples."""
    m, training, prior = Torus(2), config.torsions, data.uniform_drawer(Torus(2))
    rows = m.from_angles(data.backbone_torsions())
    train, _, test = data.split(rows, stream(seed, "torsions split"))
    draw, seeds = data.drawer(train), _seeds(config, seed)
    mixtures = [train_mixture(m, draw, prior, training, s) for s in seeds]
    flows = [train_rfm(m, draw, prior, training, s) for s in seeds]
    nll = {
        name: [nll_rows(run, m, test, config.ode_steps) for run in runs]
        for name, runs in (("mixture", mixtures), ("RFM", flows))
    }
    start, walker = m.random_uniform(3000, generator=stream(seed, "torsions start")), mixtures[0].models[0]
    walk = sample(walker, m, training.schedule, start, generator=stream(seed, "torsions walk"))
    return _means(nll) | {
        "gap": paired_gap(nll["mixture"], nll["RFM"], seed),
        "uniform": m.log_volume,
        "data": m.to_angles(rows),
        "samples": m.to_angles(walk),
    }


def quakes(config: Config, seed: int) -> dict[str, object]:
    """Offline earthquakes on the globe: test NLL of mixture, flow matching and kernel density, a map."""
    m, training = Sphere(2), config.quakes
    rows = data.earthquakes_offline()
    train, valid, test = data.split(rows, stream(seed, "quakes split"))
    prior = data.uniform_drawer(m)
    mixture = train_mixture(m, data.drawer(train), prior, training, seed, config.keep)
    rfm = train_rfm(m, data.drawer(train), prior, training, seed, config.keep)
    kappa, kde = data.kernel_density(train, valid, test)
    start = m.random_uniform(1000, generator=stream(seed, "quakes start"))
    walk = sample(mixture.models[0], m, training.schedule, start, generator=stream(seed, "quakes walk"))
    nll = [nll_rows(run, m, test, config.ode_steps) for run in (mixture, rfm)]
    grid = density_map(mixture, m, config)
    return {
        "mixture": float(nll[0].mean()),
        "RFM": float(nll[1].mean()),
        "gap": paired_gap(nll[:1], nll[1:], seed),
        "history": {run.method: history(run, m, test, config.ode_steps) for run in (mixture, rfm)},
        "KDE": kde,
        "kappa": kappa,
        "uniform": m.log_volume,
        "data": rows,
        "samples": walk,
        "map": grid,
        "integral": map_integral(*grid),
        "off": off_manifold(m, walk),
    }


def density_map(trained: Trained, m: Sphere, config: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Log density at the centres of a latitude-longitude grid: longitudes, latitudes, (rows, columns)."""
    rows, columns = config.map_shape
    lat = (torch.arange(rows) + 0.5) * 180 / rows - 90
    lon = (torch.arange(columns) + 0.5) * 360 / columns - 180
    at = torch.meshgrid(lat, lon, indexing="ij")
    x = data.on_sphere(at[0].numpy(), at[1].numpy()).reshape(-1, 3)
    return lon, lat, -nll_rows(trained, m, x, config.map_steps).reshape(rows, columns)


def map_integral(lon: Tensor, lat: Tensor, log_density: Tensor) -> float:
    """Sum of density times cell area over a map; one for a density."""
    cell = math.radians(lon[1] - lon[0]) * math.radians(lat[1] - lat[0])
    return float((log_density.double().exp() * torch.cos(torch.deg2rad(lat)).unsqueeze(1)).sum() * cell)


def mesh_generation(config: Config, seed: int) -> dict[str, object]:
    """Generation on the bumpy sphere: total variation over faces of samples, uniform law, fresh data."""
    mesh, mass, draw = _bumpy_target()
    walk = _samples_on(mesh, draw, config.mesh, seed)
    shares, uniform = face_shares(mesh, walk), mesh.areas / mesh.areas.sum()
    return {
        "mesh": mesh,
        "target": mass,
        "samples": walk,
        "shares": shares,
        "samples tv": total_variation(shares, mass),
        "data tv": total_variation(face_shares(mesh, draw(1500, stream(seed, "mesh fresh"))), mass),
        "uniform tv": total_variation(uniform, mass),
        "off": off_manifold(mesh, walk),
    }


def mesh_steps(config: Config, seed: int, sims: tuple[int, ...] = (5, 15, 50)) -> dict[int, float]:
    """Total variation of samples on the bumpy sphere by the number of simulation steps in training."""
    mesh, mass, draw = _bumpy_target()
    walks = {n: _samples_on(mesh, draw, replace(config.mesh, n_sim=n), seed) for n in sims}
    return {n: total_variation(face_shares(mesh, walk), mass) for n, walk in walks.items()}


def distance_fields(mesh: Mesh, start: Tensor) -> dict[str, Tensor]:
    """Spectral distance from `start`, (3,), to the middle of every face, by name; largest value one."""
    middle = mesh.project(mesh.vertices[mesh.faces].mean(1))
    dest = mesh.project(start.to(middle.dtype).unsqueeze(0)).expand_as(middle)
    roots = {"biharmonic": spectral_sqdist(mesh, middle, dest).sqrt()}
    for tau in (0.25, 0.02):
        square = spectral_sqdist(mesh, middle, dest, weight="diffusion", tau=tau)
        roots[f"diffusion, τ = {tau:g}"] = square.sqrt()
    return {name: root / root.max() for name, root in roots.items()}


def mesh_mass(
    config: Config, seed: int, *, level: int = 1, points: int = 500
) -> dict[str, tuple[float, float]]:
    r"""Integral of the model density over a round mesh by face-wise and by smoothed divergences.

    A random network, the flow for unit time, Monte Carlo over uniform points: (mean, standard error).
    The truth is one.
    """
    vertices, faces = icosphere(level)
    out = {}
    for name, make in (("face-wise", Mesh), ("smoothed normals", SmoothNormalMesh)):
        mesh = make(vertices, faces, n_eig=5)
        net = DriftMLP(mesh, 32, 2, generator=stream(seed, "mesh mass")).double()
        for linear in net.linears:
            linear.weight.data *= 2
        x = mesh.random_uniform(points, generator=stream(seed, "mesh points"), dtype=torch.float64)
        logp, _ = flow_log_likelihood(net, mesh, x, n_steps=config.ode_steps)
        share = (logp + mesh.log_volume).exp()
        out[name] = (float(share.mean()), float(share.std() / points**0.5))
    return out


def _bumpy_target() -> tuple[Mesh, Tensor, Callable[[int, torch.Generator], Tensor]]:
    """Bumpy sphere of 80 faces, target mass of each face, and a function that draws from the target."""
    vertices, faces = bumpy_icosphere(1)
    mesh = Mesh(vertices, faces, n_eig=30)
    mass = torch.from_numpy(data.mesh_target(vertices, faces, 6)[2])
    return mesh, mass, lambda n, g: points_on_faces(mesh, mass, n, generator=g).float()


def _samples_on(
    mesh: Mesh, draw: Callable[[int, torch.Generator], Tensor], training: Training, seed: int
) -> Tensor:
    trained = train_mixture(mesh, draw, data.uniform_drawer(mesh), training, seed)
    start = mesh.random_uniform(1500, generator=stream(seed, "mesh start"))
    return sample(trained.models[0], mesh, training.schedule, start, generator=stream(seed, "mesh walk"))


def _seeds(config: Config, seed: int) -> range:
    return range(seed, seed + config.seeds)


def _means(rows: dict[str, list[Tensor]]) -> dict[str, object]:
    """Mean by name, and under ``by seed`` the mean of each run."""
    by_seed = {name: [float(run.mean()) for run in runs] for name, runs in rows.items()}
    return {name: sum(values) / len(values) for name, values in by_seed.items()} | {"by seed": by_seed}


def _angular(x: Tensor, v: Tensor) -> Tensor:
    return (v[:, 1] * x[:, 0] - v[:, 0] * x[:, 1]).detach()
