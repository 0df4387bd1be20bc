r"""Twelve prompts, several strategies, several worlds: the searches and who listens to their results.

A *world* is one draw of everything that is random: corpus, scorer, judge, noise buffer. The
comparison repeats in several worlds, so its spread includes the scorer's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval

from .cma import CMAES
from .data import CLASSES, SAMPLE_RATE, Corpus, make_corpus, prompt_of
from .evolution import LES, RandomSearch, Strategy
from .les_weights import load_les_weights
from .parameters import PARAMETERS, SynthConfig
from .scorers import ContrastiveScorer, Judge, train_judge, train_scorer
from .search import CtagResult, optimise
from .voice import Voice, white_noise

if TYPE_CHECKING:
    from .experiments import Config

__all__ = [
    "METHODS",
    "Comparison",
    "Sound",
    "World",
    "compare",
    "search",
    "similarity_of",
    "strategy_of",
    "world",
]

#: Methods of the comparison.
METHODS = ("LES", "LES, a mean a member", "CMA-ES", "random search")


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

    def _table(self, method: str, value: Callable[[Sound], Any]) -> np.ndarray:
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
