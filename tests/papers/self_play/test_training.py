"""Training: determinism, budgets of comparisons, the four algorithms, learning, bad input."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from icml24.papers.self_play import (
    PointMass,
    SPOConfig,
    constrained_preference,
    max_return_preference,
    sample_preference,
    train,
)
from icml24.papers.self_play.policies import GaussianPolicy, RewardModel, ppo_update, rollout
from icml24.papers.self_play.training import (
    _bradley_terry_loss,
    _Judge,
    _reward_to_go,
    _RewardModelling,
    _standardised,
)

SMALL = SPOConfig(iterations=3, batch_size=8, horizon=10)


def judge(rewards_a, rewards_b, *, generator):
    return max_return_preference(rewards_a, rewards_b)


def coin(rewards_a, rewards_b, *, generator):
    """Noise alone, and not antisymmetric: both triangles are drawn."""
    return sample_preference(torch.zeros(len(rewards_a), len(rewards_b)), generator=generator)


@pytest.mark.parametrize("algorithm", ["spo", "rm", "oracle", "duel"])
def test_every_algorithm_repeats_itself_and_touches_no_global_state(algorithm, global_random_state):
    before = global_random_state()
    config = dataclasses.replace(SMALL, algorithm=algorithm, seed=4)
    one, two = (train(PointMass(10), judge, config) for _ in range(2))
    assert torch.equal(one.returns, two.returns)
    assert torch.equal(one.rewards_last, two.rewards_last)
    for a, b in zip(one.policy.parameters(), two.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    other = train(PointMass(10), judge, dataclasses.replace(config, seed=5))
    assert not torch.equal(one.returns, other.returns)
    assert one.returns.shape == one.queries.shape == (3,)
    assert one.rewards_last.shape == (8, 10)
    assert one.queries.dtype == torch.int64
    assert isinstance(one.policy, torch.nn.Module)
    assert global_random_state() == before


@pytest.mark.parametrize(
    ("changes", "per_iteration"),
    [
        ({}, 8 * 7 // 2),
        ({"queue": 5}, 8 * 5),
        ({"queue": 20}, 8 * 20),
        ({"algorithm": "rm"}, 640),
        ({"algorithm": "oracle"}, 0),
        ({"algorithm": "duel"}, 64),
    ],
)
def test_comparisons_are_counted(changes, per_iteration):
    result = train(PointMass(10), judge, dataclasses.replace(SMALL, **changes))
    assert result.queries.tolist() == [per_iteration * t for t in (1, 2, 3)]


def test_first_return_is_the_untrained_policys():
    """Nothing is learnt before the first batch, so all algorithms agree on it; near -120 on goal."""
    firsts = {
        train(PointMass(), judge, SPOConfig(iterations=1, algorithm=a)).returns.item()
        for a in ("spo", "rm", "oracle", "duel")
    }
    assert len(firsts) == 1
    assert -160 < firsts.pop() < -105


def test_one_label_per_unordered_pair(monkeypatch):
    """The lower triangle of a noisy answer is never used: rewards of a batch sum to zero."""
    from icml24.papers.self_play import training

    seen = []
    original = training.win_rate_rewards
    monkeypatch.setattr(training, "win_rate_rewards", lambda P, **k: seen.append(P) or original(P, **k))
    train(PointMass(10), coin, SMALL)
    assert len(seen) == 3
    for P in seen:
        assert torch.equal(P, -P.T)
        assert P.abs().sum() == 8 * 7


def test_queue_holds_the_past_only(monkeypatch):
    """Opponents of iteration t are older than its batch; the first ones come from the first policy."""
    opponents, batches = [], []

    def spy(rewards_a, rewards_b, *, generator):
        batches.append(rewards_a.clone())
        opponents.append(rewards_b.clone())
        return max_return_preference(rewards_a, rewards_b)

    train(PointMass(10), spy, dataclasses.replace(SMALL, queue=8))
    assert not torch.equal(opponents[0], batches[0])
    assert torch.equal(opponents[1], batches[0])
    assert torch.equal(opponents[2], batches[1])


def test_oracle_ignores_the_preference_and_others_accept_one_without_generator():
    assert torch.equal(
        train(PointMass(10), None, dataclasses.replace(SMALL, algorithm="oracle")).returns,
        train(PointMass(10), judge, dataclasses.replace(SMALL, algorithm="oracle")).returns,
    )
    plain = train(PointMass(10), max_return_preference, SMALL)
    assert torch.equal(plain.returns, train(PointMass(10), judge, SMALL).returns)


@pytest.mark.slow
def test_self_play_reaches_the_goal():
    """The bar of the goal task, one seed: at least -17.0 after 100 iterations."""
    result = train(PointMass(), judge, SPOConfig(seed=1))
    assert result.returns[-1] >= -17.0
    assert result.queries[-1] == 100 * 64 * 63 // 2


@pytest.mark.slow
def test_self_play_respects_a_constraint_no_reward_expresses():
    """At least 85 % within the threshold, and the early part at 11.0 of at most 11.67."""

    def late_stop(rewards_a, rewards_b):
        return constrained_preference(rewards_a, rewards_b, threshold=0.5)

    rewards = train(PointMass(reward="vx"), late_stop, SPOConfig(iterations=80, seed=1)).rewards_last
    assert (rewards[:, 38:].sum(1) <= 0.5).float().mean() >= 0.85
    assert rewards[:, :38].sum(1).mean() >= 11.0


def test_self_play_beats_reward_modelling_early():
    spo, rm = (
        train(PointMass(), judge, SPOConfig(iterations=15, seed=3, algorithm=a)).returns[-1]
        for a in ("spo", "rm")
    )
    assert spo > rm > -60


# --- the parts --------------------------------------------------------------------------------


def test_policy_log_density_and_rollout_agree(rng):
    policy = GaussianPolicy(4, 2, generator=rng)
    batch = rollout(PointMass(12), policy, 5, 12, rng)
    assert batch.obs.shape == (5, 12, 4)
    assert batch.reward.shape == (5, 12)
    torch.testing.assert_close(policy.log_prob(batch.obs, batch.action), batch.log_prob, rtol=0, atol=1e-5)
    normal = torch.distributions.Normal(policy(batch.obs), policy.log_std.exp())
    torch.testing.assert_close(normal.log_prob(batch.action).sum(-1), batch.log_prob, rtol=0, atol=1e-5)
    task, position = PointMass(12), None
    task.reset(5)
    for h in range(12):  # the stored actions reproduce the stored rewards and observations
        position, paid = task.step(batch.action[:, h])
        assert torch.equal(paid, batch.reward[:, h])
        if h < 11:
            assert torch.equal(position, batch.obs[:, h + 1])


def test_ppo_raises_the_probability_of_what_was_better(rng):
    policy = GaussianPolicy(4, 2, generator=rng)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    batch = rollout(PointMass(12), policy, 32, 12, rng)
    advantage = torch.randn(32, generator=rng)[:, None].expand(32, 12)
    before = (policy.log_prob(batch.obs, batch.action) * advantage).mean()
    ppo_update(policy, optimizer, batch, advantage, epochs=4, clip=0.2)
    after = (policy.log_prob(batch.obs, batch.action) * advantage).mean()
    assert after > before


def test_reward_to_go_by_hand():
    reward = torch.tensor([[1.0, 2.0], [3.0, -2.0]])
    raw = torch.tensor([[3.0, 2.0], [1.0, -2.0]]) - torch.tensor([2.0, 0.0])
    torch.testing.assert_close(_reward_to_go(reward), raw / (raw.std() + 1e-8))


def test_reward_model_loss_is_the_label_form(rng):
    d = torch.randn(30, generator=rng)
    y = torch.where(torch.rand(30, generator=rng) < 0.5, -1.0, 1.0)
    torch.testing.assert_close(_bradley_terry_loss(d, y), -torch.nn.functional.logsigmoid(y * d).mean())
    model = RewardModel(4, 2, generator=rng)
    assert model.step_rewards(torch.zeros(3, 7, 4), torch.zeros(3, 7, 2)).shape == (3, 7)


def test_ppo_stops_at_the_clip_and_bounds_the_gradient(rng):
    """Past 1 + clip a better action earns nothing more; one step of SGD at rate 1 moves at most 1."""
    policy = GaussianPolicy(4, 2, generator=rng)
    batch = rollout(PointMass(12), policy, 8, 12, rng)
    rarer = dataclasses.replace(batch, log_prob=batch.log_prob - 1)  # the ratio is e everywhere
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).clone()
    sgd = torch.optim.SGD(policy.parameters(), lr=1.0)
    ppo_update(policy, sgd, rarer, torch.ones(8, 12), epochs=2, clip=0.2)
    assert torch.equal(torch.nn.utils.parameters_to_vector(policy.parameters()), before)
    ppo_update(policy, sgd, rarer, -1e3 * torch.ones(8, 12), epochs=1, clip=0.2)  # worse actions: no clip
    moved = torch.nn.utils.parameters_to_vector(policy.parameters()) - before
    assert moved.norm().item() == pytest.approx(1.0, abs=1e-3)


def test_both_sides_of_a_duel_are_paid_their_own_win_rate(monkeypatch):
    """The rival is paid for beating the first player, on its own batch and with its own noise."""
    from icml24.papers.self_play import training

    asked, updates = [], []

    def spy(rewards_a, rewards_b):
        asked.append((rewards_a.clone(), rewards_b.clone()))
        return max_return_preference(rewards_a, rewards_b)

    original = training.ppo_update

    def recorded(policy, optimizer, batch, advantage, **options):
        updates.append((batch.reward.clone(), advantage.clone()))
        original(policy, optimizer, batch, advantage, **options)

    monkeypatch.setattr(training, "ppo_update", recorded)
    train(PointMass(10), spy, dataclasses.replace(SMALL, algorithm="duel"))
    assert len(updates) == 2 * len(asked) == 6
    for (ours, theirs), rival, player in zip(asked, updates[::2], updates[1::2], strict=True):
        assert not torch.equal(ours, theirs)
        for (rewards, advantage), opponents in ((rival, ours), (player, theirs)):
            rate = max_return_preference(rewards, opponents).mean(1)
            torch.testing.assert_close(advantage, _standardised(rate)[:, None].expand(8, 10))


def test_reward_model_draws_from_its_whole_pool_and_learns_the_order(rng):
    config = dataclasses.replace(SMALL, batch_size=16)
    asked_for = []

    def spy(rewards_a, rewards_b):
        asked_for.append((rewards_a.clone(), rewards_b.clone()))
        return max_return_preference(rewards_a, rewards_b)

    learner = _RewardModelling(PointMass(10), _Judge(spy, 0), config)
    policy = GaussianPolicy(4, 2, generator=rng)
    for _ in range(12):
        batch = rollout(PointMass(10), policy, 16, 10, rng)
        advantage, asked = learner(policy, batch)
    assert asked == 640
    assert advantage.shape == (16, 10)
    assert len(learner._pool) == 10  # the last ten batches; the two oldest are gone
    assert learner._pool[-1] is batch
    one, two = (torch.cat(column) for column in zip(*(learner._draw(20) for _ in range(20)), strict=True))
    assert (one != two).all()
    assert one.unique().tolist() == two.unique().tolist() == list(range(20))
    pooled = torch.stack([b.reward for b in learner._pool])
    homes = [  # the batch that each compared trajectory of the last iteration comes from
        (torch.cat(side)[:, None, None] == pooled).all(-1).nonzero()[:, 1]
        for side in zip(*asked_for[-10:], strict=True)
    ]
    assert len(homes[0]) == len(homes[1]) == 640
    assert homes[0].unique().tolist() == homes[1].unique().tolist() == list(range(10))
    assert 0.8 < (homes[0] != homes[1]).double().mean() < 1  # nine in ten pairs cross batches
    fresh = rollout(PointMass(10), policy, 200, 10, rng)
    score = learner._model.step_rewards(fresh.obs, fresh.action).sum(1)
    assert torch.corrcoef(torch.stack([score, fresh.reward.sum(1)]))[0, 1] > 0.8


# --- bad input --------------------------------------------------------------------------------


def test_unknown_algorithm_lists_the_choices():
    with pytest.raises(ValueError, match=r"spo.*rm.*oracle.*duel"):
        train(PointMass(), judge, SPOConfig(algorithm="ppo"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"batch_size": 1}, "batch_size"),
        ({"iterations": 0}, "iterations"),
        ({"queue": 0}, "queue"),
        ({"lr": 0.0}, "lr"),
        ({"clip": -0.2}, "clip"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_config_rejects(changes, match):
    with pytest.raises(ValueError, match=match):
        SPOConfig(**changes)


def test_horizon_beyond_the_task_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="exceeds the task's horizon of 10"):
        train(PointMass(10), judge, SPOConfig(horizon=11))


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (lambda a, b: torch.zeros(len(a), len(b) + 1), ValueError, "shape"),
        (lambda a, b: torch.full((len(a), len(b)), 2.0), ValueError, r"\[-1, 1\]"),
        (lambda a, b: torch.full((len(a), len(b)), float("nan")), ValueError, r"\[-1, 1\]"),
        (lambda a, b: torch.zeros(len(a), len(b)).long(), TypeError, "floating point"),
        (lambda a, b: None, TypeError, "floating point"),
        (None, TypeError, "callable"),
    ],
)
def test_bad_preference_functions_are_named(answer, error, match):
    with pytest.raises(error, match=match):
        train(PointMass(10), answer, SMALL)
