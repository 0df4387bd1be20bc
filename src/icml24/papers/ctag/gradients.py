r"""Why not gradients? The slope of the similarity in the 78 knobs, and what ascent makes of it.

The synthesizer is differentiable almost everywhere, so the question is not whether a gradient
exists but whether it points anywhere useful.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import generator

from .comparison import Comparison, World, world
from .data import CLASSES, SAMPLE_RATE, prompt_of
from .experiments import Config
from .parameters import PARAMETERS

__all__ = ["Ascent", "GradientStudy", "ascend", "gradient_study", "similarity_gradient"]

#: Parallel ascents, and Adam's step size in the unit cube (the best of 0.01, 0.03, 0.1 in a pilot).
ASCENTS = 8
LEARNING_RATE = 0.03


@dataclass(frozen=True)
class GradientStudy:
    """Gradients of the similarity at uniformly random points.

    Attributes
    ----------
    gradients : ndarray, shape (n, 78)
    disagreement : dict of float to float
        Median over coordinates of |finite difference - gradient| over |gradient|, by step size.
    """

    gradients: np.ndarray
    disagreement: dict[float, float]

    @property
    def norms(self) -> np.ndarray:
        """Euclidean norms, shape (n,)."""
        return np.linalg.norm(self.gradients, axis=1)

    @property
    def tail(self) -> float:
        """99th percentile of the norms over their median."""
        return float(np.quantile(self.norms, 0.99) / np.median(self.norms))


@dataclass(frozen=True)
class Ascent:
    """Adam against LES for one class, at equal numbers of renders.

    Attributes
    ----------
    name : str
    adam : ndarray, shape (steps,)
        Best similarity so far over all ascents.
    les : float
        LES's best similarity after as many renders.
    """

    name: str
    adam: np.ndarray
    les: float


def similarity_gradient(w: World, units: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Similarities [n] and their gradients [n, 78], in the dtype of `units`."""
    units = units.detach().requires_grad_(True)
    with torch.enable_grad():
        sounds = w.voice(units, w.noise.to(units.dtype))
        text = w.scorer.embed_text([prompt_of(name)])[0].to(units.dtype)
        similarity = w.scorer.embed_audio(sounds, SAMPLE_RATE) @ text
        (gradient,) = torch.autograd.grad(similarity.sum(), units)
    return similarity.detach(), gradient


def gradient_study(
    config: Config, name: str = "siren", steps: tuple[float, ...] = (1e-7, 1e-5, 1e-3)
) -> GradientStudy:
    """Gradients at random points, and central differences at the first two of them, in float64."""
    w = world(config, 0)
    g = generator(config.seed, "ctag", "gradient points")
    units = torch.rand(config.gradient_points, len(PARAMETERS), generator=g, dtype=torch.float64)
    gradients = torch.cat([similarity_gradient(w, part, name)[1] for part in units.split(16)])
    text = w.scorer.embed_text([prompt_of(name)])[0].double()
    eye = torch.eye(len(PARAMETERS), dtype=torch.float64)
    disagreement = {}
    for step in steps:
        gaps = []
        for unit, gradient in zip(units[:2], gradients, strict=False):
            around = torch.cat([unit + step * eye, unit - step * eye]).clamp(0, 1)
            with torch.no_grad():
                plus, minus = (
                    w.scorer.embed_audio(w.voice(around, w.noise.double()), SAMPLE_RATE) @ text
                ).chunk(2)
            live = gradient != 0
            gaps.append((((plus - minus) / (2 * step) - gradient).abs() / gradient.abs())[live])
        disagreement[step] = float(torch.cat(gaps).median())
    return GradientStudy(gradients.numpy(), disagreement)


def ascend(config: Config, comparison: Comparison) -> list[Ascent]:
    """Adam on the similarity from random starts, for the first classes, beside LES at equal renders."""
    w = world(config, 0)
    generations = config.adam_steps * ASCENTS // config.population
    out = []
    for name in CLASSES[: config.adam_classes]:
        g = generator(config.seed, "ctag", "ascent", name)
        units = torch.rand(ASCENTS, len(PARAMETERS), generator=g).requires_grad_(True)
        optimiser = torch.optim.Adam([units], lr=LEARNING_RATE)
        best = []
        for _ in range(config.adam_steps):
            similarity, gradient = similarity_gradient(w, units, name)
            best.append(similarity.max().item())
            units.grad = -gradient
            optimiser.step()
            with torch.no_grad():
                units.clamp_(0, 1)
        les = comparison.sounds["LES", name, 0].result.history[generations - 1].item()
        out.append(Ascent(name, np.maximum.accumulate(best), les))
    return out
