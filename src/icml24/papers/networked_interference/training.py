r"""The training loop: nuisances and targeting in turn, with two optimisers.

One outer step fits everything but the spline to the nuisance losses plus the targeted loss;
then several inner steps fit outcome, representation and spline to the targeted loss alone,
with the propensities held fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import _validate as check
from .effects import EFFECTS
from .graphs import Neighbourhoods
from .network import Design, TNet, TNetConfig, nuisance_losses, targeted_loss
from .simulation import NetworkData

__all__ = ["FittedTNet", "TrainConfig", "fit_tnet", "row_normalised"]


@dataclass(frozen=True)
class TrainConfig:
    """Settings of `fit_tnet`; the defaults are the authors' for one of their data sets.

    Attributes
    ----------
    epochs, inner_steps : int
        Outer steps, and steps of the targeted loss alone after each.
    lr1, lr2 : float
        Learning rates of the outer and the inner steps.
    weight_decay : float
        Of both optimisers; in the inner steps it also holds the spline down.
    alpha, gamma : float
        Weights of the losses of treatment and exposure.
    beta : float
        Weight of the targeted loss, times ``n ** -0.5``.
    targeted : bool
        False trains the nuisances alone, for as many steps: all of them fit the nuisance losses.
    """

    epochs: int = 160
    inner_steps: int = 50
    lr1: float = 1e-3
    lr2: float = 1e-3
    weight_decay: float = 1e-3
    alpha: float = 0.5
    gamma: float = 1.0
    beta: float = 20.0
    targeted: bool = True

    def __post_init__(self) -> None:
        check.whole("epochs", self.epochs, 0)
        check.whole("inner_steps", self.inner_steps, 0)
        for name in ("lr1", "lr2", "weight_decay", "alpha", "gamma", "beta"):
            if check.number(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must be zero or positive; got {getattr(self, name)!r}")


@dataclass(frozen=True)
class FittedTNet:
    """A trained network with the scale of its outcomes.

    Attributes
    ----------
    model : TNet
        In evaluation mode.
    y_mean, y_std : float
        Training mean and standard deviation (n - 1) of the outcome.
    history : dict of str to list of float
        ``"outcome"``, ``"treatment"``, ``"exposure"`` and ``"targeted"``: losses at each outer
        step before its update, in standardised units.
    """

    model: TNet
    y_mean: float
    y_std: float
    history: dict[str, list[float]] = field(repr=False)

    @torch.no_grad()
    def predict(self, data: NetworkData, t: float, z: float) -> Tensor:
        """Potential outcome of every unit of a network at a treatment and an exposure.

        Parameters
        ----------
        data : NetworkData
            Only graph and features are used.
        t, z : float
            0 or 1, and a share in [0, 1].

        Returns
        -------
        Tensor, shape (n,)
            In the unit of the training outcomes.
        """
        x = row_normalised(data.x).to(self.model.encoder.weight)
        return self.y_mean + self.y_std * self.model.potential_outcome(data.adjacency, x, t, z)

    def effects(self, data: NetworkData) -> dict[str, Tensor]:
        """Individual main, spillover and total effects, ``"ME"``, ``"SE"`` and ``"TE"``, each of shape (n,)."""
        return {
            name: self.predict(data, *first) - self.predict(data, *second)
            for name, (first, second) in EFFECTS.items()
        }


def fit_tnet(
    data: NetworkData,
    config: TNetConfig = TNetConfig(),  # noqa: B008 (frozen)
    train: TrainConfig = TrainConfig(),
    *,
    generator: torch.Generator | None = None,
) -> FittedTNet:
    """Train a `TNet` on a network, full batch.

    Parameters
    ----------
    data : NetworkData
        `x` is divided by its row sums here, `y` standardised; `truth` is not looked at.
    config : TNetConfig
    train : TrainConfig
    generator : torch.Generator, optional
        Source of initial weights and of dropout: equally seeded generators give equal networks.
        The global generator is used when none is given, and not touched otherwise.

    Returns
    -------
    FittedTNet
        Computed in the dtype of `data.x`.

    Raises
    ------
    ValueError
        Shapes that differ, a treatment without both arms, an outcome without spread, isolated units.
    """
    return train_model(lambda features: TNet(features, config, generator=generator), data, train, generator)


def row_normalised(x: Tensor) -> Tensor:
    """Rows of `x`, shape (n, f), divided by their sums; a row that sums to 0 stays as it is."""
    x = check.tensor("x", x)
    if x.ndim != 2:
        raise ValueError(f"x must have shape (n, f); got {tuple(x.shape)}")
    total = x.sum(dim=1, keepdim=True)
    return x / torch.where(total == 0, torch.ones_like(total), total)


def train_model(
    make: Callable[[int], TNet], data: NetworkData, train: TrainConfig, generator: torch.Generator | None
) -> FittedTNet:
    """`fit_tnet` for any module with the interface of `TNet`; ``make(n_features)`` builds it."""
    x = row_normalised(data.x).detach()
    graph = Neighbourhoods.of(data.adjacency, x)
    if len(x) != graph.size:
        raise ValueError(f"x must have one row a unit, {graph.size}; got {len(x)}")
    t = check.binary("t", data.t, graph.size, x).to(x).detach()
    z = check.share("z", check.vector("z", data.z, graph.size, x)).to(x).detach()
    y = check.vector("y", data.y, graph.size, x).to(x).detach()
    graph.mean(t)  # refuses isolated units, which have no exposure
    for arm in (1, 0):
        if not bool((t == arm).any()):
            raise ValueError(f"no units with treatment {arm}: both arms are needed to learn effects")
    mean, std = float(y.mean()), float(y.std())
    if not std > 0:
        raise ValueError("y has no spread, so it cannot be standardised; outcomes must differ between units")
    y = (y - mean) / std
    model = make(x.shape[1]).to(x)
    model.stream = generator
    with torch.enable_grad():
        history = _optimise(model, graph, x, Design.of(t, z, model), y, train)
    model.stream = None
    return FittedTNet(model.eval(), mean, std, history)


def _optimise(
    model: TNet, graph: Neighbourhoods, x: Tensor, design: Design, y: Tensor, train: TrainConfig
) -> dict[str, list[float]]:
    spline = {id(model.epsilon1), id(model.epsilon0)}
    settings = {"weight_decay": train.weight_decay, "fused": True}
    outer = torch.optim.Adam([p for p in model.parameters() if id(p) not in spline], lr=train.lr1, **settings)
    inner = torch.optim.Adam(model.parameters(), lr=train.lr2, **settings)
    beta = train.beta * len(y) ** -0.5 if train.targeted else 0.0
    history: dict[str, list[float]] = {name: [] for name in ("outcome", "treatment", "exposure", "targeted")}
    model.train()

    def outer_step() -> dict[str, Tensor]:
        output = model.evaluate(graph, x, design)
        parts = nuisance_losses(output, y, design.t)
        loss = parts["outcome"] + train.alpha * parts["treatment"] + train.gamma * parts["exposure"]
        parts["targeted"] = targeted_loss(output, y)
        if beta:
            loss = loss + beta * parts["targeted"]
        model.zero_grad()
        loss.backward()
        outer.step()
        return parts

    def inner_step() -> None:
        loss = beta * targeted_loss(model.evaluate(graph, x, design, frozen_propensity=True), y)
        model.zero_grad()
        loss.backward()
        inner.step()

    for _ in range(train.epochs):
        for name, value in outer_step().items():
            history[name].append(float(value.detach()))
        for _ in range(train.inner_steps):
            if train.targeted:
                inner_step()
            else:
                outer_step()
    return history
