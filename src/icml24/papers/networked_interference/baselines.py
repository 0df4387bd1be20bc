r"""Single-nuisance networks to compare with, each trained for a fixed number of full-batch steps.

=========  ==========================================================================================
CFR+z      features only; heads of both arms on [r, z]; arms' mean representations pulled together
ND+z       the same on a graph encoder
NetEst     graph encoder; one head on [r, t, z]; two discriminators may not tell t or z from r
=========  ==========================================================================================

None of them estimates a propensity to divide by. After Shalit et al. (CFR), Guo et al. (network
deconfounder) and Jiang and Sun (NetEst); widths and step counts are the chapter's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .graphs import Neighbourhoods
from .simulation import NetworkData
from .training import row_normalised

__all__ = ["BASELINES", "FittedBaseline", "fit_baseline"]

BASELINES = ("CFR+z", "ND+z", "NetEst")
#: Weight of the balance between arms (CFR+z, ND+z) and of each discriminator's confusion (NetEst).
BALANCE = 0.5
WIDTH = {"CFR+z": 64, "ND+z": 64, "NetEst": 32}
DISCRIMINATOR_STEPS = 5


@dataclass(frozen=True)
class FittedBaseline:
    """A trained baseline with the scale of its outcomes."""

    model: _Regressor
    y_mean: float
    y_std: float

    @torch.no_grad()
    def predict(self, data: NetworkData, t: float, z: float) -> Tensor:
        """Outcome of every unit at a treatment and an exposure, shape (n,), in the unit of the outcome."""
        x = row_normalised(data.x)
        graph = Neighbourhoods.of(data.adjacency, x)
        t, z = (x.new_full((len(x),), value) for value in (t, z))
        return self.y_mean + self.y_std * self.model.outcome(self.model.represent(graph, x), t, z)


def fit_baseline(name: str, data: NetworkData, steps: int, generator: torch.Generator) -> FittedBaseline:
    """Train one baseline with Adam at 1e-3.

    Parameters
    ----------
    name : {"CFR+z", "ND+z", "NetEst"}
    data : NetworkData
    steps : int
        Full-batch steps of the outcome model; NetEst's discriminators take 5 each in between.
    generator : torch.Generator
        Of the initial weights, and of NetEst's uniform targets.

    Raises
    ------
    ValueError
        Unknown name.
    """
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; expected one of {BASELINES}")
    x = row_normalised(data.x)
    graph = Neighbourhoods.of(data.adjacency, x)
    t, z = data.t.to(x), data.z.to(x)
    mean, std = float(data.y.mean()), float(data.y.std())
    y = (data.y.to(x) - mean) / std
    model = _Regressor(x.shape[1], WIDTH[name], graph=name != "CFR+z", arms=name != "NetEst").to(x)
    _draw_weights(model, generator)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
    rival = _Rivals(WIDTH[name], generator).to(x) if name == "NetEst" else None
    for _ in range(steps):
        if rival is not None:
            rival.train_on(model.represent(graph, x).detach(), t, z)
        r = model.represent(graph, x)
        loss = (model.outcome(r, t, z) - y).square().mean()
        if rival is not None:
            loss = loss + BALANCE * rival.confusion(r, generator)
        else:
            loss = loss + BALANCE * (r[t == 1].mean(dim=0) - r[t == 0].mean(dim=0)).square().sum()
        model.zero_grad()
        loss.backward()
        optimiser.step()
    return FittedBaseline(model, mean, std)


class _Regressor(nn.Module):
    def __init__(self, features: int, width: int, *, graph: bool, arms: bool) -> None:
        super().__init__()
        self.graph, self.arms = graph, arms
        self.first = nn.utils.skip_init(nn.Linear, features, width)
        self.second = nn.utils.skip_init(nn.Linear, width + features, width)
        self.heads = nn.ModuleList(_mlp(width + (1 if arms else 2), width) for _ in range(2 if arms else 1))

    def represent(self, graph: Neighbourhoods, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.graph:
            hidden = graph.propagate(hidden)
        return F.relu(self.second(torch.cat([F.relu(hidden), x], dim=1)))

    def outcome(self, r: Tensor, t: Tensor, z: Tensor) -> Tensor:
        if not self.arms:
            return self.heads[0](torch.cat([r, t[:, None], z[:, None]], dim=1))[:, 0]
        inputs = torch.cat([r, z[:, None]], dim=1)
        return torch.where(t == 1, self.heads[1](inputs)[:, 0], self.heads[0](inputs)[:, 0])


class _Rivals(nn.Module):
    """Two discriminators, of the treatment and of the exposure, and their optimiser."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.treatment, self.exposure = _mlp(width, width), _mlp(width, width)
        _draw_weights(self, generator)
        self.optimiser = torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)

    def train_on(self, r: Tensor, t: Tensor, z: Tensor) -> None:
        for _ in range(DISCRIMINATOR_STEPS):
            loss = F.binary_cross_entropy_with_logits(self.treatment(r)[:, 0], t)
            loss = loss + (self.exposure(r)[:, 0] - z).square().mean()
            self.zero_grad()
            loss.backward()
            self.optimiser.step()

    def confusion(self, r: Tensor, generator: torch.Generator) -> Tensor:
        undecided = (torch.sigmoid(self.treatment(r)[:, 0]) - 0.5).square().mean()
        uniform = torch.rand(len(r), generator=generator, dtype=r.dtype)
        return undecided + (self.exposure(r)[:, 0] - uniform).square().mean()


def _mlp(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.utils.skip_init(nn.Linear, inputs, width), nn.ReLU(), nn.utils.skip_init(nn.Linear, width, 1)
    )


@torch.no_grad()
def _draw_weights(module: Any, generator: torch.Generator) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
