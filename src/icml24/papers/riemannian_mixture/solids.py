r"""Pictures in three dimensions: bridges, surfaces, the globe, rotations. Part of `figures`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from icml24.common.figures import COLORS, use_style

from .meshes import Mesh

__all__ = ["add_globe", "circle", "plot_paths", "plot_rotations", "plot_surfaces"]

_PATH_COLORS = ("blue", "orange", "green", "purple", "amber")


def plot_paths(
    sphere: Tensor, torus: Tensor, ball: Tensor, mesh: Mesh, on_mesh: Tensor, angle: Tensor
) -> Any:
    """Draw bridges to one end: sphere, torus (flat and as a ring), mesh, Poincare disk, rotations.

    Paths are (steps + 1, n, D): the torus in angles, (steps + 1, n, 2), the ball in ball coordinates;
    `angle` is the angle left to the end on SO(3), (steps + 1, n).
    """
    import matplotlib.pyplot as plt

    use_style()
    fig = plt.figure(figsize=(7.0, 5.2), layout="constrained")
    globe, ring, solid = (fig.add_subplot(2, 3, k, projection="3d") for k in (1, 2, 3))
    flat, disk, turn = (fig.add_subplot(2, 3, k) for k in (4, 5, 6))
    _wire(globe, *_sphere_grid())
    _wire(ring, *_ring(*np.meshgrid(np.linspace(0, 2 * math.pi, 37), np.linspace(0, 2 * math.pi, 13))))
    surface(solid, mesh, np.full(len(mesh.faces), 0.25), alpha=0.25)
    for k in range(sphere.shape[1]):
        color = COLORS[_PATH_COLORS[k % len(_PATH_COLORS)]]
        a = torus[:, k].numpy()
        globe.plot(*sphere[:, k].T.numpy(), color=color, lw=1.1)
        ring.plot(*_ring(a[:, 0], a[:, 1]), color=color, lw=1.1)
        solid.plot(*on_mesh[:, k].T.numpy(), color=color, lw=1.1)
        cut = a.copy()
        cut[1:][np.abs(np.diff(a, axis=0)).max(1) > math.pi] = np.nan  # do not draw across the seam
        flat.plot(cut[:, 0], cut[:, 1], color=color, lw=1.0)
        disk.plot(*ball[:, k].T.numpy(), color=color, lw=1.0)
        turn.plot(np.linspace(0, 1, len(angle)), angle[:, k].numpy(), color=color, lw=1.0)
    ends = (
        (globe, sphere[-1, 0].numpy()),
        (ring, np.array(_ring(*torus[-1, 0].numpy()))),
        (solid, on_mesh[-1, 0].numpy()),
    )
    for ax, end in ends:
        ax.scatter(*end, color=COLORS["black"], s=28, marker="*", depthshade=False)
        ax.set_axis_off()
    globe.set_box_aspect((1, 1, 1), zoom=1.25)
    ring.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), zlim=(-1.2, 1.2))
    ring.set_box_aspect((1, 1, 1), zoom=1.3)
    ring.view_init(40, 40)
    flat.plot(*torus[-1, 0].numpy(), "*", color=COLORS["black"], ms=9)
    disk.plot(*ball[-1, 0].numpy(), "*", color=COLORS["black"], ms=9)
    square = (-math.pi, math.pi)
    flat.set(xlim=square, ylim=square, aspect="equal", xlabel="angle 1 (rad)", ylabel="angle 2 (rad)")
    circle(disk, 1.0, COLORS["grey"], 1.0)
    disk.set(aspect="equal", xlabel="first axis", ylabel="second axis")
    turn.set(xlabel="time t", ylabel="angle left (rad)", ylim=(0, None), box_aspect=1)
    titles = ("sphere", "torus as a ring", "mesh, spectral", "torus, flat", "Poincaré disk", "rotations")
    for ax, title in zip((globe, ring, solid, flat, disk, turn), titles, strict=True):
        ax.set_title(title)
    return fig


def plot_surfaces(
    mesh: Mesh, panels: Mapping[str, Tensor], label: str, view: tuple[int, int] = (20, -60)
) -> Any:
    """Draw values on the faces of a mesh, (F,) each, one panel a name, all on one colour scale.

    `view` is (elevation, azimuth) in degrees.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig = plt.figure(figsize=(7.0, 3.3), layout="constrained")
    top = max(float(values.max()) for values in panels.values())
    for k, (title, values) in enumerate(panels.items()):
        ax = fig.add_subplot(1, len(panels), k + 1, projection="3d")
        surface(ax, mesh, values.numpy() / top)
        ax.view_init(*view)
        ax.set_title(title)
        ax.set_axis_off()
    scale = plt.cm.ScalarMappable(cmap="cividis", norm=plt.Normalize(0, top))
    fig.colorbar(scale, ax=fig.axes, label=label, shrink=0.7)
    return fig


def plot_rotations(
    data: Tensor, samples: Tensor, centres: Tensor, data_angles: Tensor, angles: Tensor, count: int = 1500
) -> Any:
    """Draw rotation vectors, (n, 3), of data and samples in the ball of radius pi, and angles to the modes.

    `centres` are rotation vectors, (m, 3); angles to the nearest centre are (n,), in radians.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig = plt.figure(figsize=(7.0, 2.9), layout="constrained")
    for k, (rows, title, color) in enumerate(((data, "data", "blue"), (samples, "samples", "orange"))):
        ax = fig.add_subplot(1, 3, k + 1, projection="3d")
        _wire(ax, *(math.pi * side for side in _sphere_grid()))
        ax.scatter(*rows[:count].T.numpy(), s=2, color=COLORS[color], alpha=0.4, linewidths=0)
        ax.scatter(*centres.T.numpy(), s=40, color=COLORS["black"], marker="*", depthshade=False)
        ax.set_title(title)
        ax.set_box_aspect((1, 1, 1), zoom=1.25)
        ax.set_axis_off()
    ax = fig.add_subplot(1, 3, 3)
    edges = np.linspace(0, math.pi, 50)
    for values, name, color, style in (
        (data_angles, "data", "blue", "-"),
        (angles, "samples", "orange", "--"),
    ):
        ax.hist(
            values.numpy(),
            edges,
            density=True,
            histtype="step",
            color=COLORS[color],
            ls=style,
            lw=1.4,
            label=name,
        )
    ax.set(xlabel="angle to a mode (rad)", ylabel="density (1/rad)", box_aspect=1)
    ax.legend(frameon=False)
    return fig


def add_globe(fig: Any, where: Any, lon: Tensor, lat: Tensor, shown: np.ndarray, norm: Any) -> Any:
    """Add a globe coloured by `shown`, (rows, columns), turned so that its largest value faces the reader."""
    import matplotlib.pyplot as plt

    ax = fig.add_subplot(where, projection="3d")
    step = max(1, len(shown) // 45)  # finer faces than these cannot be told apart
    coarse = shown[::step, ::step]
    b = np.radians(np.linspace(-90, 90, coarse.shape[0] + 1))[:, None]
    a = np.radians(np.linspace(-180, 180, coarse.shape[1] + 1))[None]
    x, y, z = np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b) * np.ones_like(a)
    ax.plot_surface(
        x, y, z, rstride=1, cstride=1, facecolors=plt.cm.cividis(norm(coarse)), shade=False, antialiased=False
    )
    top = np.unravel_index(shown.argmax(), shown.shape)
    ax.view_init(elev=float(lat[top[0]]), azim=float(lon[top[1]]))
    ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
    ax.set_proj_type("ortho")
    ax.set_box_aspect((1, 1, 1), zoom=1.35)
    ax.set_axis_off()
    return ax


def surface(ax: Any, mesh: Mesh, level: np.ndarray, alpha: float = 1.0) -> None:
    """Add the faces of a mesh, coloured by `level` in [0, 1]."""
    import matplotlib.pyplot as plt
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    corners = mesh.vertices[mesh.faces].numpy()
    width = 0.2 if len(corners) < 1000 else 0.0
    ax.add_collection3d(
        Poly3DCollection(
            corners,
            facecolors=plt.cm.cividis(level),
            edgecolors=(0, 0, 0, 0.25),
            linewidths=width,
            alpha=alpha,
        )
    )
    low, high = corners.reshape(-1, 3).min(0), corners.reshape(-1, 3).max(0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    ax.set_box_aspect(tuple(high - low), zoom=1.25)


def circle(ax: Any, radius: float, color: str, width: float) -> None:
    """Add a circle about the origin, below everything else."""
    a = np.linspace(0, 2 * math.pi, 200)
    ax.plot(radius * np.cos(a), radius * np.sin(a), color=color, lw=width, zorder=0)


def _sphere_grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = np.meshgrid(np.linspace(0, 2 * math.pi, 25), np.linspace(0, math.pi, 13))
    return np.sin(b) * np.cos(a), np.sin(b) * np.sin(a), np.cos(b)


def _wire(ax: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
    ax.plot_wireframe(x, y, z, color=COLORS["grey"], lw=0.3)


def _ring(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two angles on a ring in space: a picture only, the torus itself is flat."""
    radius = 1.0 + 0.4 * np.cos(b)
    return radius * np.cos(a), radius * np.sin(a), 0.4 * np.sin(b)
