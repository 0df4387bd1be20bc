r"""What to call the best option: Condorcet, Copeland, Borda, Minimax Winner, Bradley-Terry.

The Minimax Winner is the one that always exists and that respects margins: a mixed
strategy :math:`p^\star` with :math:`(P p^\star)_i \le 0` for every option i, that is, no
option beats it on average. Equations: eq-self_play-minimax, eq-self_play-gap,
eq-self_play-condorcet, eq-self_play-cycle, eq-self_play-bradleyterry.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from icml24.papers.self_play import _checks
from icml24.papers.self_play.preferences import validate_preference

__all__ = [
    "borda_scores",
    "condorcet_winner",
    "copeland_scores",
    "duality_gap",
    "fit_bradley_terry",
    "minimax_winner",
]


def condorcet_winner(preference: Tensor) -> int | None:
    """Option that beats every other one, or None if there is none.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.

    Returns
    -------
    int or None
        The index i with ``preference[i, j] > 0`` for all j != i; a single option wins by default.
    """
    P = validate_preference(preference)
    itself = torch.eye(len(P), dtype=torch.bool, device=P.device)
    winners = P.masked_fill(itself, 1).gt(0).all(1).nonzero().flatten()
    return int(winners[0]) if len(winners) else None


def copeland_scores(preference: Tensor) -> Tensor:
    r"""Share of pairwise wins minus losses, :math:`c_i = \frac1{n-1}\sum_{j\ne i}\operatorname{sign} P_{ij}`.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.

    Returns
    -------
    Tensor, shape (n,)
        In [-1, 1]; zeros for ``n = 1``. Ignores margins.
    """
    return _off_diagonal_mean(torch.sign(validate_preference(preference)))


def borda_scores(preference: Tensor) -> Tensor:
    r"""Mean preference over the other options, :math:`b_i = \frac1{n-1}\sum_{j\ne i} P_{ij}`.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.

    Returns
    -------
    Tensor, shape (n,)
        In [-1, 1]; zeros for ``n = 1``.
    """
    return _off_diagonal_mean(validate_preference(preference))


def _off_diagonal_mean(values: Tensor) -> Tensor:
    n = len(values)
    off = values.masked_fill(torch.eye(n, dtype=torch.bool, device=values.device), 0)
    return off.sum(1) / max(n - 1, 1)


def minimax_winner(preference: Tensor) -> Tensor:
    r"""Minimax Winner by linear programming: :math:`p^\star \in \arg\max_p \min_q p^\top P q`.

    Maximises v subject to :math:`(P^\top p)_j \ge v`, :math:`p \ge 0`,
    :math:`\mathbf 1^\top p = 1` with SciPy's HiGHS; the optimum is v = 0.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.

    Returns
    -------
    Tensor, shape (n,)
        Non-negative, sums to 1; same dtype and device as `preference`. With ties there can
        be several Minimax Winners; one vertex of the set is returned, so compare
        `duality_gap`, not vectors, there.

    Raises
    ------
    TypeError, ValueError
        As `validate_preference`.
    RuntimeError
        The solver failed (not seen; its message is passed on).

    Notes
    -----
    Source: eq-self_play-minimax. The matrix is scaled to largest entry 1 first, which
    leaves the winner where it is and keeps the solver's absolute tolerances meaningful.
    """
    from scipy.optimize import linprog

    P = validate_preference(preference)
    n = len(P)
    if n == 1:
        return torch.ones_like(P[0])
    A = P.detach().cpu().double().numpy()
    A = (A - A.T) / 2
    A = A / max(np.abs(A).max(), np.finfo(float).tiny)
    solved = linprog(
        c=np.r_[np.zeros(n), -1.0],
        A_ub=np.c_[-A.T, np.ones(n)],  # v - (P^T p)_j <= 0
        b_ub=np.zeros(n),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solved.success:
        raise RuntimeError(f"linear program of the Minimax Winner was not solved: {solved.message}")
    p = np.clip(solved.x[:n], 0, None)
    return torch.as_tensor(p / p.sum(), dtype=P.dtype, device=P.device)


def duality_gap(preference: Tensor, row: Tensor, col: Tensor | None = None) -> Tensor:
    r"""How much the two players could still gain, :math:`\max_i (Pq)_i - \min_j (P^\top p)_j`.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.
    row : Tensor, shape (n,), floating
        Mixed strategy p of the maximising player.
    col : Tensor, shape (n,), floating, optional
        Mixed strategy q of the minimising player; `row` when left out.

    Returns
    -------
    Tensor, shape ()
        In [0, 4] up to rounding, in the dtype of `preference`; zero exactly at an
        equilibrium. For ``col = row`` it is :math:`2 \max_i (P p)_i`.

    Raises
    ------
    TypeError, ValueError
        As `validate_preference`; `row` or `col` is no probability vector of length n.

    Notes
    -----
    Source: eq-self_play-gap. A small gap does not mean a small distance to the winner.
    """
    P = validate_preference(preference)
    p = _checks.distribution("row", row, len(P)).to(P)
    q = p if col is None else _checks.distribution("col", col, len(P)).to(P)
    return (P @ q).max() - (P.T @ p).min()


def fit_bradley_terry(
    preference: Tensor, *, ridge: float = 1e-3, max_iter: int = 200, tol: float = 1e-12
) -> Tensor:
    r"""Reward of each option by ridge-penalised Bradley-Terry maximum likelihood.

    .. math:: \max_r\ &\sum_{i<j} \bigl[w_{ij}\log\sigma(r_i - r_j) + (1-w_{ij})\log\sigma(r_j - r_i)\bigr] \\
       &- \tfrac{\lambda}{2}\lVert r\rVert^2, \qquad w = (1+P)/2

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        As in `validate_preference`.
    ridge : float, default 1e-3
        :math:`\lambda > 0`. It fixes the free shift of r and keeps certain wins finite.
    max_iter : int, default 200
        Limit of Newton steps.
    tol : float, default 1e-12
        Stop when a Newton step changes r by at most ``tol * (1 + max|r|)``.

    Returns
    -------
    Tensor, shape (n,)
        Rewards with mean zero, in the dtype of `preference` (computed in double precision).

    Raises
    ------
    TypeError, ValueError
        As `validate_preference`; `ridge` or `tol` not positive, ``max_iter < 1``.

    Warns
    -----
    RuntimeWarning
        `max_iter` was reached first.

    Notes
    -----
    Source: eq-self_play-bradleyterry. Newton with step halving; the objective is strictly
    concave. The policy of the reward-model view is the argmax of the result.
    """
    P = validate_preference(preference)
    ridge, tol = _checks.positive("ridge", ridge), _checks.positive("tol", tol)
    max_iter = _checks.whole("max_iter", max_iter, 1)
    w = (1 + _checks.working(P)) / 2
    n = len(w)
    eye = torch.eye(n, dtype=w.dtype, device=w.device)
    off = 1 - eye
    r = w.new_zeros(n)
    value = _log_likelihood(w, off, r, ridge)
    for _ in range(max_iter):
        s = torch.sigmoid(r[:, None] - r[None, :])
        gradient = ((w - s) * off).sum(1) - ridge * r
        curvature = s * (1 - s) * off
        step = torch.linalg.solve(torch.diag(curvature.sum(1)) - curvature + ridge * eye, gradient)
        scale = 1.0
        while scale > 1e-12:  # halve until the likelihood does not fall by more than rounding
            proposal = r + scale * step
            proposed = _log_likelihood(w, off, proposal, ridge)
            if proposed >= value - 1e-13 * (1 + value.abs()):
                break
            scale /= 2
        r, value = proposal, proposed
        if (scale * step).abs().max() <= tol * (1 + r.abs().max()):
            return r.to(P.dtype)
    warnings.warn(
        f"Bradley-Terry fit stopped after max_iter = {max_iter} Newton steps before reaching tol = {tol:g}",
        RuntimeWarning,
        stacklevel=2,
    )
    return r.to(P.dtype)


def _log_likelihood(w: Tensor, off: Tensor, r: Tensor, ridge: float) -> Tensor:
    """Value of the objective; each unordered pair appears twice in the sum, hence the half."""
    d = r[:, None] - r[None, :]
    both = w * torch.nn.functional.logsigmoid(d) + (1 - w) * torch.nn.functional.logsigmoid(-d)
    return (both * off).sum() / 2 - ridge / 2 * r.square().sum()
