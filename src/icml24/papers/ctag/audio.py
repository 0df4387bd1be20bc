r"""Between samples and everything else: other rates, spectrograms, files, players."""

from __future__ import annotations

import base64
import io
import math
import wave
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from . import _checks

__all__ = ["LogMel", "Players", "peak_normalise", "resample", "write_wav"]

#: Largest 16-bit sample.
FULL_SCALE = 32767

#: Quietest peak that is still raised to 1; below it a sound counts as silence.
SILENCE = 1e-4


def peak_normalise(audio: Tensor) -> Tensor:
    """Sounds [..., T] divided by their own peak; peaks below 1e-4 are treated as 1e-4."""
    return audio / audio.abs().amax(-1, keepdim=True).clamp(min=SILENCE)


def resample(audio: Tensor, rate: int, new_rate: int) -> Tensor:
    """Change the sample rate by cutting or padding the spectrum.

    Parameters
    ----------
    audio : Tensor, shape (..., T), floating
    rate, new_rate : int
        Samples a second, at least 1.

    Returns
    -------
    Tensor, shape (..., ceil(T * new_rate / rate))
        Exact for a periodic sound with content below half the lower rate only; differentiable.
        Equal rates return `audio` itself.
    """
    audio = _checks.floating("audio", audio)
    _checks.whole("rate", rate, 1)
    _checks.whole("new_rate", new_rate, 1)
    if rate == new_rate:
        return audio
    length = math.ceil(audio.shape[-1] * new_rate / rate)
    return torch.fft.irfft(torch.fft.rfft(audio), n=length) * (length / audio.shape[-1])


class LogMel:
    r"""Logarithmic mel spectrogram of peak-normalised sound.

    Parameters
    ----------
    sample_rate, n_fft, hop, n_mels : int
    low, high : float
        Edge frequencies of the triangular bands in hertz.

    Notes
    -----
    Values are :math:`(\log(p + 10^{-4}) + 4)/4` of band powers `p` with a full-scale sine near
    1/4: about -1.3 in silence, 1 at most.
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 512,
        hop: int = 160,
        n_mels: int = 48,
        low: float = 40.0,
        high: float = 7800.0,
    ) -> None:
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft, dtype=torch.float64)
        edges = _mel_to_hz(torch.linspace(_hz_to_mel(low), _hz_to_mel(high), n_mels + 2, dtype=torch.float64))
        bins = torch.arange(n_fft // 2 + 1, dtype=torch.float64) * sample_rate / n_fft
        rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.filters = torch.minimum(rising, falling).clamp(min=0)

    def __call__(self, audio: Tensor) -> Tensor:
        """Spectrograms [B, n_mels, frames] of sounds [B, T]; one frame a hop, edges padded with zeros."""
        window = self.window.to(audio)
        spectrum = torch.stft(
            peak_normalise(audio),
            self.n_fft,
            self.hop,
            window=window,
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        power = (spectrum.real.square() + spectrum.imag.square()) / window.sum().square()
        return (torch.log(self.filters.to(audio) @ power + 1e-4) + 4) / 4


def write_wav(path: str | Path, audio: Tensor, sample_rate: int) -> Path:
    """Write one sound as a 16-bit mono WAV file.

    Parameters
    ----------
    path : str or Path
        Its folder must exist.
    audio : Tensor, shape (T,), floating
        In [-1, 1].
    sample_rate : int

    Returns
    -------
    Path

    Raises
    ------
    TypeError
        Not a floating tensor.
    ValueError
        Another shape, no samples, NaN, samples beyond 1 in magnitude (nothing is clipped
        silently), or a rate below 1. Nothing is written then.
    """
    path = Path(path)
    buffer = io.BytesIO()
    _write_frames(buffer, _pcm(audio), sample_rate)
    path.write_bytes(buffer.getvalue())  # only a whole file reaches the disk
    return path


class Players:
    """A row of labelled sounds to press play on, embedded in the page.

    Parameters
    ----------
    sounds : mapping of label to Tensor, shape (T,)
        Peak-normalised for listening; the label says what one hears.
    sample_rate : int
    """

    def __init__(self, sounds: Mapping[str, Tensor], sample_rate: int) -> None:
        self.sounds, self.sample_rate = dict(sounds), sample_rate

    def __repr__(self) -> str:
        return f"{len(self.sounds)} sounds: " + ", ".join(self.sounds)

    def _repr_html_(self) -> str:
        cells = "".join(self._player(label, audio) for label, audio in self.sounds.items())
        return f'<div style="display: flex; flex-wrap: wrap; gap: 0.5rem 1rem">{cells}</div>'

    def _player(self, label: str, audio: Tensor) -> str:
        buffer = io.BytesIO()
        _write_frames(buffer, _pcm(peak_normalise(audio.detach())), self.sample_rate)
        data = base64.b64encode(buffer.getvalue()).decode()
        name = escape(label, quote=True)
        return (
            f'<div style="flex: 1 1 14rem; max-width: 20rem"><div>{name}</div>'
            f'<audio controls aria-label="{name}" style="width: 100%" src="data:audio/wav;base64,{data}"></audio></div>'
        )


def _pcm(audio: Tensor) -> bytes:
    audio = _checks.floating("audio", audio)
    if audio.ndim != 1 or len(audio) == 0:
        raise ValueError(f"expected audio of shape (samples,), not empty; got {tuple(audio.shape)}")
    peak = audio.detach().abs().max().item()
    if not peak <= 1:  # also False for NaN
        raise ValueError(f"audio must lie in [-1, 1]; its peak is {peak:g}: divide by it first")
    samples = (audio.detach().double() * FULL_SCALE).round().to(torch.int16).cpu()
    return samples.numpy().astype("<i2").tobytes()


def _write_frames(file: BinaryIO, frames: bytes, sample_rate: int) -> None:
    _checks.whole("sample_rate", sample_rate, 1)
    with wave.open(file, "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(sample_rate)
        stream.writeframes(frames)


def _hz_to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _mel_to_hz(mel: Tensor) -> Tensor:
    return 700 * (10 ** (mel / 2595) - 1)
