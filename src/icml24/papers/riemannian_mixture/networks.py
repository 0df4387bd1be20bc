r"""The network that stands for a drift: a plain perceptron, made tangent at the end."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from .bridges import check_count
from .manifolds import Manifold

__all__ = ["DriftMLP"]

ACTIVATIONS = {"swish": nn.functional.silu, "sin": torch.sin}


class DriftMLP(nn.Module):
    r"""Perceptron on :math:`[x, t]` whose output is projected onto the tangent space at `x`.

    Parameters
    ----------
    manifold : Manifold
    hidden : int, default 512
        Width of each hidden layer.
    layers : int, default 6
        Number of *hidden* layers; there are ``layers + 1`` linear maps.
    act : {"swish", "sin"}
        Activation; "sin" has frequency 1.
    generator : torch.Generator, optional
        Source of the initial weights (torch's default law for linear layers). Without it
        torch's global generator is used, as by any module.

    Attributes
    ----------
    linears : ModuleList of length ``layers + 1``

    Raises
    ------
    ValueError
        Unknown activation, or a size below 1.
    """

    def __init__(
        self,
        manifold: Manifold,
        hidden: int = 512,
        layers: int = 6,
        act: str = "swish",
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if act not in ACTIVATIONS:
            raise ValueError(f"unknown act {act!r}; expected one of {sorted(ACTIVATIONS)}")
        hidden, layers = check_count("hidden", hidden), check_count("layers", layers)
        self.manifold = manifold
        self.act = act
        sizes = [manifold.ambient_dim + 1, *[hidden] * layers, manifold.ambient_dim]
        make = nn.Linear if generator is None else _empty_linear
        self.linears = nn.ModuleList(make(a, b) for a, b in pairwise(sizes))
        if generator is not None:
            _initialise(self.linears, generator)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Tangent vectors at `x`, (n, D), for times `t`, (n,) or a number."""
        like = self.linears[0].weight
        t = torch.as_tensor(t, dtype=x.dtype, device=x.device).expand(x.shape[:-1])
        h = torch.cat((x, t.unsqueeze(-1)), dim=-1).to(like.dtype)
        act = ACTIVATIONS[self.act]
        for linear in self.linears[:-1]:
            h = act(linear(h))
        return self.manifold.to_tangent(x, self.linears[-1](h).to(x.dtype))


def _empty_linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.utils.skip_init(nn.Linear, inputs, outputs)


@torch.no_grad()
def _initialise(linears: nn.ModuleList, generator: torch.Generator) -> None:
    for linear in linears:  # torch's default for Linear: uniform within 1/sqrt(inputs), weights and biases
        bound = 1 / math.sqrt(linear.in_features)
        for parameter in (linear.weight, linear.bias):
            parameter.uniform_(-bound, bound, generator=generator)
