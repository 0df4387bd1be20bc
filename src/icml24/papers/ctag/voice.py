r"""The synthesizer: 78 unit parameters in, a sound out.

`Voice` has two forms of one function. `_reference_voice` composes the modules as the chapter
derives them and is differentiable; `_fast_voice` computes the same samples row by row with
reused buffers (a row of two seconds fits the processor's cache) and is what runs without
gradients. Tests hold the two together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from . import _checks
from .modules import LFO_SHAPES, _adsr, _lfo, _upsample, mix_audio, mix_modulation
from .oscillators import _sharpness, _sine_vco, _square_saw_vco
from .parameters import COLUMNS, PARAMETERS, SynthConfig, unpack_parameters

__all__ = ["ABLATIONS", "AblatedVoice", "Voice", "white_noise"]

#: Inputs of the modulation matrix, in its order.
ENVELOPES = ("adsr_1", "adsr_2")
LFOS = ("lfo_1", "lfo_2")


class Voice:
    r"""Two oscillators and noise, shaped by two envelopes and two LFOs through a 5x4 matrix.

    Parameters
    ----------
    config : SynthConfig, default ``SynthConfig()``
        48 kHz, 480 Hz control rate, two seconds.

    Attributes
    ----------
    config : SynthConfig
    n_parameters : int
        78.

    Notes
    -----
    Finite on the whole closed unit cube, at its corners, too. With gradients (`unit` requires
    them and grad mode is on) it runs in a plainer, slower form with the same samples up to
    rounding.
    """

    n_parameters = len(PARAMETERS)

    def __init__(self, config: SynthConfig = SynthConfig()) -> None:  # noqa: B008 (frozen)
        if not isinstance(config, SynthConfig):
            raise TypeError(f"config must be a SynthConfig; got {type(config).__name__}")
        self.config = config

    def __call__(
        self, unit: Tensor, noise: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Render a batch of sounds.

        Parameters
        ----------
        unit : Tensor, shape (B, 78), floating
            Unit parameters in the order of `PARAMETERS`.
        noise : Tensor, shape (T,), optional
            The noise source, shared by the batch. Default: drawn uniformly from [-1, 1).
        generator : torch.Generator, optional
            Where the default noise comes from; without it a generator of fixed seed, so that
            the same parameters always give the same sound.

        Returns
        -------
        Tensor, shape (B, T)
            In [-1, 1]; dtype and device of `unit`.

        Raises
        ------
        TypeError
            `unit` or `noise` is not a floating tensor.
        ValueError
            Another shape, NaN or values outside [0, 1], noise of another length.
        """
        unit = _unit_rows(unit, self.n_parameters)
        if noise is None:
            noise = white_noise(self.config, generator=generator, dtype=unit.dtype, device=unit.device)
        else:
            noise = _checks.finite("noise", noise)
            if tuple(noise.shape) != (self.config.n_samples,):
                raise ValueError(
                    f"expected noise of length {self.config.n_samples} (duration times sample rate); "
                    f"got shape {tuple(noise.shape)}"
                )
            noise = noise.to(unit)
        values = unpack_parameters(self._complete(unit))
        if torch.is_grad_enabled() and (unit.requires_grad or noise.requires_grad):
            return _reference_voice(self.config, values, noise)
        with torch.no_grad():
            return _fast_voice(self.config, values, noise)

    def _complete(self, unit: Tensor) -> Tensor:
        return unit


#: Parameter groups of the reduced synthesizers; names and counts are the paper's, compositions ours.
ABLATIONS: Mapping[str, tuple[str, ...]] = {
    "ShapedNoise": (
        "keyboard.",
        "adsr_1.",
        "lfo_1.",
        "mod_matrix.mod[4,0]",
        "mod_matrix.mod[4,2]",
        "mixer.level[2]",
    ),
    "OneOsc": (
        "keyboard.",
        "adsr_1.",
        "adsr_2.",
        *(f"mod_matrix.mod[{i},{j}]" for i in (0, 1, 4) for j in (0, 1)),
        "vco_1.",
        "mixer.level[0]",
        "mixer.level[2]",
    ),
    "NoLFO": (
        "keyboard.",
        "adsr_1.",
        "adsr_2.",
        *(f"mod_matrix.mod[{i},{j}]" for i in range(4) for j in (0, 1)),
        "vco_1.",
        "vco_2.",
        "mixer.level[0]",
        "mixer.level[1]",
    ),
    "NoNoise": (
        "keyboard.",
        "adsr_1.",
        "adsr_2.",
        "lfo_1.",
        "lfo_1_amp_adsr.",
        "lfo_1_rate_adsr.",
        *(f"mod_matrix.mod[{i},{j}]" for i in range(4) for j in range(3)),
        "vco_1.",
        "vco_2.",
        "mixer.level[0]",
        "mixer.level[1]",
    ),
}


class AblatedVoice(Voice):
    r"""A `Voice` with modules taken out.

    What is left out is held where it does nothing: levels and matrix entries at 0, an
    envelope without parameters constantly at 1.

    Parameters
    ----------
    name : {"ShapedNoise", "OneOsc", "NoLFO", "NoNoise"}
        With 18, 23, 29 and 51 parameters.
    config : SynthConfig, default ``SynthConfig()``

    Raises
    ------
    ValueError
        Unknown name.
    """

    def __init__(self, name: str, config: SynthConfig = SynthConfig()) -> None:  # noqa: B008 (frozen)
        super().__init__(config)
        if name not in ABLATIONS:
            raise ValueError(f"unknown ablation {name!r}; expected one of {sorted(ABLATIONS)}")
        self.name = name
        self.kept = [index for label, index in COLUMNS.items() if label.startswith(ABLATIONS[name])]
        self.n_parameters = len(self.kept)

    def _complete(self, unit: Tensor) -> Tensor:
        # attack, decay and release 0 with sustain 1 make an envelope that is 1 throughout
        rest = torch.zeros(len(PARAMETERS), dtype=unit.dtype, device=unit.device)
        rest[[index for label, index in COLUMNS.items() if label.endswith("adsr.sustain")]] = 1
        full = rest.expand(len(unit), -1).clone()
        full[:, self.kept] = unit
        return full


def white_noise(
    config: SynthConfig,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """One noise buffer, uniform on [-1, 1), of the configuration's length [T].

    Without a generator the buffer is the same at every call.
    """
    if generator is None:
        generator = torch.Generator(device=device).manual_seed(0)
    return torch.rand(config.n_samples, generator=generator, dtype=dtype, device=device) * 2 - 1


def _unit_rows(unit: Tensor, width: int) -> Tensor:
    unit = _checks.floating("unit", unit)
    if unit.ndim != 2 or unit.shape[1] != width:
        raise ValueError(f"expected unit parameters of shape (batch, {width}); got {tuple(unit.shape)}")
    return unit


def _modulation(config: SynthConfig, values: Mapping[str, Tensor]) -> Tensor:
    # the five outputs of the matrix at control rate: [B, 5, Tc]
    note = values["keyboard.duration"]

    def envelope(name: str) -> Tensor:
        times = (values[f"{name}.{part}"] for part in ("attack", "decay", "sustain", "release", "alpha"))
        return _adsr(config, *times, note)

    def oscillation(name: str) -> Tensor:
        weights = torch.stack([values[f"{name}.{shape}"] for shape in LFO_SHAPES], -1)
        head = (values[f"{name}.{part}"] for part in ("frequency", "mod_depth", "initial_phase"))
        return envelope(f"{name}_amp_adsr") * _lfo(config, *head, weights, envelope(f"{name}_rate_adsr"))

    sources = torch.stack([*map(envelope, ENVELOPES), *map(oscillation, LFOS)], 1)
    entries = [values[f"mod_matrix.mod[{i},{j}]"] for i in range(5) for j in range(4)]
    return mix_modulation(torch.stack(entries, -1).unflatten(-1, (5, 4)), sources)


def _levels(values: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([values[f"mixer.level[{i}]"] for i in range(3)], -1)


def _reference_voice(config: SynthConfig, values: Mapping[str, Tensor], noise: Tensor) -> Tensor:
    control = _modulation(config, values)
    pitch_1, amp_1, pitch_2, amp_2, amp_noise = (_upsample(config, control[:, i]) for i in range(5))
    note = values["keyboard.midi_f0"]
    one = [values[f"vco_1.{part}"] for part in ("tuning", "mod_depth", "initial_phase")]
    two = [values[f"vco_2.{part}"] for part in ("tuning", "mod_depth", "initial_phase", "shape")]
    sounds = [
        amp_1 * _sine_vco(config, note, *one, pitch_1),
        amp_2 * _square_saw_vco(config, note, *two, pitch_2),
        amp_noise * noise,
    ]
    return mix_audio(_levels(values), torch.stack(sounds, 1))


def _fast_voice(config: SynthConfig, values: Mapping[str, Tensor], noise: Tensor) -> Tensor:
    control = _modulation(config, values)
    note = values["keyboard.midi_f0"]
    levels = _levels(values)
    # what multiplies or shifts a whole row is folded into the control signals, at a hundredth of the cost
    depths = torch.stack([values["vco_1.mod_depth"], values["vco_2.mod_depth"]], -1)
    bases = torch.stack([note + values["vco_1.tuning"], note + values["vco_2.tuning"]], -1)
    pitches = (control[:, [0, 2]] * depths[..., None] + bases[..., None] - 69) / 12
    shape = values["vco_2.shape"]
    gains = control[:, [1, 3, 4]] * levels[..., None]
    gains[:, 1] *= (1 - shape / 2)[:, None]
    phases = torch.stack([values["vco_1.initial_phase"], values["vco_2.initial_phase"]], -1).double() / (
        2 * math.pi
    )
    sharp = math.pi / 2 * _sharpness(note, values["vco_2.tuning"], values["vco_2.mod_depth"])
    audible = (gains != 0).any(-1)

    out = torch.zeros(len(note), config.n_samples, dtype=note.dtype, device=note.device)
    row = _Row(config, note)
    for b, (heard, k, s) in enumerate(zip(audible.tolist(), sharp.tolist(), shape.tolist(), strict=True)):
        target = out[b]
        if heard[0]:
            sound = row.angle(pitches[b, 0], phases[b, 0]).add_(math.pi / 2).sin_()
            torch.mul(sound, row.upsample(gains[b, 0]), out=target)
        if heard[1]:
            angle = row.angle(pitches[b, 1], phases[b, 1])
            # tanh(x) = 2 sigmoid(2x) - 1, a third of the time
            sound = torch.sin(angle, out=row.sound).mul_(2 * k).sigmoid_().mul_(2).sub_(1)
            if s > 0:
                sound.addcmul_(sound, angle.add_(math.pi / 2).sin_(), value=s)
            target.addcmul_(sound, row.upsample(gains[b, 1]))
        if heard[2]:
            target.addcmul_(noise, row.upsample(gains[b, 2]))
        low, high = torch.aminmax(target)
        peak = max(high.item(), -low.item())
        if peak > 1:
            target.div_(peak)
    return out


class _Row:
    """Buffers for one row of samples, and the two operations that fill them."""

    def __init__(self, config: SynthConfig, like: Tensor) -> None:
        size, last = config.n_samples, config.n_control - 1
        position = torch.arange(size, dtype=torch.float64, device=like.device) * (last / max(size - 1, 1))
        self.left = position.long().clamp(max=max(last - 1, 0))
        self.share = (position - self.left).to(like)
        self.low, self.high = -69 / 12, (127 - 69) / 12
        self.scale = 440.0 / config.sample_rate
        self.sound, self.line, self.slope, self.radians = (like.new_empty(size) for _ in range(4))
        self.turns = like.new_empty(size, dtype=torch.float64)
        self.whole = torch.empty_like(self.turns)

    def upsample(self, control: Tensor) -> Tensor:
        # two gathers and a fused multiply-add, a third of the time of interpolate
        torch.index_select(control, 0, self.left, out=self.line)
        if len(control) == 1:
            return self.line
        torch.index_select(control.diff(), 0, self.left, out=self.slope)
        return self.line.addcmul_(self.slope, self.share)

    def angle(self, octaves: Tensor, phase: Tensor) -> Tensor:
        # pitch in octaves above 440 Hz -> radians in [0, 2 pi), whole turns dropped in float64
        steps = self.upsample(octaves).clamp_(self.low, self.high).exp2_().mul_(self.scale)
        torch.cumsum(steps, 0, dtype=torch.float64, out=self.turns)
        self.turns.add_(phase)
        self.turns.sub_(torch.floor(self.turns, out=self.whole))
        return self.radians.copy_(self.turns).mul_(2 * math.pi)
