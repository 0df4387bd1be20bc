r"""What a network can still learn: units that sleep, the rank of its features, and waking units up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from icml24.common.checks import finite, floating, number
from icml24.common.random import generator as stream

__all__ = ["dormant_mask", "dormant_ratio", "effective_rank", "recycle_dormant"]

#: Guard of the mean score, as in the community code of ReDo.
GUARD = 1e-9


def dormant_mask(activation: Tensor, tau: float = 0.025) -> Tensor:
    r"""Units whose mean absolute activation is at most `tau` times their layer's.

    Parameters
    ----------
    activation : Tensor, shape (B, width), floating
        Activations of one layer on a batch.
    tau : float, default 0.025
        Threshold on the score; 0 keeps only units that never fire.

    Returns
    -------
    Tensor of bool, shape (width,)

    Raises
    ------
    ValueError
        `activation` is not two-dimensional or is empty, or ``tau < 0``.

    Notes
    -----
    Source: eq-actor_critic-dormant.
    """
    if floating("activation", activation).ndim != 2 or activation.numel() == 0:
        raise ValueError(f"activation must have shape (B, width), not empty; got {tuple(activation.shape)}")
    return _scores(activation) <= number("tau", tau, least=0.0)


def dormant_ratio(activations: Sequence[Tensor], tau: float = 0.025) -> float:
    """Share of dormant units among all layers.

    Parameters
    ----------
    activations : sequence of Tensor, shapes (B, width_k)
    tau : float, default 0.025

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ValueError
        No layers, or as for `dormant_mask`.
    """
    if isinstance(activations, Tensor) or len(activations) == 0:
        raise ValueError("activations must be a sequence with one (B, width) tensor a layer, at least one")
    masks = [dormant_mask(activation, tau) for activation in activations]
    return sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def recycle_dormant(
    incoming: nn.Linear, outgoing: nn.Linear, mask: Tensor, *, generator: torch.Generator | None = None
) -> None:
    r"""Give dormant units new incoming weights and silence what they send on, in place.

    Parameters
    ----------
    incoming : nn.Linear
        Layer whose outputs are the units: their rows are drawn anew, their biases set to 0.
    outgoing : nn.Linear
        Layer that reads them: their columns become 0; its bias stays.
    mask : Tensor of bool, shape (incoming.out_features,)
        The units to recycle.
    generator : torch.Generator, optional
        Source of the new weights; None draws from a fixed stream.

    Raises
    ------
    ValueError
        The two layers do not fit together, or `mask` is not a bool for each unit.

    Notes
    -----
    Source: eq-actor_critic-recycle. New rows come from an orthogonal matrix with gain
    :math:`\sqrt 2`, the initialiser of every hidden layer here.
    """
    if incoming.out_features != outgoing.in_features:
        raise ValueError(
            f"outgoing must read the {incoming.out_features} units of incoming; it reads {outgoing.in_features}"
        )
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (incoming.out_features,):
        raise ValueError(f"mask must be a bool tensor of shape ({incoming.out_features},)")
    g = stream(0, "actor_critic", "recycle") if generator is None else generator
    with torch.no_grad():
        fresh = torch.empty_like(incoming.weight)
        nn.init.orthogonal_(fresh, gain=2**0.5, generator=g)
        incoming.weight[mask] = fresh[mask]
        if incoming.bias is not None:
            incoming.bias[mask] = 0.0
        outgoing.weight[:, mask] = 0.0


def effective_rank(features: Tensor, *, threshold: float = 0.99) -> int:
    r"""Least number of singular values that hold a share of their sum.

    Parameters
    ----------
    features : Tensor, shape (B, width), floating
        Activations of the last hidden layer on a batch.
    threshold : float in (0, 1], default 0.99

    Returns
    -------
    int
        0 for features that are all zero.

    Raises
    ------
    ValueError
        `threshold` outside (0, 1], or `features` not a finite matrix.

    Notes
    -----
    Source: eq-actor_critic-rank.
    """
    if finite("features", features).ndim != 2 or features.numel() == 0:
        raise ValueError(f"features must have shape (B, width), not empty; got {tuple(features.shape)}")
    share = number("threshold", threshold)
    if not 0 < share <= 1:
        raise ValueError(f"threshold must lie in (0, 1]; got {threshold!r}")
    values = torch.linalg.svdvals(features.detach())
    held = values.cumsum(0)
    if held[-1] == 0:
        return 0
    return min(int((held < share * held[-1]).sum()) + 1, len(held))


def _scores(activation: Tensor) -> Tensor:
    """Mean absolute activation over the layer's mean: (..., B, width) -> (..., width)."""
    size = activation.detach().abs().mean(-2)
    return size / (size.mean(-1, keepdim=True) + GUARD)
