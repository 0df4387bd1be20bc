r"""Scenes and exposures: photographs that ship with Python packages, turned into noisy raw files.

Credits, as the packages state them where they do:

* *Training scenes*: scikit-image `astronaut` (NASA, public domain), `coffee` (Rachel Michetti, CC0),
  `rocket` (SpaceX, public domain), `motorcycle_left` (Middlebury 2014 stereo benchmark, no licence
  stated), `ihc` (Center for Microscopy and Molecular Imaging, no known restrictions), `color` (none
  stated); scikit-learn `flower` (flickr vultilion, CC BY 2.0).
* *Test scenes*: scikit-image `chelsea` (Stefan van der Walt, CC0), scikit-learn `china` (flickr
  danielbuechele, CC BY 2.0), matplotlib `grace_hopper` (US Navy, public domain).

Pictures are sRGB bytes, cropped to multiples of 32 and turned into linear RGGB mosaics by the inverse
of a camera's pipeline. They are *clean by definition*: some are JPEG files and carry its artefacts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from icml24.common.packages import package_folder
from icml24.common.random import generator

from .anscombe import expected_anscombe
from .bayer import mosaic_from_srgb, pack_bayer
from .files import stabilise
from .sensor import Calibration, SensorModel, calibrate, simulate_raw

__all__ = [
    "BRACKET",
    "EXPOSURES",
    "TEST_SCENES",
    "TRAINING_SCENES",
    "Camera",
    "Exposure",
    "Shot",
    "fixed_pattern",
    "scene",
    "shoot",
]

#: Package and path within it of every scene.
_FILES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "motorcycle_left": ("skimage", "data/motorcycle_left.png"),
    "ihc": ("skimage", "data/ihc.png"),
    "color": ("skimage", "data/color.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "grace_hopper": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
}
TRAINING_SCENES = ("astronaut", "coffee", "rocket", "motorcycle_left", "ihc", "color", "flower")
TEST_SCENES = ("chelsea", "china", "grace_hopper")
#: Photosites of the sensor: holds every scene. A smaller picture sits in its top left corner.
SENSOR_SIZE = (608, 736)
CROP = 32
#: Light of the training exposures: few of the seven scenes are bright, so each is also taken at twice its light.
BRACKET = (1.0, 2.0)
BIAS_FRAMES = 32
#: Light levels of the flats, as shares of the range above black.
FLAT_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)


@dataclass(frozen=True)
class Exposure:
    """One gain setting with the light of its hour.

    Attributes
    ----------
    name : str
    sensor : SensorModel
    ev : float
        Exposure: share of the range above black that white reaches.
    """

    name: str
    sensor: SensorModel
    ev: float

    @property
    def peak(self) -> float:
        """DN above black of white: the peak of every PSNR."""
        return self.ev * (self.sensor.white_level - self.sensor.black_level)


#: Three hours of a day: less light, more gain, more read noise in DN.
EXPOSURES = {
    "night": Exposure("night", SensorModel(gain=16.0, read_std=20.0), 0.03),
    "dusk": Exposure("dusk", SensorModel(gain=8.0, read_std=12.0), 0.12),
    "day": Exposure("day", SensorModel(gain=2.0, read_std=4.0), 0.5),
}


@dataclass(frozen=True)
class Camera:
    """A calibrated camera at one exposure: the truth for simulation, the estimates for everything else."""

    exposure: Exposure
    pattern: Tensor
    calibration: Calibration
    bias_frames: Tensor

    def window(self, height: int, width: int) -> Calibration:
        """The calibration, its pattern cropped to the top left window of the sensor."""
        c = self.calibration
        return Calibration(c.gain, c.read_std, c.fixed_pattern[:height, :width], c.mean, c.variance)


@dataclass(frozen=True)
class Shot:
    """One scene as the sensor saw it.

    Attributes
    ----------
    name : str
    clean : Tensor, shape (H, W)
        The signal, in DN above black. Used to judge, and to train the oracle.
    raw : Tensor, shape (H, W)
        The integers of the file.
    calibration : Calibration
        Estimates, for this window.
    planes : Tensor, shape (4, H/2, W/2)
        Stabilised raw: all that the self-supervised codec ever sees.
    clean_planes : Tensor, shape (4, H/2, W/2)
        Stabilised clean signal; the oracle's target.
    """

    name: str
    clean: Tensor
    raw: Tensor
    calibration: Calibration
    planes: Tensor
    clean_planes: Tensor

    @property
    def linear(self) -> Tensor:
        """The raw with black level and calibrated pattern subtracted: the noisy picture, in DN above black."""
        return self.raw - 512.0 - self.calibration.fixed_pattern


@cache
def scene(name: str) -> Tensor:
    """Linear mosaic of a scene in [0, 1], shape (H, W) in multiples of 32, float32.

    Raises
    ------
    ValueError
        Unknown name; the message lists those there are.
    """
    from PIL import Image

    if name not in _FILES:
        raise ValueError(f"unknown scene {name!r}; expected one of {sorted(_FILES)}")
    package, path = _FILES[name]
    with Image.open(package_folder(package) / path) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=np.float32) / 255
    height, width = (side - side % CROP for side in pixels.shape[:2])
    return mosaic_from_srgb(torch.from_numpy(pixels[:height, :width].copy()))


def fixed_pattern(seed: int, *, pixel_std: float = 3.0, column_std: float = 4.0) -> Tensor:
    """Offsets of every photosite of the sensor in DN: one number a photosite plus one a column."""
    g = generator(seed, "raw_compression", "fixed pattern")
    pixels = torch.randn(SENSOR_SIZE, generator=g)
    columns = torch.randn(SENSOR_SIZE[1], generator=g)
    return pixel_std * pixels + column_std * columns


def camera(seed: int, exposure: Exposure, *, column_std: float = 4.0) -> Camera:
    """Simulate 32 dark frames and 6 pairs of flats, and calibrate from them."""
    g = generator(seed, "raw_compression", "calibration", exposure.name)
    sensor, pattern = exposure.sensor, fixed_pattern(seed, column_std=column_std)
    dark = torch.zeros(BIAS_FRAMES, *SENSOR_SIZE)
    bias = simulate_raw(dark, sensor, fixed_pattern=pattern, generator=g)
    light = torch.tensor(FLAT_LEVELS) * (sensor.white_level - sensor.black_level)
    flats = light[:, None, None, None].expand(-1, 2, *SENSOR_SIZE)
    pairs = simulate_raw(flats, sensor, fixed_pattern=pattern, generator=g)
    found = calibrate(bias, pairs, black_level=sensor.black_level)
    return Camera(exposure, pattern, found, bias[:2].clone())


def shoot(name: str, camera: Camera, seed: int, *, light: float = 1.0, subtract: bool = True) -> Shot:
    """Expose a scene once.

    Parameters
    ----------
    name : str
    camera : Camera
    seed : int
    light : float, default 1.0
        Multiplies the scene's light, as bracketing does: a bright day's sky in a dark scene's place.
    subtract : bool, default True
        Off: the fixed pattern stays in what the codec sees.

    Returns
    -------
    Shot
    """
    exposure = camera.exposure
    clean = scene(name) * (exposure.peak * light)
    height, width = clean.shape
    g = generator(seed, "raw_compression", "noise", exposure.name, name, f"{light:g}")
    pattern = camera.pattern[:height, :width]
    raw = simulate_raw(clean, exposure.sensor, fixed_pattern=pattern, generator=g)
    found = camera.window(height, width)
    if not subtract:
        blank = torch.zeros_like(found.fixed_pattern)
        found = Calibration(found.gain, found.read_std, blank, found.mean, found.variance)
    return Shot(
        name,
        clean,
        raw,
        found,
        planes=stabilise(raw, found, black_level=exposure.sensor.black_level),
        clean_planes=expected_anscombe(pack_bayer(clean), found.gain, found.read_std),
    )
