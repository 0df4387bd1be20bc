r"""Subsampled time series: random summary graphs, noise, and the slices they drive.

A unit (a county, a patient) has `d` variables. At every time the slice is filled in causal order:
own past, lagged causes, causes at the same time, noise (eq-dht_cit-model). Of the many slices that
are simulated, only two are ever shown to the method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from . import _checks

__all__ = ["FUNCTIONS", "SubsampledConfig", "random_dag", "sample_noise", "simulate_slices"]


def _square(x: np.ndarray) -> np.ndarray:
    return 0.1 * (x + 2) ** 2


#: Mechanisms by name, as in the authors' generator. ``sigmoid`` falls; ``pow2`` has two more names.
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "sin": np.sin,
    "pow2": _square,
    "pow3": _square,
    "poly": _square,
    "sigmoid": lambda x: 3 * expit(-x),
}
NOISES = ("gauss", "laplace", "uniform")


def random_dag(d: int, n_edges: int, *, kind: str = "er", generator: np.random.Generator) -> np.ndarray:
    """Random directed acyclic graph whose column order is a causal order.

    Parameters
    ----------
    d : int
        Number of nodes, at least 1.
    n_edges : int
        Number of edges, at most ``d (d - 1) / 2``. Exact for ``"er"``; a scale-free graph has
        ``m = max(1, round(n_edges / d))`` edges from each node to earlier ones (fewer from the first ones).
    kind : {"er", "sf"}
        Erdos-Renyi (uniform over the sets of `n_edges` pairs) or scale-free: each node attaches to
        earlier nodes with probabilities proportional to their degree plus one.
    generator : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    ndarray of int, shape (d, d)
        Strictly upper triangular; row = cause.

    Raises
    ------
    ValueError
        More edges than pairs, a negative number, an unknown `kind`.
    TypeError
        `generator` is not a NumPy generator.

    Notes
    -----
    Source: the authors' generator, with its own random state instead of three global ones.
    """
    d = _checks.whole("d", d, least=1)
    n_edges = _checks.whole("n_edges", n_edges)
    pairs = d * (d - 1) // 2
    if n_edges > pairs:
        raise ValueError(f"n_edges must be at most the {pairs} pairs of {d} nodes; got {n_edges}")
    generator = _checks.random_generator(generator)
    graph = np.zeros((d, d), dtype=np.int64)
    if kind == "er":
        chosen = generator.choice(pairs, size=n_edges, replace=False)
        rows, cols = np.triu_indices(d, k=1)
        graph[rows[chosen], cols[chosen]] = 1
    elif kind == "sf":
        per_node = max(1, round(n_edges / d)) if n_edges else 0
        for node in range(1, d):
            weight = graph[:node].sum(axis=1) + graph[:, :node].sum(axis=0) + 1.0
            size = min(per_node, node)
            earlier = generator.choice(node, size=size, replace=False, p=weight / weight.sum())
            graph[earlier, node] = 1
    else:
        raise ValueError(f"unknown kind of graph {kind!r}; expected 'er' or 'sf'")
    return graph


@dataclass(frozen=True)
class SubsampledConfig:
    """Mechanisms of the time series.

    Attributes
    ----------
    contemporaneous : str
        Name of f, from causes to effects within a slice: ``linear``, ``sin``, ``pow2`` (also
        ``pow3``, ``poly``: the same function) or ``sigmoid``.
    lagged : str
        Name of g, from a variable's own past and along lagged edges.
    normalize : bool
        Standardise every column of every slice but the first before it feeds the next one.
    lag_weight : float
        Factor of the terms along lagged edges.
    """

    contemporaneous: str = "sigmoid"
    lagged: str = "sigmoid"
    normalize: bool = True
    lag_weight: float = 0.1

    def __post_init__(self) -> None:
        for name in (self.contemporaneous, self.lagged):
            if not isinstance(name, str) or name not in FUNCTIONS:
                raise ValueError(f"unknown function {name!r}; expected one of {sorted(FUNCTIONS)}")
        _checks.array("lag_weight", self.lag_weight)


def simulate_slices(
    adjacency: Any,
    noise: Any,
    *,
    lag1: Any = None,
    lag2: Any = None,
    config: SubsampledConfig = SubsampledConfig(),
) -> np.ndarray:
    """All slices of the series, driven by given noise.

    Parameters
    ----------
    adjacency : array_like of 0/1, shape (d, d)
        Summary graph, strictly upper triangular; row = cause.
    noise : array_like, shape (T, n, d)
        Scaled noise of `T` slices and `n` units; the first slice *is* its noise.
    lag1, lag2 : array_like of 0/1, shape (d, d), optional
        Edges from the slice before and from two slices before, besides the self-effects. The
        criterion of the chapter wants `lag1` within `adjacency` and no `lag2`.
    config : SubsampledConfig

    Returns
    -------
    ndarray, shape (T, n, d)

    Raises
    ------
    ValueError
        Wrong shapes, non-finite noise, a graph that is not strictly upper triangular, fewer than
        two units when `normalize` is on.

    Notes
    -----
    Source: eq-dht_cit-model. A column that is constant in a slice is centred and not scaled.
    """
    drive = _checks.array("noise", noise)
    if drive.ndim != 3 or 0 in drive.shape:
        raise ValueError(f"noise must have shape (T, n, d), none of them zero; got {drive.shape}")
    d = drive.shape[2]
    graph = _checks.adjacency("adjacency", adjacency, size=d)
    if np.tril(graph).any():
        raise ValueError("adjacency must be strictly upper triangular (acyclic, causes before effects)")
    if config.normalize and drive.shape[1] < 2:
        raise ValueError("noise needs at least 2 units (its second dimension) when slices are normalised")
    first = _lag_edges("lag1", lag1, d)
    second = _lag_edges("lag2", lag2, d)
    f, g = FUNCTIONS[config.contemporaneous], FUNCTIONS[config.lagged]
    slices = drive.copy()
    for t in range(1, len(slices)):
        past = g(slices[t - 1])
        slices[t] += past + config.lag_weight * past @ first
        if t >= 2:
            slices[t] += config.lag_weight * g(slices[t - 2]) @ second
        for i in range(d):  # causal order: the parents' columns are complete
            slices[t, :, i] += f(slices[t][:, graph[:, i] == 1]).sum(axis=1)
        if config.normalize:
            spread = slices[t].std(axis=0, ddof=1)
            # a constant column leaves rounding noise of its own magnitude behind
            constant = spread <= 1e-14 * np.abs(slices[t]).max(axis=0)
            slices[t] = (slices[t] - slices[t].mean(axis=0)) / np.where(constant, 1.0, spread)
    return slices


def sample_noise(
    n_slices: int,
    n: int,
    d: int,
    *,
    kind: str = "gauss",
    initial_std: float = 1.0,
    std: float = 0.4,
    generator: np.random.Generator,
) -> np.ndarray:
    """Independent noise of all slices, in the units of the variables.

    Parameters
    ----------
    n_slices, n, d : int
        Slices, units and variables, each at least 1.
    kind : {"gauss", "laplace", "uniform"}
        ``gauss`` and ``laplace`` (scale ``std / sqrt(2)``) have standard deviation `std`;
        ``uniform`` covers ``(-std, std)``, hence has the smaller deviation ``std / sqrt(3)``.
    initial_std, std : float
        Scale of the first slice, and of the others; positive.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray, shape (n_slices, n, d)

    Raises
    ------
    ValueError
        Unknown `kind`, sizes below 1, scales that are not positive.
    TypeError
        `generator` is not a NumPy generator.
    """
    shape = tuple(
        _checks.whole(name, value, least=1) for name, value in (("n_slices", n_slices), ("n", n), ("d", d))
    )
    scales = np.full(shape[0], _checks.positive("std", std))
    scales[0] = _checks.positive("initial_std", initial_std)
    generator = _checks.random_generator(generator)
    if kind == "gauss":
        unit = generator.standard_normal(shape)
    elif kind == "laplace":
        unit = generator.laplace(scale=1 / np.sqrt(2), size=shape)
    elif kind == "uniform":
        unit = generator.uniform(-1.0, 1.0, size=shape)
    else:
        raise ValueError(f"unknown kind of noise {kind!r}; expected one of {NOISES}")
    return unit * scales[:, None, None]


def _lag_edges(name: str, value: Any, d: int) -> np.ndarray:
    if value is None:
        return np.zeros((d, d))
    return _checks.adjacency(name, value, size=d).astype(np.float64)
