r"""Networks of many runs as one stack of matrices, and the regularisers that act inside them.

A stack holds `n` networks of equal shape; a layer is one batched product. Layer norm stands
between the linear map and the ReLU, CReLU in the ReLU's place, and spectral norm divides a
matrix before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from icml24.common.checks import floating, number, whole

__all__ = ["crelu", "mlp_forward", "spectral_normalize"]


def mlp_forward(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    x: Tensor,
    *,
    norm: Sequence[tuple[Tensor, Tensor]] | None = None,
    crelu_activation: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    r"""Outputs of `n` networks of equal shape, each on its own batch.

    Parameters
    ----------
    weights : sequence of Tensor, shapes (n, in_k, out_k), floating
        With `crelu_activation`, ``in_k = 2 * out_{k-1}`` after the first layer.
    biases : sequence of Tensor, shapes (n, out_k)
    x : Tensor, shape (n, B, in_0)
    norm : sequence of (gain, bias), each of shape (n, out_k), optional
        One pair for every hidden layer: layer norm before the activation.
    crelu_activation : bool, default False
        Use `crelu` instead of ReLU.
    eps : float, default 1e-6
        Added to the variance in layer norm.

    Returns
    -------
    Tensor, shape (n, B, out_last)
        No norm or activation after the last layer.

    Raises
    ------
    ValueError
        No layers, or shapes that do not fit; the message names the layer.

    Notes
    -----
    Source: eq-actor_critic-layernorm, eq-actor_critic-crelu.
    """
    _check_stack(weights, biases, x, norm, crelu_activation)
    number("eps", eps, least=0.0)
    return _forward(weights, biases, x, norm, crelu_activation, eps)


def crelu(x: Tensor, dim: int = -1) -> Tensor:
    """Positive and negative parts side by side: ``[relu(x), relu(-x)]``.

    Parameters
    ----------
    x : Tensor, shape (..., h, ...), floating
    dim : int, default -1
        The axis that doubles.

    Returns
    -------
    Tensor, shape (..., 2h, ...)

    Notes
    -----
    Source: eq-actor_critic-crelu. The difference of the two halves is `x`, so no unit is dead.
    """
    floating("x", x)
    return torch.cat([F.relu(x), F.relu(-x)], dim)


def spectral_normalize(
    weight: Tensor, u: Tensor, *, iterations: int = 1, eps: float = 1e-12
) -> tuple[Tensor, Tensor]:
    r"""Divide each matrix by its largest singular value, as power iteration sees it.

    Parameters
    ----------
    weight : Tensor, shape (..., in, out), floating
    u : Tensor, shape (..., out)
        Current guess of the singular vector on the output side; not all zero.
    iterations : int, default 1
        Steps of power iteration; the error falls by the squared ratio of the two largest
        singular values a step.
    eps : float, default 1e-12
        Guards the norms of vectors.

    Returns
    -------
    (Tensor, Tensor)
        ``weight / sigma`` of the shape of `weight`, and the new `u` of unit norm, detached. The
        gradient flows through ``sigma = v^T W u`` with `u` and `v` held fixed.

    Raises
    ------
    ValueError
        Shapes do not fit, or ``iterations < 1``.

    Notes
    -----
    Source: eq-actor_critic-spectral.
    """
    floating("weight", weight)
    floating("u", u)
    if weight.ndim < 2 or u.shape != weight.shape[:-2] + weight.shape[-1:]:
        raise ValueError(
            "weight must have shape (..., in, out) and u shape (..., out); "
            f"got {tuple(weight.shape)} and {tuple(u.shape)}"
        )
    if not bool((u != 0).any(-1).all()):
        raise ValueError("u must not be zero: power iteration cannot leave it; start from random directions")
    whole("iterations", iterations, 1)
    number("eps", eps, least=0.0)
    return _spectral(weight, u, iterations, eps)


def _spectral(weight: Tensor, u: Tensor, iterations: int, eps: float = 1e-12) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        column = F.normalize(u.unsqueeze(-1), dim=-2, eps=eps)
        for _ in range(iterations):
            row = F.normalize(weight @ column, dim=-2, eps=eps)
            ahead = weight.mT @ row
            size = ahead.norm(dim=-2, keepdim=True)
            column = torch.where(
                size > 0, ahead / size.clamp(min=eps), column
            )  # a zero matrix keeps its guess
    sigma = row.mT @ weight @ column
    return weight / sigma.clamp(min=eps), column.squeeze(-1)


def _forward(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    x: Tensor,
    norm: Sequence[tuple[Tensor, Tensor]] | None,
    doubled: bool,
    eps: float = 1e-6,
    *,
    keep: list[Tensor] | None = None,
    dropped: Sequence[Tensor] | None = None,
    normed: range | None = None,
) -> Tensor:
    """`mlp_forward` without its checks.

    `keep` collects hidden activations, `dropped` scales units, and only the networks `normed` of
    the stack have layer norm (None: all, when `norm` is given).
    """
    last = len(weights) - 1
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = torch.baddbmm(bias.unsqueeze(-2), x, weight)
        if k == last:
            return x
        if dropped is not None:
            x = x * dropped[k]
        if norm is not None:
            x = _layer_norm(x, *norm[k], eps) if normed is None else _norm_some(x, *norm[k], eps, normed)
        x = torch.cat([F.relu(x), F.relu(-x)], -1) if doubled else F.relu(x)
        if keep is not None:
            keep.append(x)
    raise AssertionError("unreachable: a stack has at least one layer")


def _layer_norm(x: Tensor, gain: Tensor | None, shift: Tensor | None, eps: float) -> Tensor:
    x = F.layer_norm(x, x.shape[-1:], eps=eps)
    return x if gain is None else torch.addcmul(shift.unsqueeze(-2), gain.unsqueeze(-2), x)


def _norm_some(x: Tensor, gain: Tensor | None, shift: Tensor | None, eps: float, normed: range) -> Tensor:
    if len(normed) == len(x):
        return _layer_norm(x, gain, shift, eps)
    before, part, after = split_off(x, normed)
    if gain is not None:
        gain, shift = (value[normed.start : normed.stop] for value in (gain, shift))
    return torch.cat([before, _layer_norm(part, gain, shift, eps), after])


def split_off(x: Tensor, rows: range) -> tuple[Tensor, ...]:
    """Leading entries before, in and after a range; one split, whose backward pass is one concatenation."""
    return x.split([rows.start, len(rows), len(x) - rows.stop])


def _check_stack(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    x: Tensor,
    norm: Sequence[tuple[Tensor, Tensor]] | None,
    doubled: bool,
) -> None:
    if len(weights) == 0 or len(weights) != len(biases):
        raise ValueError(
            f"expected as many biases as weights, at least one; got {len(weights)} and {len(biases)}"
        )
    if floating("x", x).ndim != 3:
        raise ValueError(f"x must have shape (n, B, in); got {tuple(x.shape)}")
    if norm is not None and len(norm) != len(weights) - 1:
        raise ValueError(
            f"norm must have a pair for each of {len(weights) - 1} hidden layers; got {len(norm)}"
        )
    n, _, width = x.shape
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        floating(f"weights[{k}]", weight)
        floating(f"biases[{k}]", bias)
        if weight.ndim != 3 or weight.shape[:2] != (n, width) or bias.shape != (n, weight.shape[2]):
            raise ValueError(
                f"layer {k} must have weight ({n}, {width}, out) and bias ({n}, out); "
                f"got {tuple(weight.shape)} and {tuple(bias.shape)}"
            )
        out = weight.shape[2]
        if norm is not None and k < len(norm):
            shapes = [tuple(part.shape) for part in norm[k]]
            if shapes != [(n, out), (n, out)]:
                raise ValueError(f"norm[{k}] must be two tensors of shape ({n}, {out}); got {shapes}")
        width = 2 * out if doubled else out
