r"""The networks: two citation graphs read from disk, and a geometric graph made here.

===========  ==============================================  =====================================
name         graph                                            features
===========  ==============================================  =====================================
cora         2,485 papers, 5,069 citations                    10 topic shares of each paper
citeseer     2,120 papers, 3,679 citations                    10 topic shares of each paper
geometric    2,400 points, near ones joined                   8: coordinates and their complements
===========  ==============================================  =====================================

Cora and Citeseer: largest connected components of the graphs in ``kimiyoung/planetoid`` (commit
af6abf4, MIT), with topic shares of a ten-topic model of their words and a split into thirds along
the graph's slowest mode. They stand in for BlogCatalog and Flickr, whose files are not
reachable. Nothing of them is part of this book: they are read from the folder that ``ICML24_DATA``
names. The geometric graph is the default of every experiment; its three parts are separate
graphs from one law.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from scipy.spatial import cKDTree

from icml24 import datasets
from icml24.common.random import generator as stream
from icml24.common.random import numpy_generator

from .simulation import NetworkData, simulate_network_data

__all__ = ["geometric_graph", "induced_part", "load_network", "simulated_parts"]

SLUG = "networked_interference"
FILES = ("cora", "citeseer")
NAMES = (*FILES, "geometric")
GEOMETRIC_SEED, PART_SIZE, DIMENSION, NEIGHBOURS = 0, 800, 4, 4


def load_network(
    name: str = "cora", path: str | os.PathLike[str] | None = None
) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Graph, features and split of a network.

    Parameters
    ----------
    name : {"cora", "citeseer", "geometric"}
    path : path, optional
        A ``.npz`` file, or a folder that holds ``<name>.npz``. Default: the folder
        ``$ICML24_DATA/networked_interference``. Not used for "geometric".

    Returns
    -------
    adjacency : scipy.sparse.csr_matrix, shape (n, n), float64
        Symmetric, 0 and 1, without self loops.
    features : ndarray, shape (n, f), float64
        In [0, 1].
    part : ndarray of int64, shape (n,)
        0 to train on, 1 to validate, 2 to test.

    Raises
    ------
    ValueError
        Unknown name.
    FileNotFoundError
        The file is not here; the message says how to get it.

    Examples
    --------
    >>> adjacency, features, part = load_network("geometric")
    >>> features.shape
    (2400, 8)
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}; expected one of {NAMES}")
    if name == "geometric":
        return _geometric()
    with np.load(_find(name, path), allow_pickle=False) as stored:
        edges, features, part = stored["edges"], stored["lda10"], stored["part"]
    n = len(features)
    one = sp.coo_matrix(
        (np.ones(edges.shape[1]), (edges[0].astype(np.int64), edges[1].astype(np.int64))), (n, n)
    )
    adjacency = sp.csr_matrix(one + one.T)
    adjacency.data[:] = 1.0
    return adjacency, features.astype(np.float64), part.astype(np.int64)


def geometric_graph(
    n: int, dimension: int, neighbours: int, generator: np.random.Generator
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Points in the unit cube, each joined to its nearest neighbours (made symmetric).

    Parameters
    ----------
    n : int
        Points; more than `neighbours`.
    dimension : int
        Of the cube.
    neighbours : int
        Links that each point asks for, at least 1; it may be asked by others as well.
    generator : numpy.random.Generator

    Returns
    -------
    adjacency : scipy.sparse.csr_matrix, shape (n, n)
    features : ndarray, shape (n, 2 dimension)
        Coordinates `u` and complements ``1 - u``. Every row sums to `dimension`, so that dividing
        rows by their sums loses nothing.
    """
    if not 1 <= neighbours < n:
        raise ValueError(f"neighbours must lie in 1..n-1 = 1..{n - 1}; got {neighbours}")
    u = generator.random((n, dimension))
    _, near = cKDTree(u).query(u, k=neighbours + 1)
    rows = np.repeat(np.arange(n), neighbours)
    one = sp.coo_matrix((np.ones(n * neighbours), (rows, near[:, 1:].ravel())), (n, n)).tocsr()
    return sp.csr_matrix(one.maximum(one.T)), np.hstack([u, 1 - u])


def induced_part(
    adjacency: sp.csr_matrix, features: np.ndarray, part: np.ndarray, which: int
) -> tuple[sp.csr_matrix, torch.Tensor]:
    """Subgraph of one part, units that have lost all their neighbours removed until none is left.

    Returns
    -------
    adjacency : scipy.sparse.csr_matrix, shape (m, m)
    features : Tensor, shape (m, f), float64
    """
    keep = np.flatnonzero(part == which)
    while True:
        inner = adjacency[keep][:, keep]
        linked = np.asarray(inner.sum(axis=1)).ravel() > 0
        if linked.all():
            return sp.csr_matrix(inner), torch.from_numpy(features[keep])
        keep = keep[linked]


def simulated_parts(
    name: str, seed: int, *, heterogeneous: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[NetworkData, NetworkData]:
    """Training and test network with simulated treatments and outcomes, one pair of weights for both."""
    network = load_network(name)
    features = network[1].shape[1]
    weights = torch.randn(2, features, generator=stream(seed, SLUG, name, "weights"), dtype=torch.float64)
    train, test = (
        simulate_network_data(
            *induced_part(*network, which),
            w_treatment=weights[0],
            w_outcome=weights[1],
            heterogeneous=heterogeneous,
            generator=stream(seed, SLUG, name, "outcomes", which),
        )
        for which in (0, 2)
    )
    return _cast(train, dtype), _cast(test, dtype)


def _geometric() -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    made = [
        geometric_graph(
            PART_SIZE, DIMENSION, NEIGHBOURS, numpy_generator(GEOMETRIC_SEED, SLUG, "geometric", k)
        )
        for k in range(3)
    ]
    adjacency = sp.csr_matrix(sp.block_diag([graph for graph, _ in made], format="csr"))
    part = np.repeat(np.arange(3), PART_SIZE)
    return adjacency, np.vstack([features for _, features in made]), part


def _find(name: str, path: str | os.PathLike[str] | None) -> Path:
    if path is None:
        return datasets.locate(SLUG, f"{name}.npz")
    path = Path(path)
    path = path / f"{name}.npz" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(
            f"{name}.npz is not at the path given ({path.name}); {datasets.how_to_get(SLUG, f'{name}.npz')}, "
            f"and see `icml24 data list`"
        )
    return path


def _cast(data: NetworkData, dtype: torch.dtype) -> NetworkData:
    """The same data in another dtype; the truth stays in float64, in which it was made."""
    return NetworkData(data.adjacency, *(v.to(dtype) for v in (data.x, data.t, data.z, data.y)), data.truth)
