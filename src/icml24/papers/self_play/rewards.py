r"""From comparisons to a reward that any reinforcement learner can use.

A trajectory is paid its win rate against other trajectories of the same policy
(eq-self_play-winrate), spread over its steps (eq-self_play-spread).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from icml24.papers.self_play import _checks

__all__ = ["TrajectoryQueue", "per_step_reward", "win_rate_rewards"]


def win_rate_rewards(preference: Tensor, *, exclude_self: bool = True) -> Tensor:
    r"""Mean preference of each trajectory over its opponents.

    .. math:: r_i = \frac{1}{B-1} \sum_{j \ne i} P(\xi_i, \xi_j)
       \quad\text{or, against a queue,}\quad r_i = \frac1Q \sum_j P(\xi_i, \xi'_j)

    Parameters
    ----------
    preference : Tensor, shape (B, B) or (A, Q), floating
        Preferences or sampled labels; row i belongs to trajectory i.
    exclude_self : bool, default True
        True: a batch against itself; the diagonal is left out (with sampled labels it would
        be a coin flip). False: every column counts.

    Returns
    -------
    Tensor, shape (B,) or (A,)
        In [-1, 1]. For antisymmetric batches they sum to zero (eq-self_play-zerosum).

    Raises
    ------
    TypeError
        Not floating point.
    ValueError
        Not a matrix; with `exclude_self`: not square or fewer than two trajectories;
        without: the queue is empty. Non-finite entries that count.
    """
    P = _checks.floating("preference", preference)
    if P.ndim != 2:
        raise ValueError(f"preference must be a matrix; got shape {tuple(P.shape)}")
    rows, columns = P.shape
    if exclude_self:
        if rows != columns:
            raise ValueError(f"a batch against itself needs a square preference; got {rows} x {columns}")
        if rows < 2:
            raise ValueError(f"a win rate within a batch needs at least two trajectories; got {rows}")
        P = P.masked_fill(torch.eye(rows, dtype=torch.bool, device=P.device), 0)
    elif columns == 0:
        raise ValueError("the queue is empty: push trajectories before asking for win rates against it")
    if not torch.isfinite(P).all():
        raise ValueError("preference must be finite; got NaN or infinite entries")
    return P.sum(1) / (columns - 1 if exclude_self else columns)


def per_step_reward(win_rate: Tensor, horizon: int) -> Tensor:
    r"""Spread a trajectory's win rate evenly over its steps, :math:`r_h = r(\xi)/H`.

    Parameters
    ----------
    win_rate : Tensor, shape (B,), floating
        One number a trajectory.
    horizon : int
        Number of steps H >= 1.

    Returns
    -------
    Tensor, shape (B, H)
        Each row sums to its win rate.

    Raises
    ------
    TypeError, ValueError
        `win_rate` not a floating point vector; ``horizon < 1``.
    """
    r = _checks.floating("win_rate", win_rate)
    if r.ndim != 1:
        raise ValueError(f"win_rate must have shape (trajectories,); got {tuple(r.shape)}")
    horizon = _checks.whole("horizon", horizon, 1)
    return (r / horizon)[:, None].repeat(1, horizon)


class TrajectoryQueue:
    """First-in, first-out store of the last trajectories.

    Parameters
    ----------
    maxlen : int
        Largest number kept, at least 1; a push beyond it drops the oldest.
    """

    def __init__(self, maxlen: int) -> None:
        self._items: deque[Tensor] = deque(maxlen=_checks.whole("maxlen", maxlen, 1))

    def push(self, items: Iterable[Tensor]) -> None:
        """Append copies of `items` in order; a tensor of shape (k, ...) counts as k items.

        Parameters
        ----------
        items : iterable of Tensor
            All of one shape, which is also that of the items already stored.

        Raises
        ------
        TypeError, ValueError
            An item is no tensor or has another shape; nothing is stored then.
        """
        new = list(items)
        for item in new:
            if not isinstance(item, Tensor):
                raise TypeError(f"the queue stores tensors; got {type(item).__name__}")
        shapes = {tuple(item.shape) for item in (*self._items, *new)}
        if len(shapes) > 1:
            raise ValueError(f"all trajectories of a queue must have one shape; got {sorted(shapes)}")
        self._items.extend(item.detach().clone() for item in new)

    def __len__(self) -> int:
        return len(self._items)

    def stack(self) -> Tensor:
        """Stored trajectories, oldest first.

        Returns
        -------
        Tensor, shape (len(self), ...)

        Raises
        ------
        ValueError
            The queue is empty.
        """
        if not self._items:
            raise ValueError("the queue is empty: push trajectories before stacking them")
        return torch.stack(tuple(self._items))
