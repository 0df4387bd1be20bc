r"""The chapter's experiments: one frozen configuration, two profiles, functions config -> results.

Matrix games are exact up to rounding; control runs are a fixed number of PPO updates. Each
result depends on the configuration and on the base seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.papers.self_play import data
from icml24.papers.self_play.environments import PendulumTask, PointMass
from icml24.papers.self_play.hedge import (
    OPTIMISTIC_STEP,
    SelfPlayResult,
    hedge_averages,
    hedge_self_play,
    hedge_two_player,
)
from icml24.papers.self_play.policies import rollout
from icml24.papers.self_play.preferences import (
    bradley_terry_preference,
    constrained_preference,
    max_return_preference,
    sample_preference,
)
from icml24.papers.self_play.solutions import condorcet_winner, duality_gap, fit_bradley_terry, minimax_winner
from icml24.papers.self_play.training import SPOConfig, train

__all__ = [
    "FULL",
    "PROFILES",
    "QUICK",
    "Config",
    "Constrained",
    "Curves",
    "Sweep",
    "constrained_study",
    "learning_curves",
    "margin_study",
    "noise_study",
    "noisy",
    "orbit",
    "pendulum_study",
    "play_study",
    "rate_study",
    "simplex_sweep",
    "winner_study",
]


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment; `QUICK` and `FULL` are its two instances."""

    winner_games: int = 200  # random games for the Minimax Winner, 3 to 50 options
    play_games: int = 50  # random games for the self-play bounds
    play_options: int = 8
    play_horizons: tuple[int, ...] = (10, 100, 1000, 10_000)
    margin: float = 0.3
    margin_options: int = 20
    margin_horizons: tuple[int, ...] = (1000, 2000, 5000, 10_000)
    sweep_resolution: int = 20
    sweep_steps: int = 2000
    sweep_step_size: float = 0.5
    seeds: int = 2  # of the main comparison
    iterations: int = 40
    algorithms: tuple[str, ...] = ("oracle", "spo", "spo-36", "rm")
    temperatures: tuple[float, ...] = (5.0, 20.0, 80.0)
    noise_seeds: int = 1
    noise_iterations: int = 40
    noise_algorithms: tuple[str, ...] = ("spo",)
    constrained_seeds: int = 1
    constrained_iterations: int = 80
    constrained_algorithms: tuple[str, ...] = ("spo",)
    threshold: float = 0.5  # largest late return, in units of length
    heading_rounds: int = 1000
    heading_seeds: int = 5
    heading_step: float = 0.2
    collapse_iterations: int = 20
    pendulum_seeds: int = 0
    pendulum_iterations: int = 0


QUICK = Config()
FULL = Config(
    seeds=5,
    iterations=100,
    algorithms=("oracle", "spo", "spo-36", "rm", "duel"),
    noise_seeds=3,
    noise_iterations=100,
    noise_algorithms=("spo", "rm"),
    constrained_seeds=3,
    constrained_algorithms=("spo", "rm"),
    pendulum_seeds=1,
    pendulum_iterations=150,
)
PROFILES = {"quick": QUICK, "full": FULL}

SMALL_BATCH = 36  # 36 * 35 / 2 = 630 comparisons, the closest to the 640 that reward modelling draws


# --- matrix games -----------------------------------------------------------------------------


def winner_study(config: Config, seed: int) -> dict[str, float]:
    """Existence of the Minimax Winner, and its agreement with a planted Condorcet winner.

    Returns
    -------
    dict
        ``residual``: largest preference of any option over the winner, over all games;
        ``condorcet``: share of planted games whose winner gets all the mass.
    """
    g = stream(seed, "self_play", "winner games")
    residual, hits = 0.0, 0
    for _ in range(config.winner_games):
        n = int(torch.randint(3, 51, (1,), generator=g))
        P = data.random_game(n, g)
        residual = max(residual, (P @ minimax_winner(P)).max().item())
        planted, winner = data.winner_game(min(n, 20), g)
        found = condorcet_winner(planted)
        hits += found == winner and minimax_winner(planted)[winner].item() > 1 - 1e-9
    return {"residual": residual, "condorcet": hits / config.winner_games}


def play_study(config: Config, seed: int) -> dict[str, float]:
    r"""One player against itself and against a second one; the gap against its bound.

    Returns
    -------
    dict
        ``difference``: largest distance between any iterates of self-play and of either
        player of a duel from equal starts; ``ratio``: largest duality gap divided by
        :math:`2\sqrt{2\log n/T}`, over all games and horizons.
    """
    g = stream(seed, "self_play", "play games")
    games = torch.stack([data.random_game(config.play_options, g) for _ in range(config.play_games)])
    difference = ratio = 0.0
    for P in games:
        alone = hedge_self_play(P, 200).iterates
        difference = max(difference, *((alone - two).abs().max().item() for two in hedge_two_player(P, 200)))
    for T in config.play_horizons:
        bound = 2 * math.sqrt(2 * math.log(config.play_options) / T)
        for P, average in zip(games, hedge_averages(games, T), strict=True):
            ratio = max(ratio, duality_gap(P, average).item() / bound)
    return {"difference": difference, "ratio": ratio}


def margin_study(config: Config, seed: int) -> dict[str, Tensor | float]:
    r"""Mass off a Condorcet winner with margin, against T and the bound :math:`8\log n/(\Delta^2 T)`."""
    P = data.margin_game(config.margin_options, config.margin, stream(seed, "self_play", "margin"))
    T = torch.tensor(config.margin_horizons, dtype=torch.float64)
    off = 1 - torch.stack(
        [hedge_self_play(P, t, step_size=config.margin / 4).average[0] for t in config.margin_horizons]
    )
    slope = _slope(T, off)
    return {
        "T": T,
        "off": off,
        "bound": 8 * math.log(config.margin_options) / (config.margin**2 * T),
        "slope": slope,
    }


def _slope(x: Tensor, y: Tensor) -> float:
    """Slope of the least-squares line through (log x, log y)."""
    u, v = x.log(), y.log()
    u, v = u - u.mean(), v - v.mean()
    return ((u * v).sum() / u.square().sum()).item()


def rate_study(config: Config, seed: int) -> dict[str, Tensor]:
    """Duality gap against T for Hedge, optimistic Hedge, and Hedge in a game with a margin.

    Returns
    -------
    dict
        ``T`` (k,); under ``hedge``, ``optimistic`` and ``margin`` the gaps (k,), and under the
        same names with `` bound`` appended what eq-self_play-rate, eq-self_play-optimistic and
        eq-self_play-margin allow.
    """
    n, longest = config.margin_options, max(config.play_horizons)
    P = data.random_game(n, stream(seed, "self_play", "rates"))
    easy = data.margin_game(n, config.margin, stream(seed, "self_play", "margin"))
    T = torch.unique(torch.logspace(1, math.log10(longest), 25).round().long())
    plain = torch.stack([duality_gap(P, hedge_self_play(P, int(t)).average) for t in T])
    log_n, eta = math.log(n), OPTIMISTIC_STEP
    return {
        "T": T,
        "hedge": plain,
        "hedge bound": 2 * torch.sqrt(2 * log_n / T),
        "optimistic": hedge_self_play(P, longest, optimistic=True).gap[T - 1],
        "optimistic bound": 2 * (log_n / eta + eta) / T,
        "margin": hedge_self_play(easy, longest, step_size=config.margin / 4).gap[T - 1],
        "margin bound": 16 * log_n / (config.margin**2 * T),
    }


def orbit(steps: int = 1500) -> SelfPlayResult:
    """Hedge in rock, paper, scissors from an uneven start, with a constant step."""
    start = torch.tensor([0.45, 0.35, 0.2], dtype=torch.float64)
    return hedge_self_play(data.cyclic_game(1, 1, 1), steps, step_size=0.05, init=start)


@dataclass(frozen=True)
class Sweep:
    """`simplex_sweep`: G group weights (G, 3), the mask of the mixed region, distances and gaps (G,)."""

    weights: Tensor
    mixed: Tensor
    spo: Tensor
    rm: Tensor
    spo_gap: Tensor
    rm_gap: Tensor


def simplex_sweep(config: Config) -> Sweep:
    """Self-play and reward modelling over all mixtures of three conflicting groups.

    `spo` and `rm` are L1 distances to the Minimax Winner (0 to 2), the gaps lie in [0, 2].
    """
    weights, mixed = data.population_grid(config.sweep_resolution)
    games = torch.stack([data.population_game(w) for w in weights])
    target = torch.stack([minimax_winner(P) for P in games])
    played = hedge_averages(games, config.sweep_steps, step_size=config.sweep_step_size, optimistic=True)
    best = torch.stack([fit_bradley_terry(P) for P in games]).argmax(1)
    corner = torch.nn.functional.one_hot(best, 3).double()
    gaps = [2 * torch.bmm(games, p[:, :, None]).amax((1, 2)) for p in (played, corner)]
    distances = [(p - target).abs().sum(1) for p in (played, corner)]
    return Sweep(weights, mixed, *distances, *gaps)


# --- control ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """Learning curves by algorithm: `returns` (seeds, iterations); `queries` and `trajectories` (iterations,)."""

    returns: dict[str, Tensor]
    queries: dict[str, Tensor]
    trajectories: dict[str, Tensor]


def learning_curves(config: Config, seed: int) -> Curves:
    """Main comparison on the goal task with noise-free preferences."""
    return _curves(PointMass, max_return_preference, config.algorithms, config.iterations, config.seeds, seed)


def noise_study(config: Config, seed: int) -> dict[float, Curves]:
    """The goal task with sampled labels, by temperature (in units of return)."""
    return {
        tau: _curves(
            PointMass, noisy(tau), config.noise_algorithms, config.noise_iterations, config.noise_seeds, seed
        )
        for tau in config.temperatures
    }


def noisy(temperature: float) -> Callable[..., Tensor]:
    """Judge that draws a fresh Bradley-Terry label for every comparison."""

    def judge(rewards_a: Tensor, rewards_b: Tensor, *, generator: torch.Generator) -> Tensor:
        expected = bradley_terry_preference(rewards_a, rewards_b, temperature=temperature)
        return sample_preference(expected, generator=generator)

    return judge


def pendulum_study(config: Config, seed: int) -> Curves:
    """gymnasium's Pendulum-v1, oracle and self-play; empty when the profile has no seeds for it."""
    if config.pendulum_seeds == 0:
        return Curves({}, {}, {})
    return _curves(
        PendulumTask,
        max_return_preference,
        ("oracle", "spo"),
        config.pendulum_iterations,
        config.pendulum_seeds,
        seed,
        horizon=200,
    )


def _curves(task, judge, algorithms, iterations: int, seeds: int, seed: int, horizon: int = 50) -> Curves:
    returns, queries, trajectories = {}, {}, {}
    for name in algorithms:
        algorithm, _, size = name.partition("-")
        batch = int(size) if size else 64
        runs = [
            train(
                task(),
                judge,
                SPOConfig(iterations, batch, horizon, seed=seed + s, algorithm=algorithm),
            )
            for s in range(seeds)
        ]
        returns[name] = torch.stack([run.returns for run in runs])
        queries[name] = runs[0].queries
        per_iteration = 2 * batch if algorithm == "duel" else batch
        trajectories[name] = per_iteration * torch.arange(1, iterations + 1)
    return Curves(returns, queries, trajectories)


@dataclass(frozen=True)
class Constrained:
    """Final trajectories of `constrained_study`, by algorithm: early and late returns (seeds, N)."""

    early: dict[str, Tensor]
    late: dict[str, Tensor]
    threshold: float
    best_early: float

    def feasible(self, name: str) -> Tensor:
        """Share of trajectories within the constraint, per seed."""
        return (self.late[name] <= self.threshold).double().mean(1)


def constrained_study(config: Config, seed: int, samples: int = 256) -> Constrained:
    """Travel far in the first three quarters, then stay below a threshold in the last one."""
    split = round(0.75 * 50)

    def judge(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
        return constrained_preference(rewards_a, rewards_b, threshold=config.threshold)

    early, late = {}, {}
    for name in config.constrained_algorithms:
        parts = []
        for s in range(seed, seed + config.constrained_seeds):
            run = train(
                PointMass(reward="vx"),
                judge,
                SPOConfig(config.constrained_iterations, seed=s, algorithm=name),
            )
            fresh = stream(s, "self_play", "held out")
            parts.append(rollout(PointMass(reward="vx"), run.policy, samples, 50, fresh).reward)
        rewards = torch.stack(parts)
        early[name], late[name] = rewards[..., :split].sum(-1), rewards[..., split:].sum(-1)
    task = PointMass(reward="vx")
    task.reset(1)
    best = sum(task.step(torch.ones(1, 2))[1].item() for _ in range(split))  # full thrust: nothing is faster
    return Constrained(early, late, config.threshold, best)
