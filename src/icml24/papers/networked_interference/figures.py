"""The chapter's figures: each takes results and returns a matplotlib figure, and computes nothing new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from icml24.common.figures import COLORS, new
from icml24.common.random import numpy_generator
from icml24.common.statistics import bootstrap_interval

from .comparisons import Comparison, Responses
from .experiments import rmse

__all__ = [
    "plot_arms",
    "plot_errors",
    "plot_graph",
    "plot_overlap",
    "plot_rate",
    "plot_responses",
    "plot_robustness",
]

CASES = {
    "both right": ("blue", "o", "-"),
    "propensity wrong": ("green", "^", "-"),
    "outcome wrong": ("purple", "s", "-"),
    "both wrong": ("orange", "X", "-"),
}
METHODS = {
    "TNet": ("blue", ""),
    "plain": ("orange", "//"),
    "CFR+z": ("green", ".."),
    "ND+z": ("purple", "xx"),
    "NetEst": ("amber", "\\\\"),
}


def plot_graph(adjacency: sp.csr_matrix, places: np.ndarray, t: np.ndarray, z: np.ndarray) -> Any:
    """A graph in the plane: squares for treated units, circles for others, coloured by exposure."""
    figure, ax = new(7.0, 4.4)
    edges = sp.triu(adjacency).tocoo()
    for i, j in zip(edges.row, edges.col, strict=True):
        ax.plot(*places[[i, j]].T, color=COLORS["grey"], linewidth=0.8, zorder=1)
    for arm, marker, label in ((1, "s", "treated"), (0, "o", "not treated")):
        rows = t == arm
        dots = ax.scatter(
            *places[rows].T,
            c=z[rows],
            **{"marker": marker, "s": 90, "cmap": "cividis", "vmin": 0, "vmax": 1},
            edgecolors=COLORS["black"],
            label=label,
            zorder=2,
        )
    figure.colorbar(dots, ax=ax, label="exposure: share of treated neighbours")
    ax.set(xlabel="first coordinate", ylabel="second coordinate")
    ax.grid(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=2)
    return figure


def plot_robustness(frame: pd.DataFrame) -> Any:
    """Error of the dose response against the sample size, by what is right."""
    figure, ax = new(8.0, 4.2)
    errors = rmse(frame, ["case", "size"], "targeted")
    for case, (color, marker, line) in CASES.items():
        curve = errors[case]
        ax.loglog(curve.index, curve, color=COLORS[color], marker=marker, linestyle=line, label=case)
    plain = rmse(frame, ["case", "size"], "plug-in")["outcome wrong"]
    ax.loglog(plain.index, plain, color=COLORS["black"], linestyle=":", label="no targeting, outcome wrong")
    sizes = np.asarray(plain.index, dtype=float)
    guide = errors["both right"].iloc[0] * (sizes / sizes[0]) ** -0.5
    ax.loglog(sizes, guide, color=COLORS["grey"], linestyle="--", linewidth=1, label="slope -1/2")
    ax.set_xticks(sizes, [f"{int(size):,}" for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="sample size n", ylabel="root mean squared error")
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def plot_arms(frame: pd.DataFrame) -> Any:
    """Errors by arm, with each unit's own propensity and with the treated arm's for all."""
    figure, axes = new(8.0, 3.8, ncols=2, sharey=True)
    errors = rmse(frame, ["propensity", "t", "size"], "error")
    titles = {"arm": "divided by P(T = t)", "treated": "divided by P(T = 1) throughout"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        for arm, color, marker in ((1, "blue", "s"), (0, "orange", "o")):
            curve = errors.xs((name, arm))
            ax.loglog(
                *(curve.index, curve),
                color=COLORS[color],
                marker=marker,
                label="treated" if arm else "control",
            )
        ax.set_xticks(curve.index, [f"{int(size):,}" for size in curve.index])
        ax.minorticks_off()
        ax.set(title=title, xlabel="sample size n")
    axes[0].set_ylabel("root mean squared error")
    axes[0].legend()
    return figure


def plot_rate(frame: pd.DataFrame) -> Any:
    """Error against the nuisances' common error, targeted and not."""
    figure, ax = new(7.0, 4.0)
    for column, color, marker in (("targeted", "blue", "o"), ("plug-in", "orange", "s")):
        errors = rmse(frame, ["delta"], column).sort_index()
        ax.loglog(errors.index, errors, color=COLORS[color], marker=marker, label=column)
        power = 2 if column == "targeted" else 1
        deltas = np.asarray(errors.index, dtype=float)
        guide = errors.iloc[-1] * (deltas / deltas[-1]) ** power
        ax.loglog(
            deltas, guide, color=COLORS["grey"], linestyle="--" if power == 2 else ":", label=f"slope {power}"
        )
    ax.set_xticks(deltas, [f"{d:g}" for d in deltas])
    ax.minorticks_off()
    ax.set(xlabel="error of both nuisances, delta", ylabel="root mean squared error")
    ax.legend()
    return figure


def plot_responses(response: Responses) -> Any:
    """Dose responses of both arms: truth and estimates."""
    figure, axes = new(8.0, 3.9, ncols=2)
    styles = {
        "truth": ("black", "-", 2.2),
        "plain": ("orange", "--", 1.6),
        "TNet": ("blue", "-.", 1.8),
        "TNet, closed form": ("green", ":", 2.2),
    }
    for arm, ax in enumerate(axes):
        for name, (color, line, width) in styles.items():
            ax.plot(
                *(response.z, response.curves[name][arm]),
                **{"color": COLORS[color], "linestyle": line, "linewidth": width, "label": name},
            )
        ax.set(title=f"psi({arm}, z)", xlabel="exposure z", ylabel="mean outcome")
    axes[0].legend()
    return figure


def plot_errors(comparisons: Mapping[str, Comparison]) -> Any:
    """Mean out-of-sample error of the average effects, bars with intervals over seeds, a panel a graph."""
    figure, axes = new(8.4, 3.6 * len(comparisons), nrows=len(comparisons), squeeze=False)
    for ax, (graph, comparison) in zip(axes[:, 0], comparisons.items(), strict=True):
        out = comparison.errors[comparison.errors["sample"] == "out"]
        methods = [name for name in METHODS if (out["method"] == name).any()]
        for k, method in enumerate(methods):
            color, hatch = METHODS[method]
            groups = [
                out[(out["method"] == method) & (out["effect"] == e)]["average"].to_numpy()
                for e in ("ME", "SE", "TE")
            ]
            intervals = [
                bootstrap_interval(v, generator=numpy_generator(0, graph, method, len(v))) for v in groups
            ]
            means = np.array([v.mean() for v in groups])
            ax.bar(
                np.arange(3) + (k - (len(methods) - 1) / 2) * 0.8 / len(methods),
                means,
                width=0.75 / len(methods),
                yerr=np.abs(np.array(intervals).T - means),
                **{
                    "color": COLORS[color],
                    "hatch": hatch,
                    "edgecolor": "white",
                    "capsize": 2,
                    "label": method,
                },
            )
        ax.set_xticks(range(3), ["main", "spillover", "total"])
        ax.set(title=graph, ylabel="error of the average effect")
        ax.legend(ncols=len(methods), fontsize="small")
    return figure


def plot_overlap(z: np.ndarray, propensities: Mapping[str, np.ndarray]) -> Any:
    """How many units have which exposure, and the fitted joint propensity where effects are read off."""
    figure, axes = new(8.0, 3.7, ncols=2)
    axes[0].hist(z, bins=np.linspace(0, 1, 21), color=COLORS["blue"], edgecolor="white")
    axes[0].set(xlabel="exposure z", ylabel="units")
    bins = np.geomspace(0.03, 10, 33)
    for (label, values), color, line in zip(
        propensities.items(), ("blue", "orange", "green"), ("-", "--", "-."), strict=False
    ):
        axes[1].hist(
            *(np.clip(values, bins[0], bins[-1]), bins),
            **{
                "histtype": "step",
                "color": COLORS[color],
                "linestyle": line,
                "linewidth": 1.8,
                "label": label,
            },
        )
    axes[1].set_xscale("log")
    axes[1].set(xlabel="fitted joint propensity (a density in z)", ylabel="units")
    axes[1].legend(fontsize="small")
    return figure
