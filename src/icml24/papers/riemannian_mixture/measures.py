r"""How a trained model is judged: likelihoods of rows, paired differences, shares of a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from icml24.common.random import numpy_generator
from icml24.common.statistics import bootstrap_interval

from .likelihoods import flow_log_likelihood
from .manifolds import Manifold
from .meshes import Mesh
from .training import Trained

__all__ = [
    "face_shares",
    "history",
    "mean_nll",
    "nll_rows",
    "off_manifold",
    "paired_gap",
    "total_variation",
]


def nll_rows(
    trained: Trained,
    manifold: Manifold,
    x: Tensor,
    ode_steps: int,
    prior_log_prob: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Negative log likelihood of each row, (n,), in nats with respect to the Riemannian volume."""
    return -flow_log_likelihood(
        trained.velocity,
        manifold,
        x,
        span=trained.span,
        n_steps=ode_steps,
        prior_log_prob=prior_log_prob,
    )[0]


def mean_nll(trained: Trained, manifold: Manifold, x: Tensor, ode_steps: int) -> float:
    """Mean of `nll_rows`."""
    return float(nll_rows(trained, manifold, x, ode_steps).mean())


def history(trained: Trained, manifold: Manifold, x: Tensor, ode_steps: int) -> dict[int, float]:
    """Mean test NLL by optimiser step: the snapshots kept on the way, then the end."""
    out = {}
    for step, velocity in trained.snapshots.items():
        logp, _ = flow_log_likelihood(velocity, manifold, x, span=trained.span, n_steps=ode_steps)
        out[step] = -float(logp.mean())
    return out | {len(trained.losses): mean_nll(trained, manifold, x, ode_steps)}


def paired_gap(ours: Sequence[Tensor], theirs: Sequence[Tensor], seed: int) -> dict[str, object]:
    r"""Mean difference of two models' NLL on the same test rows, with a 95 % bootstrap interval.

    Parameters
    ----------
    ours, theirs : sequences of Tensor, shape (n,)
        NLL of each test row, one tensor a training seed.
    seed : int

    Returns
    -------
    dict
        ``mean``, ``low``, ``high`` (nats; differences are averaged over the seeds, then the *rows*
        are resampled, so the interval tells of the test set), and ``by seed``, which tells of training.
    """
    gap = (torch.stack(list(ours)) - torch.stack(list(theirs))).double()
    low, high = bootstrap_interval(gap.mean(0).numpy(), generator=numpy_generator(seed, "paired gap"))
    return {"mean": float(gap.mean()), "low": low, "high": high, "by seed": gap.mean(1).tolist()}


def face_shares(mesh: Mesh, x: Tensor) -> Tensor:
    """Share of the points on each face, (F,)."""
    count = torch.bincount(mesh.closest_point(x)[1], minlength=len(mesh.faces)).double()
    return count / count.sum()


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of absolute differences."""
    return float((p - q).abs().sum() / 2)


def off_manifold(manifold: Manifold, x: Tensor) -> float:
    """Largest distance of float32 rows from the manifold, an entry, judged in float64.

    Relative to the size of the row where rows are long (on the hyperboloid).
    """
    wide = x.double()
    return float(
        ((manifold.project(wide) - wide).abs() / wide.abs().amax(-1, keepdim=True).clamp_min(1)).max()
    )
