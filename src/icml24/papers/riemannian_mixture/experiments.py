r"""The chapter's experiments: `QUICK` and `FULL` are two instances of one frozen configuration.

Each function takes a configuration and a seed and returns plain numbers and tensors; drawing is
done in `figures`. Every number of steps is fixed in the configuration; nothing stops by the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from icml24.common.random import generator as stream

from . import data
from .bridge_checks import bridge_curves, bridge_paths, spectral_ends, two_way_errors
from .bridges import two_way_sample
from .likelihoods import flow_log_likelihood
from .manifolds import Manifold, Sphere, Torus
from .mesh_operators import bumpy_icosphere
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
    "mean_nll",
    "mesh_generation",
    "mesh_mass",
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
    r"""Sizes of every experiment.

    Attributes
    ----------
    circle, torus, ablation, torsions, quakes, mesh : Training
    sims : tuple of int
        Numbers of simulation steps compared.
    n_test, ode_steps : int
        Test points of synthetic laws; Runge-Kutta steps of a likelihood.
    n_paths : int
        Bridges in a Monte Carlo check.
    mesh_level : int
        Subdivisions of the bumpy icosphere that is generated on.
    full : bool
        Whether the experiments of `benchmarks` run too.
    """

    circle: Training = field(
        default_factory=lambda: Training(steps=700, batch=256, hidden=64, layers=2, schedule=_FLAT)
    )
    torus: Training = field(
        default_factory=lambda: Training(steps=400, batch=256, hidden=64, layers=3, schedule=_FLAT)
    )
    ablation: Training = field(
        default_factory=lambda: Training(steps=200, batch=256, hidden=48, layers=3, schedule=_FLAT)
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
            steps=200, batch=64, hidden=96, layers=3, schedule=_MESH, n_sim=10, kind="spectral"
        )
    )
    sims: tuple[int, ...] = (2, 15, 50)
    n_test: int = 600
    ode_steps: int = 12
    n_paths: int = 4000
    mesh_level: int = 1
    full: bool = False


QUICK = Config()
FULL = replace(
    QUICK,
    torus=replace(QUICK.torus, steps=800, batch=512, hidden=128),
    ablation=replace(QUICK.ablation, steps=300, batch=512, hidden=96),
    torsions=replace(QUICK.torsions, steps=1200, batch=512, hidden=128),
    mesh=replace(QUICK.mesh, steps=420),
    sims=(2, 5, 15, 50),
    quakes=replace(QUICK.quakes, steps=800, batch=512),
    n_test=2000,
    ode_steps=40,
    full=True,
)
PROFILES = {"quick": QUICK, "full": FULL}


def mean_nll(trained: Trained, manifold: Manifold, x: Tensor, ode_steps: int, prior_log_prob=None) -> float:
    """Mean negative log likelihood of rows, in nats with respect to the Riemannian volume."""
    logp, _ = flow_log_likelihood(
        trained.velocity,
        manifold,
        x,
        span=trained.span,
        n_steps=ode_steps,
        prior_log_prob=prior_log_prob,
    )
    return -float(logp.mean())


def circle(config: Config, seed: int) -> dict[str, object]:
    r"""Two modes on a circle: likelihood, mode weights, and the trained drift against the exact one.

    Returns
    -------
    dict
        ``nll``, ``nll_fine`` (twice the ODE steps), ``truth``, ``mass`` (share of samples near mode
        one), ``times``, ``cosines`` (of the two drift fields, in the mean over the law at that
        time), ``angle``, ``trained`` and ``exact`` (angular drift on a grid, by time), ``samples``.
    """
    m, training = Torus(1), config.circle
    draw = lambda n, g: data.torus_normal(m, n, modes=CIRCLE_MODES, generator=g)  # noqa: E731
    trained = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
    test = draw(config.n_test, stream(seed, "circle test"))
    ends = draw(1500, stream(seed, "circle ends"))
    angle = torch.linspace(-math.pi, math.pi, 145)[:-1].unsqueeze(1)
    grid = m.from_angles(angle)
    times, cosines, ours, theirs = (0.2, 0.5, 0.8), [], [], []
    for t in times:
        x0 = m.random_uniform(len(ends), generator=stream(seed, "circle prior"))
        at = torch.full((len(ends),), t)
        xt = two_way_sample(m, x0, ends, at, training.schedule, n_steps=50, generator=stream(seed, "xt"))
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
        "nll": mean_nll(trained, m, test, config.ode_steps),
        "nll_fine": mean_nll(trained, m, test, 2 * config.ode_steps),
        "truth": -float(data.torus_normal_log_prob(m, test, CIRCLE_MODES).mean()),
        "mass": float(((samples > -2.2) & (samples < 0.1)).float().mean()),
        "times": times,
        "cosines": cosines,
        "angle": angle.squeeze(1),
        "trained": ours,
        "exact": theirs,
        "samples": samples,
        "off": float((m.project(x) - x).abs().max()),
    }


def torus_race(config: Config, seed: int) -> dict[str, float]:
    """A wrapped normal of width 0.2 on T^2: nats a dimension of mixture, flow matching, truth, uniform."""
    m, training = Torus(2), config.torus
    draw = lambda n, g: data.torus_normal(m, n, generator=g)  # noqa: E731
    test = draw(max(config.n_test, 1500), stream(seed, "torus test"))
    mixture = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
    rfm = train_rfm(m, draw, data.uniform_drawer(m), training, seed)
    return {
        "mixture": mean_nll(mixture, m, test, config.ode_steps) / m.dim,
        "RFM": mean_nll(rfm, m, test, config.ode_steps) / m.dim,
        "truth": -float(data.torus_normal_log_prob(m, test).mean()) / m.dim,
        "uniform": m.log_volume / m.dim,
        "seconds mixture": mixture.seconds,
        "seconds RFM": rfm.seconds,
    }


def simulation_steps(config: Config, seed: int) -> dict[int, float]:
    """Test likelihood on T^2 (nats a dimension) by the number of simulation steps in training."""
    m = Torus(2)
    draw = lambda n, g: data.torus_normal(m, n, generator=g)  # noqa: E731
    test = draw(config.n_test, stream(seed, "ablation test"))
    out = {}
    for n_sim in config.sims:
        training = replace(config.ablation, n_sim=n_sim)
        trained = train_mixture(m, draw, data.uniform_drawer(m), training, seed)
        out[n_sim] = mean_nll(trained, m, test, config.ode_steps) / m.dim
    return out


def torsions(config: Config, seed: int) -> dict[str, object]:
    """Backbone angles of proteins on T^2: test NLL of mixture and flow matching, samples."""
    m, training = Torus(2), config.torsions
    rows = m.from_angles(data.backbone_torsions())
    train, _, test = data.split(rows, stream(seed, "torsions split"))
    prior = data.uniform_drawer(m)
    mixture = train_mixture(m, data.drawer(train), prior, training, seed)
    rfm = train_rfm(m, data.drawer(train), prior, training, seed)
    start = m.random_uniform(3000, generator=stream(seed, "torsions start"))
    walk = sample(mixture.models[0], m, training.schedule, start, generator=stream(seed, "torsions walk"))
    return {
        "mixture": mean_nll(mixture, m, test, config.ode_steps),
        "RFM": mean_nll(rfm, m, test, config.ode_steps),
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
    mixture = train_mixture(m, data.drawer(train), prior, training, seed)
    rfm = train_rfm(m, data.drawer(train), prior, training, seed)
    kappa, kde = data.kernel_density(train, valid, test)
    start = m.random_uniform(1000, generator=stream(seed, "quakes start"))
    walk = sample(mixture.models[0], m, training.schedule, start, generator=stream(seed, "quakes walk"))
    lon, lat, density = density_map(mixture, m, config.ode_steps)
    cell = math.radians(lon[1] - lon[0]) * math.radians(lat[1] - lat[0])
    integral = (density.exp() * torch.cos(torch.deg2rad(lat)).unsqueeze(1)).sum() * cell
    return {
        "mixture": mean_nll(mixture, m, test, config.ode_steps),
        "RFM": mean_nll(rfm, m, test, config.ode_steps),
        "KDE": kde,
        "kappa": kappa,
        "uniform": m.log_volume,
        "data": rows,
        "samples": walk,
        "map": (lon, lat, density),
        "integral": float(integral),
        "trained": mixture,
        "off": float((m.project(walk) - walk).abs().max()),
    }


def density_map(
    trained: Trained, m: Sphere, ode_steps: int, shape: tuple[int, int] = (30, 60)
) -> tuple[Tensor, Tensor, Tensor]:
    """Log density at the centres of a latitude-longitude grid: longitudes, latitudes, (rows, columns)."""
    rows, columns = shape
    lat = (torch.arange(rows) + 0.5) * 180 / rows - 90
    lon = (torch.arange(columns) + 0.5) * 360 / columns - 180
    at = torch.meshgrid(lat, lon, indexing="ij")
    x = data.on_sphere(at[0].numpy(), at[1].numpy()).reshape(-1, 3)
    logp, _ = flow_log_likelihood(trained.velocity, m, x, span=trained.span, n_steps=ode_steps)
    return lon, lat, logp.reshape(shape)


def mesh_generation(config: Config, seed: int) -> dict[str, object]:
    """Generation on the bumpy sphere: total variation over faces of samples, uniform law, fresh data."""
    vertices, faces = bumpy_icosphere(config.mesh_level)
    mesh = Mesh(vertices, faces, n_eig=30)
    mass = torch.from_numpy(data.mesh_target(vertices, faces, 6)[2])
    training = config.mesh
    draw = lambda n, g: points_on_faces(mesh, mass, n, generator=g).float()  # noqa: E731
    trained = train_mixture(mesh, draw, data.uniform_drawer(mesh), training, seed)
    start = mesh.random_uniform(1500, generator=stream(seed, "mesh start"))
    walk = sample(trained.models[0], mesh, training.schedule, start, generator=stream(seed, "mesh walk"))
    fresh = draw(1500, stream(seed, "mesh fresh"))
    uniform = mesh.areas / mesh.areas.sum()
    return {
        "mesh": mesh,
        "target": mass,
        "samples": walk,
        "shares": face_shares(mesh, walk),
        "samples tv": total_variation(face_shares(mesh, walk), mass),
        "data tv": total_variation(face_shares(mesh, fresh), mass),
        "uniform tv": total_variation(uniform, mass),
        "off": float((mesh.project(walk) - walk).abs().max()),
    }


def face_shares(mesh: Mesh, x: Tensor) -> Tensor:
    """Share of the points on each face, (F,)."""
    count = torch.bincount(mesh.closest_point(x)[1], minlength=len(mesh.faces)).double()
    return count / count.sum()


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of absolute differences."""
    return float((p - q).abs().sum() / 2)


def mesh_mass(
    config: Config, seed: int, *, level: int = 1, points: int = 500
) -> dict[str, tuple[float, float]]:
    r"""Integral of the model density over a round mesh by face-wise and by smoothed divergences.

    A random network, the flow for unit time, Monte Carlo over uniform points: (mean, standard error).
    The truth is one.
    """
    from .mesh_operators import icosphere

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


def _angular(x: Tensor, v: Tensor) -> Tensor:
    return (v[:, 1] * x[:, 0] - v[:, 0] * x[:, 1]).detach()
