r"""Is the last state a code of the whole sequence of hops? A Vandermonde matrix answers.

For real inputs :math:`z_0, \dots, z_K \in \mathbb R^d` the state :math:`c = \sum_k \lambda^k \circ (z_k W)`
is linear in all :math:`d (K+1)` numbers at once, and those can be solved for whenever the matrix of this
map has full column rank (eq-gred-vandermonde).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .recurrence import init_lru_from_uniform, lru_eigenvalues

__all__ = ["condition_numbers", "recover_hops", "state_matrix", "vandermonde"]


def vandermonde(lam: Tensor, count: int) -> Tensor:
    """Powers 0 to count - 1 of each eigenvalue: (V,) to (V, count), complex."""
    return torch.linalg.vander(lam, N=count)


def state_matrix(lam: Tensor, w_in: Tensor, num_hops: int) -> Tensor:
    """Matrix (V, num_hops * d), complex, from all hop vectors, hop 0 first, to the last state.

    Parameters
    ----------
    lam : Tensor, shape (V,), complex
    w_in : Tensor, shape (d, V), complex
    num_hops : int
    """
    columns = torch.einsum("vk,iv->vki", vandermonde(lam, num_hops), w_in)
    return columns.flatten(1)


def recover_hops(lam: Tensor, w_in: Tensor, state: Tensor, num_hops: int) -> Tensor:
    """Real hop vectors from the last state, by least squares.

    Parameters
    ----------
    lam, w_in, num_hops
        As in `state_matrix`.
    state : Tensor, shape (M, V), complex
        One state a row.

    Returns
    -------
    Tensor, shape (num_hops, M, d), real
    """
    matrix = state_matrix(lam, w_in, num_hops)
    system = torch.cat([matrix.real, matrix.imag])  # the unknowns are real: two equations a channel
    sides = torch.cat([state.real, state.imag], dim=1).T
    solution = torch.linalg.lstsq(system, sides, driver="gelsd").solution
    return solution.unflatten(0, (num_hops, -1)).movedim(-1, 1)


def condition_numbers(
    r_min: float, num_hops: int, channels: int, draws: int, *, generator: torch.Generator
) -> Tensor:
    """Condition numbers of `vandermonde` for eigenvalues drawn on the ring from `r_min` to 1, shape (draws,)."""
    out = []
    for _ in range(draws):
        u = torch.rand(2, channels, generator=generator, dtype=torch.float64)
        nu_log, theta_log, _ = init_lru_from_uniform(u[0], u[1], r_min=r_min)
        out.append(torch.linalg.cond(vandermonde(lru_eigenvalues(nu_log, theta_log), num_hops)))
    return torch.stack(out)
