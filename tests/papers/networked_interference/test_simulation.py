"""Simulated data, and what a naive contrast is made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.networked_interference import exposure, simulate_network_data
from icml24.papers.networked_interference.simulation import naive_parts


@pytest.fixture
def simulate(network):
    """Function from keywords to simulated data on a graph of 200 units, with its ingredients."""

    def make(seed=0, dtype=torch.float64, units=200, **keywords):
        adjacency, x, _ = network(units, 6, dtype=dtype)
        w = 3 * torch.randn(2, 6, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        g = torch.Generator().manual_seed(seed)
        data = simulate_network_data(adjacency, x, w_treatment=w[0], w_outcome=w[1], generator=g, **keywords)
        return data, adjacency.numpy(), x.numpy(), w.numpy()

    return make


def scores(adjacency, x, w, own, others):
    p = 1 / (1 + np.exp(-x @ w))
    raw = own * p + others * (adjacency @ p) / adjacency.sum(axis=1)
    return (raw - raw.mean()) / raw.std()


@pytest.mark.equation("eq-networked_interference-treatment")
def test_treatment_follows_its_chances(simulate):
    """Frequencies over 400 draws against chances from NumPy, within five standard errors."""
    draws = np.mean([simulate(seed)[0].t.numpy() for seed in range(400)], axis=0)
    _, adjacency, x, w = simulate()
    chance = 1 / (1 + np.exp(-2 * scores(adjacency, x, w[0], 0.5, 0.5)))
    assert np.abs((draws - chance) / np.sqrt(chance * (1 - chance) / 400)).max() < 5
    assert chance.std() > 0.2
    assert simulate(confounding=0.0)[0].t.mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.equation("eq-networked_interference-outcome")
@pytest.mark.parametrize("heterogeneous", [False, True])
def test_surface_and_effects(simulate, heterogeneous):
    """The surface from NumPy; average effects 1, 1/2 and 2 to 1e-12, individual ones too when homogeneous."""
    data, adjacency, x, w = simulate(heterogeneous=heterogeneous)
    c = scores(adjacency, x, w[1], 1.0, 0.5)
    for t, z in ((1.0, 0.0), (0.0, 0.7), (1.0, 1.0)):
        expected = t + z + c + 0.5 * heterogeneous * (t + z) * c
        np.testing.assert_allclose(data.truth(t, z).numpy(), expected, atol=1e-12)
    for first, second, effect in (((1, 0), (0, 0), 1.0), ((0, 0.7), (0, 0.2), 0.5), ((1, 1), (0, 0), 2.0)):
        individual = data.truth(*first) - data.truth(*second)
        assert float(individual.mean()) == pytest.approx(effect, abs=1e-12)
        assert (float(individual.std()) < 1e-12) is (not heterogeneous)
    noise = (data.y - data.truth(data.t, data.z)).numpy()
    assert noise.std() == pytest.approx(0.1, rel=0.2)
    torch.testing.assert_close(data.z, exposure(data.adjacency, data.t), rtol=0, atol=0)


def test_seeds_and_dtypes(simulate):
    one, two, other = (simulate(seed)[0] for seed in (0, 0, 1))
    for name in ("x", "t", "z", "y"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert not torch.equal(one.y, other.y)
    single = simulate(dtype=torch.float32)[0]
    assert {getattr(single, name).dtype for name in ("x", "t", "z", "y")} == {torch.float32}
    quiet = simulate(noise_std=0.0)[0]
    torch.testing.assert_close(quiet.y, quiet.truth(quiet.t, quiet.z), rtol=0, atol=0)


@pytest.mark.equation("eq-networked_interference-naive")
@pytest.mark.parametrize("heterogeneous", [False, True])
def test_naive_contrast_is_the_sum_of_its_parts(simulate, heterogeneous):
    """E11: the decomposition adds up; its parts by hand in the homogeneous case."""
    data = simulate(heterogeneous=heterogeneous)[0]
    parts = {name: float(value) for name, value in naive_parts(data).items()}
    y, t = data.y.numpy(), data.t.numpy()
    assert parts["naive"] == pytest.approx(y[t == 1].mean() - y[t == 0].mean(), abs=1e-13)
    rest = parts["main"] + parts["spillover"] + parts["confounding"] + parts["noise"]
    assert parts["naive"] == pytest.approx(rest, abs=1e-13)
    if not heterogeneous:
        z = data.z.numpy()
        assert parts["main"] == pytest.approx(1, abs=1e-13)
        assert parts["spillover"] == pytest.approx(z[t == 1].mean() - z[t == 0].mean(), abs=1e-13)
        assert abs(parts["spillover"]) + abs(parts["confounding"]) > 0.01


def test_constant_features_are_not_standardised_noise(network):
    adjacency, _, _ = network(20)
    data = simulate_network_data(
        adjacency,
        torch.full((20, 3), 0.3).double(),
        w_treatment=[1, 1, 1],
        w_outcome=[1.0, 0, 0],
        generator=torch.Generator().manual_seed(0),
    )
    assert not data.truth(0.0, 0.0).any()


def test_bad_input(network, simulate):
    adjacency, x, _ = network(20)
    g = torch.Generator().manual_seed(0)
    w = torch.ones(5)
    for arguments, keywords, message in (
        ((adjacency, x[:-1]), {}, "one row a unit"),
        ((adjacency, x[:, 0]), {}, "x must have shape"),
        ((torch.zeros(20, 20), x), {}, "isolated"),
        ((adjacency, x), {"w_treatment": w[:-1]}, "w_treatment"),
        ((adjacency, x), {"w_outcome": w / 0}, "w_outcome"),
        ((adjacency, x), {"noise_std": -1.0}, "noise_std"),
        ((adjacency, x), {"confounding": float("nan")}, "confounding"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate_network_data(*arguments, **{"w_treatment": w, "w_outcome": w, "generator": g} | keywords)
    for bad in (None, 0):
        with pytest.raises(TypeError, match="generator"):
            simulate_network_data(adjacency, x, w_treatment=w, w_outcome=w, generator=bad)
    data = simulate()[0]
    with pytest.raises(ValueError, match="truth"):
        naive_parts(type(data)(data.adjacency, data.x, data.t, data.z, data.y))
    with pytest.raises(ValueError, match="no units"):
        naive_parts(type(data)(data.adjacency, data.x, torch.ones(200), data.z, data.y, data.truth))
