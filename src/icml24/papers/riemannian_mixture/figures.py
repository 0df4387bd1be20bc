r"""Figures of the chapter: each takes results and returns a Figure; nothing is computed while drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from icml24.common.figures import COLORS, MARKERS, label_lines, new

from .data import lonlat
from .meshes import Mesh

__all__ = [
    "plot_bounds",
    "plot_circle",
    "plot_history",
    "plot_map",
    "plot_mesh",
    "plot_paths",
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
            _circle(ax, radius, COLORS["grey"], 1.0 if radius == math.pi else 0.5)
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


def plot_paths(sphere: Tensor, torus: Tensor, ball: Tensor, mesh: Mesh, on_mesh: Tensor) -> Any:
    """Draw bridges to one end: sphere (3-D), torus (angles), Poincare ball, mesh (3-D).

    Paths are (steps + 1, n, D); the torus in angles, (steps + 1, n, 2), the ball in ball coordinates.
    """
    import matplotlib.pyplot as plt

    from icml24.common.figures import use_style

    use_style()
    fig = plt.figure(figsize=(7.0, 6.2), layout="constrained")
    globe = fig.add_subplot(2, 2, 1, projection="3d")
    _wire_sphere(globe)
    flat, disk = fig.add_subplot(2, 2, 2), fig.add_subplot(2, 2, 3)
    solid = fig.add_subplot(2, 2, 4, projection="3d")
    _surface(solid, mesh, np.full(len(mesh.faces), 0.25), alpha=0.25)
    names = ["blue", "orange", "green", "purple", "amber"]
    for k in range(sphere.shape[1]):
        color = COLORS[names[k % len(names)]]
        globe.plot(*sphere[:, k].T.numpy(), color=color, lw=1.1)
        a = torus[:, k].numpy().copy()
        a[1:][np.abs(np.diff(a, axis=0)).max(1) > math.pi] = np.nan  # do not draw across the seam
        flat.plot(a[:, 0], a[:, 1], color=color, lw=1.0)
        disk.plot(*ball[:, k].T.numpy(), color=color, lw=1.0)
        solid.plot(*on_mesh[:, k].T.numpy(), color=color, lw=1.1)
    for ax, end in ((globe, sphere[-1, 0]), (solid, on_mesh[-1, 0])):
        ax.scatter(*end.numpy(), color=COLORS["black"], s=28, marker="*", depthshade=False)
        ax.set(box_aspect=(1, 1, 1))
        ax.set_axis_off()
    flat.plot(*torus[-1, 0].numpy(), "*", color=COLORS["black"], ms=9)
    disk.plot(*ball[-1, 0].numpy(), "*", color=COLORS["black"], ms=9)
    flat.set(
        xlim=(-math.pi, math.pi),
        ylim=(-math.pi, math.pi),
        aspect="equal",
        xlabel="angle 1 (rad)",
        ylabel="angle 2 (rad)",
    )
    _circle(disk, 1.0, COLORS["grey"], 1.0)
    disk.set(aspect="equal", xlabel="Poincaré ball, first axis", ylabel="second axis")
    for ax, title in (
        (globe, "sphere"),
        (flat, "flat torus"),
        (disk, "hyperbolic plane"),
        (solid, "mesh, spectral"),
    ):
        ax.set_title(title)
    return fig


def plot_bounds(curves: Mapping[str, tuple[Tensor, Tensor]]) -> Any:
    """Draw the mean squared distance to the end over time beside its bound, one panel a manifold."""
    fig, axes = new(7.0, 2.5, ncols=len(curves), sharey=True)
    for ax, (name, (mean, bound)) in zip(axes, curves.items(), strict=True):
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
        for (name, values), color, marker in zip(rows.items(), ("orange", "blue"), MARKERS, strict=False):
            ax.semilogy(times, np.maximum(values, 1e-3), marker=marker, color=COLORS[color], label=name)
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
) -> Any:
    """Draw a log density on the whole earth (equirectangular), and data beside samples in a window.

    `window` is (west, east, south, north) in degrees; None shows the whole earth.
    """
    fig, axes = new(7.0, 5.4, nrows=2, height_ratios=(1.15, 1.0))
    shown = np.maximum(log_density.numpy(), float(log_density.max()) - 12)
    image = axes[0].pcolormesh(lon.numpy(), lat.numpy(), shown, cmap="cividis", shading="nearest")
    fig.colorbar(image, ax=axes[0], label="log density (nats)")
    _graticule(axes[0], (-180, 180, -90, 90), 30)
    west, east, south, north = window or (-180, 180, -90, 90)
    for x, name, color, marker in ((samples, "samples", "orange", "s"), (data, "data", "blue", "o")):
        longitude, latitude = lonlat(x)
        axes[1].plot(
            longitude, latitude, marker, ms=2.4, color=COLORS[color], alpha=0.45, label=name, ls="none"
        )
    _graticule(axes[1], (west, east, south, north), 5 if window else 30)
    axes[1].legend(frameon=True, markerscale=2, loc="center left", bbox_to_anchor=(1.01, 0.5))
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


def plot_mesh(mesh: Mesh, target: Tensor, shares: Tensor) -> Any:
    """Draw face densities of target and samples on the mesh, in 3-D, on one colour scale."""
    import matplotlib.pyplot as plt

    from icml24.common.figures import use_style

    use_style()
    fig = plt.figure(figsize=(7.0, 3.4), layout="constrained")
    area = mesh.areas.numpy()
    densities = [target.numpy() / area, shares.numpy() / area]
    top = max(d.max() for d in densities)
    for k, (density, title) in enumerate(zip(densities, ("target", "samples"), strict=True)):
        ax = fig.add_subplot(1, 2, k + 1, projection="3d")
        _surface(ax, mesh, density / top)
        ax.set_title(title)
        ax.set_axis_off()
    scale = plt.cm.ScalarMappable(cmap="cividis", norm=plt.Normalize(0, top))
    fig.colorbar(scale, ax=fig.axes, label="density (1/area)", shrink=0.7)
    return fig


def plot_history(history: Mapping[str, Mapping[int, float]], levels: Mapping[str, float]) -> Any:
    """Draw test NLL against optimiser steps, with horizontal lines for other densities."""
    fig, ax = new(6.0, 3.4)
    for (name, curve), color, marker in zip(
        history.items(), ("blue", "orange", "green"), MARKERS, strict=False
    ):
        ax.semilogx(list(curve), list(curve.values()), marker=marker, color=COLORS[color], label=name)
    for name, level in levels.items():
        ax.axhline(level, color=COLORS["grey"], lw=1, ls="--")
        ax.annotate(
            name, (next(iter(next(iter(history.values())))), level), xytext=(0, 3), textcoords="offset points"
        )
    label_lines(ax)
    ax.set(xlabel="optimiser steps", ylabel="test NLL (nats)")
    return fig


def _circle(ax: Any, radius: float, color: str, width: float) -> None:
    a = np.linspace(0, 2 * math.pi, 200)
    ax.plot(radius * np.cos(a), radius * np.sin(a), color=color, lw=width, zorder=0)


def _wire_sphere(ax: Any) -> None:
    a, b = np.meshgrid(np.linspace(0, 2 * math.pi, 25), np.linspace(0, math.pi, 13))
    ax.plot_wireframe(np.sin(b) * np.cos(a), np.sin(b) * np.sin(a), np.cos(b), color=COLORS["grey"], lw=0.3)


def _surface(ax: Any, mesh: Mesh, level: np.ndarray, alpha: float = 1.0) -> None:
    import matplotlib.pyplot as plt
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    corners = mesh.vertices[mesh.faces].numpy()
    colors = plt.cm.cividis(level)
    ax.add_collection3d(
        Poly3DCollection(corners, facecolors=colors, edgecolors=(0, 0, 0, 0.25), linewidths=0.2, alpha=alpha)
    )
    low, high = corners.reshape(-1, 3).min(0), corners.reshape(-1, 3).max(0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    ax.set_box_aspect(tuple(high - low))


def _graticule(ax: Any, window: tuple[float, float, float, float], step: int) -> None:
    west, east, south, north = window
    ax.set(
        xlim=(west, east), ylim=(south, north), aspect="equal", xlabel="longitude (°)", ylabel="latitude (°)"
    )
    ax.set_xticks(np.arange(math.ceil(west / step) * step, east + 1, 2 * step))
    ax.set_yticks(np.arange(math.ceil(south / step) * step, north + 1, step))
    ax.set_axisbelow(False)  # above the colours
    ax.grid(lw=0.4, color=COLORS["grey"])
