r"""A world without images: patches are noisy symbols, encoders are matrices.

Small enough to train every objective in a second, and large enough to show what each teaches the
patches. A scene has 25 patches; it shows three or four words, each on two to four patches, the others
are background. A patch's feature is its symbol's prototype plus noise, background included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.random import generator

from .evaluation import class_scores, pointing_accuracy
from .measures import mean_iou
from .training import objective_terms

__all__ = ["SymbolicConfig", "SymbolicRun", "draw_symbols", "train_symbols"]

#: Standard deviation of the patch encoder's first weights: small, so that training decides.
START = 0.05


@dataclass(frozen=True)
class SymbolicConfig:
    """Sizes of the symbolic world.

    Attributes
    ----------
    patches, words : int
        Patches of a scene, words of the language.
    shown : (int, int)
        Fewest and most words in a scene.
    copies : (int, int)
        Fewest and most patches of a word.
    width, dim : int
        Width of the features and of the shared space.
    noise : float
        Standard deviation of a feature's coordinates around its prototype. Prototypes, the
        background's among them, are orthogonal with mean square one a coordinate, so that
        ``width`` must exceed ``words``.
    batch, steps, test : int
        Scenes in a batch, Adam steps, scenes of the final measurement.
    lr, inverse_temperature : float
        The temperature is fixed here.
    """

    patches: int = 25
    words: int = 8
    shown: tuple[int, int] = (3, 4)
    copies: tuple[int, int] = (2, 4)
    width: int = 16
    dim: int = 16
    noise: float = 0.3
    batch: int = 32
    steps: int = 150
    test: int = 500
    lr: float = 1e-2
    inverse_temperature: float = 14.3


@dataclass(frozen=True)
class SymbolicRun:
    """What one training in the symbolic world gave.

    Attributes
    ----------
    curves : dict of str to list of float
        "step", "pointing", and the terms of the loss where the objective has them.
    pointing, strict, foreground : float
        Measures on fresh scenes after training.
    """

    curves: dict[str, list[float]]
    pointing: float
    strict: float
    foreground: float


def draw_symbols(
    num: int, prototypes: Tensor, config: SymbolicConfig, g: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features [N, P, width], symbol of each patch [N, P] (-1 background), words [N, K], mask [N, K].

    `prototypes` has one row a word and a last one for the background.
    """
    most, spread = config.shown[1], config.copies[1]
    count = torch.randint(config.shown[0], most + 1, (num, 1), generator=g)
    mask = torch.arange(most)[None] < count
    words = torch.rand(num, config.words, generator=g).argsort(1)[:, :most]
    copies = torch.randint(config.copies[0], spread + 1, (num, most), generator=g)
    placed = mask[..., None] & (torch.arange(spread) < copies[..., None])
    places = torch.rand(num, config.patches, generator=g).argsort(1)[:, : most * spread].view_as(placed)
    symbols = torch.full((num, config.patches), -1)
    scene, slot, _ = placed.nonzero(as_tuple=True)
    symbols[scene, places[placed]] = words[scene, slot]
    features = prototypes[symbols]  # -1 takes the last row
    features = features + config.noise * torch.randn(features.shape, generator=g)
    return features, symbols, words, mask


def train_symbols(objective: str, config: SymbolicConfig, *, seed: int = 0, every: int = 10) -> SymbolicRun:
    """Train linear encoders by one objective and measure where their words point.

    Parameters
    ----------
    objective : str
        One of `training.OBJECTIVES`.
    config : SymbolicConfig
    seed : int
        Names every stream; objectives share prototypes, initial weights and scenes.
    every : int
        Steps between the points of the curves.

    Returns
    -------
    SymbolicRun
    """
    g = generator(seed, "sparc", "symbols")
    frame = torch.linalg.qr(torch.randn(config.width, config.words + 1, generator=g)).Q
    prototypes = config.width**0.5 * frame.T
    shapes = {
        "own": (config.width, config.dim, START),
        "mean": (config.width, config.dim, START),
        "words": (config.words, config.dim, 1.0),
    }
    weights = {
        name: (std * torch.randn(rows, columns, generator=g)).requires_grad_(True)
        for name, (rows, columns, std) in shapes.items()
    }
    optimiser = torch.optim.Adam(list(weights.values()), lr=config.lr)
    held = draw_symbols(config.test, prototypes, config, generator(seed, "sparc", "symbols", "test"))
    curves: dict[str, list[float]] = {}
    for step in range(config.steps):
        features, _, words, mask = draw_symbols(config.batch, prototypes, config, g)
        out = _encode(weights, features, words, mask)
        terms = objective_terms(
            objective, out | {"inverse_temperature": torch.tensor(config.inverse_temperature)}, mask
        )
        if step % every == 0:
            point = {"step": float(step), **{name: float(value.detach()) for name, value in terms.items()}}
            point["pointing"] = pointing_accuracy(_cosines(weights, held[0]), held[1])
            for name, value in point.items():
                curves.setdefault(name, []).append(value)
        optimiser.zero_grad(set_to_none=True)
        terms["loss"].backward()
        optimiser.step()
    cosines = _cosines(weights, held[0])
    guess, truth = cosines.argmax(-1)[:, None], held[1][:, None]
    return SymbolicRun(
        curves,
        pointing_accuracy(cosines, held[1]),
        mean_iou(guess, truth),
        mean_iou(guess, truth, background=False),
    )


def _encode(weights: dict[str, Tensor], features: Tensor, words: Tensor, mask: Tensor) -> dict[str, Tensor]:
    patches = features @ weights["own"] + features.mean(1, keepdim=True) @ weights["mean"]
    tokens = weights["words"][words]
    text = tokens.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)
    return {"image": patches.mean(1), "patches": patches, "text": text, "tokens": tokens}


def _cosines(weights: dict[str, Tensor], features: Tensor) -> Tensor:
    with torch.no_grad():
        patches = features @ weights["own"] + features.mean(1, keepdim=True) @ weights["mean"]
        return class_scores(patches, weights["words"])
