r"""Figures of the chapter: each takes results and returns a Figure; nothing is computed while drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from icml24.common.figures import COLORS, MARKERS, new, use_style

from .residues import AA3, ATOM_MASK, ATOM_NAMES

__all__ = [
    "plot_burial",
    "plot_euler",
    "plot_field",
    "plot_flows",
    "plot_losses",
    "plot_oxygen",
    "plot_peptide",
    "plot_ramachandran",
    "plot_rotamers",
]


def plot_field(
    x: Tensor, mean: Tensor, error: Tensor, exact: Tensor, pairs: tuple[Tensor, Tensor], t: float
) -> Any:
    """Draw single targets, their bin means with two standard errors, and the marginal field, at one time."""
    fig, ax = new(6.0, 3.4)
    ax.plot(*(p.numpy() for p in pairs), ".", ms=2, alpha=0.25, color=COLORS["sky"], label="single targets")
    ax.errorbar(
        x.numpy(), mean.numpy(), 2 * error.numpy(), fmt="o", ms=3, color=COLORS["blue"], label="mean in a bin"
    )
    ax.plot(x.numpy(), exact.numpy(), color=COLORS["orange"], label="marginal field")
    ax.set(xlabel=f"position $x_t$ at t = {t:g}", ylabel="velocity")
    ax.legend(frameon=False)
    return fig


def plot_flows(times: Tensor, positions: Tensor, turns: Tensor, angles: Tensor, types: Tensor) -> Any:
    """Draw the four flows of a few residues over time.

    `positions` (T, n, 2) in angstrom, `turns` (T, n) rotation still to go in degrees, `angles` (T, n) in
    radians, `types` (T, 20) probabilities of one residue.
    """
    fig, axes = new(7.0, 5.4, nrows=2, ncols=2)
    t = times.numpy()
    names = list(COLORS)
    for k in range(positions.shape[1]):
        color = COLORS[names[k]]
        axes[0, 0].plot(*positions[:, k].T.numpy(), color=color, lw=1.2)
        axes[0, 0].plot(*positions[-1, k].numpy(), "o", ms=5, color=color)
        axes[0, 1].plot(t, turns[:, k].numpy(), color=color)
        a = np.degrees(angles[:, k].numpy())
        a[1:][np.abs(np.diff(a)) > 180] = np.nan  # do not draw across the seam
        axes[1, 0].plot(t, a, color=color)
    axes[0, 0].set(title="positions (data: dots)", xlabel="x (Å)", ylabel="y (Å)")
    axes[0, 1].set(title="rotations", xlabel="time t", ylabel="turn still to go (°)")
    axes[1, 0].set(
        title="one torsion each", xlabel="time t", ylabel="angle (°)", ylim=(0, 360), yticks=range(0, 361, 90)
    )
    p = types.numpy()
    best = int(p[-1].argmax())
    for k in range(p.shape[1]):
        axes[1, 1].plot(t, p[:, k], color=COLORS["grey"], lw=0.6)
    axes[1, 1].plot(t, p[:, best], color=COLORS["orange"], lw=2)
    axes[1, 1].annotate(
        "true type",
        (t[-1], p[-1, best]),
        xytext=(-50, -40),
        textcoords="offset points",
        color=COLORS["orange"],
    )
    axes[1, 1].set(title="types of one residue", xlabel="time t", ylabel="probability", ylim=(0, 1.05))
    return fig


def plot_oxygen(errors: Mapping[str, Tensor]) -> Any:
    """Draw the distances of rebuilt carbonyl oxygens from the real ones, one row of dots a convention."""
    fig, ax = new(6.0, 2.2)
    for k, (x, color, marker) in enumerate(zip(errors.values(), ("orange", "blue"), MARKERS, strict=False)):
        spread = 0.18 * np.sin(17.0 * np.arange(len(x)))
        ax.plot(x.numpy(), k + spread, marker, ms=3, alpha=0.5, color=COLORS[color])
    ax.set(yticks=range(len(errors)), yticklabels=list(errors), ylim=(-0.5, len(errors) - 0.5))
    ax.set(xlabel="distance of the rebuilt oxygen from the real one (Å)", xlim=(-0.1, 2.6))
    return fig


def plot_losses(losses: Mapping[str, Sequence[float]], width: int) -> Any:
    """Draw the six losses as running means over `width` steps, each divided by its first value."""
    fig, ax = new(6.4, 3.4)
    kernel = np.ones(width) / width
    for (name, values), color in zip(losses.items(), COLORS.values(), strict=False):
        smooth = np.convolve(values, kernel, mode="valid")
        ax.plot(np.arange(len(smooth)) + width, smooth / smooth[0], color=color, label=name)
    ax.axhline(0.8, color=COLORS["grey"], lw=0.8, ls="--")
    ax.set(xlabel="optimiser steps", ylabel="loss over its start")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def plot_peptide(
    receptor: Tensor, native: Mapping[str, Tensor], sample: Mapping[str, Tensor], title: str
) -> Any:
    """Draw a peptide in its groove: receptor CA, native and designed chain with side chains, 3-D.

    `receptor` (m, 3); the peptides give ``pos14`` (n, 14, 3) and ``seq`` (n,).
    """
    import matplotlib.pyplot as plt

    use_style()
    fig = plt.figure(figsize=(7.0, 3.8), layout="constrained")
    for k, (name, who, color) in enumerate((("native", native, "blue"), (title, sample, "orange"))):
        ax = fig.add_subplot(1, 2, k + 1, projection="3d")
        ax.scatter(*receptor.T.numpy(), color=COLORS["grey"], s=26, alpha=0.6, depthshade=False)
        _chain(ax, who, COLORS[color])
        letters = "-".join(AA3[int(a)].capitalize() for a in who["seq"])
        ax.set_title(name)
        ax.text2D(0.5, -0.02, letters, transform=ax.transAxes, ha="center", fontsize=7)
        low, high = receptor.min(0).values, receptor.max(0).values
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        ax.set_box_aspect(tuple((high - low).tolist()))
        ax.view_init(elev=62, azim=-60)
        ax.set_axis_off()
    return fig


def plot_ramachandran(angles: Mapping[str, Tensor]) -> Any:
    """Draw (phi, psi) of peptides, one panel an origin; (n, 2) in radians."""
    fig, axes = new(7.0, 3.5, ncols=len(angles), sharex=True, sharey=True)
    for ax, (name, x), color in zip(axes, angles.items(), ("blue", "orange"), strict=False):
        degrees = np.degrees(x.numpy())
        ax.plot(degrees[:2000, 0], degrees[:2000, 1], ".", ms=3, alpha=0.45, color=COLORS[color])
        ax.set(title=name, xlim=(-180, 180), ylim=(-180, 180), aspect="equal", xlabel="φ (°)")
        ax.set_xticks(range(-180, 181, 90))
        ax.set_yticks(range(-180, 181, 90))
        ax.grid(lw=0.4)
    axes[0].set_ylabel("ψ (°)")
    return fig


def plot_rotamers(angles: Mapping[str, np.ndarray]) -> Any:
    """Draw histograms of chi1 in degrees, [0, 360), as densities."""
    fig, axes = new(7.0, 2.6, ncols=len(angles), sharey=True)
    bins = np.arange(0, 361, 20)
    for ax, (name, x), color in zip(axes, angles.items(), ("blue", "orange", "grey"), strict=False):
        ax.hist(x, bins=bins, density=True, color=COLORS[color], alpha=0.85)
        ax.set(title=name, xlabel="χ1 (°)", xlim=(0, 360), xticks=range(0, 361, 120))
    axes[0].set_ylabel("density (1/°)")
    return fig


def plot_burial(near: np.ndarray, recovered: np.ndarray, level: float) -> Any:
    """Draw recovery by the number of near receptor residues, with two standard errors, beside a baseline."""
    fig, ax = new(6.0, 3.0)
    edges = np.unique(np.quantile(near, np.linspace(0, 1, 6)))
    edges[-1] += 1
    for low, high in pairwise(edges):
        x, y = near[(near >= low) & (near < high)], recovered[(near >= low) & (near < high)]
        if len(y) > 1:
            ax.errorbar(x.mean(), y.mean(), 2 * y.std(ddof=1) / len(y) ** 0.5, fmt="o", color=COLORS["blue"])
    ax.axhline(level, color=COLORS["grey"], lw=0.8, ls="--", label="most common type")
    ax.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    ax.set(xlabel="receptor residues within 10 Å", ylabel="recovery", ylim=(0, None))
    return fig


def plot_euler(errors: Mapping[str, Mapping[int, Mapping[str, float]]]) -> Any:
    """Draw what is left of the initial error at time 1, by number of steps, one panel an integrator."""
    fig, axes = new(7.0, 3.0, ncols=2, sharey=True)
    for ax, (name, by_count) in zip(axes, errors.items(), strict=True):
        counts = list(by_count)
        for kind, color, marker in zip(by_count[counts[0]], COLORS.values(), MARKERS, strict=False):
            left = [max(by_count[n][kind], 1e-16) for n in counts]
            ax.loglog(counts, left, marker=marker, ms=5, color=color, label=kind)
        ax.set(title=name, xlabel="number of times")
    axes[0].axhline(1e-15, color=COLORS["grey"], lw=0.6, ls=":")
    axes[0].set_ylabel("error left at t = 1, relative")
    axes[1].axhline(math.exp(-0.99), color=COLORS["grey"], lw=0.8, ls="--")
    axes[1].legend(frameon=False, fontsize=8)
    return fig


def _chain(ax: Any, who: Mapping[str, Tensor], color: str) -> None:
    """Backbone as a thick line through CA, side chains as thin lines from CA outwards."""
    atoms, seq = who["pos14"].numpy(), who["seq"]
    ax.plot(*atoms[:, 1].T, "-o", color=color, lw=2.4, ms=4)
    for residue, kind in zip(atoms, seq.tolist(), strict=True):
        names, here = ATOM_NAMES[AA3[kind]], ATOM_MASK[kind].numpy()
        for k in range(4, 14):
            if here[k]:
                earlier = [j for j in range(k) if here[j] and names[j] not in ("N", "C", "O")]
                near = min(earlier, key=lambda j: np.linalg.norm(residue[k] - residue[j]))
                ax.plot(*np.stack((residue[near], residue[k])).T, color=color, lw=0.9)
