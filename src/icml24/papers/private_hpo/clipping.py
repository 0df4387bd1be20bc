r"""Per-sample clipping, and the clipped sum of a linear probe without per-sample gradients.

For softmax regression the gradient of record `i` is the outer product of its residual
and its features, so its norm is the product of two vector norms. Clipping then needs
one factor a record, and the clipped sum is one matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _validate as check

__all__ = ["MODES", "clip_per_sample", "clipped_gradient_sum"]

#: Ways to bound a record's gradient.
MODES = ("abadi", "automatic", "normalize")


def clip_per_sample(
    grads: Tensor, max_norm: float = 1.0, mode: str = "abadi", *, stability: float = 0.01
) -> Tensor:
    r"""Scale each record's gradient to a Euclidean norm of at most `max_norm`.

    Parameters
    ----------
    grads : Tensor, shape (N, ...), floating
        One gradient a record; the norm is taken over all other axes.
    max_norm : float, default 1.0
        Clipping norm `C`, positive.
    mode : {"abadi", "automatic", "normalize"}
        Factor on a gradient of norm `n`: :math:`\min(1, C/n)`; :math:`C/(n + \gamma)`;
        :math:`C/n`, and 0 for a zero gradient. Only "abadi" leaves small gradients alone.
    stability : float, default 0.01
        The :math:`\gamma` of "automatic", positive.

    Returns
    -------
    Tensor, shape (N, ...)
        Same dtype and device; `grads` is not changed.

    Raises
    ------
    ValueError
        `max_norm` or `stability` not positive, unknown `mode` (the message lists them),
        `grads` not floating, without a record axis, or not finite.

    Notes
    -----
    Source: eq-private_hpo-clip and eq-private_hpo-sensitivity.

    Examples
    --------
    >>> clip_per_sample(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    _check_clip(max_norm, mode, stability)
    if not isinstance(grads, Tensor) or grads.ndim < 1 or not grads.is_floating_point():
        raise ValueError("grads must be a floating tensor of shape (N, ...), one gradient a record")
    if not torch.isfinite(grads).all():
        raise ValueError("grads must be finite; a clipped NaN or infinity would still be one")
    wide = _at_least_single(grads)
    flat = wide.flatten(1) if wide.ndim > 1 else wide.unsqueeze(1)
    factor = clip_factor(torch.linalg.vector_norm(flat, dim=1), max_norm, mode, stability)
    return (wide * factor.reshape(-1, *([1] * (wide.ndim - 1)))).to(grads.dtype)


def clipped_gradient_sum(
    weight: Tensor,
    x: Tensor,
    y: Tensor,
    max_norm: float = 1.0,
    mode: str = "abadi",
    *,
    stability: float = 0.01,
) -> Tensor:
    r"""Sum over the records of the clipped cross-entropy gradients of a linear probe.

    .. math:: S = (\operatorname{diag}(f)\, R)^{\top} X, \qquad R = \operatorname{softmax}(X W^\top) - Y

    Parameters
    ----------
    weight : Tensor, shape (K, D), floating
        The probe; no bias.
    x : Tensor, shape (N, D), same dtype
        Features, finite.
    y : Tensor, shape (N,), integer
        Labels in ``0..K-1``.
    max_norm, mode, stability
        As for `clip_per_sample`.

    Returns
    -------
    Tensor, shape (K, D)
        The *sum*, not the mean: its sensitivity to one record is `max_norm`. Same dtype;
        it carries no autograd graph.

    Raises
    ------
    ValueError
        Shapes or dtypes that do not fit, a label outside ``0..K-1``, non-finite `x` or
        `weight`, or a bad clipping argument.

    Notes
    -----
    Source: eq-private_hpo-kernel. Memory O(N (K + D)): the (N, K, D) tensor of per-sample
    gradients is never made. `_reference_clipped_gradient_sum` makes it, for the tests.
    """
    _check_clip(max_norm, mode, stability)
    check_records(x, y, _classes(weight))
    check_weight(weight, weight.shape[0], x)
    with torch.no_grad():
        w, features = _at_least_single(weight), _at_least_single(x)
        norms, targets = torch.linalg.vector_norm(features, dim=1), one_hot_columns(y, w)
        return sum_clipped(w, features, norms, targets, max_norm, mode, stability).to(x.dtype)


def sum_clipped(
    weight: Tensor, x: Tensor, x_norms: Tensor, targets: Tensor, max_norm: float, mode: str, stability: float
) -> Tensor:
    """`clipped_gradient_sum` without its checks; row norms of `x` and one-hot columns at hand.

    Classes lie along the first axis, so that every reduction over them runs along memory.
    """
    residual = torch.softmax(weight @ x.T, dim=0).sub_(targets)  # (K, N)
    norms = residual.square().sum(0).sqrt_().mul_(x_norms)  # (N,): the norm of an outer product
    residual *= clip_factor(norms, max_norm, mode, stability)
    return residual @ x  # (K, D)


def one_hot_columns(y: Tensor, weight: Tensor) -> Tensor:
    """Labels as unit columns, shape (K, N), in the dtype of `weight`."""
    targets = weight.new_zeros(len(weight), len(y))
    targets[y.long(), torch.arange(len(y), device=y.device)] = 1.0
    return targets


def clip_factor(norms: Tensor, max_norm: float, mode: str, stability: float) -> Tensor:
    """Factor on each gradient, shape (N,), from its norm."""
    limits = torch.finfo(norms.dtype)
    if mode == "automatic":
        return (max_norm / (norms + stability)).clamp_max(limits.max)
    ratio = (max_norm / norms.clamp_min(limits.tiny)).clamp_max(limits.max)
    if mode == "abadi":
        return ratio.clamp_max(1.0)
    return torch.where(norms > 0, ratio, torch.zeros_like(ratio))


def check_records(x: Tensor, y: Tensor, classes: int) -> None:
    """Refuse features and labels that are not a finite labelled data set."""
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point():
        raise ValueError("x must be a floating tensor of shape (N, D)")
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise ValueError("y must be an integer tensor of shape (N,)")
    if len(x) != len(y):
        raise ValueError(f"x and y must have one row a record; got {len(x)} rows and {len(y)} labels")
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= classes):
        raise ValueError(
            f"labels must lie in 0..{classes - 1}; got values from {int(y.min())} to {int(y.max())}"
        )
    if not torch.isfinite(x).all():
        raise ValueError("x must be finite; drop or repair the records with NaN or infinity")


def check_weight(weight: Tensor, classes: int, x: Tensor) -> None:
    """Refuse a probe that does not fit the features."""
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (classes, x.shape[1]):
        shape = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"weight must have shape (K, D) = ({classes}, {x.shape[1]}); got {shape}")
    if weight.dtype != x.dtype:
        raise ValueError(f"weight and x must have one dtype; got {weight.dtype} and {x.dtype}")
    if not torch.isfinite(weight).all():
        raise ValueError("weight must be finite")


def _at_least_single(values: Tensor) -> Tensor:
    # half-precision norms overflow at 65504, and would clip a large record to nothing
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _classes(weight: Tensor) -> int:
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        raise ValueError("weight must be a floating tensor of shape (K, D)")
    return int(weight.shape[0])


def _check_clip(max_norm: float, mode: str, stability: float) -> None:
    check.positive("max_norm", max_norm)
    check.positive("stability", stability)
    if mode not in MODES:
        raise ValueError(f"unknown clipping mode {mode!r}; expected one of {list(MODES)}")


def _reference_clipped_gradient_sum(
    weight: Tensor,
    x: Tensor,
    y: Tensor,
    max_norm: float = 1.0,
    mode: str = "abadi",
    *,
    stability: float = 0.01,
) -> Tensor:
    """The same sum with every per-sample gradient made: one line an equation, slow."""
    residual = torch.softmax(x @ weight.T, dim=1) - torch.nn.functional.one_hot(y, len(weight)).to(x.dtype)
    per_sample = residual.unsqueeze(2) * x.unsqueeze(1)  # (N, K, D)
    return clip_per_sample(per_sample, max_norm, mode, stability=stability).sum(0)
