r"""Control-rate modules: envelopes, low-frequency oscillators, the modulation matrix.

Equations eq-ctag-ramp, eq-ctag-adsr, eq-ctag-lfo, eq-ctag-matrix. All take vectors [B] in
human units and give signals [B, Tc]; all are plain differentiable torch.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _checks
from .parameters import SynthConfig

__all__ = ["LFO_SHAPES", "adsr", "lfo", "mix_audio", "mix_modulation", "upsample"]

#: Order of the LFO's shape weights.
LFO_SHAPES = ("sin", "tri", "saw", "rsaw", "sqr")

#: Exponent of the LFO's shape weights.
SHAPE_EXPONENT = math.e


def adsr(
    config: SynthConfig,
    attack: Tensor,
    decay: Tensor,
    sustain: Tensor,
    release: Tensor,
    alpha: Tensor,
    note_on: Tensor,
) -> Tensor:
    r"""Attack-decay-sustain-release envelope.

    .. math:: e = r_{A'} \,\bigl((1-S)\,\bar r_{D'} + S\bigr)\,\bar r_R

    with :math:`A' = \min(A, \text{note})`, :math:`D' = \min((\text{note} - A)_+, D)`.

    Parameters
    ----------
    config : SynthConfig
    attack, decay, release, note_on : Tensor, shape (B,), floating
        Seconds, not negative; the release starts at `note_on`.
    sustain : Tensor, shape (B,)
        Level in [0, 1].
    alpha : Tensor, shape (B,)
        Common exponent of the three ramps, positive; 1 is linear.

    Returns
    -------
    Tensor, shape (B, Tc)
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        Arguments that are not finite floating vectors of one length, negative times,
        a level outside [0, 1], or an exponent that is not positive.

    Notes
    -----
    Three corners to know: ``attack = 0`` starts at 1; a decay of length 0 leaves the level
    at 1, not at `sustain`; ``release = 0`` never releases.
    """
    attack = _checks.batch("attack", attack)
    named = {"decay": decay, "sustain": sustain, "release": release, "alpha": alpha, "note_on": note_on}
    for name, value in named.items():
        _checks.batch(name, value, len(attack))
    for name, value in {"attack": attack, **named}.items():
        if len(attack) and value.min() < 0:
            raise ValueError(f"{name} must not be negative; got {value.min().item():g}")
    if len(attack) and sustain.max() > 1:
        raise ValueError(f"sustain must lie in [0, 1]; got {sustain.max().item():g}")
    if len(attack) and not alpha.min() > 0:
        raise ValueError("alpha must be positive; got 0")
    return _adsr(config, attack, decay, sustain, release, alpha, note_on)


def lfo(
    config: SynthConfig,
    frequency: Tensor,
    mod_depth: Tensor,
    initial_phase: Tensor,
    shape_weights: Tensor,
    mod_signal: Tensor | None = None,
) -> Tensor:
    r"""Low-frequency oscillator: a weighted mean of five shapes of one phase.

    Parameters
    ----------
    config : SynthConfig
    frequency, mod_depth : Tensor, shape (B,), floating
        Hertz; the modulated frequency is clipped at zero.
    initial_phase : Tensor, shape (B,)
        Radians.
    shape_weights : Tensor, shape (B, 5)
        Raw weights, not negative, in the order sin, tri, saw, rsaw, sqr; normalised after
        being raised to the power e. Five zeros count as five equal weights.
    mod_signal : Tensor, shape (B, Tc), optional
        Modulation of the frequency.

    Returns
    -------
    Tensor, shape (B, Tc)
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        Wrong types, shapes, negative weights, values that are not finite.
    """
    frequency = _checks.batch("frequency", frequency)
    _checks.batch("mod_depth", mod_depth, len(frequency))
    _checks.batch("initial_phase", initial_phase, len(frequency))
    shape_weights = _checks.signal("shape_weights", shape_weights, len(frequency), len(LFO_SHAPES))
    if len(frequency) and shape_weights.min() < 0:
        raise ValueError(f"shape_weights must not be negative; got {shape_weights.min().item():g}")
    if mod_signal is not None:
        mod_signal = _checks.signal("mod_signal", mod_signal, len(frequency), config.n_control)
    return _lfo(config, frequency, mod_depth, initial_phase, shape_weights, mod_signal)


def upsample(config: SynthConfig, control: Tensor) -> Tensor:
    """Linear interpolation from control rate to audio rate, end points on end points.

    Parameters
    ----------
    config : SynthConfig
    control : Tensor, shape (B, Tc), floating

    Returns
    -------
    Tensor, shape (B, T)
        Sample ``i`` sits at control position ``i (Tc - 1) / (T - 1)``.
    """
    control = _checks.finite("control", control)
    if control.ndim != 2 or control.shape[1] != config.n_control:
        raise ValueError(f"expected control of shape (batch, {config.n_control}); got {tuple(control.shape)}")
    return _upsample(config, control)


def mix_modulation(weights: Tensor, signals: Tensor) -> Tensor:
    """Modulation matrix: every output a weighted sum of the inputs, not normalised.

    Parameters
    ----------
    weights : Tensor, shape (B, M, N), floating
        Human units, in [0, 1] in `Voice`.
    signals : Tensor, shape (B, N, Tc)

    Returns
    -------
    Tensor, shape (B, M, Tc)
    """
    weights, signals = _checks.finite("weights", weights), _checks.finite("signals", signals)
    if (
        weights.ndim != 3
        or signals.ndim != 3
        or weights.shape[::2] != signals.shape[:2]
        or weights.dtype != signals.dtype
    ):
        raise ValueError(
            f"expected weights (B, M, N) and signals (B, N, Tc) of one dtype; got {tuple(weights.shape)} "
            f"{weights.dtype} and {tuple(signals.shape)} {signals.dtype}"
        )
    return weights @ signals


def mix_audio(levels: Tensor, signals: Tensor) -> Tensor:
    r"""Weighted sum of sounds; an item whose peak exceeds 1 is divided by its own peak.

    Parameters
    ----------
    levels : Tensor, shape (B, N), floating
    signals : Tensor, shape (B, N, T)

    Returns
    -------
    Tensor, shape (B, T)
        In [-1, 1]. An item's result does not depend on the rest of the batch.
    """
    levels, signals = _checks.finite("levels", levels), _checks.finite("signals", signals)
    if (
        levels.ndim != 2
        or signals.ndim != 3
        or levels.shape != signals.shape[:2]
        or levels.dtype != signals.dtype
    ):
        raise ValueError(
            f"expected levels (B, N) and signals (B, N, T) of one dtype; got {tuple(levels.shape)} "
            f"{levels.dtype} and {tuple(signals.shape)} {signals.dtype}"
        )
    mixed = (levels[..., None] * signals).sum(1)
    if mixed.numel() == 0:
        return mixed
    return mixed / mixed.abs().amax(-1, keepdim=True).clamp(min=1)


def _adsr(
    config: SynthConfig,
    attack: Tensor,
    decay: Tensor,
    sustain: Tensor,
    release: Tensor,
    alpha: Tensor,
    note_on: Tensor,
) -> Tensor:
    rising = torch.minimum(attack, note_on)
    falling = torch.minimum((note_on - attack).clamp(min=0), decay)
    level = sustain[..., None]
    body = (1 - level) * _ramp(config, falling, attack, alpha, inverse=True) + level
    return (
        _ramp(config, rising, torch.zeros_like(rising), alpha)
        * body
        * _ramp(config, release, note_on, alpha, inverse=True)
    )


def _ramp(
    config: SynthConfig, duration: Tensor, start: Tensor, exponent: Tensor, *, inverse: bool = False
) -> Tensor:
    # eq-ctag-ramp; start and duration may fall between control samples
    n = torch.arange(config.n_control, dtype=duration.dtype, device=duration.device)
    elapsed = (n - (start * config.control_rate)[..., None]).clamp(min=0)
    length = (duration * config.control_rate)[..., None]
    there = length > 0
    # a ramp of length 0 is over at once; dividing by 1 instead keeps its gradient finite
    ramp = torch.where(
        there, (elapsed + config.eps) / torch.where(there, length, 1.0) + config.eps, 1.0
    ).clamp(max=1)
    if inverse:
        ramp = torch.where(there, 1 - ramp, ramp)
    return ramp ** exponent[..., None]


def _lfo(
    config: SynthConfig,
    frequency: Tensor,
    mod_depth: Tensor,
    initial_phase: Tensor,
    shape_weights: Tensor,
    mod_signal: Tensor | None,
) -> Tensor:
    hertz = frequency[..., None].expand(*frequency.shape, config.n_control)
    if mod_signal is not None:
        hertz = (hertz + mod_depth[..., None] * mod_signal).clamp(min=0)
    step = 2 * math.pi / config.control_rate
    phase = torch.cumsum(hertz, -1) * step + initial_phase[..., None]  # inclusive: already one step in
    wave = torch.cos(phase + math.pi)
    saw = torch.remainder(phase, 2 * math.pi) / (2 * math.pi)
    triangle = 2 * torch.minimum(saw, 1 - saw)
    shapes = torch.stack([(wave + 1) / 2, triangle, saw, 1 - saw, (wave.sign() + 1) / 2], dim=-2)
    return (_shape_mixture(shape_weights)[..., None] * shapes).sum(-2)


def _shape_mixture(shape_weights: Tensor) -> Tensor:
    # dividing by the largest first changes nothing but underflow
    largest = shape_weights.amax(-1, keepdim=True)
    powers = (
        torch.where(largest > 0, shape_weights / torch.where(largest > 0, largest, 1.0), 1.0)
        ** SHAPE_EXPONENT
    )
    return powers / powers.sum(-1, keepdim=True)


def _upsample(config: SynthConfig, control: Tensor) -> Tensor:
    if config.n_samples == 1 or config.n_control == 1:
        return control[:, :1].expand(-1, config.n_samples)
    return F.interpolate(control[:, None], size=config.n_samples, mode="linear", align_corners=True)[:, 0]
