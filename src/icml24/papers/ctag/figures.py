"""Figures of the chapter: results in, matplotlib figure out; nothing is computed while plotting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml24.common.figures import COLORS, MARKERS, new

from .audio import LogMel
from .comparison import Comparison
from .data import CLASSES, SAMPLE_RATE
from .experiments import Path
from .parameters import PARAMETERS

__all__ = [
    "plot_ablations",
    "plot_confusion",
    "plot_curves",
    "plot_envelopes",
    "plot_flow",
    "plot_gradients",
    "plot_path",
    "plot_sensitivity",
    "plot_spectrograms",
]

STYLES = {
    "LES": ("blue", "-"),
    "LES, a mean a member": ("sky", "--"),
    "CMA-ES": ("green", "-."),
    "random search": ("orange", ":"),
}


def plot_flow() -> Any:
    """Signal flow of the synthesizer: control signals on the left, sound on the right."""
    figure, ax = new(7.4, 4.2)
    ax.set(xlim=(0, 10), ylim=(0, 6))
    ax.axis("off")
    boxes = {
        "keyboard": (0.9, 5.4, "keyboard\npitch, note length"),
        "adsr_1": (0.9, 4.2, "envelope 1"),
        "adsr_2": (0.9, 3.2, "envelope 2"),
        "lfo_1": (0.9, 2.2, "LFO 1\n(2 envelopes)"),
        "lfo_2": (0.9, 1.0, "LFO 2\n(2 envelopes)"),
        "matrix": (3.6, 2.7, "modulation\nmatrix 5 x 4"),
        "vco_1": (6.3, 4.4, "sine\noscillator"),
        "vco_2": (6.3, 2.7, "square-saw\noscillator"),
        "noise": (6.3, 1.0, "noise"),
        "mixer": (8.9, 2.7, "mixer\n3 levels"),
    }
    for key, (x, y, text) in boxes.items():
        control = x < 5
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=9.5,
            bbox={
                "boxstyle": "round,pad=0.4",
                "facecolor": "#E8F1F8" if control else "#FBEBDD",
                "edgecolor": COLORS["blue" if control else "orange"],
                "linestyle": "-" if key != "keyboard" else "--",
            },
        )

    def arrow(start: tuple[float, float], end: tuple[float, float], label: str = "") -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": COLORS["grey"], "lw": 1.2})
        if label:
            ax.text(
                (start[0] + end[0]) / 2,
                (start[1] + end[1]) / 2 + 0.08,
                label,
                fontsize=8.5,
                ha="center",
                va="bottom",
                color=COLORS["black"],
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )

    for key in ("adsr_1", "adsr_2", "lfo_1", "lfo_2"):
        arrow((1.75, boxes[key][1]), (2.75, 2.7 + 0.25 * (boxes[key][1] - 2.7)))
    arrow((4.45, 3.0), (5.5, 4.4), "pitch, loudness")
    arrow((4.45, 2.7), (5.4, 2.7), "pitch, loudness")
    arrow((4.45, 2.4), (5.7, 1.1), "loudness")
    for key in ("vco_1", "vco_2", "noise"):
        arrow((7.15, boxes[key][1]), (8.2, 2.7 + 0.2 * (boxes[key][1] - 2.7)))
    arrow((2.2, 5.4), (5.5, 4.8), "base pitch")
    ax.text(8.9, 1.75, "sound", ha="center", fontsize=9.5)
    arrow((8.9, 2.2), (8.9, 1.95))
    return figure


def plot_envelopes(time: np.ndarray, family: Mapping[str, Tensor], corners: Mapping[str, Tensor]) -> Any:
    """Left: one envelope for several exponents. Right: its degenerate cases."""
    figure, axes = new(7.4, 3.3, ncols=2, sharey=True)
    for ax, curves, title in zip(axes, (family, corners), ("exponent", "corners"), strict=True):
        for (label, curve), color, style in zip(
            curves.items(), COLORS.values(), ("-", "--", "-."), strict=False
        ):
            ax.plot(time, curve.numpy(), color=color, linestyle=style, label=label)
        ax.set(xlabel="time (s)", title=title, ylim=(-0.03, 1.12))
        ax.legend(fontsize=8.5, loc="upper right")
    axes[0].set_ylabel("level")
    return figure


def plot_spectrograms(sounds: Mapping[str, Tensor], sample_rate: int = SAMPLE_RATE) -> Any:
    """Mel spectrograms side by side, low pitches at the bottom."""
    figure, axes = new(7.4, 2.5, ncols=len(sounds), sharey=True, squeeze=False)
    mel = LogMel(sample_rate)
    for ax, (label, audio) in zip(axes[0], sounds.items(), strict=True):
        picture = mel(audio[None].double())[0].numpy()
        extent = (0, len(audio) / sample_rate, 0, len(picture))
        ax.imshow(picture, origin="lower", aspect="auto", cmap="cividis", extent=extent, vmin=-1.3, vmax=0.6)
        ax.set(xlabel="time (s)", title=label)
        ax.title.set_fontsize(9.5)
        ax.grid(False)
    axes[0, 0].set_ylabel("mel band")
    return figure


def plot_curves(comparison: Comparison) -> Any:
    """Best similarity so far against renders: median over prompts and worlds, quartiles as a band."""
    figure, ax = new(7.0, 3.8)
    config = comparison.config
    renders = config.population * np.arange(1, config.generations + 1)
    for method in config.methods:
        color, style = STYLES[method]
        runs = comparison.history(method).reshape(-1, config.generations)
        low, middle, high = np.quantile(runs, [0.25, 0.5, 0.75], axis=0)
        ax.plot(renders, middle, color=COLORS[color], linestyle=style, label=method)
        if method in ("LES", "random search"):
            ax.fill_between(renders, low, high, color=COLORS[color], alpha=0.15, linewidth=0)
    clips = np.median([own for own, _ in comparison.clips.values()])
    ax.axhline(clips, color=COLORS["grey"], linewidth=1)
    ax.text(renders[0], clips, "corpus clips (median)", va="bottom", fontsize=9, color=COLORS["grey"])
    ax.set(xlabel="sounds rendered and scored", ylabel="best similarity so far", ylim=(0, None))
    ax.legend(loc="lower right")
    return figure


def plot_confusion(comparison: Comparison, methods: Sequence[str]) -> Any:
    """Prompt by judge's answer, counted over worlds."""
    figure, axes = new(7.4, 4.0, ncols=len(methods), sharey=True, squeeze=False)
    for ax, method in zip(axes[0], methods, strict=True):
        counts = np.zeros((len(CLASSES), len(CLASSES)))
        for (of, name, _), sound in comparison.sounds.items():
            if of == method:
                counts[CLASSES.index(name), CLASSES.index(sound.judged)] += 1
        ax.imshow(counts, cmap="cividis", vmin=0, vmax=comparison.config.worlds)
        for row, column in zip(*np.nonzero(counts), strict=True):
            value = counts[row, column]
            dark = value < comparison.config.worlds / 2
            ax.text(
                column,
                row,
                f"{value:.0f}",
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=9,
            )
        ax.set_xticks(range(len(CLASSES)), CLASSES, rotation=60, ha="right", fontsize=8.5)
        ax.set_yticks(range(len(CLASSES)), CLASSES, fontsize=8.5)
        ax.set(title=method, xlabel="judge's answer")
        ax.grid(False)
    axes[0, 0].set_ylabel("prompt")
    return figure


def plot_ablations(table: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> Any:
    """Mean similarity by synthesizer against its number of parameters; dots are prompts."""
    figure, ax = new(7.0, 3.4)
    names = list(table)
    for i, name in enumerate(names):
        values = np.array(list(table[name].values()))
        ax.bar(i, values.mean(), color=COLORS["sky"], width=0.6, alpha=0.6)
        ax.plot(
            i + np.linspace(-0.2, 0.2, len(values)),
            values,
            linestyle="none",
            marker=MARKERS[0],
            ms=4,
            color=COLORS["blue"],
        )
    ax.set_xticks(range(len(names)), [f"{name}\n{counts[name]}" for name in names])
    ax.set(ylabel="best similarity", xlabel="synthesizer and its number of parameters")
    return figure


def plot_path(paths: Sequence[Path]) -> Any:
    """Similarity to both ends along straight lines in the cube."""
    figure, axes = new(7.4, 3.0, ncols=len(paths), sharey=True, squeeze=False)
    for ax, path in zip(axes[0], paths, strict=True):
        share = np.linspace(0, 1, len(path.units))
        for column, (label, color, style) in enumerate(
            (("to the first", "blue", "-"), ("to the second", "orange", "--"))
        ):
            ax.plot(share, path.similarity[:, column], color=COLORS[color], linestyle=style, label=label)
        ax.set(xlabel="share of the second patch", title=" to ".join(path.names))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    axes[0, 0].set_ylabel("similarity")
    return figure


def plot_sensitivity(rows: Mapping[str, np.ndarray]) -> Any:
    """Loss of similarity when one knob moves, 78 knobs grouped by module, one row a sound."""
    figure, ax = new(7.4, 2.9)
    picture = np.array(list(rows.values()))
    image = ax.imshow(picture, aspect="auto", cmap="cividis", vmin=0, interpolation="nearest")
    modules = [name.split(".")[0] for name, _ in PARAMETERS]
    starts = [i for i, module in enumerate(modules) if i == 0 or module != modules[i - 1]]
    centres = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(modules)], strict=True)]
    for start in starts[1:]:
        ax.axvline(start - 0.5, color="white", linewidth=1)
    ax.set_xticks(centres, [modules[i] for i in starts], rotation=55, ha="right", fontsize=8.5)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.grid(False)
    figure.colorbar(image, ax=ax, label="loss of similarity", pad=0.01)
    return figure


def plot_gradients(norms: np.ndarray) -> Any:
    """How many random points have a gradient longer than x, on logarithmic axes."""
    figure, ax = new(6.0, 3.2)
    ordered = np.sort(norms)
    ax.loglog(
        ordered, 1 - np.arange(len(ordered)) / len(ordered), color=COLORS["blue"], drawstyle="steps-post"
    )
    median = float(torch.tensor(ordered).quantile(0.5))
    ax.axvline(median, color=COLORS["grey"], linestyle="--", linewidth=1)
    ax.text(median, 0.02, " median", color=COLORS["grey"], fontsize=9)
    ax.set(xlabel="length of the gradient (similarity per unit of the cube)", ylabel="share of points above")
    return figure
