r"""Networks and the PPO update that every algorithm of this chapter shares.

What differs between self-play, reward modelling and the oracle is only the advantage
they hand to `ppo_update`. Initial weights come from a generator, never from the global one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["GaussianPolicy", "RewardModel", "Rollout", "ppo_update", "rollout"]

HIDDEN = 64
LOG_STD_INIT = -0.5
LAST_LAYER_SCALE = 0.01
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class _TanhMLP(nn.Module):
    """Two tanh layers of 64 and a linear one; weights as torch.nn.Linear draws them."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator | None) -> None:
        super().__init__()
        sizes = (inputs, HIDDEN, HIDDEN, outputs)
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in itertools.pairwise(sizes))
        with torch.no_grad():
            for layer in self.layers:
                bound = layer.in_features**-0.5
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.layers
        x = torch.tanh(F.linear(x, first.weight, first.bias))
        x = torch.tanh(F.linear(x, second.weight, second.bias))
        return F.linear(x, last.weight, last.bias)


class GaussianPolicy(_TanhMLP):
    r"""Diagonal Gaussian policy, mean by an MLP, one log standard deviation per action.

    Parameters
    ----------
    obs_dim, action_dim : int
        Sizes of observation and action.
    generator : torch.Generator, optional
        For the initial weights; the last layer is scaled by 0.01, so that the untrained
        policy pushes in no direction. Initial log standard deviation -0.5.
    """

    def __init__(self, obs_dim: int, action_dim: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__(obs_dim, action_dim, generator)
        self.log_std = nn.Parameter(torch.full((action_dim,), LOG_STD_INIT))
        with torch.no_grad():
            self.layers[-1].weight.mul_(LAST_LAYER_SCALE)
            self.layers[-1].bias.mul_(LAST_LAYER_SCALE)

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        """Log density of `action` (..., action_dim) at `obs` (..., obs_dim); shape (...)."""
        z = (action - self(obs)) * torch.exp(-self.log_std)
        return -(0.5 * z.square() + self.log_std + HALF_LOG_TWO_PI).sum(-1)


class RewardModel(_TanhMLP):
    """Reward of a step from (obs, action); a trajectory's score is the sum over its steps."""

    def __init__(self, obs_dim: int, action_dim: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__(obs_dim + action_dim, 1, generator)

    def step_rewards(self, obs: Tensor, action: Tensor) -> Tensor:
        """Rewards of shape (...) from tensors (..., obs_dim) and (..., action_dim)."""
        return self(torch.cat([obs, action], -1)).squeeze(-1)


@dataclass(frozen=True)
class Rollout:
    """A batch of B trajectories of H steps: obs (B, H, o), action (B, H, a), the rest (B, H)."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor


@torch.no_grad()
def rollout(env, policy: GaussianPolicy, num: int, horizon: int, generator: torch.Generator) -> Rollout:
    """Sample `num` trajectories of `horizon` steps from `policy`."""
    std = policy.log_std.exp()
    noise = torch.randn(horizon, num, env.action_dim, generator=generator)
    obs = env.reset(num, generator=generator)
    seen, acted, paid = [], [], []
    for h in range(horizon):
        action = policy(obs) + std * noise[h]
        seen.append(obs)
        obs, reward = env.step(action)
        acted.append(action)
        paid.append(reward)
    log_prob = -(0.5 * noise.square() + policy.log_std + HALF_LOG_TWO_PI).sum(-1)
    return Rollout(torch.stack(seen, 1), torch.stack(acted, 1), log_prob.T.contiguous(), torch.stack(paid, 1))


def ppo_update(
    policy: GaussianPolicy,
    optimizer: torch.optim.Optimizer,
    batch: Rollout,
    advantage: Tensor,
    *,
    epochs: int,
    clip: float,
) -> None:
    r"""PPO with a clipped ratio: `epochs` full-batch steps, gradient norm at most 1.

    Maximises the mean of :math:`\min(\rho A, \operatorname{clip}(\rho, 1-c, 1+c) A)`, with
    :math:`\rho` the ratio of new to old probability of each action. Value network and
    entropy bonus there are none.
    """
    parameters = list(policy.parameters())
    for _ in range(epochs):
        ratio = torch.exp(policy.log_prob(batch.obs, batch.action) - batch.log_prob)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        optimizer.zero_grad(set_to_none=True)
        (-gain).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
