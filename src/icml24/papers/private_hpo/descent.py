r"""Private gradient descent on a linear probe: the paper's recipe for one run.

Full batch, zero start, unit clipping, momentum, last iterate. Two numbers set the privacy,
the noise multiplier and the step count; learning rate and momentum set none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _validate as check
from .clipping import _check_clip, check_records, check_weight, one_hot_columns, sum_clipped

__all__ = ["dp_gd_linear"]


def dp_gd_linear(
    x: Tensor,
    y: Tensor,
    num_classes: int,
    *,
    lr: float,
    steps: int,
    noise_multiplier: float,
    max_norm: float = 1.0,
    momentum: float = 0.9,
    clip: str = "abadi",
    weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Train a softmax probe by full-batch gradient descent with Gaussian noise.

    .. math::
        G_t = \tfrac1N \bigl(\textstyle\sum_i \bar g_i + \sigma C Z_t\bigr), \qquad
        b_t = m\, b_{t-1} + G_t, \qquad W_t = W_{t-1} - \eta\, b_t

    Parameters
    ----------
    x : Tensor, shape (N, D), floating
        Features of the private records, finite; ``N >= 1``.
    y : Tensor, shape (N,), integer
        Labels in ``0..num_classes-1``.
    num_classes : int
        `K`.
    lr : float
        Learning rate, on the *mean* gradient; zero or positive.
    steps : int
        At least 1.
    noise_multiplier : float
        `sigma`; the noise on the summed gradient has standard deviation
        ``noise_multiplier * max_norm``. Zero trains without noise, and without privacy.
    max_norm : float, default 1.0
        Clipping norm of one record's gradient.
    momentum : float, default 0.9
        In [0, 1). Works on released gradients only, so it costs no privacy.
    clip : {"abadi", "automatic", "normalize"}
        See `clip_per_sample`.
    weight : Tensor, shape (K, D), optional
        Start; zeros by default. Not changed.
    generator : torch.Generator, optional
        The only source of noise when given: one (K, D) draw a step.

    Returns
    -------
    Tensor, shape (K, D)
        The last iterate; dtype of `x`.

    Raises
    ------
    ValueError
        A bad argument; the message names it and its range.

    Notes
    -----
    Source: eq-private_hpo-noisy and eq-private_hpo-momentum. The privacy of the run is
    ``gaussian_mu(noise_multiplier, steps)``, whatever `lr` and `momentum` are.
    """
    classes = check.steps(num_classes, "num_classes")
    check_records(x, y, classes)
    if len(x) == 0:
        raise ValueError("x must hold at least one record; the noisy mean divides by their number")
    rate, count = check.nonnegative("lr", lr), check.steps(steps)
    sigma = check.nonnegative("noise_multiplier", noise_multiplier)
    _check_clip(max_norm, clip, 0.01)
    if not check.nonnegative("momentum", momentum) < 1:
        raise ValueError(f"momentum must lie in [0, 1); got {momentum!r}")
    if weight is None:
        w = x.new_zeros(classes, x.shape[1])
    else:
        check_weight(weight, classes, x)
        w = weight.detach().clone()
    with torch.no_grad():
        x_norms, targets = torch.linalg.vector_norm(x, dim=1), one_hot_columns(y, w)
        buffer = torch.zeros_like(w)  # b_0
        for _ in range(count):
            total = sum_clipped(w, x, x_norms, targets, max_norm, clip, 0.01)  # sum of clipped gradients
            if sigma > 0:
                total += sigma * max_norm * _normal(w, generator)  # sigma C Z_t, on the sum
            buffer.mul_(momentum).add_(total, alpha=1 / len(x))  # b_t = m b_{t-1} + G_t
            w.sub_(buffer, alpha=rate)
    return w


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = like.device if generator is None else generator.device
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device).to(like.device)
