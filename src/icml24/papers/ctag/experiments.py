r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Streams are named by base seed, world and purpose; nothing here plots or prints.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator

from .comparison import METHODS, Comparison, compare, similarity_of, strategy_of, world
from .data import CLASSES, NAMES, SAMPLE_RATE, TEMPLATES, prompt_of
from .parameters import SynthConfig
from .search import CtagResult, interpolate, optimise
from .voice import ABLATIONS, AblatedVoice, Voice, white_noise

__all__ = [
    "FULL",
    "PAIRS",
    "QUICK",
    "TONAL",
    "Config",
    "PaperSize",
    "Path",
    "ablations",
    "compare",
    "configure",
    "paper_size",
    "path",
    "sensitivity",
    "similarity_of",
    "styles",
    "world",
]

#: Classes whose sound is a pitch; noise alone should not reach them.
TONAL = ("siren", "telephone", "bird", "bell", "laser", "drone")

#: Pairs of classes whose sounds are blended.
PAIRS = (("siren", "engine"), ("rain", "laser"), ("telephone", "heartbeat"))

#: Classes of the styles-and-durations experiment.
STYLE_CLASSES = ("siren", "rain", "bird", "heartbeat")


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    worlds : int
        Repetitions of the comparison, each with its own scorer, judge and noise.
    clips, epochs, validation, distractors : int
        Of the scorer's and the judge's training.
    population, generations : int
        Of every search but the paper-size one.
    methods : tuple of str
        Of `METHODS`.
    ablated_classes : tuple of str
        Classes of the ablation.
    styles : bool
        Whether styles and durations are tried.
    gradient_points, adam_steps, adam_classes
        Of the gradient study: points, steps of each of 8 ascents, number of classes.
    paper_generations : int
        Of the search at 48 kHz and two seconds; 0 leaves it out.
    """

    seed: int = 0
    worlds: int = 1
    clips: int = 600
    epochs: int = 8
    validation: int = 240
    distractors: int = 240
    population: int = 32
    generations: int = 20
    methods: tuple[str, ...] = ("LES", "random search")
    ablated_classes: tuple[str, ...] = ("siren", "rain", "bird")
    styles: bool = False
    gradient_points: int = 64
    adam_steps: int = 40
    adam_classes: int = 1
    paper_generations: int = 0


QUICK = Config()
FULL = Config(
    worlds=3,
    clips=960,
    epochs=10,
    population=50,
    generations=50,
    methods=METHODS,
    ablated_classes=CLASSES,
    styles=True,
    gradient_points=256,
    adam_steps=200,
    adam_classes=4,
    paper_generations=300,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def ablations(config: Config, comparison: Comparison) -> dict[str, dict[str, float]]:
    """Similarity by synthesizer and class, LES in world 0; `Voice` first, then fewer and fewer parameters."""
    w = world(config, 0)
    table = {
        "Voice": {
            name: comparison.sounds["LES", name, 0].result.similarity for name in config.ablated_classes
        }
    }
    for reduced in sorted(ABLATIONS, key=lambda label: -AblatedVoice(label).n_parameters):
        synth = AblatedVoice(reduced, w.voice.config)
        table[reduced] = {}
        for name in config.ablated_classes:
            g = generator(config.seed, "ctag", "ablation", reduced, name)
            found = optimise(
                prompt_of(name),
                synth,
                w.scorer,
                strategy_of("LES", config.population),
                iterations=config.generations,
                generator=g,
                noise=w.noise,
            )
            table[reduced][name] = found.similarity
    return table


def styles(config: Config) -> dict[tuple[str, float], np.ndarray]:
    """Best similarities of four classes by prompt style (word, template, caption) and duration in seconds."""
    w = world(config, 0)
    prompts = {
        "word": lambda name: name,
        "template": prompt_of,
        "caption": lambda name: TEMPLATES[2].format(NAMES[name][1]),
    }
    found = {}
    for seconds in (1.0, 2.0):
        synth = Voice(SynthConfig(SAMPLE_RATE, 160, seconds))
        noise = white_noise(synth.config, generator=generator(config.seed, "ctag", "noise", "styles"))
        for style, prompt in prompts.items():
            found[style, seconds] = np.array(
                [
                    optimise(
                        prompt(name),
                        synth,
                        w.scorer,
                        strategy_of("LES", config.population),
                        iterations=config.generations,
                        generator=generator(config.seed, "ctag", "styles", style, int(seconds), name),
                        noise=noise,
                    ).similarity
                    for name in STYLE_CLASSES
                ]
            )
    return found


@dataclass(frozen=True)
class Path:
    """Sounds on the straight line between two optimised parameter vectors.

    Attributes
    ----------
    names : (str, str)
    units : Tensor, shape (steps, 78)
    audio : Tensor, shape (steps, T)
    similarity : ndarray, shape (steps, 2)
        To the first and to the second class.
    """

    names: tuple[str, str]
    units: Tensor
    audio: Tensor
    similarity: np.ndarray

    @property
    def crosses(self) -> bool:
        """Whether the sound starts closer to the first class and ends closer to the second."""
        lead = self.similarity[:, 0] - self.similarity[:, 1]
        return bool(lead[0] > 0 > lead[-1])


def path(config: Config, comparison: Comparison, names: tuple[str, str], steps: int = 41) -> Path:
    """Blend the two sounds that LES found in world 0."""
    w = world(config, 0)
    ends = [comparison.sounds["LES", name, 0].result.unit for name in names]
    units = interpolate(*ends, steps)
    audio = w.voice(units, w.noise)
    return Path(names, units, audio, similarity_of(w.scorer, audio, [prompt_of(n) for n in names]).numpy())


def sensitivity(config: Config, comparison: Comparison, name: str, step: float = 0.1) -> np.ndarray:
    """Largest loss of similarity when one knob of LES's sound moves by `step` either way, shape (78,)."""
    w = world(config, 0)
    unit = comparison.sounds["LES", name, 0].result.unit
    moved = torch.cat([unit + sign * step * torch.eye(len(unit)) for sign in (1, -1)]).clamp(0, 1)
    reached = similarity_of(w.scorer, w.voice(moved, w.noise), [prompt_of(name)])[:, 0]
    here = comparison.sounds["LES", name, 0].result.similarity
    return (here - reached.view(2, -1).amin(0)).clamp(min=0).numpy()


@dataclass(frozen=True)
class PaperSize:
    """A search at the paper's size: 48 kHz, two seconds, population 50.

    Attributes
    ----------
    name : str
    result : CtagResult
    seconds : float
        Wall time of the search.
    render_share : float
        Share of it spent in the synthesizer.
    """

    name: str
    result: CtagResult
    seconds: float
    render_share: float


def paper_size(config: Config, names: Sequence[str] = ("siren", "rain")) -> list[PaperSize]:
    """Search at full audio quality; the scorer hears it resampled to 16 kHz."""
    w = world(config, 0)
    out = []
    for name in names:
        synth = _Timed(SynthConfig())
        began = time.perf_counter()
        found = optimise(
            prompt_of(name),
            synth,
            w.scorer,
            strategy_of("LES", 50),
            iterations=config.paper_generations,
            generator=generator(config.seed, "ctag", "paper size", name),
        )
        seconds = time.perf_counter() - began
        out.append(PaperSize(name, found, seconds, synth.spent / seconds))
    return out


class _Timed(Voice):
    """A voice that adds up its own wall time."""

    spent = 0.0

    def __call__(
        self, unit: Tensor, noise: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        began = time.perf_counter()
        audio = super().__call__(unit, noise, generator=generator)
        self.spent += time.perf_counter() - began
        return audio
