r"""Who decides whether a sound fits a text: the offline scorer, and the judge that checks it.

`ContrastiveScorer` is a small two-tower model that the chapter trains on its procedural
corpus (eq-ctag-infonce); it plays the part of CLAP. `Judge` is a classifier of another
architecture, front end and training draw, which never takes part in a search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.contrastive import symmetric_info_nce
from icml24.common.random import generator as named_generator

from . import _checks
from .audio import LogMel, resample
from .data import CLASSES, SAMPLE_RATE, Corpus, captions_of

__all__ = ["ContrastiveScorer", "Judge", "TextAudioScorer", "train_judge", "train_scorer"]

#: Dimension of the shared embedding.
WIDTH = 64

#: Weight of the penalty on similarities of distractor sounds, and distractors a batch.
DISTRACTOR_WEIGHT = 5.0
DISTRACTORS_A_BATCH = 24


class TextAudioScorer(Protocol):
    """Two encoders into one space of unit vectors; a cosine between them is the score."""

    def embed_text(self, prompts: list[str]) -> Tensor:
        """Unit vectors [n, E] of `n` prompts."""

    def embed_audio(self, audio: Tensor, sample_rate: int) -> Tensor:
        """Unit vectors [B, E] of sounds [B, T]; another rate than the scorer's own is resampled."""


class ContrastiveScorer:
    r"""Small text-audio model: a convolutional audio tower and a bag-of-words text tower.

    Parameters
    ----------
    vocabulary : iterable of str
        Known words; case and punctuation are ignored.
    generator : torch.Generator, optional
        For the initial weights; default a generator of fixed seed.

    Attributes
    ----------
    sample_rate : int
        16000; other rates are resampled.
    weights : dict of str to Tensor
        By layer, float32. Embeddings are computed in the dtype of the audio.

    Notes
    -----
    Untrained as constructed; `train_scorer` gives a trained one. It knows its words and the
    twelve classes of the corpus, no others.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, vocabulary: Iterable[str], *, generator: torch.Generator | None = None) -> None:
        self.vocabulary = sorted({word for entry in vocabulary for word in _words(entry)})
        if not self.vocabulary:
            raise ValueError("the vocabulary needs at least one word")
        self._index = {word: i for i, word in enumerate(self.vocabulary)}
        self._front = LogMel(self.sample_rate)
        shapes = {
            "conv1": (16, 1, 3, 3),
            "conv2": (32, 16, 3, 3),
            "conv3": (32, 32, 3, 3),
            "audio": (WIDTH, 64),
            "words": (WIDTH, len(self.vocabulary)),
            "text": (WIDTH, WIDTH),
        }
        self.weights = _initial_weights(shapes, generator or named_generator(0, "ctag", "scorer"))
        self.weights["log_scale"] = torch.tensor(2.0)

    def embed_text(self, prompts: list[str]) -> Tensor:
        """Unit vectors of prompts.

        Parameters
        ----------
        prompts : list of str
            Each with at least one known word; unknown words are ignored.

        Returns
        -------
        Tensor, shape (n, 64), float32

        Raises
        ------
        TypeError
            A single string instead of a list.
        ValueError
            An empty list, an empty prompt, or one without a known word; the message lists the vocabulary.
        """
        counts = self._bags(_check_prompts(prompts))
        hidden = F.relu(F.linear(counts, self.weights["words"], self.weights["words_bias"]))
        return F.normalize(F.linear(hidden, self.weights["text"], self.weights["text_bias"]), dim=-1)

    def embed_audio(self, audio: Tensor, sample_rate: int) -> Tensor:
        """Unit vectors of sounds; differentiable.

        Parameters
        ----------
        audio : Tensor, shape (B, T), floating
            Finite. Loudness does not matter: each sound is normalised by its peak.
        sample_rate : int
            Of `audio`; resampled to 16 kHz if it differs.

        Returns
        -------
        Tensor, shape (B, 64)
            Dtype of `audio`.

        Raises
        ------
        TypeError, ValueError
            Not floating, another shape, not finite, a rate below 1.
        """
        audio = resample(_checks.audio("audio", audio), sample_rate, self.sample_rate)
        return self._embed_features(self._front(audio))

    def _embed_features(self, features: Tensor) -> Tensor:
        weights = {name: weight.to(features) for name, weight in self.weights.items()}
        x = features[:, None]
        for layer in ("conv1", "conv2", "conv3"):
            x = F.relu(F.conv2d(x, weights[layer], weights[f"{layer}_bias"], stride=2, padding=1))
        pooled = torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)
        return F.normalize(F.linear(pooled, weights["audio"], weights["audio_bias"]), dim=-1)

    def _bags(self, prompts: Sequence[str]) -> Tensor:
        counts = torch.zeros(len(prompts), len(self.vocabulary))
        for row, prompt in zip(counts, prompts, strict=True):
            known = [self._index[word] for word in _words(prompt) if word in self._index]
            if not known:
                raise ValueError(
                    f"no known word in the prompt {prompt!r}; this scorer knows: {', '.join(self.vocabulary)}"
                )
            row[known] = 1.0
        return counts


class Judge:
    """A second opinion: a classifier of the twelve classes that shares nothing with the scorer.

    Other spectrogram, other kernels, another loss, another draw of the corpus.
    """

    sample_rate = SAMPLE_RATE

    def __init__(self, *, generator: torch.Generator | None = None) -> None:
        self._front = LogMel(self.sample_rate, n_fft=1024, hop=256, n_mels=64)
        shapes = {
            "conv1": (12, 1, 5, 5),
            "conv2": (24, 12, 5, 5),
            "conv3": (32, 24, 3, 3),
            "head": (len(CLASSES), 64),
        }
        self.weights = _initial_weights(shapes, generator or named_generator(0, "ctag", "judge"))

    def classify(self, audio: Tensor, sample_rate: int) -> Tensor:
        """Probabilities [B, 12] of the classes for sounds [B, T]."""
        audio = resample(_checks.audio("audio", audio), sample_rate, self.sample_rate)
        return torch.softmax(self._logits(self._front(audio)), dim=-1)

    def _logits(self, features: Tensor) -> Tensor:
        weights = {name: weight.to(features) for name, weight in self.weights.items()}
        x = features[:, None]
        for layer in ("conv1", "conv2", "conv3"):
            x = F.gelu(F.conv2d(x, weights[layer], weights[f"{layer}_bias"], stride=2, padding=1))
        pooled = torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)
        return F.linear(pooled, weights["head"], weights["head_bias"])


def train_scorer(
    corpus: Corpus,
    distractors: Tensor,
    *,
    epochs: int,
    seed: int,
    stream: int = 0,
    batch_size: int = 48,
    lr: float = 2e-3,
) -> ContrastiveScorer:
    r"""Train a `ContrastiveScorer` by symmetric InfoNCE with class-aware targets.

    Parameters
    ----------
    corpus : Corpus
    distractors : Tensor, shape (m, T)
        Sounds of the synthesizer at random settings, at 16 kHz; their similarity to every
        caption is pushed to zero or below, so that strange sounds resemble nothing.
    epochs : int
        Passes over the corpus, Adam.
    seed, stream : int
        Name the generator of initial weights and the order of batches.

    Returns
    -------
    ContrastiveScorer
        Its weights need no gradients.
    """
    g = named_generator(seed, "ctag", "train scorer", stream)
    everything = [caption for name in CLASSES for caption in captions_of(name)]
    scorer = ContrastiveScorer(everything, generator=g)
    with torch.no_grad():
        features, strange = scorer._front(corpus.audio), scorer._front(distractors)
    bags, all_bags = scorer._bags(corpus.captions), scorer._bags(everything)

    def text(counts: Tensor) -> Tensor:
        hidden = F.relu(F.linear(counts, scorer.weights["words"], scorer.weights["words_bias"]))
        return F.normalize(F.linear(hidden, scorer.weights["text"], scorer.weights["text_bias"]), dim=-1)

    def loss(batch: Tensor) -> Tensor:
        sounds, words = scorer._embed_features(features[batch]), text(bags[batch])
        same = corpus.labels[batch][:, None] == corpus.labels[batch]
        matching = symmetric_info_nce(scorer.weights["log_scale"].exp() * sounds @ words.T, same)
        picks = torch.randint(len(strange), (DISTRACTORS_A_BATCH,), generator=g)
        resemblance = scorer._embed_features(strange[picks]) @ text(all_bags).T
        return matching + DISTRACTOR_WEIGHT * resemblance.relu().square().mean()

    _descend(scorer.weights, loss, len(corpus.labels), epochs, batch_size, lr, g)
    return scorer


def train_judge(
    corpus: Corpus, *, epochs: int, seed: int, stream: int = 0, batch_size: int = 32, lr: float = 3e-3
) -> Judge:
    """Train a `Judge` by cross-entropy on the labels of another corpus (see `train_scorer`)."""
    g = named_generator(seed, "ctag", "train judge", stream)
    judge = Judge(generator=g)
    with torch.no_grad():
        features = judge._front(corpus.audio)

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(judge._logits(features[batch]), corpus.labels[batch])

    _descend(judge.weights, loss, len(corpus.labels), epochs, batch_size, lr, g)
    return judge


def _descend(weights, loss, size, epochs, batch_size, lr, g) -> None:  # type: ignore[no-untyped-def]
    for weight in weights.values():
        weight.requires_grad_(True)
    optimiser = torch.optim.Adam(weights.values(), lr=lr)
    for _ in range(epochs):
        for batch in torch.randperm(size, generator=g).split(batch_size):
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
    for weight in weights.values():
        weight.requires_grad_(False)


def _initial_weights(shapes: dict[str, tuple[int, ...]], g: torch.Generator) -> dict[str, Tensor]:
    weights = {}
    for name, shape in shapes.items():
        bound = math.sqrt(3.0 / math.prod(shape[1:]))
        weights[name] = bound * (torch.rand(shape, generator=g) * 2 - 1)
        weights[f"{name}_bias"] = torch.zeros(shape[0])
    return weights


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _check_prompts(prompts: list[str]) -> list[str]:
    if isinstance(prompts, str):
        raise TypeError(f"prompts must be a list of strings; got one string: write [{prompts!r}]")
    prompts = list(prompts)
    if not prompts:
        raise ValueError("expected at least one prompt; got an empty list")
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise TypeError(f"a prompt is a string; got {type(prompt).__name__}")
        if not prompt.strip():
            raise ValueError(
                "a prompt must not be empty; write what the sound should be, such as 'sound of rain'"
            )
    return prompts
