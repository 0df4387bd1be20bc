r"""Wavelet shrinkage, for the baseline that denoises before it compresses.

An orthonormal two-dimensional transform with Daubechies' filter of two vanishing moments, and the
BayesShrink threshold of Chang, Yu and Vetterli (2000), averaged over four shifts (Coifman and Donoho,
1995). Without the shifts it is ``denoise_wavelet`` of scikit-image with ``wavelet="db2"``, which needs
a package of its own.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["denoise_wavelet"]

Array = NDArray[np.float64]

_R3 = math.sqrt(3.0)
#: Daubechies' low-pass filter of four taps, and its mirror, the high-pass filter.
LOW = np.array([1 + _R3, 3 + _R3, 3 - _R3, 1 - _R3]) / (4 * math.sqrt(2.0))
HIGH = LOW[::-1] * np.array([1.0, -1.0, 1.0, -1.0])
#: The smallest side that is split further.
LEAST_SIDE = 24
#: Shifts to average over: where an edge falls between two coefficients should not matter.
SHIFTS = ((0, 0), (0, 1), (1, 0), (1, 1))


def denoise_wavelet(image: Array, sigma: float) -> Array:
    r"""Shrink the wavelet coefficients of an image with white noise of known standard deviation.

    Each detail band of variance :math:`v` is soft-thresholded at
    :math:`\sigma^2 / \sqrt{\max(v - \sigma^2, 0)}`; bands without signal vanish.

    Parameters
    ----------
    image : ndarray, shape (h, w), float64
        Extended by reflection at its borders, which are cut off again.
    sigma : float
        Noise standard deviation, in the units of `image`; positive.

    Returns
    -------
    ndarray, shape (h, w)
    """
    if image.ndim != 2:
        raise ValueError(f"image must have shape (h, w); got {image.shape}")
    if not sigma > 0:
        raise ValueError(f"sigma must be positive; got {sigma}")
    h, w = image.shape
    levels = max(1, int(math.log2(max(min(h, w) / LEAST_SIDE, 2))))
    margin = 3 * 2**levels  # about the reach of the filters at the coarsest level
    pads = [(margin, margin + (-(side + 2 * margin)) % 2**levels) for side in (h, w)]
    padded = np.pad(image, pads, mode="symmetric")
    shifted = [
        np.roll(_denoise(np.roll(padded, s, (0, 1)), sigma, levels), (-s[0], -s[1]), (0, 1)) for s in SHIFTS
    ]
    return np.mean(shifted, axis=0)[margin : margin + h, margin : margin + w]


def split(x: Array) -> tuple[Array, list[Array]]:
    """One level of the periodic transform: coarse band and three detail bands, sides halved."""
    low, high = _analyse(x, 0)
    coarse, *rest = *_analyse(low, 1), *_analyse(high, 1)
    return coarse, rest


def join(coarse: Array, details: list[Array]) -> Array:
    """Inverse of `split`."""
    low = _synthesise(coarse, details[0], 1)
    return _synthesise(low, _synthesise(details[1], details[2], 1), 0)


def _denoise(x: Array, sigma: float, levels: int) -> Array:
    bands = []
    for _ in range(levels):
        x, details = split(x)
        bands.append([_shrink(band, sigma) for band in details])
    for details in reversed(bands):
        x = join(x, details)
    return x


def _analyse(x: Array, axis: int) -> tuple[Array, Array]:
    x = np.moveaxis(x, axis, 0)
    shifted = [np.roll(x, -k, axis=0)[::2] for k in range(4)]
    bands = [sum(c * s for c, s in zip(taps, shifted, strict=True)) for taps in (LOW, HIGH)]
    return np.moveaxis(bands[0], 0, axis), np.moveaxis(bands[1], 0, axis)


def _synthesise(low: Array, high: Array, axis: int) -> Array:
    # the transform is orthonormal: its inverse is its transpose
    low, high = np.moveaxis(low, axis, 0), np.moveaxis(high, axis, 0)
    out = np.zeros((2 * len(low), *low.shape[1:]))
    for k in range(4):
        up = np.zeros_like(out)
        up[::2] = LOW[k] * low + HIGH[k] * high
        out += np.roll(up, k, axis=0)
    return np.moveaxis(out, 0, axis)


def _shrink(band: Array, sigma: float) -> Array:
    signal = max(float(np.mean(band**2)) - sigma**2, 1e-12)
    threshold = sigma**2 / math.sqrt(signal)
    return np.sign(band) * np.maximum(np.abs(band) - threshold, 0)
