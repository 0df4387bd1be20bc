r"""Digit scenes: real handwriting on a grid, with captions and an exact mask for every word.

Handwriting: the test part of the UCI "Optical Recognition of Handwritten Digits" (1,797 images of
8 x 8 with values 0 to 16, Alpaydin and Kaynak, 1998, CC BY 4.0), which ships inside scikit-learn as
`load_digits`; nothing is downloaded. Shapes are analytic. Images are uint8 RGB, masks carry one
class index a pixel, captions are word ids. Images whose index is a multiple of five belong to the
split "test", all others to "train", so no scan is ever seen in both (the writers are not kept apart).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

from icml24.common.random import generator as stream

__all__ = ["CLASSES", "COLOURS", "SceneConfig", "SceneObject", "Scenes", "Vocabulary", "render_scenes"]

#: The fourteen classes; a class index is a place in this tuple.
CLASSES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("circle", "square", "triangle", "cross"),
)
#: Colours and their RGB values.
COLOURS = {"red": (220, 50, 47), "green": (64, 180, 60), "blue": (50, 90, 230), "yellow": (235, 210, 50)}
#: Words without a look of their own.
FUNCTION_WORDS = ("a", "and", "there", "is", "left", "right", "of", "above", "below")
STYLES = ("labels", "sentence")
SPLITS = ("train", "test")


class Vocabulary:
    """Words and their ids; id 0 is padding.

    Attributes
    ----------
    PAD : int
        0.
    CLASSES : tuple of str
    COLOURS : dict of str to RGB
    WORDS : tuple of str
        Word of each id, the padding first.

    Examples
    --------
    >>> Vocabulary.decode(Vocabulary.encode("red seven circle"))
    ['red', 'seven', 'circle']
    """

    PAD: ClassVar[int] = 0
    CLASSES: ClassVar[tuple[str, ...]] = CLASSES
    COLOURS: ClassVar[dict[str, tuple[int, int, int]]] = COLOURS
    WORDS: ClassVar[tuple[str, ...]] = ("<pad>", *CLASSES, *COLOURS, *FUNCTION_WORDS)
    _ids: ClassVar[dict[str, int]] = {word: index for index, word in enumerate(WORDS) if index}

    @classmethod
    def encode(cls, words: str | Iterable[str]) -> list[int]:
        """Ids of the words of a string (split at blanks) or of a sequence; ValueError names unknown ones."""
        listed = words.split() if isinstance(words, str) else list(words)
        unknown = sorted({str(word) for word in listed if word not in cls._ids})
        if unknown:
            raise ValueError(f"unknown words {unknown}; the vocabulary is {cls.WORDS[1:]}")
        return [cls._ids[word] for word in listed]

    @classmethod
    def decode(cls, ids: Iterable[int]) -> list[str]:
        """Words of ids (a tensor row will do), padding left out; ValueError for ids that do not exist."""
        numbers = [int(i) for i in ids]
        wrong = [i for i in numbers if not 0 <= i < len(cls.WORDS)]
        if wrong:
            raise ValueError(f"ids {wrong} are outside 0 to {len(cls.WORDS) - 1}")
        return [cls.WORDS[i] for i in numbers if i != cls.PAD]


@dataclass(frozen=True)
class SceneConfig:
    """How scenes are drawn and described.

    Attributes
    ----------
    grid : int
        Cells along one side.
    cell : int
        Pixels along one side of a cell; an object fills one cell.
    min_classes, max_classes : int
        Number of distinct classes in a scene, uniform.
    max_copies : int
        Copies of a class, uniform from 1, each in another cell with a scan of its own.
    colour_probability : float
        Chance that a caption names the colours (of all objects, or of none).
    caption_style : {"labels", "sentence"}
        "red seven circle", or "a red seven and a circle", three in ten opening with "there is".
    relations : bool
        Two objects, one copy each: "a red seven left of a blue circle".
    """

    grid: int = 5
    cell: int = 8
    min_classes: int = 2
    max_classes: int = 3
    max_copies: int = 3
    colour_probability: float = 0.5
    caption_style: str = "labels"
    relations: bool = False

    def __post_init__(self) -> None:
        if self.caption_style not in STYLES:
            raise ValueError(f"unknown caption_style {self.caption_style!r}; expected one of {STYLES}")
        if min(self.grid, self.cell, self.min_classes, self.max_copies) < 1:
            raise ValueError("grid, cell, min_classes and max_copies must be at least 1")
        if not self.min_classes <= self.max_classes <= len(CLASSES):
            raise ValueError(
                f"expected min_classes <= max_classes <= {len(CLASSES)}; got {self.min_classes}, {self.max_classes}"
            )
        if self.max_classes * self.max_copies > self.grid**2:
            raise ValueError(
                f"{self.max_classes} classes of up to {self.max_copies} copies do not fit into "
                f"{self.grid} x {self.grid} cells"
            )
        if not 0 <= self.colour_probability <= 1:
            raise ValueError(f"colour_probability must lie in [0, 1]; got {self.colour_probability}")
        if self.relations and not self.min_classes <= 2 <= self.max_classes:
            raise ValueError("relations need scenes of two classes: min_classes <= 2 <= max_classes")


#: What `render_scenes` draws unless told otherwise.
_PLAIN = SceneConfig()


class SceneObject(NamedTuple):
    """One class of a scene: its index, its colour's name, its cells (row-major)."""

    label: int
    colour: str
    cells: tuple[int, ...]


@dataclass(frozen=True)
class Scenes:
    """Rendered pairs of image and caption.

    Attributes
    ----------
    images : Tensor of uint8, shape (N, H, W, 3)
    tokens : Tensor of int64, shape (N, L)
        Word ids, 0 at padded places.
    mask : Tensor of bool, shape (N, L)
    segmentation : Tensor of int16, shape (N, H, W)
        Class index, -1 on background.
    objects : tuple of tuples of SceneObject
    config : SceneConfig
    """

    images: Tensor
    tokens: Tensor
    mask: Tensor
    segmentation: Tensor
    objects: tuple[tuple[SceneObject, ...], ...]
    config: SceneConfig

    def __len__(self) -> int:
        return len(self.images)

    def caption(self, index: int) -> str:
        """Caption in words."""
        return " ".join(Vocabulary.decode(self.tokens[index]))

    @property
    def cells(self) -> Tensor:
        """Class of each cell, int64 [N, grid * grid], -1 on background."""
        step = self.config.cell
        return self.segmentation[:, ::step, ::step].flatten(1).long()


def render_scenes(
    num: int,
    config: SceneConfig = _PLAIN,
    *,
    split: str = "train",
    generator: torch.Generator | None = None,
) -> Scenes:
    """Draw scenes of handwritten digits and shapes, with captions and masks.

    Parameters
    ----------
    num : int
        Number of scenes, at least 1.
    config : SceneConfig, default ``SceneConfig()``
    split : {"train", "test"}
        Which scans to draw from; the two pools are disjoint.
    generator : torch.Generator, optional
        Source of randomness; default a fixed stream of its own for each split, so that calling
        twice gives the same scenes.

    Returns
    -------
    Scenes

    Raises
    ------
    TypeError
        `num` is not a whole number, or `config` not a SceneConfig.
    ValueError
        ``num < 1`` or an unknown split.
    """
    if isinstance(num, bool) or not isinstance(num, (int, np.integer)):
        raise TypeError(f"num is a whole number of scenes; got {num!r}")
    if not isinstance(config, SceneConfig):
        raise TypeError(f"config must be a SceneConfig; got {type(config).__name__}")
    if num < 1:
        raise ValueError(f"num must be at least 1; got {num}")
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; expected one of {SPLITS}")
    g = stream(0, "sparc", "scenes", split) if generator is None else generator
    drawn = _draw(int(num), config, g)
    images, cells = _paint(drawn, config, split, g)
    objects = _objects(drawn)
    tokens = _captions(objects, drawn, config)
    side = config.grid * config.cell
    pixels = cells.view(-1, config.grid, config.grid)
    pixels = pixels.repeat_interleave(config.cell, 1).repeat_interleave(config.cell, 2)
    return Scenes(
        images.view(-1, side, side, 3),
        tokens,
        tokens != Vocabulary.PAD,
        pixels.to(torch.int16),
        objects,
        config,
    )


class _Drawn(NamedTuple):
    """Every random choice of a set of scenes; K class slots, C copies."""

    used: Tensor  # [N, K] slot holds a class
    labels: Tensor  # [N, K]
    colours: Tensor  # [N, K]
    bright: Tensor  # [N, K]
    drawn: Tensor  # [N, K, C] copy is drawn
    cells: Tensor  # [N, K, C]
    named: Tensor  # [N] caption names colours
    opening: Tensor  # [N] caption opens with "there is"


def _draw(num: int, config: SceneConfig, g: torch.Generator) -> _Drawn:
    slots = 2 if config.relations else config.max_classes
    fewest = 2 if config.relations else config.min_classes
    most = 1 if config.relations else config.max_copies
    count = torch.randint(fewest, slots + 1, (num,), generator=g)
    copies = torch.randint(1, most + 1, (num, slots), generator=g)
    used = torch.arange(slots)[None] < count[:, None]
    return _Drawn(
        used=used,
        labels=torch.rand(num, len(CLASSES), generator=g).argsort(1)[:, :slots],
        colours=torch.randint(len(COLOURS), (num, slots), generator=g),
        bright=0.85 + 0.25 * torch.rand(num, slots, generator=g),
        drawn=used[..., None] & (torch.arange(most) < copies[..., None]),
        cells=torch.rand(num, config.grid**2, generator=g)
        .argsort(1)[:, : slots * most]
        .view(num, slots, most),
        named=torch.rand(num, generator=g) < config.colour_probability,
        opening=torch.rand(num, generator=g) < 0.3,
    )


def _paint(drawn: _Drawn, config: SceneConfig, split: str, g: torch.Generator) -> tuple[Tensor, Tensor]:
    num, cells, size = len(drawn.used), config.grid**2, config.cell
    level = 20 + 70 * torch.rand(num, 1, generator=g) + 6 * torch.randn(num, 3, generator=g)
    bank, first, amount = _alphas(split, size)
    pick = torch.rand(drawn.drawn.shape, generator=g)
    scene, slot, _ = drawn.drawn.nonzero(as_tuple=True)
    label = drawn.labels[scene, slot]
    alpha = bank[first[label] + (pick[drawn.drawn] * amount[label]).long()]
    palette = torch.tensor(list(COLOURS.values()), dtype=torch.float32)
    paint = palette[drawn.colours[scene, slot]] * drawn.bright[scene, slot, None]
    ground = level[scene][:, None, None]
    place = drawn.cells[drawn.drawn]
    images = level.clamp(0, 255).round().to(torch.uint8)[:, None, None, None].repeat(1, cells, size, size, 1)
    images[scene, place] = (
        (ground + alpha[..., None] * (paint[:, None, None] - ground)).clamp(0, 255).round().to(torch.uint8)
    )
    labels = torch.full((num, cells), -1, dtype=torch.int64)
    labels[scene, place] = label
    grid = images.view(num, config.grid, config.grid, size, size, 3)
    return grid.permute(0, 1, 3, 2, 4, 5).contiguous(), labels


@lru_cache
def _alphas(split: str, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Opacities [M, size, size] of one split, sorted by class; first index and number of each class."""
    digits = load_digits()
    order = np.arange(len(digits.target))
    pool = order[(order % 5 == 0) == (split == "test")]
    pool = pool[np.argsort(digits.target[pool], kind="stable")]
    ink = torch.from_numpy(digits.images[pool] / 16).float()
    if size != ink.shape[-1]:
        ink = F.interpolate(ink[:, None], size=(size, size), mode="bilinear", align_corners=False)[:, 0]
    bank = torch.cat([ink, _shapes(size)])
    amount = torch.from_numpy(np.bincount(digits.target[pool], minlength=10))
    amount = torch.cat([amount, torch.ones(4, dtype=torch.int64)])
    return bank, amount.cumsum(0) - amount, amount


def _shapes(size: int) -> Tensor:
    """Masks of circle, square, triangle and cross, sampled at pixel centres of [-1, 1] squared."""
    line = (torch.arange(size) + 0.5) / size * 2 - 1
    v, u = torch.meshgrid(line, line, indexing="ij")
    inside = torch.maximum(u.abs(), v.abs())
    thin = torch.minimum(u.abs(), v.abs())
    return torch.stack(
        [
            u**2 + v**2 < 0.8,
            inside < 0.75,
            (v < 0.8) & (u.abs() < (v + 0.9) / 1.7 * 0.95),
            (inside < 0.9) & (thin < 0.27),
        ]
    ).float()


def _objects(drawn: _Drawn) -> tuple[tuple[SceneObject, ...], ...]:
    names = list(COLOURS)
    used, labels, colours = drawn.used.tolist(), drawn.labels.tolist(), drawn.colours.tolist()
    places, present = drawn.cells.tolist(), drawn.drawn.tolist()
    return tuple(
        tuple(
            SceneObject(
                labels[i][k],
                names[colours[i][k]],
                tuple(c for c, there in zip(places[i][k], present[i][k], strict=True) if there),
            )
            for k, here in enumerate(used[i])
            if here
        )
        for i in range(len(used))
    )


def _captions(objects: Sequence[tuple[SceneObject, ...]], drawn: _Drawn, config: SceneConfig) -> Tensor:
    phrase = 3 if config.relations or config.caption_style == "sentence" else 2
    slots = 2 if config.relations else config.max_classes
    length = phrase * slots + (2 if config.relations else (slots + 1 if phrase == 3 else 0))
    named, opening = drawn.named.tolist(), drawn.opening.tolist()
    rows = []
    for i, scene in enumerate(objects):
        spoken = [([o.colour] if named[i] else []) + [CLASSES[o.label]] for o in scene]
        if config.relations:
            words = ["a", *spoken[0], *_relation(scene, config.grid), "a", *spoken[1]]
        elif config.caption_style == "labels":
            words = [word for part in spoken for word in part]
        else:
            words = ["there", "is"] if opening[i] else []
            for k, part in enumerate(spoken):
                words += (["and"] if k else []) + ["a", *part]
        ids = Vocabulary.encode(words)
        rows.append(ids + [Vocabulary.PAD] * (length - len(ids)))
    return torch.tensor(rows, dtype=torch.int64)


def _relation(scene: tuple[SceneObject, ...], grid: int) -> list[str]:
    (row, column), (other_row, other_column) = (divmod(o.cells[0], grid) for o in scene)
    if column != other_column:
        return ["left", "of"] if column < other_column else ["right", "of"]
    return ["above"] if row < other_row else ["below"]
