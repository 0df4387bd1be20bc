"""TNet's training step: ours beside the same network in torch_geometric, interleaved in one run.

``python bench/networked_interference.py`` needs the extra ``bench``. The peer is the reference
formulation: a graph convolution of torch_geometric without normalisation, both outcome heads on all
units, dropout by torch. Before anything is timed, both must give the same losses and gradients.
"""

from __future__ import annotations

import click
import harness
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv

from icml24.common.random import numpy_generator
from icml24.papers import networked_interference as ni
from icml24.papers.networked_interference import data
from icml24.papers.networked_interference.graphs import Neighbourhoods
from icml24.papers.networked_interference.network import Design, TNet

UNITS, FEATURES, DEGREE = 828, 10, 3


class Peer(nn.Module):
    """The same network, built on `GCNConv` and plain modules, with the weights of ours."""

    def __init__(self, model: TNet) -> None:
        super().__init__()
        self.config, h = model.config, model.config.hidden
        self.encoder = GCNConv(model.encoder.weight.shape[0], h, normalize=False)
        self.encoder.lin.weight = nn.Parameter(model.encoder.weight.detach().T.clone())
        self.encoder.bias = nn.Parameter(model.encoder.bias.detach().clone())
        drop = nn.Dropout(model.config.dropout)
        self.representation = self.stack(model.representation, drop)
        self.outcome1, self.outcome0 = (self.stack(m, drop) for m in (model.outcome1, model.outcome0))
        self.treatment = self.stack(model.treatment, nn.Identity())
        self.weight, self.bias = (
            nn.Parameter(p.detach().clone())
            for p in (model.exposure_density.weight, model.exposure_density.bias)
        )
        self.epsilon1, self.epsilon0 = (
            nn.Parameter(p.detach().clone()) for p in (model.epsilon1, model.epsilon0)
        )

    @staticmethod
    def stack(source: nn.Module, drop: nn.Module) -> nn.Sequential:
        """Linear layers of `source` with LeakyReLU and dropout between."""
        parts: list[nn.Module] = []
        for layer in source.layers:
            linear = nn.Linear(layer.in_features, layer.out_features)
            linear.load_state_dict(layer.state_dict())
            parts += [linear, nn.LeakyReLU(0.2), drop]
        return nn.Sequential(*parts[:-2])

    def loss(self, edges, x, t, z, y, basis, alpha: float, beta: float) -> torch.Tensor:
        """Outer loss: nuisances plus targeted loss."""
        hidden = F.dropout(F.relu(self.encoder(x, edges)), self.config.encoder_dropout, self.training)
        r = self.representation(torch.cat([hidden, x], dim=1))
        both = torch.cat([r, z[:, None]], dim=1)
        mu = t * self.outcome1(both)[:, 0] + (1 - t) * self.outcome0(both)[:, 0]
        p = torch.sigmoid(self.treatment(r)[:, 0])
        mass, steps = torch.softmax(r @ self.weight + self.bias, dim=1), self.config.n_grid
        upper = torch.ceil(z * steps)
        lower = (upper - 1).clamp(min=0)
        low, high = (mass.gather(1, k.long()[:, None])[:, 0] for k in (lower, upper))
        density = low + (1 - (upper - z * steps)) * (high - low)
        epsilon = t * (basis @ self.epsilon1) + (1 - t) * (basis @ self.epsilon0)
        g = (t * p + (1 - t) * (1 - p)) * density
        targeted = (mu + epsilon / (g.detach() + 1e-6) - y).square().mean()
        nuisances = (mu - y).square().mean() + alpha * F.binary_cross_entropy(p, t)
        return nuisances - torch.log(density + 1e-6).mean() + beta * targeted


def problem() -> ni.NetworkData:
    """A geometric graph of Cora's training size with simulated data, float32."""
    graph, features = data.geometric_graph(UNITS, FEATURES // 2, DEGREE, numpy_generator(0, "bench"))
    g = torch.Generator().manual_seed(0)
    w = torch.randn(2, FEATURES, generator=g)
    return ni.simulate_network_data(
        graph, torch.from_numpy(features).float(), w_treatment=w[0], w_outcome=w[1], generator=g
    )


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time forward, and forward with backward, in training and in evaluation mode."""
    torch.set_num_threads(1)
    d = problem()
    model = TNet(FEATURES, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for spline in (model.epsilon1, model.epsilon0):
            spline.normal_(0, 0.01, generator=torch.Generator().manual_seed(2))
    peer = Peer(model)
    x, y = d.x / d.x.sum(dim=1, keepdim=True), (d.y - d.y.mean()) / d.y.std()
    coo = d.adjacency.tocoo()
    loop = np.arange(UNITS)
    # GCNConv adds self loops only together with its normalisation, so they are given
    edges = torch.from_numpy(np.array([np.r_[coo.row, loop], np.r_[coo.col, loop]])).long()
    graph = Neighbourhoods.of(d.adjacency, x)
    design = Design.of(d.t, d.z, model)
    beta = 20 * UNITS**-0.5

    def ours(backward: bool = True) -> torch.Tensor:
        out = model.evaluate(graph, x, design)
        parts = ni.nuisance_losses(out, y, d.t)
        loss = (
            parts["outcome"] + 0.5 * parts["treatment"] + parts["exposure"] + beta * ni.targeted_loss(out, y)
        )
        if backward:
            model.zero_grad()
            loss.backward()
        return loss

    def theirs(backward: bool = True) -> torch.Tensor:
        loss = peer.loss(edges, x, d.t, d.z, y, design.basis, 0.5, beta)
        if backward:
            peer.zero_grad()
            loss.backward()
        return loss

    model.eval(), peer.eval()
    torch.testing.assert_close(ours(), theirs(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.epsilon1.grad, peer.epsilon1.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        model.encoder.weight.grad, peer.encoder.lin.weight.grad.T, rtol=1e-3, atol=1e-4
    )
    size = f"n = {UNITS}, h = 64 (torch_geometric)"
    rows = [
        harness.compare(
            f"forward, evaluation mode, {size}",
            *(lambda: ours(False), lambda: theirs(False)),
            **{"repeats": repeats, "number": 10, "unit": "ms"},
        ),
        harness.compare(
            f"forward and backward, evaluation mode, {size}",
            ours,
            theirs,
            repeats=repeats,
            number=10,
            unit="ms",
        ),
    ]
    model.train(), peer.train()
    model.stream = torch.Generator().manual_seed(3)
    rows.append(
        harness.compare(
            f"forward and backward with dropout, {size}", ours, theirs, repeats=repeats, number=10, unit="ms"
        )
    )
    harness.write(
        "networked_interference",
        "A training step of TNet",
        "torch_geometric",
        rows,
        ["torch", "numpy", "scipy", "torch_geometric"],
    )


if __name__ == "__main__":
    main()
