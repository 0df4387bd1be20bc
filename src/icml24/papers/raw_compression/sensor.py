r"""The sensor: from a clean signal to the integers in a raw file, and back to its parameters.

Section "What a sensor adds" of the chapter: eq-raw_compression-sensor, eq-raw_compression-moments,
eq-raw_compression-pairs and eq-raw_compression-gain. All signals are in digital numbers (DN) above
the black level unless a docstring says otherwise; one electron gives `gain` DN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._checks import finite, floating, number, positive

__all__ = ["Calibration", "SensorModel", "calibrate", "simulate_raw"]

#: Variance of rounding to whole numbers, in squared DN.
ROUNDING = 1 / 12
#: Share of the photosites of a flat level that may sit at its greatest value, and a number of them
#: that may do so by chance in a small frame.
SATURATED, CHANCE = 0.01, 4


@dataclass(frozen=True)
class SensorModel:
    r"""A linear sensor with Poisson shot noise and Gaussian read and row noise.

    Parameters
    ----------
    gain : float
        DN per electron, positive.
    read_std : float
        Standard deviation of the read noise, in DN; zero or positive.
    row_std : float, default 0.0
        Standard deviation of the noise common to a row, in DN.
    black_level, white_level : float
        DN of no light, and the greatest DN that a raw file holds (14 bits by default).

    Raises
    ------
    ValueError
        A field out of range, or ``white_level <= black_level``; the message names the field.

    Notes
    -----
    Source: eq-raw_compression-sensor.
    """

    gain: float
    read_std: float
    row_std: float = 0.0
    black_level: float = 512.0
    white_level: float = 16383.0

    def __post_init__(self) -> None:
        positive("gain", self.gain)
        number("read_std", self.read_std, least=0.0)
        number("row_std", self.row_std, least=0.0)
        number("black_level", self.black_level)
        number("white_level", self.white_level)
        if self.white_level <= self.black_level:
            raise ValueError(
                f"white_level must lie above black_level; got {self.white_level:g} and {self.black_level:g}"
            )

    def variance(self, signal: Tensor) -> Tensor:
        """Noise variance of the raw value at a signal, in squared DN, rounding included."""
        return self.gain * signal + (self.read_std**2 + self.row_std**2 + ROUNDING)


def simulate_raw(
    signal: Tensor,
    sensor: SensorModel,
    *,
    fixed_pattern: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw a raw exposure of a clean signal.

    .. math:: \tilde x = \mathrm{clip}\bigl(\mathrm{round}(K\,\mathrm{Poisson}(x / K) + \text{read} +
        \text{row} + n_{\mathrm{fp}} + b),\ 0,\ w\bigr)

    Parameters
    ----------
    signal : Tensor, shape (..., H, W), floating
        Expected DN above black, zero or positive.
    sensor : SensorModel
    fixed_pattern : Tensor, shape (H, W) or broadcastable to `signal`, optional
        Offset of every photosite, in DN.
    generator : torch.Generator, optional
        Source of all noise.

    Returns
    -------
    Tensor
        Whole numbers of DN, black level included, in ``[0, white_level]``; shape and dtype of `signal`.

    Raises
    ------
    TypeError
        `signal` is not a floating tensor.
    ValueError
        Negative or non-finite signal, fewer than two dimensions, a pattern of another size.

    Notes
    -----
    Source: eq-raw_compression-sensor.
    """
    finite("signal", floating("signal", signal))
    if signal.dim() < 2:
        raise ValueError(f"signal must have shape (..., H, W); got {tuple(signal.shape)}")
    signal = signal.detach()
    if signal.numel() and float(signal.min()) < 0:
        raise ValueError(f"signal must be zero or positive DN above black; its minimum is {signal.min():g}")
    raw = sensor.gain * torch.poisson(signal / sensor.gain, generator=generator)
    raw = raw + sensor.read_std * _normal(signal.shape, signal, generator)
    if sensor.row_std > 0:
        raw = raw + sensor.row_std * _normal((*signal.shape[:-1], 1), signal, generator)
    if fixed_pattern is not None:
        raw = raw + _pattern_for(signal, fixed_pattern)
    return (raw + sensor.black_level).round().clamp(0, sensor.white_level)


@dataclass(frozen=True)
class Calibration:
    r"""What photon transfer finds out about a camera at one gain setting.

    Attributes
    ----------
    gain : float
        DN per electron.
    read_std : float
        Read noise in DN, rounding taken out.
    fixed_pattern : Tensor, shape (H, W)
        Offset of every photosite in DN; belongs to the camera and is never transmitted.
    mean, variance : Tensor, shape (L,)
        Signal and noise variance of every flat level, in DN and squared DN.
    """

    gain: float
    read_std: float
    fixed_pattern: Tensor
    mean: Tensor
    variance: Tensor


def calibrate(bias_frames: Tensor, flat_pairs: Tensor, *, black_level: float = 512.0) -> Calibration:
    r"""Estimate gain, read noise and fixed pattern from dark frames and pairs of flats.

    Differences of two exposures of one scene hold noise alone: what is constant in time cancels.
    The gain is the slope through the origin, weighted by the inverse variance,

    .. math:: \hat K = \frac{\sum_l w_l m_l (v_l - v_r)}{\sum_l w_l m_l^2}, \qquad w_l = 1 / \max(v_l, 1).

    Parameters
    ----------
    bias_frames : Tensor, shape (N, H, W), N >= 2
        Exposures without light, in DN with black level.
    flat_pairs : Tensor, shape (L, 2, H, W), L >= 2
        Two exposures of an even surface at each of L levels, in DN with black level.
    black_level : float, default 512.0

    Returns
    -------
    Calibration
        Tensors in the dtype of `bias_frames`; float64 when the frames are integers.
        Sums run in float64 in either case.

    Raises
    ------
    TypeError
        An argument is no tensor, or complex or boolean.
    ValueError
        Too few frames or levels, wrong shapes, NaN or infinities, a saturated level (more than
        1 % of a level heaped at its greatest value), levels without light.

    Notes
    -----
    Source: eq-raw_compression-pairs, eq-raw_compression-gain.
    """
    dtype = bias_frames.dtype if isinstance(bias_frames, Tensor) else torch.float64
    dtype = dtype if dtype.is_floating_point else torch.float64
    bias, flats = _frames("bias_frames", bias_frames), _frames("flat_pairs", flat_pairs)
    number("black_level", black_level)
    if bias.dim() != 3 or len(bias) < 2:
        raise ValueError(
            f"bias_frames must have shape (N, H, W) with N >= 2; got {tuple(bias.shape)}: the read noise "
            "is measured on differences of frames"
        )
    if flats.dim() != 4 or flats.shape[1] != 2:
        raise ValueError(f"flat_pairs must have shape (L, 2, H, W); got {tuple(flats.shape)}")
    if len(flats) < 2:
        raise ValueError(f"flat_pairs must hold at least 2 light levels; got {len(flats)}")
    if flats.shape[2:] != bias.shape[1:] or bias[0].numel() < 2:
        raise ValueError(
            "bias_frames and flat_pairs must show the same photosites, at least two; got "
            f"{tuple(bias.shape[1:])} and {tuple(flats.shape[2:])}"
        )
    _refuse_saturation(flats)

    pattern = bias.mean(0) - black_level
    read_variance = float((bias[1:] - bias[:-1]).square().mean()) / 2
    mean = (flats - (black_level + pattern)).mean(dim=(1, 2, 3))
    difference = flats[:, 0] - flats[:, 1]
    variance = difference.square().mean(dim=(1, 2)) / 2 - difference.mean(dim=(1, 2)).square() / 2

    weight = 1 / variance.clamp(min=1)
    gain = float((weight * mean * (variance - read_variance)).sum() / (weight * mean.square()).sum())
    if not math.isfinite(gain) or gain <= 0:
        raise ValueError(
            f"the noise does not grow with the light (slope {gain:g} DN per electron): flat_pairs must "
            "hold levels well above the dark, in the same units as bias_frames"
        )
    return Calibration(
        gain=gain,
        read_std=math.sqrt(max(read_variance - ROUNDING, 0)),
        fixed_pattern=pattern.to(dtype),
        mean=mean.to(dtype),
        variance=variance.to(dtype),
    )


def _normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def _pattern_for(signal: Tensor, pattern: Tensor) -> Tensor:
    finite("fixed_pattern", floating("fixed_pattern", pattern))
    fits = 2 <= pattern.dim() <= signal.dim() and pattern.shape[-2:] == signal.shape[-2:]
    batches = zip(pattern.shape[:-2][::-1], signal.shape[:-2][::-1], strict=False)
    if not fits or any(a not in (1, b) for a, b in batches):
        raise ValueError(
            f"fixed_pattern must cover the signal's {tuple(signal.shape[-2:])} photosites, once or for each "
            f"exposure; got shape {tuple(pattern.shape)}: crop it to the same window"
        )
    return pattern.to(signal.dtype)


def _frames(name: str, frames: Tensor) -> Tensor:
    if not isinstance(frames, Tensor):
        raise TypeError(f"{name} must be a torch tensor; got {type(frames).__name__}: use torch.as_tensor")
    if frames.dtype == torch.bool or frames.is_complex():
        raise TypeError(f"{name} must hold real numbers of DN; got {frames.dtype}")
    return finite(name, frames.detach().double())


def _refuse_saturation(flats: Tensor) -> None:
    # Clipped values heap up at the greatest one; a level in range thins out towards it.
    for index, level in enumerate(flats):
        top = level.max()
        at_top, below = int((level == top).sum()), int((level == top - 1).sum())
        if at_top > max(SATURATED * level.numel(), below, CHANCE):
            raise ValueError(
                f"level {index} is saturated: {at_top / level.numel():.1%} of its values are {top:g}; "
                "clipping hides the noise and biases the gain, use less light"
            )
