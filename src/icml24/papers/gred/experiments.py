r"""Sizes of the experiments and the functions from a configuration to results.

Trained comparisons are in `comparisons`; here are the deterministic parts: what layers tell apart,
how well hops can be recovered, and what layers cost. Every random stream is named by the seed and by
what it is for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator

from .baselines import AttentionLayer, PairAttention
from .distances import hop_masks, shortest_path_distances
from .graphs import csl_graph, hard_pairs, wl_color_histogram
from .injectivity import condition_numbers, recover_hops
from .layer import GREDLayer
from .recurrence import init_lru_from_uniform, linear_recurrence, lru_eigenvalues

__all__ = [
    "CSL_SKIPS",
    "FULL",
    "QUICK",
    "Config",
    "conditioning",
    "configure",
    "costs",
    "expressiveness",
    "hop_sizes",
    "recovery",
    "recurrence_times",
]

CSL_SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)


@dataclass(frozen=True)
class Config:
    """Size of a run.

    Attributes
    ----------
    seed : int
        Base seed of every generator.
    molecule_seeds, molecule_epochs : int
        Repetitions (splits and weights both new) and epochs of the comparison on molecules.
    ablation_hops : tuple of int or None
        Values of `num_hops` tried on molecules; None is all hops.
    ablation_seeds : int
        Repetitions of it; 0 leaves out the ablations.
    ring_sizes : tuple of int
        Lengths of the rings.
    ring_seeds, ring_steps : int
        Repetitions and steps of every ring network.
    cluster_graphs, cluster_epochs, cluster_seeds : int
        Training graphs (a third as many test), epochs and repetitions on CLUSTER; 0 graphs leaves it out.
    digit_epochs, digit_seeds : int
        On the superpixel digits; 0 epochs leaves them out.
    cost_nodes : tuple of int
        Graph sizes at which layers are timed.
    """

    seed: int = 0
    molecule_seeds: int = 1
    molecule_epochs: int = 4
    ablation_hops: tuple[int | None, ...] = (1, 2, 3, 4, 6, None)
    ablation_seeds: int = 0
    ring_sizes: tuple[int, ...] = (4, 8, 20)
    ring_seeds: int = 2
    ring_steps: int = 100
    cluster_graphs: int = 0
    cluster_epochs: int = 25
    cluster_seeds: int = 1
    digit_epochs: int = 0
    digit_seeds: int = 3
    cost_nodes: tuple[int, ...] = (16, 32, 64, 128)


#: At most a minute on one thread, offline.
QUICK = Config()

#: The size of the recorded results.
FULL = Config(
    molecule_seeds=3,
    molecule_epochs=5,
    ablation_seeds=2,
    ring_sizes=(4, 8, 12, 16, 20, 28),
    ring_seeds=3,
    ring_steps=200,
    cluster_graphs=160,
    cluster_seeds=2,
    digit_epochs=6,
    cost_nodes=(16, 32, 64, 128, 256),
)


def configure(profile: str, **overrides: object) -> Config:
    """Return the configuration of a profile, single fields replaced (see `choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def hop_sizes(adj: Tensor) -> list[tuple[int, ...]]:
    """Sizes of the distance sets of each node, sorted over nodes: what constant features leave to see."""
    counts = hop_masks(shortest_path_distances(adj)).sum(dim=-1).T
    return sorted(tuple(int(c) for c in row if c) for row in counts)


def expressiveness(seed: int) -> pd.DataFrame:
    """What one layer with constant features tells apart, beside 1-WL.

    Returns
    -------
    DataFrame
        A row a pair: ``1-WL`` (True where the histograms differ), and for 2, 3 and all hops the largest
        difference of the summed outputs.
    """
    layer = GREDLayer(16, 32, generator=generator(seed, "gred", "expressive"), dtype=torch.float64)
    vector = torch.randn(16, generator=generator(seed, "gred", "feature"), dtype=torch.float64)
    rows = []
    for name, pair in hard_pairs().items():
        dists = [shortest_path_distances(adj) for adj in pair]
        row: dict[str, object] = {
            "pair": name,
            "1-WL": wl_color_histogram(pair[0]) != wl_color_histogram(pair[1]),
        }
        for label, hops in (("2 hops", 2), ("3 hops", 3), ("all hops", None)):
            count = hops or 1 + max(int(d.max()) for d in dists)
            with torch.no_grad():
                sums = [
                    layer(vector.expand(1, len(d), -1), hop_masks(d, count)[None]).sum(dim=1) for d in dists
                ]
            row[label] = float((sums[0] - sums[1]).abs().max())
        rows.append(row)
    return pd.DataFrame(rows)


def csl_classes(skips: tuple[int, ...] = CSL_SKIPS, n: int = 41) -> tuple[int, int]:
    """Classes among circulants that hop sizes, and 1-WL, tell apart."""
    graphs = [csl_graph(n, skip) for skip in skips]
    return (
        len({tuple(hop_sizes(adj)) for adj in graphs}),
        len({wl_color_histogram(adj) for adj in graphs}),
    )


def recovery(seed: int, *, num_hops: int = 8, width: int = 3) -> dict[str, float]:
    """Relative errors of hop vectors recovered from the last state alone, float64.

    ``scalar``: one feature and as many channels as hops; ``vector``: `width` features and as many
    channels as numbers; ``merged``: as the first, with all eigenvalues made equal.
    """
    errors = {}
    for name, d in (("scalar", 1), ("vector", width), ("merged", 1)):
        g = generator(seed, "gred", "recovery", name)
        channels = d * num_hops
        u = torch.rand(2, channels, generator=g, dtype=torch.float64)
        nu_log, theta_log, _ = init_lru_from_uniform(u[0], u[1], r_min=0.5)
        lam = lru_eigenvalues(nu_log, theta_log)
        parts = torch.randn(2, d, channels, generator=g, dtype=torch.float64)
        w_in = torch.complex(parts[0], parts[1])
        z = torch.randn(num_hops, 20, d, generator=g, dtype=torch.float64)
        if name == "merged":
            lam = lam[:1].expand(channels)  # a single distinct eigenvalue
        state = linear_recurrence(lam, z.to(w_in.dtype) @ w_in)
        found = recover_hops(lam, w_in, state, num_hops)
        errors[name] = float((found - z).norm() / z.norm())
    return errors


def conditioning(seed: int, *, draws: int = 20) -> pd.DataFrame:
    """Condition numbers, with two channels a hop, for eigenvalues drawn on two rings (log10, quantiles)."""
    rows = []
    for r_min in (0.0, 0.95):
        for hops in (3, 5, 9, 15, 21, 31, 41):
            g = generator(seed, "gred", "conditioning", hops)
            values = condition_numbers(r_min, hops, 2 * hops, draws, generator=g).log10()
            low, middle, high = torch.quantile(
                values, torch.tensor([0.1, 0.5, 0.9], dtype=values.dtype)
            ).tolist()
            rows.append({"r_min": r_min, "hops": hops, "low": low, "median": middle, "high": high})
    return pd.DataFrame(rows)


def recurrence_times(seed: int, *, nodes: int = 128, channels: int = 32, repeats: int = 5) -> pd.DataFrame:
    """Milliseconds (median, forward) of the recurrence in three forms, against the number of hops."""
    g = generator(seed, "gred", "times")
    u = torch.rand(2, channels, generator=g)
    lam = lru_eigenvalues(*init_lru_from_uniform(u[0], u[1], r_min=0.9)[:2])
    rows = []
    for hops in (2, 4, 8, 16, 32, 64, 128, 256):
        inputs = torch.randn(hops, nodes, channels, generator=g, dtype=lam.dtype)
        for method in ("sequential", "sum", "scan"):
            spent = _median_time(partial(linear_recurrence, lam, inputs, method=method), repeats)
            rows.append({"form": method, "hops": hops, "ms": spent})
    return pd.DataFrame(rows)


def costs(config: Config, *, hops: int = 5, width: int = 64, total: int = 512) -> pd.DataFrame:
    """Milliseconds and bytes kept for the backward pass, of three layers at several graph sizes.

    The number of nodes in a batch is fixed, so the cost of anything linear in it is flat.
    """
    rows = []
    for n in config.cost_nodes:
        g = generator(config.seed, "gred", "costs", n)
        batch = max(1, total // n)
        masks = hop_masks(_random_trees(batch, n, g), hops).float()
        x = torch.randn(batch, n, width, generator=g, requires_grad=True)
        pairs = torch.randn(batch, n, n, width, generator=g)
        own = {"generator": g, "dtype": torch.float32}
        gred = GREDLayer(width, width, **own)
        attention, paired = AttentionLayer(width, **own), PairAttention(width, **own)
        calls: dict[str, Callable[[], Tensor]] = {
            "GRED": partial(gred, x, masks),
            "attention": partial(attention, x, None),
            "pair attention": partial(_first, paired, x, pairs),
        }
        for name, call in calls.items():
            spent = _median_time(partial(_backward, call), 5)
            rows.append({"layer": name, "nodes": n, "kept": _kept_bytes(call), "ms": spent})
    return pd.DataFrame(rows)


def _first(layer: PairAttention, x: Tensor, pairs: Tensor) -> Tensor:
    return layer(x, pairs)[0]


def _random_trees(batch: int, n: int, g: torch.Generator) -> Tensor:
    """Distances in random trees whose nodes hang on one of the four before."""
    adj = torch.zeros(batch, n, n, dtype=torch.bool)
    back = torch.randint(1, 5, (batch, n), generator=g)
    graph = torch.arange(batch)
    for v in range(1, n):
        parent = (v - back[:, v]).clamp_min(0)
        adj[graph, parent, v] = adj[graph, v, parent] = True
    return shortest_path_distances(adj, max_distance=8)


def _kept_bytes(call: Callable[[], Tensor]) -> int:
    """Bytes of distinct storages that autograd keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call()
    del out
    return sum(kept.values())


def _backward(call: Callable[[], Tensor]) -> None:
    call().square().mean().backward()


def _median_time(call: Callable[[], object], repeats: int) -> float:
    """Milliseconds, after one call that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[1:]))
