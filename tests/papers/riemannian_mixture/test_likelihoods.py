"""Divergences, the probability flow and likelihoods."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.riemannian_mixture import (
    SO3,
    DriftMLP,
    Euclidean,
    Hyperboloid,
    LinearSchedule,
    Sphere,
    Torus,
    divergence,
    gaussian_drifts,
    log_likelihood,
    pf_ode_drift,
    sample,
)

SCHEDULE = LinearSchedule(0.4, 0.1)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def zero(x, t):
    return torch.zeros_like(x)


@pytest.mark.equation("eq-riemannian_mixture-divergence")
@pytest.mark.parametrize("name", ["circle", "sphere", "sphere4"])
def test_divergence_of_projected_constants_on_spheres(manifolds, points, name):  # E7
    m, x = manifolds[name], points(name, 12, 1)
    a = torch.randn(m.ambient_dim, generator=gen(2), dtype=torch.float64)
    div = divergence(m, lambda y, t: m.to_tangent(y, a.expand_as(y)), x, torch.zeros(12))
    torch.testing.assert_close(div, -m.dim * (x @ a))


@pytest.mark.equation("eq-riemannian_mixture-divergence")
@pytest.mark.parametrize("name", ["hyperboloid", "hyperboloid4"])
def test_divergence_of_projected_constants_on_hyperboloids(manifolds, points, name):  # E7
    m, x = manifolds[name], points(name, 12, 1)
    a = torch.randn(m.ambient_dim, generator=gen(2), dtype=torch.float64)
    field = lambda y, t: m.to_tangent(y, a.expand_as(y))  # noqa: E731
    expected = m.dim * ((x[:, 1:] * a[1:]).sum(1) - x[:, 0] * a[0])
    torch.testing.assert_close(divergence(m, field, x, torch.zeros(12)), expected)

    class Vertical(Hyperboloid):  # moves the zeroth coordinate alone
        def smooth_project(self, y):
            return torch.cat(((1 + y[..., 1:].square().sum(-1, keepdim=True)).sqrt(), y[..., 1:]), dim=-1)

    wrong = divergence(Vertical(m.dim), field, x, torch.zeros(12))
    v0 = field(x, None)[:, 0] / x[:, 0]
    torch.testing.assert_close((wrong - expected).abs(), v0.abs(), atol=1e-8, rtol=1e-8)


@pytest.mark.equation("eq-riemannian_mixture-divergence")
def test_left_invariant_fields_on_rotations_have_none(manifolds, points):  # E7
    m, x = manifolds["so3"], points("so3", 12, 1)
    eps = torch.randn(1, 3, generator=gen(2), dtype=torch.float64)
    div = divergence(m, lambda y, t: m.tangent_noise(y, eps.expand(len(y), 3)), x, torch.zeros(12))
    torch.testing.assert_close(div, torch.zeros(12, dtype=torch.float64), atol=1e-10, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-divergence")
@pytest.mark.parametrize("name", ["sphere", "torus", "hyperboloid", "so3"])
def test_divergence_is_the_trace_of_the_covariant_derivative(manifolds, points, name):
    """Against finite differences along an orthonormal tangent frame: no ambient trick."""
    m, x = manifolds[name], points(name, 5, 3)
    net = DriftMLP(m, 16, 2, generator=gen(4)).double()
    t, h = torch.full((5,), 0.3, dtype=torch.float64), 1e-5
    expected = torch.zeros(5, dtype=torch.float64)
    if name in ("hyperboloid", "so3"):
        frame = [m.tangent_noise(x, e.expand(5, -1)) for e in torch.eye(m.noise_dim, dtype=torch.float64)]
    elif name == "torus":
        units = torch.eye(m.dim, dtype=torch.float64)
        angle = m.to_angles(x)
        frame = [torch.stack((-angle.sin() * u, angle.cos() * u), dim=-1).flatten(-2) for u in units]
    else:
        first = m.project(m.to_tangent(x, torch.ones_like(x)))
        frame = [first, torch.linalg.cross(x, first)]
    for e in frame:
        change = (net(m.exp(x, h * e), t) - net(m.exp(x, -h * e), t)) / (2 * h)
        expected += m.inner(x, m.to_tangent(x, change), e).detach()
    torch.testing.assert_close(divergence(m, net, x, t), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.equation("eq-riemannian_mixture-divergence")
@pytest.mark.parametrize("name", ["sphere", "torus", "hyperboloid", "so3"])
def test_divergence_does_not_see_how_a_field_is_extended(manifolds, points, name):
    """What vanishes on the manifold, but not beside it, must not count: the work of the projection."""
    m, x = manifolds[name], points(name, 6, 5)
    net, t = DriftMLP(m, 16, 2, generator=gen(6)).double(), torch.full((6,), 0.3, dtype=torch.float64)

    def beside(y):  # zero on the manifold, with a trace of its own
        if name == "so3":
            Y = y.unflatten(-1, (3, 3))
            return (Y @ (Y.mT @ Y) - Y).flatten(-2)
        if name == "torus":
            blocks = y.unflatten(-1, (m.dim, 2))
            return (blocks * (blocks.square().sum(-1, keepdim=True) - 1)).flatten(-2)
        sign = 1.0 if name == "sphere" else -1.0
        return y * (m.inner(y, y, y).unsqueeze(-1) - sign)

    extended = divergence(m, lambda y, s: net(y, s) + beside(y), x, t)
    torch.testing.assert_close(extended, divergence(m, net, x, t), atol=1e-8, rtol=1e-8)
    y = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(beside(y).sum(), y)
    assert gradient.abs().max() > 0.1  # beside the manifold it does change


def test_hutchinson_is_unbiased(manifolds, points):
    m, x = manifolds["sphere"], points("sphere", 1, 3).expand(4000, 3)
    net = DriftMLP(m, 16, 2, generator=gen(4)).double()
    t = torch.full((4000,), 0.3, dtype=torch.float64)
    probe = 2.0 * torch.randint(0, 2, x.shape, generator=gen(5)).double() - 1
    estimate = divergence(m, net, x, t, probe=probe)
    exact = divergence(m, net, x[:1], t[:1])
    assert abs(estimate.mean() - exact) < 4 * estimate.std() / 4000**0.5


def test_a_field_without_gradient_has_no_divergence(points, manifolds):
    x = points("sphere", 3, 1)
    assert torch.equal(
        divergence(manifolds["sphere"], zero, x, torch.zeros(3)), torch.zeros(3, dtype=x.dtype)
    )
    with pytest.raises(ValueError, match="probe"):
        divergence(manifolds["sphere"], zero, x, torch.zeros(3), probe=torch.zeros(3, 2))


@pytest.mark.equation("eq-riemannian_mixture-flow")
def test_the_flow_moves_the_marginals_of_the_mixture():
    """The velocity solves the continuity equation of p_t: normals at every time."""
    f, b = gaussian_drifts(0.5, 1.0, -0.5, 0.4, SCHEDULE)
    v = pf_ode_drift(f, b)
    x = torch.linspace(-2, 2, 41, dtype=torch.float64).unsqueeze(1)

    def log_p(x, t):
        r, total = SCHEDULE.integral(0, t) / SCHEDULE.integral(0, 1), SCHEDULE.integral(0, 1)
        V = (1 - r) ** 2 + 0.16 * r**2 + total * r * (1 - r)
        return -((x - 0.5 * (1 - r) + 0.5 * r) ** 2 / (2 * V)).squeeze(1) - 0.5 * math.log(V)

    t, h = 0.4, 1e-5
    s = torch.full((41,), 1 - t, dtype=torch.float64)
    slope = (log_p(x, t + h) - log_p(x, t - h)) / (2 * h)
    y = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(log_p(y, t).sum(), y)
    forward = -v(x, s).squeeze(1)  # prior to data
    div = -divergence(Euclidean(1), v, x, s)
    torch.testing.assert_close(slope, -(forward * gradient.squeeze(1) + div), atol=1e-6, rtol=1e-6)


@pytest.mark.equation("eq-riemannian_mixture-flow")
@pytest.mark.parametrize("mode", ["sde", "ode"])
def test_sampling_with_exact_drifts_gives_the_data(mode):
    f, b = gaussian_drifts(0.5, 1.0, -0.5, 0.4, SCHEDULE)
    x0 = 0.5 + torch.randn(20_000, 1, generator=gen(1), dtype=torch.float64)
    x = sample(f, Euclidean(1), SCHEDULE, x0, model_b=b, mode=mode, n_steps=200, generator=gen(2))
    assert abs(x.mean() + 0.5) < 0.015
    assert x.std() == pytest.approx(0.4, rel=0.03)


@pytest.mark.equation("eq-riemannian_mixture-likelihood")
def test_exact_drifts_give_the_exact_likelihood():  # E8
    m1, s1 = torch.tensor([0.4, -0.3], dtype=torch.float64), 0.5
    f, b = gaussian_drifts(0.0, 1.0, m1, s1, SCHEDULE)
    x = m1 + s1 * torch.randn(50, 2, generator=gen(3), dtype=torch.float64)
    prior = torch.distributions.Normal(torch.zeros(2).double(), torch.ones(2).double())
    kw = {"prior_log_prob": lambda y: prior.log_prob(y).sum(-1), "n_steps": 60, "eps": 1e-4}
    expected = torch.distributions.Normal(m1, s1).log_prob(x).sum(-1)
    actual = log_likelihood(f, b, Euclidean(2), SCHEDULE, x, **kw)
    torch.testing.assert_close(actual, expected, atol=3e-3, rtol=0)
    euler = log_likelihood(f, b, Euclidean(2), SCHEDULE, x, method="euler", **{**kw, "n_steps": 1000})
    torch.testing.assert_close(euler, expected, atol=2e-2, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-likelihood")
@pytest.mark.parametrize("name", ["circle", "sphere", "torus", "so3"])
@pytest.mark.parametrize("method", ["rk4", "euler"])
def test_zero_networks_have_the_uniform_likelihood(manifolds, points, name, method):
    m = manifolds[name]
    logp = log_likelihood(zero, zero, m, SCHEDULE, points(name, 7, 1), n_steps=3, method=method)
    torch.testing.assert_close(logp, torch.full((7,), -m.log_volume, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-likelihood")
def test_density_of_random_networks_integrates_to_one_on_the_sphere():
    m = Sphere(2)
    f, b = (DriftMLP(m, 32, 2, "sin", generator=gen(i)).double() for i in (1, 2))
    for net in (f, b):
        for linear in net.linears:
            linear.weight.data *= 2  # strong enough to matter
    lat = (torch.arange(24, dtype=torch.float64) + 0.5) * math.pi / 24 - math.pi / 2
    lon = (torch.arange(48, dtype=torch.float64) + 0.5) * 2 * math.pi / 48
    lat, lon = torch.meshgrid(lat, lon, indexing="ij")
    x = torch.stack((lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()), dim=-1).reshape(-1, 3)
    logp = log_likelihood(f, b, m, SCHEDULE, x, n_steps=20)
    total = (logp.exp() * lat.cos().reshape(-1)).sum() * (math.pi / 24) ** 2
    assert float(total) == pytest.approx(1, abs=0.01)
    assert logp.std() > 0.05


def test_high_dimensional_likelihoods_use_one_fixed_probe():
    m = Torus(10)
    f, b = (DriftMLP(m, 16, 1, generator=gen(i)) for i in (1, 2))
    x = m.random_uniform(6, generator=gen(3))
    a = log_likelihood(f, b, m, SCHEDULE, x, n_steps=4)
    assert torch.equal(a, log_likelihood(f, b, m, SCHEDULE, x, n_steps=4))
    c = log_likelihood(f, b, m, SCHEDULE, x, n_steps=4, generator=gen(9))
    assert not torch.equal(a, c)
    assert torch.isfinite(a).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_no_gradient(points, manifolds, dtype):
    m = manifolds["sphere"]
    f, b = (DriftMLP(m, 8, 1).to(dtype) for _ in range(2))
    logp = log_likelihood(f, b, m, SCHEDULE, points("sphere", 4, 1, dtype), n_steps=2)
    assert logp.dtype == dtype
    assert logp.shape == (4,)
    assert not logp.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(
            log_likelihood(f, b, m, SCHEDULE, points("sphere", 4, 1, dtype), n_steps=2), logp
        )


@pytest.mark.parametrize(
    ("manifold", "x", "kwargs", "match"),
    [
        (Sphere(2), torch.zeros(4, 2), {}, "2, expected 3"),
        (Sphere(2), torch.ones(4, 3), {"method": "heun"}, r"\['rk4', 'euler'\]"),
        (Sphere(2), torch.ones(4, 3), {"n_steps": 0}, "n_steps"),
        (Sphere(2), torch.ones(4, 3), {"eps": 1.0}, "eps"),
        (Hyperboloid(2), torch.ones(4, 3), {}, "prior_log_prob"),
    ],
)
def test_likelihood_rejects(manifold, x, kwargs, match):
    with pytest.raises(ValueError, match=match):
        log_likelihood(zero, zero, manifold, SCHEDULE, x, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"mode": "pf"}, r"\['sde', 'ode'\]"),
        ({"mode": "ode"}, "model_b"),
        ({"n_steps": 0}, "n_steps"),
        ({"eps": -1}, "eps"),
    ],
)
def test_sampling_rejects(kwargs, match):
    with pytest.raises(ValueError, match=match):
        sample(zero, Sphere(2), SCHEDULE, torch.ones(4, 3), **kwargs)


@pytest.mark.parametrize("mode", ["sde", "ode"])
def test_samples_lie_on_the_mesh_in_single_precision(bumpy, mode):
    x0 = bumpy.random_uniform(32, generator=gen(1), dtype=torch.float32)
    f, b = (DriftMLP(bumpy, 16, 2, generator=gen(i)) for i in (1, 2))
    x = sample(f, bumpy, SCHEDULE, x0, model_b=b, mode=mode, n_steps=20, generator=gen(3))
    assert x.dtype == torch.float32
    assert (bumpy.project(x.double()) - x).abs().max() < 1e-5
    assert (x - x0).norm(dim=1).median() > 0.02  # they did move


@pytest.mark.parametrize("name", ["sphere", "torus", "hyperboloid", "so3"])
@pytest.mark.parametrize("mode", ["sde", "ode"])
def test_samples_lie_on_the_manifold_in_single_precision(points, manifolds, name, mode):
    m, x0 = manifolds[name], points(name, 64, 1, torch.float32)
    f, b = (DriftMLP(m, 16, 2, generator=gen(i)) for i in (1, 2))
    for net in (f, b):  # on the hyperboloid an untrained drift grows like e^rho and runs away in finite time
        net.linears[-1].weight.data *= 0.05
        net.linears[-1].bias.data *= 0.05
    x = sample(f, m, SCHEDULE, x0, model_b=b, mode=mode, n_steps=100, generator=gen(3))
    assert x.dtype == torch.float32
    wide = x.double()
    if name == "hyperboloid":  # on the sheet, relative to the size of the row
        assert ((m.inner(wide, wide, wide) + 1).abs() / wide[:, 0] ** 2).max() < 1e-5
        assert (x[:, 0] > 0).all()
    else:
        assert (m.project(wide) - wide).abs().max() < 1e-5
    assert torch.equal(x, sample(f, m, SCHEDULE, x0, model_b=b, mode=mode, n_steps=100, generator=gen(3)))


class _Network(torch.nn.Module):
    """A tangent field on the sphere that depends on the point, with or without a graph."""

    def __init__(self, graph: bool) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x, t):
        with torch.set_grad_enabled(self.graph and torch.is_grad_enabled()):
            return Sphere(2).to_tangent(x, x.roll(1, -1))


def test_a_field_without_a_graph_is_refused_not_taken_for_divergence_free():
    m = Sphere(2)
    x = m.random_uniform(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert divergence(m, _Network(True), x, 0.0).abs().max() > 1e-3
    with pytest.raises(ValueError, match="without a graph"):
        divergence(m, _Network(False), x, 0.0)


def test_networks_that_switch_gradients_off_are_refused():
    class Frozen(DriftMLP):
        @torch.no_grad()
        def forward(self, x, t):
            return super().forward(x, t)

    m, g = Sphere(2), torch.Generator().manual_seed(0)
    x = m.random_uniform(4, generator=g)
    with pytest.raises(ValueError, match="without a graph"):
        log_likelihood(Frozen(m, 8, 1), Frozen(m, 8, 1), m, SCHEDULE, x, n_steps=2)


def test_inference_mode_gives_the_same_likelihoods_on_a_mesh(bumpy):
    f, b = (DriftMLP(bumpy, 8, 1, generator=gen(i)) for i in (1, 2))
    x = bumpy.random_uniform(6, generator=gen(3))
    outside = log_likelihood(f, b, bumpy, SCHEDULE, x, n_steps=3)
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            assert torch.equal(log_likelihood(f, b, bumpy, SCHEDULE, x, n_steps=3), outside)
    assert outside.std() > 1e-6


@pytest.mark.parametrize("m", [Sphere(2), Torus(10), SO3()], ids=str)
def test_inference_mode_gives_the_same_likelihoods(m):
    g = torch.Generator().manual_seed(1)
    f, b = (DriftMLP(m, 8, 1, generator=g) for _ in range(2))
    x = m.random_uniform(4, generator=g)
    outside = log_likelihood(f, b, m, LinearSchedule(), x, n_steps=3)
    with torch.inference_mode():
        inside = log_likelihood(f, b, m, LinearSchedule(), x, n_steps=3)
    assert torch.equal(inside, outside)
    assert (outside + m.log_volume).abs().max() > 1e-6  # not merely the uniform law
