r"""Distances and distance sets: who is how many edges away.

:math:`N_k(v) = \{u : d(v, u) = k\}` (eq-gred-sets). Breadth-first search runs for all nodes of
all graphs at once, one batched product with the adjacency matrix a hop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common.checks import WrongType, whole

__all__ = ["hop_masks", "shortest_path_distances"]


def shortest_path_distances(adj: Tensor, *, max_distance: int | None = None) -> Tensor:
    r"""Number of edges of the shortest path between every two nodes.

    Parameters
    ----------
    adj : Tensor, shape (N, N) or (B, N, N), bool, integer or floating
        An entry other than zero is an edge, and must have a partner across the diagonal; how large it is
        does not matter. The diagonal is ignored.
    max_distance : int, optional
        Search no further than this.

    Returns
    -------
    Tensor, same shape as `adj`, int64
        Zero on the diagonal; -1 for pairs that are not connected, or further apart than `max_distance`.

    Raises
    ------
    ValueError
        Wrong shape, NaN, or an adjacency matrix that is not symmetric.

    Notes
    -----
    Source: the setting of the paper's section on distance sets. Costs one product of two
    (N, N) matrices a hop, up to the largest distance of the batch.
    """
    edges = _edges(adj)
    limit = None if max_distance is None else whole("max_distance", max_distance)
    n = edges.shape[-1]
    eye = torch.eye(n, dtype=torch.bool, device=edges.device).expand_as(edges)
    reached, frontier = eye.clone(), eye.float()
    dist = torch.full(edges.shape, -1, dtype=torch.int64, device=edges.device)
    dist[eye] = 0
    steps = edges.float()  # products count walks: sums of zeros and ones, exactly zero or at least one
    hop = 0
    while limit is None or hop < limit:
        fresh = (frontier @ steps > 0) & ~reached
        if not bool(fresh.any()):
            break
        hop += 1
        dist[fresh] = hop
        reached |= fresh
        frontier = fresh.float()
    return dist


def hop_masks(dist: Tensor, num_hops: int | None = None) -> Tensor:
    r"""One mask a hop, of the pairs at exactly that distance.

    .. math:: M_{k, v, u} = 1[d(v, u) = k], \qquad k = 0, \dots, K

    Parameters
    ----------
    dist : Tensor, shape (N, N) or (B, N, N), integer
        As `shortest_path_distances` gives it; negative entries are in no mask.
    num_hops : int, optional
        :math:`K + 1`: **hop 0 counts**. None means up to the largest distance of the batch.

    Returns
    -------
    Tensor, shape (K+1, N, N) or (B, K+1, N, N), bool
        Hop 0 first.

    Raises
    ------
    ValueError
        Wrong shape, or ``num_hops < 1``. A floating or bool `dist` is refused as a wrong type.
    """
    if (
        not isinstance(dist, Tensor)
        or dist.dtype == torch.bool
        or dist.is_floating_point()
        or dist.is_complex()
    ):
        raise WrongType("dist must be an integer tensor of distances, as shortest_path_distances gives it")
    _square("dist", dist)
    if num_hops is None:
        count = int(dist.max()) + 1 if dist.numel() else 1
        count = max(count, 1)
    else:
        count = _num_hops(num_hops)
    hops = torch.arange(count, device=dist.device)
    return dist.unsqueeze(-3) == hops[:, None, None]


def _edges(adj: Tensor) -> Tensor:
    """Bool adjacency without self loops, after the checks."""
    if not isinstance(adj, Tensor):
        raise WrongType(f"adj must be a torch.Tensor; got {type(adj).__name__}: use torch.as_tensor")
    _square("adj", adj)
    if adj.is_floating_point() and bool(adj.isnan().any()):
        raise ValueError("adj contains NaN; an entry is zero (no edge) or not (edge)")
    edges = adj != 0
    if not torch.equal(edges, edges.transpose(-1, -2)):
        raise ValueError("undirected graph expected: adj must be symmetric, as in adj | adj.T")
    diagonal = torch.eye(adj.shape[-1], dtype=torch.bool, device=adj.device)
    return edges & ~diagonal


def _square(name: str, x: Tensor) -> None:
    if x.ndim not in (2, 3) or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name} must be (N,N) or (B,N,N); got shape {tuple(x.shape)}")


def _num_hops(value: int) -> int:
    """A number of hops, hop 0 included."""
    try:
        return whole("num_hops", value, 1)
    except WrongType:
        raise
    except ValueError:
        raise ValueError(f"num_hops must be >= 1 (hop 0 counts); got {value!r}") from None
