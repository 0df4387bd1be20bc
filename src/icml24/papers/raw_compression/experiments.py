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
from .comparisons import Model, Point
from .data import BRACKET, EXPOSURES, TEST_SCENES, TRAINING_SCENES, Camera, Exposure, Shot, camera, shoot
from .files import compress_raw, decompress_raw
from .metrics import psnr
from .rate_theory import mean_noise_entropy
from .training import LAMBDAS, Recipe, train

__all__ = [
    "COARSE",
    "FINE",
    "FULL",
    "QUICK",
    "Config",
    "alpha_ablation",
    "cameras",
    "configure",
    "decode_elsewhere",
    "evaluate",
    "evaluate_all",
    "hyper_bits",
    "j2k_settings",
    "lossless",
    "pattern_pair",
    "shots",
    "train_all",
    "training_shots",
]

#: Target PSNRs of the planned sweep of JPEG 2000, and of the finer one that the chapter judges by:
#: the useful settings lie between two steps of the planned one, which would flatter the codec.
COARSE = tuple(float(level) for level in range(20, 62, 2))
FINE = tuple(sorted({*np.arange(18, 24, 0.5).tolist(), *map(float, range(24, 36)), *COARSE}))
#: Without noise in the way the curve is smooth: steps of one decibel do.
DENOISED = tuple(map(float, [*range(18, 36), *range(36, 62, 2)]))


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    recipe : Recipe
        Of the codecs of the night.
    models : tuple of (exposure, target, number of seeds)
        What is trained.
    most_bpp : mapping of exposure to float
        Where JPEG 2000's sweep ends: beyond every rate of the codec there.
    hours : Recipe
        Of the codecs of dusk and day.
    short : Recipe, optional
        Of the two ablations, which the quick profile leaves out.
    """

    seed: int = 0
    recipe: Recipe = field(default_factory=lambda: Recipe(latent_channels=48, steps=700))
    models: tuple[tuple[str, str, int], ...] = (("night", "recorrupted", 1),)
    most_bpp: Mapping[str, float] = field(default_factory=lambda: {"night": 0.4})
    hours: Recipe | None = None
    short: Recipe | None = None


QUICK = Config()
FULL = Config(
    recipe=Recipe(),
    models=(
        ("night", "recorrupted", 2),
        ("night", "noisy", 2),
        ("night", "clean", 2),
        ("dusk", "recorrupted", 1),
        ("day", "recorrupted", 1),
    ),
    most_bpp={"night": 0.7, "dusk": 1.5, "day": 3.0},
    hours=Recipe(steps=1200),
    short=Recipe(steps=500),
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


def train_all(config: Config, found: Mapping[str, Camera]) -> dict[Model, RawCodec]:
    """Every codec of the comparison. Seeds differ in weights and batches; the raw files are the same."""
    codecs = {}
    for name, target, seeds in config.models:
        scenes = training_shots(config, found[name])
        for seed in range(seeds):
            recipe = config.hours if config.hours and name != "night" else config.recipe
            codecs[name, target, seed] = train(EXPOSURES[name], scenes, target, recipe, config.seed + seed)
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
    levels = DENOISED if denoise else FINE
    return {
        shot.name: baselines.lossy_settings(shot, exposure.peak, levels, denoise=denoise, most_bpp=most)
        for shot in scenes
    }


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
        estimate = float(codec(shot.planes[None], torch.tensor([level])).bits) - 8 * HEADER_BYTES
    bpp = baselines.bits_per_photosite(len(data), shot.raw)
    return Point(shot.name, level, len(data), estimate, bpp, float(psnr(picture, shot.clean, exposure.peak)))
