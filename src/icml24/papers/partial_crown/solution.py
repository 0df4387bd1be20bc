r"""From residual to solution: checkpoints of a training run, and a certified distance from the exact solution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from icml24.common.random import generator

from .bounds import bound_network
from .branching import BranchResult, greedy_branching
from .data import SMALL
from .experiments import Config, residual_row
from .networks import TanhMLP
from .references import cole_hopf, error_bound
from .training import PINNConfig, train_pinn

__all__ = ["checkpoints", "link", "rank_correlation", "solution_error"]


def checkpoints(config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Iterations, certified max of |residual| and measured max of the solution error along one training run."""
    kept: dict[int, TanhMLP] = {}

    def keep(done: int, net: TanhMLP, _: float) -> None:
        if done in config.checkpoint_steps:
            kept[done] = TanhMLP.from_arrays(
                *([p.detach().clone() for p in group] for group in (net.weights, net.biases)),
                net.lower,
                net.upper,
            ).requires_grad_(False)

    train_pinn(
        SMALL,
        PINNConfig(max_iter=max(config.checkpoint_steps)),
        generator=generator(config.seed, "partial_crown", "checkpoints"),
        on_step=keep,
        chunk=min(config.checkpoint_steps),
    )
    residuals, errors = [], []
    for step, net in kept.items():
        row = residual_row(f"checkpoint {step}", SMALL, net, config.checkpoint_evaluations, config)
        residuals.append(np.sqrt(row.certified))
        errors.append(solution_error(net, 1.0))
    return np.array(list(kept)), np.array(residuals), np.array(errors)


def solution_error(net: TanhMLP, horizon: float, grid: int = 81) -> float:
    """Largest distance of a network of `SMALL` from the exact solution on a regular grid of t <= horizon."""
    t = torch.linspace(0, horizon, grid, dtype=torch.float64)
    x = torch.linspace(-1, 1, 2 * grid - 1, dtype=torch.float64)
    points = torch.cartesian_prod(t, x)
    return float((net(points)[:, 0] - cole_hopf(points, SMALL.viscosity)).abs().max())


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation."""
    return float(spearmanr(x, y).statistic)


def link(net: TanhMLP, horizon: float, evaluations: int) -> tuple[float, float]:
    """Certified bound of the solution error of a network of `SMALL` up to `horizon`, and the measured error.

    Everything that enters is certified: both conditions, the residual and the steepest descent of the network.
    """
    low, high = SMALL.domain
    window = torch.stack((low, torch.stack((torch.as_tensor(horizon, dtype=low.dtype), high[1]))))

    def certify(bounds: Callable[[Tensor], tuple[Tensor, Tensor]], domain: Tensor) -> BranchResult:
        return greedy_branching(
            bounds, domain, max_evaluations=evaluations, empirical_min=0.0, empirical_max=0.0, batch=64
        )

    start = window.clone()
    start[:, 0] = 0.0
    sides = []
    for k in (0, 1):
        side = window.clone()
        side[:, 1] = window[k, 1]
        sides.append(certify(lambda b: SMALL.boundary_bounds(net, b), side).largest)

    def descent(boxes: Tensor) -> tuple[Tensor, Tensor]:
        slope = bound_network(net, boxes, first=(1,), second=()).du[1]
        return -slope.upper[:, 0], -slope.lower[:, 0]

    bound = error_bound(
        certify(lambda b: SMALL.initial_bounds(net, b), start).largest,
        max(sides),
        certify(lambda b: SMALL.residual_bounds(net, b), window).largest,
        certify(descent, window).upper,
        horizon,
    )
    return bound, solution_error(net, horizon)
