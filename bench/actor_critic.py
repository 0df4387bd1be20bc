"""Soft actor-critic in stacks beside stable-baselines3's, interleaved in one run.

``python bench/actor_critic.py`` needs the extra ``bench``. The reported ratio is of updates of
one run for each CPU second. Before anything is timed, the losses of both sides must agree on
the peer's own weights, batch and noise. Sampling from the replay buffer counts on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import gymnasium
import harness
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import configure

from icml24.papers import actor_critic as ac
from icml24.papers.actor_critic.replay import ReplayBuffer

WIDTH, BATCH, STORED = 64, 64, 1000
CONFIG = ac.SACConfig(hidden=WIDTH, batch_size=BATCH)


class Peer:
    """One soft actor-critic of stable-baselines3 with a filled buffer."""

    def __init__(self) -> None:
        self.model = SAC(
            "MlpPolicy",
            "Pendulum-v1",
            batch_size=BATCH,
            learning_rate=CONFIG.lr,
            policy_kwargs={"net_arch": [WIDTH, WIDTH]},
            seed=0,
            device="cpu",
        )
        self.model.set_logger(configure(None, []))
        env, draw = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
        obs, _ = env.reset(seed=0)
        for _ in range(STORED):
            action = draw.uniform(-1, 1, 1).astype(np.float32)
            after, reward, ended, cut, _ = env.step(2 * action)
            self.model.replay_buffer.add(
                obs[None], after[None], action[None], np.array([reward]), np.array([ended]), [{}]
            )
            obs = env.reset()[0] if cut else after

    def run(self, updates: int) -> None:
        """Some updates."""
        self.model.train(gradient_steps=updates, batch_size=BATCH)


class Ours:
    """A stack of `n` runs of clipped double Q with the peer's transitions."""

    def __init__(self, n: int, peer: Peer) -> None:
        stored = peer.model.replay_buffer
        rows = [
            torch.as_tensor(np.asarray(part[:STORED, 0]), dtype=torch.float32).expand(
                n, *part[:STORED, 0].shape
            )
            for part in (
                stored.observations,
                stored.actions,
                stored.rewards,
                stored.dones,
                stored.next_observations,
            )
        ]
        obs, action, reward, done, after = rows
        self.buffer = ReplayBuffer.of(ac.Batch(obs, action, reward, 1 - done, after))
        self.agent = ac.BatchedSAC(3, 1, [ac.AgentSpec("cdq")] * n, CONFIG)

    def run(self, updates: int) -> None:
        """Some updates."""
        for _ in range(updates):
            self.agent.update(*self.buffer.sample(BATCH, self.agent.generators))


def check_same_losses(peer: Peer) -> None:
    """Critic loss by the peer's networks, in its own words and in the package's."""
    model = peer.model
    data = model.replay_buffer.sample(BATCH)
    with torch.no_grad():
        torch.manual_seed(1)
        action, log_prob = model.actor.action_log_prob(data.next_observations)
        following = torch.cat(model.critic_target(data.next_observations, action), 1)
        theirs = data.rewards + (1 - data.dones) * model.gamma * (
            following.min(1, keepdim=True).values - 0.3 * log_prob[:, None]
        )
        ours = ac.soft_target(
            data.rewards[:, 0],
            1 - data.dones[:, 0],
            following[:, 0],
            following[:, 1],
            log_prob,
            temperature=0.3,
        )
        torch.testing.assert_close(ours, theirs[:, 0])
        q1, q2 = model.critic(data.observations, data.actions)
        loss = 0.5 * sum(torch.nn.functional.mse_loss(q, theirs) for q in (q1, q2))
        torch.testing.assert_close(0.5 * ac.critic_loss(q1[:, 0], q2[:, 0], ours), loss)
        mean, log_std, _ = model.actor.get_action_dist_params(data.next_observations)
        density = ac.tanh_normal_log_prob(mean, log_std, torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6)))
        ordinary = action.abs().amax(1) < 0.99  # the peer's density is rounded where actions saturate
        torch.testing.assert_close(density[ordinary], log_prob[ordinary], rtol=1e-3, atol=1e-3)


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call: the wall clock of a shared machine measures its other tenants."""
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(n: int, peer: Peer, repeats: int) -> dict[str, object]:
    """One row: milliseconds of CPU for one update of one run, ours and the peer's, interleaved."""
    ours = Ours(n, peer)
    ours.run(2)
    peer.run(2)
    pairs = []
    for repeat in range(repeats):
        sides = [(0, lambda: ours.run(10)), (1, lambda: peer.run(40))]
        measured = [0.0, 0.0]
        for index, call in sides if repeat % 2 == 0 else reversed(sides):
            measured[index] = cpu_seconds(call)
        pairs.append((measured[0] / (10 * n), measured[1] / 40))
    times = 1e3 * np.asarray(pairs)
    ratios = times[:, 1] / times[:, 0]
    picks = np.random.default_rng(0).integers(0, repeats, size=(2000, repeats))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    plural = "s" if n > 1 else ""
    return {
        "what": f"one update of one run, {n} run{plural} in the stack, width {WIDTH}, batch {BATCH}, CPU time",
        "ours": float(np.median(times[:, 0])),
        "peer": float(np.median(times[:, 1])),
        "ratio": float(np.median(ratios)),
        "low": float(low),
        "high": float(high),
        "unit": "ms",
    }


@click.command()
@click.option("--repeats", default=9, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time one update of one run, alone and in stacks, against the peer."""
    torch.set_num_threads(1)
    peer = Peer()
    check_same_losses(peer)
    rows = [compare(n, peer, repeats) for n in (1, 16, 64)]
    harness.write(
        "actor_critic",
        "Soft actor-critic, many runs at once",
        "stable-baselines3",
        rows,
        ["torch", "numpy", "gymnasium", "stable-baselines3"],
    )
    assert rows[1]["ratio"] >= 4
    assert rows[2]["ratio"] >= 6


if __name__ == "__main__":
    main()
