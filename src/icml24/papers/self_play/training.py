r"""Self-play preference optimisation on control tasks, and the rivals it is compared with.

`train` runs one loop: sample a batch, turn it into an advantage, take one PPO update.
The four algorithms are four ways to fill in the second step:

- ``"spo"``: win rate against the same batch, or against a queue of past trajectories;
- ``"rm"``: a reward network fitted to sampled comparisons (Bradley-Terry), then its rewards;
- ``"oracle"``: the environment's rewards, which no preference learner sees;
- ``"duel"``: two policies, each paid its win rate against the other's batch.

Equations: eq-self_play-winrate, eq-self_play-gradient, eq-self_play-bradleyterry.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from icml24.common.random import generator as stream
from icml24.papers.self_play import _checks
from icml24.papers.self_play.policies import GaussianPolicy, RewardModel, Rollout, ppo_update, rollout
from icml24.papers.self_play.rewards import TrajectoryQueue, win_rate_rewards

__all__ = ["SPOConfig", "TrainResult", "train"]

ALGORITHMS = ("spo", "rm", "oracle", "duel")
PreferenceFn = Callable[..., Tensor]

RM_LR = 1e-3
RM_MINIBATCHES = 10  # of RM_PAIRS sampled comparisons each, per iteration
RM_PAIRS = 64
RM_POOL = 10  # last batches; pairs are drawn from all of their trajectories


@dataclass(frozen=True)
class SPOConfig:
    """Settings of `train`.

    Attributes
    ----------
    iterations : int
        PPO updates; each starts from a fresh batch.
    batch_size : int
        Trajectories a batch, B >= 2.
    horizon : int
        Steps of a trajectory; at most the task's own.
    lr : float
        Adam's step size for the policy.
    epochs : int
        Full-batch gradient steps an update.
    clip : float
        PPO's clip ratio.
    queue : int or None
        None: a batch is compared with itself. An integer: with a queue of that many past
        trajectories (``"spo"`` only).
    seed : int
        Seed of everything random in the run.
    algorithm : {"spo", "rm", "oracle", "duel"}
        See the module's docstring.
    """

    iterations: int = 100
    batch_size: int = 64
    horizon: int = 50
    lr: float = 3e-3
    epochs: int = 4
    clip: float = 0.2
    queue: int | None = None
    seed: int = 0
    algorithm: str = "spo"

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"unknown algorithm {self.algorithm!r}; expected one of {list(ALGORITHMS)}")
        _checks.whole("iterations", self.iterations, 1)
        _checks.whole("batch_size", self.batch_size, 2)
        _checks.whole("horizon", self.horizon, 1)
        _checks.whole("epochs", self.epochs, 1)
        _checks.positive("lr", self.lr)
        _checks.positive("clip", self.clip)
        if self.queue is not None:
            _checks.whole("queue", self.queue, 1)


@dataclass(frozen=True)
class TrainResult:
    """What `train` returns, over I iterations.

    Attributes
    ----------
    policy : nn.Module
        The last iterate: maps observations to mean actions, ``log_std`` beside it.
    returns : Tensor, shape (I,)
        Mean ground-truth return of the batch sampled *before* update t.
    queries : Tensor, shape (I,), int64
        Comparisons asked up to and including iteration t.
    rewards_last : Tensor, shape (batch_size, horizon)
        Ground-truth rewards of the last batch.
    """

    policy: nn.Module
    returns: Tensor
    queries: Tensor
    rewards_last: Tensor


def train(env, preference_fn: PreferenceFn | None, config: SPOConfig) -> TrainResult:
    r"""Train a policy from preferences between trajectories.

    Parameters
    ----------
    env : PointMass or alike
        ``obs_dim``, ``action_dim``, ``reset(num, generator=...)``, ``step(action)``.
    preference_fn : callable
        ``preference_fn(rewards_a, rewards_b, *, generator) -> (A, B)`` in [-1, 1], expected
        preferences or sampled labels. A function without a `generator` argument is called
        without one. Ignored by ``"oracle"``.
    config : SPOConfig
        Every random number depends on ``config.seed`` alone: repeated calls agree.

    Returns
    -------
    TrainResult

    Raises
    ------
    ValueError
        ``config.horizon`` beyond the task's; a preference of the wrong shape, not finite or
        outside [-1, 1].
    TypeError
        `preference_fn` is not callable or returns no floating point tensor.

    Notes
    -----
    Batch form: the strict upper triangle of what `preference_fn` returns is kept and
    mirrored with a minus sign, one label per unordered pair, so B(B-1)/2 comparisons an
    iteration. Queue form: B |Q| (the queue starts with trajectories of the first policy).
    Reward modelling: the 10 x 64 pairs it draws. Duel: B^2, and twice the trajectories.
    """
    limit = getattr(env, "horizon", config.horizon)
    if config.horizon > limit:
        raise ValueError(f"config.horizon = {config.horizon} exceeds the task's horizon of {limit} steps")
    if config.algorithm != "oracle" and not callable(preference_fn):
        raise TypeError(f"preference_fn must be callable; got {type(preference_fn).__name__}")
    advantage_of = {"spo": _SelfPlay, "rm": _RewardModelling, "oracle": _Oracle, "duel": _Duel}[
        config.algorithm
    ](env, _Judge(preference_fn, config.seed), config)
    policy, optimizer = _new_policy(env, config, "policy")
    acting = stream(config.seed, "self_play", "actions")
    returns, queries = [], []
    for _ in range(config.iterations):
        batch = rollout(env, policy, config.batch_size, config.horizon, acting)
        advantage, asked = advantage_of(policy, batch)
        returns.append(batch.reward.sum(1).mean())
        queries.append(asked)
        ppo_update(policy, optimizer, batch, advantage, epochs=config.epochs, clip=config.clip)
    asked = torch.tensor(queries, dtype=torch.int64).cumsum(0)
    return TrainResult(policy, torch.stack(returns), asked, batch.reward)


def _new_policy(env, config: SPOConfig, name: str) -> tuple[GaussianPolicy, torch.optim.Adam]:
    generator = stream(config.seed, "self_play", name)
    policy = GaussianPolicy(env.obs_dim, env.action_dim, generator=generator)
    return policy, torch.optim.Adam(policy.parameters(), lr=config.lr, fused=True)


class _Judge:
    """Asks the preference function, with its own stream of randomness, and checks the answer."""

    def __init__(self, preference_fn: PreferenceFn | None, seed: int) -> None:
        self._fn = preference_fn
        self._generator = stream(seed, "self_play", "labels")
        self._keywords = {"generator": self._generator} if _takes_generator(preference_fn) else {}

    def __call__(self, rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
        answer = _checks.floating("preference_fn's answer", self._fn(rewards_a, rewards_b, **self._keywords))
        shape = (len(rewards_a), len(rewards_b))
        if answer.shape != shape:
            raise ValueError(f"preference_fn must return shape {shape}; got {tuple(answer.shape)}")
        if not bool((answer.abs() <= 1 + 1e-6).all()):  # false for NaN, too
            raise ValueError("preference_fn must return finite preferences in [-1, 1]")
        return answer.detach().float()


def _takes_generator(function: PreferenceFn | None) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "generator" or p.kind is p.VAR_KEYWORD for p in parameters)


class _SelfPlay:
    """Advantage: the win rate of a trajectory, the same for each of its steps."""

    def __init__(self, env, judge: _Judge, config: SPOConfig) -> None:
        self._env, self._judge, self._config = env, judge, config
        self._queue = None if config.queue is None else TrajectoryQueue(config.queue)
        self._filling = stream(config.seed, "self_play", "queue")

    def __call__(self, policy: GaussianPolicy, batch: Rollout) -> tuple[Tensor, int]:
        if self._queue is None:
            upper = self._judge(batch.reward, batch.reward).triu(1)
            size = len(upper)
            return _same_for_all_steps(win_rate_rewards(upper - upper.T), batch), size * (size - 1) // 2
        if len(self._queue) == 0:  # opponents before there are past ones: the first policy
            first = rollout(self._env, policy, self._config.queue, self._config.horizon, self._filling)
            self._queue.push(first.reward)
        preference = self._judge(batch.reward, self._queue.stack())
        self._queue.push(batch.reward)  # after the comparison: opponents come from the past
        return _same_for_all_steps(
            win_rate_rewards(preference, exclude_self=False), batch
        ), preference.numel()


def _same_for_all_steps(rate: Tensor, batch: Rollout) -> Tensor:
    return _standardised(rate)[:, None].expand_as(batch.reward)


def _standardised(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.std() + 1e-8)


class _Duel:
    """Two policies; each is paid its win rate against the other's batch."""

    def __init__(self, env, judge: _Judge, config: SPOConfig) -> None:
        self._env, self._judge, self._config = env, judge, config
        self._rival, self._optimizer = _new_policy(env, config, "rival")
        self._acting = stream(config.seed, "self_play", "rival actions")

    def __call__(self, policy: GaussianPolicy, batch: Rollout) -> tuple[Tensor, int]:
        del policy
        config = self._config
        other = rollout(self._env, self._rival, config.batch_size, config.horizon, self._acting)
        preference = self._judge(batch.reward, other.reward)
        theirs = _same_for_all_steps(win_rate_rewards(-preference.T, exclude_self=False), other)
        ppo_update(self._rival, self._optimizer, other, theirs, epochs=config.epochs, clip=config.clip)
        ours = _same_for_all_steps(win_rate_rewards(preference, exclude_self=False), batch)
        return ours, preference.numel()


class _Oracle:
    """Advantage from the true rewards: reward-to-go above the batch mean of that time step."""

    def __init__(self, env, judge: _Judge, config: SPOConfig) -> None:
        del env, judge, config

    def __call__(self, policy: GaussianPolicy, batch: Rollout) -> tuple[Tensor, int]:
        del policy
        return _reward_to_go(batch.reward), 0


def _reward_to_go(reward: Tensor) -> Tensor:
    to_go = reward.flip(1).cumsum(1).flip(1)
    return _standardised(to_go - to_go.mean(0))


class _RewardModelling:
    """Fit a reward network to sampled comparisons, then treat its rewards as true."""

    def __init__(self, env, judge: _Judge, config: SPOConfig) -> None:
        self._judge = judge
        self._model = RewardModel(
            env.obs_dim, env.action_dim, generator=stream(config.seed, "self_play", "reward model")
        )
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=RM_LR, fused=True)
        self._drawing = stream(config.seed, "self_play", "pairs")
        self._pool: deque[Rollout] = deque(maxlen=RM_POOL)

    def __call__(self, policy: GaussianPolicy, batch: Rollout) -> tuple[Tensor, int]:
        del policy
        self._pool.append(batch)
        obs, action, reward = (
            torch.cat([getattr(b, field) for b in self._pool]) for field in ("obs", "action", "reward")
        )
        for _ in range(RM_MINIBATCHES):
            one, two = self._draw(len(reward))
            label = self._judge(reward[one], reward[two]).diagonal()
            both = torch.cat([one, two])
            score = self._model.step_rewards(obs[both], action[both]).sum(1)
            loss = _bradley_terry_loss(score[:RM_PAIRS] - score[RM_PAIRS:], label)
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._optimizer.step()
        with torch.no_grad():
            rewards = self._model.step_rewards(batch.obs, batch.action)
        return _reward_to_go(rewards), RM_MINIBATCHES * RM_PAIRS

    def _draw(self, size: int) -> tuple[Tensor, Tensor]:
        """Pairs of two different trajectories out of `size`."""
        one = torch.randint(size, (RM_PAIRS,), generator=self._drawing)
        two = (one + torch.randint(1, size, (RM_PAIRS,), generator=self._drawing)) % size
        return one, two


def _bradley_terry_loss(difference: Tensor, preference: Tensor) -> Tensor:
    r"""Cross entropy of the win probability (1 + P)/2; for labels, :math:`-\log\sigma(y\,d)`."""
    return nn.functional.binary_cross_entropy_with_logits(difference, (1 + preference) / 2)
