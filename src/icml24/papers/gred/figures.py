"""The chapter's figures: each takes results and returns a matplotlib figure, and computes nothing new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from torch import Tensor

from icml24.common.figures import COLORS, new

from .data import Molecule
from .distances import shortest_path_distances

__all__ = [
    "plot_ablation",
    "plot_conditioning",
    "plot_costs",
    "plot_digits",
    "plot_eigenvalues",
    "plot_hops",
    "plot_impulses",
    "plot_molecules",
    "plot_rings",
    "plot_times",
]

LINES = (("blue", "o", "-"), ("orange", "s", "--"), ("green", "^", ":"), ("purple", "D", "-."))


def plot_hops(molecule: Molecule, node: int) -> Any:
    """A molecule with its atoms coloured and numbered by their distance from one atom."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    mol = Chem.MolFromSmiles(molecule.smiles)
    rdDepictor.Compute2DCoords(mol)
    places = mol.GetConformer().GetPositions()[:, :2]
    hops = shortest_path_distances(torch.from_numpy(molecule.bonds >= 0))[node].numpy()
    figure, ax = new(7.0, 3.6)
    for i, j in np.argwhere(np.triu(molecule.bonds >= 0)):
        ax.plot(*places[[i, j]].T, color=COLORS["grey"], linewidth=1.5, zorder=1)
    dots = ax.scatter(*places.T, c=hops, s=230, cmap="cividis", edgecolors=COLORS["black"], zorder=2)
    for (x, y), hop in zip(places, hops, strict=True):
        shade = COLORS["black"] if hop > hops.max() / 2 else "white"
        ax.text(x, y, str(int(hop)), ha="center", va="center", color=shade, zorder=3)
    figure.colorbar(dots, ax=ax, label="hop: distance in bonds")
    ax.set_aspect("equal")
    ax.set_axis_off()
    return figure


def plot_impulses(lam: Tensor, hops: int) -> Any:
    """What a unit input at hop k leaves in the last state: modulus and real part of the powers."""
    figure, axes = new(7.0, 3.2, ncols=2, sharey=True)
    k = np.arange(hops)
    for value, (color, marker, line) in zip(lam.numpy(), LINES, strict=False):
        powers = value**k
        style = {"color": COLORS[color], "marker": marker, "linestyle": line, "markersize": 4}
        label = f"|λ| = {abs(value):.2f}, angle {np.angle(value):.1f}"
        axes[0].plot(k, np.abs(powers), label=label, **style)
        axes[1].plot(k, powers.real, **style)
    axes[0].set_ylabel("weight of a hop")
    for ax, title in zip(axes, ("modulus", "real part"), strict=True):
        ax.set_title(title)
        ax.set_xlabel("hop k")
        ax.axhline(0, color=COLORS["grey"], linewidth=0.8)
    axes[0].legend(fontsize=8)
    return figure


def plot_conditioning(table: pd.DataFrame) -> Any:
    """Condition number of the Vandermonde matrix against the number of hops, by inner radius."""
    figure, ax = new(7.0, 3.4)
    for (r_min, part), (color, marker, line) in zip(table.groupby("r_min"), LINES, strict=False):
        x = part["hops"].to_numpy()
        ax.plot(
            x, part["median"], color=COLORS[color], marker=marker, linestyle=line, label=f"r_min = {r_min:g}"
        )
        ax.fill_between(x, part["low"], part["high"], color=COLORS[color], alpha=0.2)
    ax.set_xlabel("hops K + 1")
    ax.set_ylabel("log10 of the condition number")
    ax.legend()
    return figure


def plot_eigenvalues(eigenvalues: Mapping[str, Tensor]) -> Any:
    """Eigenvalues in the unit disk, a panel for each stage."""
    figure, axes = new(7.0, 2.7, ncols=len(eigenvalues), sharey=True)
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    for ax, (title, lam) in zip(axes, eigenvalues.items(), strict=True):
        ax.plot(circle.real, circle.imag, color=COLORS["grey"], linewidth=0.8)
        ax.scatter(lam.real, lam.imag, s=16, color=COLORS["blue"])
        ax.set_title(title)
        ax.set_xlabel("real part")
        ax.set_aspect("equal")
    axes[0].set_ylabel("imaginary part")
    return figure


def plot_rings(table: pd.DataFrame) -> Any:
    """Accuracy against the length of the ring, mean over seeds with the range."""
    figure, ax = new(7.0, 3.4)
    for (name, part), (color, marker, line) in zip(table.groupby("model", sort=False), LINES, strict=False):
        by = part.groupby("n")["accuracy"]
        mean, x = by.mean(), np.array(sorted(part["n"].unique()))
        ax.plot(x, mean, color=COLORS[color], marker=marker, linestyle=line, label=name)
        ax.fill_between(x, by.min(), by.max(), color=COLORS[color], alpha=0.2)
    ax.axhline(0.2, color=COLORS["grey"], linewidth=0.8)
    ax.text(x[0], 0.215, "chance", color=COLORS["grey"], fontsize=9)
    ax.set_ylim(0, 1.08)
    ax.set_xlabel("nodes on the ring (distance to bridge: half of it)")
    ax.set_ylabel("accuracy")
    ax.legend(loc="center right")
    return figure


def plot_molecules(table: pd.DataFrame) -> Any:
    """Test errors by model, a dot for each seed, over bars of their mean."""
    figure, ax = new(7.0, 3.4)
    names = list(dict.fromkeys(table["model"]))
    hatches = ("", "//", "..", "xx", "--")
    colors = ("blue", "orange", "green", "purple", "grey")
    for i, name in enumerate(names):
        values = table.loc[table["model"] == name, "test"].to_numpy()
        ax.bar(i, values.mean(), color=COLORS[colors[i % 5]], hatch=hatches[i % 5], alpha=0.75)
        ax.scatter(np.full(len(values), i), values, color=COLORS["black"], s=14, zorder=3)
    ax.set_xticks(range(len(names)), ["constant guess" if n == "median" else n for n in names])
    ax.set_xlabel("model")
    ax.set_ylabel("test error (mean absolute)")
    return figure


def plot_ablation(table: pd.DataFrame) -> Any:
    """Test error against the number of hops."""
    figure, ax = new(7.0, 3.2)
    by = table.groupby("variant", sort=False)["test"]
    means, names = by.mean(), list(dict.fromkeys(table["variant"]))
    linear = [n for n in names if "tanh" not in n]
    ax.plot(
        range(len(linear)),
        means[linear],
        color=COLORS["blue"],
        marker="o",
        label="diagonal linear recurrence",
    )
    for i, name in enumerate(names):
        values = table.loc[table["variant"] == name, "test"].to_numpy()
        is_linear = name in linear
        place = i if is_linear else linear.index("6")
        style = {"color": COLORS["blue" if is_linear else "orange"], "marker": "." if is_linear else "X"}
        ax.scatter(
            np.full(len(values), place), values, s=45, **style, label=None if is_linear else "dense tanh"
        )
    ax.set_xticks(range(len(linear)), linear)
    ax.set_xlabel("hops read, hop 0 included")
    ax.set_ylabel("test error (mean absolute)")
    ax.legend()
    return figure


def plot_costs(table: pd.DataFrame) -> Any:
    """Time and memory of three layers against the size of the graphs."""
    figure, axes = new(7.0, 3.3, ncols=2)
    for (name, part), (color, marker, line) in zip(table.groupby("layer", sort=False), LINES, strict=False):
        style = {"color": COLORS[color], "marker": marker, "linestyle": line, "label": name}
        axes[0].loglog(part["nodes"], part["ms"], **style)
        axes[1].loglog(part["nodes"], part["kept"] / 2**20, **style)
    axes[0].set_ylabel("ms, forward and backward")
    axes[1].set_ylabel("MiB kept for the backward pass")
    for ax in axes:
        ax.set_xlabel("nodes of a graph")
        _log_ticks(ax, sorted(table["nodes"].unique()))
    axes[0].legend(fontsize=8)
    return figure


def plot_times(table: pd.DataFrame) -> Any:
    """Time of the recurrence in three forms against the number of hops."""
    figure, ax = new(7.0, 3.2)
    names = {"sequential": "Horner", "sum": "weighted sum", "scan": "doubling scan"}
    for (name, part), (color, marker, line) in zip(table.groupby("form", sort=False), LINES, strict=False):
        style = {"color": COLORS[color], "marker": marker, "linestyle": line}
        ax.loglog(part["hops"], part["ms"], label=names[name], **style)
    _log_ticks(ax, sorted(table["hops"].unique()))
    ax.set_xlabel("hops K + 1")
    ax.set_ylabel("ms, forward")
    ax.legend()
    return figure


def plot_digits(features: np.ndarray, adj: np.ndarray, labels: np.ndarray) -> Any:
    """Digits as graphs of superpixels."""
    figure, axes = new(7.0, 2.1, ncols=len(labels), sharex=True, sharey=True)
    for ax, x, edges, label in zip(axes, features, adj, labels, strict=True):
        for i, j in np.argwhere(np.triu(edges)):
            ax.plot(*x[[i, j], 1:].T, color=COLORS["grey"], linewidth=0.6, zorder=1)
        ax.scatter(
            *x[:, 1:].T, c=-x[:, 0], cmap="gray", vmin=-1, vmax=0, s=45, edgecolors=COLORS["black"], zorder=2
        )
        ax.set_title(f"digit {label}")
        ax.set_ylim(1.05, -0.05)
        ax.set_aspect("equal")
        ax.set_axis_off()
    return figure


def _log_ticks(ax: Any, sizes: list[int]) -> None:
    """Two logarithmic axes with plain numbers: the sizes below, and 1, 2, 5, 10 ... at the side."""
    ax.set_xticks(sizes, [str(s) for s in sizes])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
