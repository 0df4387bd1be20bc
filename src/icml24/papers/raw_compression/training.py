r"""Training: one loop, three targets.

The three methods of the chapter differ in a single line, `pair`: what goes in and what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icml24.common.random import generator

from .codec import CodecConfig, RawCodec
from .data import Exposure, Shot
from .objective import lagrangians
from .recorruption import recorrupt

__all__ = ["LAMBDAS", "TARGETS", "Recipe", "new_codec", "train"]

#: Bits per squared unit of noise, by level. The first lies below the critical value 0.72.
LAMBDAS = (0.35, 1.2, 5.0, 20.0)
#: What a codec is asked to reproduce.
TARGETS = ("recorrupted", "noisy", "clean")


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one training run.

    Attributes
    ----------
    channels, latent_channels : int
        Widths N and M.
    steps : int
        Adam steps; the rate is divided by 5 for the last 30 %.
    patch, batch : int
        Side of a packed patch, and patches a step.
    learning_rate : float
    alpha : float
        Split of the recorruption.
    """

    channels: int = 24
    latent_channels: int = 96
    steps: int = 2400
    patch: int = 64
    batch: int = 4
    learning_rate: float = 2e-3
    alpha: float = 0.7


def new_codec(exposure: Exposure, recipe: Recipe, seed: int) -> RawCodec:
    """An untrained codec whose input scale maps the exposure's range to about [-4, 4]."""
    span = 2 * (exposure.peak / exposure.sensor.gain) ** 0.5
    config = CodecConfig(recipe.channels, recipe.latent_channels, len(LAMBDAS), 8 / span, -4.0)
    codec = RawCodec(config)
    codec.reset_parameters(generator(seed, "raw_compression", "weights"))
    codec.reset_dither(seed)
    return codec


def train(
    exposure: Exposure,
    shots: Sequence[Shot],
    target: str,
    recipe: Recipe,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
) -> RawCodec:
    """Train a codec on one noisy exposure of every scene.

    Parameters
    ----------
    exposure : Exposure
    shots : sequence of Shot
        Training exposures; ``clean_planes`` is read by the target "clean" alone.
    target : {"recorrupted", "noisy", "clean"}
    recipe : Recipe
    seed : int
        Of weights, batches, levels, dither and recorruption. Runs of one seed see the same patches
        in the same order, whatever their target.
    on_step : callable, optional
        Told the step and its loss.

    Returns
    -------
    RawCodec
        In evaluation mode.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; expected one of {TARGETS}")
    codec = new_codec(exposure, recipe, seed).train()
    optimiser = torch.optim.Adam(codec.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [int(0.7 * recipe.steps)], gamma=0.2)
    batches = generator(seed, "raw_compression", "batches")
    noise = generator(seed, "raw_compression", "recorruption")
    lambdas = torch.tensor(LAMBDAS)
    for step in range(recipe.steps):
        noisy, clean = draw_patches(shots, recipe.batch, recipe.patch, batches)
        levels = torch.randint(len(LAMBDAS), (recipe.batch,), generator=batches)
        source, wanted = pair(target, noisy, clean, recipe.alpha, noise)
        lam = lambdas[levels]
        # dividing by the root of lambda keeps the four levels' gradients of one size
        loss = (lagrangians(codec(source, levels), wanted, lam) / lam.sqrt()).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(codec.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if on_step is not None:
            on_step(step, float(loss.detach()))
    return codec.eval()


def pair(
    target: str, noisy: Tensor, clean: Tensor, alpha: float, noise: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Input and target of one step: the whole difference between the methods."""
    if target == "recorrupted":
        return recorrupt(noisy, alpha, generator=noise)
    return noisy, (noisy if target == "noisy" else clean)


def draw_patches(shots: Sequence[Shot], batch: int, side: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows of random shots, flipped at random: noisy and clean planes, (batch, 4, side, side).

    Windows and flips act on whole planes, so that a plane keeps its colour.
    """
    noisy, clean = [], []
    for _ in range(batch):
        shot = shots[int(torch.randint(len(shots), (1,), generator=g))]
        _, height, width = shot.planes.shape
        top = int(torch.randint(height - side + 1, (1,), generator=g))
        left = int(torch.randint(width - side + 1, (1,), generator=g))
        flips = [axis for axis in (1, 2) if int(torch.randint(2, (1,), generator=g))]
        for found, planes in ((noisy, shot.planes), (clean, shot.clean_planes)):
            found.append(planes[:, top : top + side, left : left + side].flip(flips))
    return torch.stack(noisy), torch.stack(clean)
