r"""The paper's search: two rounds of cheap trials, a line, one final run; all paid for.

The search never sees data. It hands (learning rate, steps, noise multiplier) to a function
that trains and scores, and accounts for every call it makes: the total equals the target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from . import _validate as check
from .gaussian import calibrate_sigma, compose_mu, gaussian_mu, gdp_epsilon, remaining_epsilon
from .linear_rule import LinearRule, decompose_radius, fit_linear_rule, nearest_pair, radius_candidates

__all__ = ["AdaptiveHPOConfig", "HPOResult", "Trial", "adaptive_hpo"]

#: Trains and scores one run: ``train_eval(lr, steps, noise_multiplier, generator)``, higher is better.
TrainEval = Callable[[float, int, float, "torch.Generator | None"], float]

DEFAULT_ETAS = tuple(float(eta) for eta in 10.0 ** np.arange(-5, 0, 0.15))
DEFAULT_STEPS = tuple(range(5, 150, 5))


@dataclass(frozen=True)
class AdaptiveHPOConfig:
    r"""What the search may spend, and over which grids it searches.

    Attributes
    ----------
    target_epsilon, delta : float
        Budget of everything together, trials included.
    trial_epsilons : tuple of float
        Budget of one trial of each round, strictly increasing, at least two.
    trials_per_epsilon : int
        Trials in a round.
    etas : tuple of float
        Grid of learning rates.
    steps : tuple of int
        Grid of step counts.
    radius_low : float
        Least radius of the first round; later rounds start at the best radius so far.
    radius_high_fractions : tuple of float
        Greatest radius of each round, as a fraction of the largest product of the grid.
    rtol : float
        Relative tolerance between a radius and the product that stands for it, in (0, 1).

    Raises
    ------
    ValueError
        Bad values, or trials that alone cost the target. The defaults are the authors' constants.
    """

    target_epsilon: float = 1.0
    delta: float = 1e-5
    trial_epsilons: tuple[float, ...] = (0.05, 0.1)
    trials_per_epsilon: int = 3
    etas: tuple[float, ...] = DEFAULT_ETAS
    steps: tuple[int, ...] = DEFAULT_STEPS
    radius_low: float = 1.0
    radius_high_fractions: tuple[float, ...] = (0.1, 0.2)
    rtol: float = 0.05

    def __post_init__(self) -> None:
        epsilons = tuple(check.positive("each of trial_epsilons", e) for e in self.trial_epsilons)
        fractions = tuple(
            check.positive("each of radius_high_fractions", f) for f in self.radius_high_fractions
        )
        if len(set(epsilons)) < 2 or any(a >= b for a, b in itertools.pairwise(epsilons)):
            raise ValueError(
                f"trial_epsilons must hold at least 2 distinct budgets in increasing order; got {epsilons}"
            )
        if len(fractions) != len(epsilons) or max(fractions) > 1:
            raise ValueError(
                f"radius_high_fractions must hold one number in (0, 1] for each of the {len(epsilons)} rounds; "
                f"got {fractions}"
            )
        if not 0 < self.rtol < 1:
            raise ValueError(f"rtol must lie in (0, 1); got {self.rtol!r}")
        for name, value in (
            ("trial_epsilons", epsilons),
            ("radius_high_fractions", fractions),
            ("etas", check.grid("etas", self.etas)),
            ("steps", check.step_grid(self.steps)),
            ("trials_per_epsilon", check.steps(self.trials_per_epsilon, "trials_per_epsilon")),
        ):
            object.__setattr__(self, name, value)
        top = fractions[0] * self.radius_max
        if not check.positive("radius_low", self.radius_low) <= top:
            raise ValueError(
                f"radius_low must not exceed the first round's greatest radius {top:g} "
                f"({fractions[0]:g} of the grid's largest product {self.radius_max:g}); got {self.radius_low:g}"
            )
        if self.final_epsilon == 0:
            raise ValueError(
                f"the trials leave the final run no budget at delta = {self.delta:g}: epsilon = 0 of "
                f"{self.target_epsilon:g}; use fewer or cheaper trials, or a larger target"
            )

    @property
    def radius_max(self) -> float:
        """Largest product of the grid."""
        return max(self.etas) * max(self.steps)

    @property
    def final_epsilon(self) -> float:
        """Budget left to the final run (`remaining_epsilon`)."""
        spent = [e for e in self.trial_epsilons for _ in range(self.trials_per_epsilon)]
        return remaining_epsilon(self.target_epsilon, self.delta, spent)


@dataclass(frozen=True)
class Trial:
    """One run: its round (1, 2, ...; the final run's is one more), budget, setting and score."""

    stage: int
    epsilon: float
    lr: float
    steps: int
    noise_multiplier: float
    score: float


@dataclass(frozen=True)
class HPOResult:
    r"""Everything a search did.

    Attributes
    ----------
    trials : tuple of Trial
        In the order they ran, without the final run.
    radii : tuple of float
        Best product :math:`\eta T` of each round.
    rule : LinearRule
        Line through the rounds' (budget, radius).
    final : Trial
        The run that is published.
    radius_final : float
        Extrapolated radius, before any clipping to the grid.
    clipped : bool
        Whether that radius reached the grid's largest product, which was then used.
    mu_total, epsilon_total : float
        Cost of all runs together, at the configuration's delta.
    """

    trials: tuple[Trial, ...]
    radii: tuple[float, ...]
    rule: LinearRule
    final: Trial
    radius_final: float
    clipped: bool
    mu_total: float
    epsilon_total: float


def adaptive_hpo(
    train_eval: TrainEval, config: AdaptiveHPOConfig, *, generator: torch.Generator | None = None
) -> HPOResult:
    r"""Search learning rate and steps with cheap private trials, and spend the rest on one run.

    Parameters
    ----------
    train_eval : callable
        ``train_eval(lr, steps, noise_multiplier, generator) -> score``, called positionally
        once a trial and once for the final run, in order; higher is better. It must train
        on the private data with noise ``noise_multiplier`` and score elsewhere.
    config : AdaptiveHPOConfig
        Budgets and grids.
    generator : torch.Generator, optional
        The only source of randomness when given; handed on to `train_eval`.

    Returns
    -------
    HPOResult
        ``epsilon_total`` equals ``config.target_epsilon``.

    Raises
    ------
    ValueError
        A score that is NaN (the message names the trial), or a round whose radii no pair
        of the grid can stand for.

    Notes
    -----
    Source: the chapter's algorithm; eq-private_hpo-remaining, eq-private_hpo-line and
    eq-private_hpo-admissible.
    """
    trials: list[Trial] = []
    radii: list[float] = []
    low = config.radius_low
    for stage, (epsilon, fraction) in enumerate(
        zip(config.trial_epsilons, config.radius_high_fractions, strict=True), start=1
    ):
        high = max(low, fraction * config.radius_max)
        rounds = []
        for index in range(config.trials_per_epsilon):
            lr, steps = _draw_pair(low, high, config, generator)
            name = f"trial {index + 1} of round {stage}"
            rounds.append(_run(train_eval, stage, epsilon, lr, steps, config.delta, generator, name))
        best = max(rounds, key=lambda trial: trial.score)
        low = best.lr * best.steps
        radii.append(low)
        trials += rounds
    rule = fit_linear_rule(config.trial_epsilons, radii)
    epsilon = config.final_epsilon
    radius = rule(epsilon)
    clipped = radius >= config.radius_max
    if clipped:
        lr, steps = max(config.etas), max(config.steps)
    elif radius > 0 and radius_candidates(radius, config.etas, config.steps, config.rtol):
        lr, steps = decompose_radius(radius, config.etas, config.steps, rtol=config.rtol, generator=generator)
    else:
        lr, steps = nearest_pair(radius, config.etas, config.steps)
    stage = len(config.trial_epsilons) + 1
    final = _run(train_eval, stage, epsilon, lr, steps, config.delta, generator, "the final run")
    mu = compose_mu(gaussian_mu(run.noise_multiplier, run.steps) for run in [*trials, final])
    total = gdp_epsilon(mu, config.delta)
    return HPOResult(tuple(trials), tuple(radii), rule, final, radius, clipped, mu, total)


def _run(
    train_eval: TrainEval,
    stage: int,
    epsilon: float,
    lr: float,
    steps: int,
    delta: float,
    generator: torch.Generator | None,
    name: str,
) -> Trial:
    sigma = calibrate_sigma(epsilon, delta, steps)
    score = float(train_eval(lr, steps, sigma, generator))
    if math.isnan(score):
        raise ValueError(
            f"train_eval returned NaN for {name} (lr = {lr:g}, steps = {steps}, noise_multiplier = {sigma:g}); "
            "return the worst possible score for a run that diverged"
        )
    return Trial(stage, epsilon, lr, steps, sigma, score)


def _draw_pair(
    low: float, high: float, config: AdaptiveHPOConfig, generator: torch.Generator | None
) -> tuple[float, int]:
    # a radius uniform on [low, high] given that the grid has a pair for it, then such a pair, uniformly
    admissible = _admissible_radii(low, high, config)
    lengths = torch.tensor([b - a for a, b in admissible], dtype=torch.float64)
    place = _uniform(generator) * float(lengths.sum())
    for start, stop in admissible:
        if place <= stop - start:
            radius = start + place
            break
        place -= stop - start
    else:
        radius = admissible[-1][1]
    if not radius_candidates(radius, config.etas, config.steps, config.rtol):  # on an interval's very end
        return nearest_pair(radius, config.etas, config.steps)
    return decompose_radius(radius, config.etas, config.steps, rtol=config.rtol, generator=generator)


def _admissible_radii(low: float, high: float, config: AdaptiveHPOConfig) -> list[tuple[float, float]]:
    # |p - r| <= rtol r for a product p, as a union of disjoint intervals of r inside [low, high]
    products = sorted({eta * count for eta in config.etas for count in config.steps})
    merged: list[tuple[float, float]] = []
    for product in products:
        start, stop = max(low, product / (1 + config.rtol)), min(high, product / (1 - config.rtol))
        if start > stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    if not merged:
        eta, count = nearest_pair(math.sqrt(low * high), config.etas, config.steps)
        raise ValueError(
            f"no pair of the grid has a product within rtol = {config.rtol:g} of any r in [{low:g}, {high:g}]; "
            f"the nearest product is {eta * count:g}: refine the grid, raise rtol or widen the radii"
        )
    return merged


def _uniform(generator: torch.Generator | None) -> float:
    device = "cpu" if generator is None else generator.device
    return float(torch.rand((), generator=generator, dtype=torch.float64, device=device))
