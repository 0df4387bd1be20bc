r"""A replay buffer for each run of a stack, as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icml24.common.checks import whole

from .sac import Batch

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """The latest transitions of `runs` runs, drawn from uniformly.

    Parameters
    ----------
    capacity : int
        Transitions a run; the oldest give way.
    obs_dim, action_dim : int
    runs : int, default 1
    dtype : torch.dtype

    Notes
    -----
    A transition is one row ``[obs, action, next_obs, reward, mask]``, so a draw is one indexing.
    """

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        action_dim: int,
        *,
        runs: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.widths = [whole("obs_dim", obs_dim, 1), whole("action_dim", action_dim, 1), obs_dim, 1, 1]
        self.runs, self.capacity = whole("runs", runs, 1), whole("capacity", capacity, 1)
        self.rows = torch.empty(self.runs, self.capacity, sum(self.widths), dtype=dtype)
        self.stored = 0
        self._next = 0

    @classmethod
    def of(cls, batch: Batch) -> ReplayBuffer:
        """A full buffer of given transitions, (runs, transitions, ...)."""
        runs, count, width = batch.obs.shape
        out = cls(count, width, batch.action.shape[-1], runs=runs, dtype=batch.obs.dtype)
        columns = [
            batch.obs,
            batch.action,
            batch.next_obs,
            batch.reward.unsqueeze(-1),
            batch.mask.unsqueeze(-1),
        ]
        out.rows = torch.cat(columns, -1)
        out.stored = count
        return out

    def __len__(self) -> int:
        """Transitions stored, the same for every run."""
        return self.stored

    def add(self, obs: Tensor, action: Tensor, reward: Tensor, mask: Tensor, next_obs: Tensor) -> None:
        """Store one transition of every run: shapes (runs, o), (runs, d), (runs,), (runs,), (runs, o)."""
        shapes = [(self.runs, width) for width in self.widths[:3]] + [(self.runs,)] * 2
        given = [obs, action, next_obs, reward, mask]
        for name, value, shape in zip(
            ("obs", "action", "next_obs", "reward", "mask"), given, shapes, strict=True
        ):
            if value.shape != shape:
                raise ValueError(f"{name} must have shape {shape}; got {tuple(value.shape)}")
        columns = [obs, action, next_obs, reward.unsqueeze(1), mask.unsqueeze(1)]
        self.rows[:, self._next] = torch.cat(columns, 1)
        self._next = (self._next + 1) % self.capacity
        self.stored = min(self.stored + 1, self.capacity)

    def sample(self, size: int, generators: Sequence[torch.Generator], *, count: int = 1) -> list[Batch]:
        """`count` minibatches of `size` transitions a run, drawn with replacement, each run's by its own generator.

        Raises
        ------
        ValueError
            Nothing is stored, or a wrong number of generators.
        """
        whole("size", size, 1)
        whole("count", count, 1)
        if self.stored == 0:
            raise ValueError("the buffer is empty: add transitions before sampling")
        if len(generators) != self.runs:
            raise ValueError(f"expected one generator for each of {self.runs} runs; got {len(generators)}")
        picks = torch.stack([torch.randint(self.stored, (count * size,), generator=g) for g in generators])
        flat = picks + self.capacity * torch.arange(self.runs).unsqueeze(1)
        drawn = self.rows.view(-1, self.rows.shape[-1])[flat.flatten()]
        drawn = drawn.view(self.runs, count, size, -1)
        return [self._batch(drawn[:, k]) for k in range(count)]

    def everything(self) -> Batch:
        """All stored transitions, oldest first only while the buffer has not been filled."""
        return self._batch(self.rows[:, : self.stored])

    def _batch(self, rows: Tensor) -> Batch:
        obs, action, next_obs, reward, mask = rows.split(self.widths, -1)
        return Batch(obs, action, reward[..., 0], mask[..., 0], next_obs)
