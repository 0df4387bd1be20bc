r"""Six ways to choose learning rate and steps on one problem, each with its honest price.

All share the grids, the validation split and the trainer; all but the oracle spend exactly
the target on everything they do. Each returns one test accuracy, looked up once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from .data import CLASSES, Problem
from .descent import dp_gd_linear
from .gaussian import compose_mu, gdp_epsilon, gdp_mu
from .renyi import private_selection_rdp, rdp_to_epsilon
from .search import AdaptiveHPOConfig, HPOResult, adaptive_hpo

__all__ = ["METHODS", "Outcome", "Trainer", "accuracy", "run_method", "selection_mu"]

#: Dense orders for the Rényi bounds.
ORDERS = tuple(np.concatenate([1 + np.geomspace(1e-3, 1, 40)[:-1], np.geomspace(2, 4000, 400)]).tolist())


@dataclass(frozen=True)
class Outcome:
    """What a method reached: test accuracy, epsilon really spent, and runs made."""

    accuracy: float
    epsilon: float
    runs: int
    search: HPOResult | None = None


class Trainer:
    """`train_eval` of a problem: trains on the private part, scores on validation, keeps every probe.

    Parameters
    ----------
    problem : Problem
        Its test part is never read here.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.probes: list[Tensor] = []

    def __call__(
        self, lr: float, steps: int, noise_multiplier: float, generator: torch.Generator | None
    ) -> float:
        """Validation accuracy of one private run."""
        p = self.problem
        weight = dp_gd_linear(
            p.x, p.y, CLASSES, lr=lr, steps=steps, noise_multiplier=noise_multiplier, generator=generator
        )
        self.probes.append(weight)
        return accuracy(weight, p.x_val, p.y_val)


def accuracy(weight: Tensor, x: Tensor, y: Tensor) -> float:
    """Fraction of records that the probe labels rightly."""
    return float(((x @ weight.T).argmax(1) == y).double().mean())


@cache
def selection_mu(target_epsilon: float, delta: float, mean: float) -> float:
    """Shift of one base run such that Poisson(`mean`) repetitions and selection cost the target.

    Source: eq-private_hpo-selection, solved for the base run by bisection on the Rényi bound.
    """
    orders = np.asarray(ORDERS)

    def gap(mu: float) -> float:
        curve = private_selection_rdp(orders, orders * mu**2 / 2, mean, math.inf)
        return rdp_to_epsilon(orders, curve, delta)[0] - target_epsilon

    return float(brentq(gap, 1e-3, gdp_mu(target_epsilon, delta), xtol=1e-6))


def run_method(
    name: str,
    problem: Problem,
    config: AdaptiveHPOConfig,
    generator: torch.Generator,
    *,
    oracle_runs: int = 20,
) -> Outcome:
    """One method on one problem, at the configuration's target.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    problem : Problem
        Split for this seed.
    config : AdaptiveHPOConfig
        Target, delta and grids; the search's own budgets concern "adaptive" alone.
    generator : torch.Generator
        The only source of randomness.
    oracle_runs : int, default 20
        Runs of the unaccounted oracle.

    Returns
    -------
    Outcome

    Raises
    ------
    ValueError
        Unknown method; the message lists them.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; expected one of {list(METHODS)}")
    trainer = Trainer(problem)
    best, epsilon, search = METHODS[name](trainer, config, generator, oracle_runs)
    if best is None:  # no run at all: the constant answer 0
        reached = float((problem.y_test == 0).double().mean())
    else:
        reached = accuracy(best, problem.x_test, problem.y_test)
    return Outcome(reached, epsilon, len(trainer.probes), search)


Choice = tuple[Tensor | None, float, HPOResult | None]


def _adaptive(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, _: int) -> Choice:
    result = adaptive_hpo(trainer, config, generator=g)
    return trainer.probes[-1], result.epsilon_total, result


def _single(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, _: int) -> Choice:
    return _composed(trainer, config, [_random_pair(config, g)], g)


def _random(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, _: int) -> Choice:
    runs = config.trials_per_epsilon * len(config.trial_epsilons) + 1  # as many as the adaptive search makes
    return _composed(trainer, config, [_random_pair(config, g) for _ in range(runs)], g)


def _grid(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, _: int) -> Choice:
    etas, steps = _three(sorted(config.etas)), _three(sorted(config.steps))
    return _composed(trainer, config, [(eta, count) for eta in etas for count in steps], g)


def _selection(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, _: int) -> Choice:
    mean = config.trials_per_epsilon * len(config.trial_epsilons) + 1
    mu = selection_mu(config.target_epsilon, config.delta, float(mean))
    runs = int(torch.poisson(torch.tensor(float(mean)), generator=g))
    pairs = [_random_pair(config, g) for _ in range(runs)]
    return _best(trainer, pairs, mu, g), config.target_epsilon, None


def _oracle(trainer: Trainer, config: AdaptiveHPOConfig, g: torch.Generator, runs: int) -> Choice:
    mu = gdp_mu(config.target_epsilon, config.delta)
    best = _best(trainer, [_random_pair(config, g) for _ in range(runs)], mu, g)
    return best, gdp_epsilon(compose_mu([mu] * runs), config.delta), None


#: Methods by name, in the order in which figures and tables show them.
METHODS: dict[str, Callable[[Trainer, AdaptiveHPOConfig, torch.Generator, int], Choice]] = {
    "adaptive": _adaptive,
    "private selection": _selection,
    "random, composed": _random,
    "grid, composed": _grid,
    "single": _single,
    "oracle": _oracle,
}


def _composed(
    trainer: Trainer, config: AdaptiveHPOConfig, pairs: Sequence[tuple[float, int]], g: torch.Generator
) -> Choice:
    # equal shares: each run gets mu*/sqrt(n)
    mu = gdp_mu(config.target_epsilon, config.delta) / math.sqrt(len(pairs))
    best = _best(trainer, pairs, mu, g)
    return best, gdp_epsilon(compose_mu([mu] * len(pairs)), config.delta), None


def _best(
    trainer: Trainer, pairs: Sequence[tuple[float, int]], mu: float, g: torch.Generator
) -> Tensor | None:
    if not pairs:
        return None
    scores = [trainer(lr, steps, math.sqrt(steps) / mu, g) for lr, steps in pairs]
    return trainer.probes[int(np.argmax(scores))]


def _random_pair(config: AdaptiveHPOConfig, g: torch.Generator) -> tuple[float, int]:
    eta, count = (int(torch.randint(len(grid), (), generator=g)) for grid in (config.etas, config.steps))
    return config.etas[eta], config.steps[count]


def _three(grid: Sequence) -> list:
    return [grid[round(share * (len(grid) - 1))] for share in (1 / 6, 1 / 2, 5 / 6)]
