"""Figures of the chapter: each takes results, summarises them over time or seeds, returns a Figure."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from icml24.common import figures
from icml24.common.random import numpy_generator
from icml24.common.statistics import bootstrap_interval, interquartile_mean
from icml24.papers.self_play.experiments import Constrained, Curves, Sweep
from icml24.papers.self_play.headings import Headings
from icml24.papers.self_play.hedge import SelfPlayResult

__all__ = [
    "plot_constrained",
    "plot_curves",
    "plot_headings",
    "plot_noise",
    "plot_orbit",
    "plot_rates",
    "plot_simplex",
]

C = figures.COLORS
LABELS = {
    "oracle": "true reward",
    "spo": "self-play",
    "spo-36": "self-play, B = 36",
    "rm": "reward model",
    "duel": "two policies",
}
LOOKS = {
    "oracle": {"color": C["black"], "ls": ":"},
    "spo": {"color": C["blue"], "ls": "-"},
    "spo-36": {"color": C["sky"], "ls": "-."},
    "rm": {"color": C["orange"], "ls": "--"},
    "duel": {"color": C["green"], "ls": (0, (5, 1, 1, 1))},
}


def _triangle(points: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Plane coordinates of points of the simplex, first corner left, second right, third on top."""
    p = np.asarray(points, dtype=float)
    return p[:, 1] + p[:, 2] / 2, p[:, 2] * np.sqrt(3) / 2


def _draw_triangle(ax, corners: tuple[str, str, str]) -> None:
    ax.plot([0, 1, 0.5, 0], [0, 0, np.sqrt(3) / 2, 0], color=C["grey"], lw=1)
    for text, (x, y), (ha, va) in zip(
        corners,
        [(0, -0.03), (1, -0.03), (0.5, 0.9)],
        [("center", "top"), ("center", "top"), ("center", "bottom")],
        strict=True,
    ):
        ax.text(x, y, text, ha=ha, va=va)
    ax.set_aspect("equal")
    ax.set_xlim(-0.16, 1.16)  # room for the words at the corners
    ax.set_ylim(-0.12, 1.0)
    ax.axis("off")


def plot_simplex(sweep: Sweep) -> Figure:
    """Two triangles of group weights, coloured by the distance to the Minimax Winner."""
    fig, axes = figures.new(7.0, 3.7, ncols=2)
    x, y = _triangle(sweep.weights)
    for ax, values, title in zip(axes, (sweep.spo, sweep.rm), ("self-play", "reward model"), strict=True):
        _draw_triangle(ax, ("group 0", "group 1", "group 2"))
        dots = ax.scatter(x, y, c=values, vmin=0, vmax=2, s=62, marker="h", linewidths=0)
        corner = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
        ax.plot(*_triangle(corner), color=C["black"], lw=1.2, ls="--")
        ax.set_title(title, loc="center")
    fig.colorbar(dots, ax=axes, shrink=0.8, label="L1 distance to the Minimax Winner")
    return fig


def plot_orbit(run: SelfPlayResult) -> Figure:
    """Iterates and running average of Hedge in rock, paper, scissors."""
    fig, ax = figures.new(5.2, 4.4)
    _draw_triangle(ax, ("rock", "paper", "scissors"))
    count = np.arange(1, len(run.iterates) + 1)[:, None]
    means = run.iterates.cumsum(0).numpy() / count
    ax.plot(*_triangle(run.iterates), color=C["orange"], lw=0.9, label="iterates")
    ax.plot(*_triangle(means), color=C["blue"], lw=2, label="running average")
    ax.plot(*_triangle(run.iterates[:1]), marker="o", ls="", color=C["black"], label="start")
    ax.plot(0.5, np.sqrt(3) / 6, marker="*", ms=13, ls="", color=C["green"], label="Minimax Winner")
    ax.legend(loc="upper right", frameon=False)
    return fig


def plot_rates(study: dict) -> Figure:
    """Duality gap against the number of steps on two logarithmic axes, bounds dashed."""
    fig, ax = figures.new(7.0, 4.0)
    lines = (
        ("hedge", "Hedge", "blue", "o"),
        ("optimistic", "optimistic Hedge", "orange", "s"),
        ("margin", "Hedge, winner with margin", "green", "^"),
    )
    for key, label, color, marker in lines:
        ax.loglog(study["T"], study[key], color=C[color], marker=marker, label=label)
        ax.loglog(study["T"], study[f"{key} bound"], color=C[color], ls="--", lw=1)
    ax.set_ylim(top=8)
    ax.set_xlabel("steps T")
    ax.set_ylabel("duality gap of the average")
    ax.legend(loc="lower left")
    return fig


def _band(values: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean over seeds and its 95 % bootstrap interval, per iteration."""
    rows = values.double().numpy()
    g = numpy_generator(0, "self_play", "bands")
    ends = np.array([bootstrap_interval(column, "iqm", draws=500, generator=g) for column in rows.T])
    return np.asarray(interquartile_mean(rows, axis=0)), ends[:, 0], ends[:, 1]


def plot_curves(curves: Curves, bottom: float = -60.0) -> Figure:
    """Return against trajectories sampled (left) and comparisons asked (right)."""
    fig, axes = figures.new(7.0, 3.9, ncols=2, sharey=True)
    for name, returns in curves.returns.items():
        middle, low, high = _band(returns)
        panels = [(axes[0], curves.trajectories[name]), (axes[1], curves.queries[name])]
        if name == "spo-36":
            del panels[0]  # the small batch is there to match comparisons, not trajectories
        elif name == "oracle":
            del panels[1]  # the true reward asks no comparisons
        for ax, x in panels:
            ax.plot(x, middle, label=LABELS[name], **LOOKS[name])
            ax.fill_between(x, low, high, color=LOOKS[name]["color"], alpha=0.2, lw=0)
    spread = float(max(r[:, -1].max() for r in curves.returns.values()))
    axes[0].set_ylim(bottom, spread + 2)
    axes[0].set_xlabel("trajectories sampled")
    axes[1].set_xlabel("comparisons asked")
    axes[1].set_xscale("log")
    axes[0].set_ylabel("return (minus summed distance)")
    axes[0].legend(loc="lower right")
    axes[1].legend(loc="lower right")
    return fig


def plot_noise(studies: dict[float, Curves], clean: Curves, last: int = 10) -> Figure:
    """Final return against the judge's temperature; noise-free runs at the left edge."""
    fig, ax = figures.new(6.0, 3.6)
    temperatures = sorted(studies)
    places = np.arange(len(temperatures) + 1)
    iterations = next(iter(studies[temperatures[0]].returns.values())).shape[1]
    for shift, name in enumerate(studies[temperatures[0]].returns):
        runs = [clean.returns[name][:, :iterations], *(studies[t].returns[name] for t in temperatures)]
        final = [r[:, -last:].mean(1).numpy() for r in runs]
        looks = LOOKS[name]
        ax.plot(places, [f.mean() for f in final], label=LABELS[name], **looks)
        for place, f in zip(places, final, strict=True):
            ax.plot(
                np.full(len(f), place), f, ls="", marker=figures.MARKERS[shift], color=looks["color"], ms=4
            )
    ax.set_xticks(places, ["no noise", *(f"{t:g}" for t in temperatures)])
    ax.set_xlabel("temperature of the labels (units of return)")
    ax.set_ylabel(f"mean return, last {last} iterations")
    ax.legend(loc="lower left")
    return fig


def plot_constrained(result: Constrained) -> Figure:
    """Early against late return of held-out trajectories, one panel per algorithm."""
    names = list(result.early)
    fig, axes = figures.new(3.6 * max(len(names), 1) + 1.0, 3.6, ncols=len(names), sharey=True, squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        early, late = result.early[name].flatten(), result.late[name].flatten()
        ok = late <= result.threshold
        ax.plot(early[ok], late[ok], ls="", marker="o", ms=3, alpha=0.5, color=C["blue"], label="feasible")
        ax.plot(early[~ok], late[~ok], ls="", marker="x", ms=4, color=C["orange"], label="infeasible")
        ax.axhline(result.threshold, color=C["black"], lw=1.2, ls="--")
        ax.axvline(result.best_early, color=C["grey"], lw=1.2, ls=":")
        ax.set_title(LABELS[name])
        ax.set_xlabel("way travelled in steps 1-38")
    axes[0][0].set_ylabel("way travelled in steps 39-50")
    axes[0][0].legend(loc="lower left")
    return fig


def plot_headings(game: Headings) -> Figure:
    """Running average of the visits of three sectors against the Minimax Winner's shares."""
    fig, ax = figures.new(7.0, 3.6)
    rounds = np.arange(1, len(game.visits) + 1)
    means = game.visits.cumsum(0).numpy() / rounds[:, None]
    for k, (color, style) in enumerate(zip(("blue", "orange", "green"), ("-", "--", "-."), strict=True)):
        ax.plot(rounds, game.visits[:, k], color=C[color], lw=0.4, alpha=0.35)
        ax.plot(rounds, means[:, k], color=C[color], ls=style, label=f"sector {k}")
        ax.axhline(float(game.target[k]), color=C[color], lw=1, ls=":")
    ax.set_ylim(0, 1)
    ax.set_xlabel("round")
    ax.set_ylabel("share of visits")
    ax.legend(loc="upper right")
    return fig
