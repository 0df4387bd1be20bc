"""Bridges and their two-way simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.riemannian_mixture import (
    Euclidean,
    Hyperboloid,
    LinearSchedule,
    Sphere,
    Torus,
    bridge_drift,
    bridge_matching_loss,
    divergence,
    mixture_drift,
    rfm_loss,
    spectral_direction,
    spectral_weights,
    two_way_sample,
)
from icml24.papers.riemannian_mixture.bridges import spectral_sqdist
from icml24.papers.riemannian_mixture.mesh_operators import icosphere
from icml24.papers.riemannian_mixture.meshes import Mesh

CONSTANT = LinearSchedule(0.5, 0.5)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def one_way(manifold, x0, x1, t, schedule, n_steps, seed):
    """Plain Euler-Maruyama from x0, written out: the form the two-way sampler is held against."""
    x, g, h = x0, gen(seed), t / n_steps
    for i in range(n_steps):
        s = torch.full((len(x),), i * h, dtype=x.dtype)
        step = h * bridge_drift(manifold, x, x1, s, schedule)
        noise = manifold.random_normal_tangent(x, generator=g)
        x = manifold.exp(x, step + (schedule.beta(i * h) * h) ** 0.5 * noise)
    return x


@pytest.mark.equation("eq-riemannian_mixture-bridge")
@pytest.mark.parametrize("name", ["euclidean", "sphere", "sphere4", "torus", "hyperboloid", "so3"])
def test_the_drift_shortens_the_way_at_the_schedules_rate(manifolds, points, name):
    m, schedule = manifolds[name], LinearSchedule(0.2, 0.001)
    x, z = points(name, 20, 1), points(name, 20, 2)
    t = torch.linspace(0.05, 0.9, 20, dtype=torch.float64)
    drift, h = bridge_drift(m, x, z, t, schedule), 1e-6
    slope = (m.dist(m.exp(x, h * drift), z) - m.dist(m.exp(x, -h * drift), z)) / (2 * h)
    expected = -schedule.beta(t) / schedule.integral(t, 1.0) * m.dist(x, z)
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.equation("eq-riemannian_mixture-bridge")
def test_without_noise_the_end_is_reached_along_the_geodesic():
    m, schedule = Sphere(2), LinearSchedule(1e-12, 1e-12)
    x0, x1 = (
        m.random_uniform(6, generator=gen(1), dtype=torch.float64),
        m.random_uniform(6, generator=gen(2), dtype=torch.float64),
    )
    t = torch.full((6,), 0.4, dtype=torch.float64)
    x = two_way_sample(m, x0, x1, t, schedule, n_steps=400, generator=gen())
    torch.testing.assert_close(x, m.exp(x0, 0.4 * m.log(x0, x1)), atol=1e-3, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-flat")
@pytest.mark.parametrize("t", [0.3, 0.7])
def test_flat_bridges_have_the_normal_marginals_from_both_ends(t):  # E2
    m, schedule, n = Euclidean(2), LinearSchedule(0.8, 0.2), 12_000
    x0 = torch.tensor([1.0, -0.5], dtype=torch.float64).expand(n, 2)
    z = torch.tensor([-0.5, 1.0], dtype=torch.float64).expand(n, 2)
    times = torch.full((n,), t, dtype=torch.float64)
    x = two_way_sample(m, x0, z, times, schedule, n_steps=60, generator=gen(3))
    total, r = schedule.integral(0, 1), schedule.integral(0, t) / schedule.integral(0, 1)
    torch.testing.assert_close(x.mean(0), (1 - r) * x0[0] + r * z[0], atol=0.03, rtol=0)
    torch.testing.assert_close(
        x.var(0), torch.full((2,), total * r * (1 - r), dtype=x.dtype), rtol=0.04, atol=0
    )


@pytest.mark.equation("eq-riemannian_mixture-endpoint")
@pytest.mark.parametrize("name", ["sphere", "torus2", "so3", "hyperboloid"])
def test_squared_distance_to_the_end_obeys_its_bound(manifolds, name):  # E3
    m = Torus(2) if name == "torus2" else manifolds[name]
    n, rho0, d = 4000, 1.2, m.dim
    if name == "hyperboloid":
        x0 = m.origin(torch.zeros(1, dtype=torch.float64)).expand(n, -1)
    else:
        x0 = m.random_uniform(1, generator=gen(1), dtype=torch.float64).expand(n, -1)
    u = m.random_normal_tangent(x0[:1], generator=gen(2))
    z = m.exp(x0[:1], rho0 * u / m.inner(x0[:1], u, u).sqrt().unsqueeze(-1)).expand(n, -1)
    excess = []
    for k, t in enumerate((0.2, 0.4, 0.6, 0.8)):
        square = m.dist(one_way(m, x0, z, t, CONSTANT, round(200 * t), 3 + k), z) ** 2
        bound = rho0**2 * (1 - t) ** 2 + d * 0.5 * t * (1 - t)
        excess.append(float((square.mean() - bound) / (square.std() / n**0.5)))
    if name == "torus2":  # flat: the bound is the value, up to the step's bias
        assert max(map(abs, excess)) < 5
    elif name == "hyperboloid":  # negative curvature: above the flat value, not bound by it
        assert excess[0] > 0
    else:
        assert max(excess) < 3
        assert min(excess) < -2  # strictly below somewhere: curvature helps
    end = one_way(m, x0[:500], z[:500], 1.0, CONSTANT, 200, 9)
    assert m.dist(end, z[:500]).mean() < 0.12


def test_two_way_agrees_with_one_way_where_it_must():
    m, schedule, n = Torus(2), LinearSchedule(0.2, 0.1), 20_000
    x0, x1 = (m.random_uniform(1, generator=gen(i), dtype=torch.float64).expand(n, -1) for i in (1, 2))
    t = torch.full((n,), 0.8, dtype=torch.float64)
    back = m.dist(two_way_sample(m, x0, x1, t, schedule, n_steps=60, generator=gen(3)), x1)
    there = m.dist(one_way(m, x0, x1, 0.8, schedule, 150, 4), x1)
    assert abs(back.mean() - there.mean()) < 4 * ((back.var() + there.var()) / n) ** 0.5 + 0.008


def test_on_a_curved_manifold_the_two_simulations_do_not_meet():  # P8
    m, n = Sphere(2), 20_000
    x0 = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(n, 3)
    x1 = torch.tensor([math.sin(2.0), 0.0, math.cos(2.0)], dtype=torch.float64).expand(n, 3)
    schedule = LinearSchedule(1.0, 1.0)
    means = []
    for t in (0.5 - 1e-9, 0.5 + 1e-9):
        x = two_way_sample(
            m, x0, x1, torch.full((n,), t, dtype=torch.float64), schedule, n_steps=100, generator=gen(5)
        )
        means.append(float(m.dist(x0, x).mean()))
    assert means == pytest.approx([1.212, 1.034], abs=0.02)


@pytest.mark.equation("eq-riemannian_mixture-spectral")
@pytest.mark.parametrize("weight", ["biharmonic", "diffusion"])
def test_the_spectral_direction_lowers_the_distance_at_unit_rate(bumpy, weight):  # E11
    g = gen(1)
    x, z = (bumpy.random_uniform(64, generator=g, dtype=torch.float64) for _ in range(2))
    s = spectral_direction(bumpy, x, z, weight=weight)
    y = x.clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(spectral_sqdist(bumpy, y, z, weight=weight).sum(), y)
    grad = bumpy.to_tangent(x, grad)
    square = spectral_sqdist(bumpy, x, z, weight=weight)
    torch.testing.assert_close((s * grad).sum(-1), -2 * square, rtol=1e-8, atol=0)  # <s, grad D> = -D
    torch.testing.assert_close(bumpy.to_tangent(x, s), s, atol=1e-10, rtol=1e-10)


@pytest.mark.equation("eq-riemannian_mixture-spectral")
def test_on_a_round_sphere_spectral_distance_grows_with_the_geodesic_one():  # E11
    mesh = Mesh(*icosphere(2), n_eig=48)  # the first six spherical degrees, whole eigenspaces
    torch.testing.assert_close(
        mesh.eigenvalues[:3], torch.full((3,), 2.0, dtype=torch.float64), rtol=1e-2, atol=0
    )
    torch.testing.assert_close(
        mesh.eigenvalues[3:8], torch.full((5,), 6.0, dtype=torch.float64), rtol=3e-2, atol=0
    )
    # D^2 at angle a by the addition theorem: sum_l w_l (2l+1)/(2 pi) (1 - P_l(cos a)); increasing in a
    angle = torch.linspace(0.3, math.pi, 8, dtype=torch.float64)
    north = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    ring = torch.stack((angle.sin(), 0 * angle, angle.cos()), dim=1)
    d = spectral_sqdist(mesh, mesh.project(ring), mesh.project(north).expand(8, 3))
    assert (d.diff() > 0).all()


@pytest.mark.parametrize("weight", ["biharmonic", "diffusion"])
def test_spectral_bridges_reach_their_end(bumpy, weight):
    g, n = gen(2), 64
    x0, z = (bumpy.random_uniform(n, generator=g, dtype=torch.float64) for _ in range(2))
    schedule = LinearSchedule(0.2, 0.02)

    def gap(n_steps):
        x, h = x0, 1 / n_steps
        for i in range(n_steps):
            t = torch.full((n,), i * h, dtype=x.dtype)
            step = h * bridge_drift(bumpy, x, z, t, schedule, kind="spectral", weight=weight)
            x = bumpy.exp(
                x, step + (schedule.beta(i * h) * h) ** 0.5 * bumpy.random_normal_tangent(x, generator=g)
            )
        return float((x - z).norm(dim=1).median())

    coarse, fine = gap(15), gap(60)
    assert fine < coarse < 0.12
    assert fine < 0.05


@pytest.mark.equation("eq-riemannian_mixture-spectral")
@pytest.mark.parametrize("t", [0.3, 0.8])
def test_the_walk_on_a_mesh_is_the_spectral_bridge_step_by_step(bumpy, t):
    """The sampler searches once a step and caches; here every step is taken by the public functions."""
    g, n, n_steps, schedule = gen(4), 12, 6, LinearSchedule(0.2, 0.02)
    x0, x1 = (bumpy.random_uniform(n, generator=g, dtype=torch.float64) for _ in range(2))
    noise = torch.randn(n_steps, n, 3, generator=g, dtype=torch.float64)
    options = {"kind": "spectral", "weight": "diffusion", "tau": 0.1}
    times = torch.full((n,), t, dtype=torch.float64)
    walk = two_way_sample(bumpy, x0, x1, times, schedule, n_steps=n_steps, noise=noise, **options)
    x, z, clock, end = (x0, x1, schedule, t) if t < 0.5 else (x1, x0, schedule.reverse(), 1 - t)
    h = end / n_steps
    for i in range(n_steps):
        s = torch.full((n,), i * h, dtype=torch.float64)
        step = h * bridge_drift(bumpy, x, z, s, clock, **options)
        x = bumpy.exp(x, step + (clock.beta(i * h) * h) ** 0.5 * bumpy.tangent_noise(x, noise[i]))
    gap = (walk - x).norm(dim=1)
    assert gap.max() < 1e-9  # rows that met an edge included: both sides take the same face there


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sphere", "torus", "hyperboloid", "so3", "mesh"])
def test_samples_lie_on_the_manifold_and_repeat(manifolds, points, bumpy, name, dtype):
    m = bumpy if name == "mesh" else manifolds[name]
    draw = (
        (lambda s: bumpy.random_uniform(64, generator=gen(s), dtype=dtype))
        if name == "mesh"
        else (lambda s: points(name, 64, s, dtype))
    )
    x0, x1 = draw(1), draw(2)
    t = torch.linspace(0, 1, 64, dtype=dtype)
    kind = "spectral" if name == "mesh" else "log"
    a, b = (two_way_sample(m, x0, x1, t, LinearSchedule(), generator=gen(3), kind=kind) for _ in range(2))
    assert torch.equal(a, b)
    assert a.dtype == dtype
    assert (m.project(a) - a).abs().max() < 1e-5
    torch.testing.assert_close(a[0], m.project(x0)[0], atol=1e-5, rtol=0)  # t = 0 and t = T are the ends
    torch.testing.assert_close(a[-1], m.project(x1)[-1], atol=1e-5, rtol=0)


def test_given_noise_is_used(points, manifolds):
    m, x0, x1 = manifolds["sphere"], points("sphere", 8, 1), points("sphere", 8, 2)
    t = torch.full((8,), 0.3, dtype=torch.float64)
    noise = torch.randn(4, 8, 3, generator=gen(7), dtype=torch.float64)
    drawn = two_way_sample(m, x0, x1, t, CONSTANT, n_steps=4, generator=gen(7))
    torch.testing.assert_close(two_way_sample(m, x0, x1, t, CONSTANT, n_steps=4, noise=noise), drawn)


BAD = [
    ({"n_steps": 0}, ValueError, "n_steps must be at least 1"),
    ({"grid": "right"}, ValueError, r"\['left', 'linspace'\]"),
    ({"kind": "heat"}, ValueError, r"\['log', 'spectral'\]"),
    ({"kind": "spectral"}, TypeError, "Mesh"),
    ({"noise": torch.zeros(15, 5, 3)}, ValueError, r"noise must have shape .*\(15, 4, 3\), got \(15, 5, 3\)"),
    ({"n_steps": 2.5}, ValueError, "an integer"),
    ({"weight": "harmonic"}, ValueError, "biharmonic"),  # checked although "log" does not use it
    ({"tau": -1.0}, ValueError, "tau"),
    ({"speed": 2.0}, TypeError, r"\['speed'\]; a bridge takes weight and tau"),
]


@pytest.mark.parametrize(("kwargs", "error", "match"), BAD)
def test_rejects_options(kwargs, error, match):
    x = Sphere(2).random_uniform(4, generator=gen())
    with pytest.raises(error, match=match):
        two_way_sample(Sphere(2), x, x, torch.full((4,), 0.5), CONSTANT, **kwargs)


@pytest.mark.parametrize("t", [-0.1, 1.1, math.nan])
def test_rejects_times_outside_the_horizon(t):
    x = Sphere(2).random_uniform(4, generator=gen())
    with pytest.raises(ValueError, match=r"\[0, T\]"):
        two_way_sample(Sphere(2), x, x, torch.full((4,), t), CONSTANT)


def test_every_entry_takes_the_options_of_a_bridge_alike(points, manifolds):
    """What one function accepts or refuses, the others do too; "log" checks and ignores spectral options."""
    m, x, z = manifolds["sphere"], points("sphere", 4, 1), points("sphere", 4, 2)
    t = torch.full((4,), 0.3, dtype=torch.float64)
    drift = bridge_drift(m, x, z, t, CONSTANT)
    assert torch.equal(bridge_drift(m, x, z, t, CONSTANT, weight="diffusion", tau=0.1), drift)
    walk = two_way_sample(m, x, z, t, CONSTANT, n_steps=np.int64(3), generator=gen(1))
    same = two_way_sample(m, x, z, t, CONSTANT, n_steps=3, generator=gen(1), weight="diffusion", tau=0.1)
    assert torch.equal(walk, same)
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    for call in (
        lambda **kw: bridge_drift(m, x, z, t, CONSTANT, **kw),
        lambda **kw: two_way_sample(m, x, z, t, CONSTANT, **kw),
        lambda **kw: bridge_matching_loss(zero, zero, m, CONSTANT, x, z, t, x, **kw),
    ):
        with pytest.raises(ValueError, match="biharmonic"):
            call(weight="harmonic")
        with pytest.raises(ValueError, match="log"):
            call(kind="geodesic")
        with pytest.raises(TypeError):
            call(speed=1.0)
        with pytest.raises(TypeError, match="Mesh"):
            call(kind="spectral")


def test_times_are_a_number_or_one_a_row(points, manifolds):
    m, x, z = manifolds["sphere"], points("sphere", 4, 1), points("sphere", 4, 2)
    one = bridge_drift(m, x, z, 0.3, CONSTANT)
    assert torch.equal(one, bridge_drift(m, x, z, torch.full((4,), 0.3, dtype=torch.float64), CONSTANT))
    assert torch.equal(one, bridge_drift(m, x, z, np.float64(0.3), CONSTANT))
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    column = torch.full((4, 1), 0.3)
    for call in (
        lambda: bridge_drift(m, x, z, column, CONSTANT),
        lambda: two_way_sample(m, x, z, column, CONSTANT),
        lambda: bridge_matching_loss(zero, zero, m, CONSTANT, x, z, column, x),
        lambda: mixture_drift(m, x, column, z, torch.ones(4, 4), CONSTANT),
        lambda: divergence(m, zero, x, column),
        lambda: rfm_loss(zero, m, x, z, column),
    ):
        with pytest.raises(ValueError, match=r"t must have shape \(n,\) = \(4,\).*got shape \(4, 1\)"):
            call()


def test_no_rows_give_no_rows(manifolds, points):
    for name in ("sphere", "torus", "hyperboloid", "so3"):
        m, x = manifolds[name], points(name, 3, 1)[:0]
        assert bridge_drift(m, x, x, x.new_zeros(0), CONSTANT).shape == x.shape
        assert two_way_sample(m, x, x, x.new_zeros(0), CONSTANT).shape == x.shape


def test_rejects_rows_of_another_length():
    x = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="2, expected 3"):
        two_way_sample(Sphere(2), x, x, torch.zeros(4), CONSTANT)
    with pytest.raises(ValueError, match=r"dest must have shape \(n, 3\)"):
        bridge_drift(Sphere(2), torch.ones(4, 3), x, torch.zeros(4), CONSTANT)


def test_rejects_unknown_kinds_and_weights(bumpy):
    x, t = bumpy.random_uniform(2, generator=gen()), torch.zeros(2)
    with pytest.raises(ValueError, match=r"\['log', 'spectral'\]"):
        bridge_drift(bumpy, x, x, t, CONSTANT, kind="none")
    with pytest.raises(TypeError, match="Mesh"):
        bridge_drift(Hyperboloid(2), x, x, t, CONSTANT, kind="spectral")
    with pytest.raises(NotImplementedError, match="spectral"):
        bridge_drift(bumpy, x, x, t, CONSTANT)
    with pytest.raises(ValueError, match="biharmonic"):
        spectral_weights(torch.ones(2), "harmonic")
    with pytest.raises(ValueError, match="biharmonic"):
        spectral_direction(bumpy, x, x, weight="harmonic")
