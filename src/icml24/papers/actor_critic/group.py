r"""Runs of one architecture: the arithmetic of soft actor-critic on stacked tensors.

`sac.BatchedSAC` is the face of this module; it groups runs by architecture and checks what it
is given. Inside a group, techniques are data: pessimism is a vector, decay a factor, and resets
and recycling act on rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .agents import AgentSpec
from .bandit import OptimismBandit
from .losses import _log_prob, _squared_errors, squash_log_std
from .metrics import overfitting_ratio
from .plasticity import dormant_ratio, effective_rank
from .stacks import Adam, Stack

if TYPE_CHECKING:
    from .sac import Batch, SACConfig

__all__ = ["Group"]

#: Values beyond this are taken as divergence: the run is frozen before it overflows.
LARGEST_VALUE = 1e6
NORMS = ("layer_norm", "dropout", "spectral_norm")
INITIAL_PESSIMISM = {"none": 0.0, "cdq": 1.0, "gpl": 1.0}


class Group:
    """Runs that differ in data, noise and techniques, but not in architecture (see `sac.BatchedSAC`)."""

    @staticmethod
    def kind(spec: AgentSpec) -> tuple[bool, ...]:
        """What must be equal within a group: CReLU and dropout, which change shapes and noise."""
        return spec.plasticity == "crelu", spec.network == "dropout"

    @staticmethod
    def place(spec: AgentSpec) -> int:
        """Rank within a group: runs with layer norm, and those with spectral norm, stand together."""
        return NORMS.index(spec.network) if spec.network in NORMS else -1

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        specs: Sequence[AgentSpec],
        config: SACConfig,
        generators: Sequence[torch.Generator],
    ) -> None:
        self.specs, self.config, self.generators = list(specs), config, list(generators)
        n = len(self.specs)
        doubled, self.dropped = self.kind(specs[0])
        inner = [config.hidden] * config.depth
        shared = {"doubled": doubled, "affine": config.norm_affine, "dtype": config.dtype}
        normed = [spec.network in ("layer_norm", "dropout") for spec in specs]
        spectral = [spec.network == "spectral_norm" for spec in specs]
        general = {"normed": normed, "spectral": spectral}
        self.actor = Stack(
            [obs_dim, *inner, 2 * action_dim],
            self.generators,
            **shared,
            **({name: _span(flags, 1) for name, flags in general.items()} if config.regularise_actor else {}),
        )
        twice = [g for g in self.generators for _ in range(2)]
        self.critic = Stack(
            [obs_dim + action_dim, *inner, 1],
            twice,
            **shared,
            **{name: _span(flags, 2) for name, flags in general.items()},
        )
        self.target = self.critic.flat.detach().clone()
        entropy = config.target_entropy
        self.target_entropy = -action_dim / 2 if entropy is None else entropy
        self.initial_log_temperature = torch.tensor(config.init_temperature).log().item()
        self.log_temperature = torch.full((n, 1), self.initial_log_temperature, dtype=config.dtype)
        self.alive = torch.ones(n, 1, dtype=torch.bool)
        self.bandits = {k: OptimismBandit() for k, spec in enumerate(specs) if spec.critic == "top"}
        self.last_return: dict[int, float] = {}
        self.pessimism = torch.tensor([self._initial_pessimism(k) for k in range(n)], dtype=config.dtype)
        self.learned = torch.tensor([spec.critic == "gpl" for spec in specs])
        self.recycled = torch.tensor([spec.plasticity == "redo" for spec in specs]).nonzero()[:, 0]
        self.factors = self._factors()
        self.optimisers = {
            "actor": Adam(self.actor.flat, config.lr),
            "critic": Adam(self.critic.flat, config.lr),
            "temperature": Adam(self.log_temperature, config.lr, beta1=0.5),
            "pessimism": Adam(self.pessimism.unsqueeze(1), config.gpl_lr),
        }
        self.updates = 0

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor | None) -> Tensor:
        """Actions (n, B, d) at obs (n, B, o); without noise the squashed means."""
        if noise is None:
            return torch.tanh(self.actor(self.actor.flat, obs).chunk(2, -1)[0])
        return self._sample(obs, noise.unsqueeze(1) if noise.ndim == 2 else noise)[0]

    def values(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Both online critics, (n, B) each."""
        return self._critics(self.critic.flat, obs, action)

    def update(self, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
        """One update on a batch, with noise (n, 2, B, d)."""
        config, alive = self.config, None if bool(self.alive.all()) else self.alive
        target = self._targets(batch, noise[:, 0], iterate=True)
        q1, q2 = self._critics(self.critic.flat, batch.obs, batch.action, iterate=True)
        losses = _squared_errors(q1, q2, target).mean(-1)
        (gradient,) = torch.autograd.grad(losses.sum(), self.critic.flat)
        pairs = None if alive is None else alive.repeat_interleave(2, 0)
        self.optimisers["critic"].step(
            self.critic.flat, gradient, alive=pairs, factor=self.factors.get("critic")
        )
        q1, q2 = q1.detach(), q2.detach()
        if bool(self.learned.any()):
            gap = (0.5 * (q1 + q2) - target).mean(-1, keepdim=True)  # minus the gradient of `gpl_loss`
            active = self.learned.unsqueeze(1) & self.alive
            self.optimisers["pessimism"].step(self.pessimism.unsqueeze(1), -gap, alive=active)
        self.target.lerp_(self.critic.flat.detach(), config.tau)

        temperature = self.log_temperature.exp()
        action, log_prob = self._sample(batch.obs, noise[:, 1], iterate=True)
        value = self._combine(*self._critics(self.critic.flat.detach(), batch.obs, action))
        actor_losses = (temperature * log_prob - value).mean(-1)
        (gradient,) = torch.autograd.grad(actor_losses.sum(), self.actor.flat)
        self.optimisers["actor"].step(
            self.actor.flat, gradient, alive=alive, factor=self.factors.get("actor")
        )
        entropy = -log_prob.detach().mean(-1, keepdim=True)
        slope = temperature * (entropy - self.target_entropy)  # the gradient of `temperature_loss`
        self.optimisers["temperature"].step(self.log_temperature, slope, alive=alive)

        self.updates += 1
        if len(self.recycled) and self.updates % config.redo_every == 0:
            self._recycle(batch)
        size = torch.maximum(q1.abs(), q2.abs()).amax(-1, keepdim=True)
        self.alive &= size <= LARGEST_VALUE  # also false for NaN
        return {
            "critic_loss": losses.detach(),
            "actor_loss": actor_losses.detach(),
            "mean_q": q1.mean(-1),
            "entropy": entropy[:, 0],
            "temperature": temperature[:, 0],
            "pessimism": self.pessimism.clone(),
        }

    def reset(self, rows: Tensor) -> None:
        """Start some runs afresh; bandits keep what they know, replay buffers are the caller's."""
        pairs = _pairs(rows)
        self.actor.reset(rows)
        self.critic.reset(pairs)
        self.target[pairs] = self.critic.flat.detach()[pairs]
        self.log_temperature[rows] = self.initial_log_temperature
        learned = rows[self.learned[rows]]
        self.pessimism[learned] = INITIAL_PESSIMISM["gpl"]
        self.alive[rows] = True
        for name, optimiser in self.optimisers.items():
            optimiser.reset(pairs if name == "critic" else rows)

    def finish_episode(self, k: int, total: float) -> None:
        """Feed the gain in return to run `k`'s bandit and let it choose again."""
        if k not in self.bandits:
            return
        bandit = self.bandits[k]
        if k in self.last_return:
            bandit.update(total - self.last_return[k])
        self.last_return[k] = total
        self.pessimism[k] = bandit.select(generator=self.generators[k])

    def diagnose(self, train: Batch, held_out: Batch | None, noise: Sequence[Tensor]) -> dict[str, Tensor]:
        """Diagnoses of the first critics (see `sac.BatchedSAC.diagnose`)."""
        n, size = train.reward.shape
        kept: list[Tensor] = []
        errors = self._errors(train, noise[0], keep=kept)
        (gradient,) = torch.autograd.grad(errors.square().mean(-1).sum(), self.critic.flat)
        first = [layer.detach().view(n, 2, size, -1)[:, 0] for layer in kept]
        norms = {
            "gradient_norm": gradient[::2].norm(dim=1),
            "parameter_norm": self.critic.flat[::2].norm(dim=1),
        }
        with torch.no_grad():
            mean_q = self.values(train.obs, train.action)[0].mean(-1)
            out = {"mean_q": mean_q, **{name: value.detach() for name, value in norms.items()}}
            ratios = [dormant_ratio([layer[k] for layer in first]) for k in range(n)]
            ranks = [
                effective_rank(first[-1][k]) if bool(torch.isfinite(first[-1][k]).all()) else 0
                for k in range(n)
            ]
            out |= {"dormant_ratio": mean_q.new_tensor(ratios), "effective_rank": mean_q.new_tensor(ranks)}
            if held_out is not None:
                unseen = self._errors(held_out, noise[1])
                out["overfitting"] = torch.stack(
                    [overfitting_ratio(u, e) for u, e in zip(unseen, errors.detach(), strict=True)]
                )
        return out

    def _targets(self, batch: Batch, noise: Tensor, *, iterate: bool = False) -> Tensor:
        """Targets (n, B), with fresh next actions."""
        with torch.no_grad():
            action, log_prob = self._sample(batch.next_obs, noise)
            masks = self._dropout(len(batch.reward[0])) if iterate and self.dropped else None
            pair = self._critics(self.target, batch.next_obs, action, dropped=masks)
            value = self._combine(*pair) - self.log_temperature.exp() * log_prob
            return batch.reward + self.config.discount * batch.mask * value

    def _critics(
        self,
        flat: Tensor,
        obs: Tensor,
        action: Tensor,
        *,
        iterate: bool = False,
        keep: list[Tensor] | None = None,
        dropped: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Both critics of every run at once, (n, B) each."""
        n, size, _ = obs.shape
        x = torch.cat([obs, action], -1).unsqueeze(1).expand(n, 2, size, -1).reshape(2 * n, size, -1)
        if iterate and self.dropped:
            dropped = self._dropout(size)
        q = self.critic(flat, x, iterate=iterate, keep=keep, dropped=dropped).view(n, 2, size)
        return q[:, 0], q[:, 1]

    def _combine(self, q1: Tensor, q2: Tensor) -> Tensor:
        """`losses.pessimistic_value` with each run's own pessimism."""
        beta = self.pessimism.unsqueeze(1)
        return 0.5 * (q1 + q2) - 0.5 * beta * (q1 - q2).abs()

    def _sample(self, obs: Tensor, noise: Tensor, *, iterate: bool = False) -> tuple[Tensor, Tensor]:
        """Reparameterised actions (n, B, d) and their log densities (n, B)."""
        mean, raw = self.actor(self.actor.flat, obs, iterate=iterate).chunk(2, -1)
        log_std = squash_log_std(raw)
        pre_tanh = mean + log_std.exp() * noise
        return torch.tanh(pre_tanh), _log_prob(noise, log_std, pre_tanh)

    def _errors(self, batch: Batch, noise: Tensor, keep: list[Tensor] | None = None) -> Tensor:
        """Temporal-difference errors of the first critic, (n, B), with one noise for all runs."""
        target = self._targets(batch, noise.expand(len(batch.reward), *noise.shape))
        return self._critics(self.critic.flat, batch.obs, batch.action, keep=keep)[0] - target

    def _recycle(self, batch: Batch) -> None:
        rows = self.recycled[self.alive[self.recycled, 0]]
        pairs = _pairs(rows)
        if len(rows) == 0:
            return
        activations: dict[str, list[Tensor]] = {"critic": [], "actor": []}
        with torch.no_grad():
            self._critics(self.critic.flat, batch.obs, batch.action, keep=activations["critic"])
            self.actor(self.actor.flat, batch.obs, keep=activations["actor"])
        for name, stack, index, copies in (
            ("critic", self.critic, pairs, (self.target,)),
            ("actor", self.actor, rows, ()),
        ):
            adam = self.optimisers[name]
            kept = [layer[index] for layer in activations[name]]
            stack.recycle(index, kept, self.config.redo_tau, *copies, moments=(adam.first, adam.second))

    def _dropout(self, size: int) -> list[Tensor]:
        """Scaled masks (2n, B, h) for each hidden layer, from each run's generator."""
        keep, shape = 1 - self.config.dropout, (self.config.depth, 2, size, self.config.hidden)
        draws = torch.stack(
            [torch.rand(shape, generator=g, dtype=self.config.dtype) for g in self.generators]
        )
        masks = (draws < keep).to(self.config.dtype) / keep
        return [masks[:, k].flatten(0, 1) for k in range(self.config.depth)]

    def _factors(self) -> dict[str, Tensor]:
        """Decay factors of the stacks that some run decays."""
        decayed = torch.tensor(
            [float(spec.network == "weight_decay") for spec in self.specs], dtype=torch.float64
        )
        if not bool(decayed.any()):
            return {}
        shrink = decayed * (self.config.lr * self.config.weight_decay)
        factors = {"critic": self.critic.weight_factor(shrink.repeat_interleave(2))}
        if self.config.regularise_actor:
            factors["actor"] = self.actor.weight_factor(shrink)
        return factors

    def _initial_pessimism(self, k: int) -> float:
        spec = self.specs[k]
        return self.bandits[k].arms[0] if k in self.bandits else INITIAL_PESSIMISM[spec.critic]


def _span(flags: Sequence[bool], copies: int) -> range:
    """Rows of a stack, `copies` a run, of the runs with a flag; these stand together."""
    start = flags.index(True) if any(flags) else 0
    return range(copies * start, copies * (start + sum(flags)))


def _pairs(rows: Tensor) -> Tensor:
    """Rows of the critics' stack that belong to some runs: 2i and 2i + 1."""
    return (2 * rows.unsqueeze(1) + torch.arange(2)).flatten()
