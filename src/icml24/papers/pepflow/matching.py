r"""Flow matching where everything is known: a few points on a line (eq-pepflow-cfm).

Noise is :math:`x_0 \sim \mathcal N(0, \sigma^2)`, data are points with weights, paths are straight.
Then the marginal field, which no network ever sees, has a closed form.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["binned_field", "conditional_draws", "marginal_field"]


def marginal_field(x: Tensor, t: float, points: Tensor, weights: Tensor, sigma: float = 1.0) -> Tensor:
    r"""Posterior mean of the conditional fields :math:`(x^1 - x)/(1-t)`.

    The posterior weight of point `i` is proportional to
    :math:`w_i\,\mathcal N(x; t\,x^1_i, (1-t)^2\sigma^2)`.

    Parameters
    ----------
    x : Tensor, shape (n,)
    t : float
        In [0, 1).
    points, weights : Tensor, shape (k,)
    sigma : float, default 1.0

    Returns
    -------
    Tensor, shape (n,)

    Raises
    ------
    ValueError
        `t` outside [0, 1).
    """
    if not 0 <= t < 1:
        raise ValueError(f"t must lie in [0, 1); got {t}")
    gap = x.unsqueeze(-1) - t * points
    posterior = torch.softmax(weights.log() - gap.square() / (2 * ((1 - t) * sigma) ** 2), dim=-1)
    return (posterior * (points - x.unsqueeze(-1)) / (1 - t)).sum(-1)


def conditional_draws(
    n: int, t: float, points: Tensor, weights: Tensor, sigma: float = 1.0, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw what a network is trained on: positions `x_t` and targets ``x1 - x0``, (n,) each."""
    x1 = points[torch.multinomial(weights, n, replacement=True, generator=generator)]
    x0 = sigma * torch.randn(n, generator=generator, dtype=points.dtype)
    return (1 - t) * x0 + t * x1, x1 - x0


def binned_field(xt: Tensor, target: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Least-squares regression of the targets on indicator functions of bins: mean x, mean, its s.e.

    Parameters
    ----------
    xt, target : Tensor, shape (n,)
    edges : Tensor, shape (k + 1,)

    Returns
    -------
    x, mean, error : Tensor, shape (k,)
        NaN in empty bins.
    """
    which = torch.bucketize(xt, edges) - 1
    inside = (which >= 0) & (which < len(edges) - 1)
    which, xt, target = which[inside], xt[inside], target[inside]
    k = len(edges) - 1
    count = torch.bincount(which, minlength=k).to(xt)
    total = lambda v: torch.bincount(which, v, minlength=k) / count  # noqa: E731
    mean = total(target)
    return total(xt), mean, ((total(target.square()) - mean.square()) / count).sqrt()
