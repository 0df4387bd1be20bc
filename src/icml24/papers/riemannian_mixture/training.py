r"""Training loops: the same optimiser, steps and networks for the mixture and both baselines.

One step of the mixture: ends, times, two-way simulation, loss, clipped Adam step, moving
average of the weights. Only the loss differs between methods, so that a comparison at equal
steps compares methods and nothing else.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from icml24.common.random import generator as stream
from icml24.common.schedules import warmup_decay

from .baselines import rfm_loss, rfm_velocity, rsgm_loss, rsgm_velocity
from .bridges import two_way_sample
from .likelihoods import pf_ode_drift
from .losses import bridge_matching_loss, draw_times
from .manifolds import Manifold
from .networks import DriftMLP
from .schedules import LinearSchedule

__all__ = ["Trained", "Training", "fit", "train_mixture", "train_rfm", "train_rsgm"]

Draw = Callable[[int, torch.Generator], Tensor]
RSGM_SCHEDULE = LinearSchedule(0.001, 6.0)  # the baseline's own


@dataclass(frozen=True)
class Training:
    r"""Sizes and options of one training run.

    Attributes
    ----------
    steps, batch : int
        Optimiser steps and points a step.
    hidden, layers, act
        Network (see `DriftMLP`).
    lr : float
        Peak learning rate of Adam, after `warmup` steps; then a cosine to zero.
    clip : float
        Largest gradient norm, for each network separately.
    ema : float
        Decay of the moving average that is evaluated.
    schedule : LinearSchedule
    n_sim : int
        Simulation steps inside a training step (mixture), or of the noising walk (RSGM).
    weighting, eps
        As in `bridge_matching_loss`.
    kind, weight : str
        Bridge and, on a mesh, the spectral weight.
    """

    steps: int = 800
    batch: int = 512
    hidden: int = 128
    layers: int = 3
    act: str = "swish"
    lr: float = 2e-3
    warmup: int = 100
    clip: float = 1.0
    ema: float = 0.995
    schedule: LinearSchedule = field(default_factory=lambda: LinearSchedule(0.1, 0.001))
    n_sim: int = 15
    weighting: str = "inverse"
    eps: float = 1e-3
    kind: str = "log"
    weight: str = "biharmonic"


@dataclass
class Trained:
    r"""Result of a run: averaged networks, the loss curve, and CPU seconds of the process.

    `velocity` flows from data to prior for `flow_log_likelihood` over `span`; `snapshots` holds
    the velocities at the steps asked for.
    """

    method: str
    models: tuple[DriftMLP, ...]
    velocity: Callable[[Tensor, Tensor], Tensor]
    span: tuple[float, float]
    losses: list[float]
    seconds: float
    snapshots: dict[int, Callable[[Tensor, Tensor], Tensor]] = field(default_factory=dict)


def fit(
    models: Sequence[nn.Module],
    loss: Callable[[torch.Generator], Tensor],
    config: Training,
    generator: torch.Generator,
    keep: Sequence[int] = (),
) -> tuple[list[nn.Module], list[float], float, dict[int, tuple[nn.Module, ...]]]:
    r"""Minimise a stochastic loss for a fixed number of steps.

    Parameters
    ----------
    models : sequence of Module
        Trained together; gradients are clipped for each by itself.
    loss : callable
        Takes the generator and returns a scalar with a graph.
    config : Training
    generator : torch.Generator
        The only source of randomness.
    keep : sequence of int
        Steps after which a copy of the averaged models is kept.

    Returns
    -------
    (averaged models, losses by step, CPU seconds, copies by step)
    """
    averaged = [copy.deepcopy(model).eval().requires_grad_(False) for model in models]
    weights = [p for model in models for p in model.parameters()]
    targets = [p for model in averaged for p in model.parameters()]
    optimizer = torch.optim.Adam(weights, lr=config.lr, betas=(0.9, 0.999), foreach=True)
    losses, kept = [], {}
    start = time.process_time()  # not the clock: other work on the machine is none of ours
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warmup_decay(step, config.steps, warmup=config.warmup, floor=0.0)
        value = loss(generator)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        for model in models:
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        with torch.no_grad():
            decay = min(config.ema, (1 + step) / (10 + step))  # the first weights are soon forgotten
            torch._foreach_lerp_(targets, weights, 1 - decay)
        losses.append(float(value.detach()))
        if step + 1 in keep:
            kept[step + 1] = tuple(copy.deepcopy(averaged))
    return averaged, losses, time.process_time() - start, kept


def train_mixture(
    manifold: Manifold,
    data: Draw,
    prior: Draw,
    config: Training,
    seed: int,
    keep: Sequence[int] = (),
) -> Trained:
    """Train the two drifts of the mixture by two-way bridge matching (Algorithm 1 of the page)."""
    models = _networks(manifold, config, seed, ("forward", "backward"))
    schedule = config.schedule
    kw = {} if config.kind == "log" else {"weight": config.weight}

    def loss(g: torch.Generator) -> Tensor:
        x1 = data(config.batch, g)
        x0 = prior(config.batch, g)
        t = draw_times(
            schedule, config.batch, weighting=config.weighting, eps=config.eps, generator=g, dtype=x0.dtype
        )
        xt = two_way_sample(
            manifold, x0, x1, t, schedule, n_steps=config.n_sim, generator=g, kind=config.kind, **kw
        )
        return bridge_matching_loss(
            *models, manifold, schedule, x0, x1, t, xt,
            weighting=config.weighting, eps=config.eps, kind=config.kind, **kw,
        )[0]  # fmt: skip

    averaged, losses, seconds, kept = fit(models, loss, config, stream(seed, "mixture"), keep)
    span = (0.0, schedule.T - config.eps)
    flows = {step: pf_ode_drift(*nets, schedule.T) for step, nets in kept.items()}
    return Trained(
        "mixture", tuple(averaged), pf_ode_drift(*averaged, schedule.T), span, losses, seconds, flows
    )


def train_rfm(
    manifold: Manifold,
    data: Draw,
    prior: Draw,
    config: Training,
    seed: int,
    keep: Sequence[int] = (),
) -> Trained:
    """Train Riemannian flow matching: one network, no simulation."""
    models = _networks(manifold, config, seed, ("rfm",))

    def loss(g: torch.Generator) -> Tensor:
        x1, x0 = data(config.batch, g), prior(config.batch, g)
        t = config.eps + (1 - 2 * config.eps) * torch.rand(config.batch, generator=g, dtype=x0.dtype)
        return rfm_loss(models[0], manifold, x0, x1, t)

    averaged, losses, seconds, kept = fit(models, loss, config, stream(seed, "rfm loss"), keep)
    flows = {step: rfm_velocity(*nets) for step, nets in kept.items()}
    return Trained(
        "RFM", tuple(averaged), rfm_velocity(averaged[0]), (config.eps, 1.0), losses, seconds, flows
    )


def train_rsgm(
    manifold: Manifold,
    data: Draw,
    config: Training,
    seed: int,
    keep: Sequence[int] = (),
) -> Trained:
    """Train the score-based baseline: Brownian walks from the data, heat-kernel scores."""
    models = _networks(manifold, config, seed, ("rsgm",))

    def loss(g: torch.Generator) -> Tensor:
        x1 = data(config.batch, g)
        t = config.eps + (1 - config.eps) * torch.rand(config.batch, generator=g, dtype=x1.dtype)
        return rsgm_loss(models[0], manifold, RSGM_SCHEDULE, x1, t, n_steps=config.n_sim, generator=g)

    averaged, losses, seconds, kept = fit(models, loss, config, stream(seed, "rsgm loss"), keep)
    velocity = rsgm_velocity(averaged[0], RSGM_SCHEDULE)
    flows = {step: rsgm_velocity(*nets, RSGM_SCHEDULE) for step, nets in kept.items()}
    return Trained("RSGM", tuple(averaged), velocity, (config.eps, 1.0), losses, seconds, flows)


def _networks(manifold: Manifold, config: Training, seed: int, names: Sequence[str]) -> list[DriftMLP]:
    return [
        DriftMLP(manifold, config.hidden, config.layers, config.act, generator=stream(seed, "weights", name))
        for name in names
    ]
