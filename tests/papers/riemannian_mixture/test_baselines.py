"""The heat kernel, flow matching and score matching."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.riemannian_mixture import (
    SO3,
    LinearSchedule,
    Sphere,
    Torus,
    rfm_loss,
    rsgm_loss,
    sphere_log_heat_kernel,
)
from icml24.papers.riemannian_mixture.baselines import _heat_score, brownian_walk, rfm_velocity, rsgm_velocity
from icml24.papers.riemannian_mixture.training import RSGM_SCHEDULE


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_heat_kernel_integrates_to_one_and_solves_the_heat_equation():
    angle = torch.linspace(0, math.pi, 4001, dtype=torch.float64)
    x = torch.stack((angle.sin(), 0 * angle, angle.cos()), dim=1)
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand_as(x)
    p = lambda t: sphere_log_heat_kernel(x, pole, t).exp()  # noqa: E731
    assert torch.trapezoid(2 * math.pi * angle.sin() * p(0.3), angle) == pytest.approx(1, abs=1e-6)
    h, t = 1e-4, 0.5
    rate = (p(t + h) - p(t - h)) / (2 * h)
    width = angle[1]
    k = p(t)
    flux = ((angle[1:] + angle[:-1]) / 2).sin() * k.diff() / width
    laplace = flux.diff() / width / angle[1:-1].sin()
    assert (rate[1:-1] - 0.5 * laplace)[50:-50].abs().max() < 1e-5


def test_heat_kernel_variance_is_that_of_the_walk():
    m, n, clock = Sphere(2), 40_000, 0.4
    x = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(n, 3)
    y = brownian_walk(m, x, torch.full((n,), clock, dtype=torch.float64), n_steps=100, generator=gen(1))
    # E cos(angle) = exp(-t) for generator Delta / 2: the first spherical degree, l(l+1)/2 = 1
    cosine = y[:, 2]
    assert abs(cosine.mean() - math.exp(-clock)) < 4 * cosine.std() / n**0.5 + 2e-3


@pytest.mark.parametrize("manifold", [Sphere(2), Torus(2)])
def test_scores_join_at_the_switch(manifold):
    x = manifold.random_uniform(200, generator=gen(2), dtype=torch.float64)
    y = manifold.exp(x, 0.3 * manifold.random_normal_tangent(x, generator=gen(3)))
    early = _heat_score(manifold, x, y, torch.full((200,), 0.49999, dtype=torch.float64))
    late = _heat_score(manifold, x, y, torch.full((200,), 0.5, dtype=torch.float64))
    gap = (early - late).norm(dim=1) / late.norm(dim=1).clamp_min(0.1)
    assert gap.median() < 0.15  # Varadhan's limit is an approximation, of this size


def test_torus_score_is_the_gradient_of_the_wrapped_normal():
    m, clock = Torus(1), torch.full((50,), 0.8, dtype=torch.float64)
    x, y = (
        m.random_uniform(50, generator=gen(4), dtype=torch.float64),
        m.random_uniform(50, generator=gen(5), dtype=torch.float64),
    )
    gap = (m.to_angles(x) - m.to_angles(y)).squeeze(1).requires_grad_(True)
    images = gap.unsqueeze(1) + 2 * math.pi * torch.arange(-4, 5)
    (expected,) = torch.autograd.grad(torch.logsumexp(-(images**2) / 1.6, 1).sum(), gap)
    score = _heat_score(m, x, y, clock)
    signed = score[:, 1] * x[:, 0] - score[:, 0] * x[:, 1]
    torch.testing.assert_close(signed, expected, atol=1e-5, rtol=1e-5)


def test_flow_matching_target_is_the_velocity_of_the_geodesic():
    m, n = Sphere(2), 20
    x0, x1 = (
        m.random_uniform(n, generator=gen(6), dtype=torch.float64),
        m.random_uniform(n, generator=gen(7), dtype=torch.float64),
    )
    t, h = torch.linspace(0.1, 0.9, n, dtype=torch.float64), 1e-6
    path = lambda s: m.exp(x0, s.unsqueeze(1) * m.log(x0, x1))  # noqa: E731
    velocity = (path(t + h) - path(t - h)) / (2 * h)
    assert rfm_loss(lambda x, s: velocity, m, x0, x1, t) < 1e-12
    assert rfm_loss(lambda x, s: 0 * x, m, x0, x1, t) == pytest.approx(float(m.dist(x0, x1).square().mean()))
    assert torch.equal(rfm_velocity(lambda x, s: x * s)(x0, torch.tensor(0.25)), -x0 * 0.75)


def test_score_matching_loss_is_least_at_the_true_score():
    m, n, t = Sphere(2), 20_000, torch.full((20_000,), 0.35, dtype=torch.float64)
    x1 = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(n, 3)
    clock = RSGM_SCHEDULE.integral(torch.zeros_like(t), t)

    def exact(x, s):
        y = x.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(sphere_log_heat_kernel(y, x1, clock).sum(), y)
        return clock.sqrt().unsqueeze(1) * m.to_tangent(x, grad)

    def loss(model):
        return float(rsgm_loss(model, m, RSGM_SCHEDULE, x1, t, n_steps=50, generator=gen(8)))

    assert loss(exact) < 0.2 * loss(lambda x, s: 0 * x)
    flow = rsgm_velocity(lambda y, s: y, RSGM_SCHEDULE)(x1, t)
    torch.testing.assert_close(flow, (-0.5 * RSGM_SCHEDULE.beta(t) / clock.sqrt()).unsqueeze(1) * x1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_keep_their_dtype(dtype):
    m = Sphere(2)
    x = m.random_uniform(4, generator=gen(), dtype=dtype)
    t = torch.full((4,), 0.5, dtype=dtype)
    assert rfm_loss(lambda x, s: 0 * x, m, x, -x, t).dtype == dtype
    assert rsgm_loss(lambda x, s: 0 * x, m, RSGM_SCHEDULE, x, t, n_steps=3, generator=gen()).dtype == dtype


def test_refusals():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="length 3"):
        sphere_log_heat_kernel(torch.ones(2, 4), torch.ones(2, 4), 0.5)
    with pytest.raises(ValueError, match="n_terms"):
        sphere_log_heat_kernel(x, x, 0.5, 0)
    with pytest.raises(ValueError, match="n_steps"):
        rsgm_loss(lambda x, s: x, Sphere(2), LinearSchedule(), x, torch.full((2,), 0.5), n_steps=0)
    R = SO3().random_uniform(2, generator=gen())
    with pytest.raises(NotImplementedError, match="heat-kernel series"):
        rsgm_loss(lambda x, s: x, SO3(), RSGM_SCHEDULE, R, torch.ones(2), n_steps=2, generator=gen())
