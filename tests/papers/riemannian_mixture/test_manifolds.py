"""Laws of every manifold: exponential and logarithm, metric, noise, edges, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.common.rotations import hat, random_so3, so3_exp, so3_geodesic, so3_log, vee
from icml24.papers.riemannian_mixture import SO3, Euclidean, Hyperboloid, Sphere, Torus
from icml24.papers.riemannian_mixture.hyperboloid import wrapped_normal, wrapped_normal_log_prob

NAMES = ["euclidean", "circle", "sphere", "sphere4", "torus1", "torus", "hyperboloid", "hyperboloid4", "so3"]
COMPACT = [n for n in NAMES if n not in ("euclidean", "hyperboloid", "hyperboloid4")]


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.equation("eq-riemannian_mixture-explog")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_exp_inverts_log_and_lengths_are_distances(manifolds, points, name, dtype, tolerance):  # E12
    m, x, y = manifolds[name], points(name, 256, 1, dtype), points(name, 256, 2, dtype)
    v = m.log(x, y)
    assert v.dtype == dtype
    assert (m.exp(x, v) - y).abs().max() < tolerance
    # the direction u / |u| of a logarithm loses digits near the antipode, its length does not
    torch.testing.assert_close(m.to_tangent(x, v), v, atol=10 * tolerance, rtol=0)
    torch.testing.assert_close(m.inner(x, v, v).clamp_min(0).sqrt(), m.dist(x, y), atol=tolerance, rtol=0)
    torch.testing.assert_close(m.dist(x, y), m.dist(y, x), atol=tolerance, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-explog")
@pytest.mark.parametrize("name", NAMES)
def test_geodesics_have_constant_speed_and_solve_their_equation(manifolds, points, name):
    m, x = manifolds[name], points(name, 32, 3)
    v = m.random_normal_tangent(x, generator=gen(4))
    v = v / m.inner(x, v, v).sqrt().unsqueeze(-1)
    h = 1e-4
    path = [m.exp(x, s * v) for s in (0.5 - h, 0.5, 0.5 + h)]
    velocity = (path[2] - path[0]) / (2 * h)
    torch.testing.assert_close(
        m.inner(path[1], velocity, velocity), torch.ones(32, dtype=v.dtype), atol=1e-6, rtol=0
    )
    bend = m.to_tangent(path[1], (path[2] - 2 * path[1] + path[0]) / h**2)  # tangential acceleration
    assert bend.abs().max() < 1e-5 * float(path[1].abs().max()) ** 2


@pytest.mark.parametrize("name", NAMES)
def test_log_is_minus_half_the_gradient_of_the_squared_distance(manifolds, points, name):
    m, x, y = manifolds[name], points(name, 16, 5), points(name, 16, 6)
    u = m.random_normal_tangent(x, generator=gen(7))
    h = 1e-5
    slope = (m.dist(m.exp(x, h * u), y) ** 2 - m.dist(m.exp(x, -h * u), y) ** 2) / (2 * h)
    torch.testing.assert_close(slope, -2 * m.inner(x, m.log(x, y), u), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_tangent_noise_is_standard_in_every_direction(manifolds, points, name):
    m = manifolds[name]
    x = points(name, 1, 8).expand(40_000, -1)
    n = m.random_normal_tangent(x, generator=gen(9))
    torch.testing.assert_close(m.to_tangent(x, n), n, atol=1e-9, rtol=1e-9)
    square = m.inner(x, n, n)
    assert abs(square.mean() - m.dim) < 4 * square.std() / 200
    assert abs(square.var() / (2 * m.dim) - 1) < 0.08


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_points_and_zero_vectors_keep_values_and_gradients_finite(manifolds, points, name, dtype):
    m = manifolds[name]
    x = points(name, 5, 10, dtype)
    y, v = x.clone().requires_grad_(True), torch.zeros_like(x).requires_grad_(True)
    assert m.log(x, x).abs().max() < 1e-6
    assert m.dist(x, x).abs().max() < (1e-3 if dtype == torch.float32 else 1e-7)  # roots of rounding
    (m.log(x, y).sum() + m.exp(x, v).sum()).backward()
    assert torch.isfinite(y.grad).all()
    assert torch.isfinite(v.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_antipodes_have_distance_pi_and_a_logarithm(dtype):
    x = torch.eye(3, dtype=dtype)
    v = Sphere(2).log(x, -x)
    torch.testing.assert_close(Sphere(2).exp(x, v), -x, atol=1e-6, rtol=0)
    torch.testing.assert_close(Sphere(2).dist(x, -x), torch.full((3,), math.pi, dtype=dtype))


@pytest.mark.parametrize("angle", [1e-8, 1e-3, 1.0, math.pi - 1e-3, math.pi - 1e-6, math.pi])
def test_rotation_logarithm_keeps_its_digits(angle):
    axis = torch.nn.functional.normalize(torch.randn(50, 3, generator=gen(1), dtype=torch.float64), dim=1)
    w = so3_log(so3_exp(angle * axis))
    sign = torch.where((w * axis).sum(1, keepdim=True) < 0, -1.0, 1.0)  # at a half turn both are right
    torch.testing.assert_close(sign * w, angle * axis, atol=1e-9, rtol=1e-7)


def test_rotation_helpers():
    w, u = torch.randn(2, 8, 3, generator=gen(2), dtype=torch.float64)
    torch.testing.assert_close((hat(w) @ u.unsqueeze(-1)).squeeze(-1), torch.linalg.cross(w, u))
    torch.testing.assert_close(vee(hat(w)), w)
    torch.testing.assert_close(so3_exp(w), torch.linalg.matrix_exp(hat(w)))
    R = random_so3((8, 2), generator=gen(3), dtype=torch.float64)
    torch.testing.assert_close(R.mT @ R, torch.eye(3, dtype=torch.float64).expand(8, 2, 3, 3))
    t = torch.tensor(0.3, dtype=torch.float64)
    third = so3_geodesic(t, R[:, 0], R[:, 1])
    full = so3_log(R[:, 1].mT @ R[:, 0])
    torch.testing.assert_close(so3_log(R[:, 1].mT @ third), t * full)


def test_haar_angles():
    angle = torch.linalg.vector_norm(
        so3_log(random_so3((20_000,), generator=gen(4), dtype=torch.float64)), dim=-1
    )
    angle = angle.sort().values
    cdf = (angle - angle.sin()) / math.pi
    empirical = torch.arange(1, 20_001, dtype=torch.float64) / 20_000
    assert (cdf - empirical).abs().max() < 0.015


@given(st.floats(-3.1, 3.1), st.floats(-3.1, 3.1))
@settings(max_examples=50, deadline=None)
def test_torus_angles_round_trip_and_interleave(a, b):
    t = Torus(2)
    angles = torch.tensor([[a, b]], dtype=torch.float64)
    x = t.from_angles(angles)
    expected = torch.tensor([[math.cos(a), math.sin(a), math.cos(b), math.sin(b)]], dtype=torch.float64)
    torch.testing.assert_close(x, expected)
    torch.testing.assert_close(t.to_angles(x), angles)


def test_torus_angle_minus_pi_reads_pi():
    x = torch.tensor([[-1.0, -0.0]])
    assert Torus(1).to_angles(x).item() > 3


@pytest.mark.parametrize("name", COMPACT)
def test_uniform_law_and_volume(manifolds, name):
    m = manifolds[name]
    x = m.random_uniform(20_000, generator=gen(11), dtype=torch.float64)
    assert x.shape == (20_000, m.ambient_dim)
    assert (m.project(x) - x).abs().max() < 1e-12
    assert (x.mean(0).abs() < 4 * x.std(0) / 20_000**0.5).all()
    # a small geodesic ball has the flat volume: its share of the points gives the total volume
    r, centre = (1.0, x[:1]) if m.dim < 4 else (1.4, x[:1])
    share = (m.dist(x, centre) < r).double().mean()
    grid = torch.linspace(0, r, 2001, dtype=torch.float64)
    profile = {"sphere": grid.sin(), "sphere4": grid.sin() ** 3, "so3": (2 * (grid / 2).sin()) ** 2}
    density = profile.get(name, grid ** (m.dim - 1))
    surface = 2 * math.pi ** (m.dim / 2) / math.gamma(m.dim / 2)
    ball = surface * torch.trapezoid(density, grid)
    expected = float(ball) / math.exp(m.log_volume)
    assert abs(float(share) - expected) < 4 * (expected * (1 - expected) / 20_000) ** 0.5


@pytest.mark.equation("eq-riemannian_mixture-explog")
def test_transport_on_the_hyperboloid_is_an_isometry(points):  # E12
    m, x = Hyperboloid(2), points("hyperboloid", 64, 12)
    u, w = torch.randn(2, 64, 2, generator=gen(13), dtype=torch.float64)
    tu, tw = m.tangent_noise(x, u), m.tangent_noise(x, w)
    torch.testing.assert_close(m.inner(x, tu, tw), (u * w).sum(-1))
    torch.testing.assert_close(m.transport_to_origin(x, tu)[:, 1:], u)


def test_ball_and_sheet_are_inverse_and_isometric():
    m = Hyperboloid(2)
    b = torch.tensor([[0.4, 0.0], [0.0, -0.9], [0.1, 0.2]], dtype=torch.float64)
    torch.testing.assert_close(m.to_ball(m.from_ball(b)), b)
    o = m.origin(b).expand(3, -1)
    torch.testing.assert_close(m.dist(o, m.from_ball(b)), 2 * torch.atanh(torch.linalg.vector_norm(b, dim=1)))
    with pytest.raises(ValueError, match="norm below 1"):
        m.from_ball(torch.ones(1, 2))


def test_wrapped_normal_density_integrates_to_one():
    m, centre = Hyperboloid(2), Hyperboloid(2).from_ball(torch.tensor([0.4, 0.0], dtype=torch.float64))
    std = torch.tensor([0.3, 0.6], dtype=torch.float64)
    x = wrapped_normal(m, 100_000, std=1.0, generator=gen(14), dtype=torch.float64)
    weight = (wrapped_normal_log_prob(m, x, std=std, center=centre) - wrapped_normal_log_prob(m, x)).exp()
    assert abs(weight.mean() - 1) < 4 * weight.std() / 100_000**0.5


def test_projection_onto_rotations_keeps_the_determinant():
    x = torch.randn(20, 9, generator=gen(15), dtype=torch.float64)
    R = SO3().project(x).unflatten(-1, (3, 3))
    torch.testing.assert_close(torch.linalg.det(R), torch.ones(20, dtype=torch.float64))


@pytest.mark.parametrize("make", [Sphere, Torus, Hyperboloid, Euclidean])
@pytest.mark.parametrize("dim", [0, -1])
def test_rejects_dimensions_below_one(make, dim):
    with pytest.raises(ValueError, match="dim must be >= 1"):
        make(dim)


def test_rejects_wrong_numbers_of_angles():
    with pytest.raises(ValueError, match="expected 2 angles"):
        Torus(2).from_angles(torch.zeros(4, 3))


def test_no_global_random_numbers(global_random_state):
    before = global_random_state()
    Sphere(2).random_uniform(3, generator=gen())
    wrapped_normal(Hyperboloid(2), 3, generator=gen())
    assert global_random_state() == before


@pytest.mark.parametrize("make", [Sphere, Torus, Hyperboloid, Euclidean])
def test_dimensions_may_be_numpy_integers(make):
    m, plain = make(np.int64(2)), make(2)
    assert repr(m) == repr(plain)
    assert all(type(getattr(m, name)) is int for name in ("dim", "ambient_dim", "noise_dim"))


def test_dimensions_are_whole():
    with pytest.raises(ValueError, match="dim must be"):
        Sphere(2.0)
