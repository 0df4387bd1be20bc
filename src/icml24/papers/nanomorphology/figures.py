"""Figures of the chapter: results in, matplotlib figure out; nothing is computed while plotting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from icml24.common.figures import COLORS, MARKERS, new
from icml24.papers.nanomorphology.shapley import TreeExplanation
from icml24.papers.nanomorphology.targets import SHAPES
from icml24.papers.nanomorphology.text_to_image import ImageStudy

__all__ = ["plot_explanation", "plot_images", "plot_labels", "plot_leak", "plot_models", "plot_rules"]

RULES = {
    "test": ("forest, threshold from test rows", "orange", ""),
    "train_cv": ("forest, threshold from training rows", "blue", "//"),
    "majority": ("majority class", "grey", ".."),
}


def plot_labels(conditional: np.ndarray, targets: pd.DataFrame) -> Any:
    """Left: share of rows with shape k among those with shape c. Right: rows a size target."""
    figure, (left, right) = new(7.4, 3.6, ncols=2, width_ratios=[1, 1.25])
    left.imshow(conditional, vmin=0, vmax=1, cmap="cividis")
    for c, row in enumerate(conditional):
        for k, value in enumerate(row):
            left.text(
                k,
                c,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=9,
                color="black" if value > 0.5 else "white",
            )
    left.set_xticks(range(5), SHAPES, rotation=40, ha="right")
    left.set_yticks(range(5), SHAPES)
    left.grid(False)
    left.set_xlabel("shape k present")
    left.set_ylabel("given shape c")
    positions = np.arange(5)
    for i, (size, name, color) in enumerate(
        (("s", "small", "sky"), ("m", "medium", "amber"), ("l", "large", "purple"))
    ):
        counts = [int(targets[f"{shape}_{size}"].sum()) for shape in SHAPES]
        bars = right.bar(positions + 0.27 * (i - 1), counts, 0.25, color=COLORS[color], label=name)
        right.bar_label(bars, fontsize=8)
    right.set_xticks(positions, SHAPES, rotation=40, ha="right")
    right.set_ylabel("positive rows")
    right.legend(title="size")
    return figure


def plot_rules(panel: pd.DataFrame, best: Mapping[str, float] | None = None) -> Any:
    """Accuracy and macro-F1 of three rules a shape; `best` marks the best possible accuracy."""
    figure, axes = new(7.4, 3.6, ncols=2, sharey=True)
    positions = np.arange(len(SHAPES))
    for ax, score, title in zip(axes, ("accuracy", "macro_f1"), ("accuracy", "macro-F1"), strict=True):
        for i, (rule, (label, color, hatch)) in enumerate(RULES.items()):
            part = panel[panel["rule"] == rule].set_index("target").loc[list(SHAPES)]
            ax.bar(
                positions + 0.27 * (i - 1),
                part[score],
                0.25,
                yerr=part[f"{score}_std"],
                color=COLORS[color],
                hatch=hatch,
                edgecolor="white",
                error_kw={"elinewidth": 1, "ecolor": COLORS["black"]},
                label=label,
            )
        if best is not None and score == "accuracy":
            ax.plot(
                positions,
                [best[shape] for shape in SHAPES],
                "_",
                ms=22,
                mew=2,
                color=COLORS["black"],
                label="best possible",
            )
        ax.set_xticks(positions, SHAPES, rotation=40, ha="right")
        ax.set_title(title)
        ax.set_ylim(0, 1)
    axes[0].set_ylabel("score on the test rows")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def plot_explanation(explanation: TreeExplanation, top: int = 10) -> Any:
    """Beeswarm: one dot a test row and feature, colour by the feature's value from low to high."""
    figure, ax = new(7.0, 4.2)
    names = explanation.ranking(top)[::-1]
    spread = np.random.default_rng(0)  # only moves dots apart
    for height, name in enumerate(names):
        column = explanation.features[name].to_numpy(float)
        phi = explanation.values[:, explanation.features.columns.get_loc(name)]
        span = np.ptp(column)
        level = (column - column.min()) / (span if span > 0 else 1)
        jitter = spread.uniform(-0.28, 0.28, len(phi))
        dots = ax.scatter(phi, height + jitter, c=level, cmap="cividis", vmin=0, vmax=1, s=14, lw=0)
    ax.axvline(0, color=COLORS["grey"], lw=1)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("contribution to the probability of Stick")
    bar = figure.colorbar(dots, ax=ax, ticks=[0, 1])
    bar.ax.set_yticklabels(["low", "high"])
    bar.set_label("value of the feature")
    return figure


def plot_leak(
    curve: pd.DataFrame,
    majority: float,
    *,
    laboratory: pd.DataFrame | None = None,
    laboratory_majority: float | None = None,
    recorded: Mapping[int, float] | None = None,
) -> Any:
    """Average accuracy of the rule that never reads the query, against the number of examples.

    With laboratory labels a second panel shows the same there, with the recorded replies of GPT-4.
    """
    panels = [("generated table", curve, majority, None)]
    if laboratory is not None:
        panels.append(("laboratory labels", laboratory, laboratory_majority, recorded))
    figure, axes = new(7.0, 3.8, ncols=len(panels), sharey=True, squeeze=False)
    for ax, (title, data, floor, dots) in zip(axes[0], panels, strict=True):
        for i, (leak, label, color) in enumerate(
            ((True, "copy rule, class given away", "orange"), (False, "copy rule, random examples", "blue"))
        ):
            part = data[data["leak"] == leak]
            ax.plot(part["shots"], part["accuracy"], color=COLORS[color], marker=MARKERS[i], label=label)
            ax.fill_between(
                part["shots"],
                part["accuracy"] - part["std"],
                part["accuracy"] + part["std"],
                color=COLORS[color],
                alpha=0.15,
                lw=0,
            )
        told = data[data["leak"]]
        ax.plot(told["shots"], told["exact"], "x", color=COLORS["black"], ms=8, label="closed form")
        if floor is not None:
            ax.axhline(floor, color=COLORS["grey"], ls="--", label="majority class")
        if dots:
            ax.plot(
                list(dots),
                list(dots.values()),
                "D",
                color=COLORS["purple"],
                label="GPT-4, recorded, not re-run",
            )
        ax.set_title(title)
        ax.set_xlabel("examples in the prompt")
        ax.legend(fontsize=8, loc="lower right")
    axes[0, 0].set_ylabel("accuracy, mean over five shapes")
    return figure


def plot_models(
    printed: Mapping[str, Sequence[float]],
    majority: Mapping[str, float],
    copied: Mapping[str, float] | None = None,
) -> Any:
    """Accuracies of chat models by shape, beside the majority class and the rule that never reads the query.

    `printed` holds one accuracy a shape for each setting, `majority` and `copied` one a shape.
    """
    figure, ax = new(7.0, 3.9)
    positions = np.arange(len(SHAPES))
    colors = [name for name in COLORS if name not in ("black", "grey")]
    for i, (setting, values) in enumerate(printed.items()):
        place = positions + 0.11 * (i - (len(printed) - 1) / 2)
        name = setting.split("_")[0]
        ax.plot(place, values, MARKERS[i], ms=6, color=COLORS[colors[i % len(colors)]], label=name)
    floors = [("majority class", majority, "--", "grey")]
    if copied is not None:
        floors.append(("copy rule, class given away", copied, "-", "black"))
    for label, values, style, color in floors:
        heights = [values[shape] for shape in SHAPES]
        ax.hlines(
            heights, positions - 0.42, positions + 0.42, COLORS[color], linestyles=style, lw=1.8, label=label
        )
    ax.set_xticks(positions, SHAPES)
    ax.set_ylim(0.3, 1)
    ax.set_ylabel("accuracy")
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def plot_images(study: ImageStudy, shown: list[str], columns: int = 8) -> Any:
    """Held-out rendered crops, their reconstructions, and particles drawn from the text alone."""
    picks: list[int] = []
    for shape in SHAPES:  # one crop a shape first, then the rest in order
        picks += [i for i, row in enumerate(study.rows) if shown[row] == shape][:2]
    picks = picks[:columns]
    rows = (
        ("rendered", study.crops),
        ("reconstructed", study.reconstructions),
        ("from text", study.from_text),
    )
    figure, axes = new(7.2, 3.1, nrows=3, ncols=len(picks))
    for line, (title, images) in zip(axes, rows, strict=True):
        for ax, i in zip(line, picks, strict=True):
            ax.imshow(images[i, 0], cmap="gray", vmin=0, vmax=1)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.grid(False)
        line[0].set_ylabel(title, fontsize=9)
    for ax, i in zip(axes[0], picks, strict=True):
        ax.set_title(shown[study.rows[i]], fontsize=9, loc="center")
    return figure
