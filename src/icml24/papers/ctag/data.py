r"""Twelve kinds of sound by recipe, and the captions that name them.

Source: made here, from the recipes in `RECIPES`; no recording is involved, no licence
applies. A clip is one second at 16 kHz in float32, of peak at most about 1; a corpus draws
classes in turn, so that every class is equally frequent. The corpus stands in for the web-scale
recordings that the paper's scorer was trained on; what that costs is said in the chapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import numpy_generator

__all__ = [
    "CLASSES",
    "HELD_OUT_TEMPLATE",
    "NAMES",
    "SAMPLE_RATE",
    "TEMPLATES",
    "Corpus",
    "captions_of",
    "make_corpus",
    "prompt_of",
    "render_clip",
]

#: Samples a second of every clip.
SAMPLE_RATE = 16000

#: Three names a class; the last of each is kept out of training.
NAMES: Mapping[str, tuple[str, str, str]] = {
    "siren": ("siren", "ambulance wailing", "wailing siren"),
    "telephone": ("telephone", "phone ringing", "ringing telephone"),
    "wind": ("wind", "breeze blowing", "blowing wind"),
    "rain": ("rain", "raindrops falling", "falling rain"),
    "heartbeat": ("heartbeat", "heart beating", "beating heart"),
    "bird": ("bird", "sparrow chirping", "chirping bird"),
    "engine": ("engine", "motor running", "running engine"),
    "bell": ("bell", "chime tolling", "tolling bell"),
    "laser": ("laser", "raygun zapping", "zapping laser"),
    "footsteps": ("footsteps", "boots walking", "walking boots"),
    "clock": ("clock", "watch ticking", "ticking clock"),
    "drone": ("drone", "synthesizer humming", "humming drone"),
}

#: Class names, in the order of labels.
CLASSES: tuple[str, ...] = tuple(NAMES)

#: Caption templates used in training.
TEMPLATES: tuple[str, ...] = ("{}", "sound of {}", "a recording of {}", "{} noise")

#: A template kept out of training.
HELD_OUT_TEMPLATE = "the sound of a {}"


@dataclass(frozen=True)
class Corpus:
    """Clips with labels and captions.

    Attributes
    ----------
    audio : Tensor, shape (n, 16000), float32
    labels : Tensor, shape (n,), int64
        Indices into `CLASSES`.
    captions : tuple of str, length n
    """

    audio: Tensor
    labels: Tensor
    captions: tuple[str, ...]


def prompt_of(name: str) -> str:
    """The evaluation prompt of a class."""
    if name not in NAMES:
        raise ValueError(f"unknown class {name!r}; expected one of {list(CLASSES)}")
    return f"sound of {name}"


def captions_of(name: str) -> tuple[str, ...]:
    """All training captions of a class: two names in four templates."""
    return tuple(template.format(word) for word in NAMES[name][:2] for template in TEMPLATES)


def make_corpus(n: int, seed: int, *stream: int | str) -> Corpus:
    """Draw `n` clips, class by class in turn.

    Parameters
    ----------
    n : int
        At least 1.
    seed, *stream
        Base seed and what the corpus is for; clip `i` does not depend on `n`.
    """
    if n < 1:
        raise ValueError(f"a corpus needs at least one clip; got {n}")
    audio, captions = np.empty((n, SAMPLE_RATE), dtype=np.float32), []
    for i in range(n):
        rng = numpy_generator(seed, "ctag", "clip", *stream, i)
        name = CLASSES[i % len(CLASSES)]
        audio[i] = render_clip(name, rng)
        captions.append(str(rng.choice(captions_of(name))))
    labels = torch.arange(n) % len(CLASSES)
    return Corpus(torch.from_numpy(audio), labels, tuple(captions))


def render_clip(name: str, rng: np.random.Generator) -> np.ndarray:
    """One second of a class: its recipe, peak-normalised, with faint noise, half of them rolled.

    Parameters
    ----------
    name : str
        One of `CLASSES`.
    rng : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    ndarray, shape (16000,), float64
    """
    if name not in RECIPES:
        raise ValueError(f"unknown class {name!r}; expected one of {list(CLASSES)}")
    t = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    clip = RECIPES[name](rng, t)
    clip = clip / np.abs(clip).max() + rng.uniform(0, 0.02) * rng.uniform(-1, 1, len(t))
    if rng.random() < 0.5:
        clip = np.roll(clip, rng.integers(SAMPLE_RATE // 4))
    return clip


def _tone(hertz: np.ndarray) -> np.ndarray:
    return np.sin(2 * np.pi * np.cumsum(hertz) / SAMPLE_RATE)


def _saw(hertz: float, t: np.ndarray) -> np.ndarray:
    return 2 * ((hertz * t) % 1.0) - 1


def _filtered(x: np.ndarray, response: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    spectrum = np.fft.rfft(x)
    return np.fft.irfft(spectrum * response(np.fft.rfftfreq(len(x), 1 / SAMPLE_RATE)), len(x))


def _low_pass(x: np.ndarray, cutoff: float) -> np.ndarray:
    return _filtered(x, lambda f: 1 / (1 + (f / cutoff) ** 2))


def _band_pass(x: np.ndarray, centre: float, width: float) -> np.ndarray:
    return _filtered(x, lambda f: np.exp(-0.5 * ((f - centre) / width) ** 2))


def _grain(t: np.ndarray, attack: float, decay: float) -> np.ndarray:
    return np.minimum(t / attack, 1.0) * np.exp(-t / decay)


def _train(rng: np.random.Generator, rate: float, grain: np.ndarray) -> np.ndarray:
    # the grain again every 0.9 ... 1.1 periods
    out = np.zeros(SAMPLE_RATE)
    at = 0.0
    while at < 1.0:
        start = int(at * SAMPLE_RATE)
        length = min(len(grain), SAMPLE_RATE - start)
        out[start : start + length] += grain[:length]
        at += rng.uniform(0.9, 1.1) / rate
    return out


def _siren(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    return _tone(rng.uniform(600, 1000) + rng.uniform(150, 400) * np.sin(2 * np.pi * rng.uniform(0.7, 3) * t))


def _telephone(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    ring = np.sign(np.sin(2 * np.pi * rng.uniform(400, 1100) * t))
    fast = np.sin(2 * np.pi * rng.uniform(15, 25) * t) > 0
    slow = np.sin(2 * np.pi * rng.uniform(0.8, 2) * t + rng.uniform(0, 2 * np.pi)) > -0.3
    return ring * fast * slow


def _wind(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    gusts = 0.6 + 0.4 * np.sin(2 * np.pi * rng.uniform(0.3, 1) * t + rng.uniform(0, 2 * np.pi))
    return _low_pass(rng.uniform(-1, 1, len(t)), rng.uniform(200, 500)) * gusts


def _rain(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    noise = rng.uniform(-1, 1, len(t))
    return noise - _low_pass(noise, 1500)


def _heartbeat(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    grain = np.sin(2 * np.pi * rng.uniform(45, 80) * t) * _grain(t, 0.010, 0.060)
    return _train(rng, rng.uniform(1.2, 3), grain)


def _bird(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    hertz = rng.uniform(2500, 4000) + rng.uniform(500, 1500) * np.sin(2 * np.pi * rng.uniform(8, 20) * t)
    return _train(rng, rng.uniform(3, 7), _tone(hertz) * _grain(t, 0.010, 0.050))


def _engine(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    throb = 1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.5, 2) * t)
    return _low_pass(_saw(rng.uniform(40, 110), t) * throb + 0.3 * rng.uniform(-1, 1, len(t)), 800)


def _bell(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    base = 700 * rng.uniform(0.8, 1.4)
    partials = (
        np.exp(-i / 2) * np.sin(2 * np.pi * base * ratio * rng.uniform(0.99, 1.01) * t)
        for i, ratio in enumerate((1, 2.76, 5.4))
    )
    return sum(partials) * np.exp(-t / rng.uniform(0.2, 0.5))


def _laser(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    hertz = rng.uniform(300, 500) + rng.uniform(2000, 4000) * np.exp(-t / rng.uniform(0.04, 0.12))
    return _train(rng, rng.uniform(1, 3), _tone(hertz) * _grain(t, 0.005, 0.200))


def _footsteps(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    thud = _band_pass(rng.uniform(-1, 1, len(t)), rng.uniform(200, 600), 300)
    return _train(rng, rng.uniform(1.5, 3), thud * _grain(t, 0.005, 0.030))


def _clock(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    click = _band_pass(rng.uniform(-1, 1, len(t)), rng.uniform(3000, 4500), 800)
    return _train(rng, rng.uniform(3, 5), click * _grain(t, 0.001, 0.006))


def _drone(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    return (_saw(rng.uniform(80, 160), t) + _saw(rng.uniform(80, 160), t)) * np.minimum(t / 0.3, 1)


#: Recipe of each class: random generator and times in seconds -> clip of any scale.
RECIPES: Mapping[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "siren": _siren,
    "telephone": _telephone,
    "wind": _wind,
    "rain": _rain,
    "heartbeat": _heartbeat,
    "bird": _bird,
    "engine": _engine,
    "bell": _bell,
    "laser": _laser,
    "footsteps": _footsteps,
    "clock": _clock,
    "drone": _drone,
}
