r"""Graphs, and the exposure mapping that sums a neighbourhood's treatments up in one number.

Interference is allowed to work through one number only, the share of treated neighbours
(eq-networked_interference-exposure). An adjacency matrix may be a dense tensor, a sparse
tensor, a NumPy array or a SciPy sparse matrix; `Neighbourhoods` reads and checks it once,
so that a training loop does not do so at every step.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import _validate as check

__all__ = ["Neighbourhoods", "exposure"]


def exposure(adjacency: Any, treatment: Any) -> Tensor:
    r"""Share of treated neighbours of each unit.

    .. math:: z_i = \sum_j A_{ij} t_j \Big/ \sum_j A_{ij}

    Parameters
    ----------
    adjacency : Tensor (dense or sparse), ndarray or SciPy sparse matrix, shape (n, n)
        Non-negative weights without self loops; 0 and 1 for a plain graph. Every unit needs a neighbour.
    treatment : Tensor or array_like, shape (n,)
        0 or 1 for each unit.

    Returns
    -------
    Tensor, shape (n,)
        In [0, 1]. Dtype of `treatment` when that is floating, else of `adjacency`, else the default.

    Raises
    ------
    ValueError
        An isolated unit, a matrix that is not square or has self loops, weights that are negative
        or not finite, a treatment that is not binary or has another length.
    TypeError
        `adjacency` is none of the kinds above.

    Notes
    -----
    Source: eq-networked_interference-exposure; the paper's exposure mapping. O(edges).

    Examples
    --------
    >>> path = torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]])
    >>> exposure(path, torch.tensor([1., 0., 0.]))
    tensor([0.0000, 0.5000, 0.0000])
    """
    graph = Neighbourhoods(adjacency)
    t = check.binary("treatment", treatment, graph.size, graph.weights)
    return graph.to(t.dtype, t.device).mean(t)


class Neighbourhoods:
    r"""A graph read once: its edges, its degrees, and :math:`A + I` ready for products.

    Parameters
    ----------
    adjacency : Tensor (dense or sparse), ndarray or SciPy sparse matrix, shape (n, n)
        As for `exposure`; isolated units are allowed until a mean over neighbours is asked for.

    Attributes
    ----------
    size : int
        Number of units.
    index : Tensor, shape (2, edges)
        Receiving and sending unit of each entry of the matrix.
    weights : Tensor, shape (edges,)
        The entries.
    degree : Tensor, shape (n,)
        Row sums.
    """

    def __init__(self, adjacency: Any) -> None:
        self.index, self.weights, self.size = _entries(adjacency)
        self._finish()

    @classmethod
    def of(cls, adjacency: Any, like: Tensor) -> Neighbourhoods:
        """Read `adjacency` unless it has been read already, in the dtype and on the device of `like`."""
        graph = adjacency if isinstance(adjacency, cls) else cls(adjacency)
        return graph.to(like.dtype, like.device)

    def to(self, dtype: torch.dtype, device: torch.device) -> Neighbourhoods:
        """Return this graph in another dtype or place; itself when nothing changes."""
        if self.weights.dtype == dtype and self.weights.device == device:
            return self
        other = object.__new__(Neighbourhoods)
        other.index, other.size = self.index.to(device), self.size
        other.weights = self.weights.to(device, dtype)
        other._finish()
        return other

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean of `values`, shape (n,), over each unit's neighbours."""
        if bool((self.degree == 0).any()):
            which = (self.degree == 0).nonzero()[:5, 0].tolist()
            raise ValueError(
                f"isolated units have no share of treated neighbours: {which}; remove units without neighbours first"
            )
        return self._sum(values) / self.degree

    def propagate(self, features: Tensor) -> Tensor:
        r""":math:`(A + I)` times `features`, shape (n, h): each unit's own row plus its neighbours'."""
        if self._product is None:
            self._product = self._with_loops()
        return _Product.apply(features, *self._product)

    def _finish(self) -> None:
        self.degree = self._sum(torch.ones(self.size, dtype=self.weights.dtype, device=self.weights.device))
        self._product: tuple[Tensor, Tensor] | None = None

    def _sum(self, values: Tensor) -> Tensor:
        zero = torch.zeros(self.size, dtype=self.weights.dtype, device=self.weights.device)
        return zero.index_add(0, self.index[0], self.weights * values[self.index[1]])

    def _with_loops(self) -> tuple[Tensor, Tensor]:
        loop = torch.arange(self.size, device=self.index.device)
        index = torch.cat([self.index, loop.expand(2, -1)], dim=1)
        weights = torch.cat([self.weights, self.weights.new_ones(self.size)])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            forward, backward = (
                torch.sparse_coo_tensor(i, weights, (self.size, self.size)).coalesce().to_sparse_csr()
                for i in (index, index.flip(0))
            )
        return forward, backward


class _Product(torch.autograd.Function):
    """Sparse matrix times dense features; the gradient is a product with the stored transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.pair = (transpose, matrix)
        return matrix @ features.contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(grad, *ctx.pair), None, None


def _entries(adjacency: Any) -> tuple[Tensor, Tensor, int]:
    if isinstance(adjacency, Tensor) or hasattr(adjacency, "tocoo"):
        shape = tuple(adjacency.shape)
    else:
        try:
            # a copy: torch can share neither memory that runs backwards nor memory that is read-only
            adjacency = torch.as_tensor(adjacency.copy() if isinstance(adjacency, np.ndarray) else adjacency)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                "adjacency must be a dense or sparse tensor, an array or a SciPy sparse matrix; "
                f"got {type(adjacency).__name__}"
            ) from error
        shape = tuple(adjacency.shape)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ValueError(f"adjacency must be square, shape (n, n) with n >= 1; got shape {shape}")
    if isinstance(adjacency, Tensor):
        matrix = adjacency.detach()
        if matrix.layout == torch.strided:
            index = matrix.nonzero().T
            weights = matrix[index[0], index[1]]
        else:
            matrix = matrix.to_sparse_coo().coalesce()
            index, weights = matrix.indices(), matrix.values()
    else:
        matrix = adjacency.tocsr().tocoo()  # through CSR, so that repeated entries are added up
        index = torch.stack([torch.as_tensor(matrix.row).long(), torch.as_tensor(matrix.col).long()])
        weights = torch.as_tensor(matrix.data)
    weights = check.tensor("adjacency", weights)
    if bool((weights < 0).any()):
        raise ValueError("adjacency must not be negative; expected edge weights of zero or more")
    index, weights = index[:, weights != 0], weights[weights != 0]
    if bool((index[0] == index[1]).any()):
        raise ValueError(
            "adjacency must have a zero diagonal: a unit is not its own neighbour; remove self loops"
        )
    return index, weights, shape[0]
