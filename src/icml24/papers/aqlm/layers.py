r"""One layer, whole: residual k-means, then rounds of Adam and beam search until they stop paying."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate
from .beam import search
from .clusters import residual_kmeans
from .codebooks import CodebookAdam, check_betas
from .formats import QuantizedWeight, partition

__all__ = ["AQLMConfig", "quantize_layer"]

EPS = 1e-9  # added to a row's norm, so that a row of zeros can be divided by its scale


@dataclass(frozen=True)
class AQLMConfig:
    """Format and search of a layer.

    Parameters
    ----------
    num_codebooks, nbits_per_codebook : int
        M, and the bits of a code: ``2**nbits_per_codebook`` words a codebook; at most 16.
    in_group_size, out_group_size : int
        Inputs and outputs that share a code.
    kmeans_max_iter : int
        Lloyd iterations a codebook.
    beam_size : int
    adam_steps : int
        Steps a round.
    lr : float
        Of Adam. The default suits thousands of steps on wide layers; 1e-3 suits this book's.
    adam_betas : (float, float)
    amsgrad : bool
    max_rounds : int
    relative_mse_tolerance : float
        Stop when a round leaves more than ``1 - tolerance`` of the best error so far; in [0, 1).

    Raises
    ------
    ValueError
        A field out of its range.
    """

    num_codebooks: int = 2
    nbits_per_codebook: int = 8
    in_group_size: int = 8
    out_group_size: int = 1
    kmeans_max_iter: int = 100
    beam_size: int = 1
    adam_steps: int = 100
    lr: float = 1e-4
    adam_betas: tuple[float, float] = (0.0, 0.95)
    amsgrad: bool = True
    max_rounds: int = 50
    relative_mse_tolerance: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type == "int":
                high = 16 if field.name == "nbits_per_codebook" else None
                checks.whole(field.name, getattr(self, field.name), 1, high)
        checks.positive("lr", self.lr)
        check_betas(self.adam_betas)
        if not 0 <= self.relative_mse_tolerance < 1:
            raise ValueError(f"relative_mse_tolerance must lie in [0, 1); got {self.relative_mse_tolerance}")


def quantize_layer(
    weight: Tensor, gram: Tensor, config: AQLMConfig, *, generator: torch.Generator | None = None
) -> QuantizedWeight:
    """Additive code of a weight matrix for inputs with a given Gram matrix.

    Parameters
    ----------
    weight : Tensor, shape (out_features, in_features), floating
    gram : Tensor, shape (in_features, in_features)
        As `activation_gram` or `GramAccumulator`; a float64 one keeps the errors in float64.
    config : AQLMConfig
    generator : torch.Generator, optional
        Draws first centres and the order of the beam search; without it the centres are those of
        `kmeans` without one, and the order is the natural one.

    Returns
    -------
    QuantizedWeight
        Codebooks and scales in the dtype of `weight`; ``history`` holds the error at the start of
        every round, the one that stopped included, and the last one when the rounds run out.

    Raises
    ------
    ValueError
        Group sizes that do not divide the features, more words than blocks, shapes that do not fit,
        values that are not finite.
    FloatingPointError
        The error is not finite during Adam.

    Notes
    -----
    Source: the paper's algorithm 1, lines 6-12, in the order of the released code: Adam first, and
    the test for stopping before the first step of a round. One Adam state serves all rounds.
    """
    start = initial_code(weight, gram, config, generator)
    return alternate(weight, *start, gram, config, generator)


def initial_code(
    weight: Tensor, gram: Tensor, config: AQLMConfig, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, codebooks and scales before the first round: norms, then residual k-means."""
    _validate.layer(weight, gram)
    g_out, g_in = config.out_group_size, config.in_group_size
    _validate.divides("in_group_size", g_in, weight.shape[1], "in_features")
    _validate.divides("out_group_size", g_out, weight.shape[0], "out_features")
    parts = partition(weight.detach(), g_out, g_in)
    scales = parts.square().sum((1, 2, 3), keepdim=True).sqrt() + EPS
    data = (parts / scales).flatten(2).flatten(0, 1)
    books, codes = residual_kmeans(
        data,
        config.num_codebooks,
        2**config.nbits_per_codebook,
        max_iter=config.kmeans_max_iter,
        generator=generator,
    )
    return codes.view(*parts.shape[:2], -1), books.unflatten(2, (g_out, g_in)), scales


def alternate(
    weight: Tensor,
    codes: Tensor,
    codebooks: Tensor,
    scales: Tensor,
    gram: Tensor,
    config: AQLMConfig,
    generator: torch.Generator | None,
) -> QuantizedWeight:
    """Rounds of Adam and beam search from a given start."""
    state = CodebookAdam(
        *(weight, codebooks, scales, gram), lr=config.lr, betas=config.adam_betas, amsgrad=config.amsgrad
    )
    narrow, w = gram.to(state.codebooks.dtype), weight.detach()
    history, best = [], math.inf
    for _ in range(config.max_rounds):
        history.append(float(state.error(codes)[0]))
        if history[-1] == 0 or history[-1] / best > 1 - config.relative_mse_tolerance:
            break
        best = min(best, history[-1])
        for _ in range(config.adam_steps):
            state.step(codes)
        codes = search(w, codes, state.codebooks, state.scales, narrow, config.beam_size, generator)
    else:
        history.append(float(state.error(codes)[0]))
    return QuantizedWeight(codes, state.codebooks, state.scales, history)
