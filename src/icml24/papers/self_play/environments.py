r"""Control tasks: a point mass (offline, vectorised, exact) and gymnasium's pendulum.

A task has `obs_dim`, `action_dim`, `horizon`, ``reset(num, generator=...)`` and
``step(action) -> (obs, reward)``; all trajectories run in step and end at the horizon.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.papers.self_play import _checks

__all__ = ["HeadingTask", "PendulumTask", "PointMass"]

REWARDS = ("goal", "vx")
GOAL = (2.0, 1.0)
DRAG, THRUST, DT = 0.9, 0.2, 0.2


class PointMass:
    r"""A mass in the plane, pushed by a bounded force, starting at rest in the origin.

    .. math:: v \leftarrow 0.9\,v + 0.2\operatorname{clip}(a, -1, 1), \qquad x \leftarrow x + 0.2\,v

    Parameters
    ----------
    horizon : int, default 50
        Steps of a trajectory.
    reward : {"goal", "vx"}, default "goal"
        After the update: minus the distance to (2, 1), or ``0.2 * vx`` (its sum is the way
        travelled along x). Both in units of length.
    time_feature : bool, default False
        Append t / H, with t the steps taken, to the observation.

    Notes
    -----
    Observation (x, y, vx, vy[, t/H]), float32. Deterministic: randomness is the policy's.
    """

    action_dim = 2

    def __init__(self, horizon: int = 50, reward: str = "goal", time_feature: bool = False) -> None:
        self.horizon = _checks.whole("horizon", horizon, 1)
        if reward not in REWARDS:
            raise ValueError(f"unknown reward {reward!r}; expected one of {list(REWARDS)}")
        self.reward = reward
        self.time_feature = bool(time_feature)
        self.obs_dim = 5 if time_feature else 4
        self._goal = torch.tensor(GOAL)
        self._position: Tensor | None = None

    def reset(self, num: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Start `num` trajectories.

        Parameters
        ----------
        num : int
            At least 1.
        generator : torch.Generator, optional
            Not used: the start is fixed.

        Returns
        -------
        Tensor, shape (num, obs_dim)
        """
        del generator
        num = _checks.whole("num", num, 1)
        self._position, self._velocity, self._taken = torch.zeros(num, 2), torch.zeros(num, 2), 0
        return self._observe()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every trajectory by one step.

        Parameters
        ----------
        action : Tensor, shape (num, 2)
            Force; clipped to [-1, 1].

        Returns
        -------
        (Tensor, Tensor), shapes (num, obs_dim) and (num,)
            Observation and reward after the update.

        Raises
        ------
        ValueError
            Before `reset`, past the horizon, or an action of the wrong shape.
        """
        if self._position is None:
            raise ValueError("call reset(num) before step")
        if self._taken >= self.horizon:
            raise ValueError(f"step past the horizon: all {self.horizon} steps are taken, call reset")
        action = torch.as_tensor(action)
        if action.shape != self._position.shape:
            raise ValueError(
                f"action must have shape {tuple(self._position.shape)}; got {tuple(action.shape)}"
            )
        self._velocity = DRAG * self._velocity + THRUST * action.detach().float().clamp(-1, 1)
        self._position = self._position + DT * self._velocity
        self._taken += 1
        if self.reward == "goal":
            reward = -torch.linalg.vector_norm(self._position - self._goal, dim=1)
        else:
            reward = DT * self._velocity[:, 0]
        return self._observe(), reward

    def _observe(self) -> Tensor:
        parts = [self._position, self._velocity]
        if self.time_feature:
            parts.append(torch.full((len(self._position), 1), self._taken / self.horizon))
        return torch.cat(parts, dim=1)


class HeadingTask(PointMass):
    r"""Point mass whose outcome is the sector it heads for: the input of an intransitive game.

    The reward is zero until the last step, which pays the *number* of the sector (0, 1 or
    2) in which the mass ends up, counter-clockwise from the positive x-axis. It is an
    outcome to be compared by a preference function, not something to be maximised.

    Parameters
    ----------
    horizon : int, default 20
        Steps of a trajectory.
    """

    def __init__(self, horizon: int = 20) -> None:
        super().__init__(horizon, "vx")

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Advance by one step; see the class for the reward."""
        obs, _ = super().step(action)
        if self._taken < self.horizon:
            return obs, torch.zeros(len(obs))
        angle = torch.atan2(obs[:, 1], obs[:, 0]).remainder(2 * torch.pi)
        return obs, (angle / (2 * torch.pi / 3)).floor().clamp(0, 2)


class PendulumTask:
    r"""gymnasium's Pendulum-v1 behind this package's task interface.

    The adapter keeps `num` unwrapped environments, seeds each from `generator` at `reset`,
    maps the action a to the torque 2 clip(a, -1, 1), and hands observations (cos, sin,
    angular speed / 8) and rewards over as float32. Physics and rewards are gymnasium's.

    Parameters
    ----------
    horizon : int, default 200
        Steps of a trajectory; 200 is the environment's own limit.
    """

    obs_dim, action_dim = 3, 1

    def __init__(self, horizon: int = 200) -> None:
        self.horizon = _checks.whole("horizon", horizon, 1)
        self._envs: list = []

    def reset(self, num: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Start `num` trajectories from random angles; returns observations (num, 3).

        Without a generator the seeds are 0, 1, 2, ...: repeated calls start alike.
        """
        import gymnasium

        num = _checks.whole("num", num, 1)
        while len(self._envs) < num:
            self._envs.append(gymnasium.make("Pendulum-v1").unwrapped)
        if generator is None:
            seeds = torch.arange(num)
        else:
            seeds = torch.randint(2**31 - 1, (num,), generator=generator)
        self._running, self._taken = self._envs[:num], 0
        return self._observe([e.reset(seed=int(s))[0] for e, s in zip(self._running, seeds, strict=True)])

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every trajectory; `action` has shape (num, 1). ValueError past the horizon."""
        if not self._envs:
            raise ValueError("call reset(num) before step")
        if self._taken >= self.horizon:
            raise ValueError(f"step past the horizon: all {self.horizon} steps are taken, call reset")
        if action.shape != (len(self._running), 1):
            raise ValueError(f"action must have shape ({len(self._running)}, 1); got {tuple(action.shape)}")
        torques = (2 * action.detach().float().clamp(-1, 1)).numpy()
        self._taken += 1
        results = [e.step(u) for e, u in zip(self._running, torques, strict=True)]
        return self._observe([r[0] for r in results]), torch.tensor([float(r[1]) for r in results])

    def close(self) -> None:
        """Close the environments."""
        while self._envs:
            self._envs.pop().close()

    @staticmethod
    def _observe(rows: list) -> Tensor:
        import numpy as np

        return torch.from_numpy(np.stack(rows)).float() * torch.tensor([1.0, 1.0, 0.125])
