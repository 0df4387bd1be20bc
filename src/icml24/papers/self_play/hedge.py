r"""Hedge against itself: the theoretical form of self-play on a finite set of options.

One player holds log-weights z and meets the options with :math:`p = \operatorname{softmax}(z)`.
The gain of option i is its preference over the player's own mixture, :math:`g = P p`.
That is all: no second player, no reward model. Equations: eq-self_play-hedge,
eq-self_play-regret, eq-self_play-optimistic, eq-self_play-twoplayer.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.papers.self_play import _checks
from icml24.papers.self_play.preferences import validate_preference

__all__ = ["SelfPlayResult", "hedge_averages", "hedge_self_play", "hedge_two_player"]

OPTIMISTIC_STEP = 0.25


@dataclass(frozen=True)
class SelfPlayResult:
    """Course of `hedge_self_play` on n options over T steps.

    Attributes
    ----------
    iterates : Tensor, shape (T, n)
        The strategies played, p_1 (the start) to p_T.
    average : Tensor, shape (n,)
        Their mean, the strategy that carries the guarantee.
    regret : Tensor, shape (T,)
        Regret of the steps 1..t against the best fixed option.
    gap : Tensor, shape (T,)
        Duality gap of the mean of the first t iterates.
    """

    iterates: Tensor
    average: Tensor
    regret: Tensor
    gap: Tensor


def hedge_self_play(
    preference: Tensor,
    num_steps: int,
    *,
    step_size: float | None = None,
    init: Tensor | None = None,
    optimistic: bool = False,
) -> SelfPlayResult:
    r"""Exponential weights played against themselves.

    .. math:: p_{t+1} &= \operatorname{softmax}(z_t + [\text{optimistic}]\,\eta g_t), \\
       z_t &= \log p_1 + \eta \sum_{s \le t} g_s, \qquad g_t = P p_t

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.
    num_steps : int
        Number T >= 1 of strategies played, the start included.
    step_size : float, optional
        :math:`\eta > 0`. Default :math:`\sqrt{2\log n / T}`; 0.25 when `optimistic`.
    init : Tensor, shape (n,), floating, optional
        p_1, uniform by default. Options of probability zero keep it.
    optimistic : bool, default False
        Count the last gain twice, as a guess of the next one.

    Returns
    -------
    SelfPlayResult
        In the dtype and on the device of `preference`; computed in double precision.

    Raises
    ------
    TypeError, ValueError
        As `validate_preference`; ``num_steps < 1``; ``step_size <= 0`` (when n > 1); `init`
        of the wrong length, negative, or not summing to 1.

    Notes
    -----
    Source: eq-self_play-hedge and eq-self_play-optimistic. O(T n^2). Report `average`:
    in an intransitive game the last iterate keeps cycling.
    """
    P, start, eta = _prepare(preference, num_steps, step_size, init, "init", optimistic)
    iterates = P.new_empty(num_steps, len(P))
    rows = iterates.unbind(0)
    rows[0].copy_(start)
    z = start.log()
    for previous, current in itertools.pairwise(rows):
        step = eta * torch.mv(P, previous)
        z = z + step
        torch.softmax(z + step if optimistic else z, 0, out=current)
    gains = iterates @ P.T
    t = torch.arange(1, num_steps + 1, dtype=P.dtype, device=P.device)
    means = iterates.cumsum(0) / t[:, None]
    regret = gains.cumsum(0).max(1).values - (iterates * gains).sum(1).cumsum(0)
    gap = (means @ P.T).max(1).values - (means @ P).min(1).values
    dtype = preference.dtype
    return SelfPlayResult(iterates.to(dtype), means[-1].to(dtype), regret.to(dtype), gap.to(dtype))


def hedge_two_player(
    preference: Tensor,
    num_steps: int,
    *,
    step_size: float | None = None,
    init_row: Tensor | None = None,
    init_col: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Two Hedge players against each other, both moving at the same time.

    The row player gains :math:`P q_t`, the column player :math:`-P^\top p_t`.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.
    num_steps : int
        Number T >= 1 of strategies played, the starts included.
    step_size : float, optional
        As in `hedge_self_play`.
    init_row, init_col : Tensor, shape (n,), floating, optional
        Starts, uniform by default.

    Returns
    -------
    (Tensor, Tensor), shapes (T, n)
        Row and column iterates. From equal starts they are equal: the second player is
        superfluous.

    Raises
    ------
    TypeError, ValueError
        As `hedge_self_play`.
    """
    P, row, eta = _prepare(preference, num_steps, step_size, init_row, "init_row", False)
    _, col, _ = _prepare(preference, num_steps, step_size, init_col, "init_col", False)
    rows, cols = P.new_empty(num_steps, len(P)), P.new_empty(num_steps, len(P))
    rows[0], cols[0] = row, col
    z_row, z_col = row.log(), col.log()
    for t in range(1, num_steps):
        z_row = z_row + eta * (P @ cols[t - 1])
        z_col = z_col - eta * (P.T @ rows[t - 1])
        rows[t], cols[t] = torch.softmax(z_row, 0), torch.softmax(z_col, 0)
    return rows.to(preference.dtype), cols.to(preference.dtype)


def hedge_averages(
    preferences: Tensor, num_steps: int, *, step_size: float | None = None, optimistic: bool = False
) -> Tensor:
    r"""Average strategy of `hedge_self_play` from uniform starts, for many games at once.

    Parameters
    ----------
    preferences : Tensor, shape (G, n, n), floating
        One preference matrix a game; each as in `validate_preference`.
    num_steps : int
        Number T >= 1 of strategies played.
    step_size, optimistic
        As in `hedge_self_play`; the same for every game.

    Returns
    -------
    Tensor, shape (G, n)
        Same dtype and device. T batched products instead of T times G small ones.

    Raises
    ------
    TypeError, ValueError
        As `hedge_self_play`; `preferences` is no non-empty stack of square matrices.
    """
    _checks.floating("preferences", preferences)
    if preferences.ndim != 3 or 0 in preferences.shape or preferences.shape[1] != preferences.shape[2]:
        raise ValueError(f"preferences must have shape (games, n, n); got {tuple(preferences.shape)}")
    worst = (preferences + preferences.transpose(1, 2)).abs().amax(dim=(1, 2)).argmax()
    validate_preference(preferences[worst])
    validate_preference(preferences[preferences.abs().amax(dim=(1, 2)).argmax()])
    _, start, eta = _prepare(preferences[0], num_steps, step_size, None, "init", optimistic)
    P = _checks.working(preferences) * eta  # the step size once, not in every step
    p = start.expand(len(P), -1).unsqueeze(2).contiguous()
    z, total = p.log(), p.clone()
    for _ in range(num_steps - 1):
        step = torch.bmm(P, p)
        z = z + step
        p = torch.softmax(z + step if optimistic else z, 1)
        total += p
    return (total / num_steps).squeeze(2).to(preferences.dtype)


def _prepare(
    preference: Tensor,
    num_steps: int,
    step_size: float | None,
    init: Tensor | None,
    name: str,
    optimistic: bool,
) -> tuple[Tensor, Tensor, float]:
    """Check the arguments; return matrix and start in double precision and the step size."""
    P = validate_preference(preference)
    n = len(P)
    num_steps = _checks.whole("num_steps", num_steps, 1)
    start = torch.full_like(P[0], 1 / n) if init is None else _checks.distribution(name, init, n).to(P.device)
    if n == 1:
        eta = 1.0  # nothing to choose: any step leaves the point mass where it is
    elif step_size is not None:
        eta = _checks.positive("step_size", step_size)
    else:
        eta = OPTIMISTIC_STEP if optimistic else math.sqrt(2 * math.log(n) / num_steps)
    matrix = _checks.working(P)
    if init is None:
        start = matrix.new_full((n,), 1 / n)
    return matrix, start.detach().to(matrix), eta
