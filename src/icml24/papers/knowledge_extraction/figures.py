"""The chapter's figures: results in, matplotlib figure out; nothing is computed while plotting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icml24.common.figures import COLORS, MARKERS, new
from icml24.papers.knowledge_extraction.experiments import Mixed
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES

__all__ = ["plot_answers", "plot_floors", "plot_mixed", "plot_places", "plot_probes"]

LABELS = [name.replace("_", "\n") for name in ATTRIBUTES]
SHADES = ("orange", "amber", "purple", "blue", "sky", "green")
HATCHES = ("", "//", "..", "\\\\", "xx", "")
LINES = {
    "QA train": ("orange", "-"),
    "BIO train": ("blue", "-"),
    "BIO test": ("blue", "--"),
    "QA test": ("orange", "--"),
}


def plot_floors(losses: Mapping[str, Sequence[float]], floors: Mapping[str, Mapping[str, float]]) -> Any:
    """Pretraining loss, in nats a token, one panel a kind of text, with its entropy floors."""
    figure, axes = new(7.4, 3.5, ncols=len(losses), sharey=True, squeeze=False)
    for ax, (name, loss) in zip(axes[0], losses.items(), strict=True):
        ax.plot(np.arange(1, len(loss) + 1), loss, color=COLORS["blue"], linewidth=1.2)
        for (label, value), style in zip(floors[name].items(), ("--", ":"), strict=False):
            ax.axhline(value, color=COLORS["black"], linestyle=style, label=f"{label}: {value:.2f}")
        ax.set_yscale("log")
        ax.set(title=name, xlabel="optimiser steps")
        ax.legend(loc="upper right", fontsize=8)
    axes[0, 0].set_ylabel("loss (nats a token)")
    return figure


def plot_answers(
    accuracies: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, tuple[float, float, float]],
    chance: Mapping[str, float],
) -> Any:
    """Exact match by attribute and variant, the best constant answer as ticks; right, means and intervals."""
    figure, (left, right) = new(8.4, 4.2, ncols=2, width_ratios=[3, 1.4])
    places, width = np.arange(len(ATTRIBUTES)), 0.8 / len(accuracies)
    for index, (name, values) in enumerate(accuracies.items()):
        offset = (index - (len(accuracies) - 1) / 2) * width
        left.bar(
            places + offset,
            [values[a] for a in ATTRIBUTES],
            width,
            color=COLORS[SHADES[index % 6]],
            hatch=HATCHES[index % 6],
            edgecolor="white",
            label=name,
        )
    left.hlines(
        [chance[a] for a in ATTRIBUTES],
        places - 0.45,
        places + 0.45,
        color=COLORS["black"],
        linestyle="--",
        label="best constant answer",
    )
    left.set_xticks(places, LABELS, fontsize=8)
    left.set(ylabel="exact match, held-out people", ylim=(0, 1.02))
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8)
    for index, (mean, low, high) in enumerate(intervals.values()):
        right.errorbar(
            index,
            mean,
            yerr=[[mean - low], [high - mean]],
            color=COLORS[SHADES[index % 6]],
            marker=MARKERS[index % len(MARKERS)],
            capsize=4,
        )
    right.axhline(np.mean(list(chance.values())), color=COLORS["black"], linestyle="--")
    right.set_xticks(
        range(len(intervals)), [n.replace("+", "\n+") for n in intervals], fontsize=7, rotation=0
    )
    right.set(ylabel="mean of the six", ylim=(0, 1.02), xlim=(-0.6, len(intervals) - 0.4))
    return figure


def plot_places(matrices: Mapping[str, Any]) -> Any:
    """Position-probe accuracies: rows the place in the text, columns the attribute; NaN stays blank."""
    figure, axes = new(9.6, 3.7, ncols=len(matrices), sharey=True, squeeze=False)
    for ax, (name, matrix) in zip(axes[0], matrices.items(), strict=True):
        values = np.asarray(matrix)
        image = ax.imshow(values, vmin=0, vmax=1, cmap="cividis")
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                if np.isnan(value):
                    continue
                shade = "black" if value > 0.5 else "white"
                ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=shade)
        ax.set_xticks(range(6), LABELS, fontsize=6)
        ax.set_yticks(range(6), [f"{k}" for k in range(1, 7)])
        ax.grid(False)
        ax.set(title=name, xlabel="attribute read")
    axes[0, 0].set_ylabel("just before the value of sentence")
    figure.colorbar(image, ax=axes[0, -1], label="accuracy, held-out people", pad=0.02)
    return figure


def plot_probes(probes: Mapping[str, float], answers: Mapping[str, float], chance: float) -> Any:
    """Answers after finetuning against what a linear probe reads from the name, one dot a variant."""
    figure, ax = new(6.4, 4.0)
    for index, name in enumerate(probes):
        ax.plot(
            probes[name],
            answers[name],
            MARKERS[index % len(MARKERS)],
            color=COLORS[SHADES[index % 6]],
            markersize=9,
        )
        ax.annotate(
            *(name, (probes[name], answers[name])),
            **{"xytext": (0, 9), "textcoords": "offset points", "ha": "center", "fontsize": 9},
        )
    ax.axhline(chance, color=COLORS["black"], linestyle="--", linewidth=1, label="best constant answer")
    ax.set(xlabel="query probe: accuracy from the name", ylabel="exact match of answers", ylim=(0, 1.02))
    ax.margins(x=0.3)
    ax.legend(loc="lower right", fontsize=8)
    return figure


def plot_mixed(mixed: Mixed, chance: float) -> Any:
    """Four accuracies during mixed training; band from the least to the greatest seed."""
    figure, ax = new(7.0, 3.8)
    for name, (color, style) in LINES.items():
        values = mixed.curves[name]
        ax.plot(mixed.steps, values.mean(0), color=COLORS[color], linestyle=style, label=name)
        ax.fill_between(
            mixed.steps, values.min(0), values.max(0), color=COLORS[color], alpha=0.2, linewidth=0
        )
    ax.axhline(chance, color=COLORS["black"], linestyle=":", label="best constant answer")
    ax.set(xlabel="optimiser steps", ylabel="accuracy", ylim=(-0.02, 1.04))
    ax.legend(loc="center right", fontsize=9)
    return figure
