r"""Figures of the chapter: each takes results and returns a Figure; nothing is computed while drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from icml24.common.figures import COLORS, MARKERS, new, use_style

from .data import lonlat
from .solids import add_globe, circle, plot_paths, plot_rotations, plot_surfaces

__all__ = [
    "plot_bounds",
    "plot_circle",
    "plot_disk",
    "plot_history",
    "plot_map",
    "plot_paths",
    "plot_rotations",
    "plot_surfaces",
    "plot_tori",
    "plot_torsions",
    "plot_two_way",
    "plot_weighted_mean",
]


def plot_weighted_mean(
    logs: Tensor, weights: Sequence[Tensor], means: Sequence[Tensor], times: Sequence[float]
) -> Any:
    """Draw arrows to the destinations in the tangent plane, (m, 2), their weights, and the weighted mean.

    `means` are the means of the logarithms, (2,); the plane is the map in which geodesics from the
    centre are straight: the rim is the antipode.
    """
    fig, axes = new(7.0, 2.7, ncols=len(times))
    for ax, weight, mean, t in zip(axes, weights, means, times, strict=True):
        for radius in (math.pi / 3, 2 * math.pi / 3, math.pi):
            circle(ax, radius, COLORS["grey"], 1.0 if radius == math.pi else 0.5)
        for k in range(12):
            a = k * math.pi / 6
            ax.plot(
                [0, math.pi * math.cos(a)], [0, math.pi * math.sin(a)], color=COLORS["grey"], lw=0.3, zorder=0
            )
        for (u, v), w in zip(logs.tolist(), weight.tolist(), strict=True):
            ax.annotate("", (u, v), (0, 0), arrowprops={"arrowstyle": "-|>", "lw": 0.6 + 4 * w,
                        "color": COLORS["sky"], "alpha": 0.35 + 0.65 * w, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
            ax.plot(u, v, "o", ms=3, color=COLORS["blue"])
            if w >= 0.05:
                ax.annotate(f"{w:.2f}", (u, v), xytext=(4, 3), textcoords="offset points", fontsize=8)
        ax.annotate("", tuple(mean.tolist()), (0, 0), arrowprops={"arrowstyle": "-|>", "lw": 2.2,
                    "color": COLORS["orange"], "shrinkA": 0, "shrinkB": 0})  # fmt: skip
        ax.plot(0, 0, "o", ms=4, color=COLORS["black"])
        ax.set(title=f"t = {t:g}", xlim=(-3.3, 3.3), ylim=(-3.3, 3.3), aspect="equal")
        ax.set_axis_off()
    return fig


def plot_bounds(curves: Mapping[str, tuple[Tensor, Tensor, Tensor]]) -> Any:
    """Draw the mean squared distance to the end over time beside its bound, one panel a manifold."""
    fig, axes = new(7.0, 2.5, ncols=len(curves), sharey=True)
    for ax, (name, (mean, bound, _)) in zip(axes, curves.items(), strict=True):
        s = np.linspace(0, 1, len(mean))
        ax.plot(s, bound.numpy(), "--", color=COLORS["black"], lw=1.2, label="bound")
        ax.plot(s, mean.numpy(), color=COLORS["blue"], label="simulated")
        ax.set(title=name, xlabel="time t")
    axes[0].set_ylabel(r"$E\,\rho^2$ (rad$^2$)")
    axes[0].legend(frameon=False)
    return fig


def plot_two_way(errors: Mapping[int, Mapping[str, Sequence[float]]], times: Sequence[float]) -> Any:
    """Draw the relative error of the squared distance to the end over time, by number of steps."""
    fig, axes = new(7.0, 2.8, ncols=len(errors), sharey=True)
    for ax, (n_steps, rows) in zip(axes, errors.items(), strict=True):
        for name, color, marker in (("one-way", "orange", MARKERS[0]), ("two-way", "blue", MARKERS[1])):
            ax.semilogy(times, np.maximum(rows[name], 1e-3), marker=marker, color=COLORS[color], label=name)
        ax.semilogy(times, rows["noise"], ":", color=COLORS["grey"], label="standard error")
        ax.set(title=f"N = {n_steps} steps", xlabel="time t")
    axes[0].set_ylabel(r"relative error of $E\,d(X_t, x_1)^2$")
    axes[0].legend(frameon=False)
    return fig


def plot_circle(res: Mapping[str, Any], modes: Sequence[tuple[float, float, float]]) -> Any:
    """Draw samples against the true density, and the trained drift against the exact one, by time."""
    fig, axes = new(7.0, 2.6, ncols=1 + len(res["times"]))
    angle = res["angle"].numpy()
    density = sum(
        w / (s * math.sqrt(2 * math.pi)) * np.exp(-((angle - m + 2 * math.pi * k) ** 2) / (2 * s * s))
        for w, m, s in modes
        for k in (-1, 0, 1)
    )
    axes[0].hist(res["samples"].numpy(), bins=48, density=True, color=COLORS["sky"], alpha=0.7)
    axes[0].plot(angle, density, color=COLORS["black"], lw=1.2)
    axes[0].set(title="samples, truth", xlabel="angle (rad)", ylabel="density (1/rad)")
    for ax, t, ours, exact in zip(axes[1:], res["times"], res["trained"], res["exact"], strict=True):
        ax.plot(angle, exact.numpy(), "--", color=COLORS["black"], lw=1.2, label="exact")
        ax.plot(angle, ours.numpy(), color=COLORS["orange"], lw=1.2, label="trained")
        ax.set(title=f"drift at t = {t:g}", xlabel="angle (rad)")
    axes[1].set_ylabel("rad per unit time")
    axes[1].legend(frameon=False, fontsize=7, loc="lower left")
    return fig


def plot_map(
    lon: Tensor,
    lat: Tensor,
    log_density: Tensor,
    data: Tensor,
    samples: Tensor,
    window: tuple[float, float, float, float] | None = None,
    title: str = "",
) -> Any:
    """Draw a log density as a map (equirectangular) and on the globe, and data beside samples in a window.

    `window` is (west, east, south, north) in degrees; None shows the whole earth.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig = plt.figure(figsize=(7.0, 5.6), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=(1.0, 1.15), height_ratios=(1.2, 1.0))
    whole, close = fig.add_subplot(grid[0, :]), fig.add_subplot(grid[1, 1])
    shown = np.maximum(log_density.numpy(), float(log_density.max()) - 12)
    norm = plt.Normalize(shown.min(), shown.max())
    image = whole.pcolormesh(lon.numpy(), lat.numpy(), shown, cmap="cividis", norm=norm, shading="nearest")
    fig.colorbar(image, ax=whole, label="log density (nats)")
    whole.set_title(title)
    _graticule(whole, (-180, 180, -90, 90), 30)
    add_globe(fig, grid[1, 0], lon, lat, shown, norm)
    west, east, south, north = window or (-180, 180, -90, 90)
    for x, name, color, marker in ((samples, "samples", "orange", "s"), (data, "data", "blue", "o")):
        longitude, latitude = lonlat(x)
        close.plot(
            longitude, latitude, marker, ms=1.6, color=COLORS[color], alpha=0.45, label=name, ls="none", mew=0
        )
    _graticule(close, (west, east, south, north), 10 if window else 45)
    close.legend(markerscale=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return fig


def plot_torsions(data: Tensor, samples: Tensor) -> Any:
    """Draw (phi, psi) of proteins and of samples side by side, in degrees."""
    fig, axes = new(7.0, 3.5, ncols=2, sharex=True, sharey=True)
    for ax, angles, name, color in ((axes[0], data, "data", "blue"), (axes[1], samples, "samples", "orange")):
        degrees = np.degrees(angles.numpy())
        ax.plot(degrees[:3000, 0], degrees[:3000, 1], ".", ms=2, alpha=0.35, color=COLORS[color])
        ax.set(title=name, xlim=(-180, 180), ylim=(-180, 180), aspect="equal", xlabel="φ (degrees)")
        ax.set_xticks(range(-180, 181, 90))
        ax.set_yticks(range(-180, 181, 90))
        ax.grid(lw=0.4)
    axes[0].set_ylabel("ψ (degrees)")
    return fig


def plot_history(history: Mapping[str, Mapping[int, float]], levels: Mapping[str, float]) -> Any:
    """Draw test NLL against optimiser steps, with horizontal lines for other densities."""
    fig, ax = new(6.0, 3.2)
    for (name, curve), color, marker in zip(history.items(), ("blue", "orange"), MARKERS, strict=False):
        ax.semilogx(list(curve), list(curve.values()), marker=marker, color=COLORS[color], label=name)
    for (name, level), style in zip(levels.items(), ("--", ":", "-."), strict=False):
        ax.axhline(level, color=COLORS["grey"], lw=1.2, ls=style, label=name)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.set(xlabel="optimiser steps", ylabel="test NLL (nats)")
    return fig


def plot_tori(rows: Mapping[int, Mapping[str, float]]) -> Any:
    """Draw nats a dimension (left) and CPU seconds per 1,000 steps (right) against the dimension of a torus."""
    fig, axes = new(7.0, 2.9, ncols=2)
    dims = list(rows)
    for name, color, marker in zip(
        ("mixture", "RFM", "RSGM"), ("blue", "orange", "green"), MARKERS, strict=False
    ):
        style = {"marker": marker, "color": COLORS[color], "label": name}
        axes[0].semilogx(dims, [rows[n][name] for n in dims], **style)
        axes[1].semilogx(dims, [rows[n][f"seconds {name}"] for n in dims], **style)
    axes[0].semilogx(dims, [rows[n]["truth"] for n in dims], "--", color=COLORS["black"], label="truth")
    axes[0].set_ylabel("test NLL (nats a dimension)")
    axes[1].set_ylabel("CPU seconds per 1,000 steps")
    axes[1].set_ylim(0, None)
    for ax in axes:
        ax.set(xlabel="dimension n", xticks=dims, xticklabels=[str(n) for n in dims])
        ax.minorticks_off()
    axes[0].legend(frameon=False)
    return fig


def plot_disk(data: Tensor, samples: Tensor) -> Any:
    """Draw densities of data and samples in the Poincare disk, (n, 2) ball coordinates, on one colour scale."""
    fig, axes = new(7.0, 3.3, ncols=2, sharex=True, sharey=True)
    edges = np.linspace(-1, 1, 61)
    counts = [np.histogram2d(*x.T.numpy(), bins=(edges, edges), density=True)[0] for x in (data, samples)]
    top = max(float(np.quantile(c[c > 0], 0.995)) for c in counts)
    for ax, count, title in zip(axes, counts, ("data", "samples"), strict=True):
        image = ax.pcolormesh(edges, edges, np.ma.masked_equal(count.T, 0), cmap="cividis", vmin=0, vmax=top)
        circle(ax, 1.0, COLORS["grey"], 1.0)
        ax.set(
            title=title,
            aspect="equal",
            xlabel="first axis of the disk",
            xlim=(-1.02, 1.02),
            ylim=(-1.02, 1.02),
        )
    axes[0].set_ylabel("second axis")
    fig.colorbar(image, ax=axes, label="density in the disk", shrink=0.8)
    return fig


def _graticule(ax: Any, window: tuple[float, float, float, float], step: int) -> None:
    west, east, south, north = window
    ax.set(
        xlim=(west, east), ylim=(south, north), aspect="equal", xlabel="longitude (°)", ylabel="latitude (°)"
    )
    ax.set_xticks(np.arange(math.ceil(west / step) * step, east + 1, 2 * step))
    ax.set_yticks(np.arange(math.ceil(south / step) * step, north + 1, step))
    ax.set_axisbelow(False)  # above the colours
    ax.grid(lw=0.4, color=COLORS["grey"])
