r"""Low-rank updates: LoRA on a linear layer, and the same on an embedding.

An update starts at zero, so an adapted model is the model; only its factors are trained.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common.gpt import RotaryGPT

__all__ = ["LoRALinear", "LowRankEmbedding", "apply_lora"]


class LoRALinear(nn.Module):
    r"""Linear layer with a low-rank update.

    .. math:: y = W x + b + \frac{\alpha}{r}\, B A x, \qquad A \sim N(0, 1/d_\mathrm{in}), \quad B = 0

    Parameters
    ----------
    base : nn.Linear
        Kept as it is, and part of this module. Freezing it is the caller's choice (`apply_lora` does).
    rank : int
        Rank :math:`r` of the update, from 1 to ``min(in_features, out_features)``.
    alpha : float, optional
        Numerator of the scale; default `rank`, so that the scale is 1.
    generator : torch.Generator, optional
        Draws `A`.

    Attributes
    ----------
    A : Parameter, shape (rank, in_features)
    B : Parameter, shape (out_features, rank)

    Raises
    ------
    ValueError
        Rank out of range.
    """

    def __init__(
        self,
        base: nn.Linear,
        rank: int,
        *,
        alpha: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        out_features, in_features = base.weight.shape
        _check_rank(rank, in_features, out_features)
        self.base = base
        self.rank = rank
        self.scale = 1.0 if alpha is None else alpha / rank
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.A = nn.Parameter(torch.randn(rank, in_features, generator=generator, **like) * in_features**-0.5)
        self.B = nn.Parameter(torch.zeros(out_features, rank, **like))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features); the update never becomes a full matrix."""
        return self.base(x) + self.scale * F.linear(F.linear(x, self.A), self.B)

    def merged_weight(self) -> Tensor:
        """Return the one matrix that does the same, (out_features, in_features)."""
        return self.base.weight + self.scale * (self.B @ self.A)


class LowRankEmbedding(nn.Module):
    r"""Embedding with a low-rank update, :math:`E + UV`, with :math:`U = 0` and :math:`V \sim N(0, 1/d)`.

    Parameters
    ----------
    base : nn.Embedding
        Kept as it is; (V, d).
    rank : int
        From 1 to ``min(V, d)``.
    generator : torch.Generator, optional
        Draws `V`.

    Attributes
    ----------
    U : Parameter, shape (num_embeddings, rank)
    V : Parameter, shape (rank, embedding_dim)

    Raises
    ------
    ValueError
        Rank out of range.
    """

    def __init__(self, base: nn.Embedding, rank: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        words, width = base.weight.shape
        _check_rank(rank, words, width)
        self.base = base
        self.rank = rank
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.U = nn.Parameter(torch.zeros(words, rank, **like))
        self.V = nn.Parameter(torch.randn(rank, width, generator=generator, **like) * width**-0.5)

    @property
    def weight(self) -> Tensor:
        """The updated matrix, (num_embeddings, embedding_dim); what a tied output multiplies by."""
        return self.base.weight + self.U @ self.V

    def forward(self, ids: Tensor) -> Tensor:
        """Rows of the updated matrix, (...) to (..., embedding_dim)."""
        return self.base(ids) + F.embedding(ids, self.U) @ self.V


def apply_lora(
    model: RotaryGPT,
    *,
    qv_rank: int,
    embedding_rank: int = 0,
    alpha: float | None = None,
    generator: torch.Generator | None = None,
) -> list[nn.Parameter]:
    """Freeze a model and give its query and value projections, and its embedding, low-rank updates.

    Parameters
    ----------
    model : RotaryGPT
        Changed in place. The output matrix stays tied to the *updated* embedding.
    qv_rank : int
        Rank of the updates in every block.
    embedding_rank : int, default 0
        Rank of the embedding's update; 0 leaves the embedding alone.
    alpha : float, optional
        As for `LoRALinear`.
    generator : torch.Generator, optional

    Returns
    -------
    list of Parameter
        The factors, which are now all that requires a gradient.

    Raises
    ------
    ValueError
        Rank out of range (the model is unchanged), or a model that has updates already.
    """
    if isinstance(model.wte, LowRankEmbedding) or any(
        isinstance(block.attn.q, LoRALinear) for block in model.blocks
    ):
        raise ValueError("this model has low-rank updates already; adapt a copy of the plain one")
    _check_rank(qv_rank, model.config.d_model, model.config.d_model)
    if embedding_rank:
        _check_rank(embedding_rank, *model.wte.weight.shape)
    model.requires_grad_(False)
    for block in model.blocks:
        block.attn.q = LoRALinear(block.attn.q, qv_rank, alpha=alpha, generator=generator)
        block.attn.v = LoRALinear(block.attn.v, qv_rank, alpha=alpha, generator=generator)
    if embedding_rank:
        model.wte = LowRankEmbedding(model.wte, embedding_rank, generator=generator)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _check_rank(rank: int, n_in: int, n_out: int) -> None:
    if not 1 <= rank <= min(n_in, n_out):
        raise ValueError(
            f"the rank of an update of a {n_out} x {n_in} matrix lies in 1..{min(n_in, n_out)}; got {rank}"
        )
