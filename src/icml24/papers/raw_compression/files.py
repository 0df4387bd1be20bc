r"""Raw files in, streams out: calibration, packing and stabilisation around the codec.

Section "The algorithm": the encoder's and the decoder's steps in order. The fixed pattern is
subtracted after the integers have been read, and never transmitted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._checks import finite, floating, mosaic_shape, number, positive
from .anscombe import generalized_anscombe, inverse_generalized_anscombe
from .bayer import pack_bayer, unpack_bayer
from .codec import RawCodec
from .sensor import Calibration

__all__ = ["compress_raw", "decompress_raw", "stabilise"]


def stabilise(mosaic: Tensor, calibration: Calibration, *, black_level: float = 512.0) -> Tensor:
    """Packed planes of unit noise variance from a raw mosaic, shape (..., H, W) to (..., 4, H/2, W/2).

    Raises
    ------
    TypeError
        `mosaic` is not a floating tensor.
    ValueError
        Odd size, NaN or infinities, a fixed pattern of another size, a calibration out of range.
    """
    finite("mosaic", floating("mosaic", mosaic))
    mosaic_shape("mosaic", mosaic)
    number("black_level", black_level)
    pattern = calibration.fixed_pattern
    if pattern.shape != mosaic.shape[-2:]:
        raise ValueError(
            f"the calibration's fixed pattern covers {tuple(pattern.shape)} photosites, the mosaic "
            f"{tuple(mosaic.shape[-2:])}: crop the pattern to the mosaic's window of the sensor"
        )
    signal = mosaic - (black_level + finite("fixed_pattern", pattern).to(mosaic))
    return generalized_anscombe(pack_bayer(signal), calibration.gain, calibration.read_std)


def compress_raw(
    mosaic: Tensor, calibration: Calibration, codec: RawCodec, level: int, *, black_level: float = 512.0
) -> bytes:
    """Write the clean signal of a noisy raw mosaic to a stream.

    Parameters
    ----------
    mosaic : Tensor, shape (H, W), even H and W, floating
        RGGB raw values in DN, black level included.
    calibration : Calibration
        Of the camera at this gain setting; its `fixed_pattern` covers the mosaic's window.
    codec : RawCodec
        Trained for planes stabilised with this gain and read noise.
    level : int
        Rate, ``0 <= level < codec.config.n_levels``.
    black_level : float, default 512.0

    Returns
    -------
    bytes
        Gain and read noise travel in the header (float32 each), the fixed pattern does not.

    Raises
    ------
    TypeError
        `mosaic` is not a floating tensor, `level` is no integer.
    ValueError
        Odd size, more than one mosaic, NaN or infinities, a pattern of another size, a
        calibration out of range, level out of range.
    """
    floating("mosaic", mosaic)
    if mosaic.dim() != 2:
        raise ValueError(f"mosaic must have shape (H, W), one picture; got {tuple(mosaic.shape)}")
    gain = _as_float32(positive("gain", calibration.gain))
    read_std = _as_float32(number("read_std", calibration.read_std, least=0.0))
    shared = Calibration(gain, read_std, calibration.fixed_pattern, calibration.mean, calibration.variance)
    planes = stabilise(mosaic, shared, black_level=black_level)  # with the numbers the decoder will read
    return codec.encode(planes[None].to(codec.log_gain.dtype), level, gain=gain, read_std=read_std)


def decompress_raw(data: bytes, codec: RawCodec) -> Tensor:
    """Reconstruct the clean signal that `compress_raw` wrote.

    Parameters
    ----------
    data : bytes
    codec : RawCodec
        The weights that wrote the stream.

    Returns
    -------
    Tensor, shape (H, W)
        RGGB signal in DN above black, zero or positive, in the dtype of the weights. For a raw file
        of whole numbers, add the black level, round and clip.

    Raises
    ------
    TypeError
        `data` is not bytes.
    ValueError
        Truncated, altered or foreign stream, other weights, or a stream of bare planes.
    """
    planes, header = codec.decode(data)
    if header.gain <= 0:
        raise ValueError("the stream holds bare planes, without gain and read noise: use codec.decompress")
    return unpack_bayer(inverse_generalized_anscombe(planes[0], header.gain, header.read_std))


def _as_float32(value: float) -> float:
    out = float(torch.tensor(value, dtype=torch.float32))
    if not math.isfinite(out) or (value > 0 and out == 0):
        raise ValueError(f"{value!r} cannot travel in the header as a 32-bit number")
    return out
