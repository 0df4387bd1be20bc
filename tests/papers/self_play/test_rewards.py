"""Win-rate rewards: unbiasedness, zero sum, spreading over steps, the queue."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.self_play import (
    TrajectoryQueue,
    bradley_terry_preference,
    max_return_preference,
    per_step_reward,
    sample_preference,
    win_rate_rewards,
)
from icml24.papers.self_play.data import random_game


def mean_and_error(x):
    return x.mean(0), x.std(0) / len(x) ** 0.5


@pytest.mark.equation("eq-self_play-winrate")
def test_win_rate_is_an_unbiased_preference_over_the_policy(rng):
    """E9: E[r_i | xi_i] = P(xi_i, pi), with sampled opponents and sampled labels, within 4 s.e."""
    P = random_game(4, rng)
    p = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    samples = torch.multinomial(p, 20_000 * 6, replacement=True, generator=rng).view(20_000, 6)
    samples[:, 0] = 2  # condition on the first trajectory
    labels = torch.stack([_labels(P[s][:, s], rng) for s in samples[:4000]])
    rates = torch.stack([win_rate_rewards(x)[0] for x in labels])
    mean, error = mean_and_error(rates)
    assert abs(mean - (P @ p)[2]) < 4 * error
    assert error < 0.02


def _labels(P, rng):
    upper = sample_preference(P, generator=rng).triu(1)
    return upper - upper.T


@pytest.mark.equation("eq-self_play-gradient")
def test_policy_gradient_of_win_rates_is_the_game_gradient(rng):
    """E9: E[r grad log pi] = (diag p - p p^T) P p, by Monte Carlo and by autograd with a frozen opponent."""
    n, batch, repeats = 5, 8, 20_000
    P = random_game(n, rng)
    logits = torch.randn(n, generator=rng, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(logits, 0)
    expected = (torch.diag(p) - torch.outer(p, p)) @ P @ p
    (p @ P @ p.detach()).backward(retain_graph=True)
    torch.testing.assert_close(logits.grad, expected.detach(), rtol=0, atol=1e-14)
    (both,) = torch.autograd.grad(p @ P @ p, logits)
    assert both.abs().max() < 1e-14  # without the frozen opponent the gradient is identically zero
    p = p.detach()
    drawn = torch.multinomial(p, batch * repeats, replacement=True, generator=rng).view(repeats, batch)
    preference = P[drawn[:, :, None], drawn[:, None, :]]
    rates = (preference.sum(2) - preference.diagonal(dim1=1, dim2=2)) / (batch - 1)
    scores = torch.nn.functional.one_hot(drawn, n).double() - p
    mean, error = mean_and_error((rates[..., None] * scores).mean(1))
    assert ((mean - expected.detach()).abs() < 4 * error).all()


@pytest.mark.equation("eq-self_play-zerosum")
@given(seed=st.integers(0, 10_000), size=st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_rewards_of_a_batch_sum_to_zero(seed, size):
    """E13, for expected preferences and for one label per unordered pair."""
    g = torch.Generator().manual_seed(seed)
    P = random_game(size, g)
    assert abs(win_rate_rewards(P).sum().item()) < 1e-12
    assert abs(win_rate_rewards(_labels(P, g)).sum().item()) < 1e-12


@pytest.mark.equation("eq-self_play-spread")
def test_spreading_keeps_the_total_but_reward_to_go_drops_credit(rng):
    """E10: sum_h r_h = r; reward-to-go of the spread reward is r (H - h + 1) / H, a biased gradient."""
    r = torch.randn(7, generator=rng, dtype=torch.float64)
    spread = per_step_reward(r, 12)
    torch.testing.assert_close(spread.sum(1), r, rtol=0, atol=1e-14)
    to_go = spread.flip(1).cumsum(1).flip(1)
    h = torch.arange(1, 13, dtype=torch.float64)
    torch.testing.assert_close(to_go, r[:, None] * (12 - h + 1) / 12, rtol=0, atol=1e-14)
    # Two steps, one coin each, r = r(a1, a2): enumerate both estimators of the gradient in the second coin.
    theta = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    heads = torch.sigmoid(theta)
    table = torch.tensor([[0.2, -0.7], [0.9, 0.4]], dtype=torch.float64)
    dist = [torch.stack([1 - q, q]) for q in heads]
    (true,) = torch.autograd.grad(torch.einsum("i,j,ij->", *dist, table), theta)
    score = [torch.stack([-q, 1 - q]).detach() for q in heads]
    joint = torch.outer(dist[0], dist[1]).detach()
    whole = torch.stack([(joint * table * score[0][:, None]).sum(), (joint * table * score[1]).sum()])
    torch.testing.assert_close(whole, true, rtol=0, atol=1e-14)
    halves = whole * torch.tensor([1.0, 0.5], dtype=torch.float64)  # what reward-to-go would give
    assert (halves - true).abs().max() > 0.01


def test_win_rates_by_hand():
    P = torch.tensor([[9.0, 1.0, -1.0], [-1.0, 9.0, 0.5], [1.0, -0.5, 9.0]])  # the diagonal must not count
    assert torch.equal(win_rate_rewards(P), torch.tensor([0.0, -0.25, 0.25]))
    queue = torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 0.0, -1.0]])
    assert torch.equal(win_rate_rewards(queue, exclude_self=False), torch.tensor([0.5, -0.25]))
    assert torch.equal(per_step_reward(torch.tensor([1.0, -2.0]), 4), torch.tensor([[0.25] * 4, [-0.5] * 4]))


def test_parity(parity):
    close = {"rtol": 0, "atol": 1e-10}
    ra, rb = parity["ra"], parity["rb"]
    within = win_rate_rewards(max_return_preference(ra, ra))
    torch.testing.assert_close(within, parity["win_self"], **close)
    noisy = bradley_terry_preference(ra, rb, temperature=parity["temperature"].item())
    against = win_rate_rewards(noisy, exclude_self=False)
    torch.testing.assert_close(against, parity["win_queue"], **close)
    torch.testing.assert_close(per_step_reward(against, ra.shape[1]), parity["per_step"], **close)


def test_queue_forgets_the_oldest_and_copies():
    queue = TrajectoryQueue(3)
    assert len(queue) == 0
    rows = torch.arange(8.0).view(4, 2)
    queue.push(rows[:2])
    queue.push(row for row in rows[2:])
    rows.zero_()
    assert len(queue) == 3
    assert torch.equal(queue.stack(), torch.tensor([[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]))


def test_queue_stores_nothing_of_a_bad_push():
    queue = TrajectoryQueue(5)
    queue.push([torch.zeros(3)])
    with pytest.raises(ValueError, match="one shape"):
        queue.push([torch.zeros(3), torch.zeros(4)])
    with pytest.raises(TypeError, match="stores tensors"):
        queue.push([[0.0, 0.0, 0.0]])
    assert len(queue) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept(dtype):
    P = torch.zeros(3, 3, dtype=dtype)
    assert win_rate_rewards(P).dtype == dtype
    assert win_rate_rewards(P[:2], exclude_self=False).dtype == dtype
    assert per_step_reward(P[0], 2).dtype == dtype


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: win_rate_rewards(torch.zeros(1, 1)), ValueError, "at least two trajectories"),
        (lambda: win_rate_rewards(torch.zeros(0, 0)), ValueError, "at least two trajectories"),
        (lambda: win_rate_rewards(torch.zeros(2, 3)), ValueError, "square"),
        (lambda: win_rate_rewards(torch.zeros(2, 0), exclude_self=False), ValueError, "queue is empty"),
        (lambda: win_rate_rewards(torch.zeros(3)), ValueError, "matrix"),
        (lambda: win_rate_rewards(torch.zeros(2, 2).long()), TypeError, "floating point"),
        (lambda: win_rate_rewards(torch.full((2, 2), float("nan"))), ValueError, "finite"),
        (lambda: per_step_reward(torch.zeros(2), 0), ValueError, "horizon"),
        (lambda: per_step_reward(torch.zeros(2, 2), 3), ValueError, "win_rate"),
        (lambda: TrajectoryQueue(0), ValueError, "maxlen"),
        (lambda: TrajectoryQueue(2).stack(), ValueError, "queue is empty"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call()
