r"""What the chapter runs: `QUICK` and `FULL` of one configuration, and functions from it to tables.

Every graph has its own random stream, named by the base seed, the setting and the graph's number, so
a result depends on nothing that ran before it. Nothing here plots or prints.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from icml24.common.profiles import choose
from icml24.common.random import numpy_generator
from icml24.common.statistics import bootstrap_interval

from . import baselines, kernels, linear
from .descendants import descendant_pvalues, layer_order, topological_layers
from .discovery import DHTResult, dht_cit
from .kernels import kci_pvalue
from .metrics import ancestors_to_descendants, order_violations
from .pruning import gam_prune
from .scoring import descendant_scores, half_scores, scores
from .slices import SubsampledConfig, random_dag, sample_noise, simulate_slices

__all__ = [
    "FULL",
    "METHODS",
    "QUICK",
    "Config",
    "Setting",
    "alpha_sweep",
    "calibration",
    "compare",
    "configure",
    "counties",
    "draw",
    "gap_curve",
    "mean_interval",
    "overfitting",
    "peer_check",
    "size_curve",
    "support_mismatches",
    "variations",
]

METHODS = ("DHT-CIT", "SCORE", "DirectLiNGAM", "PC")


@dataclass(frozen=True)
class Setting:
    """A family of problems: function, size, edges and what departs from the default."""

    function: str
    d: int
    edges: int
    n: int
    kind: str = "er"
    noise: str = "gauss"
    lag1: int = 0
    lag2: int = 0
    lag_weight: float = 0.1

    @property
    def name(self) -> str:
        """Function, nodes and edges, as in ``sin-6-6``; a scale-free graph says so."""
        return f"{self.function}-{self.d}-{self.edges}" + ("" if self.kind == "er" else f" {self.kind}")


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    graphs : int
        Graphs for each of `settings`, the main comparison.
    settings : tuple of Setting
    large, large_graphs
        The same at the paper's size (full only: empty in quick).
    later_graphs : int
        Graphs of the comparison with later slices.
    gap_graphs : int
        Graphs of the gap curve.
    late_slices : tuple of int
        Late slices of the gap curve; the early one is 1.
    calibration_repeats, calibration_dims
        Graphs and numbers of variables of the calibration check.
    variation_graphs : int
        Graphs of each variation: noise, lagged edges.
    sizes, size_graphs
        Sample sizes of the size curve at d = 10 (full only), and graphs at each.
    subsamples, subsample_size
        County sub-samples and their size.
    """

    seed: int = 0
    graphs: int = 10
    settings: tuple[Setting, ...] = (Setting("sin", 6, 6, 500), Setting("sigmoid", 6, 8, 500))
    large: tuple[Setting, ...] = ()
    large_graphs: int = 0
    later_graphs: int = 5
    gap_graphs: int = 8
    late_slices: tuple[int, ...] = (2, 3, 4, 6)
    calibration_repeats: int = 4
    calibration_dims: tuple[int, ...] = (2, 4, 10)
    variation_graphs: int = 4
    sizes: tuple[int, ...] = ()
    size_graphs: int = 0
    subsamples: int = 4
    subsample_size: int = 300


QUICK = Config()
FULL = Config(
    graphs=20,
    large=(
        *(Setting(f, 10, edges, 1000) for f in ("sin", "sigmoid", "pow2") for edges in (10, 20)),
        Setting("sin", 10, 20, 1000, kind="sf"),
        Setting("sigmoid", 10, 20, 1000, kind="sf"),
    ),
    large_graphs=5,
    later_graphs=20,
    gap_graphs=24,
    calibration_repeats=16,
    variation_graphs=20,
    sizes=(250, 500, 1000, 2000),
    size_graphs=3,
    subsamples=20,
    subsample_size=400,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def draw(setting: Setting, seed: int, index: int, *, slices: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """One problem: true adjacency (d, d), and slices 0, 1, ... of shape (slices, n, d)."""
    g = numpy_generator(seed, "dht_cit", setting.name, index)
    graph = random_dag(setting.d, setting.edges, kind=setting.kind, generator=g)
    order = g.permutation(int(graph.sum()))  # one shuffled list of edges, as in the authors' generator
    lags = [_some_edges(graph, order[:count]) for count in (setting.lag1, setting.lag2)]
    noise = sample_noise(slices, setting.n, setting.d, kind=setting.noise, generator=g)
    mechanisms = SubsampledConfig(setting.function, setting.function, lag_weight=setting.lag_weight)
    return graph, simulate_slices(graph, noise, lag1=lags[0], lag2=lags[1], config=mechanisms)


def compare(
    settings: Sequence[Setting],
    graphs: int,
    seed: int,
    *,
    methods: Sequence[str] = METHODS,
    seen: tuple[int, int] = (1, 4),
) -> tuple[pd.DataFrame, dict[tuple[str, int], DHTResult]]:
    """Run the methods on the same graphs: one row a (setting, graph, method), and DHT-CIT's results.

    `seen` are the early and the late slice; the other methods see the early one. Columns: those of
    `scoring.scores`, `descendant_scores` (DHT-CIT) and `half_scores` (PC); ``d_top`` and
    ``candidates`` of methods that order; ``order_edges``, the candidates of a full order.
    """
    rows, results = [], {}
    for setting in settings:
        for index in range(graphs):
            truth, slices = draw(setting, seed, index, slices=seen[1] + 1)
            early, late = slices[seen[0]], slices[seen[1]]
            for method in methods:
                row = {"setting": setting.name, "graph": index, "method": method}
                if method == "DHT-CIT":
                    found = results[setting.name, index] = dht_cit(early, late)
                    row |= scores(truth, found.graph) | descendant_scores(truth, found.pvalues)
                    row |= {"d_top": order_violations(truth, found.order)}
                    row |= {"candidates": int(found.candidates.sum())}
                elif method == "SCORE":
                    allowed, graph = baselines.score_cam(early)
                    row |= scores(truth, graph) | {"d_top": order_violations(truth, allowed)}
                    row |= {"candidates": int(allowed.sum())}
                elif method == "DirectLiNGAM":
                    row |= scores(truth, baselines.direct_lingam(early))
                elif method == "PC":
                    answer = baselines.pc(early)
                    row |= scores(truth, answer.oriented) | half_scores(truth, answer)
                else:
                    raise ValueError(f"unknown method {method!r}; expected some of {METHODS}")
                rows.append(row | {"order_edges": setting.d * (setting.d - 1) // 2})
    return pd.DataFrame(rows), results


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Mean over graphs and the ends of its 95 % bootstrap interval."""
    values = np.asarray(values, dtype=np.float64)
    low, high = bootstrap_interval(values, generator=numpy_generator(seed, "dht_cit", "interval"))
    return float(values.mean()), low, high


def gap_curve(config: Config) -> pd.DataFrame:
    """Descendants found with slices (1, late), one row a (late, graph): hits, true, found."""
    setting = Setting("sin", 5, 6, 400)
    rows = []
    for index in range(config.gap_graphs):
        graph, slices = draw(setting, config.seed, index, slices=max(config.late_slices) + 1)
        below = ancestors_to_descendants(graph)
        for late in config.late_slices:
            rejected = descendant_pvalues(slices[1], slices[late]) < 0.05
            hits, found = int((rejected & (below == 1)).sum()), int(rejected.sum())
            rows.append(
                {"late": late, "graph": index, "hits": hits, "true": int(below.sum()), "found": found}
            )
    return pd.DataFrame(rows)


def calibration(config: Config, n: int = 300) -> dict[int, np.ndarray]:
    """Unrounded p-values of pairs that are *not* descendants, by number of variables."""
    out = {}
    for d in config.calibration_dims:
        pooled = []
        # as many null pairs at every d, roughly: small graphs have few
        for index in range(max(1, config.calibration_repeats * 90 // (d * (d - 1)))):
            graph, slices = draw(Setting("sin", d, d // 2, n), config.seed, index)
            pvalues = descendant_pvalues(slices[1], slices[4], round_to=None)
            pooled.append(pvalues[(ancestors_to_descendants(graph) == 0) & ~np.eye(d, dtype=bool)])
        out[d] = np.concatenate(pooled)
    return out


def overfitting(seed: int, epsilons: Sequence[float] = (1e-3, 1.0), draws: int = 80) -> pd.DataFrame:
    """The kernel test on eleven *independent* normal columns, nine of them given, n = 120, by ridge.

    Columns: ``epsilon``; ``left``, the trace of the residual operator over n; ``ratio``, the mean of
    the statistic over the mean that the gamma law gives it; ``rejected`` at level 0.05.
    """
    g = numpy_generator(seed, "dht_cit", "overfitting")
    samples = g.standard_normal((draws, 120, 11))
    rows = []
    for epsilon in epsilons:
        left, statistics, means, rejected = [], [], [], []
        for x in samples:
            row = kernels.Row(x[:, :1], x[:, 2:], epsilon)
            factor = kernels.thin_factor(x[:, 1:2], row.theta)
            pvalue, statistic = row.test(factor)
            residual = row.operator @ factor
            left.append(row.operator.trace() / len(x))
            statistics.append(statistic)
            means.append((row.left.diagonal() * (residual**2).sum(axis=1)).sum())  # tr U
            rejected.append(pvalue < 0.05)
        ratio = np.mean(statistics) / np.mean(means)
        rows.append((epsilon, np.mean(left), ratio, np.mean(rejected)))
    return pd.DataFrame(rows, columns=["epsilon", "left", "ratio", "rejected"])


def variations(config: Config) -> pd.DataFrame:
    """DHT-CIT and SCORE when something departs from the default, sin-6-6, n = 500."""
    base = {"function": "sin", "d": 6, "edges": 6, "n": 500}
    cases = {
        "Gaussian noise": Setting(**base),
        "Laplace noise": Setting(**base, noise="laplace"),
        "uniform noise": Setting(**base, noise="uniform"),
        "scale-free graph": Setting(**(base | {"edges": 12}), kind="sf"),
        "lag-1 edges": Setting(**base, lag1=6),
        "lag-2 edges": Setting(**base, lag2=6),
        "lag-2 edges, weight 1": Setting(**base, lag2=6, lag_weight=1.0),
    }
    frames = []
    for name, setting in cases.items():
        frame, _ = compare([setting], config.variation_graphs, config.seed, methods=("DHT-CIT", "SCORE"))
        frames.append(frame.assign(case=name))
    return pd.concat(frames, ignore_index=True)


def size_curve(config: Config) -> pd.DataFrame:
    """DHT-CIT and SCORE on sigmoid-10-10 over `config.sizes` (column ``n``); empty without sizes."""
    frames = [
        compare([Setting("sigmoid", 10, 10, n)], config.size_graphs, config.seed, methods=METHODS[:2])[
            0
        ].assign(n=n)
        for n in config.sizes
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def alpha_sweep(
    results: dict[tuple[str, int], DHTResult], config: Config, alphas: Sequence[float]
) -> pd.DataFrame:
    """Descendant precision, recall and forbidden true edges over levels, from stored p-values."""
    truths = {
        (s.name, index): draw(s, config.seed, index)[0]
        for s in config.settings
        for index in range(config.graphs)
    }
    rows = []
    for alpha in alphas:
        for key, truth in truths.items():
            found = descendant_scores(truth, results[key].pvalues, alpha)
            order = layer_order(topological_layers(results[key].pvalues, alpha))
            rows.append({"alpha": alpha, "setting": key[0], "d_top": order_violations(truth, order), **found})
    return pd.DataFrame(rows)


def support_mismatches(seed: int, systems: int = 200, d: int = 7) -> int:
    """Entries where the linear effect of slice a on slice b is nonzero off the descendants, or zero on them.

    Random graphs with weights in +-(0.3, 1), self-effects in (0.3, 0.9), gaps of 1, 2 and 3 slices.
    """
    g = numpy_generator(seed, "dht_cit", "support")
    wrong = 0
    for _ in range(systems):
        graph = random_dag(d, int(g.integers(0, d * (d - 1) // 2 + 1)), generator=g)
        weights = graph * g.uniform(0.3, 1, (d, d)) * g.choice([-1, 1], (d, d))
        own = g.uniform(0.3, 0.9, d)
        below = ancestors_to_descendants(graph).T + np.eye(d)
        for gap in (1, 2, 3):
            wrong += int(((np.abs(linear.propagation(weights, own, gap)) > 1e-9) != (below == 1)).sum())
    return wrong


def peer_check(seed: int, n: int = 500, d: int = 6, tests: int = 5) -> dict[str, float]:
    """The kernel test beside causal-learn's on one row of tests: speed ratio, largest differences.

    The clock compares one whole matrix of ours, d (d - 1) tests, with `tests` of theirs, scaled up.
    """
    with baselines.quiet_import():
        from causallearn.utils.KCI.KCI import KCI_CInd

    _, slices = draw(Setting("sin", d, d, n), seed, 0)
    early, late = slices[1], slices[4]
    start = time.perf_counter()
    descendant_pvalues(early, late)
    ours = time.perf_counter() - start
    spent, gap_p, gap_s = 0.0, 0.0, 0.0
    for j in range(1, min(tests, d - 1) + 1):
        x, y, z = early[:, :1], late[:, [j]], early[:, 1:]
        start = time.perf_counter()
        peer_p, peer_s = KCI_CInd().compute_pvalue(x.copy(), y.copy(), z.copy())
        spent += time.perf_counter() - start
        p, s = kci_pvalue(x, y, z)
        gap_p, gap_s = max(gap_p, abs(p - peer_p)), max(gap_s, abs(s / peer_s - 1))
    return {"p-value": gap_p, "statistic": gap_s, "speed": spent / min(tests, d - 1) * d * (d - 1) / ours}


@dataclass(frozen=True)
class Stability:
    """How often what is found over sub-samples of one population.

    Attributes
    ----------
    names : tuple of str
        Variables.
    kept, allowed : ndarray, shape (d, d)
        Frequency of each edge in the estimate, and among the candidates.
    level : ndarray, shape (subsamples, d)
        Layer of every variable, 0 = sinks.
    """

    names: tuple[str, ...]
    kept: np.ndarray
    allowed: np.ndarray
    level: np.ndarray


def counties(early: np.ndarray, late: np.ndarray, names: Sequence[str], config: Config) -> Stability:
    """DHT-CIT on random sub-samples: kernel tests on the sub-sample, pruning on all rows."""
    kept, allowed, level = [], [], []
    for index in range(config.subsamples):
        g = numpy_generator(config.seed, "dht_cit", "counties", index)
        rows = np.sort(g.choice(len(early), size=config.subsample_size, replace=False))
        found = dht_cit(early[rows], late[rows])
        kept.append(gam_prune(found.candidates, early))
        allowed.append(found.candidates)
        height = np.empty(len(names), dtype=np.int64)
        for k, layer in enumerate(found.layers):
            height[layer] = k
        level.append(height)
    return Stability(tuple(names), np.mean(kept, axis=0), np.mean(allowed, axis=0), np.array(level))


def _some_edges(graph: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    rows, cols = np.nonzero(graph)
    out = np.zeros_like(graph)
    out[rows[chosen], cols[chosen]] = 1
    return out
