r"""Covariance matrix adaptation, the baseline that learns its steps without a network.

The form of Hansen's tutorial (arXiv 1604.00772): weighted recombination of the better half,
two evolution paths, rank-one and rank-mu updates of the covariance with positive weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from . import _checks
from .evolution import ESState, _ask_generator, _box, _check_mean, _check_told, _remember

__all__ = ["CMAES"]


class CMAES:
    r"""CMA-ES with a full covariance matrix.

    Parameters
    ----------
    population_size : int, default 50
        At least 2; the better half recombines.
    sigma_init : float, default 0.3
        Initial step size, positive.
    lower, upper : float, default 0.0 and 1.0
        The box, by clipping what `ask` returns.

    Notes
    -----
    `tell` uses ranks only, so any increasing map of the fitness leaves it unchanged; a
    rotation of the space rotates the whole search (the box apart).
    """

    def __init__(
        self, *, population_size: int = 50, sigma_init: float = 0.3, lower: float = 0.0, upper: float = 1.0
    ) -> None:
        self.population_size, self.lower, self.upper = _box(population_size, lower, upper)
        self.sigma_init = _checks.positive("sigma_init", sigma_init)
        half = self.population_size // 2
        raw = math.log((self.population_size + 1) / 2) - torch.arange(1, half + 1, dtype=torch.float64).log()
        self.weights = raw / raw.sum()
        self.mass = 1 / self.weights.square().sum().item()  # variance-effective number of parents

    def init(self, mean: Tensor) -> ESState:
        """Start of a search around `mean` [D], inside the box; its dtype is that of the search."""
        mean = _check_mean(mean, self.population_size, self.lower, self.upper, rows=False)
        zeros = torch.zeros_like(mean)
        return ESState(
            mean=mean,
            sigma=mean.new_tensor(self.sigma_init),
            best_x=mean,
            path_c=zeros,
            path_sigma=zeros,
            covariance=torch.eye(len(mean), dtype=mean.dtype, device=mean.device),
        )

    def ask(self, state: ESState, *, generator: torch.Generator | None = None) -> Tensor:
        """Population [P, D] inside the box (see `LES.ask` about `generator`)."""
        generator = _ask_generator(state, generator)
        shape = (self.population_size, len(state.mean))
        z = torch.randn(shape, generator=generator, dtype=state.mean.dtype, device=state.mean.device)
        scales, axes = _axes(state)
        return (state.mean + state.sigma * (z * scales) @ axes.T).clamp(self.lower, self.upper)

    def tell(self, state: ESState, x: Tensor, fitness: Tensor) -> ESState:
        """State after a generation (see `LES.tell`)."""
        x, fitness = _check_told(state, x, fitness, self.population_size)
        if state.covariance is None or state.path_c is None or state.path_sigma is None:
            raise ValueError("the state has no covariance; start with CMAES.init")
        d, mass = len(state.mean), self.mass
        c_sigma = (mass + 2) / (d + mass + 5)
        damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + c_sigma
        c_c = (4 + mass / d) / (d + 4 + 2 * mass / d)
        c_1 = 2 / ((d + 1.3) ** 2 + mass)
        c_mu = min(1 - c_1, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
        normal = math.sqrt(d) * (
            1 - 1 / (4 * d) + 1 / (21 * d * d)
        )  # mean length of a standard normal vector

        w = self.weights.to(x)
        parents = x[torch.argsort(fitness, stable=True)[: len(w)]]
        steps = (parents - state.mean) / state.sigma
        step = w @ steps
        scales, axes = _axes(state)
        whitened = axes @ ((axes.T @ step) / scales)
        path_sigma = (1 - c_sigma) * state.path_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mass) * whitened
        length = path_sigma.norm()
        settled = math.sqrt(1 - (1 - c_sigma) ** (2 * (state.generation + 1)))
        moving = float(length / settled < (1.4 + 2 / (d + 1)) * normal)
        path_c = (1 - c_c) * state.path_c + moving * math.sqrt(c_c * (2 - c_c) * mass) * step
        kept = 1 - c_1 - c_mu + c_1 * (1 - moving) * c_c * (2 - c_c)
        covariance = (
            kept * state.covariance + c_1 * torch.outer(path_c, path_c) + c_mu * (steps.T * w) @ steps
        )
        told = replace(
            state,
            mean=state.mean + state.sigma * step,
            sigma=state.sigma * torch.exp(c_sigma / damping * (length / normal - 1)),
            path_c=path_c,
            path_sigma=path_sigma,
            covariance=(covariance + covariance.T) / 2,
        )
        return _remember(told, x, fitness)


def _axes(state: ESState) -> tuple[Tensor, Tensor]:
    # principal axes in float64; a variance that rounding made negative counts as tiny
    assert state.covariance is not None
    variances, axes = torch.linalg.eigh(state.covariance.double())
    scales = variances.clamp(min=1e-20).sqrt()
    return scales.to(state.mean), axes.to(state.mean)
