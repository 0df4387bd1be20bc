"""The chapter's figures: each takes results and returns a matplotlib figure, and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from icml24.common.figures import COLORS, new

from .comparisons import Curve
from .data import Camera

__all__ = [
    "plot_breakdown",
    "plot_crops",
    "plot_curves",
    "plot_noise_bits",
    "plot_pattern",
    "plot_transfer",
    "plot_variance",
    "plot_waterfilling",
]

STYLES = {
    "ours, recorrupted pairs": ("blue", "o", "-"),
    "same network, noisy target": ("orange", "s", "-"),
    "same network, clean target": ("black", "X", ":"),
    "JPEG 2000 of the noisy raw": ("green", "", "--"),
    "denoise, then JPEG 2000": ("purple", "", "-."),
}
#: Ticks of a rate axis.
RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


def plot_transfer(cameras: Mapping[str, Camera]) -> Any:
    """Noise variance against signal of the flats, with the fitted and the true line, by gain setting."""
    figure, ax = new(7.0, 4.2)
    for (name, camera), color, marker in zip(
        cameras.items(), ("blue", "orange", "green"), "os^", strict=True
    ):
        found, sensor = camera.calibration, camera.exposure.sensor
        mean = np.geomspace(100, found.mean.max(), 100)
        ax.plot(mean, sensor.gain * mean + sensor.read_std**2, color=COLORS["grey"], linewidth=3, alpha=0.4)
        fitted = found.gain * mean + found.read_std**2
        ax.plot(mean, fitted, color=COLORS[color], label=f"{name}: slope {found.gain:.2f} DN per electron")
        ax.plot(found.mean, found.variance, marker, color=COLORS[color])
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="signal of a flat level [DN]", ylabel="noise variance [DN²]")
    ax.legend(loc="upper left")
    return figure


def plot_pattern(before: Tensor, after: Tensor, pattern: Tensor) -> Any:
    """Corner of the calibrated pattern; column means of a dark frame before and after subtraction."""
    figure, axes = new(8.4, 3.4, ncols=2)
    mesh = axes[0].imshow(pattern[:64, :96], cmap="gray", interpolation="nearest")
    figure.colorbar(mesh, ax=axes[0], label="offset [DN]", shrink=0.85)
    axes[0].set(xlabel="column", ylabel="row")
    axes[0].grid(False)
    for frame, color, label in ((before, "orange", "as read"), (after, "blue", "pattern subtracted")):
        axes[1].plot(frame.mean(0)[:200], color=COLORS[color], label=label, linewidth=1.2)
    axes[1].set(xlabel="column", ylabel="mean of the column [DN above black]")
    axes[1].legend(loc="upper right")
    return figure


def plot_variance(electrons: np.ndarray, curves: Mapping[str, np.ndarray]) -> Any:
    """Noise variance against signal, before and after stabilisation."""
    figure, ax = new(7.0, 3.8)
    for (label, values), color, line in zip(
        curves.items(), ("orange", "green", "blue"), ("--", "-.", "-"), strict=True
    ):
        ax.plot(electrons, values, line, color=COLORS[color], label=label)
    ax.axhline(1, color=COLORS["grey"], linewidth=0.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="signal [electrons]", ylabel="noise variance")
    ax.legend(loc="upper left")
    return figure


def plot_waterfilling(
    frequency: np.ndarray, spectra: Mapping[str, np.ndarray], levels: Mapping[str, float]
) -> Any:
    """Spectra of what two targets ask for, and the water levels of several slopes."""
    figure, ax = new(7.0, 3.9)
    for (label, spectrum), color, line in zip(spectra.items(), ("orange", "blue"), ("-", "-"), strict=True):
        ax.plot(frequency, spectrum, line, color=COLORS[color], label=label)
    for label, level in levels.items():
        ax.axhline(level, color=COLORS["grey"], linewidth=1, linestyle="--")
        ax.annotate(label, (frequency[0], level), xytext=(4, 3), textcoords="offset points")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="spatial frequency [share of the sampling rate]", ylabel="variance [noise variances]")
    ax.set_ylim(0.01, None)
    ax.legend(loc="upper right")
    return figure


def plot_noise_bits(table: pd.DataFrame) -> Any:
    """Stacked bars of the lossless file: entropy of the noise and the rest, by exposure."""
    figure, ax = new(7.0, 3.6)
    rows = np.arange(len(table))
    ax.barh(rows, table["noise bound"], color=COLORS["orange"], hatch="//", edgecolor="white", label="noise")
    ax.barh(
        rows,
        table["JPEG 2000"] - table["noise bound"],
        left=table["noise bound"],
        color=COLORS["blue"],
        label="the rest",
    )
    ax.plot(table["clean, JPEG 2000"], rows, "kD", label="the clean picture alone")
    ax.set_yticks(rows, table.index)
    ax.invert_yaxis()
    ax.set(xlabel="bits a photosite, lossless JPEG 2000")
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def plot_curves(panels: Mapping[str, Mapping[str, Curve]], inputs: Mapping[str, float]) -> Any:
    """Rate-distortion curves, a panel a mapping entry, with the noisy input as a line."""
    figure, axes = new(4.1 * len(panels) + 0.4, 4.4, ncols=len(panels), squeeze=False)
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for label, (rate, quality) in curves.items():
            color, marker, line = STYLES[label]
            ax.plot(rate, quality, marker=marker, linestyle=line, color=COLORS[color], label=label)
        ax.axhline(inputs[title], color=COLORS["grey"], linewidth=1)
        ax.annotate(
            "noisy input",
            (0.98, inputs[title]),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            color=COLORS["grey"],
        )
        highest = max(quality.max() for _, quality in curves.values())
        ax.set_ylim(inputs[title] - 1.5, highest + 0.7)
        ax.set_xscale("log")
        ax.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
        ax.minorticks_off()
        ax.set_xlim(*_span([rate for rate, _ in curves.values()]))
        ax.set(title=title, xlabel="bits a photosite", ylabel="PSNR against the clean signal [dB]")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), fontsize="small")
    return figure


def plot_crops(pictures: Mapping[str, Tensor], rows: int = 2) -> Any:
    """Crops of developed pictures under their captions."""
    columns = -(-len(pictures) // rows)
    figure, axes = new(2.9 * columns, 3.0 * rows, nrows=rows, ncols=columns, squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for ax, (title, picture) in zip(axes.flat, pictures.items(), strict=False):
        ax.imshow(picture.numpy(), interpolation="nearest")
        ax.set_title(title, fontsize="small")
    return figure


def plot_breakdown(
    labels: Sequence[str], parts: Mapping[str, Sequence[float]], estimates: Sequence[float]
) -> Any:
    """Stacked bars of a stream's bytes by part, with the model's estimate as a mark."""
    figure, ax = new(7.0, 3.2)
    rows, left = np.arange(len(labels)), np.zeros(len(labels))
    for (name, sizes), color, hatch in zip(
        parts.items(), ("grey", "orange", "blue"), ("", "//", ""), strict=True
    ):
        ax.barh(rows, sizes, left=left, color=COLORS[color], hatch=hatch, edgecolor="white", label=name)
        left = left + np.asarray(sizes)
    ax.plot(estimates, rows, "k|", markersize=18, label="estimate of the model")
    ax.set_yticks(rows, labels)
    ax.invert_yaxis()
    ax.set(xlabel="bytes")
    ax.legend(loc="upper right")
    ax.grid(axis="y", visible=False)
    return figure


def _span(rates: Sequence[np.ndarray]) -> tuple[float, float]:
    """Axis limits around all rates."""
    return 0.9 * min(rate.min() for rate in rates), 1.1 * max(rate.max() for rate in rates)
