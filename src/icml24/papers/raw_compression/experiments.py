r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Every random stream is named by the base seed and its purpose, so a result depends on nothing that
ran before it. Nothing here plots or prints. Reported sizes are those of real files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose

from . import baselines
from .bitstream import HEADER_BYTES
from .codec import RawCodec
from .data import BRACKET, EXPOSURES, TEST_SCENES, TRAINING_SCENES, Camera, Exposure, Shot, camera, shoot
from .files import compress_raw, decompress_raw
from .metrics import at_rate, bd_rate, psnr, upper_envelope
from .rate_theory import mean_noise_entropy
from .training import LAMBDAS, Recipe, train

__all__ = [
    "COARSE",
    "FINE",
    "FULL",
    "QUICK",
    "Config",
    "Curve",
    "Point",
    "alpha_ablation",
    "bd_between",
    "cameras",
    "configure",
    "decode_elsewhere",
    "evaluate",
    "evaluate_all",
    "gain_at_equal_rate",
    "gains_over",
    "hyper_bits",
    "j2k_settings",
    "lossless",
    "mean_curve",
    "near",
    "pattern_pair",
    "rate_ratio",
    "runs",
    "seed_gaps",
    "shots",
    "train_all",
    "training_shots",
]

#: Target PSNRs of the planned sweep of JPEG 2000, and of the finer one that the chapter judges by:
#: the useful settings lie between two steps of the planned one, which would flatter the codec.
COARSE = tuple(float(level) for level in range(20, 62, 2))
FINE = tuple(sorted({*np.arange(18, 24, 0.5).tolist(), *map(float, range(24, 36)), *COARSE}))

Model = tuple[str, str, int]  # exposure, target, seed index


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    recipe : Recipe
        Of every codec of the comparison.
    models : tuple of (exposure, target, number of seeds)
        What is trained.
    most_bpp : mapping of exposure to float
        Where JPEG 2000's sweep ends: beyond every rate of the codec there.
    short : Recipe
        Of the two ablations, which the quick profile leaves out.
    """

    seed: int = 0
    recipe: Recipe = field(default_factory=lambda: Recipe(latent_channels=48, steps=800))
    models: tuple[tuple[str, str, int], ...] = (("night", "recorrupted", 1),)
    most_bpp: Mapping[str, float] = field(default_factory=lambda: {"night": 0.6})
    short: Recipe | None = None


QUICK = Config()
FULL = Config(
    recipe=Recipe(),
    models=(
        ("night", "recorrupted", 3),
        ("night", "noisy", 3),
        ("night", "clean", 3),
        ("dusk", "recorrupted", 1),
        ("day", "recorrupted", 1),
    ),
    most_bpp={"night": 1.0, "dusk": 2.0, "day": 4.0},
    short=Recipe(steps=800),
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def cameras(config: Config) -> dict[str, Camera]:
    """Calibrated cameras of all three exposures."""
    return {name: camera(config.seed, exposure) for name, exposure in EXPOSURES.items()}


def shots(config: Config, found: Camera, names: Sequence[str], *, subtract: bool = True) -> list[Shot]:
    """One exposure of each of the scenes."""
    return [shoot(name, found, config.seed, subtract=subtract) for name in names]


def training_shots(config: Config, found: Camera, *, subtract: bool = True) -> list[Shot]:
    """Every training scene at every light of the bracket."""
    return [
        shoot(name, found, config.seed, light=light, subtract=subtract)
        for light in BRACKET
        for name in TRAINING_SCENES
    ]


def lossless(config: Config, found: Mapping[str, Camera]) -> list[dict[str, object]]:
    """Bits a photosite without loss, noisy and clean, beside the entropy of the noise: a row a test scene."""
    rows: list[dict[str, object]] = []
    for name, cam in found.items():
        sensor = cam.exposure.sensor
        for shot in shots(config, cam, TEST_SCENES):
            clean = (shot.clean + sensor.black_level).round().clamp(0, sensor.white_level)
            noisy = {coder: baselines.lossless_bpp(shot.raw, coder) for coder in baselines.LOSSLESS}
            rows.append(
                {
                    "exposure": name,
                    "scene": shot.name,
                    "electrons": float(shot.clean.mean()) / sensor.gain,
                    "noise bound": mean_noise_entropy(shot.clean, sensor.gain, sensor.read_std),
                    "clean, JPEG 2000": baselines.lossless_bpp(clean),
                    **noisy,
                }
            )
    return rows


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

    @property
    def payload_bits(self) -> int:
        """Bits after the header."""
        return 8 * (self.size - HEADER_BYTES)


Curve = tuple[np.ndarray, np.ndarray]


def train_all(config: Config, found: Mapping[str, Camera]) -> dict[Model, RawCodec]:
    """Every codec of the comparison. Seeds differ in weights and batches; the raw files are the same."""
    codecs = {}
    for name, target, seeds in config.models:
        scenes = training_shots(config, found[name])
        for seed in range(seeds):
            codecs[name, target, seed] = train(
                EXPOSURES[name], scenes, target, config.recipe, config.seed + seed
            )
    return codecs


def evaluate(codec: RawCodec, exposure: Exposure, scenes: Sequence[Shot]) -> list[list[Point]]:
    """Write and read real files of every scene at every level: ``[scene][level]``."""
    return [[_point(codec, exposure, shot, level) for level in range(len(LAMBDAS))] for shot in scenes]


def evaluate_all(
    config: Config, codecs: Mapping[Model, RawCodec], found: Mapping[str, Camera]
) -> dict[Model, list[list[Point]]]:
    """`evaluate` of every codec, on the test scenes of its exposure."""
    scenes = {name: shots(config, found[name], TEST_SCENES) for name in {model[0] for model in codecs}}
    return {model: evaluate(codec, EXPOSURES[model[0]], scenes[model[0]]) for model, codec in codecs.items()}


def input_psnr(exposure: Exposure, scenes: Sequence[Shot]) -> np.ndarray:
    """PSNR of the calibrated noisy raw against the clean signal, one a scene."""
    return np.array([float(psnr(shot.linear, shot.clean, exposure.peak)) for shot in scenes])


def j2k_settings(
    config: Config, exposure: Exposure, scenes: Sequence[Shot], *, denoise: bool = False
) -> dict[str, list[baselines.Setting]]:
    """Swept settings of lossy JPEG 2000 by scene."""
    most = config.most_bpp[exposure.name]
    return {
        shot.name: baselines.lossy_settings(shot, exposure.peak, FINE, denoise=denoise, most_bpp=most)
        for shot in scenes
    }


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


def gain_at_equal_rate(
    ours: Curve, other: Curve, low: float = 0.0, high: float = np.inf
) -> tuple[float, float]:
    """Mean and least gain in dB over our rates between `low` and `high` that `other` reaches too.

    Curves are linear in the log-rate; above its dearest useful point `other` stays at its best.
    """
    rates = _common(ours, other, low, high)
    gains = [at_rate(*ours, rate) - at_rate(*other, rate) for rate in rates]
    return float(np.mean(gains)), float(np.min(gains))


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


def runs(results: Mapping[Model, list[list[Point]]], exposure: str, target: str) -> list[list[list[Point]]]:
    """The files of all seeds of one method: ``[seed][scene][level]``."""
    return [points for (name, goal, _), points in results.items() if (name, goal) == (exposure, target)]


def gains_over(
    files: Sequence[Sequence[Sequence[Point]]],
    other: Mapping[str, Sequence[baselines.Setting]],
    low: float = 0.0,
    high: float = np.inf,
    levels: Sequence[float] | None = None,
) -> np.ndarray:
    """Mean gain at equal rate over a swept baseline, in dB, shape (seeds, scenes) (see `gain_at_equal_rate`)."""
    return np.array(
        [
            [
                gain_at_equal_rate(curve(row), baselines.envelope(other[row[0].scene], levels), low, high)[0]
                for row in points
            ]
            for points in files
        ]
    )


def near(files: Sequence[Sequence[Sequence[Point]]], bpp: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Bits a photosite and PSNR at each seed's level nearest `bpp`, shapes (seeds, scenes)."""
    chosen = [[row[level_near(points, bpp)] for row in points] for points in files]
    return (
        np.array([[p.bpp for p in row] for row in chosen]),
        np.array([[p.psnr for p in row] for row in chosen]),
    )


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


def bd_between(anchor: Sequence[Sequence[Point]], test: Sequence[Sequence[Point]]) -> float:
    """BD-rate of the mean curves in percent; piecewise linear where an envelope keeps fewer than 4 points."""
    curves = [upper_envelope(*mean_curve(points)) for points in (anchor, test)]
    if min(len(rate) for rate, _ in curves) >= 4:
        return bd_rate(*curves[0], *curves[1])
    return 100 * (1 / max(rate_ratio(curves[1], curves[0]), 1e-3) - 1)


def hyper_bits(codec: RawCodec, t: Tensor, level: int) -> float:
    """Bits of the hyper-latents alone, as the model estimates them."""
    with torch.no_grad():
        return float(codec.hyper_bits(t, torch.tensor([level])))


def pattern_pair(config: Config) -> dict[str, list[list[Point]]]:
    """A strong fixed pattern at night (columns of 12 DN), with and without subtraction, in training and test."""
    exposure = EXPOSURES["night"]
    striped = camera(config.seed, exposure, column_std=12.0)
    results = {}
    for name, subtract in (("subtracted", True), ("left in", False)):
        scenes = training_shots(config, striped, subtract=subtract)
        codec = train(exposure, scenes, "recorrupted", _short(config), config.seed)
        results[name] = evaluate(codec, exposure, shots(config, striped, TEST_SCENES, subtract=subtract))
    return results


def alpha_ablation(
    config: Config, found: Camera, alphas: Sequence[float] = (0.4, 0.7, 1.0)
) -> dict[float, list[list[Point]]]:
    """Codecs of one short recipe by the split of their recorruption, at night."""
    exposure, scenes = EXPOSURES["night"], training_shots(config, found)
    tests = shots(config, found, TEST_SCENES)
    results = {}
    for alpha in alphas:
        recipe = replace(_short(config), alpha=alpha)
        codec = train(exposure, scenes, "recorrupted", recipe, config.seed)
        results[alpha] = evaluate(codec, exposure, tests)
    return results


_READER = """
import sys, torch
from icml24.papers.raw_compression import CodecConfig, RawCodec, decompress_raw
torch.set_num_threads(1)
stored = torch.load(sys.argv[1], weights_only=True)
codec = RawCodec(CodecConfig(**stored["config"]))
codec.load_state_dict(stored["weights"])
torch.save(decompress_raw(open(sys.argv[2], "rb").read(), codec), sys.argv[3])
"""


def decode_elsewhere(codec: RawCodec, data: bytes) -> Tensor:
    """Read a stream in a fresh process that is given the weights and the file, nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        weights, stream, picture = (
            Path(folder) / name for name in ("weights.pt", "stream.rcs", "picture.pt")
        )
        torch.save({"config": vars(codec.config), "weights": codec.state_dict()}, weights)
        stream.write_bytes(data)
        command = [sys.executable, "-c", _READER, *map(str, (weights, stream, picture))]
        subprocess.run(command, check=True, timeout=120)
        return torch.load(picture, weights_only=True)


def _short(config: Config) -> Recipe:
    if config.short is None:
        raise ValueError("the ablations belong to the full profile: this configuration has no short recipe")
    return config.short


def _point(codec: RawCodec, exposure: Exposure, shot: Shot, level: int) -> Point:
    data = compress_raw(shot.raw, shot.calibration, codec, level, black_level=exposure.sensor.black_level)
    picture = decompress_raw(data, codec)
    with torch.no_grad():
        estimate = float(codec(shot.planes[None], torch.tensor([level])).bits)
    bpp = baselines.bits_per_photosite(len(data), shot.raw)
    return Point(shot.name, level, len(data), estimate, bpp, float(psnr(picture, shot.clean, exposure.peak)))


def _common(ours: Curve, other: Curve, low: float, high: float) -> np.ndarray:
    start, end = max(ours[0][0], other[0][0], low), min(ours[0][-1], high)
    if start >= end:
        raise ValueError(f"no common rates between {low} and {high}")
    return np.geomspace(start, end, 101)
