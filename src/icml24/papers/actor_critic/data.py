r"""Simulators: no data set is used; transitions come from tasks that are simulated on the spot.

Pendulum-v1 is Gymnasium's (3 observations, 1 action, 200 steps an episode). Names such as
``cheetah-run`` are tasks of the DeepMind Control suite (1,000 steps an episode, rewards in
[0, 1]; Apache-2.0), names ending in ``-v3`` MetaWorld's (MIT), which needs an environment of its
own. Actions are rescaled to [-1, 1]; all of these tasks end by a time limit only, so `mask` is 1.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from icml24.common.checks import WrongType, whole
from icml24.common.random import numpy_generator, stream_seed

from .replay import ReplayBuffer

__all__ = [
    "Environments",
    "PaperGrid",
    "Simulator",
    "make",
    "normalised_score",
    "paper_grid",
    "random_transitions",
]

#: Pendulum's rewards, down to about -16 a step, are divided by this for learning; returns are not.
PENDULUM_SCALE = 10.0


class Simulator(Protocol):
    """One task: actions in [-1, 1], observations as float64 vectors."""

    obs_dim: int
    action_dim: int
    horizon: int
    reward_scale: float

    def reset(self) -> np.ndarray:
        """Start an episode; the first observation."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Observation, reward as the task counts it, and whether the task truly ended."""

    def outcome(self, total: float) -> float:
        """An episode's return in the task's own units, from the sum of its rewards."""


@dataclass(frozen=True)
class PaperGrid:
    """What the whole study would run."""

    tasks: tuple[str, ...]
    agents: int
    seeds: int
    replay_ratios: tuple[int, ...]
    steps: int

    @property
    def runs(self) -> int:
        """Number of training runs."""
        return self.agents * len(self.tasks) * self.seeds * len(self.replay_ratios)


def paper_grid() -> PaperGrid:
    """Tasks and sizes of the paper's scale, as listed in ``tasks.toml``."""
    listed = tomllib.loads((files(__package__) / "tasks.toml").read_text(encoding="utf8"))
    scale = listed["scale"]
    return PaperGrid(
        tuple(listed["paper"]["dmc"] + listed["paper"]["metaworld"]),
        *(scale["agents"], scale["seeds"], tuple(scale["replay_ratios"]), scale["steps"]),
    )


def make(task: str, seed: int) -> Simulator:
    """Simulator of a task.

    Parameters
    ----------
    task : str
        ``"Pendulum-v1"``, ``"<domain>-<task>"`` of DeepMind Control, or ``"<task>-v3"`` of MetaWorld.
    seed : int
        Of the initial states.

    Raises
    ------
    ValueError
        Unknown task.
    ImportError
        The simulator is not installed; the message says what to install.
    """
    whole("seed", seed)
    if not isinstance(task, str):
        raise WrongType(f"task must be a name, as in 'Pendulum-v1'; got {task!r}")
    if task == "Pendulum-v1":
        return _Pendulum(seed)
    if "-" not in task:
        raise ValueError(
            f"unknown task {task!r}; expected Pendulum-v1, a name such as cheetah-run or hammer-v3"
        )
    return _MetaWorld(task, seed) if task.endswith("-v3") else _Control(task, seed)


def normalised_score(task: str, returns: float | Tensor) -> float | Tensor:
    """Score between about 0 and 1: Pendulum ``(R + 1600) / 1600`` cut at 0, DeepMind Control ``R / 1000``.

    MetaWorld's return is its success rate already.
    """
    if task == "Pendulum-v1":
        score = (returns + 1600) / 1600
        return score.clamp(min=0) if isinstance(score, Tensor) else max(score, 0.0)
    return returns if task.endswith("-v3") else returns / 1000


class Environments:
    """`n` copies of a task that step together and start again by themselves.

    Parameters
    ----------
    task : str
    seeds : sequence of int
        One a copy; copies with equal seeds see the same initial states.
    dtype : torch.dtype
    """

    def __init__(self, task: str, seeds: Sequence[int], *, dtype: torch.dtype = torch.float32) -> None:
        self.task, self.dtype = task, dtype
        self.copies = [make(task, seed) for seed in seeds]
        first = self.copies[0]
        self.obs_dim, self.action_dim, self.horizon = first.obs_dim, first.action_dim, first.horizon
        self.restart()

    def restart(self) -> None:
        """Begin a new episode everywhere."""
        self.obs = self._tensor([copy.reset() for copy in self.copies])
        self.elapsed = 0
        self.totals = np.zeros(len(self.copies))
        self.over = np.zeros(len(self.copies), dtype=bool)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Apply actions (n, d).

        Returns
        -------
        (reward, mask, next_obs, returns)
            Reward in units of learning, (n,); mask (n,); next observations (n, o); undiscounted
            returns (n,) in the task's own units when the episode's time is up, else None. After
            that, `obs` is the start of a new episode; `next_obs` never is.
        """
        steps = [
            copy.step(a) for copy, a in zip(self.copies, action.double().numpy().clip(-1, 1), strict=True)
        ]
        rewards = np.array([reward for _, reward, _ in steps])
        self.totals += rewards
        self.elapsed += 1
        next_obs = self._tensor([obs for obs, _, _ in steps])
        mask = self._tensor([0.0 if ended else 1.0 for _, _, ended in steps])
        reward = self._tensor(rewards / self.copies[0].reward_scale)
        returns = None
        self.obs = next_obs
        if self.elapsed == self.horizon:
            outcomes = [copy.outcome(total) for copy, total in zip(self.copies, self.totals, strict=True)]
            returns = torch.tensor(outcomes, dtype=torch.float64)
            self.restart()
        return reward, mask, next_obs, returns

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=self.dtype)


def random_transitions(
    task: str, count: int, seed: int, *, dtype: torch.dtype = torch.float32
) -> ReplayBuffer:
    """A buffer of `count` transitions under uniformly random actions."""
    world = Environments(task, [stream_seed(seed, "actor_critic", task, "random") % 2**31], dtype=dtype)
    draw = numpy_generator(seed, "actor_critic", task, "actions")
    buffer = ReplayBuffer(whole("count", count, 1), world.obs_dim, world.action_dim, dtype=dtype)
    for _ in range(count):
        obs = world.obs
        action = torch.as_tensor(draw.uniform(-1, 1, size=(1, world.action_dim)), dtype=dtype)
        reward, mask, next_obs, _ = world.step(action)
        buffer.add(obs, action, reward, mask, next_obs)
    return buffer


class _Pendulum:
    """Gymnasium's pendulum without its wrappers; torques in [-2, 2] become actions in [-1, 1]."""

    obs_dim, action_dim, horizon, reward_scale = 3, 1, 200, PENDULUM_SCALE

    def __init__(self, seed: int) -> None:
        from gymnasium.envs.classic_control.pendulum import PendulumEnv

        self._env, self._seed = PendulumEnv(), seed

    def reset(self) -> np.ndarray:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return obs

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, ended, _, _ = self._env.step(2.0 * action)
        return obs, float(reward), ended

    def outcome(self, total: float) -> float:
        return float(total)


class _Control:
    """A task of the DeepMind Control suite."""

    reward_scale = 1.0

    def __init__(self, task: str, seed: int) -> None:
        domain, name = task.split("-", 1)
        with _quiet():
            try:
                from dm_control import suite
            except ImportError as error:
                raise ImportError(
                    f"{task} needs dm-control and mujoco below 4: pip install 'dm-control>=1.0.30' 'mujoco<4'"
                ) from error
            if (domain, name.replace("-", "_")) not in suite.ALL_TASKS:
                raise ValueError(f"unknown task {task!r}; the suite has names such as cheetah-run, dog-trot")
            self._env = suite.load(domain, name.replace("-", "_"), task_kwargs={"random": seed})
        box = self._env.action_spec()
        self._low, self._high = box.minimum, box.maximum
        self.action_dim = int(np.prod(box.shape))
        self.obs_dim = sum(int(np.prod(part.shape)) or 1 for part in self._env.observation_spec().values())
        self.horizon = 1000

    def reset(self) -> np.ndarray:
        return self._flat(self._env.reset())

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        now = self._env.step(self._low + 0.5 * (action + 1) * (self._high - self._low))
        return self._flat(now), float(now.reward), bool(now.last() and now.discount == 0)

    def outcome(self, total: float) -> float:
        return float(total)

    @staticmethod
    def _flat(now: Any) -> np.ndarray:
        return np.concatenate([np.ravel(part) for part in now.observation.values()])


class _MetaWorld:
    """A task of MetaWorld; the reward is its own, an episode's return 1 if it ever succeeded, else 0."""

    horizon, reward_scale = 500, 1.0

    def __init__(self, task: str, seed: int) -> None:
        try:
            import gymnasium
            import metaworld  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{task} needs MetaWorld, which asks for other versions of dm-control and mujoco than the rest: "
                "install metaworld==3.1.1 dm-control==1.0.28 'numpy<2.4' in an environment of its own"
            ) from error
        self._env: Any = gymnasium.make("Meta-World/MT1", env_name=task, seed=seed)
        self._seed: int | None = seed
        self.obs_dim = int(np.prod(self._env.observation_space.shape))
        self.action_dim = int(np.prod(self._env.action_space.shape))

    def reset(self) -> np.ndarray:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._success = 0.0
        return obs

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, ended, _, info = self._env.step(action.astype(np.float32))
        self._success = max(self._success, float(info["success"]))
        return obs, float(reward), ended

    def outcome(self, total: float) -> float:
        return self._success


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No rendering, and no word about deprecations or missing displays while dm_control is imported."""
    os.environ.setdefault("MUJOCO_GL", "disabled")
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
