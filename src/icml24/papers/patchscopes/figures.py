"""Figures of the chapter: results in, a Figure out; nothing is computed while plotting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml24.common import figures
from icml24.common.figures import COLORS, MARKERS

from .crossmodel import CrossModel
from .experiments import Descriptions, NextToken
from .multihop import MultiHop
from .readouts import oracle_accuracy
from .relations import Relation

__all__ = [
    "plot_cross_model",
    "plot_descriptions",
    "plot_heat",
    "plot_multi_hop",
    "plot_next_token",
    "plot_relations",
    "plot_speed_up",
]

LABELS = {
    "patchscope": "token-identity Patchscope",
    "affine": "affine map to the last layer",
    "logit_lens": "logit lens",
}
STYLE = {
    "patchscope": (COLORS["blue"], "-", MARKERS[0]),
    "affine": (COLORS["orange"], "--", MARKERS[1]),
    "logit_lens": (COLORS["green"], ":", MARKERS[2]),
}


def plot_next_token(result: NextToken) -> Any:
    """Precision and surprisal against the source layer, with bootstrap bands and the floor."""
    fig, axes = figures.new(7.0, 3.9, ncols=2)
    for ax, quantity in zip(axes, ("precision", "surprisal"), strict=True):
        for method, label in LABELS.items():
            color, line, marker = STYLE[method]
            mean, low, high = (x.numpy() for x in result.band(quantity, method))
            ax.plot(result.layers, mean, line, color=color, marker=marker, markersize=4, label=label)
            ax.fill_between(result.layers, low, high, color=color, alpha=0.15, linewidth=0)
        ax.set_xlabel("source layer l")
    axes[0].set_ylabel("precision at 1")
    axes[0].set_ylim(0, 1.02)
    axes[1].set_ylabel("surprisal (nats)")
    axes[1].axhline(float(result.floor.mean()), color=COLORS["grey"], linewidth=1, label="floor")
    axes[1].set_ylim(bottom=0)
    crossing = result.crossing()
    if crossing is not None:
        axes[0].axvline(crossing, color=COLORS["grey"], linewidth=1, linestyle="-.")
        axes[0].annotate(
            "Patchscope\nahead of affine", (crossing, 0.98), xytext=(-4, 0), textcoords="offset points",
            ha="right", va="top", fontsize=8, color=COLORS["grey"],
        )  # fmt: skip
    handles, labels = axes[1].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return fig


def plot_heat(panels: Mapping[str, tuple[Tensor, Sequence[int], Sequence[int]]]) -> Any:
    """Accuracy over target layers (rows) and source layers (columns), one panel an entry."""
    fig, axes = figures.new(7.0, 1.3 + 1.35 * len(panels), nrows=len(panels), squeeze=False)
    for ax, (title, (values, sources, targets)) in zip(axes[:, 0], panels.items(), strict=True):
        image = _heat(ax, values, sources, targets)
        ax.set_title(title, fontsize=10)
        ax.set_ylabel("target layer l*")
    axes[-1, 0].set_xlabel("source layer l")
    fig.colorbar(image, ax=axes[:, 0].tolist(), label="accuracy", fraction=0.04)
    return fig


def _heat(ax: Any, values: Tensor, columns: Sequence[int], rows: Sequence[int]) -> Any:
    image = ax.imshow(values.numpy(), vmin=0, vmax=1, cmap="cividis", aspect="auto", origin="lower")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(False)
    for r, row in enumerate(values.tolist()):
        for c, value in enumerate(row):
            shade = "black" if value > 0.6 else "white"
            ax.text(
                c, r, f"{value:.2f}".replace("0.", "."), ha="center", va="center", fontsize=8, color=shade
            )
            if rows[r] == columns[c]:  # the diagonal l = l*
                ax.add_patch(_frame(c, r))
    return image


def _frame(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor="white", linewidth=1.5)


def plot_descriptions(result: Descriptions) -> Any:
    """Share of descriptions that name the category, and their RougeL, against the layer."""
    fig, ax = figures.new(7.0, 3.2)
    ax.plot(
        result.layers, result.hits.double().mean(1), "-", color=COLORS["blue"], marker=MARKERS[0],
        label="names the category",
    )  # fmt: skip
    ax.plot(
        result.layers, result.rouge.mean(1), "--", color=COLORS["orange"], marker=MARKERS[1],
        label="RougeL-F against one line",
    )  # fmt: skip
    ax.set_xlabel("layer l = l*")
    ax.set_ylabel("share of names, or score")
    ax.set_ylim(0, 1)
    ax.legend(loc="upper right")
    return fig


def plot_speed_up(layers: Sequence[int], modelled: Sequence[float], measured: Sequence[float]) -> Any:
    """Whole prompt over cached patch: the count of multiply-adds, and the clock."""
    fig, ax = figures.new(7.0, 2.9)
    ax.plot(layers, modelled, "-", color=COLORS["blue"], label="count of multiply-adds")
    ax.plot(layers, measured, "o", color=COLORS["orange"], label="clock, a batch of patches")
    ax.set_xlabel("target layer l*")
    ax.set_ylabel("times cheaper")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend()
    return fig


def plot_relations(relations: Sequence[Relation]) -> Any:
    """Accuracy by source layer of each relation: words against probes."""
    columns = 2
    rows = -(-len(relations) // columns)
    fig, axes = figures.new(
        7.0, 2.1 * rows + 0.6, nrows=rows, ncols=columns, sharex=True, sharey=True, squeeze=False
    )
    for ax in axes.flat[len(relations) :]:
        ax.set_visible(False)
    for ax, relation in zip(axes.flat, relations, strict=False):
        for values, line, color, marker, label in (
            (relation.best, "-", "blue", MARKERS[0], "best single l*"),
            (relation.mean_over_targets, "-", "sky", None, "mean over l*"),
            (relation.oracle, "--", "blue", None, "oracle over l*"),
            (relation.probe_unseen, "-.", "orange", MARKERS[1], "probe, new subjects"),
            (relation.probe_seen, ":", "green", MARKERS[2], "probe, seen subjects"),
        ):
            style = {"color": COLORS[color], "marker": marker, "markersize": 4, "label": label}
            ax.plot(relation.layers, values, line, **style)
        ax.axhline(relation.majority, color=COLORS["grey"], linewidth=1, label="majority")
        ax.set_title(f"{relation.name.replace('_', ' ')} ({relation.kept} of {relation.total})", fontsize=9)
        ax.set_ylim(-0.03, 1.03)
    for ax in axes[-1]:
        ax.set_xlabel("source layer l")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    return fig


def plot_cross_model(result: CrossModel) -> Any:
    """Precision of the large model's reading, with the small model's own readings beside it."""
    fig, axes = figures.new(7.0, 2.6, ncols=2, width_ratios=(5, 2), sharey=True)
    rows = range(len(result.precision))
    _heat(axes[0], result.precision, range(result.precision.shape[1]), [f" {r} " for r in rows])
    axes[0].set_xlabel("target layer l* of the large model")
    axes[0].set_ylabel("source layer l")
    own = np.stack([result.logit_lens, result.own_affine], axis=1)
    _heat(axes[1], torch.from_numpy(own), ["lens", "affine"], [f" {r} " for r in rows])
    axes[1].set_xlabel("own read-out")
    return fig


def plot_multi_hop(result: MultiHop) -> Any:
    """Ways to answer a two-hop question, as bars; the oracle hatched."""
    summary = oracle_accuracy(result.hits.flatten(0, 1))
    _, held_out, _ = result.held_out_pair()
    bars = {
        "asked at once": float(result.vanilla.double().mean()),
        "step by step": float(result.step_by_step.double().mean()),
        "best pair, held out": held_out,
        "best pair, same items": summary["best_single"],
        "oracle over pairs": summary["oracle"],
        "control: the answer's own state": oracle_accuracy(result.control.flatten(0, 1))["best_single"],
    }
    fig, ax = figures.new(7.0, 2.7)
    colors = [COLORS["grey"]] * 2 + [COLORS["blue"]] * 3 + [COLORS["amber"]]
    drawn = ax.barh(list(bars), list(bars.values()), color=colors)
    drawn[-2].set(hatch="//", facecolor="white", edgecolor=COLORS["blue"])
    ax.bar_label(drawn, fmt="%.2f", padding=3)
    ax.set_xlim(0, 1.15)
    ax.invert_yaxis()
    ax.set_xlabel(f"share of {len(result.items)} questions answered")
    return fig
