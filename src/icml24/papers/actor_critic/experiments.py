r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Three experiments share one question, what happens to a critic that is trained hard on little
data. *Priming* looks at the critic alone, on a fixed buffer; the *primed pendulum* asks how long
a primed agent takes to recover; the *grids* put all 64 agents through online training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator, stream_seed

from .agents import AgentSpec, full_grid
from .data import Environments, normalised_score, random_transitions
from .grid import run_grid
from .replay import ReplayBuffer
from .sac import Batch, BatchedSAC, SACConfig

__all__ = [
    "FULL",
    "QUICK",
    "Config",
    "Primed",
    "Priming",
    "configure",
    "high_ratio",
    "primed_grid",
    "primed_pair",
    "priming",
    "unprimed_grid",
]

#: Agents of the priming study: quick shows the first four.
PRIMING_AGENTS = (
    AgentSpec(),
    AgentSpec("cdq"),
    AgentSpec("none", "layer_norm"),
    AgentSpec("cdq", "layer_norm"),
    AgentSpec("none", "spectral_norm"),
    AgentSpec("none", "weight_decay"),
)
PAIR = (AgentSpec("cdq"), AgentSpec("cdq", "layer_norm"))
#: Return of an episode that counts as recovered from priming.
RECOVERED = -300.0


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed; repetitions use ``seed, seed + 1, ...``.
    priming_updates, priming_every, priming_seeds, priming_agents : int
        The study on a fixed buffer: updates, updates between looks, repetitions, and how many of
        `PRIMING_AGENTS`.
    transitions : int
        Random transitions in that buffer.
    primed_updates, primed_steps, primed_ratio, primed_seeds : int
        The primed pendulum: updates before the first own step, steps after, replay ratio, repetitions.
    cube_updates, cube_steps, cube_ratio, cube_seeds : int
        The same for all 64 agents.
    grid_seeds, grid_steps, grid_ratio : int
        The unprimed grid on two tasks.
    long_seeds, long_steps, long_ratio : int
        Sixteen agents at a high replay ratio.
    """

    seed: int = 0
    priming_updates: int = 3000
    priming_every: int = 250
    priming_seeds: int = 1
    priming_agents: int = 4
    transitions: int = 1000
    primed_updates: int = 2500
    primed_steps: int = 2000
    primed_ratio: int = 2
    primed_seeds: int = 3
    cube_updates: int = 100
    cube_steps: int = 200
    cube_ratio: int = 1
    cube_seeds: int = 1
    grid_seeds: int = 2
    grid_steps: int = 1200
    grid_ratio: int = 2
    long_seeds: int = 2
    long_steps: int = 1200
    long_ratio: int = 8


QUICK = Config(primed_steps=1600, cube_updates=50)
FULL = Config(
    priming_updates=5000,
    priming_seeds=2,
    priming_agents=6,
    cube_updates=2500,
    cube_steps=2000,
    cube_ratio=2,
    cube_seeds=2,
)
GRID_TASKS = ("Pendulum-v1", "cartpole-swingup")


def configure(profile: str, **overrides: object) -> Config:
    """Configuration of a profile with fields replaced; None keeps the profile's value."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


@dataclass(frozen=True)
class Priming:
    """Health of critics while they train on one fixed buffer.

    Attributes
    ----------
    specs : tuple of AgentSpec
    updates : ndarray, shape (looks,)
    curves : dict of str to ndarray, shape (seeds, specs, looks)
        The keys of `BatchedSAC.diagnose`.
    ceiling : float
        Largest return that the task's rewards allow, ``1 / (1 - discount)``.
    bound : ndarray, shape (seeds, specs)
        Largest value of the first critic on the data over the bound of layer norm; NaN elsewhere.
    """

    specs: tuple[AgentSpec, ...]
    updates: np.ndarray
    curves: dict[str, np.ndarray]
    ceiling: float
    bound: np.ndarray

    def ratio(self, metric: str, updates: int | None = None) -> np.ndarray:
        """Plain SAC's value over layer norm's after some updates (all by default), one a seed."""
        plain, normed = (self.specs.index(AgentSpec("none", name)) for name in ("none", "layer_norm"))
        look = -1 if updates is None else self.updates.tolist().index(updates)
        last = self.curves[metric][:, :, look]
        return last[:, plain] / last[:, normed]


def priming(config: Config) -> Priming:
    """Train agents on random transitions of cheetah-run only, and look at the first critic."""
    specs, seeds = (
        PRIMING_AGENTS[: config.priming_agents],
        range(config.seed, config.seed + config.priming_seeds),
    )
    settings = SACConfig(hidden=64, batch_size=64, norm_affine=False)
    parts = [_split(config.transitions, seed) for seed in seeds]
    train, held_out = (_stack([pair[k] for pair in parts for _ in specs]) for k in range(2))
    streams = [generator(seed, "actor_critic", "priming", spec.name) for seed in seeds for spec in specs]
    sizes = train.obs.shape[-1], train.action.shape[-1]
    agent = BatchedSAC(*sizes, specs * len(seeds), settings, generator=streams)
    buffer = ReplayBuffer.of(train)
    looks, found = [], []
    for done in range(0, config.priming_updates + 1, config.priming_every):
        if done:
            for _ in range(config.priming_every):
                (batch,) = buffer.sample(settings.batch_size, streams)
                agent.update(batch)
        looks.append(done)
        found.append(agent.diagnose(train, held_out))
    shape = len(seeds), len(specs), len(looks)
    curves = {
        name: torch.stack([look[name] for look in found], -1).reshape(shape).double().numpy()
        for name in found[0]
    }
    bound = _bound_share(agent, train).reshape(shape[:2]).numpy()
    return Priming(specs, np.array(looks), curves, 1 / (1 - settings.discount), bound)


@dataclass(frozen=True)
class Primed:
    """Returns of the episodes after priming.

    Attributes
    ----------
    specs : tuple of AgentSpec
    seeds : tuple of int
    returns : ndarray, shape (seeds, specs, episodes)
        Of training episodes, undivided.
    primed_q : ndarray, shape (seeds, specs)
        Mean value of the first critic on the random data at the end of priming.
    """

    specs: tuple[AgentSpec, ...]
    seeds: tuple[int, ...]
    returns: np.ndarray
    primed_q: np.ndarray

    def recovery(self, spec: AgentSpec) -> np.ndarray:
        """Number of the first episode above `RECOVERED`, one a seed; one more than all when there is none."""
        good = self.returns[:, self.specs.index(spec)] > RECOVERED
        return np.where(good.any(1), good.argmax(1), good.shape[1]) + 1

    def scores(self) -> pd.DataFrame:
        """Normalised mean return of all episodes: a row per seed, a column per agent."""
        values = normalised_score("Pendulum-v1", torch.from_numpy(self.returns.mean(-1))).numpy()
        return pd.DataFrame(values, index=list(self.seeds), columns=list(self.specs))


def primed_pair(config: Config, specs: Sequence[AgentSpec] = PAIR) -> Primed:
    """Agents primed on two random episodes of the pendulum, then trained online."""
    seeds = tuple(range(config.seed, config.seed + config.primed_seeds))
    return _primed(tuple(specs), seeds, config)


def primed_grid(config: Config) -> Primed:
    """`primed_pair` for all 64 agents, at sizes of their own."""
    sizes = {
        "primed_updates": config.cube_updates,
        "primed_steps": config.cube_steps,
        "primed_ratio": config.cube_ratio,
        "primed_seeds": config.cube_seeds,
    }
    return primed_pair(replace(config, **sizes), full_grid())


def unprimed_grid(config: Config, client: object = None, cache_dir: str | None = None) -> pd.DataFrame:
    """All 64 agents on two tasks from scratch, with resets after each third."""
    return run_grid(
        full_grid(),
        GRID_TASKS,
        range(config.seed, config.seed + config.grid_seeds),
        [config.grid_ratio],
        config=_online(config.grid_steps),
        steps=config.grid_steps,
        client=client,
        cache_dir=cache_dir,
    )


def high_ratio(config: Config, client: object = None, cache_dir: str | None = None) -> pd.DataFrame:
    """Clipped double Q with every network and plasticity technique, at a high replay ratio."""
    return run_grid(
        [spec for spec in full_grid() if spec.critic == "cdq"],
        ["Pendulum-v1"],
        range(config.seed, config.seed + config.long_seeds),
        [config.long_ratio],
        config=replace(_online(config.long_steps), evaluate_every=100, evaluation_episodes=1),
        steps=config.long_steps,
        client=client,
        cache_dir=cache_dir,
    )


def _online(steps: int) -> SACConfig:
    """Settings of the unprimed runs."""
    return SACConfig(
        hidden=32,
        batch_size=32,
        lr=1e-3,
        redo_every=250,
        norm_affine=False,
        learning_starts=200,
        evaluate_every=steps,
        evaluation_episodes=1,
    )


def _split(count: int, seed: int) -> tuple[Batch, Batch]:
    """Random transitions of cheetah-run: nine tenths to train on, one tenth held out; one run each."""
    batch = random_transitions("cheetah-run", count, seed).everything()
    order = torch.randperm(count, generator=generator(seed, "actor_critic", "priming", "split"))
    cut = count - count // 10
    return tuple(
        Batch(
            *(part[:, index] for part in (batch.obs, batch.action, batch.reward, batch.mask, batch.next_obs))
        )
        for index in (order[:cut], order[cut:])
    )


def _stack(batches: Sequence[Batch]) -> Batch:
    return Batch(
        *(
            torch.cat([getattr(batch, name) for batch in batches])
            for name in ("obs", "action", "reward", "mask", "next_obs")
        )
    )


def _bound_share(agent: BatchedSAC, data: Batch) -> Tensor:
    """Largest |Q_1| on the data over eq-actor_critic-bound, (n,); NaN without layer norm."""
    q1, _ = agent.q_values(data.obs, data.action)
    out = torch.full((len(agent.specs),), torch.nan, dtype=torch.float64)
    for rows, group in agent._groups:
        weights, biases, norms = group.critic.parts(group.critic.flat.detach())
        if norms is None:
            continue
        width = weights[-1].shape[1]
        bound = weights[-1].flatten(1).norm(dim=-1) * width**0.5 + biases[-1][:, 0].abs()
        for k, i in enumerate(rows.tolist()):
            if 2 * k in group.critic.normed:
                out[i] = float(q1[i].abs().max() / bound[2 * k])
    return out


def _primed(specs: tuple[AgentSpec, ...], seeds: tuple[int, ...], config: Config) -> Primed:
    """All agents and seeds in one stack: random episodes, priming, resets, online episodes."""
    settings = SACConfig(hidden=32, batch_size=32, lr=1e-3, redo_every=250, norm_affine=False)
    task, n = "Pendulum-v1", len(specs) * len(seeds)
    worlds = [stream_seed(seed, "actor_critic", "primed") % 2**31 for seed in seeds for _ in specs]
    world = Environments(task, worlds)
    streams = [generator(seed, "actor_critic", "primed", spec.name) for seed in seeds for spec in specs]
    agent = BatchedSAC(world.obs_dim, world.action_dim, specs * len(seeds), settings, generator=streams)
    first = 2 * world.horizon
    buffer = ReplayBuffer(first + config.primed_steps, world.obs_dim, world.action_dim, runs=n)
    draws = [numpy_generator(seed, "actor_critic", "primed", "actions") for seed in seeds]
    for _ in range(first):
        drawn = np.concatenate([g.uniform(-1, 1, (1, world.action_dim)) for g in draws])
        _act(world, torch.from_numpy(drawn).float().repeat_interleave(len(specs), 0), buffer)
    for _ in range(config.primed_updates):
        agent.update(*buffer.sample(settings.batch_size, streams))
    everything = buffer.everything()
    primed_q = agent.q_values(everything.obs, everything.action)[0].mean(1)
    agent.reset(torch.tensor([spec.plasticity == "reset" for spec in agent.specs]))
    episodes = []
    for _ in range(config.primed_steps):
        returns = _act(world, agent.act(world.obs), buffer)
        if returns is not None:
            episodes.append(returns)
            agent.finish_episode(returns)
        for batch in buffer.sample(settings.batch_size, streams, count=config.primed_ratio):
            agent.update(batch)
    shape = len(seeds), len(specs)
    returns = torch.stack(episodes, -1).reshape(*shape, -1).numpy()
    return Primed(specs, seeds, returns, primed_q.reshape(shape).double().numpy())


def _act(world: Environments, action: Tensor, buffer: ReplayBuffer) -> Tensor | None:
    obs = world.obs
    reward, mask, next_obs, returns = world.step(action)
    buffer.add(obs, action, reward, mask, next_obs)
    return returns
