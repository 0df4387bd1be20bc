r"""From a prompt to a sound: the search loop, and what one can do with what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icml24.common.random import generator as named_generator

from . import _checks
from .evolution import ESState, Strategy
from .scorers import TextAudioScorer
from .voice import Voice, white_noise

__all__ = ["CtagResult", "fitness_from_similarity", "interpolate", "optimise"]


@dataclass(frozen=True)
class CtagResult:
    """What a search found.

    Attributes
    ----------
    unit : Tensor, shape (78,)
        Best unit parameters (fewer for an ablated synthesizer).
    audio : Tensor, shape (T,)
        Their sound, as it was scored.
    similarity : float
        Its cosine similarity to the prompt. If no sound scored above 0, all were equally bad
        to the strategy, and this is the first one rendered.
    history : Tensor, shape (iterations,), float64
        Best score after each generation: minus the best fitness, so never below 0.
    """

    unit: Tensor
    audio: Tensor
    similarity: float
    history: Tensor


def fitness_from_similarity(similarity: Tensor) -> Tensor:
    r"""Fitness to minimise.

    .. math:: f = -s \text{ for } 0 \le s \le 1, \qquad f = 0 \text{ otherwise}

    Parameters
    ----------
    similarity : Tensor, any shape, floating
        Cosine similarities.

    Returns
    -------
    Tensor
        In [-1, 0]. Everything on the far side counts as the worst value; so does a rounding
        above 1, as in the released code.

    Raises
    ------
    TypeError, ValueError
        Not floating; not finite.
    """
    similarity = _checks.finite("similarity", similarity)
    return torch.where((similarity >= 0) & (similarity <= 1), -similarity, torch.zeros_like(similarity))


@torch.no_grad()
def optimise(
    prompt: str,
    synth: Voice,
    scorer: TextAudioScorer,
    strategy: Strategy,
    *,
    iterations: int,
    generator: torch.Generator | None = None,
    noise: Tensor | None = None,
    callback: Callable[[int, ESState], Any] | None = None,
    mean: Tensor | None = None,
) -> CtagResult:
    """Search the synthesizer's parameters for the sound that fits a prompt best.

    Parameters
    ----------
    prompt : str
    synth : Voice
        Or anything with `config`, `n_parameters` and the same call.
    scorer : TextAudioScorer
    strategy : Strategy
        `LES`, `CMAES`, `RandomSearch`, or an object with their three methods.
    iterations : int
        Generations, at least 1; each renders `strategy.population_size` sounds.
    generator : torch.Generator, optional
        The only source of randomness; default a generator of fixed seed.
    noise : Tensor, shape (T,), optional
        The synthesizer's noise source, one for the whole search, so that the score of a
        parameter vector is a function. Default: drawn once from `generator`.
    callback : callable, optional
        Called as ``callback(generation, state)`` after each `tell`, from 0.
    mean : Tensor, shape (n_parameters,) or (P, n_parameters), optional
        Where the strategy starts; default 0.5 in every coordinate, float32. Its dtype is
        that of the search.

    Returns
    -------
    CtagResult

    Raises
    ------
    TypeError
        `prompt` is not a string.
    ValueError
        Empty prompt, no iterations, noise of the wrong length, or whatever the parts refuse.
    """
    if not isinstance(prompt, str):
        raise TypeError(f"prompt must be one string; got {type(prompt).__name__}")
    if not prompt.strip():
        raise ValueError("prompt must not be empty; write what the sound should be, such as 'sound of rain'")
    _checks.whole("iterations", iterations, 1)
    if generator is None:
        generator = named_generator(0, "ctag", "optimise")
    if mean is None:
        mean = torch.full((synth.n_parameters,), 0.5)
    state = strategy.init(mean)
    if noise is None:
        noise = white_noise(
            synth.config, generator=generator, dtype=state.mean.dtype, device=state.mean.device
        )
    text = scorer.embed_text([prompt])[0]
    found: tuple[Tensor, Tensor, float] | None = None
    history = torch.empty(iterations, dtype=torch.float64)
    for generation in range(iterations):
        units = strategy.ask(state, generator=generator)
        sounds = synth(units, noise)
        similarity = scorer.embed_audio(sounds, synth.config.sample_rate) @ text.to(sounds)
        fitness = fitness_from_similarity(similarity)
        before = state.best_fitness
        state = strategy.tell(state, units, fitness)
        if state.best_fitness < before:
            best = int(fitness.argmin())
            found = units[best].clone(), sounds[best].clone(), similarity[best].item()
        history[generation] = 0.0 - state.best_fitness  # not -0.0
        if callback is not None:
            callback(generation, state)
    if found is None:
        raise ValueError(
            "the strategy never improved on its initial state; start with strategy.init's default"
        )
    return CtagResult(*found, history)


def interpolate(u0: Tensor, u1: Tensor, steps: int) -> Tensor:
    """Points on the straight line between two parameter vectors.

    Parameters
    ----------
    u0, u1 : Tensor, shape (D,), floating
        End points, of one dtype.
    steps : int
        Number of points, end points included, at least 2.

    Returns
    -------
    Tensor, shape (steps, D)
        First and last row equal `u0` and `u1` exactly.

    Raises
    ------
    TypeError, ValueError
        Not floating, not vectors of one length and dtype, not finite, fewer than two steps.
    """
    u0, u1 = _checks.batch("u0", u0), _checks.batch("u1", u1)
    if u0.shape != u1.shape or u0.dtype != u1.dtype:
        raise ValueError(
            f"u0 and u1 must agree in shape and dtype; got {tuple(u0.shape)} {u0.dtype} "
            f"and {tuple(u1.shape)} {u1.dtype}"
        )
    _checks.whole("steps", steps, 2)
    share = torch.linspace(0, 1, steps, dtype=u0.dtype, device=u0.device)[:, None]
    return (1 - share) * u0 + share * u1
