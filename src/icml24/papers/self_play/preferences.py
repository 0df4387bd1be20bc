r"""Preference functions: antisymmetric numbers in [-1, 1] that say who wins, and how surely.

With :math:`w(\xi, \xi')` the probability that trajectory :math:`\xi` is preferred,
:math:`\mathcal P(\xi, \xi') = 2 w(\xi, \xi') - 1`. Nothing here assumes that the
preferences come from a reward, that they are transitive, or that they look at a
trajectory step by step. Equations: eq-self_play-antisymmetry, eq-self_play-populations,
eq-self_play-constrained.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.papers.self_play import _checks

__all__ = [
    "aggregate_preferences",
    "bradley_terry_preference",
    "constrained_preference",
    "max_return_preference",
    "preference_from_probability",
    "sample_preference",
    "validate_preference",
]


def validate_preference(preference: Tensor, *, atol: float = 1e-6) -> Tensor:
    r"""Return `preference` itself if it is a preference matrix, else say what is wrong.

    Parameters
    ----------
    preference : Tensor, shape (n, n), floating
        ``preference[i, j]`` in [-1, 1]: positive when option i is preferred to j.
    atol : float, default 1e-6
        Slack for the range and for :math:`P + P^\top = 0`.

    Returns
    -------
    Tensor
        The same object.

    Raises
    ------
    TypeError
        Not a floating point tensor.
    ValueError
        Not square, empty, non-finite, outside [-1, 1], or not antisymmetric (which
        includes a diagonal that is not zero).

    Notes
    -----
    Source: eq-self_play-antisymmetry. Many later papers use win probabilities in
    [0, 1]; see `preference_from_probability`.
    """
    P = _checks.floating("preference", preference)
    if P.ndim != 2 or P.shape[0] != P.shape[1]:
        raise ValueError(f"preference must be a square matrix; got shape {tuple(P.shape)}")
    if P.shape[0] == 0:
        raise ValueError("preference is empty: expected at least one option")
    if not torch.isfinite(P).all():
        raise ValueError("preference must be finite; got NaN or infinite entries")
    largest = P.abs().max().item()
    if largest > 1 + atol:
        raise ValueError(
            f"preference must lie in [-1, 1]; its largest magnitude is {largest:.6g} "
            "(for win probabilities in [0, 1] use preference_from_probability)"
        )
    skew = (P + P.T).abs().max().item()
    if skew > atol:
        raise ValueError(
            f"preference must be antisymmetric, P[i, j] = -P[j, i]; |P + P.T| reaches {skew:.3g}, allowed {atol:.3g}"
        )
    return preference


def preference_from_probability(probability: Tensor) -> Tensor:
    r"""Preference matrix :math:`P = 2 w - 1` from win probabilities.

    Parameters
    ----------
    probability : Tensor, shape (n, n), floating
        ``probability[i, j]``: how often i beats j, in [0, 1], with
        :math:`w + w^\top = 1` (so the diagonal is one half).

    Returns
    -------
    Tensor, shape (n, n)
        Same dtype and device.

    Raises
    ------
    TypeError
        Not a floating point tensor.
    ValueError
        Outside [0, 1] or :math:`w_{ij} + w_{ji} \ne 1` by more than 5e-7 (what `validate_preference`
        then allows the result: 1e-6).
    """
    w = _checks.floating("probability", probability)
    if w.ndim != 2 or w.shape[0] != w.shape[1] or w.shape[0] == 0:
        raise ValueError(f"probability must be a non-empty square matrix; got shape {tuple(w.shape)}")
    if not torch.isfinite(w).all() or (w < -5e-7).any() or (w > 1 + 5e-7).any():
        raise ValueError("probability must lie in [0, 1]; a preference in [-1, 1] needs no conversion")
    gap = (w + w.T - 1).abs().max().item()
    if gap > 5e-7:
        raise ValueError(
            f"probability must satisfy w[i, j] + w[j, i] = 1 (diagonal 0.5); it is off by {gap:.3g}"
        )
    return (2 * w - 1).clamp(-1, 1)


def aggregate_preferences(rankings: Tensor, weights: Tensor) -> Tensor:
    r"""Preference of a population whose groups each rank the options.

    .. math:: P_{ij} = \sum_k w_k \,\bigl(2\,[\,i \text{ before } j \text{ in ranking } k\,] - 1\bigr),
       \qquad P_{ii} = 0

    Parameters
    ----------
    rankings : Tensor, shape (K, n), integer
        Row k lists the *options by rank*, best first (not the ranks by option).
    weights : Tensor, shape (K,), floating
        Share of each group; non-negative, sums to 1.

    Returns
    -------
    Tensor, shape (n, n)
        In the dtype of `weights`; exactly antisymmetric.

    Raises
    ------
    TypeError
        `rankings` is not an integer tensor or `weights` not a floating point one.
    ValueError
        A row is not a permutation of 0..n-1, shapes disagree, or `weights` is no
        probability vector.

    Notes
    -----
    Source: eq-self_play-populations. Each group is transitive; the mixture need not be.

    Examples
    --------
    >>> rankings = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    >>> aggregate_preferences(rankings, torch.tensor([0.5, 0.25, 0.25]))
    tensor([[ 0.0000,  0.5000,  0.0000],
            [-0.5000,  0.0000,  0.5000],
            [ 0.0000, -0.5000,  0.0000]])
    """
    if not isinstance(rankings, Tensor) or rankings.dtype.is_floating_point or rankings.dtype == torch.bool:
        raise TypeError("rankings must be an integer tensor of option numbers, best first")
    if rankings.ndim != 2 or 0 in rankings.shape:
        raise ValueError(
            f"rankings must have shape (groups, options), both >= 1; got {tuple(rankings.shape)}"
        )
    groups, options = rankings.shape
    _checks.distribution("weights", weights, groups)
    ordered = torch.arange(options, device=rankings.device).expand(groups, options)
    bad = (rankings.sort(dim=1).values != ordered).any(dim=1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"rankings[{row}] = {rankings[row].tolist()} is not a permutation of 0..{options - 1} (each option once)"
        )
    rank = rankings.argsort(dim=1).to(weights.device)  # the inverse: rank[k, i] is the place of option i
    before = torch.sign(rank[:, None, :] - rank[:, :, None]).to(weights.dtype)  # +1 where i stands before j
    return torch.einsum("k,kij->ij", weights, before).clamp(-1, 1)


def max_return_preference(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    r"""Prefer the trajectory with the larger return: :math:`\operatorname{sign}(R(\xi) - R(\xi'))`.

    Parameters
    ----------
    rewards_a : Tensor, shape (A, H), floating
        Rewards of one trajectory a row.
    rewards_b : Tensor, shape (B, H), floating
        Its opponents.

    Returns
    -------
    Tensor, shape (A, B)
        -1, 0 (a tie) or 1. Memory is O(AB): rewards are summed before they are compared.

    Raises
    ------
    TypeError, ValueError
        Not floating point, not two-dimensional, without steps, or non-finite.
    """
    a, b = _returns(rewards_a, rewards_b)
    return torch.sign(a[:, None] - b[None, :])


def bradley_terry_preference(rewards_a: Tensor, rewards_b: Tensor, *, temperature: float = 1.0) -> Tensor:
    r"""Expected preference of a noisy judge: :math:`\tanh\bigl((R(\xi) - R(\xi')) / 2\tau\bigr)`.

    It is :math:`2\sigma((R - R')/\tau) - 1`; `sample_preference` draws labels from it.

    Parameters
    ----------
    rewards_a, rewards_b : Tensor, shapes (A, H) and (B, H), floating
        Rewards of one trajectory a row.
    temperature : float, default 1.0
        :math:`\tau > 0`, in units of return; large means noisy.

    Returns
    -------
    Tensor, shape (A, B)
        In (-1, 1).

    Raises
    ------
    ValueError
        ``temperature <= 0`` or rewards as in `max_return_preference`.
    """
    temperature = _checks.positive("temperature", temperature)
    a, b = _returns(rewards_a, rewards_b)
    return torch.tanh((a[:, None] - b[None, :]) / (2 * temperature))


def constrained_preference(
    rewards_a: Tensor, rewards_b: Tensor, *, split: float = 0.75, threshold: float = 0.0
) -> Tensor:
    r"""Prefer a large early return among trajectories whose late return stays low.

    With :math:`k = \operatorname{round}(\text{split}\cdot H)`, let A be the return of steps
    0..k-1 and C that of the rest. A trajectory with :math:`C \le` `threshold` is feasible.
    Feasible beats infeasible; between two feasible ones the larger A wins; between two
    infeasible ones the smaller C. No sum of rewards of single steps has this order.

    Parameters
    ----------
    rewards_a, rewards_b : Tensor, shapes (A, H) and (B, H), floating
        Rewards of one trajectory a row; equal horizons.
    split : float, default 0.75
        Share of the steps in the early part; both parts must hold a step.
    threshold : float, default 0.0
        Largest allowed late return, in units of return.

    Returns
    -------
    Tensor, shape (A, B)
        -1, 0 or 1.

    Raises
    ------
    ValueError
        Horizons differ, `split` leaves a part empty, `threshold` is NaN.

    Notes
    -----
    Source: eq-self_play-constrained. Half a step is rounded to the even neighbour,
    as Python's ``round`` does (H = 50 gives k = 38).
    """
    _checks.rewards("rewards_a", rewards_a)
    _checks.rewards("rewards_b", rewards_b)
    horizon = rewards_a.shape[1]
    if rewards_b.shape[1] != horizon:
        raise ValueError(f"horizons must be equal; got {horizon} and {rewards_b.shape[1]} steps")
    if threshold != threshold:
        raise ValueError("threshold must be a number; got NaN")
    k = round(split * horizon) if abs(split) < float("inf") else 0
    if not 0 < k < horizon:
        raise ValueError(
            f"split = {split} leaves an empty part: it puts {k} of {horizon} steps first; choose 0 < split < 1"
        )
    early_a, early_b = _returns(rewards_a[:, :k], rewards_b[:, :k])
    late_a, late_b = _returns(rewards_a[:, k:], rewards_b[:, k:])
    ok_a, ok_b = (late_a <= threshold)[:, None], (late_b <= threshold)[None, :]
    by_early = torch.sign(early_a[:, None] - early_b[None, :])
    by_late = torch.sign(late_b[None, :] - late_a[:, None])
    one_sided = ok_a.to(by_early.dtype) - ok_b.to(by_early.dtype)
    return torch.where(ok_a & ok_b, by_early, torch.where(ok_a | ok_b, one_sided, by_late))


def _returns(rewards_a: Tensor, rewards_b: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the steps, in one call, so that equal rows have equal sums to the last bit."""
    _checks.rewards("rewards_a", rewards_a)
    _checks.rewards("rewards_b", rewards_b)
    if rewards_a.shape[1] != rewards_b.shape[1]:
        return rewards_a.sum(1), rewards_b.sum(1)
    totals = torch.cat([rewards_a, rewards_b]).sum(1)
    return totals[: len(rewards_a)], totals[len(rewards_a) :]


def sample_preference(preference: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Independent labels in {-1, +1} with :math:`\Pr(+1) = (1 + P)/2`, entry by entry.

    Parameters
    ----------
    preference : Tensor, any shape, floating
        Expected preferences in [-1, 1].
    generator : torch.Generator, optional
        Source of randomness. Without one a fresh generator, seeded by the operating
        system, is used; the global one is never touched.

    Returns
    -------
    Tensor
        Labels of the same shape, dtype and device. Entries (i, j) and (j, i) of a matrix
        are drawn *independently*: keep one triangle if a pair is asked once (`train` does).

    Raises
    ------
    TypeError, ValueError
        Not floating point; NaN or outside [-1, 1].
    """
    P = _checks.floating("preference", preference)
    if P.numel() and not bool((P.abs() <= 1 + 1e-6).all()):  # NaN fails the comparison, too
        raise ValueError(
            "preference must lie in [-1, 1] to draw labels from it; got NaN or a larger magnitude"
        )
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    uniform = torch.rand(P.shape, generator=generator, dtype=torch.float64, device=generator.device)
    win = uniform.to(P.device) < (1 + P.detach().double()) / 2
    return torch.where(win, 1.0, -1.0).to(P.dtype)
