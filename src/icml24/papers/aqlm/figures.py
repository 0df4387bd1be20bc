"""Figures of the chapter: results in, a Figure out; nothing is computed while plotting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icml24.common.figures import COLORS, MARKERS, new

from .experiments import Run
from .layer_studies import RatePoint

__all__ = ["plot_convergence", "plot_format", "plot_pareto", "plot_rate", "plot_sweep", "plot_usage"]

STYLES = {
    "RTN": ("grey", ":", MARKERS[2]),
    "GPTQ": ("orange", "--", MARKERS[1]),
    "AQLM": ("blue", "-", MARKERS[0]),
    "AQLM, exact codebooks": ("green", "-.", MARKERS[3]),
    "AQLM, end to end": ("purple", "-.", MARKERS[4]),
}


def plot_format(words: Sequence[np.ndarray], scale: float, target: np.ndarray) -> Any:
    """Words of one group, their scaled sum, and the weights it stands for; one panel each."""
    fig, axes = new(7.4, 2.6, ncols=len(words) + 1, sharex=True)
    places = np.arange(1, len(target) + 1)
    for m, (ax, word) in enumerate(zip(axes, words, strict=False)):
        ax.stem(places, word, basefmt=" ", linefmt=COLORS["sky"], markerfmt="o")
        ax.set(title=f"word of codebook {m + 1}", xlabel="place in the group")
    last = axes[-1]
    last.stem(places, scale * np.sum(words, axis=0), basefmt=" ", linefmt=COLORS["blue"], markerfmt="o")
    last.plot(places, target, "x", color=COLORS["orange"], markersize=8, label="weights")
    last.set(title=f"sum times scale {scale:.2f}", xlabel="place in the group")
    last.legend(fontsize=8)
    for ax in axes:
        ax.axhline(0, color=COLORS["grey"], linewidth=0.8)
        ax.set_xticks(places)
    axes[0].set_ylabel("value")
    return fig


def plot_convergence(histories: Mapping[str, Sequence[float]]) -> Any:
    """Error over signal at the start of each round, logarithmic."""
    fig, ax = new(7.0, 3.6)
    looks = (("blue", "-"), ("sky", "--"), ("green", "-."), ("orange", ":"))
    for (name, history), (color, line), marker in zip(histories.items(), looks, MARKERS, strict=False):
        ax.plot(history, line, color=COLORS[color], marker=marker, markersize=4, label=name)
    ax.set(xlabel="rounds of Adam and beam search", ylabel="layer error / signal energy", yscale="log")
    ax.legend()
    return fig


def plot_rate(points: Sequence[RatePoint], line: tuple[Sequence[float], Sequence[float]]) -> Any:
    """Error over signal against bits a weight, logarithmic, with a line of slope 6.02 dB a bit."""
    fig, ax = new(7.0, 3.8)
    for method in dict.fromkeys(point.method for point in points):
        color, dash, marker = STYLES[method]
        chosen = sorted((p.bits, p.error) for p in points if p.method == method)
        ax.plot(*zip(*chosen, strict=True), dash, color=COLORS[color], marker=marker, label=method)
    ax.plot(*line, ":", color=COLORS["black"], linewidth=1, label="6.02 dB a bit")
    ax.set(xlabel="bits a weight, all storage", ylabel="layer error / signal energy", yscale="log")
    ax.legend(fontsize=8)
    return fig


def plot_sweep(runs: Sequence[Run], name: str) -> Any:
    """Perplexity above the original's against bits a weight, for one model."""
    fig, ax = new(7.0, 3.8)
    for label, chosen in _series(runs, name).items():
        color, dash, marker = STYLES[label]
        pairs = sorted((run.bits, run.excess) for run in chosen)
        ax.plot(*zip(*pairs, strict=True), dash, color=COLORS[color], marker=marker, label=label)
    ax.axhline(0, color=COLORS["black"], linewidth=1)
    ax.set(xlabel="bits a weight, all storage", ylabel="perplexity above the original's")
    ax.set_yscale("symlog", linthresh=0.01)
    ax.margins(y=0.1)
    ax.legend()
    return fig


def plot_pareto(runs: Sequence[Run], best: Sequence[Run]) -> Any:
    """Perplexity against the size of the quantised weights; the lower envelope drawn, models by filling."""
    fig, ax = new(7.0, 3.8)
    names = list(dict.fromkeys(run.name for run in runs))
    for name in names:
        for label, chosen in _series(runs, name).items():
            color, _, marker = STYLES[label]
            ax.plot(
                [run.report.bytes / 1e3 for run in chosen],
                [run.perplexity for run in chosen],
                marker,
                color=COLORS[color],
                fillstyle="full" if name == names[-1] else "none",
                label=f"{label}, {name} model",
            )
    ax.plot(
        [run.report.bytes / 1e3 for run in best],
        [run.perplexity for run in best],
        color=COLORS["black"],
        linewidth=1,
        label="lower envelope",
    )
    ax.set(xlabel="size of the quantised weights (kB)", ylabel="perplexity a character")
    ax.legend(fontsize=7, ncols=2)
    return fig


def plot_usage(usage: Mapping[str, Sequence[np.ndarray]], plane: np.ndarray, title: str) -> Any:
    """Cumulative share of the words, most used first, one line a layer; right, a codebook's words in a plane."""
    fig, (left, right) = new(7.4, 3.6, ncols=2)
    for index, shares in enumerate(usage.values()):
        cumulative = np.concatenate(([0.0], np.cumsum(shares[0])))
        left.plot(
            np.linspace(0, 1, len(cumulative)),
            cumulative,
            color=COLORS["blue"],
            linewidth=0.8,
            alpha=0.6,
            label="first codebook of a layer" if index == 0 else None,
        )
    left.plot([0, 1], [0, 1], "--", color=COLORS["black"], linewidth=1, label="all words equally often")
    left.set(xlabel="share of the words, most used first", ylabel="share of the codes")
    left.legend(fontsize=8)
    right.scatter(plane[:, 0], plane[:, 1], s=14, color=COLORS["green"], marker="^")
    right.set(title=title, xlabel="first principal direction", ylabel="second")
    return fig


def _series(runs: Sequence[Run], name: str) -> dict[str, list[Run]]:
    """Runs of one model by the label of their line."""
    out: dict[str, list[Run]] = {}
    for run in runs:
        if run.name == name:
            label = "AQLM, end to end" if run.stage == "end to end" else run.method
            out.setdefault(label, []).append(run)
    return out
