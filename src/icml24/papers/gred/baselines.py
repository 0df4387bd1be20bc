r"""What GRED is compared with: the same ways in and out, other layers.

Compared models start from embeddings of unit size, which suited them better in a pilot than the small
ones of GRED. GIN and GCN see neighbours, one hop a layer. GIN normalises *after* its sum, which made it
better on molecules in a pilot than normalising before; on constant features that hides the degree, so
this GIN is not quite as strong as the original. The transformer sees everybody and no distance: its only
knowledge of the graph is the mean edge vector added at the input. `TanhModel` is GRED with a dense tanh
recurrence, the ablation. `PairAttention` keeps a vector for every pair of nodes, the costly ingredient of
the strongest graph transformers; it is here to be timed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layer import EPS, GREDLayer, gelu, linear
from .model import GREDModel

__all__ = ["GCN", "GIN", "AttentionLayer", "PairAttention", "TanhModel", "Transformer", "parameter_count"]


class GINLayer(nn.Module):
    """h + MLP(LN((1 + eps) h + sum of the neighbours))."""

    def __init__(self, dim: int, generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros((), dtype=dtype))
        self.norm = nn.LayerNorm(dim, eps=EPS, dtype=dtype)
        self.inner = linear(dim, 2 * dim, generator, dtype)
        self.outer = linear(2 * dim, dim, generator, dtype)

    def forward(self, h: Tensor, masks: Tensor) -> Tensor:
        """Nodes (B, N, H) and masks of hops 0 and 1 at least."""
        total = (1 + self.eps) * h + masks[:, 1] @ h
        return h + self.outer(gelu(self.inner(self.norm(total))))


class GCNLayer(nn.Module):
    """h + gelu(W LN(symmetrically normalised mean over the neighbours and oneself))."""

    def __init__(self, dim: int, generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=EPS, dtype=dtype)
        self.map = linear(dim, dim, generator, dtype)

    def forward(self, h: Tensor, masks: Tensor) -> Tensor:
        """Nodes (B, N, H) and masks of hops 0 and 1 at least."""
        loops = masks[:, 0] + masks[:, 1]
        scale = loops.sum(dim=2, keepdim=True).rsqrt()
        return h + gelu(self.map(self.norm(scale * (loops @ (scale * h)))))


class AttentionLayer(nn.Module):
    """Pre-norm attention with four heads, then an MLP of twice the width."""

    def __init__(
        self, dim: int, generator: torch.Generator | None, dtype: torch.dtype, heads: int = 4
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=EPS, dtype=dtype)
        self.norm2 = nn.LayerNorm(dim, eps=EPS, dtype=dtype)
        self.qkv = linear(dim, 3 * dim, generator, dtype)
        self.out = linear(dim, dim, generator, dtype)
        self.inner = linear(dim, 2 * dim, generator, dtype)
        self.outer = linear(2 * dim, dim, generator, dtype)

    def forward(self, h: Tensor, real: Tensor | None) -> Tensor:
        """Nodes (B, N, H) and the mask (B, N) of nodes that may be attended to."""
        q, k, v = self.qkv(self.norm1(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        allowed = None if real is None else real[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        return h + self.outer(gelu(self.inner(self.norm2(h))))


class PairAttention(nn.Module):
    """Attention whose scores come from a vector for each pair, which the layer updates as well."""

    def __init__(self, dim: int, generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=EPS, dtype=dtype)
        self.qkv = linear(dim, 3 * dim, generator, dtype)
        self.pair = linear(dim, dim, generator, dtype)
        self.score = linear(dim, 1, generator, dtype)
        self.out = linear(dim, dim, generator, dtype)

    def forward(self, h: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes (B, N, H) and pairs (B, N, N, H); both, updated."""
        q, k, v = self.qkv(self.norm(h)).chunk(3, dim=-1)
        pairs = pairs + gelu((q[:, :, None] + k[:, None]) * self.pair(pairs))
        weight = torch.softmax(self.score(pairs).squeeze(-1), dim=-1)
        return h + self.out(weight @ v), pairs


class TanhLayer(GREDLayer):
    """A GRED layer in which a dense tanh recurrence reads the hops."""

    def __init__(self, dim_h: int, dim_v: int, generator: torch.Generator | None, dtype: torch.dtype) -> None:
        super().__init__(dim_h, dim_v, generator=generator, dtype=dtype)
        self.lru = None
        self.read_norm = nn.LayerNorm(dim_h, eps=EPS, dtype=dtype)
        # a complex channel has two numbers: 2 V real ones keep the state as large
        self.enter = linear(dim_h, 2 * dim_v, generator, dtype)
        self.recur = linear(2 * dim_v, 2 * dim_v, generator, dtype)
        self.leave = linear(2 * dim_v, dim_h, generator, dtype)
        self.value = linear(dim_h, dim_h, generator, dtype)
        self.gate = linear(dim_h, dim_h, generator, dtype)

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """As `GREDLayer`."""
        hops = self.aggregate(x, masks)
        inputs = self.enter(self.read_norm(hops)).unbind(1)
        state = torch.tanh(inputs[-1])
        for here in reversed(inputs[:-1]):
            state = torch.tanh(self.recur(state) + here)
        y = gelu(self.leave(state))
        return hops[:, 0] + self.value(y) * torch.sigmoid(self.gate(y))


class GIN(GREDModel):
    """Sums over neighbours, one hop a layer."""

    embedding_std = 1.0

    def _make_layer(self, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Module:
        return GINLayer(self.config.dim_h, generator, dtype)


class GCN(GREDModel):
    """Normalised means over neighbours, one hop a layer."""

    embedding_std = 1.0

    def _make_layer(self, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Module:
        return GCNLayer(self.config.dim_h, generator, dtype)


class Transformer(GREDModel):
    """Attention to every node, without positional encoding."""

    embedding_std = 1.0

    def _make_layer(self, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Module:
        return AttentionLayer(self.config.dim_h, generator, dtype)

    def _apply_layer(self, layer: nn.Module, h: Tensor, hops: Tensor, node_mask: Tensor | None) -> Tensor:
        del hops
        return layer(h, node_mask)


class TanhModel(GREDModel):
    """GRED with a dense tanh recurrence."""

    def _make_layer(self, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Module:
        return TanhLayer(self.config.dim_h, self.config.dim_v, generator, dtype)


def parameter_count(model: nn.Module) -> int:
    """Number of learned values."""
    return sum(p.numel() for p in model.parameters())
