"""Certified residuals and derivatives: ours beside interval arithmetic of mpmath and nested autograd of torch.

``python bench/partial_crown.py``. The authors' code cannot be installed (it imports a package that its
repository lacks) and auto_LiRPA on the package index predates bounds of derivatives, so neither is timed here.
Interval arithmetic is timed against interval arithmetic: the same recursions, ours in batches, mpmath's a box
at a time and with directed rounding; our intervals must lie inside mpmath's. The linear relaxation is shown
against the same peer in a row of its own, as the price of bounds that are orders of magnitude tighter.
"""

from __future__ import annotations

import click
import harness
import torch
from mpmath import iv

from icml24.papers import partial_crown as pc
from icml24.papers.partial_crown import data

BOXES = 32


def interval_residual(net: pc.TanhMLP, box: torch.Tensor, viscosity: float) -> tuple[float, float]:
    """Residual of Burgers' equation on one box in mpmath's interval arithmetic."""
    x = [iv.mpf([float(a), float(b)]) for a, b in zip(*box, strict=True)]
    low, high = net.lower.tolist(), net.upper.tolist()
    scale = [iv.mpf(2) / (iv.mpf(b) - iv.mpf(a)) for a, b in zip(low, high, strict=True)]
    z = [(xi - a) * s - 1 for xi, a, s in zip(x, low, scale, strict=True)]
    d = [[scale[0], iv.mpf(0)], [iv.mpf(0), scale[1]]]
    h = [iv.mpf(0)] * 2
    last = len(net.weights) - 1
    for k, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        rows = w.tolist()
        y = [
            c + sum(a * v for a, v in zip(row, z, strict=True))
            for row, c in zip(rows, b.tolist(), strict=True)
        ]
        v = [[sum(a * q for a, q in zip(row, di, strict=True)) for row in rows] for di in d]
        g = [sum(a * q for a, q in zip(row, h, strict=True)) for row in rows]
        if k == last:
            f = v[0][0] + y[0] * v[1][0] - iv.mpf(viscosity) * g[0]
            return float(f.a), float(f.b)
        z = [1 - 2 / (iv.exp(2 * q) + 1) for q in y]
        s1 = [1 - q**2 for q in z]
        d = [[s * q for s, q in zip(s1, vi, strict=True)] for vi in v]
        h = [-2 * q * s * r**2 + s * p for q, s, r, p in zip(z, s1, v[1], g, strict=True)]
    raise AssertionError


def nested(net: pc.TanhMLP, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values, gradient and diagonal second derivatives by autograd twice, ready for a third time."""
    x = x.clone().requires_grad_(True)
    u = net(x)
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    d2u = torch.stack([torch.autograd.grad(du[:, i].sum(), x, create_graph=True)[0][:, i] for i in (0, 1)], 1)
    return u, du, d2u


def loss_gradient(net: pc.TanhMLP, derivatives, x: torch.Tensor, viscosity: float) -> torch.Tensor:
    """Gradient of the mean squared residual in the first weights: what a training step needs."""
    u, du, d2u = (a.reshape(len(x), -1) for a in derivatives(net, x))
    residual = du[:, 0] + u[:, 0] * du[:, 1] - viscosity * d2u[:, 1]
    return torch.autograd.grad((residual**2).mean(), list(net.parameters()))[0]


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time bounds of boxes and derivatives of points against the peers."""
    torch.set_num_threads(1)
    net = data.small_pinns()[1500]
    pde = data.SMALL
    g = torch.Generator().manual_seed(0)
    low, high = pde.domain
    centre = low + (high - low) * torch.rand(BOXES, 2, generator=g, dtype=torch.float64)
    boxes = torch.stack((centre - 0.01, centre + 0.01), 1)
    x = low + (high - low) * torch.rand(2000, 2, generator=g, dtype=torch.float64)

    def peer() -> list[tuple[float, float]]:
        return [interval_residual(net, box, pde.viscosity) for box in boxes]

    theirs = torch.tensor(peer(), dtype=torch.float64)
    for method in ("ibp", "crown"):
        a, b = pde.residual_bounds(net, boxes, method=method)
        slack = 1e-9 * (1 + theirs.abs())
        assert bool((a >= theirs[:, 0] - slack[:, 0]).all())
        assert bool((b <= theirs[:, 1] + slack[:, 1]).all())
        width = float(((theirs[:, 1] - theirs[:, 0]) / (b - a)).median())
        print(f"{method}: mpmath's intervals are {width:.3g} times as wide, median")
    trained = data.small_pinns()[1500].requires_grad_(True)
    steps = [
        lambda f=f: loss_gradient(trained, f, x, pde.viscosity) for f in (pc.network_derivatives, nested)
    ]
    torch.testing.assert_close(*(step() for step in steps), rtol=1e-8, atol=1e-12)
    rows = [
        harness.compare(
            f"interval arithmetic, residual, {BOXES} boxes, 2-16-16-16-1 (mpmath)",
            *(lambda: pde.residual_bounds(net, boxes, method="ibp"), peer),
            **{"repeats": max(repeats // 3, 3), "number": 5, "peer_number": 1, "unit": "ms"},
        ),
        harness.compare(
            f"linear relaxation, residual, {BOXES} boxes, beside interval arithmetic (mpmath)",
            *(lambda: pde.residual_bounds(net, boxes), peer),
            **{"repeats": max(repeats // 3, 3), "peer_number": 1, "unit": "ms"},
        ),
        harness.compare(
            "residual loss and its gradient at 2,000 points (nested torch autograd)",
            *steps,
            **{"repeats": repeats, "number": 3, "unit": "ms"},
        ),
    ]
    harness.write(
        "partial_crown",
        "Certified residuals of physics-informed networks",
        "mpmath (interval arithmetic), torch.autograd",
        rows,
        ["torch", "numpy", "mpmath"],
    )


if __name__ == "__main__":
    main()
