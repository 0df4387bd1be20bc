r"""What theory says before anything is trained: who pays bits for noise, and how many.

Section "Who pays for noise?": eq-raw_compression-waterfilling, eq-raw_compression-critical,
eq-raw_compression-entropy and eq-raw_compression-mdl. Rates are in bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._checks import positive
from .sensor import ROUNDING

__all__ = ["CRITICAL_LAMBDA", "mean_noise_entropy", "noise_entropy", "predictable_variance", "waterfill"]

#: Bits per squared unit of noise above which coding unit-variance noise pays for a noisy target.
CRITICAL_LAMBDA = 1 / (2 * math.log(2))


def waterfill(variance: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    r"""Distortion and rate of an ideal code of independent Gaussian components at slope `lam`.

    .. math:: D = \min\Bigl(v, \frac{1}{2 \ln 2\,\lambda}\Bigr), \qquad R = \tfrac12 \log_2 (v / D)

    Parameters
    ----------
    variance : Tensor, any shape, positive
        What the decoder could reproduce of every component.
    lam : float
        Bits per unit of squared error, positive.

    Returns
    -------
    (Tensor, Tensor)
        Distortion and rate of every component, minimising ``R + lam * D``.

    Notes
    -----
    Source: eq-raw_compression-waterfilling.
    """
    level = CRITICAL_LAMBDA / positive("lam", lam)
    distortion = variance.clamp(max=level)
    return distortion, 0.5 * torch.log2(variance / distortion)


def predictable_variance(signal: Tensor, noise: float) -> Tensor:
    r"""Variance of the best estimate of a Gaussian signal from signal plus noise, :math:`S^2 / (S + N)`.

    All that a codec trained on recorrupted pairs can find worth coding: its target's own noise is
    unpredictable from its input.

    Notes
    -----
    Source: eq-raw_compression-critical.
    """
    return signal.square() / (signal + noise)


def noise_entropy(signal: Tensor, gain: float, read_std: float) -> Tensor:
    r"""Entropy of a raw value given the clean signal, Gaussian approximation, in bits.

    .. math:: h = \tfrac12 \log_2\bigl(2 \pi e\,(K x + \sigma_r^2 + \tfrac1{12})\bigr)

    Parameters
    ----------
    signal : Tensor, any shape
        DN above black, zero or positive.
    gain, read_std : float

    Returns
    -------
    Tensor
        No lossless code of the noisy raw spends less on average.

    Notes
    -----
    Source: eq-raw_compression-entropy. Needs noise wide against the step of one DN.
    """
    return 0.5 * torch.log2(2 * math.pi * math.e * (gain * signal + read_std**2 + ROUNDING))


def mean_noise_entropy(signal: Tensor, gain: float, read_std: float) -> float:
    """`noise_entropy` averaged over a mosaic: the bound on bits a photosite."""
    return float(noise_entropy(signal.double(), gain, read_std).mean())


def description_length(bits: Tensor, residual: Tensor) -> Tensor:
    r"""Bits of picture and noise together: `bits`, plus the residual's under the unit Gaussian.

    .. math:: R - \log_2 N(t - \hat t;\, 0, I) = R + \frac{\lVert t - \hat t \rVert^2}{2 \ln 2}
        + \tfrac n2 \log_2 (2 \pi)

    A density's logarithm: bits per unit of the stabilised scale, whatever the final resolution.

    Notes
    -----
    Source: eq-raw_compression-mdl.
    """
    normal = torch.distributions.Normal(0.0, 1.0)
    return bits - normal.log_prob(residual).sum() / math.log(2)
