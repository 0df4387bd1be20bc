r"""Audio-rate oscillators: pitch to phase, phase to sound.

Equations eq-ctag-pitch, eq-ctag-phase, eq-ctag-squaresaw, eq-ctag-fm. Phases reach a hundred
thousand radians, so they are summed in float64 and kept as a fraction of a cycle; the rest
runs in the dtype of the input.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import _checks
from .parameters import SynthConfig

__all__ = ["fm_vco", "midi_to_hz", "sine_vco", "square_saw_vco"]


def midi_to_hz(midi: Tensor) -> Tensor:
    """Frequency in hertz of a (fractional) MIDI pitch; 69 is the A of 440 Hz."""
    return 440.0 * torch.exp2((midi - 69.0) / 12.0)


def sine_vco(
    config: SynthConfig,
    midi_f0: Tensor,
    tuning: Tensor,
    mod_depth: Tensor,
    initial_phase: Tensor,
    mod_signal: Tensor | None = None,
) -> Tensor:
    r"""Cosine oscillator whose pitch follows a modulation signal.

    Parameters
    ----------
    config : SynthConfig
    midi_f0, tuning, mod_depth : Tensor, shape (B,), floating
        MIDI pitch and semitones.
    initial_phase : Tensor, shape (B,)
        Radians.
    mod_signal : Tensor, shape (B, T), optional
        At audio rate (see `upsample`). With it the pitch is clipped to MIDI 0 ... 127,
        without it it is not.

    Returns
    -------
    Tensor, shape (B, T)
        In [-1, 1], the dtype of `midi_f0`.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, values that are not finite.
    """
    mod_signal = _vco_inputs(config, midi_f0, tuning, mod_depth, initial_phase, mod_signal)
    return _sine_vco(config, midi_f0, tuning, mod_depth, initial_phase, mod_signal)


def square_saw_vco(
    config: SynthConfig,
    midi_f0: Tensor,
    tuning: Tensor,
    mod_depth: Tensor,
    initial_phase: Tensor,
    shape: Tensor,
    mod_signal: Tensor | None = None,
) -> Tensor:
    r"""Oscillator between a softened square wave (`shape` 0) and a saw (`shape` 1).

    .. math:: (1 - s/2)\,\tanh\bigl(\tfrac{\pi k}{2}\sin\phi\bigr)\,(1 + s\cos\phi)

    Parameters
    ----------
    config, midi_f0, tuning, mod_depth, initial_phase, mod_signal
        As for `sine_vco`.
    shape : Tensor, shape (B,)
        In [0, 1].

    Returns
    -------
    Tensor, shape (B, T)
        The edge sharpness :math:`k = 12000/(f\log_{10} f)` falls with the highest pitch that the
        modulation could reach, so that fewer overtones fold back. Peaks may exceed 1 a little
        for intermediate shapes.

    Raises
    ------
    TypeError, ValueError
        As `sine_vco`; a highest frequency at or below 1 Hz, where :math:`\log_{10} f` is not positive.
    """
    mod_signal = _vco_inputs(config, midi_f0, tuning, mod_depth, initial_phase, mod_signal)
    shape = _checks.batch("shape", shape, len(midi_f0))
    if len(shape) and not (shape.min() >= 0 and shape.max() <= 1):
        raise ValueError(f"shape must lie in [0, 1]; got {shape.min().item():g} to {shape.max().item():g}")
    if len(shape) and not _highest(midi_f0, tuning, mod_depth).min() > 1:
        raise ValueError("the highest pitch of a square-saw oscillator must lie above 1 Hz (MIDI -36.4)")
    return _square_saw_vco(config, midi_f0, tuning, mod_depth, initial_phase, shape, mod_signal)


def fm_vco(
    config: SynthConfig,
    midi_f0: Tensor,
    tuning: Tensor,
    mod_depth: Tensor,
    initial_phase: Tensor,
    mod_signal: Tensor,
) -> Tensor:
    r"""Cosine oscillator with linear frequency modulation (not part of `Voice`).

    .. math:: f_n = \operatorname{clip}\bigl(f_0 + d\, f_0\, m_n,\ 0,\ \text{SR}/2\bigr)

    Parameters
    ----------
    config, midi_f0, tuning, initial_phase
        As for `sine_vco`.
    mod_depth : Tensor, shape (B,)
        In units of the carrier's frequency.
    mod_signal : Tensor, shape (B, T)
        At audio rate; required.

    Returns
    -------
    Tensor, shape (B, T)
    """
    if mod_signal is None:
        raise ValueError("fm_vco needs a mod_signal of shape (batch, samples); without one use sine_vco")
    mod_signal = _vco_inputs(config, midi_f0, tuning, mod_depth, initial_phase, mod_signal)
    carrier = midi_to_hz(midi_f0 + tuning)[:, None]
    hertz = (carrier + mod_depth[:, None] * carrier * mod_signal).clamp(0, config.sample_rate / 2)
    return torch.cos(2 * math.pi * _cycles(config, hertz, initial_phase))


def _vco_inputs(
    config: SynthConfig, midi_f0: Tensor, tuning: Tensor, mod_depth: Tensor, phase: Tensor, mod: Tensor | None
) -> Tensor | None:
    size = len(_checks.batch("midi_f0", midi_f0))
    for name, value in (("tuning", tuning), ("mod_depth", mod_depth), ("initial_phase", phase)):
        _checks.batch(name, value, size)
    return None if mod is None else _checks.signal("mod_signal", mod, size, config.n_samples)


def _sine_vco(
    config: SynthConfig, midi_f0: Tensor, tuning: Tensor, mod_depth: Tensor, phase: Tensor, mod: Tensor | None
) -> Tensor:
    hertz = _hertz(config, midi_f0, tuning, mod_depth, mod)
    return torch.cos(2 * math.pi * _cycles(config, hertz, phase))


def _square_saw_vco(
    config: SynthConfig,
    midi_f0: Tensor,
    tuning: Tensor,
    mod_depth: Tensor,
    phase: Tensor,
    shape: Tensor,
    mod: Tensor | None,
) -> Tensor:
    radians = 2 * math.pi * _cycles(config, _hertz(config, midi_f0, tuning, mod_depth, mod), phase)
    k = _sharpness(midi_f0, tuning, mod_depth)[:, None]
    s = shape[:, None]
    return (1 - s / 2) * torch.tanh(math.pi * k / 2 * torch.sin(radians)) * (1 + s * torch.cos(radians))


def _hertz(
    config: SynthConfig, midi_f0: Tensor, tuning: Tensor, mod_depth: Tensor, mod: Tensor | None
) -> Tensor:
    pitch = (midi_f0 + tuning)[:, None]
    if mod is None:
        return midi_to_hz(pitch).expand(-1, config.n_samples)
    return midi_to_hz((pitch + mod_depth[:, None] * mod).clamp(0, 127))


def _cycles(config: SynthConfig, hertz: Tensor, initial_phase: Tensor) -> Tensor:
    # fraction of a cycle in [0, 1): summed in float64, whole turns dropped before the cast back
    turns = torch.cumsum(hertz, -1, dtype=torch.float64) / config.sample_rate
    turns = turns + initial_phase[:, None].double() / (2 * math.pi)
    return (turns - turns.detach().floor()).to(hertz.dtype)


def _sharpness(midi_f0: Tensor, tuning: Tensor, mod_depth: Tensor) -> Tensor:
    # eq-ctag-squaresaw: k of the softened square, from the highest pitch the modulation could reach
    top = _highest(midi_f0, tuning, mod_depth)
    return 12000.0 / (top * torch.log10(top))


def _highest(midi_f0: Tensor, tuning: Tensor, mod_depth: Tensor) -> Tensor:
    return midi_to_hz(midi_f0 + tuning + mod_depth.clamp(min=0))
