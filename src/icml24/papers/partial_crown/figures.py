"""Figures of the chapter; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from icml24.common.figures import COLORS, MARKERS, new

from .activations import relax_activation, value
from .branching import BranchResult
from .equations import PDE
from .networks import TanhMLP

__all__ = ["plot_curves", "plot_ladder", "plot_partition", "plot_radii", "plot_relaxations"]

_NAMES = {"tanh": "tanh", "dtanh": "tanh'", "d2tanh": "tanh''"}


def plot_relaxations(intervals: Mapping[str, Sequence[tuple[float, float]]]) -> Any:
    """The function, and its two lines on each interval, one panel a function."""
    fig, axes = new(7.0, 5.6, nrows=3, sharex=True)
    z = torch.linspace(-3, 3, 601, dtype=torch.float64)
    for axis, (kind, pairs) in zip(axes, intervals.items(), strict=True):
        axis.plot(z, value(kind, z), color=COLORS["black"])
        for k, (low, high) in enumerate(pairs):
            a, b, c, d = (float(t) for t in relax_activation(kind, low, high))
            ends = np.array([low, high])
            color = list(COLORS.values())[k]
            axis.plot(ends, c * ends + d, color=color)
            axis.plot(ends, a * ends + b, color=color, linestyle="--")
            axis.axvspan(low, high, color=color, alpha=0.08, linewidth=0)
        axis.set_ylabel(_NAMES[kind])
    axes[-1].set_xlabel("z")
    return fig


def plot_radii(radii: Sequence[float], widths: Mapping[str, np.ndarray]) -> Any:
    """Width of the bounds, less the sampled width, against the radius of the box, with guides."""
    fig, axis = new(7.0, 4.2)
    r = np.asarray(radii)
    for (name, color), marker in zip(
        (("interval", "orange"), ("entry", "green"), ("neuron", "blue")), MARKERS, strict=False
    ):
        axis.loglog(r, widths[name] - widths["sampled"], marker=marker, color=COLORS[color], label=name)
    axis.loglog(r, widths["sampled"], color=COLORS["grey"], linestyle="-", label="sampled width itself")
    start = (widths["interval"] - widths["sampled"])[0], (widths["neuron"] - widths["sampled"])[0]
    for anchor, power, style in ((start[0], 1, ":"), (start[1], 2, "-.")):
        label = "slope 1" if power == 1 else "slope 2"
        axis.loglog(
            r, 0.6 * anchor * (r / r[0]) ** power, color=COLORS["black"], linestyle=style, label=label
        )
    axis.set_xlabel("radius of the box (share of the domain)")
    axis.set_ylabel("excess width of the residual's bounds")
    axis.legend(ncols=2, fontsize="small")
    return fig


def plot_curves(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], *, bar: float | None = None) -> Any:
    """Certified over sampled maximum against the number of boxes."""
    fig, axis = new(7.0, 4.2)
    colors = list(COLORS.values())
    for k, (name, (boxes, ratio)) in enumerate(curves.items()):
        lone = len(boxes) < 12
        axis.loglog(
            *(boxes, ratio),
            color=colors[k],
            linestyle="--" if lone else "-",
            marker=MARKERS[k] if lone else None,
            label=name,
        )
    axis.axhline(1.0, color=COLORS["grey"], linewidth=1)
    if bar is not None:
        axis.axhline(bar, color=COLORS["black"], linestyle=":", label=f"{bar:g}")
    axis.set_xlabel("boxes bounded")
    axis.set_ylabel("certified max / sampled max of |residual|")
    axis.legend(fontsize="small")
    return fig


def plot_partition(pde: PDE, net: TanhMLP, result: BranchResult) -> Any:
    """Leaves of a partition over the absolute residual."""
    from matplotlib.collections import LineCollection

    fig, axis = new(7.0, 4.2)
    (t0, x0), (t1, x1) = pde.domain.tolist()
    t, x = (torch.linspace(a, b, 161, dtype=torch.float64) for a, b in ((t0, t1), (x0, x1)))
    f = pde.residual(net, torch.cartesian_prod(t, x)).abs().reshape(161, 161).T.numpy()
    shown = axis.pcolormesh(
        t, x, np.log10(np.maximum(f, 1e-6)), cmap="viridis", shading="nearest", rasterized=True
    )
    fig.colorbar(shown, ax=axis, label="log10 |residual|")
    low, high = result.boxes[:, 0].numpy(), result.boxes[:, 1].numpy()
    lines = [
        np.array([[a[0], a[1]], [b[0], a[1]], [b[0], b[1]], [a[0], b[1]], [a[0], a[1]]])
        for a, b in zip(low, high, strict=True)
    ]
    axis.add_collection(LineCollection(lines, colors="white", linewidths=0.25, rasterized=True))
    axis.set_xlabel("t")
    axis.set_ylabel("x")
    axis.grid(False)
    return fig


def plot_ladder(sizes: Sequence[int], maxima: np.ndarray, certified: float) -> Any:
    """Monte Carlo maxima against the number of points, below the certificate."""
    fig, axis = new(7.0, 3.8)
    axis.fill_between(
        sizes, maxima.min(1), maxima.max(1), color=COLORS["blue"], alpha=0.2, label="range over repetitions"
    )
    axis.semilogx(sizes, maxima.mean(1), marker="o", color=COLORS["blue"], label="sampled maximum, mean")
    axis.axhline(certified, color=COLORS["orange"], linestyle="--", label="certified: no point is above")
    axis.set_ylim(0, None)
    axis.set_xlabel("points")
    axis.set_ylabel("max |residual|")
    axis.legend()
    return fig
