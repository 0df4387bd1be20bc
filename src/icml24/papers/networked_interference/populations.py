r"""Small populations whose truth is exact, on which the estimator can be taken apart.

* `Scalar`: one continuous covariate and a continuous exposure; what double robustness,
  the rate and the control arm are measured on.
* `DiscretePopulation`: tables of propensities and outcomes, so that every expectation is a sum
  (eq-networked_interference-bias).
* `enumerate_graph`: every treatment of a small graph, so that identification is a sum as well
  (eq-networked_interference-identification).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .graphs import exposure
from .targeting import fit_perturbation, targeted_mean

__all__ = ["DiscretePopulation", "Nuisances", "Sample", "Scalar", "enumerate_graph", "targeted_curve"]


class Sample(NamedTuple):
    """Draws of a `Scalar` population, each of shape (n,): covariate, treatment, exposure, outcome."""

    x: Tensor
    t: Tensor
    z: Tensor
    y: Tensor


class Nuisances(NamedTuple):
    """Outcome model and joint propensity: functions of treatment, exposure and covariate."""

    outcome: Callable[[Any, Any, Tensor], Tensor]
    propensity: Callable[[Any, Any, Tensor], Tensor]


class Scalar:
    r"""Covariate :math:`x \sim N(0, 1)`, treatment :math:`\mathrm{Bernoulli}(\sigma(x))`, exposure in [0, 1].

    The exposure has density :math:`1 + 0.8 \tanh(x)(2z - 1)`; the outcome is
    :math:`t + z + x + \tfrac12 t z x + z \sin 2x + N(0, 0.25)`, so that :math:`\psi(t, z) = t + z`.
    """

    noise_std = 0.5
    tilt = 0.8

    @staticmethod
    def outcome(t: Any, z: Any, x: Tensor) -> Tensor:
        """Mean outcome at a treatment and an exposure, shape (n,)."""
        return t + z + x + 0.5 * t * z * x + z * torch.sin(2 * x)

    @classmethod
    def propensity(cls, t: Any, z: Any, x: Tensor) -> Tensor:
        """Joint density of treatment and exposure, shape (n,)."""
        treated = torch.sigmoid(x)
        return (t * treated + (1 - t) * (1 - treated)) * cls.density(z, x)

    @classmethod
    def density(cls, z: Any, x: Tensor) -> Tensor:
        """Density of the exposure, shape (n,)."""
        return 1 + cls.tilt * torch.tanh(x) * (2 * z - 1)

    @staticmethod
    def response(t: float, z: float) -> float:
        """The dose response."""
        return t + z

    @classmethod
    def draw(cls, n: int, generator: torch.Generator) -> Sample:
        """Draw `n` independent units, float64; the exposure by inverting its distribution function."""
        x = torch.randn(n, generator=generator, dtype=torch.float64)
        t = (torch.rand(n, generator=generator, dtype=torch.float64) < torch.sigmoid(x)).double()
        u = torch.rand(n, generator=generator, dtype=torch.float64)
        a = cls.tilt * torch.tanh(x)
        # z + a (z^2 - z) = u, solved by the root that stays finite as a -> 0
        z = 2 * u / ((1 - a) + torch.sqrt((1 - a) ** 2 + 4 * a * u))
        noise = cls.noise_std * torch.randn(n, generator=generator, dtype=torch.float64)
        return Sample(x, t, z.clamp(0, 1), cls.outcome(t, z, x) + noise)


def targeted_curve(
    sample: Sample, nuisances: Nuisances, points: list[tuple[float, float]], knots: list[float]
) -> tuple[Tensor, Tensor]:
    """Targeted and plug-in estimates of the dose response at some points (t, z), each of shape (points,)."""
    x, t, z, y = sample
    weights = fit_perturbation(y, t, z, nuisances.outcome(t, z, x), nuisances.propensity(t, z, x), knots)
    targeted, plain = [], []
    for arm, share in points:
        mu, g = nuisances.outcome(arm, share, x), nuisances.propensity(arm, share, x)
        targeted.append(targeted_mean(mu, g, share, weights[0 if arm == 1 else 1], knots))
        plain.append(mu.mean())
    return torch.stack(targeted), torch.stack(plain)


@dataclass(frozen=True)
class DiscretePopulation:
    """A population with finitely many covariates and exposures.

    Attributes
    ----------
    chance : Tensor, shape (m,)
        Probability of each covariate.
    propensity : Tensor, shape (m, 2, k)
        g(t, z | x), positive, summing to 1 over t and z.
    outcome : Tensor, shape (m, 2, k)
        mu(t, z, x).
    """

    chance: Tensor
    propensity: Tensor
    outcome: Tensor

    @classmethod
    def draw(cls, covariates: int, exposures: int, generator: torch.Generator) -> DiscretePopulation:
        """Random tables, float64, with propensities bounded away from 0."""
        shape = (covariates, 2, exposures)
        raw = 0.2 + torch.rand(shape, generator=generator, dtype=torch.float64)
        chance = 0.2 + torch.rand(covariates, generator=generator, dtype=torch.float64)
        outcome = torch.randn(shape, generator=generator, dtype=torch.float64)
        return cls(chance / chance.sum(), raw / raw.sum(dim=(1, 2), keepdim=True), outcome)

    def response(self) -> Tensor:
        """Dose response psi, shape (2, k)."""
        return torch.einsum("m,mtz->tz", self.chance, self.outcome)

    def estimated(self, outcome: Tensor, propensity: Tensor) -> Tensor:
        """Mean of the influence-function estimate with these nuisances, by summing over x, T and Z; (2, k)."""
        arms, exposures = self.outcome.shape[1:]
        out = torch.zeros(arms, exposures, dtype=self.outcome.dtype)
        for x, t0, z0 in itertools.product(range(len(self.chance)), range(arms), range(exposures)):
            # the cell (t0, z0) itself is the only observation whose indicator is not zero
            hit = self.propensity[x, t0, z0] / propensity[x, t0, z0]
            value = hit * (self.outcome[x, t0, z0] - outcome[x, t0, z0]) + outcome[x, t0, z0]
            out[t0, z0] += self.chance[x] * value
        return out

    def product_bias(self, outcome: Tensor, propensity: Tensor) -> Tensor:
        """The bias as a product of the two nuisances' errors, shape (2, k)."""
        product = (self.propensity / propensity - 1) * (self.outcome - outcome)
        return torch.einsum("m,mtz->tz", self.chance, product)


def enumerate_graph(
    adjacency: Tensor,
    covariates: Tensor,
    chance: Callable[[Tensor], Tensor],
    outcome: Callable[[Tensor, Tensor, Tensor], Tensor],
    unit: int,
    t0: float,
    z0: float,
) -> tuple[float, float, float]:
    """Sum over every covariate and treatment of a small graph: truth, adjusted mean, naive mean.

    Parameters
    ----------
    adjacency : Tensor, shape (n, n)
    covariates : Tensor, shape (m,)
        Values that each unit's covariate takes with equal chance, independently.
    chance : callable
        ``chance(x)``, shape (n,) to (n,): probability of treatment of each unit given all covariates.
    outcome : callable
        ``outcome(t, z, x)``: mean outcomes, each argument of shape (n,).
    unit : int
        The unit looked at.
    t0, z0 : float
        The treatment and the exposure asked about.

    Returns
    -------
    (float, float, float)
        E[Y(t0, z0)]; E[E[Y | T = t0, Z = z0, x]]; and E[Y | T = t0, Z = z0].
    """
    n = len(adjacency)
    treatments = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=adjacency.dtype)
    exposures = torch.stack([exposure(adjacency, t) for t in treatments])
    hit = (treatments[:, unit] == t0) & ((exposures[:, unit] - z0).abs() < 1e-9)
    truth = adjusted = joint = reach = 0.0
    draws = list(itertools.product(covariates.tolist(), repeat=n))
    for draw in draws:
        x = torch.tensor(draw, dtype=adjacency.dtype)
        p = chance(x)
        likelihood = torch.where(treatments == 1, p, 1 - p).prod(dim=1)
        means = torch.stack([outcome(t, z, x)[unit] for t, z in zip(treatments, exposures, strict=True)])
        inside = (likelihood * hit).sum()
        weighted = (likelihood * hit * means).sum()
        asked = [torch.full((n,), value, dtype=adjacency.dtype) for value in (t0, z0)]
        truth += float(outcome(*asked, x)[unit]) / len(draws)
        adjusted += float(weighted / inside) / len(draws)
        joint += float(weighted) / len(draws)
        reach += float(inside) / len(draws)
    return truth, adjusted, joint / reach
