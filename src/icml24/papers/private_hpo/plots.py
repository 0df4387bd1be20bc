"""The chapter's figures: each takes results and returns a matplotlib figure, and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icml24.common.figures import COLORS, MARKERS, new

from .experiments import Comparison, RadiusMap
from .methods import Outcome
from .search import AdaptiveHPOConfig

__all__ = ["plot_accountants", "plot_budget", "plot_comparison", "plot_fan", "plot_map", "plot_radius"]

STYLES = {
    "adaptive": ("blue", "o", "-"),
    "private selection": ("green", "^", "-"),
    "random, composed": ("orange", "s", "-"),
    "grid, composed": ("amber", "v", "-"),
    "single": ("grey", "D", ":"),
    "oracle": ("black", "X", "--"),
}


def plot_map(maps: Mapping[str, RadiusMap], up_to: Mapping[str, float]) -> Any:
    """Heat maps of accuracy over budget and radius, best radii marked, their line drawn."""
    figure, axes = new(8.4, 4.3, ncols=len(maps), squeeze=False)
    for ax, (title, result) in zip(axes[0], maps.items(), strict=True):
        eps, radii = np.log2(result.epsilons), np.log2(result.radii)
        mesh = ax.pcolormesh(_edges(eps), _edges(radii), result.mean.T, cmap="cividis")
        figure.colorbar(mesh, ax=ax, label="test accuracy", pad=0.02)
        ax.plot(
            eps, np.log2(result.best_radii), "o", color="white", markeredgecolor="black", label="best radius"
        )
        rule, _, _ = result.line(up_to[title])
        fine = np.linspace(result.epsilons.min(), result.epsilons.max(), 400)
        line = np.array([rule(e) for e in fine])
        inside = line >= result.radii.min() / 1.4
        ax.plot(np.log2(fine[inside]), np.log2(line[inside]), color="white", linewidth=1.5, linestyle="--")
        ax.axvline(np.log2(up_to[title]), color="white", linewidth=0.8, linestyle=":")
        ax.set_ylim(_edges(radii)[[0, -1]])
        ax.set_xticks(eps, [f"{e:g}" for e in result.epsilons])
        ax.set_yticks(radii, [f"{r:g}" for r in result.radii])
        ax.grid(False)
        ax.set(title=title, xlabel="epsilon of the run", ylabel="radius: learning rate x steps")
    return figure


def plot_comparison(comparison: Comparison, targets: Sequence[float], methods: Sequence[str]) -> Any:
    """Mean test accuracy and its interval against total epsilon, by method."""
    figure, ax = new(7.0, 4.4)
    for index, name in enumerate(methods):
        color, marker, line = STYLES[name]
        values = np.array([comparison.interval(target, name) for target in targets])
        place = np.asarray(targets) * 2 ** (0.06 * (index - (len(methods) - 1) / 2))
        ax.errorbar(
            *(place, values[:, 0]),
            yerr=np.abs(values[:, 1:] - values[:, :1]).T,
            **{"color": COLORS[color], "marker": marker, "linestyle": line, "capsize": 3},
            label="oracle (cost not accounted)" if name == "oracle" else name,
        )
    ax.set_xscale("log", base=2)
    ax.set_xticks(targets, [f"{t:g}" for t in targets])
    ax.set(xlabel="total epsilon, search included", ylabel="test accuracy")
    ax.legend(loc="lower right")
    return figure


def plot_budget(configs: Mapping[str, AdaptiveHPOConfig], share: Any) -> Any:
    """Stacked shares of the budget, one bar a configuration; `share(config)` gives one number a run."""
    figure, ax = new(7.0, 0.75 * len(configs) + 1.3)
    for row, (_name, config) in enumerate(configs.items()):
        left = 0.0
        parts = share(config)
        rounds = np.repeat(np.arange(len(config.trial_epsilons)), config.trials_per_epsilon)
        colors = [*(("sky", "orange", "green")[stage % 3] for stage in rounds), "blue"]
        hatches = [*(("//", "..", "xx")[stage % 3] for stage in rounds), ""]
        for part, color, hatch in zip(parts, colors, hatches, strict=True):
            ax.barh(row, part, left=left, color=COLORS[color], edgecolor="white", hatch=hatch, height=0.62)
            left += part
        ax.text(
            1 - parts[-1] / 2, row, f"final run: {parts[-1]:.1%}", ha="center", va="center", color="white"
        )
    ax.set_yticks(range(len(configs)), list(configs))
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="share of the budget, in squared shifts")
    ax.grid(False)
    return figure


def plot_radius(steps: np.ndarray, curves: Mapping[str, np.ndarray], limits: Mapping[str, float]) -> Any:
    """Distance of noisy from noiseless iterates against steps: bound, exact and simulated."""
    figure, ax = new(7.0, 4.0)
    styles = [("blue", "-", ""), ("green", "--", ""), ("orange", "", "o")]
    for (label, values), (color, line, marker) in zip(curves.items(), styles, strict=True):
        keep = np.unique(np.geomspace(1, len(steps), 14).astype(int)) - 1 if marker else slice(None)
        style = {"color": COLORS[color], "linestyle": line or "none", "marker": marker or None}
        ax.loglog(steps[keep], values[keep], label=label, **style)
    for (label, value), dash in zip(limits.items(), (":", "-."), strict=False):
        ax.axhline(value, color=COLORS["grey"], linestyle=dash, label=label)
    ax.set(xlabel="steps T", ylabel="distance of the weights")
    ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93))
    return figure


def plot_accountants(sigmas: np.ndarray, curves: Mapping[str, np.ndarray]) -> Any:
    """Epsilon against noise multiplier, one curve an accountant, relative to the exact one."""
    figure, (left, right) = new(8.4, 3.8, ncols=2)
    styles = zip(("black", "sky", "orange", "grey"), ("-", "--", "-", ":"), MARKERS, strict=False)
    exact = next(iter(curves.values()))
    for (label, values), (color, line, marker) in zip(curves.items(), styles, strict=False):
        style = {"color": COLORS[color], "linestyle": line, "marker": marker, "label": label}
        left.loglog(sigmas, values, **style)
        right.semilogx(sigmas, values / exact, **style)
    left.set(xlabel="noise multiplier", ylabel="epsilon")
    right.set(xlabel="noise multiplier", ylabel="epsilon over the exact one")
    for ax in (left, right):
        ax.set_xticks(sigmas, [f"{s:g}" for s in sigmas])
        ax.minorticks_off()
    left.legend()
    return figure


def plot_fan(outcomes: Sequence[Outcome], config: AdaptiveHPOConfig, best: tuple[float, float]) -> Any:
    """Each seed's two trial radii and the line through them, out to the final budget."""
    figure, ax = new(7.0, 4.0)
    final = config.final_epsilon
    eps = np.array([0.0, final])
    for index, outcome in enumerate(outcomes):
        search = outcome.search
        label = "one search each" if index == 0 else None
        ax.plot(eps, [search.rule(e) for e in eps], color=COLORS["sky"], linewidth=1.0, label=label)
        ax.plot(config.trial_epsilons, search.radii, "o", color=COLORS["blue"], markersize=4)
        ax.plot(final, search.final.lr * search.final.steps, "s", color=COLORS["orange"], markersize=5)
    ax.fill_between(
        [0.93 * final, 1.04 * final],
        *best,
        color=COLORS["green"],
        alpha=0.25,
        label="within two points of the best accuracy",
    )
    ax.axhline(config.radius_max, color=COLORS["grey"], linestyle="--", label="largest product of the grid")
    ax.set(xlabel="epsilon of one run", ylabel="radius: learning rate x steps")
    ax.set(xlim=(0, 1.04 * final), ylim=(0, 1.25 * config.radius_max))
    ax.legend(loc="upper left")
    return figure


def _edges(centres: np.ndarray) -> np.ndarray:
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
