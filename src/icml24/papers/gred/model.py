r"""Models of three kinds of graphs: a way in, a stack of layers, a way out.

========== ============================================ ============== =========================
task        way in                                       read-out       way out
========== ============================================ ============== =========================
zinc        embedded token, mean of edge vectors         sum            two affine maps
superpixel  two affine maps                              mean           one affine map
sbm         embedded token                               none (nodes)   one affine map
========== ============================================ ============== =========================
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from icml24.common.checks import WrongType, whole

from .layer import GREDConfig, GREDLayer, check_nodes, gelu, linear, parameter_dtype, same_dtype

__all__ = ["EDGE_TYPES", "TASKS", "VOCABULARY", "GREDModel"]

TASKS = ("zinc", "superpixel", "sbm")
#: Number of node tokens where `in_dim` does not say otherwise.
VOCABULARY = {"zinc": 28, "sbm": 7}
EDGE_TYPES = 4


class GREDModel(nn.Module):
    r"""Embedding, layers and read-out for one of three tasks.

    Parameters
    ----------
    config : GREDConfig
    task : {"zinc", "superpixel", "sbm"}
    out_dim : int
        Targets of a graph, or classes.
    in_dim : int, optional
        Features of a superpixel (required there); for the other tasks the number of node tokens
        (28 for zinc, 7 for sbm by default).
    generator : torch.Generator, optional
        Source of the initial values, and later of dropout; None is torch's global generator.
    dtype : torch.dtype, optional

    Raises
    ------
    ValueError
        Unknown task, ``superpixel`` without `in_dim`, sizes below one.
    """

    #: Standard deviation of the embeddings' start.
    embedding_std: ClassVar[float] = 0.01

    def __init__(
        self,
        config: GREDConfig,
        *,
        task: str,
        out_dim: int,
        in_dim: int | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(config, GREDConfig):
            raise WrongType(f"config must be a GREDConfig; got {type(config).__name__}")
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}; expected one of {', '.join(TASKS)}")
        if in_dim is None and task == "superpixel":
            raise ValueError("task 'superpixel' needs in_dim, the number of features of a node")
        self.config, self.task = config, task
        self.out_dim = whole("out_dim", out_dim, 1)
        self.in_dim = VOCABULARY[task] if in_dim is None else whole("in_dim", in_dim, 1)
        dtype = parameter_dtype(dtype)
        d = config.dim_h
        if task == "superpixel":
            self.embed, self.embed_edge = None, None
            dense = [(self.in_dim, d), (d, d), (d, out_dim)]
        else:
            self.embed = _embedding(self.in_dim, d, self.embedding_std, generator, dtype)
            self.embed_edge = (
                _embedding(EDGE_TYPES, d, self.embedding_std, generator, dtype) if task == "zinc" else None
            )
            dense = [(d, d), (d, d), (d, d), (d, out_dim)] if task == "zinc" else [(d, out_dim)]
        self.dense = nn.ModuleList(linear(*size, generator, dtype) for size in dense)
        self.layers = nn.ModuleList(self._make_layer(generator, dtype) for _ in range(config.num_layers))

    def forward(
        self, x: Tensor, masks: Tensor, node_mask: Tensor | None = None, edge: Tensor | None = None
    ) -> Tensor:
        r"""Predictions.

        Parameters
        ----------
        x : Tensor
            Tokens (B, N), integer, for zinc and sbm; features (B, N, in_dim) for superpixel.
        masks : Tensor, shape (B, K+1, N, N), bool or floating
            From `hop_masks`; hops beyond ``config.num_hops`` are left out.
        node_mask : Tensor, shape (B, N), bool
            Real nodes; required by zinc and superpixel, not used by sbm.
        edge : Tensor, shape (B, N, N), integer
            Edge types in 0..3, required by zinc; read only where the distance is one.

        Returns
        -------
        Tensor, shape (B, out_dim), or (B, N, out_dim) for sbm

        Raises
        ------
        ValueError
            Something required is missing, tokens out of range, shapes that do not fit.
        """
        check_nodes(x, masks, self.in_dim if self.task == "superpixel" else None)
        hops = masks[:, : self.config.num_hops].to(self.dense[0].weight.dtype)
        if self.task == "sbm":
            h = self.embed(self._tokens(x))
        else:
            node_mask = self._real(node_mask, x.shape[:2])
            h = self._superpixels(x) if self.task == "superpixel" else self._atoms(x, masks, edge)
        for layer in self.layers:
            h = self._apply_layer(layer, h, hops, node_mask)
        if self.task == "sbm":
            return self.dense[0](h)
        pooled = torch.where(node_mask.unsqueeze(-1), h, 0).sum(dim=1)
        if self.task == "zinc":
            return self.dense[3](gelu(self.dense[2](pooled)))
        count = node_mask.sum(dim=1, keepdim=True).clamp_min(1)
        return self.dense[2](pooled / count)

    def _make_layer(self, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Module:
        c = self.config
        return GREDLayer(
            c.dim_h,
            c.dim_v,
            expand=c.expand,
            r_min=c.r_min,
            r_max=c.r_max,
            max_phase=c.max_phase,
            drop_rate=c.drop_rate,
            act=c.act,
            generator=generator,
            dtype=dtype,
        )

    def _apply_layer(self, layer: nn.Module, h: Tensor, hops: Tensor, node_mask: Tensor | None) -> Tensor:
        """One step of the stack; the models that this one is compared with differ here alone."""
        del node_mask
        return layer(h, hops)

    def _superpixels(self, x: Tensor) -> Tensor:
        same_dtype("x", x, self.dense[0].weight)
        return self.dense[1](gelu(self.dense[0](x)))

    def _atoms(self, x: Tensor, masks: Tensor, edge: Tensor | None) -> Tensor:
        """Token vectors plus the mean of the edge vectors at each node."""
        if edge is None:
            raise ValueError("task 'zinc' needs edge, the (B,N,N) types of the edges")
        if masks.shape[1] < 2 and self.config.num_hops == 1:
            raise ValueError("task 'zinc' needs masks of hops 0 and 1 to find the edges; got hop 0 alone")
        if not isinstance(edge, Tensor) or edge.shape != masks[:, 0].shape or edge.is_floating_point():
            got = (tuple(edge.shape), edge.dtype) if isinstance(edge, Tensor) else type(edge).__name__
            raise ValueError(f"edge must be an integer tensor {tuple(masks[:, 0].shape)}; got {got}")
        # fewer hops than the model reads: the masks hold all there are, and nobody has a neighbour
        near = masks[:, 1] != 0 if masks.shape[1] > 1 else torch.zeros_like(masks[:, 0], dtype=torch.bool)
        types = torch.stack([((edge == t) & near).sum(dim=2) for t in range(EDGE_TYPES)], dim=-1)
        degree = near.sum(dim=2, keepdim=True)
        if not torch.equal(types.sum(dim=-1, keepdim=True), degree):
            raise ValueError(f"edge types must lie in 0..{EDGE_TYPES - 1} wherever the distance is one")
        # the mean over edges of Dense(gelu(Embed(type))) needs the four vectors once, not N^2 times
        vectors = self.dense[1](gelu(self.embed_edge.weight))
        share = types.to(vectors.dtype) / degree.clamp_min(1)
        return self.dense[0](gelu(self.embed(self._tokens(x)))) + share @ vectors

    def _tokens(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise WrongType(f"tokens must have an integer dtype; got {x.dtype}")
        if x.numel() and not (int(x.min()) >= 0 and int(x.max()) < self.in_dim):
            raise ValueError(
                f"tokens must lie in 0..{self.in_dim - 1}; got {int(x.min())} to {int(x.max())}: "
                "in_dim sets their number"
            )
        return x.long()

    def _real(self, node_mask: Tensor | None, shape: torch.Size) -> Tensor:
        if node_mask is None:
            raise ValueError(f"task {self.task!r} needs node_mask, the (B,N) mask of real nodes")
        if not isinstance(node_mask, Tensor) or node_mask.shape != shape:
            got = tuple(node_mask.shape) if isinstance(node_mask, Tensor) else type(node_mask).__name__
            raise ValueError(f"node_mask must be {tuple(shape)}, as x; got {got}")
        return node_mask.bool()


def _embedding(
    count: int, width: int, std: float, generator: torch.Generator | None, dtype: torch.dtype
) -> nn.Embedding:
    out = nn.utils.skip_init(nn.Embedding, count, width, dtype=dtype)
    with torch.no_grad():
        out.weight.copy_(std * torch.randn(count, width, generator=generator, dtype=torch.float64))
    return out
