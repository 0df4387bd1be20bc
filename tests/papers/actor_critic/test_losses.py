"""Losses, targets and the policy's density."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from icml24.papers import actor_critic as ac

CLOSE = {"rtol": 0, "atol": 1e-9}


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.equation("eq-actor_critic-target", "eq-actor_critic-losses")
@pytest.mark.parametrize("case", range(3))
def test_parity_with_the_related_code(parity, case):
    p = {name.split("_", 1)[1]: v for name, v in parity.items() if name.startswith(f"sac{case}_")}
    beta, alpha, gamma = (float(p[name]) for name in ("beta", "alpha", "gamma"))
    target = ac.soft_target(
        *(p[name] for name in ("reward", "mask", "next_q1", "next_q2", "log_prob")),
        temperature=alpha,
        discount=gamma,
        pessimism=beta,
    )
    torch.testing.assert_close(ac.critic_loss(p["q1"], p["q2"], target), p["critic_loss"], **CLOSE)
    loss = ac.actor_loss(p["log_prob"], p["q1"], p["q2"], temperature=alpha, pessimism=beta)
    torch.testing.assert_close(loss, p["actor_loss"], **CLOSE)
    loss = ac.temperature_loss(math.log(alpha), -p["log_prob"], -1.5)
    torch.testing.assert_close(loss, p["temp_loss"], **CLOSE)
    torch.testing.assert_close(ac.soft_update(p["q2"], p["q1"], 0.005), p["soft_update"], **CLOSE)


def test_parity_of_the_policy(parity):
    found = ac.tanh_normal_log_prob(parity["tn_mean"], parity["tn_log_std"], parity["tn_pre"])
    torch.testing.assert_close(found, parity["tn_log_prob"], **CLOSE)
    torch.testing.assert_close(ac.squash_log_std(parity["ls_raw"]), parity["ls_out"], **CLOSE)


@pytest.mark.equation("eq-actor_critic-density")
def test_density_is_that_of_a_transformed_normal():
    """E1, against torch.distributions where its own form is accurate."""
    mean, log_std, noise = rand(50, 3), 0.3 * rand(50, 3, seed=1) - 1, rand(50, 3, seed=2)
    u = mean + log_std.exp() * noise
    law = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])
    found = ac.tanh_normal_log_prob(mean, log_std, u)
    torch.testing.assert_close(found, law.log_prob(torch.tanh(u)), rtol=0, atol=1e-7)
    grid = torch.linspace(-0.999, 0.999, 20001, dtype=torch.float64)
    flat = torch.zeros(len(grid), 1, dtype=torch.float64)
    density = ac.tanh_normal_log_prob(flat, flat - 1, torch.atanh(grid)[:, None]).exp()
    assert torch.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)  # it is a density in the action


def test_density_is_finite_far_out():
    for value in (30.0, -30.0, 300.0):
        u = torch.full((1, 1), value, dtype=torch.float64, requires_grad=True)
        log_prob = ac.tanh_normal_log_prob(torch.zeros_like(u), torch.zeros_like(u), u)
        log_prob.sum().backward()
        assert torch.isfinite(log_prob).all()
        assert torch.isfinite(u.grad).all()
    # log(1 - tanh(30)^2) = 2 (log 2 - 30) up to e^-60
    expected = -450 - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - 30)
    u = torch.full((1, 1), 30.0, dtype=torch.float64)
    assert float(ac.tanh_normal_log_prob(u * 0, u * 0, u)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.equation("eq-actor_critic-pessimism")
def test_pessimism_spans_maximum_mean_minimum():
    """E2."""
    a, b = rand(100), rand(100, seed=1)
    for beta, expected in ((1.0, torch.minimum(a, b)), (0.0, (a + b) / 2), (-1.0, torch.maximum(a, b))):
        torch.testing.assert_close(ac.pessimistic_value(a, b, beta), expected, rtol=0, atol=1e-12)
    levels = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    both = ac.pessimistic_value(a.expand(2, -1), b.expand(2, -1), levels)
    torch.testing.assert_close(both[0] + both[1], a + b)


@pytest.mark.equation("eq-actor_critic-target")
def test_target_by_hand_and_without_gradient():
    one = torch.ones(2, dtype=torch.float64)
    q = (3 * one).requires_grad_()
    mask = torch.tensor([1.0, 0.0], dtype=torch.float64)
    found = ac.soft_target(one, mask, q, 5 * one, -2 * one, temperature=0.5, discount=0.9)
    torch.testing.assert_close(found, torch.tensor([1 + 0.9 * (3 + 1), 1.0], dtype=torch.float64))
    assert not found.requires_grad


@pytest.mark.equation("eq-actor_critic-gpl")
def test_learned_pessimism_rises_while_values_exceed_targets():
    """E12: descent raises beta when Q > y, and nothing else receives a gradient."""
    q1, q2, y = (rand(20, seed=k).requires_grad_() for k in range(3))
    beta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    ac.gpl_loss(beta, q1 + 5, q2 + 5, y).backward()
    gap = ((q1 + q2) / 2 + 5 - y).mean().item()
    assert gap > 0
    assert beta.grad.item() == pytest.approx(-gap, rel=1e-12)
    assert all(part.grad is None for part in (q1, q2, y))


def test_temperature_gradient_has_the_sign_of_the_surplus():
    log_alpha = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    entropy = rand(30).requires_grad_()
    ac.temperature_loss(log_alpha, entropy, -4.0).backward()
    assert log_alpha.grad.item() == pytest.approx(math.exp(0.2) * (entropy.mean().item() + 4))
    assert entropy.grad is None


def test_dtypes_are_kept():
    x = torch.ones(3)
    assert ac.soft_target(x, x, x, x, x, temperature=1.0).dtype == torch.float32
    assert ac.squash_log_std(x).dtype == torch.float32
    assert ac.soft_update(x, x, 0.5).dtype == torch.float32
    assert ac.pessimistic_value(x, x, torch.ones(3, dtype=torch.float64)).dtype == torch.float32
    new = ac.soft_update(x, 2 * x, 0.0)
    assert new is not x
    assert torch.equal(new, x)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ac.critic_loss(rand(4), rand(4), rand(4, 1)), "one shape"),
        (lambda: ac.critic_loss(rand(0), rand(0), rand(0)), "empty"),
        (lambda: ac.critic_loss(torch.arange(3), rand(3), rand(3)), "floating"),
        (lambda: ac.soft_target(*[rand(4)] * 4, rand(4, 1), temperature=1.0), "one shape"),
        (lambda: ac.soft_target(*[rand(4)] * 5, temperature=1.0, discount=1.5), r"\[0, 1\]"),
        (lambda: ac.pessimistic_value(rand(3), rand(3), rand(4)), "pessimism"),
        (lambda: ac.pessimistic_value(rand(3), rand(3), rand(2, 3)), "broadcast"),
        (lambda: ac.tanh_normal_log_prob(rand(3), rand(3), rand(4)), "one shape"),
        (lambda: ac.soft_update(rand(3), rand(3), -0.1), r"\[0, 1\]"),
        (lambda: ac.temperature_loss(rand(3), rand(3), -1.0), "one number"),
        (lambda: ac.gpl_loss(rand(3), rand(3), rand(3), rand(3)), "one number"),
        (lambda: ac.squash_log_std(rand(3), low=2.0, high=1.0), "below"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
