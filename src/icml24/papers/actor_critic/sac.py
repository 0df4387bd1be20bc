r"""Many soft actor-critics trained side by side in one set of stacked tensors.

Runs share nothing but the instructions that are executed for them: parameters, optimiser
states, noise and data have a leading axis of runs, every sum over it is a sum of losses that
do not interact, and each run draws from a generator of its own. So a stack computes what its
members would compute alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from icml24.common.checks import WrongType, number, positive, probability, whole
from icml24.common.random import generator as stream

from .agents import AgentSpec
from .group import Group

__all__ = ["Batch", "BatchedSAC", "SACConfig"]


@dataclass(frozen=True)
class SACConfig:
    """Settings that all runs of a stack share; the defaults are those of the paper's scale.

    Parameters
    ----------
    hidden, depth : int
        Width and number of hidden layers of actor and critics.
    batch_size : int
        Transitions a minibatch.
    lr : float
        Learning rate of actor, critics and temperature.
    discount : float in [0, 1]
    tau : float in [0, 1]
        Share of the way that targets move at every update.
    weight_decay : float
        Coefficient of decoupled decay, for agents that use it.
    init_temperature : float
        Weight of the entropy at the start.
    target_entropy : float, optional
        In nats; None takes minus half the number of action dimensions.
    gpl_lr : float
        Learning rate of the learned pessimism.
    redo_every, redo_tau
        Updates between recyclings, and the score up to which a unit is recycled.
    dropout : float in [0, 1)
        Rate of the extension ``"dropout"``.
    norm_affine : bool
        Learn a gain and a bias after each layer norm.
    regularise_actor : bool
        Apply the network family to the actor as well.
    resets : int
        Full resets in a run of `train`, at equal distances.
    learning_starts : int
        Random steps before the first update, in `train`; at most half of all steps are used.
    evaluate_every, evaluation_episodes : int
        Environment steps between evaluations, and episodes in each.
    capacity : int
        Transitions that a replay buffer holds.
    dtype : torch.dtype

    Raises
    ------
    ValueError
        A field out of range.
    """

    hidden: int = 256
    depth: int = 2
    batch_size: int = 256
    lr: float = 3e-4
    discount: float = 0.99
    tau: float = 0.005
    weight_decay: float = 1e-2
    init_temperature: float = 1.0
    target_entropy: float | None = None
    gpl_lr: float = 3e-4
    redo_every: int = 1000
    redo_tau: float = 0.1
    dropout: float = 0.01
    norm_affine: bool = True
    regularise_actor: bool = False
    resets: int = 2
    learning_starts: int = 500
    evaluate_every: int = 1000
    evaluation_episodes: int = 3
    capacity: int = 1_000_000
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("hidden", "depth", "batch_size", "redo_every", "evaluate_every", "evaluation_episodes"):
            whole(name, getattr(self, name), 1)
        for name in ("resets", "learning_starts"):
            whole(name, getattr(self, name))
        whole("capacity", self.capacity, 1)
        for name in ("lr", "init_temperature", "gpl_lr"):
            positive(name, getattr(self, name))
        for name in ("weight_decay", "redo_tau"):
            number(name, getattr(self, name), least=0.0)
        for name in ("discount", "tau", "dropout"):
            probability(name, getattr(self, name), closed=True)
        if self.target_entropy is not None:
            number("target_entropy", self.target_entropy)
        if self.dropout == 1:
            raise ValueError("dropout must lie in [0, 1); got 1")
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64; got {self.dtype}")


@dataclass
class Batch:
    """A minibatch for each of `n` runs.

    Attributes
    ----------
    obs, next_obs : Tensor, shape (n, B, o)
    action : Tensor, shape (n, B, d)
        In [-1, 1].
    reward, mask : Tensor, shape (n, B)
        `mask` is 0 only at true ends.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    mask: Tensor
    next_obs: Tensor

    def rows(self, index: Tensor) -> Batch:
        """The minibatches of some runs."""
        return Batch(*(getattr(self, field.name)[index] for field in fields(self)))


class BatchedSAC:
    r"""`n` independent runs of soft actor-critic, each with its own techniques.

    Parameters
    ----------
    obs_dim, action_dim : int
    specs : sequence of AgentSpec, length n
        Not empty; runs with CReLU, whose layers are wider, are stacked in a group of their own,
        behind one face.
    config : SACConfig
    generator : torch.Generator or sequence of n of them, optional
        A single one seeds a stream for each run, in order; a sequence gives each run its own. None
        uses a fixed seed.

    Raises
    ------
    ValueError
        No specs, dimensions below 1, or a wrong number of generators.

    Notes
    -----
    Source: eq-actor_critic-losses for the order of an update: critic, targets, actor, temperature.
    A run whose values exceed :math:`10^6` or are not finite is frozen and marked in `diverged`.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        specs: Sequence[AgentSpec],
        config: SACConfig,
        *,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
    ) -> None:
        self.obs_dim, self.action_dim = whole("obs_dim", obs_dim, 1), whole("action_dim", action_dim, 1)
        self.specs, self.config = tuple(specs), config
        if not self.specs:
            raise ValueError("specs is empty; expected at least one AgentSpec")
        if not all(isinstance(spec, AgentSpec) for spec in self.specs):
            raise WrongType("specs must hold AgentSpec instances, as in [AgentSpec(network='layer_norm')]")
        self.generators = _streams(generator, len(self.specs))
        kinds: dict[tuple[bool, ...], list[int]] = {}
        for i, spec in enumerate(self.specs):
            kinds.setdefault(Group.kind(spec), []).append(i)
        for rows in kinds.values():
            rows.sort(key=lambda i: Group.place(self.specs[i]))
        self._groups = [
            (
                torch.tensor(rows),
                self._group([self.specs[i] for i in rows], [self.generators[i] for i in rows]),
            )
            for rows in kinds.values()
        ]

    @property
    def pessimism(self) -> Tensor:
        """Level of pessimism in force, shape (n,)."""
        return self._gather([group.pessimism for _, group in self._groups])

    @property
    def temperature(self) -> Tensor:
        """Weight of the entropy, shape (n,)."""
        return self._gather([group.log_temperature.detach()[:, 0].exp() for _, group in self._groups])

    @property
    def diverged(self) -> Tensor:
        """Runs that were frozen, bool, shape (n,)."""
        return self._gather([~group.alive[:, 0] for _, group in self._groups])

    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        """One action for each run.

        Parameters
        ----------
        obs : Tensor, shape (n, o)
        deterministic : bool, default False
            The squashed mean instead of a draw.

        Returns
        -------
        Tensor, shape (n, d), in [-1, 1]
        """
        self._check("obs", obs, (len(self.specs), self.obs_dim))
        noise = None if deterministic else self._noise(1)
        return self._gather(
            [
                group.act(obs[rows].unsqueeze(1), None if noise is None else noise[rows, 0])[:, 0]
                for rows, group in self._groups
            ]
        )

    def update(self, batch: Batch, *, noise: Tensor | None = None) -> dict[str, Tensor]:
        """One gradient step of every part of every run.

        Parameters
        ----------
        batch : Batch
            Any number B of transitions, at least 1.
        noise : Tensor, shape (n, 2, B, d), optional
            Standard normal noise of the next and the current actions. None draws it from each
            run's generator.

        Returns
        -------
        dict of str to Tensor, shape (n,)
            ``critic_loss``, ``actor_loss``, ``mean_q``, ``entropy``, ``temperature``, ``pessimism``.

        Raises
        ------
        ValueError
            Wrong shapes, rewards or observations that are not finite, actions outside [-1, 1].
        """
        size = self._check_batch(batch)
        if noise is None:
            noise = self._noise(2, size)
        else:
            self._check("noise", noise, (len(self.specs), 2, size, self.action_dim))
        parts = [group.update(self._rows(batch, rows), noise[rows]) for rows, group in self._groups]
        return {name: self._gather([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def q_values(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Values of both critics, shape (n, B) each.

        Parameters
        ----------
        obs : Tensor, shape (n, B, o)
        action : Tensor, shape (n, B, d)
        """
        n = len(self.specs)
        size = obs.shape[1] if isinstance(obs, Tensor) and obs.ndim == 3 else 0
        self._check("obs", obs, (n, size, self.obs_dim))
        self._check("action", action, (n, size, self.action_dim))
        _check_actions(action)
        pairs = [group.values(obs[rows], action[rows]) for rows, group in self._groups]
        both = self._gather([torch.stack(pair, 1) for pair in pairs])
        return both[:, 0], both[:, 1]

    def reset(self, mask: Tensor) -> None:
        """Full reset of some runs: networks, targets, temperature, pessimism and all optimiser states.

        Parameters
        ----------
        mask : Tensor of bool, shape (n,)
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (len(self.specs),):
            raise ValueError(f"mask must be a bool tensor of shape ({len(self.specs)},), one entry a run")
        for rows, group in self._groups:
            chosen = mask[rows].nonzero()[:, 0]
            if len(chosen):
                group.reset(chosen)

    def finish_episode(self, returns: Tensor, mask: Tensor | None = None) -> None:
        """Tell the runs their episode's return, so that bandits choose the next pessimism.

        Parameters
        ----------
        returns : Tensor, shape (n,)
        mask : Tensor of bool, shape (n,), optional
            Runs whose episode ended; all by default.
        """
        over = torch.ones(len(self.specs), dtype=torch.bool) if mask is None else mask
        for rows, group in self._groups:
            for k, i in enumerate(rows.tolist()):
                if over[i]:
                    group.finish_episode(k, float(returns[i]))

    def diagnose(self, train: Batch, held_out: Batch | None = None) -> dict[str, Tensor]:
        """Health of each run's first critic, on data given; changes nothing, no generator included.

        Parameters
        ----------
        train : Batch
            Transitions that the runs trained on.
        held_out : Batch, optional
            Transitions that they did not.

        Returns
        -------
        dict of str to Tensor, shape (n,)
            ``mean_q``, ``gradient_norm``, ``parameter_norm``, ``dormant_ratio``, ``effective_rank``
            and, with `held_out`, ``overfitting``.
        """
        sizes = [self._check_batch(part) for part in (train, held_out) if part is not None]
        g = stream(0, "actor_critic", "diagnose")
        noise = [torch.randn(s, self.action_dim, generator=g, dtype=self.config.dtype) for s in sizes]
        parts = []
        for rows, group in self._groups:
            held = None if held_out is None else self._rows(held_out, rows)
            parts.append(group.diagnose(self._rows(train, rows), held, noise))
        return {name: self._gather([part[name] for part in parts]) for name in parts[0]}

    def _group(self, specs: Sequence[AgentSpec], generators: Sequence[torch.Generator]) -> Group:
        return Group(self.obs_dim, self.action_dim, specs, self.config, generators)

    def _gather(self, parts: Sequence[Tensor]) -> Tensor:
        """Values of the groups in the order of the runs."""
        out = parts[0].new_empty(len(self.specs), *parts[0].shape[1:])
        for (rows, _), part in zip(self._groups, parts, strict=True):
            out[rows] = part
        return out

    def _rows(self, batch: Batch, rows: Tensor) -> Batch:
        return batch.rows(rows)

    def _noise(self, *shape: int) -> Tensor:
        shape = (*shape, self.action_dim)
        return torch.stack(
            [torch.randn(shape, generator=g, dtype=self.config.dtype) for g in self.generators]
        )

    def _check(self, name: str, value: Tensor, shape: tuple[int, ...]) -> None:
        if not isinstance(value, Tensor) or value.dtype != self.config.dtype:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise WrongType(f"{name} must be a tensor of dtype {self.config.dtype}; got {kind}: convert it")
        if value.shape != shape or value.numel() == 0:
            raise ValueError(f"{name} must have shape {shape}, not empty; got {tuple(value.shape)}")

    def _check_batch(self, batch: Batch) -> int:
        n = len(self.specs)
        size = batch.reward.shape[-1] if isinstance(batch.reward, Tensor) and batch.reward.ndim == 2 else 0
        for name in ("reward", "mask"):
            self._check(name, getattr(batch, name), (n, size))
        for name, width in {"obs": self.obs_dim, "action": self.action_dim, "next_obs": self.obs_dim}.items():
            self._check(name, getattr(batch, name), (n, size, width))
        for field in fields(batch):
            if not bool(torch.isfinite(getattr(batch, field.name).sum())):
                raise ValueError(f"{field.name} must be finite; drop transitions with NaN or infinite values")
        _check_actions(batch.action)
        return size


def _check_actions(action: Tensor) -> None:
    if float(action.abs().max()) > 1 + 1e-6:
        raise ValueError("action must lie in [-1, 1]; rescale actions to that box before using them")


def _streams(source: torch.Generator | Sequence[torch.Generator] | None, n: int) -> list[torch.Generator]:
    """A generator for each run."""
    if source is None:
        source = stream(0, "actor_critic", "runs")
    if isinstance(source, torch.Generator):
        return [
            torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=source))) for _ in range(n)
        ]
    if len(source) != n:
        raise ValueError(f"expected one generator for each of {n} runs; got {len(source)}")
    return list(source)
