r"""Three diagnoses of a critic: values too high, errors larger on unseen data, returns it should predict."""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common.checks import finite, floating, probability, same_shape

__all__ = ["discounted_returns", "overestimation", "overfitting_ratio"]


def discounted_returns(rewards: Tensor, dones: Tensor, discount: float) -> Tensor:
    r"""Discounted sum of the rewards from each step on.

    Parameters
    ----------
    rewards : Tensor, shape (..., T), floating
    dones : Tensor, shape (..., T), bool or numeric
        1 where an episode ends: the sum stops after that step's reward.
    discount : float in [0, 1]

    Returns
    -------
    Tensor, shape (..., T)

    Raises
    ------
    ValueError
        Shapes differ, no steps, NaN rewards, or `discount` outside [0, 1].

    Notes
    -----
    Source: eq-actor_critic-overestimation. To bootstrap a truncated episode, add the
    discounted last value to the last reward.
    """
    if finite("rewards", rewards).ndim == 0 or rewards.shape[-1] == 0:
        raise ValueError(f"rewards must have at least one step, shape (..., T); got {tuple(rewards.shape)}")
    if not isinstance(dones, Tensor):
        raise TypeError(f"dones must be a torch.Tensor; got {type(dones).__name__}")
    same_shape("rewards", rewards, "dones", dones)
    keep = probability("discount", discount, closed=True) * (1 - dones.to(rewards.dtype))
    ahead = torch.zeros_like(rewards[..., 0])
    out = []
    for t in reversed(range(rewards.shape[-1])):
        ahead = rewards[..., t] + keep[..., t] * ahead
        out.append(ahead)
    return torch.stack(out[::-1], -1)


def overestimation(q_values: Tensor, returns: Tensor) -> Tensor:
    """Mean of value minus return over visited pairs of state and action.

    Parameters
    ----------
    q_values, returns : Tensor, one shape (...), floating
        Predicted values, and the returns that followed under the same policy, in units of reward.

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        Shapes differ or are empty.

    Notes
    -----
    Source: eq-actor_critic-overestimation.
    """
    same_shape("q_values", floating("q_values", q_values), "returns", floating("returns", returns))
    if q_values.numel() == 0:
        raise ValueError("q_values is empty; expected at least one visited pair")
    return (q_values - returns).mean()


def overfitting_ratio(td_validation: Tensor, td_train: Tensor) -> Tensor:
    """Mean squared error of the critic on held-out transitions over that on training data.

    Parameters
    ----------
    td_validation, td_train : Tensor, any shapes, floating
        Temporal-difference errors ``Q - y`` (not squared), targets computed in the same way.

    Returns
    -------
    Tensor, shape ()
        1 without overfitting; infinite when the training error is exactly zero.

    Raises
    ------
    ValueError
        An empty argument.

    Notes
    -----
    Source: eq-actor_critic-overfitting.
    """
    for name, td in {"td_validation": td_validation, "td_train": td_train}.items():
        if floating(name, td).numel() == 0:
            raise ValueError(f"{name} is empty; expected at least one temporal-difference error")
    return td_validation.square().mean() / td_train.square().mean()
