"""Bridge matching: what its minimum is, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.riemannian_mixture import (
    DriftMLP,
    Euclidean,
    LinearSchedule,
    Sphere,
    baselines,
    bridge_drift,
    bridge_matching_loss,
    gaussian_drifts,
    likelihoods,
    two_way_sample,
)
from icml24.papers.riemannian_mixture.data import drawer, uniform_drawer
from icml24.papers.riemannian_mixture.losses import draw_times
from icml24.papers.riemannian_mixture.training import Training, train_mixture

SCHEDULE = LinearSchedule(0.4, 0.1)
N01 = (0.5, 1.0, -0.5, 0.4)  # mean and width of the two normals


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def flat_batch(n, t, seed, n_steps=60):
    g = gen(seed)
    x0 = N01[0] + N01[1] * torch.randn(n, 1, generator=g, dtype=torch.float64)
    x1 = N01[2] + N01[3] * torch.randn(n, 1, generator=g, dtype=torch.float64)
    times = torch.full((n,), t, dtype=torch.float64)
    return x0, x1, times, two_way_sample(Euclidean(1), x0, x1, times, SCHEDULE, n_steps=n_steps, generator=g)


@pytest.mark.equation("eq-riemannian_mixture-projection")
def test_the_loss_gap_is_the_gap_of_distances_to_the_mixture_drift():  # E9
    x0, x1, t, xt = flat_batch(200_000, 0.35, 1, n_steps=30)
    f, b = gaussian_drifts(*N01, SCHEDULE)
    shifted = lambda x, s: f(x, s) + 0.3 * x.sin()  # noqa: E731
    rough = lambda x, s: 0.5 * f(x, s)  # noqa: E731
    beta = SCHEDULE.beta(0.35)

    def losses(model):
        return bridge_matching_loss(model, b, Euclidean(1), SCHEDULE, x0, x1, t, xt)[1]

    def distance(model):
        return 0.5 / beta * (model(xt, t) - f(xt, t)).square().sum(1)

    for model in (shifted, rough):
        gap, expected = losses(model) - losses(f), distance(model)
        assert gap == pytest.approx(float(expected.mean()), rel=0.05)
        assert gap > 0  # the mixture drift is the minimum


@pytest.mark.equation("eq-riemannian_mixture-projection")
def test_the_best_constant_is_the_mean_of_the_targets():  # E9
    x0, x1, t, xt = flat_batch(5_000, 0.5, 2)
    c = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    constant = lambda x, s: c.expand(len(x), 1)  # noqa: E731
    loss = bridge_matching_loss(constant, constant, Euclidean(1), SCHEDULE, x0, x1, t, xt)[1]
    (grad,) = torch.autograd.grad(loss, c)
    best = -grad * SCHEDULE.beta(0.5)  # one Newton step of a quadratic
    torch.testing.assert_close(best, bridge_drift(Euclidean(1), xt, x1, t, SCHEDULE).mean(0))


@pytest.mark.equation("eq-riemannian_mixture-loss")
@pytest.mark.parametrize("weighting", ["inverse", "importance"])
def test_loss_by_hand(manifolds, points, weighting):
    m, n = manifolds["so3"], 6
    x0, x1, xt = (points("so3", n, s) for s in (1, 2, 3))
    t = torch.linspace(0.1, 0.9, n, dtype=torch.float64)
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    total, forward, backward = bridge_matching_loss(
        zero, zero, m, SCHEDULE, x0, x1, t, xt, weighting=weighting
    )
    beta = SCHEDULE.beta(t)
    w = 1 / beta if weighting == "inverse" else SCHEDULE.inv_beta_integral(1e-3, 1 - 1e-3)
    f = 0.5 * w * (beta / SCHEDULE.integral(t, 1.0) * m.dist(xt, x1)) ** 2
    b = 0.5 * w * (beta / SCHEDULE.integral(torch.zeros_like(t), t) * m.dist(xt, x0)) ** 2
    torch.testing.assert_close(forward, f.mean())
    torch.testing.assert_close(backward, b.mean())
    torch.testing.assert_close(total, forward + backward)


@pytest.mark.equation("eq-riemannian_mixture-loss")
def test_the_backward_network_is_given_reverse_time(points, manifolds):  # P3
    seen = {}

    def record(name):
        def model(x, s):
            seen[name] = s
            return torch.zeros_like(x)

        return model

    x = points("sphere", 5, 1)
    t = torch.linspace(0.1, 0.8, 5, dtype=torch.float64)
    bridge_matching_loss(record("f"), record("b"), manifolds["sphere"], LinearSchedule(T=2.0), x, x, t, x)
    torch.testing.assert_close(seen["f"], t)
    torch.testing.assert_close(seen["b"], 2.0 - t)


@pytest.mark.equation("eq-riemannian_mixture-importance")
def test_both_weightings_estimate_one_loss(points, manifolds):  # E10
    m, n, eps = manifolds["sphere"], 40_000, 1e-2
    g = gen(5)
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    means = {}
    for weighting in ("inverse", "importance"):
        x0, x1 = (m.random_uniform(n, generator=g, dtype=torch.float64) for _ in range(2))
        t = draw_times(SCHEDULE, n, weighting=weighting, eps=eps, generator=g, dtype=torch.float64)
        xt = two_way_sample(m, x0, x1, t, SCHEDULE, generator=g)
        means[weighting] = float(
            bridge_matching_loss(zero, zero, m, SCHEDULE, x0, x1, t, xt, weighting=weighting, eps=eps)[0]
        )
    assert means["importance"] == pytest.approx(means["inverse"] * (1 - 2 * eps), rel=0.05)


def test_training_calls_neither_divergence_nor_heat_kernel(monkeypatch):  # C1
    def forbidden(*args, **kwargs):
        raise AssertionError("training must not need this")

    for module, name in ((likelihoods, "divergence"), (likelihoods, "value_and_divergence"),
                         (baselines, "sphere_log_heat_kernel")):  # fmt: skip
        monkeypatch.setattr(module, name, forbidden)
    m = Sphere(2)
    data = m.random_uniform(50, generator=gen(1))
    config = Training(steps=3, batch=16, hidden=8, layers=1)
    trained = train_mixture(m, drawer(data), uniform_drawer(m), config, seed=0)
    assert len(trained.losses) == 3
    with pytest.raises(AssertionError, match="must not need"):
        likelihoods.log_likelihood(*trained.models, m, config.schedule, data, n_steps=2)


def test_training_repeats_bit_for_bit_and_touches_no_global_state(global_random_state):
    m = Sphere(2)
    data = m.random_uniform(50, generator=gen(1))
    config = Training(steps=5, batch=16, hidden=8, layers=1)
    before = global_random_state()
    a, b = (train_mixture(m, drawer(data), uniform_drawer(m), config, seed=3) for _ in range(2))
    assert a.losses == b.losses
    assert all(
        torch.equal(p, q) for p, q in zip(a.models[0].parameters(), b.models[0].parameters(), strict=True)
    )
    assert train_mixture(m, drawer(data), uniform_drawer(m), config, seed=4).losses != a.losses
    assert global_random_state() == before


def test_gradients_reach_the_models_only(points, manifolds):
    m = manifolds["sphere"]
    f, b = DriftMLP(m, 8, 1).double(), DriftMLP(m, 8, 1).double()
    x = points("sphere", 4, 1).requires_grad_(True)
    t = torch.full((4,), 0.3, dtype=torch.float64)
    bridge_matching_loss(f, b, m, SCHEDULE, x.detach(), x.detach(), t, x.detach())[0].backward()
    assert all(p.grad is not None for net in (f, b) for p in net.parameters())


@pytest.mark.parametrize(
    ("kwargs", "t", "error", "match"),
    [
        ({"weighting": "none"}, 0.5, ValueError, r"\['inverse', 'importance'\]"),
        ({"kind": "none"}, 0.5, ValueError, r"\['log', 'spectral'\]"),
        ({"kind": "spectral"}, 0.5, TypeError, "Mesh"),
        ({}, 1.0, ValueError, r"strictly inside \(0, T\)"),
        ({}, 0.0, ValueError, r"strictly inside \(0, T\)"),
    ],
)
def test_rejects(kwargs, t, error, match):
    x = Sphere(2).random_uniform(3, generator=gen())
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    with pytest.raises(error, match=match):
        bridge_matching_loss(zero, zero, Sphere(2), SCHEDULE, x, x, torch.full((3,), t), x, **kwargs)


def test_times_are_drawn_for_a_known_weighting_only():
    with pytest.raises(ValueError, match=r"\['inverse', 'importance'\]"):
        draw_times(SCHEDULE, 4, weighting="uniform")


def test_rejects_ends_of_another_shape():
    x = Sphere(2).random_uniform(3, generator=gen())
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    with pytest.raises(ValueError, match="x1 and xt must have one shape"):
        bridge_matching_loss(zero, zero, Sphere(2), SCHEDULE, x, x[:1], torch.full((3,), 0.5), x)


def test_inverse_weighting_stays_finite_when_the_noise_ends_at_zero():
    x, t = torch.zeros(2, 1, dtype=torch.float64), torch.tensor([0.5, 1.0 - 1e-15], dtype=torch.float64)
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    loss = bridge_matching_loss(zero, zero, Euclidean(1), LinearSchedule(0.2, 0.0), x, x + 0.1, t, x)[0]
    assert torch.isfinite(loss)


def test_inverse_weighting_refuses_the_time_where_beta_is_zero():
    x, t = torch.zeros(2, 1), torch.tensor([0.5, 1.0 - 1e-9])  # float32 rounds the second to T
    zero = lambda x, s: torch.zeros_like(x)  # noqa: E731
    with pytest.raises(ValueError, match="strictly inside"):
        bridge_matching_loss(zero, zero, Euclidean(1), LinearSchedule(0.2, 0.0), x, x, t, x)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [({"act": "relu"}, r"\['sin', 'swish'\]"), ({"layers": 0}, "layers"), ({"hidden": 0}, "hidden")],
)
def test_network_rejects(kwargs, match):
    with pytest.raises(ValueError, match=match):
        DriftMLP(Sphere(2), **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("act", ["swish", "sin"])
def test_network_is_tangent_and_counts_hidden_layers(points, manifolds, dtype, act):
    m = manifolds["torus"]
    net = DriftMLP(m, 16, 3, act).to(dtype)
    assert len(net.linears) == 4
    x = points("torus", 5, 1, dtype)
    v = net(x, torch.rand(5, dtype=dtype))
    assert v.dtype == dtype
    torch.testing.assert_close(m.to_tangent(x, v), v)
