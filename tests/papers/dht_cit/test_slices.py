"""The simulator: its recursion, its graphs, its noise, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.dht_cit import SubsampledConfig, random_dag, sample_noise, simulate_slices

SCALAR = {
    "linear": lambda v: v,
    "sin": math.sin,
    "pow2": lambda v: 0.1 * (v + 2) ** 2,
    "sigmoid": lambda v: 3 / (1 + math.exp(v)),
}


def unit_by_unit(graph, noise, lag1, lag2, f, g, weight):
    """The recursion for one unit at a time, scalars only, no normalisation."""
    T, n, d = noise.shape
    x = noise.tolist()
    for u in range(n):
        for t in range(1, T):
            for i in range(d):
                value = noise[t, u, i] + g(x[t - 1][u][i])
                value += weight * sum(g(x[t - 1][u][j]) for j in range(d) if lag1[j, i])
                if t >= 2:
                    value += weight * sum(g(x[t - 2][u][j]) for j in range(d) if lag2[j, i])
                x[t][u][i] = value + sum(f(x[t][u][j]) for j in range(d) if graph[j, i])
    return np.array(x)


@pytest.mark.equation("eq-dht_cit-model")
@pytest.mark.parametrize(("f", "g"), [("sin", "sigmoid"), ("sigmoid", "sin"), ("pow2", "linear")])
def test_recursion_unit_by_unit(f, g):
    r = np.random.default_rng(0)
    graph = random_dag(5, 7, generator=r)
    lag1, lag2 = (graph * (r.random((5, 5)) < 0.5) for _ in range(2))
    noise = 0.3 * r.standard_normal((4, 6, 5))
    ours = simulate_slices(
        *(graph, noise), lag1=lag1, lag2=lag2, config=SubsampledConfig(f, g, normalize=False, lag_weight=0.2)
    )
    np.testing.assert_allclose(
        ours, unit_by_unit(graph, noise, lag1, lag2, SCALAR[f], SCALAR[g], 0.2), rtol=1e-12, atol=1e-12
    )


def test_parity_with_authors(parity):
    for case in parity("simulate"):
        f, g, normalize = (str(v) for v in case["cfg"])
        config = SubsampledConfig(f, g, normalize=normalize == "True")
        ours = simulate_slices(
            case["adj"], case["noise"], lag1=case["lag1"], lag2=case["lag2"], config=config
        )
        np.testing.assert_allclose(ours, case["x"], rtol=1e-12, atol=1e-10)  # one case reaches 5e5


def test_normalised_slices_and_untouched_input():
    r = np.random.default_rng(1)
    noise = r.standard_normal((4, 50, 3))
    kept = noise.copy()
    x = simulate_slices(np.triu(np.ones((3, 3)), 1), noise)
    np.testing.assert_array_equal(noise, kept)
    np.testing.assert_array_equal(x[0], noise[0])  # the first slice is its noise, as it is
    np.testing.assert_allclose(x[1:].mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(x[1:].std(axis=1, ddof=1), 1, atol=1e-12)
    still = simulate_slices(np.zeros((2, 2)), np.full((3, 7, 2), 0.1))  # the same in all units: centred only
    np.testing.assert_allclose(still[1:], 0, atol=1e-14)


def test_sigmoid_falls_and_aliases_agree():
    noise = np.array([[[1.0, 2.0]], [[0.0, 0.0]]])
    plain = SubsampledConfig("linear", "sigmoid", normalize=False)
    x = simulate_slices([[0, 0], [0, 0]], noise, config=plain)
    np.testing.assert_allclose(x[1, 0], 3 / (1 + np.exp([1.0, 2.0])))
    assert x[1, 0, 0] > x[1, 0, 1]
    same = [
        simulate_slices([[0, 1], [0, 0]], noise, config=SubsampledConfig(n, n, False))
        for n in ("pow2", "pow3", "poly")
    ]
    assert (same[0] == same[1]).all()
    assert (same[0] == same[2]).all()


def test_accepts_tensors_and_lists():
    noise = torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x = simulate_slices(torch.tensor([[0, 1], [0, 0]]), noise)
    assert x.dtype == np.float64
    assert x.shape == (3, 8, 2)
    np.testing.assert_array_equal(x, simulate_slices([[0, 1], [0, 0]], noise.detach().double().numpy()))


@pytest.mark.parametrize("edges", [0, 1, 9, 15])
def test_random_dag_er(edges):
    a, b = (random_dag(6, edges, generator=np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(a, b)
    assert np.issubdtype(a.dtype, np.integer)
    assert a.sum() == edges
    assert not np.tril(a).any()


def test_random_dag_er_is_uniform_over_pairs():
    r = np.random.default_rng(0)
    frequency = np.mean([random_dag(5, 3, generator=r) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(frequency[np.triu_indices(5, 1)], 0.3, atol=4 * (0.21 / 4000) ** 0.5)


def test_random_dag_scale_free():
    a = random_dag(30, 60, kind="sf", generator=np.random.default_rng(0))
    assert not np.tril(a).any()
    assert a.sum() == 1 + 2 * 28
    r = np.random.default_rng(1)
    hubs = np.mean([np.sort(random_dag(30, 60, kind="sf", generator=r).sum(1))[-1] for _ in range(50)])
    flat = np.mean([np.sort(random_dag(30, 57, generator=r).sum(1))[-1] for _ in range(50)])
    assert hubs > flat + 2  # preferential attachment makes hubs
    assert random_dag(1, 0, kind="sf", generator=r).shape == (1, 1)


@pytest.mark.parametrize(("kind", "deviation"), [("gauss", 0.4), ("laplace", 0.4), ("uniform", 0.4 / 3**0.5)])
def test_noise_scales(kind, deviation):
    e = sample_noise(3, 20000, 2, kind=kind, generator=np.random.default_rng(0))
    assert e.shape == (3, 20000, 2)
    np.testing.assert_allclose(e[1:].std(), deviation, rtol=0.02)
    np.testing.assert_allclose(e[0].std(), deviation / 0.4, rtol=0.02)
    if kind == "uniform":
        assert np.abs(e[1:]).max() <= 0.4


def test_global_state_untouched(global_random_state):
    before = global_random_state()
    g = np.random.default_rng(0)
    simulate_slices(random_dag(4, 3, kind="sf", generator=g), sample_noise(2, 9, 4, generator=g))
    assert global_random_state() == before


G = np.random.default_rng(0)
NOISE = np.zeros((2, 4, 2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: random_dag(3, 4, generator=G), "pairs"),
        (lambda: random_dag(3, -1, generator=G), "n_edges"),
        (lambda: random_dag(0, 0, generator=G), "d must"),
        (lambda: random_dag(3, 1, kind="tree", generator=G), "kind"),
        (lambda: sample_noise(2, 3, 2, kind="cauchy", generator=G), "kind"),
        (lambda: sample_noise(2, 0, 2, generator=G), "n must"),
        (lambda: sample_noise(2, 3, 2, std=-1.0, generator=G), "std"),
        (lambda: simulate_slices([[0, 1], [1, 0]], NOISE), "acyclic"),
        (lambda: simulate_slices([[1, 0], [0, 0]], NOISE), "acyclic"),
        (lambda: simulate_slices([[0, 0], [1, 0]], NOISE), "upper triangular"),
        (lambda: simulate_slices(np.zeros((3, 3)), NOISE), "shape"),
        (lambda: simulate_slices([[0, 1], [0, 0]], NOISE[0]), "shape"),
        (lambda: simulate_slices([[0, 1], [0, 0]], NOISE + np.nan), "finite"),
        (lambda: simulate_slices([[0, 0.5], [0, 0]], NOISE), "0 and 1"),
        (lambda: simulate_slices([[0, 1], [0, 0]], NOISE[:, :1]), "2 units"),
        (lambda: simulate_slices([[0, 1], [0, 0]], NOISE, config=SubsampledConfig(lagged="exp")), "sigmoid"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_rejects_other_generators():
    with pytest.raises(TypeError, match="numpy"):
        random_dag(3, 1, generator=torch.Generator())
