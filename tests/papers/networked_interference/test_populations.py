"""Populations whose truth is exact: identification, bias, double robustness, rate, control arm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from icml24.papers.networked_interference import fit_perturbation, truncated_power_basis
from icml24.papers.networked_interference.experiments import CASES, KNOTS, POINTS, RIGHT, _half, _shifted
from icml24.papers.networked_interference.populations import (
    DiscretePopulation,
    Nuisances,
    Scalar,
    enumerate_graph,
    targeted_curve,
)

CYCLE = torch.tensor([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=torch.float64)
TRUTH = torch.tensor([Scalar.response(*p) for p in POINTS], dtype=torch.float64)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.equation("eq-networked_interference-identification")
@pytest.mark.parametrize(("t", "z"), [(1.0, 0.0), (0.0, 0.5), (1.0, 1.0)])
def test_adjustment_identifies_the_response_on_a_cycle(t, z):
    """E1: eight treatments and eight covariate draws of a triangle, all summed; without x the answer is wrong."""

    def outcome(arm, share, x):
        return arm + 2 * share + 3 * x + arm * share * x.roll(1)

    truth, adjusted, naive = enumerate_graph(
        CYCLE, torch.tensor([0.0, 1.0]), lambda x: 0.2 + 0.3 * x + 0.2 * x.roll(1), outcome, 0, t, z
    )
    by_hand = t + 2 * z + 1.5 + t * z / 2  # the mean of both covariates is 1/2
    assert truth == pytest.approx(by_hand, abs=1e-12)
    assert adjusted == pytest.approx(truth, abs=1e-12)
    assert abs(naive - truth) > 0.05


@pytest.mark.equation("eq-networked_interference-bias")
def test_bias_is_a_product():
    """E2: both sides by exact sums on random tables; either nuisance right gives 0; second order in both."""
    population = DiscretePopulation.draw(2, 3, gen(1))
    other = DiscretePopulation.draw(2, 3, gen(2))
    mu, g = other.outcome, other.propensity
    bias = population.estimated(mu, g) - population.response()
    torch.testing.assert_close(bias, population.product_bias(mu, g), rtol=0, atol=1e-14)
    assert float(bias.abs().min()) > 1e-3
    for pair in ((population.outcome, g), (mu, population.propensity)):
        assert float((population.estimated(*pair) - population.response()).abs().max()) < 1e-14
    sizes = []
    for delta in (1e-2, 1e-3):
        near = population.estimated(
            population.outcome + delta * mu, population.propensity * (1 + delta * torch.sin(7 * mu))
        )
        sizes.append(float((near - population.response()).abs().max()))
    assert np.log10(sizes[0] / sizes[1]) == pytest.approx(2, abs=0.05)


def test_scalar_population_is_what_it_says():
    sample = Scalar.draw(200_000, gen())
    a = float(Scalar.tilt * np.tanh(0.7))
    near = (sample.x - 0.7).abs() < 0.05
    for z in (0.25, 0.6):
        share = float((sample.z[near] < z).double().mean())
        assert share == pytest.approx(z + a * (z * z - z), abs=0.02)
    assert float(sample.t[near].mean()) == pytest.approx(1 / (1 + np.exp(-0.7)), abs=0.02)
    density = quad(lambda z: float(Scalar.density(z, torch.tensor(0.7).double())), 0, 1)[0]
    assert density == pytest.approx(1, abs=1e-12)
    mean = quad(
        lambda x: (
            float(Scalar.outcome(1.0, 0.4, torch.tensor(x).double()))
            * np.exp(-x * x / 2)
            / np.sqrt(2 * np.pi)
        ),
        *(-9, 9),
    )[0]
    assert mean == pytest.approx(Scalar.response(1.0, 0.4), abs=1e-9)
    residual = sample.y - Scalar.outcome(sample.t, sample.z, sample.x)
    assert float(residual.std()) == pytest.approx(0.5, abs=0.01)


def population_limit(arm, outcome, propensity, points):
    """Targeted response of an infinite sample, from the normal equations by quadrature over x and z."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(160)
    x = torch.from_numpy(nodes)[:, None]
    chance = torch.from_numpy(weights / weights.sum())[:, None]
    z, w = np.polynomial.legendre.leggauss(60)
    z, w = torch.from_numpy((z + 1) / 2)[None, :], torch.from_numpy(w / 2)[None, :]
    basis = truncated_power_basis(z[0], KNOTS)
    g = propensity(arm, z, x)
    weight = chance * w * Scalar.propensity(arm, z, x) / g
    left = torch.einsum("xz,zk,zl->kl", weight / g, basis, basis)
    right = torch.einsum("xz,zk->k", weight * (Scalar.outcome(arm, z, x) - outcome(arm, z, x + 0 * z)), basis)
    solution = torch.linalg.solve(left, right)
    out = []
    for point in points:
        b = truncated_power_basis(torch.tensor([point], dtype=torch.float64), KNOTS)[0] @ solution
        out.append(
            (chance[:, 0] * (outcome(arm, point, x[:, 0]) + b / propensity(arm, point, x[:, 0]))).sum()
        )
    return torch.stack(out)


EXPOSURES = [0.1, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.equation("eq-networked_interference-robust")
@pytest.mark.parametrize("arm", [0.0, 1.0])
def test_limits_with_one_nuisance_right(arm):
    """E4: by quadrature, either nuisance right leads to psi, both wrong do not; a large sample follows its limit."""
    truth = torch.tensor([Scalar.response(arm, z) for z in EXPOSURES], dtype=torch.float64)
    limits = {name: population_limit(arm, *nuisances, EXPOSURES) for name, nuisances in CASES.items()}
    for name in ("both right", "propensity wrong"):
        torch.testing.assert_close(limits[name], truth, rtol=0, atol=1e-8)
    # E(1/g) of this population is no exact spline in z, so right up to the spline's resolution
    assert float((limits["outcome wrong"] - truth).abs().max()) < 0.02
    assert float((limits["both wrong"] - truth).abs().max()) > 0.2
    sample = Scalar.draw(60_000, gen(3))
    for name in ("propensity wrong", "both wrong"):
        curve, _ = targeted_curve(sample, CASES[name], [(arm, z) for z in EXPOSURES], KNOTS)
        torch.testing.assert_close(curve, limits[name], rtol=0, atol=0.06)


@pytest.mark.equation("eq-networked_interference-tilt")
def test_the_shortcut_debiases_a_tilted_population():
    """Section 12: the control arm's limit under P(T = 1) misses psi; the treated arm's does not."""

    def shortcut(t, z, x):
        return Scalar.propensity(1.0, z, x)

    wrong = population_limit(0.0, _half, shortcut, EXPOSURES)
    truth = torch.tensor(EXPOSURES, dtype=torch.float64)
    assert float((wrong - truth).square().mean().sqrt()) > 0.4
    assert float((population_limit(1.0, _half, shortcut, EXPOSURES) - truth - 1).abs().max()) < 0.02
    sample = Scalar.draw(100_000, gen(4))
    points = [(t, z) for t in (0.0, 1.0) for z in EXPOSURES]
    curve, _ = targeted_curve(sample, Nuisances(_half, shortcut), points, KNOTS)
    torch.testing.assert_close(curve[:5], wrong, rtol=0, atol=0.12)
    # with the outcome right the shortcut does no harm: the other branch survives
    right, _ = targeted_curve(sample, RIGHT._replace(propensity=shortcut), points, KNOTS)
    assert float((right[:5] - truth).abs().max()) < 0.05


@pytest.mark.equation("eq-networked_interference-rate")
def test_error_is_of_second_order():
    """E5: in the limit of an infinite sample the targeted error falls with delta squared, the plug-in's with delta."""
    errors = []
    for delta in (0.2, 0.1, 0.05):
        limit = torch.cat([population_limit(t, *_shifted(delta), EXPOSURES) for t in (0.0, 1.0)])
        errors.append(float((limit - TRUTH).square().mean().sqrt()))
    slopes = -np.diff(np.log2(errors))
    assert (slopes > 1.7).all()
    sample = Scalar.draw(40_000, gen(5))
    targeted, plain = zip(
        *(targeted_curve(sample, _shifted(d), POINTS, KNOTS) for d in (0.4, 0.2)), strict=True
    )
    size = [[float((c - TRUTH).square().mean().sqrt()) for c in curves] for curves in (targeted, plain)]
    assert np.log2(size[0][0] / size[0][1]) > 1.5
    assert np.log2(size[1][0] / size[1][1]) == pytest.approx(1, abs=0.1)


def test_perturbation_vanishes_when_the_outcome_is_right():
    x, t, z, y = Scalar.draw(100_000, gen(6))
    for g in (torch.full_like(x, 0.5), torch.exp(x / 3)):
        for w in fit_perturbation(y, t, z, Scalar.outcome(t, z, x), g, KNOTS):
            curve = truncated_power_basis(torch.linspace(0, 1, 21).double(), KNOTS) @ w
            assert float(curve.abs().max()) < 0.08
