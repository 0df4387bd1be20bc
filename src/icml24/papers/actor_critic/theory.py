r"""Small models of what goes wrong: maximising noise, repeated backups, features that feed on themselves."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from icml24.common.checks import finite, number, probability, same_shape, whole

__all__ = [
    "balancing_pessimism",
    "expected_maximum",
    "selection_bias",
    "soft_backup",
    "step_matrix",
    "td_weights",
]


def expected_maximum(count: int) -> float:
    """Expected largest of `count` independent standard normals, by quadrature; 0 for one."""
    k = whole("count", count, 1)
    return quad(lambda x: x * k * norm.pdf(x) * norm.cdf(x) ** (k - 1), -10, 10)[0]


def selection_bias(count: int, *, pessimism: float, noise: float = 1.0) -> float:
    r"""Bias of :math:`Q^\beta` at the action with the largest mean of two noisy critics.

    Parameters
    ----------
    count : int
        Number of equally good actions.
    pessimism : float
    noise : float, default 1.0
        Standard deviation of each critic's independent normal error, in units of value.

    Returns
    -------
    float
        Positive for overestimation.

    Notes
    -----
    Source: eq-actor_critic-maximisation.
    """
    s = number("noise", noise, least=0.0)
    return s * (expected_maximum(count) / math.sqrt(2) - number("pessimism", pessimism) / math.sqrt(math.pi))


def balancing_pessimism(count: int) -> float:
    """The pessimism at which `selection_bias` vanishes; above 1 from three actions on."""
    return expected_maximum(count) * math.sqrt(math.pi / 2)


def soft_backup(
    q: Tensor, transitions: Tensor, rewards: Tensor, policy: Tensor, *, discount: float, temperature: float
) -> Tensor:
    """Apply the soft Bellman operator of a fixed policy to a table of values.

    Parameters
    ----------
    q, rewards, policy : Tensor, shape (states, actions)
        `policy` holds probabilities, all positive; rows sum to 1.
    transitions : Tensor, shape (states, actions, states)
    discount : float in [0, 1]
    temperature : float

    Returns
    -------
    Tensor, shape (states, actions)

    Notes
    -----
    Source: eq-actor_critic-contraction.
    """
    same_shape("q", finite("q", q), "policy", finite("policy", policy))
    value = (policy * (q - number("temperature", temperature) * policy.log())).sum(-1)
    return rewards + probability("discount", discount, closed=True) * transitions @ value


def step_matrix(features: Tensor, next_features: Tensor, discount: float) -> Tensor:
    r"""Matrix `A` of the mean semi-gradient step of a linear critic, :math:`\dot w = b - A w`.

    Parameters
    ----------
    features, next_features : Tensor, shape (transitions, h)
        Equally likely transitions.
    discount : float in [0, 1]

    Returns
    -------
    Tensor, shape (h, h)

    Notes
    -----
    Source: eq-actor_critic-divergence: an eigenvalue with negative real part means divergence.
    """
    same_shape(
        "features", finite("features", features), "next_features", finite("next_features", next_features)
    )
    gamma = probability("discount", discount, closed=True)
    return features.mT @ (features - gamma * next_features) / len(features)


def td_weights(
    features: Tensor, next_features: Tensor, *, discount: float, lr: float = 0.1, steps: int = 200
) -> np.ndarray:
    """Norm of a linear critic's weights along `steps` semi-gradient steps without reward, from ones.

    Returns
    -------
    ndarray, shape (steps + 1,)
    """
    matrix = step_matrix(features, next_features, discount)
    w = torch.ones(matrix.shape[0], dtype=matrix.dtype)
    out = [float(w.norm())]
    for _ in range(steps):
        w = w - lr * matrix @ w
        out.append(float(w.norm()))
    return np.array(out)
