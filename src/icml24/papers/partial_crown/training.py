r"""Training of physics-informed networks: one least-squares loss, full batch, L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icml24.common.checks import number, whole
from icml24.common.random import generator as named_generator

from .equations import PDE, Burgers, at_position, at_time
from .networks import TanhMLP, network_derivatives
from .systems import DiffusionSorption, Schrodinger

__all__ = ["PINNConfig", "physics_loss", "train_pinn"]


@dataclass(frozen=True)
class PINNConfig:
    """Sizes of a training run.

    Attributes
    ----------
    widths : tuple of int
        Inputs, hidden layers, outputs (the outputs must fit the equation).
    n_collocation, n_initial, n_boundary : int
        Sobol points inside, on t = t0, and on the boundary.
    max_iter, history_size : int
        Of L-BFGS; `max_iter` may be 0.
    weights : tuple of three floats
        Of residual, initial and boundary term.
    """

    widths: tuple[int, ...] = (2, 16, 16, 16, 1)
    n_collocation: int = 2000
    n_initial: int = 100
    n_boundary: int = 100
    max_iter: int = 1500
    history_size: int = 50
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("n_collocation", "n_initial", "n_boundary", "history_size"):
            whole(name, getattr(self, name), 1)
        whole("max_iter", self.max_iter)
        if len(self.weights) != 3:
            raise ValueError(
                f"weights are those of residual, initial and boundary term; got {self.weights!r}"
            )
        for value in self.weights:
            number("weights", value, least=0.0)


def train_pinn(
    pde: PDE,
    config: PINNConfig,
    *,
    generator: torch.Generator | None = None,
    on_step: Callable[[int, TanhMLP, float], Any] | None = None,
    chunk: int = 0,
) -> TanhMLP:
    r"""Train a network on the residual and the conditions of an equation.

    .. math:: \mathrm{mean}\, f^2 + \mathrm{mean}\,(\text{initial error})^2 + \mathrm{mean}\,(\text{boundary error})^2

    Parameters
    ----------
    pde : PDE
        One of the four equations.
    config : PINNConfig
    generator : torch.Generator, optional
        Weights and the scrambling of the Sobol points; None is a fixed stream of its own.
    on_step : callable, optional
        Called with (iterations so far, network, loss) after every `chunk` of iterations.
    chunk : int, default 0
        Iterations between calls; 0 runs all at once. The optimiser's memory is kept across chunks.

    Returns
    -------
    TanhMLP
        float64.

    Raises
    ------
    ValueError
        Widths that do not fit the equation.

    Notes
    -----
    L-BFGS with step 1 and strong Wolfe line search, as in the released script. Squared quantities
    (Schroedinger) enter by themselves, not squared again.
    """
    if config.widths[0] != 2 or config.widths[-1] != pde.outputs:
        raise ValueError(
            f"widths must start with 2 and end with {pde.outputs} for this equation; got {config.widths}"
        )
    draws = named_generator(0, "train_pinn") if generator is None else generator
    net = TanhMLP(config.widths, *pde.domain, generator=draws)
    loss_of = physics_loss(pde, config, draws)
    piece = whole("chunk", chunk) or max(config.max_iter, 1)
    optimiser = torch.optim.LBFGS(
        net.parameters(),
        lr=1.0,
        max_iter=piece,
        max_eval=10 * piece,
        history_size=config.history_size,
        tolerance_grad=1e-9,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss

    done = 0
    while done < config.max_iter:
        optimiser.param_groups[0]["max_iter"] = min(piece, config.max_iter - done)
        optimiser.step(closure)
        done += min(piece, config.max_iter - done)
        if on_step is not None:
            with torch.no_grad():
                on_step(done, net, float(loss_of(net)))
    return net.requires_grad_(False)


def physics_loss(pde: PDE, config: PINNConfig, generator: torch.Generator) -> Callable[[TanhMLP], Tensor]:
    """The loss as a function of the network, on points drawn once."""
    low, high = pde.domain
    seed = int(torch.randint(2**31, (1,), generator=generator))
    inside = low + (high - low) * _sobol(2, config.n_collocation, seed)
    start = low[1] + (high[1] - low[1]) * _sobol(1, config.n_initial, seed + 1)[:, 0]
    times = low[0] + (high[0] - low[0]) * _sobol(1, config.n_boundary, seed + 2)[:, 0]
    sides = torch.cat([at_position(times, float(side)) for side in (low[1], high[1])])
    squared = isinstance(pde, Schrodinger)
    once = at_position(times, float(low[1]))

    def mean_square(values: Tensor) -> Tensor:
        return values.mean() if squared else (values**2).mean()

    def loss(net: TanhMLP) -> Tensor:
        a, b, c = config.weights
        if squared:
            boundary = pde.boundary_error(net, once).mean() + pde.boundary_error(net, once, order=1).mean()  # type: ignore[call-arg]
        elif isinstance(pde, DiffusionSorption):
            # train the network before the ReLU: behind it, a negative output has no gradient
            return _unclipped(pde, net, inside, start, sides, config.weights)
        elif isinstance(pde, Burgers):
            boundary = mean_square(pde.boundary_error(net, sides))
        else:
            boundary = mean_square(pde.boundary_error(net, once))
        initial = mean_square(pde.initial_error(net, start))
        return a * mean_square(pde.residual(net, inside)) + b * initial + c * boundary

    return loss


def _unclipped(
    pde: DiffusionSorption,
    net: TanhMLP,
    inside: Tensor,
    start: Tensor,
    sides: Tensor,
    weights: tuple[float, ...],
) -> Tensor:
    u, du, d2u = (a[:, 0] for a in network_derivatives(net, inside))
    residual = pde.horizon * (
        du[:, 0] - pde.diffusivity(torch.relu(u)) * d2u[:, 1]
    )  # per horizon, not per second
    initial = net(at_time(start, 0.0))[:, 0]
    value, slope, _ = (a[:, 0] for a in network_derivatives(net, sides))
    edge = torch.where(sides[:, 1] == 0, value - 1, value - pde.diffusion * slope[:, 1])
    a, b, c = weights
    return a * (residual**2).mean() + b * (initial**2).mean() + c * (edge**2).mean()


def _sobol(dimension: int, n: int, seed: int) -> Tensor:
    return torch.quasirandom.SobolEngine(dimension, scramble=True, seed=seed).draw(n, dtype=torch.float64)
