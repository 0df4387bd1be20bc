r"""How far noise can carry gradient descent: the theorem behind the one hyperparameter.

The bound, the exact root-mean-square distance on a quadratic, and a simulation of it: the
bound holds for every strongly convex smooth loss, and the other two show how loose it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import _validate as check

__all__ = ["contraction_factor", "noisy_radius_bound", "rms_radius", "simulated_radius"]


def contraction_factor(lr: float, alpha: float, beta: float) -> float:
    r"""Factor by which one gradient step shrinks distances: :math:`\max(|1-\eta\alpha|, |1-\eta\beta|)`.

    Parameters
    ----------
    lr : float
        Learning rate, in (0, 2/beta): outside it the step does not contract.
    alpha, beta : float
        Strong convexity and smoothness of the loss, ``0 <= alpha <= beta``, ``beta > 0``.
        With ``alpha = 0`` the factor is 1 for every `lr`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Arguments outside these ranges.

    Notes
    -----
    Source: eq-private_hpo-contraction.
    """
    rate, low, high = (
        check.positive("lr", lr),
        check.nonnegative("alpha", alpha),
        check.positive("beta", beta),
    )
    if low > high:
        raise ValueError(
            f"alpha must not exceed beta (strong convexity, smoothness); got {alpha!r} > {beta!r}"
        )
    if not rate < 2 / high:
        raise ValueError(
            f"lr must lie in (0, 2/beta) = (0, {2 / high:g}) for the step to contract; got {lr!r}"
        )
    return max(abs(1 - rate * low), abs(1 - rate * high))


def noisy_radius_bound(rho: float, lr: float, c: float, steps: int) -> float:
    r"""Bound on the mean distance between noisy and noiseless iterates after `steps` steps.

    .. math:: \rho\, \eta \sum_{i=0}^{T-1} c^i

    Parameters
    ----------
    rho : float
        Expected norm of one step's noise, in units of the gradient; zero or positive.
    lr : float
        Learning rate, zero or positive.
    c : float
        Contraction factor, in [0, 1]; at 1 the bound is :math:`\rho\,\eta\,T`.
    steps : int
        At least 1.

    Returns
    -------
    float
        In units of the weights.

    Raises
    ------
    ValueError
        Arguments outside these ranges.

    Notes
    -----
    Source: eq-private_hpo-bound. Evaluated without cancellation for `c` close to 1.
    """
    scale = check.nonnegative("rho", rho) * check.nonnegative("lr", lr)
    count = check.steps(steps)
    c = check.nonnegative("c", c)
    if c > 1:
        raise ValueError(f"c must lie in [0, 1] (a contraction factor); got {c!r}")
    if c == 1.0:
        return scale * count
    powers = -math.expm1(count * math.log(c)) if c > 0 else 1.0  # 1 - c^T
    return scale * powers / (1 - c)


def rms_radius(spectrum: Tensor, lr: float, sigma: float, steps: int) -> float:
    r"""Root of the exact mean square distance on a quadratic.

    .. math:: \Bigl(\eta^2\sigma^2 \sum_j \frac{1 - (1-\eta h_j)^{2T}}{1 - (1-\eta h_j)^2}\Bigr)^{1/2}

    Parameters
    ----------
    spectrum : Tensor, shape (d,)
        Eigenvalues :math:`h_j` of the Hessian, with :math:`0 \le h_j < 2/\eta`.
    lr : float
        Learning rate, positive.
    sigma : float
        Noise standard deviation of one coordinate of one step, in units of the gradient.
    steps : int
        At least 1.

    Returns
    -------
    float
        In units of the weights.

    Notes
    -----
    Source: eq-private_hpo-quadratic.
    """
    square = (1 - lr * spectrum.double()) ** 2
    flat = square == 1  # a flat direction accumulates every step
    total = torch.where(flat, float(steps), (1 - square**steps) / torch.where(flat, 1.0, 1 - square))
    return lr * sigma * math.sqrt(float(total.sum()))


def simulated_radius(
    spectrum: Tensor, lr: float, sigma: float, steps: int, draws: int, generator: torch.Generator
) -> Tensor:
    """Mean distance of noisy from noiseless iterates on a quadratic, by simulation.

    Parameters
    ----------
    spectrum, lr, sigma, steps
        As for `rms_radius`.
    draws : int
        Independent noisy runs.
    generator : torch.Generator
        The only source of noise.

    Returns
    -------
    Tensor, shape (steps,), float64
        Mean distance after each step. The loss is a quadratic, so the distance follows the
        same recursion wherever the two runs start.
    """
    spectrum = spectrum.double()
    gap = torch.zeros(draws, len(spectrum), dtype=torch.float64)
    out = []
    for _ in range(steps):
        noise = sigma * torch.randn(gap.shape, generator=generator, dtype=torch.float64)
        gap = gap - lr * (spectrum * gap + noise)
        out.append(gap.norm(dim=1).mean())
    return torch.stack(out)
