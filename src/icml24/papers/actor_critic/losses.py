r"""Soft actor-critic, formula by formula, with one dial for pessimism.

Two critics disagree; how a target combines them is the whole critic family. Every agent
here uses :math:`Q^\beta = (Q_1 + Q_2)/2 - \beta\,\lvert Q_1 - Q_2\rvert/2`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from icml24.common.checks import floating, number, probability, same_shape

__all__ = [
    "actor_loss",
    "critic_loss",
    "gpl_loss",
    "pessimistic_value",
    "soft_target",
    "soft_update",
    "squash_log_std",
    "tanh_normal_log_prob",
    "temperature_loss",
]


def pessimistic_value(q1: Tensor, q2: Tensor, pessimism: float | Tensor) -> Tensor:
    r"""Combine two critics.

    Parameters
    ----------
    q1, q2 : Tensor, one shape (...), floating
        Values of the two critics.
    pessimism : float or Tensor broadcastable to them
        1 gives the minimum, 0 the mean, -1 the maximum.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        The critics' shapes differ, or `pessimism` would enlarge them.

    Notes
    -----
    Source: eq-actor_critic-pessimism.
    """
    same_shape("q1", floating("q1", q1), "q2", floating("q2", q2))
    beta = _coefficient("pessimism", pessimism, q1)
    return 0.5 * (q1 + q2) - 0.5 * beta * (q1 - q2).abs()


def soft_target(
    reward: Tensor,
    mask: Tensor,
    next_q1: Tensor,
    next_q2: Tensor,
    next_log_prob: Tensor,
    *,
    temperature: float | Tensor,
    discount: float = 0.99,
    pessimism: float | Tensor = 1.0,
) -> Tensor:
    r"""Target of both critics, ``r + gamma * mask * (Q^beta - alpha * log pi)``.

    Parameters
    ----------
    reward, mask, next_q1, next_q2, next_log_prob : Tensor, one shape (...), floating
        `mask` is 0 only where the task really ended; a time limit keeps it at 1.
    temperature : float or Tensor broadcastable to them
        Weight of the entropy, in units of reward; at least 0.
    discount : float in [0, 1]
    pessimism : float or Tensor
        As in `pessimistic_value`.

    Returns
    -------
    Tensor, shape (...)
        Detached: no gradient flows into the target.

    Raises
    ------
    ValueError
        Shapes differ (a silent broadcast here is a classic bug), or `discount` outside [0, 1].

    Notes
    -----
    Source: eq-actor_critic-target.
    """
    parts = {"mask": mask, "next_q1": next_q1, "next_q2": next_q2, "next_log_prob": next_log_prob}
    floating("reward", reward)
    for name, value in parts.items():
        same_shape("reward", reward, name, floating(name, value))
    discount = probability("discount", discount, closed=True)
    alpha = _coefficient("temperature", temperature, reward)
    value = pessimistic_value(next_q1, next_q2, pessimism) - alpha * next_log_prob
    return (reward + discount * mask * value).detach()


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """Mean over the batch of both squared errors, without a factor 1/2.

    Parameters
    ----------
    q1, q2, target : Tensor, one shape (...), floating

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        Shapes differ or are empty.

    Notes
    -----
    Source: eq-actor_critic-losses.
    """
    return _squared_errors(*_batch(q1=q1, q2=q2, target=target)).mean()


def actor_loss(
    log_prob: Tensor,
    q1: Tensor,
    q2: Tensor,
    *,
    temperature: float | Tensor,
    pessimism: float | Tensor = 1.0,
) -> Tensor:
    """Mean of ``alpha * log pi - Q^beta`` over reparameterised actions.

    Parameters
    ----------
    log_prob, q1, q2 : Tensor, one shape (...), floating
        Of actions drawn from the policy; gradients flow through all three.
    temperature, pessimism : float or Tensor broadcastable to them

    Returns
    -------
    Tensor, shape ()

    Raises
    ------
    ValueError
        Shapes differ or are empty.

    Notes
    -----
    Source: eq-actor_critic-losses. The pessimism is that of the target.
    """
    log_prob, q1, q2 = _batch(log_prob=log_prob, q1=q1, q2=q2)
    alpha = _coefficient("temperature", temperature, log_prob)
    return (alpha * log_prob - pessimistic_value(q1, q2, pessimism)).mean()


def temperature_loss(log_temperature: float | Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """``exp(log_temperature) * mean(entropy - target)``: the temperature falls while entropy is ample.

    Parameters
    ----------
    log_temperature : float or Tensor, shape ()
    entropy : Tensor, shape (...), floating
        ``-log pi`` of drawn actions, in nats; no gradient flows into it.
    target_entropy : float
        In nats; here minus half the number of action dimensions.

    Returns
    -------
    Tensor, shape ()

    Notes
    -----
    Source: eq-actor_critic-losses.
    """
    (entropy,) = _batch(entropy=entropy)
    log_alpha = _scalar("log_temperature", log_temperature, entropy)
    return (log_alpha.exp() * (entropy.detach() - number("target_entropy", target_entropy))).mean()


def gpl_loss(pessimism: float | Tensor, q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    r"""Loss of a learned pessimism: it should rise while critics sit above their own targets.

    Parameters
    ----------
    pessimism : float or Tensor, shape ()
        The only argument that receives a gradient.
    q1, q2, target : Tensor, one shape (...), floating

    Returns
    -------
    Tensor, shape ()

    Notes
    -----
    Source: eq-actor_critic-gpl. The sign is derived here.
    """
    q1, q2, target = _batch(q1=q1, q2=q2, target=target)
    gap = (0.5 * (q1 + q2) - target).detach().mean()
    return -_scalar("pessimism", pessimism, q1) * gap


def squash_log_std(raw: Tensor, *, low: float = -10.0, high: float = 2.0) -> Tensor:
    """Map a network's output smoothly into ``(low, high)``.

    Parameters
    ----------
    raw : Tensor, shape (...), floating
    low, high : float, ``low < high``
        Range of the log standard deviation.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        ``low >= high``.
    """
    low, high = number("low", low), number("high", high)
    if low >= high:
        raise ValueError(f"low must be below high; got {low:g} and {high:g}")
    return low + 0.5 * (high - low) * (1 + torch.tanh(floating("raw", raw)))


def tanh_normal_log_prob(mean: Tensor, log_std: Tensor, pre_tanh: Tensor) -> Tensor:
    r"""Log density of ``tanh(u)``, with ``u`` normal with independent coordinates.

    Parameters
    ----------
    mean, log_std, pre_tanh : Tensor, one shape (..., d), floating
        Parameters of the normal and the value `u` before the squashing.

    Returns
    -------
    Tensor, shape (...)
        Summed over the last axis; in nats. Finite for any finite input.

    Raises
    ------
    ValueError
        Shapes differ, or there is no axis to sum.

    Notes
    -----
    Source: eq-actor_critic-density, in the form that neither rounds nor saturates.
    """
    mean, log_std, pre_tanh = _batch(mean=mean, log_std=log_std, pre_tanh=pre_tanh)
    if mean.ndim == 0:
        raise ValueError("mean must have an axis of action coordinates, shape (..., d); got a scalar")
    return _log_prob((pre_tanh - mean) * torch.exp(-log_std), log_std, pre_tanh)


def soft_update(target: Tensor, online: Tensor, tau: float) -> Tensor:
    """Target parameters moved a little towards the online ones.

    Parameters
    ----------
    target, online : Tensor, one shape (...), floating
    tau : float in [0, 1]
        Share of the way.

    Returns
    -------
    Tensor, shape (...)
        A new tensor.

    Raises
    ------
    ValueError
        Shapes differ, or `tau` outside [0, 1].
    """
    same_shape("target", floating("target", target), "online", floating("online", online))
    return torch.lerp(target, online, probability("tau", tau, closed=True))


def _squared_errors(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """The critic's loss before the mean; a stack takes the mean over each run's batch."""
    return (q1 - target) ** 2 + (q2 - target) ** 2


def _log_prob(noise: Tensor, log_std: Tensor, pre_tanh: Tensor) -> Tensor:
    """Log density from the standardised noise, which the sampler knows without dividing."""
    jacobian = 2 * (math.log(2) - pre_tanh + F.logsigmoid(2 * pre_tanh))  # -softplus(-2u) = logsigmoid(2u)
    return (-0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - jacobian).sum(-1)


def _batch(**values: Tensor) -> tuple[Tensor, ...]:
    """Floating tensors of one shape, none of them empty."""
    (first, reference), *rest = values.items()
    if floating(first, reference).numel() == 0:
        raise ValueError(f"{first} is empty, shape {tuple(reference.shape)}; expected at least one value")
    for name, value in rest:
        same_shape(first, reference, name, floating(name, value))
    return tuple(values.values())


def _coefficient(name: str, value: float | Tensor, like: Tensor) -> float | Tensor:
    """A number, or a tensor that broadcasts to `like` without enlarging it."""
    if not isinstance(value, Tensor):
        return number(name, value)
    try:
        shape = torch.broadcast_shapes(value.shape, like.shape)
    except RuntimeError:
        shape = None
    if shape != like.shape:
        raise ValueError(
            f"{name} must be a number or broadcast to {tuple(like.shape)}; got shape {tuple(value.shape)}"
        )
    return value.to(like)


def _scalar(name: str, value: float | Tensor, like: Tensor) -> Tensor:
    """One number as a tensor of shape (), with its gradient."""
    if not isinstance(value, Tensor):
        return like.new_tensor(number(name, value))
    if value.numel() != 1:
        raise ValueError(f"{name} must be one number; got shape {tuple(value.shape)}")
    return value.reshape(()).to(like)
