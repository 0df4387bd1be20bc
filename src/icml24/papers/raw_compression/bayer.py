r"""Bayer mosaics: packing to planes, and a small camera pipeline in both directions.

A mosaic holds one colour a photosite, in cells of 2 x 2. The pipeline serves pictures, sRGB
figures and the making of test scenes from photographs; the codec itself never leaves the raw.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ._checks import finite, floating, mosaic_shape

__all__ = ["PATTERNS", "mosaic_from_srgb", "pack_bayer", "srgb_from_mosaic", "unpack_bayer"]

#: Row and column of R, G on the red row, G on the blue row and B within a cell, by pattern.
PATTERNS: dict[str, tuple[tuple[int, int], ...]] = {
    "RGGB": ((0, 0), (0, 1), (1, 0), (1, 1)),
    "BGGR": ((1, 1), (1, 0), (0, 1), (0, 0)),
    "GRBG": ((0, 1), (0, 0), (1, 1), (1, 0)),
    "GBRG": ((1, 0), (1, 1), (0, 0), (0, 1)),
}
#: White balance of R, G and B, and camera RGB to linear sRGB (rows sum to one: grey stays grey).
WHITE_BALANCE = (2.0, 1.0, 1.7)
CAMERA_TO_SRGB = ((1.7, -0.5, -0.2), (-0.25, 1.5, -0.25), (0.0, -0.6, 1.6))


def pack_bayer(mosaic: Tensor, pattern: str = "RGGB") -> Tensor:
    """Sort the photosites of a mosaic into four planes of half the size.

    Parameters
    ----------
    mosaic : Tensor, shape (..., H, W), even H and W
        Any dtype.
    pattern : {"RGGB", "BGGR", "GRBG", "GBRG"}
        Colours of the top left cell, row by row.

    Returns
    -------
    Tensor, shape (..., 4, H/2, W/2)
        Planes R, G on the red row, G on the blue row, B; dtype of `mosaic`.

    Raises
    ------
    TypeError
        `mosaic` is no tensor.
    ValueError
        Odd size or unknown pattern.
    """
    if not isinstance(mosaic, Tensor):
        raise TypeError(f"mosaic must be a torch tensor; got {type(mosaic).__name__}")
    places = _places(pattern)
    mosaic_shape("mosaic", mosaic)
    return torch.stack([mosaic[..., row::2, column::2] for row, column in places], dim=-3)


def unpack_bayer(planes: Tensor, pattern: str = "RGGB") -> Tensor:
    """Put four planes back into a mosaic; the inverse of `pack_bayer`.

    Parameters
    ----------
    planes : Tensor, shape (..., 4, h, w)
        R, G on the red row, G on the blue row, B.
    pattern : {"RGGB", "BGGR", "GRBG", "GBRG"}

    Returns
    -------
    Tensor, shape (..., 2h, 2w)
        Dtype of `planes`.

    Raises
    ------
    TypeError
        `planes` is no tensor.
    ValueError
        Not four planes, or unknown pattern.
    """
    if not isinstance(planes, Tensor):
        raise TypeError(f"planes must be a torch tensor; got {type(planes).__name__}")
    places = _places(pattern)
    if planes.dim() < 3 or planes.shape[-3] != 4:
        raise ValueError(f"planes must have shape (..., 4, h, w); got {tuple(planes.shape)}")
    *batch, _, h, w = planes.shape
    order = sorted(range(4), key=lambda plane: places[plane])  # reading order within a cell
    cells = planes[..., order, :, :].reshape(*batch, 2, 2, h, w)
    return cells.movedim((-4, -3), (-3, -1)).reshape(*batch, 2 * h, 2 * w)


def mosaic_from_srgb(rgb: Tensor) -> Tensor:
    """Undo a camera's pipeline: an sRGB picture becomes a linear RGGB mosaic.

    Parameters
    ----------
    rgb : Tensor, shape (H, W, 3), floating, in [0, 1]
        Even H and W.

    Returns
    -------
    Tensor, shape (H, W)
        Linear signal as a share of full scale, in [0, 1]; dtype of `rgb`.

    Raises
    ------
    TypeError
        `rgb` is not a floating tensor.
    ValueError
        Wrong shape, odd size, values outside [0, 1] or not finite.
    """
    finite("rgb", floating("rgb", rgb))
    if rgb.dim() != 3 or rgb.shape[-1] != 3:
        raise ValueError(f"rgb must have shape (H, W, 3); got {tuple(rgb.shape)}")
    mosaic_shape("rgb without its colours", rgb[..., 0])
    low, high = rgb.detach().aminmax()
    if float(low) < 0 or float(high) > 1:
        raise ValueError(f"rgb must lie in [0, 1]; got {low:g} to {high:g}: divide bytes by 255")
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055).pow(2.4))
    to_camera = torch.linalg.inv(torch.tensor(CAMERA_TO_SRGB, dtype=torch.float64)).to(rgb)
    camera = (linear @ to_camera.T / rgb.new_tensor(WHITE_BALANCE)).clamp(0, 1)
    red, green, blue = camera.unbind(-1)
    planes = [red[0::2, 0::2], green[0::2, 1::2], green[1::2, 0::2], blue[1::2, 1::2]]
    return unpack_bayer(torch.stack(planes))


def srgb_from_mosaic(mosaic: Tensor) -> Tensor:
    """Develop a linear RGGB mosaic to an sRGB picture.

    Bilinear demosaicing by normalised convolution, white balance, camera matrix, clip, sRGB curve.

    Parameters
    ----------
    mosaic : Tensor, shape (H, W), floating
        Share of the exposure-scaled white; even H and W.

    Returns
    -------
    Tensor, shape (H, W, 3)
        In [0, 1]; dtype of `mosaic`.

    Raises
    ------
    TypeError
        `mosaic` is not a floating tensor.
    ValueError
        Wrong shape, odd size, values not finite.
    """
    finite("mosaic", floating("mosaic", mosaic))
    if mosaic.dim() != 2:
        raise ValueError(f"mosaic must have shape (H, W); got {tuple(mosaic.shape)}")
    mosaic_shape("mosaic", mosaic)
    camera = _demosaic(mosaic) * mosaic.new_tensor(WHITE_BALANCE)
    linear = (camera @ mosaic.new_tensor(CAMERA_TO_SRGB).T).clamp(0, 1)
    bright = 1.055 * linear.clamp(min=0.0031308).pow(1 / 2.4) - 0.055
    return torch.where(linear <= 0.0031308, 12.92 * linear, bright)


def _places(pattern: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(pattern, str) or pattern not in PATTERNS:
        raise ValueError(f"unknown Bayer pattern {pattern!r}; expected one of {sorted(PATTERNS)}")
    return PATTERNS[pattern]


def _demosaic(mosaic: Tensor) -> Tensor:
    masks = torch.zeros(3, *mosaic.shape, dtype=mosaic.dtype, device=mosaic.device)
    for color, (row, column) in zip((0, 1, 1, 2), PATTERNS["RGGB"], strict=True):
        masks[color, row::2, column::2] = 1
    cross, square = ([[0, 1, 0], [1, 4, 1], [0, 1, 0]], [[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    kernels = mosaic.new_tensor([square, cross, square])[:, None] / 4

    def spread(x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x[None], (1, 1, 1, 1), mode="reflect"), kernels, groups=3)[0]

    return (spread(masks * mosaic) / spread(masks)).movedim(0, -1)
