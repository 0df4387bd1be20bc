r"""The heading game: three sectors of the compass that beat each other in a circle.

A policy picks one of twelve headings; three groups of judges rank the three sectors in
conflicting ways, so the Minimax Winner visits all of them. `heading_game` plays it with
sampled trajectories and sampled labels (eq-self_play-importance). `collapse` plays the same
game with a Gaussian policy and PPO, and fails: an instructive negative result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.papers.self_play import _checks, data
from icml24.papers.self_play.environments import HeadingTask
from icml24.papers.self_play.preferences import sample_preference
from icml24.papers.self_play.rewards import win_rate_rewards
from icml24.papers.self_play.solutions import minimax_winner
from icml24.papers.self_play.training import SPOConfig, train

__all__ = ["GROUPS", "HEADINGS", "Headings", "collapse", "heading_game", "importance_gain", "sector_game"]

HEADINGS = 12
GROUPS = (0.42, 0.33, 0.25)
BATCH = 64
FLOOR = 1e-3  # smallest probability that an importance weight divides by


@dataclass(frozen=True)
class Headings:
    """Result of `heading_game`.

    Attributes
    ----------
    visits : Tensor, shape (rounds, 3)
        Share of each sector in the batch of a round.
    target : Tensor, shape (3,)
        Minimax Winner of the sector game.
    distance : float
        L1 distance of the time-averaged visits to the target.
    """

    visits: Tensor
    target: Tensor
    distance: float


def sector_game() -> Tensor:
    """Aggregate preference between the three sectors, shape (3, 3)."""
    return data.population_game(torch.tensor(GROUPS, dtype=torch.float64))


def heading_game(rounds: int, *, step_size: float = 0.2, seed: int = 0) -> Headings:
    r"""Hedge over headings, from sampled trajectories and sampled labels only.

    Each round draws 64 headings from softmax(z), asks one label per unordered pair, and adds

    .. math:: \hat g_k = \frac{1}{B} \sum_{i : a_i = k} \frac{r_i}{\max(p_k, 10^{-3})}

    times the step size to z.

    Parameters
    ----------
    rounds : int
        At least 1.
    step_size : float, default 0.2
        Positive.
    seed : int, default 0
        Seed of headings and labels.

    Returns
    -------
    Headings
    """
    rounds, step_size = _checks.whole("rounds", rounds, 1), _checks.positive("step_size", step_size)
    g = stream(seed, "self_play", "headings")
    sectors = sector_game()
    sector_of = torch.arange(HEADINGS) // (HEADINGS // 3)
    z = torch.zeros(HEADINGS, dtype=torch.float64)
    visits = torch.empty(rounds, 3, dtype=torch.float64)
    for t in range(rounds):
        p = torch.softmax(z, 0)
        heading = torch.multinomial(p, BATCH, replacement=True, generator=g)
        sector = sector_of[heading]
        labels = sample_preference(sectors[sector][:, sector], generator=g).triu(1)
        rate = win_rate_rewards(labels - labels.T)
        gain = importance_gain(heading, rate, p)
        z = z + step_size * gain
        visits[t] = torch.bincount(sector, minlength=3) / BATCH
    target = minimax_winner(sectors)
    return Headings(visits, target, (visits.mean(0) - target).abs().sum().item())


def importance_gain(choice: Tensor, rate: Tensor, p: Tensor) -> Tensor:
    r"""Estimate the gain of every option from the win rates of the sampled ones.

    Parameters
    ----------
    choice : Tensor, shape (B,), integer
        Option of each trajectory, drawn from `p`.
    rate : Tensor, shape (B,), floating
        Win rates.
    p : Tensor, shape (n,), floating
        Strategy the options were drawn from.

    Returns
    -------
    Tensor, shape (n,)
        Unbiased for the gain P p wherever ``p >= 1e-3``; smaller in magnitude elsewhere.
    """
    total = torch.zeros_like(p).index_add_(0, choice, rate.to(p))
    return total / (len(choice) * p.clamp(min=FLOOR))


def collapse(iterations: int, *, queue: int | None = None, seed: int = 0) -> Tensor:
    """Visits of a Gaussian PPO policy in the last batch of the same game, shape (3,).

    Parameters
    ----------
    iterations : int
        PPO updates; at least 1.
    queue : int, optional
        As in `SPOConfig`.
    seed : int, default 0
        Seed of the run.
    """
    sectors = sector_game()

    def judge(rewards_a: Tensor, rewards_b: Tensor, *, generator: torch.Generator) -> Tensor:
        a, b = rewards_a[:, -1].long(), rewards_b[:, -1].long()
        return sample_preference(sectors[a][:, b], generator=generator)

    task = HeadingTask()
    config = SPOConfig(iterations, BATCH, task.horizon, queue=queue, seed=seed)
    outcome = train(task, judge, config).rewards_last[:, -1].long()
    return torch.bincount(outcome, minlength=3).double() / BATCH
