"""The chapter's figures: each takes results and returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from icml24.common.figures import COLORS, MARKERS, new

from .alignment import alignment_weights, minmax_normalize, token_patch_similarity
from .data import Scenes, Vocabulary
from .evaluation import class_scores, class_texts, embed
from .experiments import CostCurve, Run
from .symbolic import SymbolicRun

__all__ = [
    "plot_costs",
    "plot_curves",
    "plot_scenes",
    "plot_segmentation",
    "plot_slopes",
    "plot_weights",
    "plot_zeroed",
]

#: One sign a class, so that a label map can be read without colours.
SIGNS = (*"0123456789", "○", "□", "△", "✚")
STYLES = {
    "clip": ("blue", "o", "-"),
    "sparc": ("orange", "s", "-"),
    "sparc (local)": ("orange", "s", "-"),
    "local": ("purple", "D", "--"),
    "softmax": ("amber", "v", ":"),
    "pacl": ("sky", "P", "-."),
    "filip": ("green", "^", "--"),
    "gloria (local)": ("black", "X", ":"),
}


def plot_scenes(scenes: Scenes, picks: Sequence[int]) -> Any:
    """Scenes with their captions, and below each its mask in signs."""
    figure, axes = new(8.4, 3.6, nrows=2, ncols=len(picks))
    for column, index in enumerate(picks):
        _image(axes[0, column], scenes, index)
        axes[0, column].set_title(_two_lines(scenes.caption(index)), fontsize=8.5, loc="center")
        cells = scenes.cells[index].view(scenes.config.grid, -1)
        _signs(axes[1, column], cells, np.where(cells >= 0, 1, 0), ["#FFFFFF", "#CFE3F2"])
    return figure


def plot_weights(run: Run, scenes: Scenes, index: int) -> Any:
    """For each word of one caption: similarity, its min-max, SPARC's weights, softmax weights."""
    seen = embed(run.model, _only(scenes, index))
    similarity = token_patch_similarity(seen.tokens, seen.patches)[0]
    maps = {
        "similarity": similarity,
        "min-max": minmax_normalize(similarity),
        "weights": alignment_weights(similarity),
        "softmax weights": alignment_weights(similarity, mode="softmax"),
    }
    words = Vocabulary.decode(scenes.tokens[index])
    figure, axes = new(7.6, 1.35 * len(words) + 0.3, nrows=len(words), ncols=5, squeeze=False)
    for row, word in enumerate(words):
        _image(axes[row, 0], scenes, index)
        axes[row, 0].set_ylabel(word, fontsize=10)
        for column, (name, values) in enumerate(maps.items(), start=1):
            ax = axes[row, column]
            grid = values[row].view(scenes.config.grid, -1)
            ax.imshow(grid, cmap="cividis", vmin=None if name == "similarity" else 0)
            if name.endswith("weights"):
                for y, x in (grid == 0).nonzero().tolist():
                    ax.text(x, y, "0", color="white", ha="center", va="center", fontsize=7)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.grid(False)
            if row == 0:
                ax.set_title(name, fontsize=9.5, loc="center")
    return figure


def plot_zeroed(counts: Mapping[str, Tensor], expected: Mapping[str, float]) -> Any:
    """Share of words by number of patches of weight zero; expected means as lines."""
    figure, ax = new(7.0, 3.6)
    places = np.arange(1 + max(int(c.max()) for c in counts.values()))
    for k, ((name, c), color, hatch) in enumerate(
        zip(counts.items(), ("blue", "amber"), ("", "///"), strict=True)
    ):
        share = np.bincount(c.numpy(), minlength=len(places)) / len(c)
        ax.bar(places + 0.4 * k - 0.2, share, 0.4, color=COLORS[color], hatch=hatch, label=name)
    for (name, at), color, line in zip(expected.items(), ("green", "orange"), ("--", ":"), strict=True):
        ax.axvline(at, color=COLORS[color], linestyle=line, label=name)
    ax.set(xlabel="patches of weight zero, of 25", ylabel="share of words")
    ax.legend()
    return figure


def plot_slopes(sharpness: np.ndarray, norms: Mapping[str, np.ndarray], paths: Mapping[str, Tensor]) -> Any:
    """Left: Jacobian norms against sharpness. Right: effective number of patches while climbing."""
    figure, (left, right) = new(8.4, 3.7, ncols=2)
    for (name, values), color, marker in zip(norms.items(), ("amber", "orange"), MARKERS, strict=False):
        left.loglog(sharpness, values, color=COLORS[color], marker=marker, markevery=6, label=name)
    left.set(xlabel="factor of all similarities", ylabel="norm of the Jacobian", ylim=(1e-9, None))
    left.legend()
    for (name, path), color, line in zip(paths.items(), ("amber", "orange"), ("--", "-"), strict=True):
        right.plot(1 / path.square().sum(1), color=COLORS[color], linestyle=line, label=name)
    right.set(xlabel="step of the ascent", ylabel="effective number of patches", ylim=(0, None))
    right.legend()
    return figure


def plot_curves(runs: Mapping[str, SymbolicRun]) -> Any:
    """Left: each objective's local loss. Right: pointing accuracy."""
    figure, (left, right) = new(8.4, 3.7, ncols=2)
    for name, run in runs.items():
        color, marker, line = STYLES[name]
        style = {"color": COLORS[color], "marker": marker, "linestyle": line, "markevery": 3, "label": name}
        if "local" in run.curves:
            left.semilogy(run.curves["step"], run.curves["local"], **style)
        right.plot(run.curves["step"], run.curves["pointing"], **style)
    left.set(xlabel="step", ylabel="sequence-wise loss (nats)")
    right.set(xlabel="step", ylabel="pointing accuracy", ylim=(0, 1.03))
    left.legend()
    right.legend()
    return figure


def plot_segmentation(runs: Mapping[str, Run], scenes: Scenes, picks: Sequence[int]) -> Any:
    """Scene, truth and each model's labels among all classes, one row a scene."""
    figure, axes = new(7.6, 1.75 * len(picks) + 0.3, nrows=len(picks), ncols=2 + len(runs), squeeze=False)
    grid = scenes.config.grid
    for row, index in enumerate(picks):
        truth = scenes.cells[index].view(grid, -1)
        _image(axes[row, 0], scenes, index)
        _signs(axes[row, 1], truth, np.where(truth >= 0, 1, 0), ["#FFFFFF", "#CFE3F2"])
        for column, run in enumerate(runs.values(), start=2):
            seen = embed(run.model, _only(scenes, index))
            guess = class_scores(seen.patches, class_texts(run.model))[0].argmax(-1).view(grid, -1)
            present = np.isin(guess, truth[truth >= 0])
            kind = np.where(truth >= 0, np.where(guess == truth, 1, 3), np.where(present, 2, 0))
            _signs(axes[row, column], guess, kind, ["#FFFFFF", "#CFE3F2", "#F3C9A5", "#E9E9E9"])
    for ax, name in zip(axes[0], ("scene", "truth", *runs), strict=True):
        ax.set_title(name, fontsize=10, loc="center")
    return figure


def plot_costs(curves: Mapping[str, CostCurve]) -> Any:
    """Processor time and kept memory of one forward and backward pass against the batch."""
    figure, axes = new(8.4, 3.9, ncols=2)
    for ax, field, label in zip(
        axes,
        ("seconds", "megabytes"),
        ("processor seconds", "megabytes kept for the backward pass"),
        strict=True,
    ):
        for name, curve in curves.items():
            color, marker, line = STYLES[name]
            ax.loglog(
                curve.sizes,
                getattr(curve, field),
                color=COLORS[color],
                marker=marker,
                linestyle=line,
                label=name,
            )
        ticks = sorted({size for curve in curves.values() for size in curve.sizes})
        ax.set_xticks(ticks, [str(size) for size in ticks])
        ax.minorticks_off()
        ax.set(xlabel="pairs in the batch", ylabel=label)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(curves))
    return figure


def _image(ax: Any, scenes: Scenes, index: int) -> None:
    ax.imshow(scenes.images[index])
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)


def _signs(ax: Any, cells: Tensor, kind: np.ndarray, colors: Sequence[str]) -> None:
    from matplotlib.colors import ListedColormap

    ax.imshow(kind, cmap=ListedColormap(list(colors)), vmin=-0.5, vmax=len(colors) - 0.5)
    for (y, x), label in np.ndenumerate(cells.numpy()):
        if label >= 0:
            ax.text(x, y, SIGNS[label], ha="center", va="center", fontsize=9)
    ax.set_xticks(np.arange(cells.shape[1] + 1) - 0.5, [])
    ax.set_yticks(np.arange(cells.shape[0] + 1) - 0.5, [])
    ax.tick_params(length=0)


def _only(scenes: Scenes, index: int) -> Scenes:
    part = slice(index, index + 1)
    return Scenes(
        *(scenes.images[part], scenes.tokens[part], scenes.mask[part], scenes.segmentation[part]),
        scenes.objects[part],
        scenes.config,
    )


def _two_lines(caption: str) -> str:
    words = caption.split()
    half = (len(words) + 1) // 2
    return caption if len(caption) < 16 else " ".join(words[:half]) + "\n" + " ".join(words[half:])
