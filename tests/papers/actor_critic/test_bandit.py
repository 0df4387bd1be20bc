"""The bandit that chooses a level of pessimism."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.actor_critic import OptimismBandit


def test_parity_with_official_code(parity):
    bandit = OptimismBandit()
    for arm, feedback, expected in zip(
        *(parity[f"bandit_{name}"] for name in ("arms", "feedback", "probs")), strict=True
    ):
        bandit.arm = int(arm)
        bandit.update(float(feedback))
        torch.testing.assert_close(bandit.probabilities(), expected, rtol=0, atol=1e-9)


@pytest.mark.equation("eq-actor_critic-bandit")
def test_without_feedback_the_bandit_forgets():
    """E13: from log-weights (2, -1), 400 plays in turn without feedback end at even odds."""
    bandit = OptimismBandit()
    bandit._log_weights[:] = torch.tensor([2.0, -1.0])
    for k in range(400):
        bandit.arm = k % 2
        bandit.update(0.0)
    torch.testing.assert_close(bandit.probabilities(), torch.full((2,), 0.5).double(), rtol=0, atol=1e-6)


@pytest.mark.equation("eq-actor_critic-bandit")
def test_two_updates_by_hand():
    bandit = OptimismBandit()
    bandit.update(7.0)  # a single entry is its own mean
    assert bandit.probabilities().tolist() == [0.5, 0.5]
    bandit.update(9.0)  # (9 - 8) / 1 = 1: w = 0 + 0.1 / exp(0)
    assert float(bandit.probabilities()[0]) == pytest.approx(1 / (1 + math.exp(-0.1)))
    bandit.update(8.0)  # standardises to 0: only the decay acts
    assert float(bandit.probabilities()[0]) == pytest.approx(1 / (1 + math.exp(-0.09)))


def test_equal_feedback_is_no_news_and_arms_are_drawn_by_probability():
    bandit = OptimismBandit((1.0, 0.5, 0.0))
    assert bandit.arm == 0
    for _ in range(5):
        bandit.update(0.1)  # the rounded spread of equal tenths is not zero
    assert bandit.probabilities().tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    g = torch.Generator().manual_seed(0)
    bandit._log_weights[:] = torch.tensor([0.0, 1.0, 2.0]).double()
    drawn = [bandit.select(generator=g) for _ in range(4000)]
    for arm, p in zip(bandit.arms, bandit.probabilities().tolist(), strict=True):
        assert abs(drawn.count(arm) / 4000 - p) < 4 * math.sqrt(p * (1 - p) / 4000)
    assert bandit.arms[bandit.arm] == drawn[-1]


def test_own_stream_moves_on():
    bandit = OptimismBandit()
    assert len({bandit.select() for _ in range(50)}) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: OptimismBandit(()),
        lambda: OptimismBandit((1.0, math.nan)),
        lambda: OptimismBandit(lr=0.0),
        lambda: OptimismBandit(window=0),
        lambda: OptimismBandit().update(math.inf),
        lambda: setattr(OptimismBandit(), "arm", 2),
    ],
)
def test_rejects(call):
    with pytest.raises(ValueError):
        call()
