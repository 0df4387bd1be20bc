r"""Rendered particles: grey crops of the five shapes, drawn, not photographed.

Each particle is one bright body on black, blurred at the rim as under a microscope. The crops
stand in for the data set's electron micrographs, which carry no licence and are never shown.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from icml24.common.random import numpy_generator
from icml24.papers.nanomorphology.generated import SIZES
from icml24.papers.nanomorphology.targets import SHAPES

__all__ = ["render_particle", "render_table"]


def render_particle(
    shape: str, size: float = 0.6, *, pixels: int = 32, generator: np.random.Generator
) -> np.ndarray:
    """One particle with random orientation, position, brightness and grain.

    Parameters
    ----------
    shape : str
        One of `SHAPES`: a shaded cube, a rod, a ball, a thin hexagonal plate or a lump.
    size : float, default 0.6
        Width (length of a rod) as a share of the crop's side, in (0, 1].
    pixels : int, default 32
    generator : numpy.random.Generator

    Returns
    -------
    ndarray, shape (pixels, pixels), float32
        Values in [0, 1].

    Raises
    ------
    ValueError
        Unknown shape or a size out of range.
    """
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}; expected one of {list(SHAPES)}")
    if not 0 < size <= 1:
        raise ValueError(f"size must lie in (0, 1]; got {size}")
    axis = (np.arange(pixels) + 0.5) / pixels * 2 - 1
    y, x = np.meshgrid(axis, axis, indexing="ij")
    shift = generator.uniform(-0.06, 0.06, 2)
    angle = generator.uniform(0, np.pi)
    u = (x - shift[0]) * np.cos(angle) + (y - shift[1]) * np.sin(angle)
    v = -(x - shift[0]) * np.sin(angle) + (y - shift[1]) * np.cos(angle)
    distance, shade = _BODIES[shape](u, v, size, generator)
    body = 1 / (1 + np.exp(np.clip(distance * pixels, -40, 40)))  # rim one pixel wide
    brightness = generator.uniform(0.6, 0.9)
    grain = 1 + 0.05 * generator.standard_normal((pixels, pixels))
    return np.clip(brightness * body * shade * grain, 0, 1).astype(np.float32)


def render_table(frame: pd.DataFrame, *, pixels: int = 32, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """One crop for each row of a labelled table.

    Parameters
    ----------
    frame : pandas.DataFrame
        Labelled table; the crop shows one of the row's shapes, picked at random, at a width that
        grows with the row's mean size of that shape.
    pixels : int, default 32
    seed : int, default 0

    Returns
    -------
    (ndarray of shape (rows, 1, pixels, pixels), list of str)
        Crops and the shape each shows.
    """
    crops, shown = [], []
    for i, row in enumerate(frame.to_dict("records")):
        draw = numpy_generator(seed, "nanomorphology", "particle", i)
        present = [shape for shape in SHAPES if row[shape]]
        shape = present[draw.integers(len(present))]
        relative = (row[f"{shape}_min"] + row[f"{shape}_max"]) / 2 / SIZES[shape][0]
        size = float(np.clip(0.55 * relative, 0.3, 0.85))
        crops.append(render_particle(shape, size, pixels=pixels, generator=draw)[None])
        shown.append(shape)
    return np.stack(crops), shown


def _cube(u, v, size, draw):
    distance = np.maximum(np.abs(u), np.abs(v)) - 0.8 * size
    return distance, np.where(u + v > 0, 1.0, 0.75)  # two faces in view


def _stick(u, v, size, draw):
    thickness = draw.uniform(0.1, 0.18)
    return np.maximum(np.abs(u) - size, np.abs(v) - thickness), 1 - 0.3 * np.abs(v) / thickness


def _sphere(u, v, size, draw):
    radius = 0.9 * size
    r2 = (u**2 + v**2) / radius**2
    return np.sqrt(u**2 + v**2) - radius, 0.4 + 0.6 * np.sqrt(np.clip(1 - r2, 0, 1))


def _flat(u, v, size, draw):
    w = v / draw.uniform(0.35, 0.55)  # a plate seen from the side
    sides = [np.abs(u * np.cos(a) + w * np.sin(a)) for a in (0, np.pi / 3, 2 * np.pi / 3)]
    return np.maximum.reduce(sides) - size, np.full(u.shape, 0.6)


def _lump(u, v, size, draw):
    theta, radius = np.arctan2(v, u), np.full(u.shape, 0.75 * size)
    for k in (2, 3, 5, 7):
        radius = radius + size * draw.normal(0, 0.3 / k) * np.cos(k * theta + draw.uniform(0, 2 * np.pi))
    return np.hypot(u, v) - np.maximum(radius, 0.15 * size), 0.8 + 0.2 * np.cos(9 * u) * np.cos(7 * v)


_BODIES = {"Cube": _cube, "Stick": _stick, "Sphere": _sphere, "Flat": _flat, "Amorphous": _lump}
