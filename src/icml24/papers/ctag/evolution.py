r"""Ask and tell: the learned evolution strategy and random search behind one protocol.

A strategy proposes a population (`ask`), is told how bad each member was (`tell`), and keeps
everything it learned in a frozen `ESState`. Fitness is minimised. Equations eq-ctag-features
to eq-ctag-update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from icml24.common.random import generator as named_generator

from . import _checks
from .les_weights import check_les_weights

__all__ = ["LES", "ESState", "RandomSearch", "Strategy"]

#: Time scales of the evolution paths.
PATH_RATES = (0.1, 0.5, 0.9)

#: Scales of the thirteen features of the generation counter.
TIME_SCALES = (1, 3, 10, 30, 50, 100, 250, 500, 750, 1000, 1250, 1500, 2000)

#: Guard of variances.
TINY = 1e-10


@dataclass(frozen=True)
class ESState:
    """What a strategy knows after a generation.

    Attributes
    ----------
    mean : Tensor, shape (D,) or (P, D)
        Centre of the search; one a member in the per-member form of `LES`.
    sigma : Tensor
        Step size: shape (D,) in `LES`, a scalar in `CMAES`.
    best_x : Tensor, shape (D,)
        Best point so far; before the first `tell` the (first) mean.
    best_fitness : float
        Its fitness; infinite before the first `tell`.
    generation : int
        Number of `tell` calls.
    path_c, path_sigma : Tensor, optional
        Evolution paths: (D, 3) in `LES`, (D,) in `CMAES`.
    covariance : Tensor, shape (D, D), optional
        Of `CMAES`.
    """

    mean: Tensor
    sigma: Tensor
    best_x: Tensor
    best_fitness: float = math.inf
    generation: int = 0
    path_c: Tensor | None = None
    path_sigma: Tensor | None = None
    covariance: Tensor | None = field(default=None, repr=False)


class Strategy(Protocol):
    """What `optimise` needs of a strategy."""

    population_size: int

    def init(self, mean: Tensor) -> ESState: ...  # noqa: D102
    def ask(self, state: ESState, *, generator: torch.Generator | None = None) -> Tensor: ...  # noqa: D102
    def tell(self, state: ESState, x: Tensor, fitness: Tensor) -> ESState: ...  # noqa: D102


class RandomSearch:
    """Independent uniform draws from the box; the baseline at equal budget.

    Parameters
    ----------
    population_size : int, default 50
        At least 2.
    lower, upper : float, default 0.0 and 1.0
        The box.
    """

    def __init__(self, *, population_size: int = 50, lower: float = 0.0, upper: float = 1.0) -> None:
        self.population_size, self.lower, self.upper = _box(population_size, lower, upper)

    def init(self, mean: Tensor) -> ESState:
        """State of shape and dtype of `mean` [D]; its values do not matter."""
        mean = _check_mean(mean, self.population_size, self.lower, self.upper, rows=False)
        spread = torch.full_like(mean, (self.upper - self.lower) / math.sqrt(12))
        return ESState(mean=mean, sigma=spread, best_x=mean)

    def ask(self, state: ESState, *, generator: torch.Generator | None = None) -> Tensor:
        """Population [P, D], uniform in the box (see `LES.ask` about `generator`)."""
        generator = _ask_generator(state, generator)
        shape = (self.population_size, state.mean.shape[-1])
        u = torch.rand(shape, generator=generator, dtype=state.mean.dtype, device=state.mean.device)
        return self.lower + (self.upper - self.lower) * u

    def tell(self, state: ESState, x: Tensor, fitness: Tensor) -> ESState:
        """New state with the best point updated (see `LES.tell`)."""
        x, fitness = _check_told(state, x, fitness, self.population_size)
        return _remember(state, x, fitness)


class LES:
    r"""Learned evolution strategy: a Gaussian search whose update rule is a small network.

    Parameters
    ----------
    weights : mapping of str to Tensor
        From `load_les_weights`.
    population_size : int, default 50
        At least 2.
    sigma_init : float, default 0.2693048095331496
        Initial step size in every coordinate, positive.
    lower, upper : float, default 0.0 and 1.0
        The box, by clipping.

    Raises
    ------
    ValueError
        Missing or misshapen weights, a population below 2, an empty box, a step that is not positive.

    Notes
    -----
    `tell` is invariant under permutations of the population and under positive affine maps
    of the fitness (eq-ctag-invariance). A mean of shape (P, D) gives every member a mean of
    its own, which is what the released script of the paper runs.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        population_size: int = 50,
        sigma_init: float = 0.2693048095331496,
        lower: float = 0.0,
        upper: float = 1.0,
    ) -> None:
        self.population_size, self.lower, self.upper = _box(population_size, lower, upper)
        self.sigma_init = _checks.positive("sigma_init", sigma_init)
        self.weights = check_les_weights(weights)

    def init(self, mean: Tensor) -> ESState:
        """Start of a search.

        Parameters
        ----------
        mean : Tensor, shape (D,) or (P, D), floating
            Inside the box; its dtype and device are those of the whole search.

        Returns
        -------
        ESState

        Raises
        ------
        TypeError, ValueError
            Not floating, another shape, not finite, outside the box.
        """
        mean = _check_mean(mean, self.population_size, self.lower, self.upper, rows=True)
        d = mean.shape[-1]
        zeros = mean.new_zeros(d, len(PATH_RATES))
        return ESState(
            mean=mean,
            sigma=mean.new_full((d,), self.sigma_init),
            best_x=mean if mean.ndim == 1 else mean[0],
            path_c=zeros,
            path_sigma=zeros,
        )

    def ask(self, state: ESState, *, generator: torch.Generator | None = None) -> Tensor:
        """Population [P, D] inside the box.

        Parameters
        ----------
        state : ESState
        generator : torch.Generator, optional
            Without one, a generator named by the generation alone: repeatable, and different
            in each generation.
        """
        generator = _ask_generator(state, generator)
        shape = (self.population_size, state.mean.shape[-1])
        z = torch.randn(shape, generator=generator, dtype=state.mean.dtype, device=state.mean.device)
        return (state.mean + state.sigma * z).clamp(self.lower, self.upper)

    def tell(self, state: ESState, x: Tensor, fitness: Tensor) -> ESState:
        """State after a generation; `state` itself is left as it is.

        Parameters
        ----------
        state : ESState
        x : Tensor, shape (P, D)
            What `ask` proposed.
        fitness : Tensor, shape (P,)
            Finite; smaller is better. Computed with in the dtype of the mean.

        Raises
        ------
        TypeError, ValueError
            Not floating, another shape, not finite.
        """
        x, fitness = _check_told(state, x, fitness, self.population_size)
        if state.path_c is None or state.path_sigma is None:
            raise ValueError("the state has no evolution paths; start with LES.init")
        w = self._recombination(fitness, state.best_fitness)
        d = x - state.mean
        rates = torch.tensor(PATH_RATES, dtype=x.dtype, device=x.device)
        path_c = (1 - rates) * state.path_c + rates * (w @ d)[:, None]
        path_sigma = (1 - rates) * state.path_sigma + rates * (w @ (d / state.sigma))[:, None]
        rate_mean, rate_sigma = self._learning_rates(path_c, path_sigma, state.generation)
        mean = (state.mean + rate_mean * (w @ x - state.mean)).clamp(self.lower, self.upper)
        spread = (w @ d.square() + TINY).sqrt()
        sigma = (state.sigma + rate_sigma * (spread - state.sigma)).clamp(0, 1)
        told = replace(state, mean=mean, sigma=sigma, path_c=path_c, path_sigma=path_sigma)
        return _remember(told, x, fitness)

    def _dense(self, x: Tensor, layer: str) -> Tensor:
        return x @ self.weights[f"{layer}/kernel"].to(x) + self.weights[f"{layer}/bias"].to(x)

    def _recombination(self, fitness: Tensor, best: float) -> Tensor:
        # eq-ctag-features and eq-ctag-attention: one weight a member, positive, summing to 1
        features = _fitness_features(fitness, best)
        keys, queries, values = (self._dense(features, f"recomb_weights/params/Dense_{i}") for i in range(3))
        attention = torch.softmax(queries @ keys.T / math.sqrt(len(fitness)), dim=-1)
        return torch.softmax((attention @ values)[:, 0], dim=0)

    def _learning_rates(self, path_c: Tensor, path_sigma: Tensor, generation: int) -> tuple[Tensor, Tensor]:
        # eq-ctag-rates: the same small network in every coordinate
        scales = torch.tensor(TIME_SCALES, dtype=path_c.dtype, device=path_c.device)
        time = torch.tanh(generation / scales - 1).expand(len(path_c), -1)
        inputs = torch.cat([path_c, path_sigma, time], dim=-1)
        hidden = torch.relu(self._dense(inputs, "lrate_modulation/params/Dense_0"))
        heads = (self._dense(hidden, f"lrate_modulation/params/Dense_{i}") for i in (1, 2))
        rate_mean, rate_sigma = (torch.sigmoid(head)[:, 0] for head in heads)
        return rate_mean, rate_sigma


def _fitness_features(fitness: Tensor, best: float) -> Tensor:
    # [P, 3]: better than all before, centred rank (ties by position), z-score with the population's std
    order = torch.argsort(fitness, stable=True)
    rank = torch.empty_like(fitness)
    rank[order] = torch.arange(len(fitness), dtype=fitness.dtype, device=fitness.device)
    centred = rank / (len(fitness) - 1) - 0.5
    score = (fitness - fitness.mean()) / (fitness.std(correction=0) + TINY)
    return torch.stack([(fitness < best).to(fitness), centred, score], dim=-1)


def _remember(state: ESState, x: Tensor, fitness: Tensor) -> ESState:
    # strict improvement; among equals the first
    index = int(fitness.argmin())
    value = fitness[index].item()
    state = replace(state, generation=state.generation + 1)
    if value < state.best_fitness:
        return replace(state, best_fitness=value, best_x=x[index].clone())
    return state


def _ask_generator(state: ESState, generator: torch.Generator | None) -> torch.Generator:
    if generator is not None:
        return generator
    return named_generator(0, "ctag", "ask", state.generation, device=state.mean.device)


def _box(population_size: Any, lower: Any, upper: Any) -> tuple[int, float, float]:
    _checks.whole("population_size", population_size, 2)
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise ValueError(f"the box needs finite lower < upper; got {lower!r} and {upper!r}")
    return population_size, float(lower), float(upper)


def _check_mean(mean: Any, population_size: int, lower: float, upper: float, *, rows: bool) -> Tensor:
    mean = _checks.finite("mean", mean).detach()
    if (
        not (mean.ndim == 1 or (rows and mean.ndim == 2 and len(mean) == population_size))
        or mean.shape[-1] == 0
    ):
        wanted = f"(D,) or ({population_size}, D)" if rows else "(D,)"
        raise ValueError(f"expected mean of shape {wanted}; got {tuple(mean.shape)}")
    if mean.min() < lower or mean.max() > upper:
        raise ValueError(
            f"mean must lie in the box [{lower:g}, {upper:g}]; got {mean.min().item():g} to {mean.max().item():g}"
        )
    return mean.clone()


def _check_told(state: ESState, x: Any, fitness: Any, population_size: int) -> tuple[Tensor, Tensor]:
    x, fitness = _checks.finite("x", x).detach(), _checks.finite("fitness", fitness).detach()
    shape = (population_size, state.mean.shape[-1])
    if tuple(x.shape) != shape or tuple(fitness.shape) != shape[:1]:
        raise ValueError(
            f"expected x of shape {shape} and fitness of shape {shape[:1]}; "
            f"got {tuple(x.shape)} and {tuple(fitness.shape)}"
        )
    return x.to(state.mean), fitness.to(state.mean)
