r"""Online training of a stack of agents, with the three diagnoses at every evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icml24.common.checks import WrongType, whole
from icml24.common.random import generator, numpy_generator, stream_seed

from .agents import AgentSpec
from .data import Environments
from .metrics import discounted_returns, overestimation
from .replay import ReplayBuffer
from .sac import BatchedSAC, SACConfig

__all__ = ["METRICS", "RunRecord", "train"]

METRICS = (
    "overestimation",
    "overfitting",
    "dormant_ratio",
    "effective_rank",
    "gradient_norm",
    "parameter_norm",
    "mean_q",
    "temperature",
)
#: Transitions of training data on which metrics are taken.
PROBE = 256


@dataclass(frozen=True)
class RunRecord:
    """One run: its returns and its critic's health over time.

    Attributes
    ----------
    task : str
    spec : AgentSpec
    seed, replay_ratio : int
    steps : Tensor, shape (evaluations,), int64
        Environment steps at each evaluation.
    returns : Tensor, shape (evaluations,)
        Mean undiscounted return of deterministic episodes, in the task's own units.
    metrics : dict of str to Tensor, shape (evaluations,)
        The keys are `METRICS`. Values and overestimation are in units of the learning reward.
    """

    task: str
    spec: AgentSpec
    seed: int
    replay_ratio: int
    steps: Tensor
    returns: Tensor
    metrics: dict[str, Tensor]


def train(
    task: str,
    specs: Sequence[AgentSpec],
    config: SACConfig,
    *,
    seed: int,
    steps: int,
    replay_ratio: int,
) -> list[RunRecord]:
    """Train one run for every agent, side by side.

    Parameters
    ----------
    task : str
        See `data.make`.
    specs : sequence of AgentSpec
        Not empty.
    config : SACConfig
        Batches, schedules of evaluations and resets, and so on.
    seed : int
        At least 0. Initial states and first random actions are the same for all agents; weights
        and noise are drawn from streams named by seed, task and agent, so a record does not
        depend on which other agents are trained beside it (up to rounding).
    steps : int
        Environment steps.
    replay_ratio : int
        Updates for each environment step, each on a minibatch of its own.

    Returns
    -------
    list of RunRecord
        One a spec, in the same order. The last evaluation is at `steps`.

    Raises
    ------
    ValueError
        Unknown task, no specs, or counts that are not positive whole numbers.
    ImportError
        The task's simulator is missing.

    Notes
    -----
    Full resets come at equal distances, ``steps // (resets + 1)``. At each evaluation a separate
    copy of the environment runs the stochastic policy for a tenth of the steps since the last
    one; its transitions join a held-out buffer, and its discounted returns, continued by the
    critics' mean value where time was cut, are what values are compared with.
    """
    seed, steps = whole("seed", seed), whole("steps", steps, 1)
    replay_ratio = whole("replay_ratio", replay_ratio, 1)
    specs = tuple(specs)
    if not isinstance(config, SACConfig):
        raise WrongType(f"config must be a SACConfig; got {type(config).__name__}")
    run = _Run(task, specs, config, seed, steps)
    every = config.evaluate_every
    for step in range(1, steps + 1):
        run.explore(step, replay_ratio)
        if step % every == 0 or step == steps:
            run.evaluate(step)
    return run.records(replay_ratio)


class _Run:
    """State of `train`: agents, environments, buffers and what was measured."""

    def __init__(
        self, task: str, specs: tuple[AgentSpec, ...], config: SACConfig, seed: int, steps: int
    ) -> None:
        if not specs:
            raise ValueError("specs is empty; expected at least one AgentSpec")
        if not all(isinstance(spec, AgentSpec) for spec in specs):
            raise WrongType("specs must hold AgentSpec instances, as in [AgentSpec(network='layer_norm')]")
        if not isinstance(task, str):
            raise WrongType(f"task must be a name, as in 'Pendulum-v1'; got {task!r}")
        n = len(specs)
        self.task, self.specs, self.config, self.seed = task, specs, config, seed
        self.world, self.other_world = (
            Environments(task, [_world_seed(seed, task, use)] * n, dtype=config.dtype)
            for use in ("train", "evaluate")
        )
        sizes = self.world.obs_dim, self.world.action_dim
        streams = [generator(seed, "actor_critic", task, spec.name) for spec in specs]
        self.agent = BatchedSAC(*sizes, specs, config, generator=streams)
        self.buffer = ReplayBuffer(min(config.capacity, steps), *sizes, runs=n, dtype=config.dtype)
        every = config.evaluate_every
        probes = (steps // every + 1) * self._probe_length(every)
        self.held_out = ReplayBuffer(probes, *sizes, runs=n, dtype=config.dtype)
        self.random = numpy_generator(seed, "actor_critic", task, "first actions")
        self.starts = min(config.learning_starts, steps // 2)
        gap = steps // (config.resets + 1)
        self.reset_steps = {gap * (k + 1) for k in range(config.resets)} if gap else set()
        self.resetting = torch.tensor([spec.plasticity == "reset" for spec in specs])
        self.steps: list[int] = []
        self.returns: list[Tensor] = []
        self.metrics: list[dict[str, Tensor]] = []

    def explore(self, step: int, replay_ratio: int) -> None:
        """One environment step, its updates, and a reset when its time has come."""
        obs = self.world.obs
        if step <= self.starts:
            one = torch.as_tensor(self.random.uniform(-1, 1, self.world.action_dim), dtype=self.config.dtype)
            action = one.expand(len(self.specs), -1)
        else:
            action = self.agent.act(obs)
        reward, mask, next_obs, returns = self.world.step(action)
        self.buffer.add(obs, action, reward, mask, next_obs)
        if returns is not None:
            self.agent.finish_episode(returns)
        if step > self.starts:
            size = self.config.batch_size
            for batch in self.buffer.sample(size, self.agent.generators, count=replay_ratio):
                self.agent.update(batch)
        if step in self.reset_steps and bool(self.resetting.any()):
            self.agent.reset(self.resetting)

    def evaluate(self, step: int) -> None:
        """Returns of deterministic episodes, and the metrics."""
        totals = []
        world = self.other_world
        world.restart()
        for _ in range(self.config.evaluation_episodes):
            returns = None
            while returns is None:
                *_, returns = world.step(self.agent.act(world.obs, deterministic=True))
            totals.append(returns)
        since = step - (self.steps[-1] if self.steps else 0)
        metrics = {"overestimation": self._probe(self._probe_length(since))}
        streams = [generator(self.seed, "actor_critic", "metrics", step) for _ in self.specs]
        (sample,) = self.buffer.sample(PROBE, streams)
        found = self.agent.diagnose(sample, self.held_out.everything())
        self.metrics.append(metrics | found | {"temperature": self.agent.temperature})
        self.steps.append(step)
        self.returns.append(torch.stack(totals).mean(0))

    def records(self, replay_ratio: int) -> list[RunRecord]:
        """What was measured, one record a run."""
        return [
            RunRecord(
                self.task,
                spec,
                self.seed,
                replay_ratio,
                torch.tensor(self.steps),
                torch.stack([returns[i] for returns in self.returns]),
                {name: torch.stack([m[name][i] for m in self.metrics]) for name in METRICS},
            )
            for i, spec in enumerate(self.specs)
        ]

    def _probe_length(self, since: int) -> int:
        return max(1, since // 10)

    def _probe(self, count: int) -> Tensor:
        """Run the policy on fresh data for `count` steps; the overestimation of its values, (n,)."""
        world = self.other_world
        world.restart()
        values, rewards, ends = [], [], []
        for _ in range(count):
            obs = world.obs
            action = self.agent.act(obs)
            reward, mask, next_obs, returns = world.step(action)
            self.held_out.add(obs, action, reward, mask, next_obs)
            values.append(self._mean_value(obs, action))
            if returns is not None or len(rewards) == count - 1:  # time cut here: the critic goes on
                after = self._mean_value(next_obs, self.agent.act(next_obs))
                reward = reward + self.config.discount * mask * after
            rewards.append(reward)
            ends.append(torch.full_like(reward, float(returns is not None)))
        found = discounted_returns(torch.stack(rewards, 1), torch.stack(ends, 1), self.config.discount)
        return torch.stack([overestimation(q, g) for q, g in zip(torch.stack(values, 1), found, strict=True)])

    def _mean_value(self, obs: Tensor, action: Tensor) -> Tensor:
        q1, q2 = self.agent.q_values(obs.unsqueeze(1), action.unsqueeze(1))
        return 0.5 * (q1 + q2)[:, 0]


def paper_config(**changes: object) -> SACConfig:
    """Settings of the paper's scale: evaluations every 25,000 steps, five episodes each."""
    return replace(SACConfig(learning_starts=10_000, evaluate_every=25_000, evaluation_episodes=5), **changes)


def _world_seed(seed: int, task: str, use: str) -> int:
    return stream_seed(seed, "actor_critic", task, use) % 2**31
