"""The mixture's drift: averages of Fokker-Planck equations, the normal case, the score."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.riemannian_mixture import (
    Euclidean,
    LinearSchedule,
    Sphere,
    Torus,
    bridge_drift,
    gaussian_drifts,
    mixture_drift,
    two_way_sample,
)
from icml24.papers.riemannian_mixture.reference import exact_mixture_drift, radial_density

SCHEDULE = LinearSchedule(0.4, 0.1)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def on_circle(angle):
    return torch.stack((angle.cos(), angle.sin()), dim=-1)


@pytest.mark.equation("eq-riemannian_mixture-mixture")
def test_the_weighted_mean_carries_the_averaged_density():  # E4
    r"""Solve three Fokker-Planck equations on a circle; the mixture's solution is the average."""
    cells, steps, stop = 256, 1600, 0.8
    circle, schedule = Torus(1), LinearSchedule(0.5, 0.2)
    width = 2 * math.pi / cells
    face = on_circle(torch.arange(cells, dtype=torch.float64) * width)  # left faces of the cells
    ends = on_circle(torch.tensor([0.7, 2.6], dtype=torch.float64))
    dt = stop / steps

    def advance(p, drift, t):
        at_face = (p + p.roll(1)) / 2
        flux = drift * at_face - schedule.beta(t) / 2 * (p - p.roll(1)) / width
        return p - dt / width * (flux.roll(-1) - flux)

    def along(v):  # signed speed of a tangent field at the faces
        return v[:, 1] * face[:, 0] - v[:, 0] * face[:, 1]

    uniform = torch.full((cells,), 1 / (2 * math.pi), dtype=torch.float64)
    bridges, mixture = [uniform, uniform], uniform
    for i in range(steps):
        t = torch.full((cells,), i * dt, dtype=torch.float64)
        at_faces = torch.stack([(p + p.roll(1)) / 2 for p in bridges], dim=1).clamp_min(0)
        mixture = advance(mixture, along(mixture_drift(circle, face, t, ends, at_faces, schedule)), i * dt)
        bridges = [
            advance(p, along(bridge_drift(circle, face, z.expand(cells, 2), t, schedule)), i * dt)
            for p, z in zip(bridges, ends, strict=True)
        ]
    assert (mixture - (bridges[0] + bridges[1]) / 2).abs().max() < 1e-3
    assert (bridges[0] - bridges[1]).abs().max() > 0.3  # they do differ
    assert mixture.sum() * width == pytest.approx(1, abs=1e-9)
    unweighted = mixture_drift(circle, face, t, ends, torch.ones(cells, 2), schedule)
    weighted = mixture_drift(circle, face, t, ends, at_faces, schedule)
    assert (unweighted - weighted).abs().max() > 0.1  # the weights matter


@pytest.mark.equation("eq-riemannian_mixture-mixture")
def test_flat_limit_against_autograd_of_the_density():  # C2: f = beta grad log p - b, both sides by other means
    line, m0, s0 = Euclidean(2), torch.tensor([0.3, -0.2], dtype=torch.float64), 0.7
    z = torch.randn(7, 2, generator=gen(1), dtype=torch.float64)
    x = torch.randn(9, 2, generator=gen(2), dtype=torch.float64).requires_grad_(True)
    t = 0.4
    total = SCHEDULE.integral(0, 1)
    r = SCHEDULE.integral(0, t) / total
    V = (1 - r) ** 2 * s0**2 + total * r * (1 - r)
    log_w = -(x.unsqueeze(1) - (1 - r) * m0 - r * z).square().sum(-1) / (2 * V)
    (score,) = torch.autograd.grad(torch.logsumexp(log_w, 1).sum(), x)
    weights = log_w.detach().softmax(1)
    x = x.detach()
    f = mixture_drift(line, x, torch.full((9,), t, dtype=torch.float64), z, weights, SCHEDULE)
    # E[x0 | x, z] of a normal pair, then averaged over z with the same weights
    gain = (1 - r) * s0**2 / V
    mean_x0 = m0 + gain * (weights.unsqueeze(-1) * (x.unsqueeze(1) - (1 - r) * m0 - r * z)).sum(1)
    b = SCHEDULE.beta(t) / SCHEDULE.integral(0, t) * (mean_x0 - x)
    torch.testing.assert_close(f + b, SCHEDULE.beta(t) * score, atol=1e-10, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-gaussian")
@pytest.mark.parametrize("t", [0.05, 0.5, 0.95])
def test_gaussian_drifts_are_rates_times_conditional_means(t):  # E5
    m0, s0, m1, s1 = torch.tensor([0.5, -1.0]).double(), 1.3, torch.tensor([-0.4, 0.2]).double(), 0.6
    f, b = gaussian_drifts(m0, s0, m1, s1, SCHEDULE)
    x = torch.randn(11, 2, generator=gen(3), dtype=torch.float64)
    total, r = SCHEDULE.integral(0, 1), SCHEDULE.integral(0, t) / SCHEDULE.integral(0, 1)
    V = (1 - r) ** 2 * s0**2 + r**2 * s1**2 + total * r * (1 - r)
    gap = x - (1 - r) * m0 - r * m1
    mean_x1, mean_x0 = m1 + r * s1**2 / V * gap, m0 + (1 - r) * s0**2 / V * gap
    times = torch.full((11,), t, dtype=torch.float64)
    torch.testing.assert_close(f(x, times), SCHEDULE.rate(t) * (mean_x1 - x), atol=1e-10, rtol=1e-10)
    rate_b = SCHEDULE.beta(t) / SCHEDULE.integral(0, t)
    torch.testing.assert_close(b(x, 1 - times), rate_b * (mean_x0 - x), atol=1e-10, rtol=1e-10)


@pytest.mark.equation("eq-riemannian_mixture-gaussian")
def test_regression_on_two_way_samples_finds_the_gaussian_drift():  # E5
    line, n, t = Euclidean(1), 60_000, 0.6
    m0, s0, m1, s1 = 0.5, 1.0, -0.5, 0.4
    g = gen(4)
    x0 = m0 + s0 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    x1 = m1 + s1 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    times = torch.full((n,), t, dtype=torch.float64)
    xt = two_way_sample(line, x0, x1, times, SCHEDULE, n_steps=60, generator=g)
    target = bridge_drift(line, xt, x1, times, SCHEDULE)
    design = torch.cat((torch.ones_like(xt), xt), dim=1)
    fitted = torch.linalg.lstsq(design, target).solution.squeeze(1)
    f, _ = gaussian_drifts(m0, s0, m1, s1, SCHEDULE)
    at = f(torch.tensor([[0.0], [1.0]], dtype=torch.float64), times[:2]).squeeze(1)
    residual = (target - design @ fitted.unsqueeze(1)).std()
    se = residual / n**0.5 / xt.std()
    assert abs(fitted[0] - at[0]) < 6 * se + 0.01
    assert abs(fitted[1] - (at[1] - at[0])) < 6 * se + 0.01


@pytest.mark.equation("eq-riemannian_mixture-score")
def test_the_two_drifts_sum_to_beta_times_the_score():  # E6
    m0, s0, m1, s1 = 0.2, 1.0, -0.7, 0.5
    f, b = gaussian_drifts(m0, s0, m1, s1, SCHEDULE)
    t = torch.linspace(0, 1, 41, dtype=torch.float64)
    x = torch.randn(41, 3, generator=gen(5), dtype=torch.float64).requires_grad_(True)
    total, r = (
        SCHEDULE.integral(0, 1),
        (SCHEDULE.integral(torch.zeros_like(t), t) / SCHEDULE.integral(0, 1)).unsqueeze(1),
    )
    V = (1 - r) ** 2 * s0**2 + r**2 * s1**2 + total * r * (1 - r)
    log_p = -((x - (1 - r) * m0 - r * m1) ** 2 / (2 * V)).sum()
    (score,) = torch.autograd.grad(log_p, x)
    both = f(x.detach(), t) + b(x.detach(), 1 - t)
    torch.testing.assert_close(both, SCHEDULE.beta(t).unsqueeze(1) * score, atol=1e-12, rtol=1e-12)
    assert torch.isfinite(both).all()  # at both ends too


def test_radial_density_is_the_law_of_simulated_bridges():
    for dim, m in ((1, Sphere(1)), (2, Sphere(2))):
        n, t = 20_000, 0.4
        z = torch.zeros(n, dim + 1, dtype=torch.float64)
        z[:, 0] = 1
        x0 = m.random_uniform(n, generator=gen(6), dtype=torch.float64)
        x = two_way_sample(
            m, x0, z, torch.full((n,), t, dtype=torch.float64), SCHEDULE, n_steps=80, generator=gen(7)
        )
        rho, p = radial_density(dim, SCHEDULE, torch.tensor([t]))
        mass = p[0] * rho.sin() ** (dim - 1)
        mass = mass / mass.sum()
        distance = m.dist(x, z)
        assert float(distance.mean()) == pytest.approx(float((mass * rho).sum()), abs=0.02)
        share = float((distance < 0.8).double().mean())
        assert share == pytest.approx(float(mass[rho < 0.8].sum()), abs=0.02)


def test_the_exact_drift_points_at_a_lone_destination():
    x = Sphere(2).random_uniform(5, generator=gen(8), dtype=torch.float64)
    z = Sphere(2).random_uniform(1, generator=gen(9), dtype=torch.float64)
    drift, weights = exact_mixture_drift(Sphere(2), x, 0.3, z, SCHEDULE)
    torch.testing.assert_close(
        drift, bridge_drift(Sphere(2), x, z.expand(5, 3), torch.full((5,), 0.3), SCHEDULE)
    )
    torch.testing.assert_close(weights, torch.ones(5, 1, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_are_normalised_and_dtypes_kept(dtype):
    m = Sphere(2)
    x, z = (
        m.random_uniform(4, generator=gen(1), dtype=dtype),
        m.random_uniform(6, generator=gen(2), dtype=dtype),
    )
    w, t = torch.rand(4, 6, generator=gen(3)), torch.full((4,), 0.5)
    a, b = mixture_drift(m, x, t, z, w, SCHEDULE), mixture_drift(m, x, t, z, 7 * w, SCHEDULE)
    torch.testing.assert_close(a, b)
    assert a.dtype == dtype
    by_hand = sum(w[:, j : j + 1].to(dtype) * m.log(x, z[j].expand(4, 3)) for j in range(6)) / w.sum(
        1, keepdim=True
    ).to(dtype)
    torch.testing.assert_close(a, SCHEDULE.rate(0.5) * by_hand)
    for drift in gaussian_drifts(0.0, 1.0, 0.0, 1.0, SCHEDULE):
        assert drift(x, t).dtype == dtype


@pytest.mark.parametrize(
    ("weights", "match"),
    [(torch.ones(4, 5), "shape"), (-torch.ones(4, 6), "negative"), (torch.zeros(4, 6), "positive sum")],
)
def test_rejects_weights(weights, match):
    m = Sphere(2)
    x, z = m.random_uniform(4, generator=gen(1)), m.random_uniform(6, generator=gen(2))
    with pytest.raises(ValueError, match=match):
        mixture_drift(m, x, torch.zeros(4), z, weights, SCHEDULE)


def test_rejects_widths():
    with pytest.raises(ValueError, match="std1"):
        gaussian_drifts(0.0, 1.0, 0.0, 0.0, SCHEDULE)
