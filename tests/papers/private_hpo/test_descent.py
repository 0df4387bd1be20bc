"""Private gradient descent and the radius of its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.private_hpo import (
    contraction_factor,
    dp_gd_linear,
    gaussian_mu,
    noisy_radius_bound,
)
from icml24.papers.private_hpo.radius import rms_radius, simulated_radius


def silent(n=6, k=3, d=200):
    """Records without features: every gradient is zero, so what remains is noise."""
    return torch.zeros(n, d, dtype=torch.float64), torch.arange(n) % k


def test_parity_with_opacus(dp_step):
    x, y = dp_step["x"], dp_step["y"].long()
    for count, expected in enumerate(
        dp_step["weights"][1:] if len(dp_step["weights"]) == 7 else dp_step["weights"], 1
    ):
        ours = dp_gd_linear(
            x,
            y,
            5,
            lr=float(dp_step["lr"]),
            steps=count,
            noise_multiplier=0.0,
            max_norm=float(dp_step["max_norm"]),
            momentum=float(dp_step["momentum"]),
            weight=dp_step["weight0"],
        )
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.equation("eq-private_hpo-noisy")
@pytest.mark.parametrize(("sigma", "max_norm", "lr", "n"), [(2.0, 0.5, 3.0, 6), (0.7, 4.0, 0.1, 9)])
def test_noise_is_sigma_times_the_clipping_norm_on_the_sum(sigma, max_norm, lr, n):
    x, y = silent(n, 3, 4000)
    g = torch.Generator().manual_seed(0)
    w = dp_gd_linear(x, y, 3, lr=lr, steps=1, noise_multiplier=sigma, max_norm=max_norm, generator=g)
    expected = lr * sigma * max_norm / n
    assert abs(float(w.std()) / expected - 1) < 4 / math.sqrt(2 * w.numel())
    assert abs(float(w.mean())) < 4 * expected / math.sqrt(w.numel())


@pytest.mark.equation("eq-private_hpo-momentum")
@pytest.mark.parametrize(("momentum", "steps"), [(0.9, 7), (0.5, 20), (0.0, 5)])
def test_momentum_amplifies_noise_by_its_weights(momentum, steps):
    """E9: variance of the last iterate is (eta sigma C / N)^2 sum_s ((1 - m^s) / (1 - m))^2."""
    x, y = silent(d=6000)
    g = torch.Generator().manual_seed(1)
    w = dp_gd_linear(
        x, y, 3, lr=0.2, steps=steps, noise_multiplier=1.5, max_norm=2.0, momentum=momentum, generator=g
    )
    s = np.arange(1, steps + 1)
    weights = (1 - momentum**s) / (1 - momentum)
    expected = 0.2 * 1.5 * 2.0 / 6 * math.sqrt((weights**2).sum())
    assert abs(float(w.std()) / expected - 1) < 4 / math.sqrt(2 * w.numel())


@pytest.mark.equation("eq-private_hpo-momentum")
def test_momentum_sums_the_same_draws():
    """E9: the last iterate is -eta C sigma/N sum_t (1 - m^(T-t+1))/(1-m) Z_t, draw for draw."""
    x, y = silent(d=4)
    steps, m = 6, 0.8
    w = dp_gd_linear(
        x,
        y,
        3,
        lr=0.3,
        steps=steps,
        noise_multiplier=2.0,
        momentum=m,
        generator=torch.Generator().manual_seed(9),
    )
    g = torch.Generator().manual_seed(9)
    z = [torch.randn(3, 4, generator=g, dtype=torch.float64) for _ in range(steps)]
    expected = (
        -0.3 * 2.0 / 6 * sum((1 - m ** (steps - t + 1)) / (1 - m) * z[t - 1] for t in range(1, steps + 1))
    )
    torch.testing.assert_close(w, expected)


def test_one_plain_step_by_hand():
    # zero start, two classes: residuals are +-1/2, gradient norm |x| / sqrt 2
    x = torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    w = dp_gd_linear(x, torch.tensor([0, 1]), 2, lr=2.0, steps=1, noise_multiplier=0.0, momentum=0.0)
    first = torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64)  # norm 1/sqrt 2: kept
    second = torch.tensor([[0.0, 2.0], [0.0, -2.0]], dtype=torch.float64) / (4 / math.sqrt(2))  # clipped to 1
    torch.testing.assert_close(w, -2.0 * (first + second) / 2)


def test_learns_without_noise():
    g = torch.Generator().manual_seed(3)
    centres = 3 * torch.randn(3, 8, generator=g)
    y = torch.arange(300) % 3
    x = centres[y] + torch.randn(300, 8, generator=g)
    w = dp_gd_linear(x, y, 3, lr=1.0, steps=60, noise_multiplier=0.0)
    assert w.dtype == torch.float32
    assert ((x @ w.T).argmax(1) == y).float().mean() > 0.95


def test_generator_is_the_only_source(global_random_state):
    x, y = silent()
    before = global_random_state()
    runs = [
        dp_gd_linear(x, y, 3, lr=1, steps=3, noise_multiplier=1, generator=torch.Generator().manual_seed(s))
        for s in (4, 4, 5)
    ]
    assert global_random_state() == before
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_start_is_not_changed():
    x, y = silent()
    start = torch.ones(3, 200, dtype=torch.float64)
    dp_gd_linear(x, y, 3, lr=1, steps=2, noise_multiplier=1.0, weight=start)
    assert torch.equal(start, torch.ones_like(start))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    x, y = silent()
    assert dp_gd_linear(x.to(dtype), y, 3, lr=1, steps=2, noise_multiplier=1.0).dtype == dtype


@settings(deadline=None)
@given(st.floats(0.5, 50.0), st.integers(1, 200), st.floats(1.01, 4.0))
def test_steps_and_noise_enter_the_budget(sigma, steps, factor):
    mu = gaussian_mu(sigma, steps)  # no learning rate among the arguments
    assert gaussian_mu(sigma * factor, steps) < mu < gaussian_mu(sigma, steps + 1)


def hessian(alpha, beta, d, generator):
    q, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    spectrum = alpha + (beta - alpha) * torch.rand(d, generator=generator, dtype=torch.float64)
    spectrum[0], spectrum[-1] = alpha, beta
    return q @ torch.diag(spectrum) @ q.T


@pytest.mark.equation("eq-private_hpo-contraction")
@pytest.mark.parametrize(
    ("alpha", "beta", "lr"), [(0.1, 2.0, 0.5), (1.0, 1.0, 1.7), (0.5, 4.0, 0.49), (0.0, 3.0, 0.3)]
)
def test_gradient_step_contracts(alpha, beta, lr):
    """E7: the step's spectral norm is the factor, attained; smaller on a random pair of points."""
    g = torch.Generator().manual_seed(0)
    h = hessian(alpha, beta, 12, g)
    c = contraction_factor(lr, alpha, beta)
    step = torch.eye(12, dtype=torch.float64) - lr * h
    assert float(torch.linalg.matrix_norm(step, 2)) == pytest.approx(c, rel=1e-9)
    a, b = torch.randn(2, 12, generator=g, dtype=torch.float64)
    assert torch.linalg.norm(step @ (a - b)) <= c * torch.linalg.norm(a - b) * (1 + 1e-12)


@pytest.mark.equation("eq-private_hpo-contraction")
def test_gradient_step_contracts_beyond_quadratics():
    """E7: ridge logistic loss, whose curvature varies between alpha and alpha + |x|^2 / 4."""
    alpha, lr = 0.2, 0.3
    x = torch.tensor([2.0, -1.0], dtype=torch.float64)
    c = contraction_factor(lr, alpha, alpha + float(x @ x) / 4)

    def step(w):
        return w - lr * (torch.sigmoid(w @ x)[..., None] * x + alpha * w)

    g = torch.Generator().manual_seed(2)
    a, b = 4 * torch.randn(2, 500, 2, generator=g, dtype=torch.float64)
    assert torch.all((step(a) - step(b)).norm(dim=-1) <= c * (a - b).norm(dim=-1) * (1 + 1e-12))


@pytest.mark.equation("eq-private_hpo-bound")
def test_bound_holds_on_random_quadratics():
    """E7: Monte Carlo mean distance of noisy and noiseless iterates, 20 settings."""
    rng = np.random.default_rng(0)
    ratios = []
    for seed in range(20):
        alpha = rng.uniform(0.01, 1.0)
        beta = alpha * rng.uniform(1.0, 20.0)
        lr = rng.uniform(0.1, 1.9) / beta
        steps = int(rng.integers(1, 60))
        g = torch.Generator().manual_seed(seed)
        spectrum = torch.linspace(alpha, beta, 10, dtype=torch.float64)
        distance = simulated_radius(spectrum, lr, 0.5, steps, 400, g)[-1]
        bound = noisy_radius_bound(0.5 * math.sqrt(10), lr, contraction_factor(lr, alpha, beta), steps)
        ratios.append(distance / bound)
    assert max(ratios) <= 1.0
    assert min(ratios) > 0.05  # loose, not vacuous


@pytest.mark.equation("eq-private_hpo-quadratic")
@pytest.mark.parametrize(("lr", "steps"), [(0.4, 1), (0.4, 25), (0.05, 60)])
def test_second_moment_on_a_quadratic(lr, steps):
    """E7: exact mean square of the distance, against simulation, and below the bound's square."""
    spectrum = torch.tensor([0.05, 0.4, 1.0, 3.0], dtype=torch.float64)
    g = torch.Generator().manual_seed(4)
    draws = 40_000
    d = torch.zeros(draws, 4, dtype=torch.float64)
    for _ in range(steps):
        d = (1 - lr * spectrum) * d - lr * 0.7 * torch.randn(draws, 4, generator=g, dtype=torch.float64)
    square = d.square().sum(1)
    exact = rms_radius(spectrum, lr, 0.7, steps) ** 2
    assert abs(float(square.mean()) - exact) < 4 * float(square.std()) / math.sqrt(draws)
    bound = noisy_radius_bound(0.7 * 2, lr, contraction_factor(lr, 0.05, 3.0), steps)
    assert exact <= bound**2


@pytest.mark.equation("eq-private_hpo-limits")
def test_two_limits_of_the_geometric_sum():
    """E8: c -> 1 gives rho eta T; T -> infinity gives rho eta / (1 - c)."""
    rho, lr, steps = 2.0, 0.3, 40
    gaps = [abs(noisy_radius_bound(rho, lr, 1 - h, steps) - rho * lr * steps) for h in (1e-3, 1e-4, 1e-5)]
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.05)  # first order in 1 - c
    assert gaps[1] / gaps[2] == pytest.approx(10, rel=0.05)
    assert noisy_radius_bound(rho, lr, 1.0, steps) == rho * lr * steps
    assert noisy_radius_bound(rho, lr, 1 - 1e-15, steps) == pytest.approx(rho * lr * steps)
    assert noisy_radius_bound(rho, lr, 0.9, 10_000) == pytest.approx(rho * lr / 0.1)
    # at one product lr * T the bound is one number only in the first limit
    ratio = noisy_radius_bound(rho, 0.1, 0.5, 40) / noisy_radius_bound(rho, 0.4, 0.5, 10)
    assert ratio < 0.3


@pytest.mark.equation("eq-private_hpo-bound")
@settings(deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 50))
def test_bound_is_the_sum(c, steps):
    assert noisy_radius_bound(1.5, 0.2, c, steps) == pytest.approx(
        0.3 * sum(c**i for i in range(steps)), rel=1e-9
    )


X, Y = silent()
OK = {"lr": 1.0, "steps": 2, "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: dp_gd_linear(X, Y, 3, **OK | {"steps": 0}), "steps must be a whole number, at least 1"),
        (lambda: dp_gd_linear(X, Y, 3, **OK | {"noise_multiplier": -1}), "noise_multiplier"),
        (lambda: dp_gd_linear(X, Y, 3, **OK | {"lr": math.nan}), "lr"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, max_norm=0), "max_norm"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, momentum=1.0), "momentum"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, momentum=-0.1), "momentum"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, momentum="heavy"), "momentum must be a number"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, clip="hard"), "unknown clipping mode"),
        (lambda: dp_gd_linear(X, Y, 2, **OK), r"labels must lie in 0\.\.1"),
        (lambda: dp_gd_linear(X[:-1], Y, 3, **OK), "5 rows and 6 labels"),
        (lambda: dp_gd_linear(X[:0], Y[:0], 3, **OK), "at least one record"),
        (lambda: dp_gd_linear(X + math.nan, Y, 3, **OK), "x must be finite"),
        (lambda: dp_gd_linear(X, Y, 3, **OK, weight=torch.zeros(3, 199, dtype=torch.float64)), "shape"),
        (lambda: contraction_factor(0.0, 1.0, 2.0), "lr must be positive"),
        (lambda: contraction_factor(1.0, 1.0, 2.0), r"lr must lie in \(0, 2/beta\)"),
        (lambda: contraction_factor(0.1, 3.0, 2.0), "alpha must not exceed beta"),
        (lambda: noisy_radius_bound(-1.0, 0.1, 0.5, 3), "rho"),
        (lambda: noisy_radius_bound(1.0, 0.1, 1.5, 3), r"c must lie in \[0, 1\]"),
        (lambda: noisy_radius_bound(1.0, 0.1, 0.5, 0), "steps"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
