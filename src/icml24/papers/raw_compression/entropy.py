r"""From latents to bits: the discretised Gaussian, and a range coder that spends those bits.

Section "What a latent costs": eq-raw_compression-bin, eq-raw_compression-dither and
eq-raw_compression-coder. Coding is constriction's; this module only feeds it.
"""

from __future__ import annotations

import math
from numbers import Real

import constriction
import numpy as np
import torch
from torch import Tensor

from ._checks import floating, number

__all__ = ["RangeReader", "RangeWriter", "discretized_gaussian", "gaussian_bits"]

#: Greatest magnitude of a symbol, as far as two bytes of the header reach.
GREATEST_BOUND = 65535
#: The coder counts probabilities in units of 2**-24 and leaves at least one to every symbol.
COUNTS = 2.0**-24


def discretized_gaussian(
    v: Tensor, mean: Tensor | float, scale: Tensor | float, *, floor: float = 1e-9
) -> Tensor:
    r"""Probability that a Gaussian falls into the unit bin around `v`.

    .. math:: p = \Phi\Bigl(\frac{1/2 - |v - \mu|}{\sigma}\Bigr) - \Phi\Bigl(\frac{-1/2 - |v - \mu|}{\sigma}\Bigr)

    Parameters
    ----------
    v : Tensor, floating
        Centre of the bin; need not be a whole number.
    mean, scale : Tensor, floating, or float
        Broadcast against `v`; scales positive.
    floor : float, default 1e-9
        Least probability returned, so that no symbol costs more than ``-log2(floor)`` bits.

    Returns
    -------
    Tensor
        Broadcast shape, in ``[floor, 1]``. Tails keep their relative precision down to the floor,
        as both terms are taken from the lower tail.

    Raises
    ------
    TypeError
        An argument is not a floating tensor.
    ValueError
        A scale is not positive, or `floor` is outside [0, 1).

    Notes
    -----
    Source: eq-raw_compression-bin. Differentiable in `v`, `mean` and `scale` above the floor.
    """
    floating("v", v)
    mean, scale = (
        v.new_tensor(number(name, x)) if isinstance(x, Real) else floating(name, x)
        for name, x in (("mean", mean), ("scale", scale))
    )
    if not 0 <= number("floor", floor) < 1:
        raise ValueError(f"floor must lie in [0, 1); got {floor}")
    if not bool((scale > 0).all()):
        raise ValueError("scale must be positive everywhere (and not NaN)")
    return _bin_probability(v, mean, scale, floor)


def gaussian_bits(v: Tensor, mean: Tensor | float, scale: Tensor, *, floor: float = 1e-9) -> Tensor:
    """Information of `v` under the discretised Gaussian, in bits, value by value (scales not checked)."""
    return -torch.log2(_bin_probability(v, mean, scale, floor))


class RangeWriter:
    """Collects whole numbers with their Gaussian models, and gives bytes."""

    def __init__(self) -> None:
        self._coder = constriction.stream.queue.RangeEncoder()

    def write(self, symbols: Tensor, mean: Tensor | float, scale: Tensor, bound: int) -> None:
        """Code `symbols`, each of magnitude at most `bound`, under N(mean, scale**2) in unit bins."""
        values = symbols.detach().to(torch.int32).flatten().numpy()
        self._coder.encode(values, _model(bound), *_parameters(symbols, mean, scale))

    def bytes(self) -> bytes:
        """Everything written, as little-endian 32-bit words."""
        return self._coder.get_compressed().astype("<u4").tobytes()


class RangeReader:
    """Reads back what a `RangeWriter` wrote, in the same order and under the same models."""

    def __init__(self, data: bytes) -> None:
        if len(data) % 4:
            raise ValueError(f"a range-coded payload has whole 32-bit words; got {len(data)} bytes")
        words = np.frombuffer(data, dtype="<u4").astype(np.uint32)
        self._coder = constriction.stream.queue.RangeDecoder(words)

    def read(self, mean: Tensor | float, scale: Tensor, bound: int) -> Tensor:
        """Whole numbers in the shape and dtype of `scale`.

        Raises
        ------
        ValueError
            The payload cannot have been coded under these models.
        """
        try:
            values = self._coder.decode(_model(bound), *_parameters(scale, mean, scale))
        except (ValueError, AssertionError, RuntimeError) as error:  # words that no encoder writes
            raise ValueError("the payload is damaged: the range decoder left its interval") from error
        return torch.from_numpy(np.asarray(values)).reshape(scale.shape).to(scale.dtype)


def symbol_bound(symbols: Tensor) -> int:
    """Greatest magnitude among whole numbers, at least 1."""
    if not bool(torch.isfinite(symbols).all()):
        raise ValueError("latents are not finite: the weights or the input hold NaN or infinities")
    bound = max(1, int(symbols.abs().max()))
    if bound > GREATEST_BOUND:
        raise ValueError(
            f"a latent has magnitude {bound}, more than the {GREATEST_BOUND} a stream can hold: "
            "the input lies far outside what the codec was trained on"
        )
    return bound


def coded_probability(v: Tensor, mean: Tensor, scale: Tensor, bound: int) -> Tensor:
    """Probability that the coder itself gives to whole numbers `v`: its units added to every bin.

    The range ``-bound ... bound`` is all there is, so end bins hold the tails; what remains after one
    unit of 2**-24 for every symbol is shared in proportion to the Gaussian.
    """
    below = torch.where(v <= -bound, -math.inf, v - 0.5)
    above = torch.where(v >= bound, math.inf, v + 0.5)
    normal = torch.distributions.Normal(mean, scale)
    inside = normal.cdf(above) - normal.cdf(below)
    return (1 - (2 * bound + 1) * COUNTS) * inside + COUNTS


def _bin_probability(v: Tensor, mean: Tensor | float, scale: Tensor, floor: float) -> Tensor:
    distance = (v - mean).abs()
    unit = math.sqrt(0.5) / scale
    upper = torch.erfc((distance - 0.5) * unit)
    lower = torch.erfc((distance + 0.5) * unit)
    return (0.5 * (upper - lower)).clamp(min=floor)


def _model(bound: int) -> constriction.stream.model.QuantizedGaussian:
    return constriction.stream.model.QuantizedGaussian(-bound, bound)


def _parameters(like: Tensor, mean: Tensor | float, scale: Tensor) -> tuple[np.ndarray, np.ndarray]:
    means = torch.as_tensor(mean, dtype=torch.float64).expand(like.shape)
    return tuple(x.detach().double().expand(like.shape).flatten().numpy().copy() for x in (means, scale))
