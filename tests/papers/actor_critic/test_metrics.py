"""Returns, overestimation and overfitting."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import actor_critic as ac


@pytest.mark.equation("eq-actor_critic-overestimation")
def test_parity_of_returns(parity):
    found = ac.discounted_returns(parity["mc_rew"], parity["mc_done"], float(parity["mc_gamma"]))
    torch.testing.assert_close(found, parity["mc_ret"], rtol=0, atol=1e-10)


@pytest.mark.equation("eq-actor_critic-overestimation")
def test_overestimation_by_hand():
    rewards, dones = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([False, True, False])
    returns = ac.discounted_returns(rewards, dones, 0.5)
    assert returns.tolist() == [2.0, 2.0, 4.0]
    assert float(ac.overestimation(returns + torch.tensor([1.0, 0.0, 2.0]), returns)) == 1.0


@pytest.mark.equation("eq-actor_critic-overfitting")
def test_overfitting_ratio_by_hand():
    held, train = torch.tensor([3.0, -1.0]), torch.tensor([[1.0, -1.0, 1.0]])
    assert float(ac.overfitting_ratio(held, train)) == 5.0
    assert float(ac.overfitting_ratio(-7 * held, 7 * train)) == pytest.approx(5.0)
    assert torch.isinf(ac.overfitting_ratio(held, torch.zeros(3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ac.discounted_returns(torch.ones(3), torch.ones(4), 0.9),
        lambda: ac.discounted_returns(torch.ones(0), torch.ones(0), 0.9),
        lambda: ac.discounted_returns(torch.tensor([torch.nan]), torch.ones(1), 0.9),
        lambda: ac.discounted_returns(torch.ones(3), torch.ones(3), 1.1),
        lambda: ac.overestimation(torch.ones(3), torch.ones(3, 1)),
        lambda: ac.overestimation(torch.ones(0), torch.ones(0)),
        lambda: ac.overfitting_ratio(torch.ones(0), torch.ones(3)),
    ],
)
def test_rejects(call):
    with pytest.raises(ValueError):
        call()
