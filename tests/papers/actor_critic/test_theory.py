"""Maximised noise, contraction, divergence."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.actor_critic import pessimistic_value, soft_target, theory


@pytest.mark.equation("eq-actor_critic-maximisation")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_bias_of_selection_by_simulation(count):
    """E3: errors of two critics at equally good actions, the action chosen by their mean."""
    g = torch.Generator().manual_seed(0)
    q = 2.0 * torch.randn(2, 400_000, count, generator=g, dtype=torch.float64)
    chosen = q.mean(0).argmax(1, keepdim=True)
    q1, q2 = (part.gather(1, chosen)[:, 0] for part in q)
    for beta in (0.0, 1.0, theory.balancing_pessimism(count)):
        found = pessimistic_value(q1, q2, beta)
        error = found.std() / len(found) ** 0.5
        assert abs(found.mean() - theory.selection_bias(count, pessimism=beta, noise=2.0)) < 4 * error


def test_known_values():
    assert theory.expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi))
    assert theory.expected_maximum(3) == pytest.approx(1.5 / math.sqrt(math.pi))
    assert theory.selection_bias(1, pessimism=1.0) == pytest.approx(-1 / math.sqrt(math.pi))  # E min of two
    assert theory.balancing_pessimism(2) < 1 < theory.balancing_pessimism(3)


@pytest.mark.equation("eq-actor_critic-contraction")
def test_soft_backup_contracts():
    """E4 on random chains; the factor is attained by a constant difference."""
    g = torch.Generator().manual_seed(1)
    for _ in range(20):
        p = torch.rand(5, 3, 5, generator=g, dtype=torch.float64)
        p /= p.sum(-1, keepdim=True)
        pi = torch.rand(5, 3, generator=g, dtype=torch.float64) + 0.01
        pi /= pi.sum(-1, keepdim=True)
        r, a, b = torch.randn(3, 5, 3, generator=g, dtype=torch.float64)

        def backup(q, p=p, r=r, pi=pi):
            return theory.soft_backup(q, p, r, pi, discount=0.9, temperature=0.3)

        assert (backup(a) - backup(b)).abs().max() <= 0.9 * (a - b).abs().max() + 1e-12
        torch.testing.assert_close(backup(a + 1) - backup(a), torch.full_like(a, 0.9))
        # a single next state and action: the sampled target of the package
    one = torch.ones(1, 1, dtype=torch.float64)
    table = theory.soft_backup(2 * one, one[None], one, one, discount=0.9, temperature=0.3)
    target = soft_target(*(v * one[0] for v in (1, 1, 2, 2, 0)), temperature=0.3, discount=0.9)
    torch.testing.assert_close(table[0], target)


@pytest.mark.equation("eq-actor_critic-divergence")
def test_two_states_diverge_beyond_one_half():
    """E5: values w and 2w, and the step 1 -> 2 only; normalised features never diverge."""
    one, two = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    for discount, grows in ((0.4, False), (0.49, False), (0.51, True), (0.9, True)):
        assert (float(theory.step_matrix(one, two, discount)) < 0) == grows
        path = theory.td_weights(one, two, discount=discount)
        assert (path[-1] > path[0]) == grows
    wild = theory.td_weights(one, two, discount=0.99)
    tame = theory.td_weights(one, two / two.norm(), discount=0.99)
    assert wild[-1] > 1e6 > 1 > tame[-1]


@pytest.mark.equation("eq-actor_critic-divergence")
def test_unit_features_can_still_diverge_together():
    """(c, s) and (-c, s), both followed by (0, 1): A = diag(c^2, s (s - gamma))."""
    s, gamma = 0.6, 0.9
    c = (1 - s**2) ** 0.5
    phi = torch.tensor([[c, s], [-c, s]], dtype=torch.float64)
    after = torch.tensor([[0.0, 1.0]] * 2, dtype=torch.float64)
    expected = torch.diag(torch.tensor([c**2, s * (s - gamma)], dtype=torch.float64))
    torch.testing.assert_close(theory.step_matrix(phi, after, gamma), expected)
    for alone in (0, 1):  # by itself each transition shrinks its own error
        assert float(phi[alone] @ (phi[alone] - gamma * after[alone])) >= 1 - gamma
    path = theory.td_weights(phi, after, discount=gamma, steps=400)
    assert path[-1] > 10 * path[0]


@pytest.mark.equation("eq-actor_critic-divergence")
def test_matrix_is_the_mean_semi_gradient():
    g = torch.Generator().manual_seed(2)
    phi, after = torch.randn(2, 9, 4, generator=g, dtype=torch.float64)
    w = torch.randn(4, generator=g, dtype=torch.float64, requires_grad=True)
    loss = 0.5 * (phi @ w - 0.9 * (after @ w).detach()).square().mean()
    (grad,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(theory.step_matrix(phi, after, 0.9) @ w.detach(), grad)
