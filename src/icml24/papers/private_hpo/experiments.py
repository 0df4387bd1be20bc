r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Every random stream is named by the base seed, the seed index and its purpose, so a result
depends on nothing that ran before it. Nothing here plots or prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval

from .clipping import clipped_gradient_sum
from .data import CLASSES, Problem, digits_problem, mnist_features, mnist_problem
from .descent import dp_gd_linear
from .gaussian import calibrate_sigma
from .linear_rule import LinearRule, fit_linear_rule
from .methods import METHODS, Outcome, accuracy, run_method
from .privacy_loss import pld_epsilon
from .search import AdaptiveHPOConfig

__all__ = [
    "FULL",
    "QUICK",
    "Comparison",
    "Config",
    "RadiusMap",
    "ablation",
    "compare",
    "configure",
    "digits_map",
    "mnist_map",
    "search_config",
    "search_variants",
]

#: Grids of the CPU-scale search: 14 learning rates and 12 step counts.
ETAS = tuple(float(eta) for eta in 10.0 ** np.arange(-1, 1, 0.15))
STEPS = tuple(range(5, 65, 5))
#: Four times the greatest radius, for the ablation of the search's prior.
WIDE = tuple(float(eta) for eta in 10.0 ** np.arange(-1, 1.6, 0.15))


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    seeds, other_seeds : int
        Repetitions of the comparison at epsilon = 1, and at the other targets.
    targets : tuple of float
        Total epsilons of the comparison.
    methods : tuple of str
        Keys of `methods.METHODS`.
    oracle_runs : int
        Runs of the unaccounted oracle.
    map_epsilons, map_radii, map_steps, map_seeds
        Grid of the accuracy map on MNIST-5k; the learning rate is radius over steps.
    digits_epsilons, digits_radii, digits_steps, digits_seeds
        The same on the digits' pixels.
    ablation_seeds, variant_seeds : int
        Repetitions of the two ablations.
    """

    seed: int = 0
    seeds: int = 8
    other_seeds: int = 2
    targets: tuple[float, ...] = (0.5, 1.0, 2.0)
    methods: tuple[str, ...] = ("adaptive", "private selection", "random, composed", "single", "oracle")
    oracle_runs: int = 20
    map_epsilons: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    map_radii: tuple[float, ...] = tuple(2.0**k for k in range(4, 13))
    map_steps: tuple[int, ...] = (20,)
    map_seeds: int = 3
    digits_epsilons: tuple[float, ...] = (0.2, 1.0, 4.0)
    digits_radii: tuple[float, ...] = (32.0, 128.0, 512.0, 2048.0)
    digits_steps: tuple[int, ...] = (20,)
    digits_seeds: int = 3
    ablation_seeds: int = 2
    variant_seeds: int = 2


QUICK = Config()
FULL = Config(
    seeds=20,
    other_seeds=20,
    methods=tuple(METHODS),
    map_steps=(10, 20, 40),
    map_seeds=5,
    digits_epsilons=(0.1, 0.2, 0.5, 1.0, 2.0, 4.0),
    digits_radii=tuple(2.0**k for k in range(3, 13)),
    digits_steps=(10, 20, 40),
    digits_seeds=5,
    ablation_seeds=10,
    variant_seeds=20,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def search_config(target_epsilon: float, delta: float, **changes: object) -> AdaptiveHPOConfig:
    """The CPU-scale search: trials at a tenth and a fifth of the target, on this chapter's grids."""
    base = AdaptiveHPOConfig(
        target_epsilon=target_epsilon,
        delta=delta,
        trial_epsilons=(0.1 * target_epsilon, 0.2 * target_epsilon),
        etas=ETAS,
        steps=STEPS,
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class RadiusMap:
    r"""Accuracy over budget, radius and steps.

    Attributes
    ----------
    epsilons, radii : ndarray, shapes (E,) and (R,)
    steps : tuple of int, length S
    accuracy : ndarray, shape (seeds, E, R, S)
        Test accuracy of single runs. Nothing is chosen by it.
    """

    epsilons: np.ndarray
    radii: np.ndarray
    steps: tuple[int, ...]
    accuracy: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean over seeds and steps, shape (E, R)."""
        return self.accuracy.mean(axis=(0, 3))

    @property
    def best_radii(self) -> np.ndarray:
        """Radius of greatest mean accuracy at each budget, shape (E,)."""
        return self.radii[self.mean.argmax(axis=1)]

    def line(self, up_to: float) -> tuple[LinearRule, float, float]:
        """Line through the best radii of budgets up to `up_to`; its R squared; the correlation."""
        keep = self.epsilons <= up_to
        eps, best = self.epsilons[keep], self.best_radii[keep]
        rule = fit_linear_rule(eps, best)
        residual = best - np.array([rule(e) for e in eps])
        centred = best - best.mean()
        correlation = float(np.corrcoef(eps, best)[0, 1])
        return rule, 1 - float(residual @ residual) / float(centred @ centred), correlation

    def spreads(self) -> tuple[float, float, float]:
        """Mean range of accuracy over the steps at one radius; what chance alone would give; over r, 2r, 4r.

        Chance: the expected range of as many normal means as there are step counts, with
        the standard error that the seeds show.
        """
        by_steps = self.accuracy.mean(axis=0)  # (E, R, S)
        windows = np.lib.stride_tricks.sliding_window_view(by_steps.mean(axis=2), 3, axis=1)  # r, 2r, 4r
        error = np.sqrt(self.accuracy.var(axis=0, ddof=1).mean() / len(self.accuracy))
        z = np.linspace(-8, 8, 2001)
        below = norm.cdf(z)
        of_normals = np.trapezoid(1 - below ** len(self.steps) - (1 - below) ** len(self.steps), z)
        return (
            float(np.ptp(by_steps, axis=2).mean()),
            float(error * of_normals),
            float(np.ptp(windows, axis=2).mean()),
        )

    def spread_ratio(self) -> float:
        """Range over the steps at one radius, over the range across a fourfold radius (see `spreads`)."""
        over_steps, _, over_radii = self.spreads()
        return over_steps / over_radii


def mnist_map(config: Config) -> RadiusMap:
    """The accuracy map of MNIST-5k's frozen features."""
    features, labels = mnist_features(config.seed)
    return _radius_map(
        lambda seed: mnist_problem(seed, features, labels),
        *(config.map_epsilons, config.map_radii, config.map_steps, config.map_seeds, config.seed),
    )


def digits_map(config: Config) -> RadiusMap:
    """The accuracy map of the digits' pixels."""
    sizes = config.digits_epsilons, config.digits_radii, config.digits_steps, config.digits_seeds
    return _radius_map(digits_problem, *sizes, config.seed)


@dataclass(frozen=True)
class Comparison:
    """Outcomes by (target epsilon, method), one a seed."""

    outcomes: dict[tuple[float, str], tuple[Outcome, ...]]

    def accuracies(self, target: float, method: str) -> np.ndarray:
        """Test accuracies, one a seed."""
        return np.array([o.accuracy for o in self.outcomes[target, method]])

    def interval(self, target: float, method: str, minus: str | None = None) -> tuple[float, float, float]:
        """Mean over seeds and its 95 % bootstrap interval; of paired differences when `minus` is given."""
        values = self.accuracies(target, method)
        if minus is not None:
            values = values - self.accuracies(target, minus)
        low, high = bootstrap_interval(
            values, generator=numpy_generator(0, "private_hpo", method, minus or "")
        )
        return float(values.mean()), low, high

    def largest_gap(self) -> float:
        """Largest distance of an adaptive search's total epsilon from its target."""
        return max(
            abs(o.epsilon - target)
            for (target, method), runs in self.outcomes.items()
            if method == "adaptive"
            for o in runs
        )


def compare(config: Config) -> Comparison:
    """Every method at every target, on one split a seed, each with its own stream of noise."""
    features, labels = mnist_features(config.seed)
    outcomes = {}
    for target in config.targets:
        count = config.seeds if target == 1.0 else config.other_seeds
        for method in config.methods:
            outcomes[target, method] = tuple(
                _outcome(method, mnist_problem(seed, features, labels), target, seed, config)
                for seed in range(config.seed, config.seed + count)
            )
    return Comparison(outcomes)


def search_variants(config: Config) -> dict[str, np.ndarray]:
    """Adaptive search at epsilon = 1 with one choice changed at a time: test accuracies by variant."""
    features, labels = mnist_features(config.seed)
    variants: dict[str, dict[str, object]] = {
        "as above": {},
        "trials at 0.05, 0.1 (the authors' budgets)": {"trial_epsilons": (0.05, 0.1)},
        "trials at 0.05, 0.2": {"trial_epsilons": (0.05, 0.2)},
        "radii up to 0.3, 0.6 of the largest": {"radius_high_fractions": (0.3, 0.6)},
        "learning rates up to 35": {"etas": WIDE},
        "learning rates up to 35, trials at 0.05, 0.1": {"etas": WIDE, "trial_epsilons": (0.05, 0.1)},
    }
    return {
        name: np.array(
            [
                _outcome(
                    "adaptive", mnist_problem(seed, features, labels), 1.0, seed, config, changes
                ).accuracy
                for seed in range(config.seed, config.seed + config.variant_seeds)
            ]
        )
        for name, changes in variants.items()
    }


#: Radius and steps of the ablated run, near the map's optimum at epsilon = 1.
ABLATED_RADIUS, ABLATED_STEPS = 256.0, 40


def ablation(config: Config) -> dict[str, np.ndarray]:
    """The recipe of one run at epsilon = 1, changed in one respect at a time: test accuracies."""
    features, labels = mnist_features(config.seed)
    lr, steps = ABLATED_RADIUS / ABLATED_STEPS, ABLATED_STEPS
    variants: dict[str, Callable[[Problem, float, torch.Generator], torch.Tensor]] = {
        "recipe": _recipe(lr, steps),
        "random start, std 0.3": _recipe(lr, steps, start=0.3),
        "C = 0.1, same learning rate": _recipe(lr, steps, max_norm=0.1),
        "C = 0.1, learning rate x 10": _recipe(10 * lr, steps, max_norm=0.1),
        "no momentum, same learning rate": _recipe(lr, steps, momentum=0.0),
        "no momentum, learning rate x 10": _recipe(10 * lr, steps, momentum=0.0),
        "sampling q = 0.1": _sampled(lr, steps, 0.1),
    }
    out = {}
    for name, train in variants.items():
        reached = []
        for seed in range(config.seed, config.seed + config.ablation_seeds):
            problem = mnist_problem(seed, features, labels)
            sigma = calibrate_sigma(1.0, problem.delta, steps)
            g = generator(seed, "private_hpo", "ablation")  # one stream for all: a random start draws first
            weight = train(problem, sigma, g)
            reached.append(accuracy(weight, problem.x_test, problem.y_test))
        out[name] = np.array(reached)
    return out


@lru_cache
def sampled_sigma(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Noise multiplier of a Poisson-subsampled run, by root search on `pld_epsilon`."""

    def gap(log_sigma: float) -> float:
        return math.log(pld_epsilon(math.exp(log_sigma), rate, steps, delta) / epsilon)

    return math.exp(brentq(gap, math.log(0.3), math.log(100.0), xtol=1e-4))


def _outcome(
    method: str,
    problem: Problem,
    target: float,
    seed: int,
    config: Config,
    changes: dict[str, object] | None = None,
) -> Outcome:
    search = search_config(target, problem.delta, **(changes or {}))
    g = generator(seed, "private_hpo", method, round(1000 * target))
    return run_method(method, problem, search, g, oracle_runs=config.oracle_runs)


def _radius_map(
    problem_of: Callable[[int], Problem],
    epsilons: Sequence[float],
    radii: Sequence[float],
    steps: Sequence[int],
    seeds: int,
    seed: int,
) -> RadiusMap:
    out = np.empty((seeds, len(epsilons), len(radii), len(steps)))
    for s in range(seeds):
        problem = problem_of(seed + s)
        for i, epsilon in enumerate(epsilons):
            for k, count in enumerate(steps):
                sigma = calibrate_sigma(epsilon, problem.delta, count)
                for j, radius in enumerate(radii):
                    weight = dp_gd_linear(
                        problem.x,
                        problem.y,
                        CLASSES,
                        lr=radius / count,
                        steps=count,
                        noise_multiplier=sigma,
                        generator=generator(seed + s, "private_hpo", "map", count),  # one noise for a row
                    )
                    out[s, i, j, k] = accuracy(weight, problem.x_test, problem.y_test)
    return RadiusMap(np.asarray(epsilons), np.asarray(radii), tuple(steps), out)


def _recipe(
    lr: float, steps: int, *, start: float = 0.0, **changes: float
) -> Callable[[Problem, float, torch.Generator], torch.Tensor]:
    def train(problem: Problem, sigma: float, g: torch.Generator) -> torch.Tensor:
        width = problem.x.shape[1]
        weight = start * torch.randn(CLASSES, width, generator=g) if start else None
        return dp_gd_linear(
            *(problem.x, problem.y, CLASSES),
            **{"lr": lr, "steps": steps, "noise_multiplier": sigma, "weight": weight, "generator": g}
            | changes,
        )

    return train


def _sampled(lr: float, steps: int, rate: float) -> Callable[[Problem, float, torch.Generator], torch.Tensor]:
    def train(problem: Problem, _: float, g: torch.Generator) -> torch.Tensor:
        sigma = sampled_sigma(1.0, problem.delta, rate, steps)
        weight = problem.x.new_zeros(CLASSES, problem.x.shape[1])
        buffer = torch.zeros_like(weight)
        for _step in range(steps):
            drawn = torch.rand(len(problem.x), generator=g) < rate
            total = clipped_gradient_sum(weight, problem.x[drawn], problem.y[drawn])
            total += sigma * torch.randn(weight.shape, generator=g)
            buffer = 0.9 * buffer + total / (rate * len(problem.x))
            weight = weight - lr * buffer
        return weight

    return train
