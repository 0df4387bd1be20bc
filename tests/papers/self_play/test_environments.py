"""Tasks: the point mass against its recursion, the heading sectors, gymnasium's pendulum."""

from __future__ import annotations

import math

import gymnasium
import pytest
import torch

from icml24.papers.self_play import PointMass
from icml24.papers.self_play.environments import HeadingTask, PendulumTask


def test_point_mass_follows_its_equations(rng):
    """Scalar recursion by hand, clipping included; both rewards after the update."""
    for reward in ("goal", "vx"):
        task = PointMass(reward=reward)
        obs = task.reset(3)
        assert torch.equal(obs, torch.zeros(3, 4))
        x, v = [[0.0, 0.0] for _ in range(3)], [[0.0, 0.0] for _ in range(3)]
        for _ in range(50):
            action = 2 * torch.randn(3, 2, generator=rng)
            obs, paid = task.step(action)
            for i in range(3):
                for k in range(2):
                    v[i][k] = 0.9 * v[i][k] + 0.2 * min(max(action[i, k].item(), -1.0), 1.0)
                    x[i][k] += 0.2 * v[i][k]
                assert obs[i].tolist() == pytest.approx([*x[i], *v[i]], abs=1e-5)
                due = -math.hypot(x[i][0] - 2, x[i][1] - 1) if reward == "goal" else 0.2 * v[i][0]
                assert paid[i].item() == pytest.approx(due, abs=1e-5)


def test_sum_of_vx_rewards_is_the_way_travelled():
    task = PointMass(horizon=7, reward="vx")
    task.reset(2)
    total = torch.zeros(2)
    for _ in range(7):
        obs, paid = task.step(torch.tensor([[1.0, 0.0], [-0.5, 3.0]]))
        total += paid
    torch.testing.assert_close(total, obs[:, 0])


def test_time_feature_counts_the_steps_taken():
    task = PointMass(horizon=4, time_feature=True)
    assert task.obs_dim == 5
    assert task.action_dim == 2
    seen = [task.reset(2)[0, 4].item()]
    for _ in range(4):
        seen.append(task.step(torch.zeros(2, 2))[0][0, 4].item())
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_observations_are_not_overwritten_by_later_steps():
    task = PointMass()
    first = task.reset(1)
    second, _ = task.step(torch.ones(1, 2))
    kept = second.clone()
    task.step(torch.ones(1, 2))
    assert torch.equal(first, torch.zeros(1, 4))
    assert torch.equal(second, kept)
    assert second.dtype == torch.float32


def test_past_the_horizon_and_reset_again():
    task = PointMass(horizon=2)
    task.reset(1)
    for _ in range(2):
        task.step(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="past the horizon"):
        task.step(torch.zeros(1, 2))
    assert torch.equal(task.reset(4), torch.zeros(4, 4))
    task.step(torch.zeros(4, 2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: PointMass(reward="gaol"), "goal"),
        (lambda: PointMass(horizon=0), "horizon"),
        (lambda: PointMass().reset(0), "num"),
        (lambda: PointMass().step(torch.zeros(1, 2)), "reset"),
        (lambda: _started().step(torch.zeros(2, 2)), "shape"),
        (lambda: PendulumTask().step(torch.zeros(1, 1)), "reset"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def _started():
    task = PointMass()
    task.reset(3)
    return task


def test_sectors_are_thirds_of_the_compass():
    task = HeadingTask(horizon=10)
    angles = torch.tensor([10.0, 110.0, 130.0, 230.0, 250.0, 350.0]).deg2rad()
    task.reset(6)
    push = torch.stack([angles.cos(), angles.sin()], 1)
    paid = torch.stack([task.step(push)[1] for _ in range(10)])
    assert paid[:-1].abs().max() == 0
    assert paid[-1].tolist() == [0, 0, 1, 1, 2, 2]


def test_pendulum_is_gymnasiums_pendulum(rng):
    """The adapter against a plain gymnasium loop with the same seeds and torques."""
    task = PendulumTask(horizon=30)
    seeds = torch.randint(2**31 - 1, (2,), generator=torch.Generator().manual_seed(5)).tolist()
    obs = task.reset(2, generator=torch.Generator().manual_seed(5))
    plain = [gymnasium.make("Pendulum-v1") for _ in seeds]
    truth = [env.reset(seed=s)[0] for env, s in zip(plain, seeds, strict=True)]
    for _ in range(30):
        for i in range(2):
            assert obs[i].tolist() == pytest.approx([truth[i][0], truth[i][1], truth[i][2] / 8], abs=1e-6)
        action = torch.randn(2, 1, generator=rng)
        obs, paid = task.step(action)
        for i, env in enumerate(plain):
            truth[i], reward, *_ = env.step(2 * action[i].clamp(-1, 1).numpy())
            assert paid[i].item() == pytest.approx(reward, abs=1e-4)
    with pytest.raises(ValueError, match="past the horizon"):
        task.step(action)
    task.close()
