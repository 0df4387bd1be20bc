r"""TNet: one graph encoder, three nuisances and a spline, in one module (section 4 of the chapter).

The forward pass returns everything that the two losses need (`TNetOutput`): the propensity
of the treatment, the density of the exposure, the outcome, and the spline perturbation.
`targeted_loss` is eq-networked_interference-loss.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _validate as check
from .graphs import Neighbourhoods
from .splines import GridPlace, default_knots, grid_integral, truncated_power_basis

__all__ = ["TNet", "TNetConfig", "TNetOutput", "nuisance_losses", "targeted_loss"]

#: Added to densities and propensities before a logarithm or a division, as in the authors' code.
FLOOR = 1e-6
SLOPE = 0.2
INIT_STD = 0.1
PROPENSITIES = ("arm", "treated")


@dataclass(frozen=True)
class TNetConfig:
    """Size and form of a `TNet`.

    Attributes
    ----------
    hidden : int
        Width `h` of the layers, even; the representation has h/2 entries.
    n_grid : int
        `M`: the density of the exposure has M + 1 grid points.
    knot_spacing : float
        Distance of the spline's knots, positive.
    dropout, encoder_dropout : float
        In [0, 1); while training only.
    propensity : {"arm", "treated"}
        What the perturbation is divided by: P(T = t) for each unit's own arm, or P(T = 1) for
        both, as in the authors' code (see eq-networked_interference-tilt for what that costs).
    normalize_density : bool
        Divide the grid density by its integral. The authors do not.
    """

    hidden: int = 64
    n_grid: int = 20
    knot_spacing: float = 0.1
    dropout: float = 0.1
    encoder_dropout: float = 0.05
    propensity: str = "arm"
    normalize_density: bool = False

    def __post_init__(self) -> None:
        if check.whole("hidden", self.hidden, 2) % 2:
            raise ValueError(
                f"hidden must be even, as the representation has half as many entries; got {self.hidden}"
            )
        check.whole("n_grid", self.n_grid, 1)
        default_knots(self.knot_spacing)
        for name in ("dropout", "encoder_dropout"):
            if not 0 <= check.number(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must lie in [0, 1); got {getattr(self, name)!r}")
        if self.propensity not in PROPENSITIES:
            raise ValueError(f"unknown propensity {self.propensity!r}; expected one of {PROPENSITIES}")


class TNetOutput(NamedTuple):
    """What `TNet.forward` returns; `n` units, outcomes in standardised units.

    Parameters
    ----------
    treated_prob : Tensor, shape (n,)
        P(T = 1 | representation).
    density : Tensor, shape (n,)
        Mass of the unit's exposure.
    outcome : Tensor, shape (n,)
        The outcome head of the unit's own arm, without perturbation.
    epsilon : Tensor, shape (n,)
        The arm's spline at the unit's exposure, not yet divided.
    representation : Tensor, shape (n, h/2)
    exposure : Tensor, shape (n,)
        The exposure used.
    propensity : Tensor, shape (n,)
        `treated_prob` when the configuration says "treated", else P(T = t).
    """

    treated_prob: Tensor
    density: Tensor
    outcome: Tensor
    epsilon: Tensor
    representation: Tensor
    exposure: Tensor
    propensity: Tensor


class TNet(nn.Module):
    r"""Network of the targeted estimator.

    Parameters
    ----------
    n_features : int
        Columns of `x`.
    config : TNetConfig
    generator : torch.Generator, optional
        The only source of initial weights when given. Weight matrices are normal with standard
        deviation 0.1; biases uniform within 1/sqrt(fan-in) (the density's normal); splines zero.

    Raises
    ------
    ValueError
        ``n_features < 1``.

    Attributes
    ----------
    stream : torch.Generator or None
        Where dropout draws from in training mode; None is the global generator. `fit_tnet` sets it
        for the time of the training.

    Notes
    -----
    Source: eq-networked_interference-encoder and the heads after it. Made in the default dtype; move it with ``.to``.
    """

    def __init__(
        self,
        n_features: int,
        config: TNetConfig = TNetConfig(),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        f, h, half = check.whole("n_features", n_features, 1), config.hidden, config.hidden // 2
        self.config = config
        self.knots = default_knots(config.knot_spacing)
        self.encoder = _Affine(f, h)
        self.representation = _Stack([f + h, h, h, half], config.dropout)
        self.outcome1 = _Stack([half + 1, 2 * h, h, 1], config.dropout)
        self.outcome0 = _Stack([half + 1, 2 * h, h, 1], config.dropout)
        self.treatment = _Stack([half, h, 1], 0.0)
        self.exposure_density = _Affine(half, config.n_grid + 1)
        size = 3 + len(self.knots)
        self.stream: torch.Generator | None = None
        self.epsilon1, self.epsilon0 = (nn.Parameter(torch.zeros(size)) for _ in range(2))
        _initialise(self, generator)

    def forward(self, adjacency: Any, x: Tensor, t: Any, z: Any = None) -> TNetOutput:
        """Nuisances and perturbation of every unit at its treatment and exposure.

        Parameters
        ----------
        adjacency : Tensor (dense or sparse), ndarray, SciPy sparse matrix, or Neighbourhoods; (n, n)
            Without self loops; the encoder adds them.
        x : Tensor, shape (n, f)
            Features, taken as given; dtype of the module.
        t : Tensor, shape (n,)
            0 or 1.
        z : Tensor, shape (n,), optional
            Exposures in [0, 1]; ``exposure(adjacency, t)`` by default.

        Returns
        -------
        TNetOutput

        Raises
        ------
        ValueError
            Shapes that differ, a treatment that is not binary, an exposure outside [0, 1], or an
            isolated unit when `z` is to be computed.
        """
        graph, x = self._inputs(adjacency, x)
        t = check.binary("t", t, graph.size, x).to(x)
        z = graph.mean(t) if z is None else check.share("z", check.vector("z", z, graph.size, x)).to(x)
        return self.evaluate(graph, x, Design.of(t, z, self))

    def potential_outcome(self, adjacency: Any, x: Tensor, t: float, z: float) -> Tensor:
        r"""Perturbed outcome of every unit at one arm and exposure: the individual prediction.

        .. math:: \hat\mu(t, z, x_i) + \epsilon(t, z) / \bigl(\hat g(t, z \mid x_i) + 10^{-6}\bigr)

        Parameters
        ----------
        adjacency, x
            As in `forward`.
        t, z : float
            0 or 1, and a share in [0, 1].

        Returns
        -------
        Tensor, shape (n,)
            In standardised units; its mean is the estimate of the dose response.
        """
        graph, x = self._inputs(adjacency, x)
        t, z = (x.new_full((graph.size,), value) for value in (check.arm("t", t), check.level("z", z)))
        return perturbed(self.evaluate(graph, x, Design.of(t, z, self)))

    def evaluate(
        self, graph: Neighbourhoods, x: Tensor, design: Design, *, frozen_propensity: bool = False
    ) -> TNetOutput:
        """Forward pass on inputs made ready once; `frozen_propensity` keeps no gradient through the propensities."""
        r = self.represent(graph, x)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen_propensity):
            treated_prob, density = self.propensities(r, design)
        outcome = self.outcomes(r, design)
        epsilon = torch.where(design.t == 1, design.basis @ self.epsilon1, design.basis @ self.epsilon0)
        propensity = treated_prob
        if self.config.propensity == "arm":
            propensity = torch.where(design.t == 1, treated_prob, 1 - treated_prob)
        return TNetOutput(treated_prob, density, outcome, epsilon, r, design.z, propensity)

    def represent(self, graph: Neighbourhoods, x: Tensor) -> Tensor:
        """Graph encoder and representation, shape (n, h/2)."""
        hidden = F.relu(graph.propagate(x @ self.encoder.weight) + self.encoder.bias)
        if self.training:
            hidden = _dropout(hidden, self.config.encoder_dropout, self.stream)
        return self.representation(torch.cat([hidden, x], dim=1), self.stream)

    def propensities(self, r: Tensor, design: Design) -> tuple[Tensor, Tensor]:
        """P(T = 1) and the mass of the exposure, each of shape (n,)."""
        mass = torch.softmax(self.exposure_density(r), dim=1)
        density = design.place.interpolate(mass)
        if self.config.normalize_density:
            density = density / grid_integral(mass)
        return torch.sigmoid(self.treatment(r)[:, 0]), density

    def outcomes(self, r: Tensor, design: Design) -> Tensor:
        """Each arm's head on the units of that arm only, shape (n,)."""
        inputs = torch.cat([r, design.z[:, None]], dim=1)
        parts = [
            head(inputs[rows], self.stream)[:, 0]
            for head, rows in ((self.outcome1, design.treated), (self.outcome0, design.control))
            if len(rows)
        ]
        return torch.cat(parts)[design.order]

    def _inputs(self, adjacency: Any, x: Tensor) -> tuple[Neighbourhoods, Tensor]:
        weight = self.encoder.weight
        x = check.tensor("x", x, weight)
        if x.dtype != weight.dtype:
            raise ValueError(
                f"x has dtype {x.dtype} and the network {weight.dtype}; convert one of them with .to"
            )
        graph = Neighbourhoods.of(adjacency, x)
        if x.shape != (graph.size, weight.shape[0]):
            raise ValueError(
                f"x must have shape (n, f) = {(graph.size, weight.shape[0])} for this graph and network; "
                f"got {tuple(x.shape)}"
            )
        return graph, x


class Design(NamedTuple):
    """Treatments and exposures, and all that follows from them alone."""

    t: Tensor
    z: Tensor
    treated: Tensor
    control: Tensor
    order: Tensor
    basis: Tensor
    place: GridPlace

    @classmethod
    def of(cls, t: Tensor, z: Tensor, model: TNet) -> Design:
        """Precompute rows of the arms, spline basis and places on the grid, each for `n` units."""
        treated, control = ((t == arm).nonzero()[:, 0] for arm in (1, 0))
        order = torch.argsort(torch.cat([treated, control]))
        basis = truncated_power_basis(z, model.knots)
        return cls(t, z, treated, control, order, basis, GridPlace.of(z, model.config.n_grid))


def nuisance_losses(output: TNetOutput, y: Any, t: Any) -> dict[str, Tensor]:
    """The three losses of the nuisances, unweighted.

    Parameters
    ----------
    output : TNetOutput
    y : Tensor, shape (n,)
        Standardised outcomes.
    t : Tensor, shape (n,)
        0 or 1.

    Returns
    -------
    dict of str to Tensor, shape ()
        ``"outcome"``: mean squared error of the unperturbed outcome; ``"treatment"``: mean binary
        cross-entropy; ``"exposure"``: mean of ``-log(density + 1e-6)``.

    Raises
    ------
    ValueError
        Shapes that differ, or `t` not binary.
    """
    n = len(output.outcome)
    y = check.vector("y", y, n, output.outcome).to(output.outcome)
    t = check.binary("t", t, n, output.outcome).to(output.outcome)
    edge = 1e-7 if y.dtype == torch.float32 else torch.finfo(y.dtype).eps
    return {
        "outcome": (output.outcome - y).square().mean(),
        "treatment": F.binary_cross_entropy(output.treated_prob.clamp(edge, 1 - edge), t),
        "exposure": -torch.log(output.density + FLOOR).mean(),
    }


def targeted_loss(output: TNetOutput, y: Any) -> Tensor:
    r"""Mean squared error of the perturbed outcome, the propensities held fixed.

    .. math:: \frac1n \sum_i \Bigl(\hat\mu_i + \frac{\epsilon_i}{\hat g_i + 10^{-6}} - y_i\Bigr)^2

    Parameters
    ----------
    output : TNetOutput
    y : Tensor, shape (n,)
        Standardised outcomes.

    Returns
    -------
    Tensor, shape ()
        No gradient reaches the propensities; the weight beta / sqrt(n) is the trainer's business.

    Notes
    -----
    Source: eq-networked_interference-loss.
    """
    y = check.vector("y", y, len(output.outcome), output.outcome).to(output.outcome)
    fixed = output._replace(propensity=output.propensity.detach(), density=output.density.detach())
    return (perturbed(fixed) - y).square().mean()


def perturbed(output: TNetOutput) -> Tensor:
    """Outcome plus perturbation over propensity, shape (n,)."""
    return output.outcome + output.epsilon / (output.propensity * output.density + FLOOR)


class _Affine(nn.Module):
    """Weight (in, out) and bias (out); the weight is stored as the authors' layers store it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class _Stack(nn.Module):
    """Linear layers with LeakyReLU and dropout between them, none after the last."""

    def __init__(self, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        pairs = itertools.pairwise(widths)
        # skip_init: nothing is drawn from the global generator; `_initialise` fills the layers
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, a, b) for a, b in pairs)

    def forward(self, x: Tensor, stream: torch.Generator | None = None) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), SLOPE)
            if self.training:
                x = _dropout(x, self.dropout, stream)
        return self.layers[-1](x)


def _dropout(x: Tensor, p: float, stream: torch.Generator | None) -> Tensor:
    if stream is None or p == 0:
        return F.dropout(x, p)
    # four 15-bit numbers from each 64-bit draw: several times faster than one Bernoulli draw an entry
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=stream.device).random_(
        generator=stream
    )
    bits = (words.view(torch.int16)[: x.numel()] & 0x7FFF).view(x.shape).to(x.device)
    return x * ((bits >= round(p * 2**15)).to(x.dtype) / (1 - p))


@torch.no_grad()
def _initialise(model: TNet, generator: torch.Generator | None) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0, INIT_STD, generator=generator)
            bound = module.in_features**-0.5
            module.bias.uniform_(-bound, bound, generator=generator)
    bound = model.config.hidden**-0.5
    model.encoder.weight.normal_(0, INIT_STD, generator=generator)
    model.encoder.bias.uniform_(-bound, bound, generator=generator)
    model.exposure_density.weight.normal_(0, INIT_STD, generator=generator)
    model.exposure_density.bias.normal_(0, INIT_STD, generator=generator)
