"""The chapter's figures: each takes results and returns a matplotlib figure, and computes nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icml24.common.figures import COLORS, MARKERS, new

from .agents import FAMILIES, AgentSpec
from .experiments import RECOVERED, Primed, Priming

__all__ = [
    "plot_effects",
    "plot_health",
    "plot_mechanisms",
    "plot_pairs",
    "plot_priming",
    "plot_recovery",
]

STYLES = {
    "sac": ("black", "-", "o"),
    "cdq": ("orange", "--", "s"),
    "layer_norm": ("blue", "-", "^"),
    "cdq+layer_norm": ("sky", "--", "D"),
    "spectral_norm": ("green", "-.", "v"),
    "weight_decay": ("purple", ":", "P"),
}
HEALTH = {
    "gradient_norm": "gradient norm",
    "overfitting": "error on held-out / training data",
    "dormant_ratio": "share of dormant units",
    "effective_rank": "effective rank of 64",
}
FAMILY_COLORS = {"critic": "orange", "network": "blue", "plasticity": "green"}


def plot_mechanisms(
    counts: Sequence[int], bias: Mapping[str, Sequence[float]], paths: Mapping[str, Any]
) -> Any:
    """Left: bias of selection against the number of actions. Right: size of values under repeated updates."""
    figure, axes = new(8.6, 3.7, ncols=2)
    for k, (name, values) in enumerate(bias.items()):
        axes[0].plot(counts, values, marker=MARKERS[k], color=list(COLORS.values())[k], label=name)
    axes[0].axhline(0, color=COLORS["grey"], linewidth=0.8)
    axes[0].set(
        xlabel="equally good actions", ylabel="bias / error of one critic", title="Choosing by noisy values"
    )
    axes[0].legend()
    for k, (name, path) in enumerate(paths.items()):
        axes[1].semilogy(path, color=list(COLORS.values())[k], linestyle=("-", "--", ":")[k], label=name)
    axes[1].set(xlabel="update", ylabel="size of the weight", title="Learning from one's own guess")
    axes[1].legend()
    return figure


def plot_priming(result: Priming) -> Any:
    """Mean value against updates on one buffer, with the largest return possible."""
    figure, ax = new(7.0, 4.2)
    _curves(ax, result, "mean_q")
    ax.axhline(result.ceiling, color=COLORS["grey"], linestyle="--", linewidth=1.2)
    ax.annotate(
        "largest return possible",
        (0, result.ceiling),
        (4, -13),
        textcoords="offset points",
        color=COLORS["grey"],
    )
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    ax.set(xlabel="updates", ylabel="mean value of critic 1")
    ax.legend(loc="lower right")
    return figure


def plot_health(result: Priming) -> Any:
    """Four diagnoses of the same critics."""
    figure, axes = new(8.6, 6.2, nrows=2, ncols=2, sharex=True)
    for ax, (metric, title) in zip(axes.flat, HEALTH.items(), strict=True):
        _curves(ax, result, metric)
        ax.set_title(title)
        if metric in ("gradient_norm", "overfitting"):
            ax.set_yscale("log")
    for ax in axes[1]:
        ax.set_xlabel("updates")
    axes[0, 0].legend()
    return figure


def plot_recovery(result: Primed) -> Any:
    """Return of each episode after priming: mean over seeds and range."""
    figure, ax = new(7.0, 4.0)
    episodes = np.arange(1, result.returns.shape[-1] + 1)
    for k, spec in enumerate(result.specs):
        color, line, marker = STYLES.get(spec.name, ("grey", "-", "X"))
        part = result.returns[:, k]
        ax.plot(episodes, part.mean(0), line, color=COLORS[color], marker=marker, label=spec.name)
        ax.fill_between(episodes, part.min(0), part.max(0), color=COLORS[color], alpha=0.13, linewidth=0)
    ax.axhline(RECOVERED, color=COLORS["grey"], linestyle="--", linewidth=1)
    ax.annotate("recovered", (1, RECOVERED), (0, 4), textcoords="offset points", color=COLORS["grey"])
    ax.set(xlabel="episode after priming", ylabel="return")
    ax.set_xticks(episodes)
    ax.legend(loc="lower right")
    return figure


def plot_effects(effects: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> Any:
    """First-order effects with intervals, one colour and hatch a family.

    `effects[family][technique]` is (point, low, high), relative to the family's ``"none"``.
    """
    figure, ax = new(7.0, 4.2)
    rows = [(family, name, value) for family, part in effects.items() for name, value in part.items()]
    for place, (family, _, (point, low, high)) in enumerate(reversed(rows)):
        ax.barh(
            place,
            point,
            color=COLORS[FAMILY_COLORS[family]],
            hatch={"critic": "//", "network": "", "plasticity": ".."}[family],
            edgecolor="white",
            alpha=0.9,
        )
        ax.plot([low, high], [place, place], color=COLORS["black"], linewidth=1.3)
    ax.set_yticks(range(len(rows)), [f"{name} ({family})" for family, name, _ in reversed(rows)])
    ax.axvline(0, color=COLORS["black"], linewidth=0.8)
    ax.set(xlabel="mean score minus that of the family's 'none'")
    return figure


def plot_pairs(tables: Mapping[tuple[str, str], np.ndarray]) -> Any:
    """Heat maps of mean scores by pairs of techniques."""
    figure, axes = new(8.6, 4.0, ncols=len(tables), squeeze=False)
    for ax, ((rows, columns), table) in zip(axes[0], tables.items(), strict=True):
        ax.imshow(table, cmap="cividis")
        middle = (np.nanmin(table) + np.nanmax(table)) / 2
        for i, j in np.ndindex(table.shape):
            ax.text(
                j,
                i,
                f"{table[i, j]:.2f}",
                ha="center",
                va="center",
                color="white" if table[i, j] < middle else "black",
            )
        ax.set_xticks(range(4), [name.replace("_", "\n") for name in FAMILIES[columns]])
        ax.set_yticks(range(4), [name.replace("_", "\n") for name in FAMILIES[rows]])
        ax.set(xlabel=columns, ylabel=rows)
        ax.grid(False)
    return figure


def _curves(ax: Any, result: Priming, metric: str) -> None:
    for k, spec in enumerate(result.specs):
        color, line, marker = STYLES.get(spec.name, ("grey", "-", "X"))
        values = result.curves[metric][:, k]
        label = spec.name if spec != AgentSpec() else "none (plain SAC)"
        ax.plot(result.updates, values.mean(0), line, color=COLORS[color], label=label)
        ax.plot(result.updates[-1], values.mean(0)[-1], marker, color=COLORS[color])
        if len(values) > 1:
            ax.fill_between(
                result.updates, values.min(0), values.max(0), color=COLORS[color], alpha=0.13, linewidth=0
            )
