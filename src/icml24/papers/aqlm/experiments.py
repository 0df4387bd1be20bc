r"""What the chapter runs on whole models: two instances of one configuration, and functions of it.

Every random stream is named by the seed of its run and by its purpose, so a result depends on
nothing that ran before it; runs are kept, since several figures share them. Nothing here plots
or prints. Studies of a single layer are in `layer_studies`, the pretrained model in `pretrained`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from icml24.common.gpt import RotaryGPT
from icml24.common.profiles import choose
from icml24.common.random import generator

from .blocks import BlockCall, ModelReport, first_inputs, observe, quantize_blocks, quantizer_of
from .data import CONTEXT, draw_windows, load_model, split
from .evaluation import distill, perplexity
from .layers import AQLMConfig
from .linear import QuantizedLinear

__all__ = [
    "ARMS",
    "FULL",
    "QUICK",
    "Config",
    "Run",
    "ablation",
    "calibration_sizes",
    "code_usage",
    "configure",
    "distilled",
    "entropies",
    "envelope",
    "original_perplexity",
    "principal_plane",
    "quantised",
    "sweep",
]

#: What block tuning trains, by the arms of the ablation; None leaves tuning out.
ARMS = {
    "none": None,
    "norms and biases": lambda name: not _is_code(name),
    "codebooks and scales": lambda name: _is_code(name),
    "everything": lambda name: True,
}

BATCH = 8  # sequences a step of tuning
#: Codebooks and bits of a code.
Format = tuple[int, int]


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed; quantiser `i` uses ``seed + i``.
    models : tuple of str
        Keys of `data.MODELS`; claims rest on the last.
    calibration, test_windows : int
        Sequences of 128 characters to calibrate on and to measure perplexity on.
    main : (int, int)
        Codebooks and bits of a code for which everything is measured.
    formats : tuple of (int, int)
        Formats of the sweep, with block tuning.
    seeds : int
        Quantisers of the main format.
    kmeans_iter, beam_size, rounds, adam_steps : int
        Effort a layer.
    tuning_steps, distill_steps : int
        Steps of eight sequences, a block and a model.
    tuning_lr : float
    arms : tuple of str
        Keys of `ARMS`.
    calibration_sizes : tuple of int
        Sequences, for the study of calibration; empty leaves it out.
    study_rounds : int
        Rounds of the convergence study; the random start gets three times as many.
    study_formats : tuple of (int, int)
        Formats of the rate-distortion study of one layer.
    shapes : tuple of (int, int)
        Outputs and inputs of the layers that are timed.
    pretrained_blocks : int
        Last blocks of SmolLM2 to quantise; 0 leaves it out.
    """

    seed: int = 0
    models: tuple[str, ...] = ("large",)
    calibration: int = 96
    test_windows: int = 64
    main: Format = (2, 6)
    formats: tuple[Format, ...] = ((2, 6),)
    seeds: int = 1
    kmeans_iter: int = 25
    beam_size: int = 1
    rounds: int = 3
    adam_steps: int = 50
    tuning_steps: int = 60
    tuning_lr: float = 1e-3
    distill_steps: int = 20
    arms: tuple[str, ...] = ("none", "everything")
    calibration_sizes: tuple[int, ...] = ()
    study_rounds: int = 3
    study_formats: tuple[Format, ...] = ((2, 6), (3, 6))
    shapes: tuple[tuple[int, int], ...] = ((1024, 1024), (4096, 1024))
    pretrained_blocks: int = 0


QUICK = Config()
FULL = Config(
    models=("small", "large"),
    calibration=128,
    test_windows=224,
    formats=((2, 5), (2, 6), (3, 6), (4, 6)),
    seeds=3,
    kmeans_iter=40,
    beam_size=4,
    rounds=6,
    tuning_steps=160,
    distill_steps=80,
    arms=tuple(ARMS),
    calibration_sizes=(8, 32, 128),
    study_rounds=8,
    study_formats=((1, 6), (2, 5), (2, 6), (3, 6), (4, 6)),
    shapes=((4096, 1024), (11008, 4096), (13824, 5120), (28672, 8192)),
    pretrained_blocks=3,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


@dataclass(frozen=True)
class Run:
    """One quantised model.

    Attributes
    ----------
    name, method, stage : str
        Key of `data.MODELS`; "RTN", "GPTQ" or "AQLM"; what was tuned.
    form : (int, int)
        Codebooks and bits of a code; for the uniform methods 1 and the bits of the grid.
    perplexity, original : float
        On the test windows, a character: of this model, and of the one it was made from.
    report : ModelReport
    model : nn.Module
    """

    name: str
    method: str
    stage: str
    form: Format
    perplexity: float
    original: float
    report: ModelReport = field(repr=False)
    model: nn.Module = field(repr=False)

    @property
    def bits(self) -> float:
        """Mean bits of a quantised weight, all storage included."""
        return self.report.bits_per_parameter

    @property
    def excess(self) -> float:
        """Perplexity above the original's on the same windows."""
        return self.perplexity - self.original


def layer_config(config: Config, form: Format) -> AQLMConfig:
    """Format and effort of a layer at the chapter's scale: groups of eight, learning rate 1e-3."""
    return AQLMConfig(
        num_codebooks=form[0],
        nbits_per_codebook=form[1],
        kmeans_max_iter=config.kmeans_iter,
        beam_size=config.beam_size,
        adam_steps=config.adam_steps,
        lr=1e-3,
        max_rounds=config.rounds,
    )


def held_out(config: Config) -> Tensor:
    """The first test windows, end to end."""
    return split("test")[: config.test_windows * CONTEXT]


def calibration_tokens(config: Config, count: int | None = None) -> Tensor:
    """Windows of the training part; fewer are the first of more."""
    g = generator(config.seed, "aqlm", "calibration")
    most = max((config.calibration, *config.calibration_sizes))
    return draw_windows(most, generator=g)[: config.calibration if count is None else count]


@cache
def original_perplexity(config: Config, name: str) -> float:
    """Perplexity of a stored model on the test windows."""
    return perplexity(load_model(name), held_out(config), context=CONTEXT)


def quantised(
    config: Config,
    name: str,
    method: str,
    form: Format,
    *,
    arm: str = "none",
    seed: int = 0,
    calibration: int | None = None,
) -> Run:
    """Quantise a stored model and measure it.

    Parameters
    ----------
    config : Config
    name : str
        Key of `data.MODELS`.
    method : {"AQLM", "GPTQ", "RTN"}
    form : (int, int)
        Codebooks and bits of a code; for the uniform methods 1 and the bits of the grid.
    arm : str
        Key of `ARMS`.
    seed : int
        Added to the base seed, for the quantiser alone.
    calibration : int, optional
        Sequences; the configuration's by default.
    """
    # positions alone: a cache tells an argument left out from the same one given by name
    return _quantised(config, name, method, form, arm, seed, calibration)


@cache
def _quantised(
    config: Config, name: str, method: str, form: Format, arm: str, seed: int, calibration: int | None
) -> Run:
    model = load_model(name)
    g = generator(config.seed + seed, "aqlm", "quantiser", name, *form)
    *entering, first = _entrance(config, name, calibration)
    chosen = ARMS[arm]
    report = ModelReport()
    quantize_blocks(
        *(
            model.blocks,
            *entering,
            quantizer_of(method.lower(), layer_config(config, form), g),
            report,
        ),
        steps=0 if chosen is None else config.tuning_steps,
        lr=config.tuning_lr,
        batch_size=BATCH,
        chosen=chosen or ARMS["everything"],
        generator=g,
        first=first,
    )
    return _measured(config, name, method, arm, form, report, model)


@cache
def _entrance(config: Config, name: str, calibration: int | None) -> tuple[Any, ...]:
    """What the first block is called with, and what is observed of it: the same whatever the method."""
    model = load_model(name)
    hidden, args, kwargs = first_inputs(model, calibration_tokens(config, calibration))
    return hidden, args, kwargs, observe(BlockCall(model.blocks[0], args, kwargs), hidden)


def distilled(config: Config, name: str, form: Format, *, seed: int = 0) -> Run:
    """End-to-end distillation of the block-tuned model, on the calibration sequences."""
    return _distilled(config, name, form, seed)


@cache
def _distilled(config: Config, name: str, form: Format, seed: int) -> Run:
    run = quantised(config, name, "AQLM", form, arm="everything", seed=seed)
    student = copy.deepcopy(run.model)
    distill(
        student,
        load_model(name),
        calibration_tokens(config),
        steps=config.distill_steps,
        lr=1e-3,
        batch_size=BATCH,
        generator=generator(config.seed + seed, "aqlm", "distill", name, *form),
    )
    return _measured(config, name, "AQLM", "end to end", form, run.report, student)


def sweep(config: Config) -> list[Run]:
    """Both baselines at 2, 3 and 4 bits and the additive formats, for each model, first seed."""
    runs = []
    for name in config.models:
        runs += [quantised(config, name, m, (1, b)) for m in ("RTN", "GPTQ") for b in (2, 3, 4)]
        for form in config.formats:
            runs.append(quantised(config, name, "AQLM", form, arm="everything"))
            if name == config.models[-1]:
                runs.append(distilled(config, name, form))
    return runs


def ablation(config: Config) -> dict[str, list[Run]]:
    """The main format with different parts tuned, one run a seed; distillation last."""
    name = config.models[-1]
    out = {
        arm: [quantised(config, name, "AQLM", config.main, arm=arm, seed=s) for s in range(config.seeds)]
        for arm in config.arms
    }
    out["end to end"] = [distilled(config, name, config.main, seed=s) for s in range(config.seeds)]
    return out


def calibration_sizes(config: Config) -> dict[int, list[float]]:
    """Perplexity of the main format, block-tuned, by calibration sequences, one value a seed."""
    name = config.models[-1]
    return {
        count: [
            quantised(
                config,
                name,
                "AQLM",
                config.main,
                arm="everything",
                seed=s,
                calibration=None if count == config.calibration else count,
            ).perplexity
            for s in range(config.seeds)
        ]
        for count in config.calibration_sizes
    }


def code_usage(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """How often each word of each codebook is used, sorted, by layer: shares that sum to one."""
    out = {}
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            words = module.codebooks.shape[1]
            counts = [torch.bincount(c.long().flatten(), minlength=words) for c in module.codes.unbind(2)]
            out[name] = [np.sort((c / c.sum().double()).numpy())[::-1] for c in counts]
    return out


def entropies(usage: dict[str, list[np.ndarray]]) -> dict[str, float]:
    """Mean entropy of a layer's codes over the bits of a code, by layer."""
    out = {}
    for name, shares in usage.items():
        each = [-(p[p > 0] * np.log2(p[p > 0])).sum() / np.log2(len(p)) for p in shares]
        out[name] = float(np.mean(each))
    return out


def principal_plane(book: Tensor) -> np.ndarray:
    """The words of a codebook (K, 1, g) in the plane of their two largest spreads, shape (K, 2)."""
    words = book.detach().flatten(1)
    words = words - words.mean(0)
    return (words @ torch.linalg.svd(words, full_matrices=False).Vh[:2].T).numpy()


def envelope(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points with no other both smaller and better, by size."""
    order = sorted(range(len(points)), key=lambda k: points[k])
    kept: list[int] = []
    for k in order:
        if not kept or points[k][1] < points[kept[-1]][1]:
            kept.append(k)
    return kept


def _is_code(name: str) -> bool:
    return name.endswith((".codebooks", ".scales"))


def _measured(
    config: Config, name: str, method: str, stage: str, form: Format, report: ModelReport, model: RotaryGPT
) -> Run:
    value = perplexity(model, held_out(config), context=CONTEXT)
    return Run(name, method, stage, form, value, original_perplexity(config, name), report, model)
