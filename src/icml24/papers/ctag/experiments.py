r"""What the chapter runs: two instances of one configuration, and functions from it to results.

A *world* is one draw of everything that is random: corpus, scorer, judge, noise buffer. The
comparison repeats in several worlds, so its spread includes the scorer's. Streams are named
by base seed, world and purpose; nothing here plots or prints.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval

from .cma import CMAES
from .data import CLASSES, NAMES, SAMPLE_RATE, TEMPLATES, Corpus, make_corpus, prompt_of
from .evolution import LES, RandomSearch, Strategy
from .les_weights import load_les_weights
from .parameters import PARAMETERS, SynthConfig
from .scorers import ContrastiveScorer, Judge, train_judge, train_scorer
from .search import CtagResult, interpolate, optimise
from .voice import ABLATIONS, AblatedVoice, Voice, white_noise

__all__ = [
    "FULL",
    "METHODS",
    "QUICK",
    "TONAL",
    "Comparison",
    "Config",
    "Sound",
    "World",
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

#: Methods of the comparison.
METHODS = ("LES", "LES, a mean a member", "CMA-ES", "random search")

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


@dataclass(frozen=True)
class World:
    """One draw of everything random around a search.

    Attributes
    ----------
    index : int
    voice : Voice
        16 kHz, 160 Hz control rate, one second.
    scorer, second : ContrastiveScorer
        The one that is optimised, and one of another draw that only looks on.
    judge : Judge
    validation : Corpus
        Clips that none of the three was trained on.
    noise : Tensor, shape (16000,)
    """

    index: int
    voice: Voice
    scorer: ContrastiveScorer
    second: ContrastiveScorer
    judge: Judge
    validation: Corpus
    noise: Tensor


@lru_cache(maxsize=8)
def world(config: Config, index: int = 0) -> World:
    """Train the scorer and the judge of world `index`; kept for the process."""
    judged = make_corpus(config.clips, config.seed, "judge", index)
    voice = Voice(SynthConfig(SAMPLE_RATE, 160, 1.0))
    return World(
        index=index,
        voice=voice,
        scorer=_scorer(config, index),
        second=_scorer(config, index + 1),
        judge=train_judge(judged, epochs=config.epochs, seed=config.seed, stream=index),
        validation=make_corpus(config.validation, config.seed, "validation", index),
        noise=white_noise(voice.config, generator=generator(config.seed, "ctag", "noise", index)),
    )


@lru_cache(maxsize=8)
def _scorer(config: Config, index: int) -> ContrastiveScorer:
    voice = Voice(SynthConfig(SAMPLE_RATE, 160, 1.0))
    g = generator(config.seed, "ctag", "distractors", index)
    distractors = voice(torch.rand(config.distractors, len(PARAMETERS), generator=g), generator=g)
    corpus = make_corpus(config.clips, config.seed, "train", index)
    return train_scorer(corpus, distractors, epochs=config.epochs, seed=config.seed, stream=index)


@torch.no_grad()
def similarity_of(
    scorer: ContrastiveScorer, audio: Tensor, prompts: Sequence[str], rate: int = SAMPLE_RATE
) -> Tensor:
    """Cosine of every sound [B, T] with every prompt: [B, n]."""
    return scorer.embed_audio(audio, rate) @ scorer.embed_text(list(prompts)).T.to(audio)


@dataclass(frozen=True)
class Sound:
    """A sound that a search found, and what others think of it.

    Attributes
    ----------
    result : CtagResult
    second : float
        Similarity under the scorer that was not optimised.
    judged : str
        The judge's class.
    start : float
        Similarity of one random draw: the synthesizer before any search.
    start_judged : str
        The judge's class of that draw.
    """

    result: CtagResult
    second: float
    judged: str
    start: float
    start_judged: str


@dataclass(frozen=True)
class Comparison:
    """Every search of the comparison.

    Attributes
    ----------
    config : Config
    sounds : mapping of (method, class, world) to Sound
    clips : mapping of (class, world) to (float, float)
        Mean similarity of held-out corpus clips of the class, under the scorer and the second one.
    """

    config: Config
    sounds: Mapping[tuple[str, str, int], Sound]
    clips: Mapping[tuple[str, int], tuple[float, float]]

    def similarity(self, method: str) -> np.ndarray:
        """Best similarity, shape (worlds, 12)."""
        return self._table(method, lambda sound: sound.result.similarity)

    def gain(self, method: str) -> np.ndarray:
        """Best similarity minus that of one random draw, shape (worlds, 12)."""
        return self._table(method, lambda sound: sound.result.similarity - sound.start)

    def recognised(self, method: str) -> np.ndarray:
        """Number of the twelve sounds that the judge names right, shape (worlds,); "no search" is a method."""
        if method == "no search":
            answers = self._table(self.config.methods[0], lambda sound: sound.start_judged)
        else:
            answers = self._table(method, lambda sound: sound.judged)
        return (answers == np.array(CLASSES)).sum(axis=1)

    def history(self, method: str) -> np.ndarray:
        """Best score so far, shape (worlds, 12, generations)."""
        return np.array(
            [
                [self.sounds[method, name, k].result.history.numpy() for name in CLASSES]
                for k in range(self.config.worlds)
            ]
        )

    def lead(self, method: str, other: str) -> tuple[float, float, float]:
        """Mean of paired differences in similarity, with a 95 % bootstrap interval over the twelve prompts."""
        gaps = (self.similarity(method) - self.similarity(other)).mean(0)
        draws = numpy_generator(self.config.seed, "ctag", "bootstrap")
        return (float(gaps.mean()), *bootstrap_interval(gaps, generator=draws))

    def advantage(self, method: str = "LES") -> tuple[np.ndarray, np.ndarray]:
        """Similarity minus that of held-out clips, under the scorer and the second: (worlds, 12) each."""
        worlds = range(self.config.worlds)
        own = self.similarity(method) - [[self.clips[name, k][0] for name in CLASSES] for k in worlds]
        second = self._table(method, lambda sound: sound.second)
        return own, second - [[self.clips[name, k][1] for name in CLASSES] for k in worlds]

    def _table(self, method, value) -> np.ndarray:  # type: ignore[no-untyped-def]
        return np.array(
            [[value(self.sounds[method, name, k]) for name in CLASSES] for k in range(self.config.worlds)]
        )


def strategy_of(method: str, population: int) -> Strategy:
    """A fresh strategy by its name in `METHODS`."""
    if method == "CMA-ES":
        return CMAES(population_size=population)
    if method == "random search":
        return RandomSearch(population_size=population)
    if method in METHODS:
        return LES(load_les_weights(), population_size=population)
    raise ValueError(f"unknown method {method!r}; expected one of {list(METHODS)}")


def compare(config: Config) -> Comparison:
    """Search for the twelve prompts with every method in every world, at equal numbers of renders."""
    sounds, clips = {}, {}
    for k in range(config.worlds):
        w = world(config, k)
        prompts = [prompt_of(name) for name in CLASSES]
        own, second = (similarity_of(s, w.validation.audio, prompts) for s in (w.scorer, w.second))
        for label, name in enumerate(CLASSES):
            of_class = w.validation.labels == label
            clips[name, k] = own[of_class, label].mean().item(), second[of_class, label].mean().item()
        for method in config.methods:
            if method == "random search":
                results = _random_searches(config, w)
            else:
                results = {name: search(config, w, name, method) for name in CLASSES}
            for name, result in results.items():
                sounds[method, name, k] = _opinions(config, w, name, result)
    return Comparison(config, sounds, clips)


def search(config: Config, w: World, name: str, method: str) -> CtagResult:
    """One search for a class in a world."""
    g = generator(config.seed, "ctag", "search", method, name, w.index)
    return optimise(
        prompt_of(name),
        w.voice,
        w.scorer,
        strategy_of(method, config.population),
        iterations=config.generations,
        generator=g,
        noise=w.noise,
        mean=torch.rand(config.population, len(PARAMETERS), generator=g) if "member" in method else None,
    )


@torch.no_grad()
def _random_searches(config: Config, w: World) -> dict[str, CtagResult]:
    # random search never looks at its scores, so one set of draws serves all twelve prompts
    strategy = RandomSearch(population_size=config.population)
    state = strategy.init(torch.full((len(PARAMETERS),), 0.5))
    g = generator(config.seed, "ctag", "search", "random search", w.index)
    units = torch.cat([strategy.ask(state, generator=g) for _ in range(config.generations)])
    prompts = [prompt_of(name) for name in CLASSES]
    parts = units.split(config.population)
    scores = torch.cat([similarity_of(w.scorer, w.voice(part, w.noise), prompts) for part in parts])
    best = scores.argmax(0)
    sounds = w.voice(units[best], w.noise)
    running = scores.clamp(min=0).cummax(0).values[config.population - 1 :: config.population].double()
    return {
        name: CtagResult(units[best[i]], sounds[i], scores[best[i], i].item(), running[:, i])
        for i, name in enumerate(CLASSES)
    }


def _opinions(config: Config, w: World, name: str, result: CtagResult) -> Sound:
    prompt = prompt_of(name)
    draw = torch.rand(1, len(PARAMETERS), generator=generator(config.seed, "ctag", "start", name, w.index))
    start = w.voice(draw, w.noise)
    answers = w.judge.classify(torch.cat([result.audio[None], start]), SAMPLE_RATE).argmax(-1)
    return Sound(
        result=result,
        second=similarity_of(w.second, result.audio[None], [prompt]).item(),
        judged=CLASSES[answers[0]],
        start=similarity_of(w.scorer, start, [prompt]).item(),
        start_judged=CLASSES[answers[1]],
    )


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
