r"""Compressing the clean signal of a noisy raw picture, self-supervised (Li et al., ICML 2024).

Sensor and calibration (`SensorModel` ... `calibrate`), the scale of unit noise, Bayer planes,
recorrupted pairs, the codec with its real bitstreams, and measures of rate and distortion. Signals
are tensors in digital numbers above black; randomness comes from the generator given.
"""

from .anscombe import generalized_anscombe, inverse_generalized_anscombe
from .bayer import mosaic_from_srgb, pack_bayer, srgb_from_mosaic, unpack_bayer
from .codec import CodecConfig, CodecOutput, RawCodec
from .entropy import discretized_gaussian
from .files import compress_raw, decompress_raw
from .metrics import bd_psnr, bd_rate, psnr
from .objective import rate_distortion_loss
from .recorruption import recorrupt, recorrupt_poisson_gaussian
from .sensor import Calibration, SensorModel, calibrate, simulate_raw

__all__ = [
    "Calibration",
    "CodecConfig",
    "CodecOutput",
    "RawCodec",
    "SensorModel",
    "bd_psnr",
    "bd_rate",
    "calibrate",
    "compress_raw",
    "decompress_raw",
    "discretized_gaussian",
    "generalized_anscombe",
    "inverse_generalized_anscombe",
    "mosaic_from_srgb",
    "pack_bayer",
    "psnr",
    "rate_distortion_loss",
    "recorrupt",
    "recorrupt_poisson_gaussian",
    "simulate_raw",
    "srgb_from_mosaic",
    "unpack_bayer",
]
