r"""What a photographer would use instead: lossless codecs, JPEG 2000, and a denoiser before it.

All of them see the same calibrated signal as the codec, and all bits are counted on real files:
8 bits a byte, headers included, over the number of photosites.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import imagecodecs
import numpy as np
import torch
from torch import Tensor

from .anscombe import inverse_generalized_anscombe
from .bayer import pack_bayer, unpack_bayer
from .data import Shot
from .metrics import psnr, upper_envelope
from .wavelets import denoise_wavelet

__all__ = [
    "LOSSLESS",
    "Setting",
    "bits_per_photosite",
    "envelope",
    "j2k_planes",
    "lossless_bpp",
    "lossy_picture",
    "lossy_settings",
]

Encode = Callable[[np.ndarray], bytes]

#: Lossless coders of one 16-bit plane.
LOSSLESS: dict[str, Encode] = {
    "JPEG 2000": lambda plane: imagecodecs.jpeg2k_encode(plane, level=0, reversible=True, codecformat="j2k"),
    "JPEG-LS": lambda plane: imagecodecs.jpegls_encode(plane),
    "PNG": lambda plane: imagecodecs.png_encode(plane),
}
#: Minimum and maximum of the plane set (float64 each), so that planes fill the 16-bit range.
RANGE_BYTES = 16


def bits_per_photosite(size: int, mosaic: Tensor) -> float:
    """Bits a photosite of a file of `size` bytes."""
    return 8 * size / mosaic.numel()


def lossless_bpp(raw: Tensor, coder: str = "JPEG 2000") -> float:
    """Bits a photosite of a mosaic of whole numbers in [0, 65535], its planes coded one by one."""
    planes = pack_bayer(raw).numpy().astype(np.uint16)
    return bits_per_photosite(sum(len(LOSSLESS[coder](plane)) for plane in planes), raw)


def j2k_planes(planes: np.ndarray, level: float) -> tuple[bytes, np.ndarray]:
    """Lossy JPEG 2000 of a set of real-valued planes at a target PSNR in dB.

    Parameters
    ----------
    planes : ndarray, shape (4, h, w)
    level : float
        Target PSNR of the stretched planes against themselves.

    Returns
    -------
    (bytes, ndarray)
        The file (range header and four code streams), and what it decodes to.
    """
    low, high = float(planes.min()), float(planes.max())
    step = max(high - low, 1e-12) / 65535
    stretched = np.round((planes - low) / step).astype(np.uint16)
    streams = [imagecodecs.jpeg2k_encode(plane, level=level, codecformat="j2k") for plane in stretched]
    decoded = np.stack([imagecodecs.jpeg2k_decode(stream) for stream in streams])
    file = struct.pack("<dd", low, high) + b"".join(streams)
    return file, decoded.astype(np.float64) * step + low


class Setting(NamedTuple):
    """One setting of lossy JPEG 2000 and what came of it: bits a photosite, PSNR against clean in dB."""

    domain: str
    level: float
    bpp: float
    psnr: float


def lossy_settings(
    shot: Shot, peak: float, levels: Sequence[float], *, denoise: bool = False, most_bpp: float = math.inf
) -> list[Setting]:
    """JPEG 2000 over target qualities and over two domains, linear and stabilised.

    Parameters
    ----------
    shot : Shot
    peak : float
        DN of white.
    levels : sequence of float
        Target PSNRs in dB, rising.
    denoise : bool, default False
        Shrink wavelet coefficients of the stabilised planes first.
    most_bpp : float
        The sweep of a domain ends at the first file that is larger.

    Returns
    -------
    list of Setting
    """
    found = []
    for domain in ("linear", "stabilised"):
        planes = _planes(shot, domain, denoise)
        for level in levels:
            file, picture = _coded(shot, planes, domain, level)
            bpp = bits_per_photosite(len(file), picture)
            found.append(Setting(domain, float(level), bpp, float(psnr(picture, shot.clean, peak))))
            if bpp > most_bpp:
                break
    return found


def envelope(
    settings: Sequence[Setting], levels: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Best PSNR for the bits over all settings (or those of some levels): rates and PSNRs, both rising."""
    kept = [s for s in settings if levels is None or s.level in levels]
    return upper_envelope(np.array([s.bpp for s in kept]), np.array([s.psnr for s in kept]))


def lossy_picture(shot: Shot, setting: Setting, *, denoise: bool) -> Tensor:
    """Decoded mosaic of one setting, in DN above black."""
    return _coded(shot, _planes(shot, setting.domain, denoise), setting.domain, setting.level)[1]


def _planes(shot: Shot, domain: str, denoise: bool) -> np.ndarray:
    stabilised = shot.planes.double()
    if denoise:
        stabilised = torch.stack([torch.from_numpy(denoise_wavelet(p.numpy(), 1.0)) for p in stabilised])
    if domain == "stabilised":
        return stabilised.numpy()
    if denoise:
        found = shot.calibration
        return inverse_generalized_anscombe(stabilised, found.gain, found.read_std).numpy()
    return pack_bayer(shot.linear).double().numpy()


def _coded(shot: Shot, planes: np.ndarray, domain: str, level: float) -> tuple[bytes, Tensor]:
    file, decoded = j2k_planes(planes, level)
    signal = torch.from_numpy(decoded)
    if domain == "stabilised":
        signal = inverse_generalized_anscombe(signal, shot.calibration.gain, shot.calibration.read_std)
    return file, unpack_bayer(signal).to(shot.clean)
