r"""What is read off the files: curves, gains at equal rate, differences between targets.

Runs are nested lists of `Point`, one a file: ``[seed][scene][level]``. Nothing is trained here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .baselines import Setting, envelope
from .metrics import at_rate, bd_rate, upper_envelope

__all__ = [
    "Curve",
    "Model",
    "Point",
    "bd_between",
    "curve",
    "gain_at_equal_rate",
    "gains_over",
    "level_near",
    "mean_curve",
    "near",
    "rate_ratio",
    "runs",
    "seed_gaps",
]

#: Exposure, target and seed index of a trained codec.
Model = tuple[str, str, int]
#: Rates in bits a photosite and PSNRs in dB.
Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Point:
    """One file: its scene and level, size, what the model expected, and how well it decodes.

    Attributes
    ----------
    size : int
        Bytes, header included.
    estimate : float
        Bits of the model, header not included.
    bpp : float
        Bits a photosite of the file.
    psnr : float
        dB against the clean signal.
    """

    scene: str
    level: int
    size: int
    estimate: float
    bpp: float
    psnr: float

    @property
    def excess(self) -> float:
        """Actual bits beyond the estimate, less 256, as a share of the estimate."""
        return (abs(8 * self.size - self.estimate) - 256) / self.estimate


def curve(points: Sequence[Point]) -> Curve:
    """Upper envelope of one scene's files."""
    return upper_envelope(np.array([p.bpp for p in points]), np.array([p.psnr for p in points]))


def mean_curve(points: Sequence[Sequence[Point]]) -> Curve:
    """Bits and PSNR averaged over scenes, level by level (no envelope)."""
    table = np.array([[(p.bpp, p.psnr) for p in row] for row in points]).mean(axis=0)
    return table[:, 0], table[:, 1]


def level_near(points: Sequence[Sequence[Point]], bpp: float = 0.15) -> int:
    """Level whose mean bits a photosite lie nearest `bpp`."""
    return int(np.abs(mean_curve(points)[0] - bpp).argmin())


def runs(results: Mapping[Model, list[list[Point]]], exposure: str, target: str) -> list[list[list[Point]]]:
    """The files of all seeds of one method: ``[seed][scene][level]``."""
    return [points for (name, goal, _), points in results.items() if (name, goal) == (exposure, target)]


def near(files: Sequence[Sequence[Sequence[Point]]], bpp: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Bits a photosite and PSNR at each seed's level nearest `bpp`, shapes (seeds, scenes)."""
    chosen = [[row[level_near(points, bpp)] for row in points] for points in files]
    return (
        np.array([[p.bpp for p in row] for row in chosen]),
        np.array([[p.psnr for p in row] for row in chosen]),
    )


def gain_at_equal_rate(
    ours: Curve, other: Curve, low: float = 0.0, high: float = np.inf
) -> tuple[float, float]:
    """Mean and least gain in dB over our rates between `low` and `high` that `other` reaches too.

    Curves are linear in the log-rate; above its dearest useful point `other` stays at its best.
    """
    rates = _common(ours, other, low, high)
    gains = [at_rate(*ours, rate) - at_rate(*other, rate) for rate in rates]
    return float(np.mean(gains)), float(np.min(gains))


def gains_over(
    files: Sequence[Sequence[Sequence[Point]]],
    other: Mapping[str, Sequence[Setting]],
    low: float = 0.0,
    high: float = np.inf,
    levels: Sequence[float] | None = None,
) -> np.ndarray:
    """Mean gain at equal rate over a swept baseline, in dB, shape (seeds, scenes) (see `gain_at_equal_rate`)."""
    return np.array(
        [
            [
                gain_at_equal_rate(curve(row), envelope(other[row[0].scene], levels), low, high)[0]
                for row in points
            ]
            for points in files
        ]
    )


def rate_ratio(ours: Curve, other: Curve) -> float:
    """How many times the bits `other` needs for equal quality: geometric mean over the qualities both reach.

    Infinite when `other` never reaches the quality of our cheapest file; 0 when we never reach its.
    """
    low, high = max(ours[1][0], other[1][0]), min(ours[1][-1], other[1][-1])
    if low >= high:
        return np.inf if ours[1][0] >= other[1][-1] else 0.0
    qualities = np.linspace(low, high, 101)
    logs = [np.interp(qualities, quality, np.log(rate)) for rate, quality in (ours, other)]
    return float(np.exp((logs[1] - logs[0]).mean()))


def bd_between(anchor: Sequence[Sequence[Point]], test: Sequence[Sequence[Point]]) -> float:
    """BD-rate of the mean curves in percent.

    Piecewise linear where an envelope keeps fewer than 4 points. Without a common quality: -100 where
    `test` is the better one, a very large number where it is the worse (see `rate_ratio`).
    """
    curves = [upper_envelope(*mean_curve(points)) for points in (anchor, test)]
    (_, a), (_, b) = curves
    if min(len(a), len(b)) >= 4 and max(a[0], b[0]) < min(a[-1], b[-1]):
        return bd_rate(*curves[0], *curves[1])
    return 100 * (1 / max(rate_ratio(curves[1], curves[0]), 1e-3) - 1)


def seed_gaps(results: Mapping[Model, list[list[Point]]], exposure: str = "night") -> dict[str, np.ndarray]:
    """What the target changes, seed by seed: shapes (seeds,) or (seeds, levels), PSNR in dB.

    Keys: "lost to clean" (mean curves at equal rate), "gain over noisy" (level by level, mean of
    scenes), "chelsea over noisy" (highest level), "share of bits" (highest level, ours over noisy).
    """
    ours, noisy, clean = (runs(results, exposure, target) for target in ("recorrupted", "noisy", "clean"))
    pairs = list(zip(ours, noisy, clean, strict=True))
    curves = [[mean_curve(points) for points in seed] for seed in pairs]
    return {
        "lost to clean": np.array(
            [gain_at_equal_rate(upper_envelope(*c), upper_envelope(*a))[0] for a, _, c in curves]
        ),
        "gain over noisy": np.array([a[1] - b[1] for a, b, _ in curves]),
        "chelsea over noisy": np.array([a[0][-1].psnr - b[0][-1].psnr for a, b, _ in pairs]),
        "share of bits": np.array([a[0][-1] / b[0][-1] for a, b, _ in curves]),
    }


def _common(ours: Curve, other: Curve, low: float, high: float) -> np.ndarray:
    start, end = max(ours[0][0], other[0][0], low), min(ours[0][-1], high)
    if start >= end:
        raise ValueError(f"no common rates between {low} and {high}")
    return np.geomspace(start, end, 101)
