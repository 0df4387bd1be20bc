"""The chapter's figures: each takes results and returns a matplotlib figure, and computes no result."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icml24.common.figures import COLORS, MARKERS, new

from .experiments import Stability

__all__ = [
    "plot_calibration",
    "plot_comparison",
    "plot_counties",
    "plot_gap",
    "plot_graphs",
    "plot_pvalues",
    "plot_unrolled",
]

METHOD_STYLES = {
    "DHT-CIT": ("blue", "o"),
    "SCORE": ("orange", "s"),
    "DirectLiNGAM": ("green", "^"),
    "PC": ("purple", "D"),
    "PC, open edges half right": ("grey", "v"),
}


def plot_unrolled(
    graph: np.ndarray,
    names: Sequence[str],
    slices: int,
    seen: tuple[int, int],
    path: Sequence[tuple[int, int]],
) -> Any:
    """The graph unrolled over time; two slices are seen, and `path` of (slice, variable) is drawn bold."""
    figure, ax = new(7.4, 3.0)
    bold = set(itertools.pairwise(path))
    for t in range(slices):
        known = t in seen
        for i, name in enumerate(names):
            ax.text(
                *(t, -i, name),
                ha="center",
                va="center",
                fontsize=11,
                color="white" if known else COLORS["black"],
                bbox={
                    "boxstyle": "circle,pad=0.35",
                    "facecolor": COLORS["blue"] if known else "white",
                    "edgecolor": COLORS["blue"] if known else COLORS["grey"],
                    "linestyle": "-" if known else ":",
                },
                zorder=3,
            )
            if t:
                _arrow(ax, (t - 1, -i), (t, -i), ((t - 1, i), (t, i)) in bold)
        for i, j in np.argwhere(graph):
            bend = 0.0 if abs(i - j) == 1 else 0.35
            _arrow(ax, (t, -i), (t, -j), ((t, i), (t, j)) in bold, bend)
    ax.set(xlim=(-0.5, slices - 0.5), ylim=(-len(names) + 0.45, 0.55), yticks=[])
    ax.set_xticks(range(slices), [f"slice {t}" + (" (seen)" if t in seen else "") for t in range(slices)])
    ax.grid(False)
    return figure


def _arrow(
    ax: Any, start: tuple[float, float], end: tuple[float, float], bold: bool, bend: float = 0.0, **style: Any
) -> None:
    style = {"color": COLORS["orange"] if bold else COLORS["grey"], "linewidth": 2.6 if bold else 1.0} | style
    ax.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "shrinkA": 13,
            "shrinkB": 13,
            "connectionstyle": f"arc3,rad={bend}",
            **style,
        },
        zorder=2,
    )


def plot_pvalues(pvalues: np.ndarray, below: np.ndarray, alpha: float = 0.05) -> Any:
    """Matrix of p-values on a logarithmic scale, true descendants outlined, rejections dotted."""
    figure, ax = new(5.2, 4.2)
    d = len(pvalues)
    height = -np.log10(np.clip(pvalues, 1e-4, 1.0))
    np.fill_diagonal(height, np.nan)
    image = ax.imshow(height, cmap="cividis", vmin=0, vmax=4)
    figure.colorbar(image, ax=ax, label="- log10 p (capped at 4)")
    for i, j in np.argwhere(below):
        ax.add_patch(_square(i, j))
    for i, j in np.argwhere((pvalues < alpha) & ~np.eye(d, dtype=bool)):
        ax.plot(j, i, "o", color="white", markeredgecolor="black", markersize=5)
    ax.set_xticks(range(d))
    ax.set_yticks(range(d))
    ax.set(xlabel="late variable j", ylabel="early variable i")
    ax.grid(False)
    return figure


def _square(i: int, j: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor=COLORS["orange"], linewidth=2.5)


def plot_graphs(truth: np.ndarray, graphs: Mapping[str, np.ndarray], layers: Sequence[np.ndarray]) -> Any:
    """Graphs drawn by layer, sinks at the bottom: edges of the truth solid, others dashed."""
    figure, axes = new(8.4, 3.6, ncols=len(graphs), squeeze=False)
    place = {}
    for level, layer in enumerate(layers):
        for k, node in enumerate(layer):
            # shifts by the golden ratio keep nodes of different layers from lining up
            place[int(node)] = (k - (len(layer) - 1) / 2 + 2 * (level * 0.618 % 1) - 1, level)
    wide = max(abs(x) for x, _ in place.values()) + 0.6
    for ax, (title, graph) in zip(axes[0], graphs.items(), strict=True):
        for i, j in np.argwhere(graph):
            right = bool(truth[i, j])
            style = {"color": COLORS["blue"], "linewidth": 1.8} if right else {"color": COLORS["orange"]}
            _arrow(ax, place[i], place[j], False, 0.12, linestyle="-" if right else "--", **style)
        for node, (x, y) in place.items():
            ax.text(
                *(x, y, str(node)),
                ha="center",
                va="center",
                bbox={"boxstyle": "circle,pad=0.3", "facecolor": "white", "edgecolor": COLORS["black"]},
                zorder=3,
            )
        ax.set(title=title, xlim=(-wide, wide), ylim=(-0.5, len(layers) - 0.5), xticks=[])
        ax.set_yticks(range(len(layers)))
        ax.grid(False)
    axes[0][0].set_ylabel("layer (0: sinks)")
    return figure


def plot_calibration(pvalues: Mapping[int, np.ndarray]) -> Any:
    """Distribution functions of p-values whose null is true, by number of variables."""
    figure, ax = new(6.0, 3.8)
    lines = ("-", "--", "-.", ":")
    for index, (d, values) in enumerate(pvalues.items()):
        grid = np.sort(values)
        ax.step(
            *(grid, np.arange(1, len(grid) + 1) / len(grid)),
            where="post",
            color=list(COLORS.values())[index],
            linestyle=lines[index % 4],
            label=f"d = {d}: {d - 1} conditioning variable{'s' if d > 2 else ''}",
        )
    ax.plot([0, 1], [0, 1], color=COLORS["grey"], linewidth=1, label="uniform: an exact test")
    ax.axvline(0.05, color=COLORS["grey"], linestyle=":", linewidth=1)
    ax.text(0.06, 0.93, "level 0.05", color=COLORS["grey"])
    ax.set(xlabel="p-value", ylabel="share at or below", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="lower right")
    return figure


def plot_comparison(panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]]) -> Any:
    """Means with intervals: one panel a quantity, one group a setting, one mark a method."""
    figure, axes = new(8.4, 3.6, ncols=len(panels), squeeze=False)
    for ax, (quantity, settings) in zip(axes[0], panels.items(), strict=True):
        for group, methods in enumerate(settings.values()):
            for index, (name, (mean, low, high)) in enumerate(methods.items()):
                color, marker = METHOD_STYLES[name]
                ax.errorbar(
                    *([group + 0.13 * (index - (len(methods) - 1) / 2)], [mean]),
                    yerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
                    **{"color": COLORS[color], "marker": marker, "linestyle": "none", "capsize": 3},
                    label=name if group == 0 else None,
                )
        ax.set_xticks(range(len(settings)), list(settings))
        ax.set(ylabel=quantity, xlim=(-0.5, len(settings) - 0.5))
        ax.set_ylim(bottom=0)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def plot_gap(
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    gaps: Sequence[int],
    linear: Mapping[str, np.ndarray],
    linear_gaps: np.ndarray,
) -> Any:
    """Left: what the tests find, against the gap. Right: the effect they look for, in closed form."""
    figure, (left, right) = new(8.4, 3.5, ncols=2)
    for index, (name, values) in enumerate(curves.items()):
        mean, low, high = np.array(values).T
        color = list(COLORS.values())[index]
        left.plot(
            gaps, mean, color=color, marker=MARKERS[index], linestyle=("-", "--")[index % 2], label=name
        )
        left.fill_between(gaps, low, high, color=color, alpha=0.15, linewidth=0)
    left.set(xlabel="gap between the slices", ylabel="share of descendants", ylim=(0, 1.05))
    left.legend(loc="lower left")
    for index, (name, values) in enumerate(linear.items()):
        style = {"marker": MARKERS[index], "linestyle": "-"} if index == 0 else {"linestyle": "--"}
        right.plot(linear_gaps, values, color=list(COLORS.values())[index], label=name, **style)
    right.set_yscale("log")
    right.set(xlabel="gap between the slices", ylabel="partial correlation, effect")
    right.legend(loc="lower left")
    return figure


def plot_counties(stability: Stability, truth: np.ndarray | None = None) -> Any:
    """Share of sub-samples that keep each edge; variables from causes to effects by mean layer."""
    figure, ax = new(7.4, 5.4)
    mean = stability.level.mean(axis=0)
    order = np.argsort(-mean, kind="stable")
    kept = stability.kept[np.ix_(order, order)].copy()
    np.fill_diagonal(kept, np.nan)
    image = ax.imshow(kept, cmap="cividis", vmin=0, vmax=1)
    figure.colorbar(image, ax=ax, label="share of sub-samples that keep the edge")
    for i, j in np.argwhere(np.nan_to_num(kept) > 0):
        ax.text(
            *(j, i, f"{kept[i, j]:.2f}".lstrip("0") if kept[i, j] < 1 else "1"),
            ha="center",
            va="center",
            fontsize=8,
            color="black" if kept[i, j] > 0.55 else "white",
        )
    if truth is not None:
        for i, j in np.argwhere(truth[np.ix_(order, order)]):
            ax.add_patch(_square(i, j))
    labels = [stability.names[k] for k in order]
    ax.set_xticks(range(len(order)), labels, rotation=45, ha="right")
    ax.set_yticks(
        range(len(order)), [f"{name} ({mean[k]:.1f})" for name, k in zip(labels, order, strict=True)]
    )
    ax.set(xlabel="effect", ylabel="cause (mean layer)")
    ax.grid(False)
    return figure
