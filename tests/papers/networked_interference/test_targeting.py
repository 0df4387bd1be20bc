"""Closed-form targeting and the influence function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.networked_interference import (
    fit_perturbation,
    influence_values,
    targeted_mean,
    truncated_power_basis,
)
from icml24.papers.networked_interference.populations import DiscretePopulation, Scalar
from icml24.papers.networked_interference.targeting import projected_equations

KNOTS = [0.25, 0.5, 0.75]


@pytest.fixture
def arrays():
    """Outcome, treatment, exposure and two poor nuisances of 500 units."""
    x, t, z, y = Scalar.draw(500, torch.Generator().manual_seed(0))
    return y, t, z, 0.3 * x + t, 0.2 + torch.sigmoid(x - z)


def test_parity(stored):
    data = stored("targeted_fit")
    for k in range(int(data["n"])):
        knots = data[f"knots{k}"].tolist()
        both = fit_perturbation(*(data[f"{name}{k}"] for name in ("y", "t", "z", "mu", "g")), knots)
        for arm, weights in zip((1, 0), both, strict=True):
            torch.testing.assert_close(weights, data[f"w{arm}_{k}"], rtol=1e-6, atol=1e-12)
            ours = targeted_mean(
                data[f"muq{k}_{arm}"], data[f"gq{k}_{arm}"], float(data[f"zq{k}_{arm}"]), weights, knots
            )
            assert float(ours) == pytest.approx(float(data[f"psi{k}_{arm}"]), abs=1e-8)


@pytest.mark.equation("eq-networked_interference-condition")
def test_targeting_solves_the_influence_equations(arrays):
    """E3: after the fit every projected equation is zero, and the gradient of the loss is minus twice them."""
    y, t, z, mu, g = arrays
    weights = fit_perturbation(*arrays, KNOTS)
    assert float(projected_equations(*arrays, weights, KNOTS).abs().max()) < 1e-8
    free = [torch.randn(6, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (1, 2)]
    leaves = [w.requires_grad_(True) for w in free]
    basis = truncated_power_basis(z, KNOTS)
    epsilon = torch.where(t == 1, basis @ leaves[0], basis @ leaves[1])
    (y - mu - epsilon / g).square().mean().backward()
    gradient = torch.stack([w.grad for w in leaves])
    equations = projected_equations(*arrays, tuple(w.detach() for w in leaves), KNOTS)
    torch.testing.assert_close(gradient, -2 * equations, rtol=1e-10, atol=1e-10)


@pytest.mark.equation("eq-networked_interference-estimate")
def test_estimate_is_the_mean_of_perturbed_predictions(arrays):
    """The estimate unit by unit; with the weights at zero it is the plug-in mean."""
    g = torch.Generator().manual_seed(3)
    mu, propensity = torch.randn(40, generator=g).double(), 0.1 + torch.rand(40, generator=g).double()
    weights, z = torch.randn(6, generator=g).double(), 0.6
    spline = np.polyval(weights[:3].flip(0).numpy(), z) + sum(
        float(w) * max(z - k, 0) ** 2 for w, k in zip(weights[3:], KNOTS, strict=True)
    )
    expected = np.mean([float(m) + spline / float(p) for m, p in zip(mu, propensity, strict=True)])
    assert float(targeted_mean(mu, propensity, z, weights, KNOTS)) == pytest.approx(expected, abs=1e-12)
    assert float(targeted_mean(mu, propensity, z, torch.zeros(6), KNOTS)) == pytest.approx(float(mu.mean()))


def test_laws_of_the_fit(arrays):
    y, t, z, mu, g = arrays
    base = fit_perturbation(*arrays, KNOTS)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    for again in (
        fit_perturbation(*(v[order] for v in arrays), KNOTS),
        fit_perturbation(y + 3, t, z, mu + 3, g, KNOTS),
    ):
        for a, b in zip(again, base, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)
    scaled = fit_perturbation(y, t, z, mu, 7 * g, KNOTS)
    for a, b in zip(scaled, base, strict=True):
        torch.testing.assert_close(a, 7 * b, rtol=1e-8, atol=1e-9)
        one, other = targeted_mean(mu, 7 * g, 0.4, a, KNOTS), targeted_mean(mu, g, 0.4, b, KNOTS)
        assert float(one) == pytest.approx(float(other), abs=1e-10)


def test_arms_are_separate_and_treated_comes_first(arrays):
    y, t, z, mu, g = arrays
    moved = fit_perturbation(y + t * z, t, z, mu, g, KNOTS)
    base = fit_perturbation(*arrays, KNOTS)
    assert torch.equal(moved[1], base[1])
    assert not torch.allclose(moved[0], base[0])


@pytest.mark.equation("eq-networked_interference-influence")
def test_influence_function_has_mean_zero_at_the_truth():
    """E2: summed over a discrete population with exact chances; an estimate's mean is psi plus the bias."""
    population = DiscretePopulation.draw(3, 3, torch.Generator().manual_seed(0))
    cells = [(m, t, z) for m in range(3) for t in range(2) for z in range(3)]
    chance = torch.stack([population.chance[m] * population.propensity[m, t, z] for m, t, z in cells])
    t = torch.tensor([float(t) for _, t, _ in cells]).double()
    z = torch.tensor([z / 2 for _, _, z in cells]).double()
    mu = torch.stack([population.outcome[cell] for cell in cells])
    g = torch.stack([population.propensity[cell] for cell in cells])
    for t0 in (0, 1):
        for k in range(3):
            query = torch.stack([population.outcome[m, t0, k] for m, _, _ in cells])
            psi = float(population.response()[t0, k])
            values = influence_values(mu + 0.0, t, z, mu, g, query, psi, float(t0), k / 2)
            assert float(chance @ values) == pytest.approx(0, abs=1e-14)
            # a shifted outcome model is repaired by the residual term when g is right ...
            values = influence_values(mu, t, z, mu + 1, g, query + 1, psi, float(t0), k / 2)
            assert float(chance @ values) == pytest.approx(0, abs=1e-14)
            # ... and not when g is wrong
            values = influence_values(mu, t, z, mu + 1, 2 * g, query + 1, psi, float(t0), k / 2)
            assert float(chance @ values) == pytest.approx(0.5, abs=1e-14)


def test_influence_values_pick_the_atom():
    y, t, z = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0.5, 0.5, 0.25])
    out = influence_values(y, t, z, torch.zeros(3), torch.full((3,), 0.5), torch.ones(3), 1.0, 1.0, 0.5)
    assert out.tolist() == [2.0, 0.0, 0.0]
    wide = influence_values(
        y, t, z, torch.zeros(3), torch.full((3,), 0.5), torch.ones(3), 1.0, 1.0, 0.5, atol=0.3
    )
    assert wide.tolist() == [2.0, 0.0, 6.0]


def test_dtypes_kinds_and_gradients(arrays):
    single = fit_perturbation(*(v.float() for v in arrays), KNOTS)
    assert {w.dtype for w in single} == {torch.float32}
    lists = fit_perturbation(*(v.tolist() for v in arrays), KNOTS)
    arrays_ = fit_perturbation(*(v.numpy() for v in arrays), KNOTS)
    torch.testing.assert_close(arrays_[0], fit_perturbation(*arrays, KNOTS)[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(lists[0], single[0], rtol=1e-3, atol=1e-3)
    mean = targeted_mean(arrays[3].float(), arrays[4], 0.5, single[0], KNOTS)
    assert mean.dtype == torch.float32
    psi = torch.tensor(0.3, requires_grad=True)
    influence_values(*arrays, arrays[3], psi, 1.0, 0.5).sum().backward()
    assert float(psi.grad) == -500
    y = arrays[0].clone().requires_grad_(True)
    fit_perturbation(y, *arrays[1:], KNOTS)[0].sum().backward()
    assert torch.isfinite(y.grad).all()


def test_few_rows_take_the_smallest_weights():
    y, t, z = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    w1, w0 = fit_perturbation(y, t, z, torch.zeros(2), torch.ones(2), [0.5])
    basis = truncated_power_basis(z[:1], [0.5])[0]
    assert float(basis @ w1) == pytest.approx(1, abs=1e-6)
    assert float(basis @ w0) == pytest.approx(2, abs=1e-6)
    torch.testing.assert_close(w1, basis / (basis @ basis))


def test_bad_input(arrays):
    y, t, z, mu, g = arrays
    zero = g.clone()
    zero[3] = 0
    nan = y.clone()
    nan[0] = float("nan")
    cases = [
        ((y, t, z, mu, zero), "positive"),
        ((y, t, z, mu, -g), "positive"),
        ((y, torch.ones_like(t), z, mu, g), "no units"),
        ((y, torch.zeros_like(t), z, mu, g), "no units"),
        ((y, t + 0.5, z, mu, g), "binary"),
        ((y, t, z + 1, mu, g), "z must lie"),
        ((nan, t, z, mu, g), "finite"),
        ((y, t, z, mu[:-1], g), "one entry a unit"),
        ((y[:, None], t, z, mu, g), "vector"),
        ((y[:0], t[:0], z[:0], mu[:0], g[:0]), "non-empty"),
    ]
    for values, message in cases:
        with pytest.raises(ValueError, match=message):
            fit_perturbation(*values, KNOTS)
    with pytest.raises(ValueError, match="degree"):
        fit_perturbation(*arrays, KNOTS, 0)
    with pytest.raises(ValueError, match="knots"):
        fit_perturbation(*arrays, [1.0])
    weights = fit_perturbation(*arrays, KNOTS)[0]
    for bad in (dict(z=1.2), dict(g_q=zero), dict(weights=weights[:-1]), dict(mu_q=mu[:-1])):
        given = dict(mu_q=mu, g_q=g, z=0.5, weights=weights, knots=KNOTS) | bad
        with pytest.raises(ValueError, match=f"{next(iter(bad))}|one entry"):
            targeted_mean(**given)
    for point, message in (((0.5, 0.5), "binary"), ((1.0, 2.0), "z0 must")):
        with pytest.raises(ValueError, match=message):
            influence_values(*arrays, mu, 0.0, *point)
    for psi, atol, message in (
        (float("nan"), 0.1, "psi"),
        (torch.tensor(float("nan")), 0.1, "psi"),
        (torch.zeros(3), 0.1, "psi must be one number"),
        (0.0, -0.1, "atol"),
    ):
        with pytest.raises(ValueError, match=message):
            influence_values(*arrays, mu, psi, 1.0, 0.5, atol=atol)
