r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Every stream is named by base seed, seed index and purpose. Models of one seed share their initial
weights and the order of scenes, whatever their objective. Nothing here plots or prints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval

from . import cost
from .alignment import alignment_weights, token_patch_similarity
from .data import SceneConfig, Scenes, render_scenes
from .encoders import DualEncoder, EncoderConfig
from .evaluation import embed, evaluate
from .losses import sparc_loss
from .symbolic import SymbolicConfig, SymbolicRun, train_symbols
from .training import OBJECTIVES, fit

__all__ = [
    "FULL",
    "QUICK",
    "Config",
    "CostCurve",
    "Data",
    "Run",
    "configure",
    "costs",
    "difference",
    "main_runs",
    "metric",
    "padding_is_silent",
    "scenes",
    "side_runs",
    "symbolic",
    "train",
    "zeroed_patches",
]

#: Rate, batch and scale of every run on scenes.
LR, BATCH = 2e-3, 64


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    train_scenes, test_scenes, single_scenes : int
        Sizes of the three sets.
    seeds : int
        Repetitions of the main comparison.
    context_steps, transformer_steps : int
        Optimiser steps of the two image encoders; 0 leaves that encoder out.
    context_objectives, transformer_objectives : tuple of str
        Trained with every seed.
    extra_objectives : tuple of str
        Trained with the first seed alone, context encoder.
    long_steps : int
        Length of the longer run of CLIP and SPARC; 0 for none.
    side : bool
        Whether to run the dense pooling, sentence captions and absolute positions.
    symbolic_seeds : int
        Repetitions in the symbolic world.
    local_batches, square_batches : tuple of int
        Batch sizes of the cost curves of linear and of quadratic losses.
    """

    seed: int = 0
    train_scenes: int = 3000
    test_scenes: int = 400
    single_scenes: int = 420
    seeds: int = 1
    context_steps: int = 700
    transformer_steps: int = 0
    context_objectives: tuple[str, ...] = ("clip", "sparc")
    transformer_objectives: tuple[str, ...] = ("clip", "sparc")
    extra_objectives: tuple[str, ...] = ()
    long_steps: int = 0
    side: bool = False
    symbolic_seeds: int = 3
    local_batches: tuple[int, ...] = (64, 128, 256)
    square_batches: tuple[int, ...] = (32, 64, 128)


QUICK = Config()
FULL = Config(
    train_scenes=8000,
    seeds=3,
    transformer_steps=650,
    context_objectives=("clip", "sparc", "softmax"),
    extra_objectives=("dense", "local", "filip", "pacl", "gloria"),
    long_steps=3000,
    side=True,
    local_batches=(64, 128, 256, 512),
    square_batches=(64, 128, 256),
)


def configure(profile: str, **overrides: object) -> Config:
    """Configuration of a profile with fields replaced (None leaves a field alone)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


@dataclass(frozen=True)
class Data:
    """Training scenes, test scenes, and test scenes of one class each."""

    train: Scenes
    test: Scenes
    singles: Scenes


def scenes(config: Config, *, style: str = "labels") -> Data:
    """The three sets of a configuration; the sets are the same for every seed index."""
    several = SceneConfig(caption_style=style)
    single = replace(several, min_classes=1, max_classes=1)
    return Data(
        render_scenes(
            config.train_scenes, several, generator=generator(config.seed, "sparc", "train", style)
        ),
        render_scenes(
            config.test_scenes,
            several,
            split="test",
            generator=generator(config.seed, "sparc", "test", style),
        ),
        render_scenes(
            config.single_scenes,
            single,
            split="test",
            generator=generator(config.seed, "sparc", "single", style),
        ),
    )


@dataclass(frozen=True)
class Run:
    """One trained model with its history and its measures."""

    model: DualEncoder
    history: list[dict[str, float]]
    measures: dict[str, float]


def train(data: Data, objective: str, encoder: EncoderConfig, steps: int, seed: int) -> Run:
    """Train and evaluate one model."""
    model = DualEncoder(encoder, generator=generator(seed, "sparc", "weights"))
    history = fit(
        *(model, data.train, objective),
        steps=steps,
        batch_size=BATCH,
        lr=LR,
        generator=generator(seed, "sparc", "order"),
    )
    return Run(model, history, evaluate(model, data.test, data.singles, objective=objective))


def main_runs(config: Config, data: Data) -> dict[tuple[str, str], list[Run]]:
    """Runs by (encoder, objective), one a seed; extra objectives have the first seed alone."""
    plan = [
        ("context", config.context_steps, config.context_objectives, config.seeds),
        ("context", config.context_steps, config.extra_objectives, 1),
        ("transformer", config.transformer_steps, config.transformer_objectives, config.seeds),
    ]
    return {
        (encoder, objective): [
            train(data, objective, EncoderConfig(encoder=encoder), steps, seed)
            for seed in range(config.seed, config.seed + seeds)
        ]
        for encoder, steps, objectives, seeds in plan
        for objective in objectives
        if steps
    }


def side_runs(config: Config, data: Data) -> dict[str, Run]:
    """One-seed variations: longer training, dense pooling, sentences, absolute positions."""
    plain, steps, seed = EncoderConfig(), config.context_steps, config.seed
    runs = {}
    if config.long_steps:
        for objective in ("clip", "sparc"):
            runs[f"{objective}, {config.long_steps} steps"] = train(
                data, objective, plain, config.long_steps, seed
            )
    if config.side:
        runs["sparc, dense pooling"] = train(data, "sparc", replace(plain, pooling="dense"), steps, seed)
        placed = replace(plain, encoder="transformer", image_positions=data.train.config.grid**2)
        runs["sparc, absolute positions"] = train(data, "sparc", placed, config.transformer_steps, seed)
        spoken = scenes(config, style="sentence")
        reader = replace(plain, text="transformer")
        for objective in ("clip", "sparc"):
            runs[f"{objective}, sentences"] = train(spoken, objective, reader, steps, seed)
    return runs


def metric(runs: list[Run], name: str) -> np.ndarray:
    """One measure, one value a run."""
    return np.array([run.measures[name] for run in runs])


def difference(one: list[Run], other: list[Run], name: str) -> tuple[float, float, float]:
    """Mean paired difference of a measure and its 95 % bootstrap interval over seeds."""
    values = metric(one, name) - metric(other, name)
    low, high = bootstrap_interval(values, generator=numpy_generator(0, "sparc", "difference", name))
    return float(values.mean()), low, high


def symbolic(config: Config) -> dict[str, list[SymbolicRun]]:
    """Every objective in the symbolic world: the first four and "local" with all seeds, others with one."""
    often = ("clip", "sparc", "softmax", "local")
    return {
        objective: [
            train_symbols(objective, SymbolicConfig(), seed=seed)
            for seed in range(config.seed, config.seed + (config.symbolic_seeds if objective in often else 1))
        ]
        for objective in OBJECTIVES
    }


def zeroed_patches(run: Run, data: Data, *, mode: str = "sparse") -> Tensor:
    """Number of patches of weight zero, for every real word of the test captions."""
    seen = embed(run.model, data.test)
    weights = alignment_weights(token_patch_similarity(seen.tokens, seen.patches), mode=mode)
    return (weights == 0).sum(-1)[data.test.mask]


def padding_is_silent() -> bool:
    """Whether loss and gradients are the same bits with zeros and with 10,000 at padded places."""
    g = generator(0, "sparc", "padding")
    patches, tokens = (torch.randn(32, n, 64, generator=g) for n in (25, 13))
    mask = torch.arange(13)[None] < torch.randint(1, 14, (32, 1), generator=g)
    found = []
    for garbage in (0.0, 1e4):
        v = patches.clone().requires_grad_(True)
        t = tokens.masked_fill(~mask[..., None], garbage).requires_grad_(True)
        loss = sparc_loss(v[:, 0], t[:, 0], v, t, mask, 14.3)["loss"]
        loss.backward()
        found.append((loss.detach(), v.grad, t.grad))
    return all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@dataclass(frozen=True)
class CostCurve:
    """Cost of one loss by batch size: processor seconds and megabytes kept for the backward pass."""

    sizes: tuple[int, ...]
    seconds: np.ndarray
    megabytes: np.ndarray

    @property
    def time_exponent(self) -> float:
        """Slope of log time against log batch."""
        return cost.exponent(self.sizes, self.seconds)

    @property
    def memory_exponent(self) -> float:
        """Slope of log memory against log batch."""
        return cost.exponent(self.sizes, self.megabytes)


def costs(config: Config) -> dict[str, CostCurve]:
    """Cost curves of all losses."""
    curves = {}
    for name in cost.LOSSES:
        sizes = config.local_batches if name in ("clip", "sparc (local)") else config.square_batches
        seconds, kept = cost.measure(name, sizes)
        curves[name] = CostCurve(sizes, seconds, kept / 1e6)
    return curves
