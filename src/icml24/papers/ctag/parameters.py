r"""Seventy-eight numbers in the unit cube, and what each of them means.

Every parameter of the synthesizer is a number in [0, 1]; a `ParameterRange` turns it into
hertz, seconds or semitones along a power curve (eq-ctag-curve). Dossier of ranges: the
paper's code, SynthAX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from . import _checks

__all__ = ["COLUMNS", "PARAMETERS", "ParameterRange", "SynthConfig", "unpack_parameters", "voice_parameters"]


@dataclass(frozen=True)
class SynthConfig:
    r"""Rates and length of what a synthesizer renders.

    Attributes
    ----------
    sample_rate : int, default 48000
        Audio samples a second.
    control_rate : int, default 480
        Samples a second of envelopes and LFOs; at most `sample_rate`.
    duration : float, default 2.0
        Length in seconds.
    eps : float, default 1e-6
        Guard of the ramp's division (eq-ctag-ramp).

    Raises
    ------
    ValueError
        A rate, the duration or `eps` is not positive, or the control rate exceeds the sample rate.
    """

    sample_rate: int = 48000
    control_rate: int = 480
    duration: float = 2.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("sample_rate", "control_rate"):
            _checks.whole(name, getattr(self, name), 1)
        for name in ("duration", "eps"):
            _checks.positive(name, getattr(self, name))
        if self.control_rate > self.sample_rate:
            raise ValueError(
                f"control_rate must not exceed sample_rate; got {self.control_rate} > {self.sample_rate}"
            )

    @property
    def n_samples(self) -> int:
        """Audio samples, the duration times the sample rate, rounded up."""
        return math.ceil(self.duration * self.sample_rate)

    @property
    def n_control(self) -> int:
        """Control samples, the duration times the control rate, rounded up."""
        return math.ceil(self.duration * self.control_rate)


@dataclass(frozen=True)
class ParameterRange:
    r"""A power curve from [0, 1] onto [minimum, maximum].

    .. math:: v = m + (M - m)\, u^{1/c}

    and, for a symmetric range, the same curve on either side of the middle.

    Attributes
    ----------
    minimum, maximum : float
        End points :math:`m < M` in the parameter's own unit.
    curve : float, default 1.0
        The exponent :math:`c > 0`; below 1 small values get more of the unit interval.
    symmetric : bool, default False
        Bend around the middle instead of around the minimum.

    Raises
    ------
    ValueError
        ``minimum >= maximum``, ``curve <= 0``, or a bound that is not finite.
    """

    minimum: float
    maximum: float
    curve: float = 1.0
    symmetric: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minimum) and math.isfinite(self.maximum) and self.minimum < self.maximum):
            raise ValueError(
                f"a range needs finite minimum < maximum; got minimum {self.minimum!r}, maximum {self.maximum!r}"
            )
        if not (self.curve > 0 and math.isfinite(self.curve)):
            raise ValueError(f"curve must be positive and finite; got {self.curve!r}")

    def from_unit(self, u: Tensor) -> Tensor:
        """Value in the parameter's own unit.

        Parameters
        ----------
        u : Tensor, any shape, floating
            In [0, 1] (1e-6 beyond is taken as rounding and clamped).

        Returns
        -------
        Tensor, the shape and dtype of `u`
            ``u = 0`` gives exactly `minimum`.

        Raises
        ------
        TypeError
            Not a floating tensor.
        ValueError
            NaN or a value outside [0, 1].
        """
        return self._bend(_checks.unit(u))

    def to_unit(self, value: Tensor) -> Tensor:
        """Inverse of `from_unit`.

        Parameters
        ----------
        value : Tensor, any shape, floating
            In [minimum, maximum]; a millionth of the width beyond is clamped.

        Raises
        ------
        TypeError
            Not a floating tensor.
        ValueError
            NaN or a value outside the range.
        """
        value = _checks.floating("value", value)
        fraction = (value - self.minimum) / (self.maximum - self.minimum)
        if fraction.numel():
            low, high = fraction.detach().aminmax()
            if not (low >= -_checks.TOLERANCE and high <= 1 + _checks.TOLERANCE):
                raise ValueError(
                    f"values must lie in [{self.minimum:g}, {self.maximum:g}]; "
                    f"got {value.min().item():g} to {value.max().item():g}"
                )
        fraction = fraction.clamp(0, 1)
        if not self.symmetric:
            return fraction**self.curve
        d = 2 * fraction - 1
        return (1 + d.sign() * d.abs() ** self.curve) / 2

    def _bend(self, u: Tensor) -> Tensor:
        if not self.symmetric:
            return self.minimum + (self.maximum - self.minimum) * u ** (1 / self.curve)
        d = 2 * u - 1
        return self.minimum + (self.maximum - self.minimum) / 2 * (1 + d.sign() * d.abs() ** (1 / self.curve))


def voice_parameters(noise_curve: float = 1.0) -> tuple[tuple[str, ParameterRange], ...]:
    """The 78 parameters of `Voice`, in the order of its input vector.

    Parameters
    ----------
    noise_curve : float, default 1.0
        Curve of the noise level. The released code declares 0.025 but does not apply it
        (errata of the chapter); 1.0 is what it does.

    Returns
    -------
    tuple of (name, ParameterRange)
        Modules in alphabetical order, parameters alphabetical inside each, matrices row by row.
    """
    adsr = {
        "alpha": ParameterRange(0.1, 6.0),
        "attack": ParameterRange(0.0, 2.0, 0.5),
        "decay": ParameterRange(0.0, 2.0, 0.5),
        "release": ParameterRange(0.0, 5.0, 0.5),
        "sustain": ParameterRange(0.0, 1.0),
    }
    share = ParameterRange(0.0, 1.0)
    lfo = {
        "frequency": ParameterRange(0.0, 20.0, 0.25),
        "initial_phase": ParameterRange(-math.pi, math.pi),
        "mod_depth": ParameterRange(-10.0, 20.0, 0.5, symmetric=True),
        **{shape: share for shape in ("rsaw", "saw", "sin", "sqr", "tri")},
    }
    vco = {
        "initial_phase": ParameterRange(-math.pi, math.pi),
        "mod_depth": ParameterRange(-96.0, 96.0, 0.2, symmetric=True),
        "tuning": ParameterRange(-24.0, 24.0),
    }
    modules = {
        "adsr_1": adsr,
        "adsr_2": adsr,
        "keyboard": {"duration": ParameterRange(0.01, 4.0, 0.5), "midi_f0": ParameterRange(0.0, 127.0)},
        "lfo_1": lfo,
        "lfo_1_amp_adsr": adsr,
        "lfo_1_rate_adsr": adsr,
        "lfo_2": lfo,
        "lfo_2_amp_adsr": adsr,
        "lfo_2_rate_adsr": adsr,
        "mixer": {"level[0]": share, "level[1]": share, "level[2]": ParameterRange(0.0, 1.0, noise_curve)},
        "mod_matrix": {f"mod[{i},{j}]": ParameterRange(0.0, 1.0, 0.5) for i in range(5) for j in range(4)},
        "vco_1": vco,
        "vco_2": {**vco, "shape": share},
    }
    return tuple(
        (f"{module}.{name}", ranges[name])
        for module, ranges in sorted(modules.items())
        for name in sorted(ranges)
    )


#: The 78 parameters as the released code effectively has them.
PARAMETERS: tuple[tuple[str, ParameterRange], ...] = voice_parameters()

#: Column of each parameter in a unit vector.
COLUMNS: dict[str, int] = {name: index for index, (name, _) in enumerate(PARAMETERS)}


def unpack_parameters(u: Tensor) -> dict[str, Tensor]:
    """Values in human units, by name.

    Parameters
    ----------
    u : Tensor, shape (..., 78), floating
        Unit parameters in the order of `PARAMETERS`.

    Returns
    -------
    dict of str to Tensor, each of shape (...)
        Seconds, hertz, semitones, radians or levels; the dtype of `u`.

    Raises
    ------
    TypeError
        Not a floating tensor.
    ValueError
        The last axis is not 78 long, or a value is NaN or outside [0, 1].
    """
    u = _checks.floating("unit parameters", u)
    if u.ndim == 0 or u.shape[-1] != len(PARAMETERS):
        raise ValueError(f"expected unit parameters of shape (..., {len(PARAMETERS)}); got {tuple(u.shape)}")
    columns = torch.unbind(_checks.unit(u), dim=-1)
    return {name: span._bend(column) for (name, span), column in zip(PARAMETERS, columns, strict=True)}
