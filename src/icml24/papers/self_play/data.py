r"""Games and populations of the chapter. There is no data set: everything is generated here.

The paper's finite example mixes groups with transitive but conflicting rankings; its control
experiments need a simulator, not data. All matrices are float64, antisymmetric, unitless,
with entries in [-1, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.papers.self_play.preferences import aggregate_preferences

__all__ = [
    "RANKINGS",
    "cyclic_game",
    "margin_game",
    "population_game",
    "population_grid",
    "random_game",
    "winner_game",
]

#: Three groups, each ranking three options, best first; together they can go round in a circle.
RANKINGS = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]])


def cyclic_game(a: float, b: float, c: float) -> Tensor:
    """Rock, paper, scissors with margins: 0 beats 1 by a, 1 beats 2 by b, 2 beats 0 by c."""
    return torch.tensor([[0.0, a, -c], [-a, 0.0, b], [c, -b, 0.0]], dtype=torch.float64)


def random_game(n: int, generator: torch.Generator) -> Tensor:
    """Independent margins, uniform on [-1, 1], above the diagonal; shape (n, n)."""
    upper = (2 * torch.rand(n, n, generator=generator, dtype=torch.float64) - 1).triu(1)
    return upper - upper.T


def winner_game(n: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """Random game with a planted Condorcet winner: (matrix, index of the winner)."""
    P = random_game(n, generator)
    winner = int(torch.randint(n, (1,), generator=generator))
    margins = 0.01 + 0.99 * torch.rand(n, generator=generator, dtype=torch.float64)
    P[winner], P[:, winner] = margins, -margins
    P[winner, winner] = 0
    return P, winner


def margin_game(n: int, margin: float, generator: torch.Generator) -> Tensor:
    """Option 0 beats each other one by exactly `margin`; the others play a random game."""
    P = random_game(n, generator)
    P[0], P[:, 0] = margin, -margin
    P[0, 0] = 0
    return P


def population_game(weights: Tensor) -> Tensor:
    """Aggregate preference of the three groups of `RANKINGS` with the given weights (3,)."""
    return aggregate_preferences(RANKINGS, weights)


def population_grid(resolution: int) -> tuple[Tensor, Tensor]:
    """All group weights that are positive multiples of ``1 / resolution``.

    Returns
    -------
    (Tensor, Tensor), shapes (G, 3) and (G,)
        The weights, and whether all of them are below one half: there, and only there, the
        Minimax Winner mixes all three options (decided on integers, so ties are exact).
    """
    counts = torch.tensor(
        [(i, j, resolution - i - j) for i in range(1, resolution - 1) for j in range(1, resolution - i)]
    )
    return counts.double() / resolution, (2 * counts < resolution).all(1)
