"""Agents, robust means, marginal effects, Shapley values and rank correlation."""

from __future__ import annotations

import itertools
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.stats
import torch

from icml24.papers import actor_critic as ac

CLOSE = {"rtol": 0, "atol": 1e-10}


@pytest.fixture
def grid(parity):
    return dict(zip(ac.full_grid(), parity["grid"].flatten().tolist(), strict=True))


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_grid():
    grid = ac.full_grid()
    assert len(grid) == len(set(grid)) == 64
    assert grid[0] == ac.AgentSpec()
    assert grid[0].name == "sac"
    assert grid[1].name == "redo"
    assert grid[-1].name == "top+weight_decay+reset"
    assert [(s.critic, s.network, s.plasticity) for s in grid] == list(
        itertools.product(ac.CRITIC, ac.NETWORK, ac.PLASTICITY)
    )
    assert ac.AgentSpec("cdq", "dropout").name == "cdq+dropout"
    with pytest.raises(FrozenInstanceError):
        grid[0].critic = "cdq"


def test_parity_of_statistics(parity):
    x, y = parity["scores_x"], parity["scores_y"]
    for name, scores in (("iqm_x", x), ("iqm_y", y)):
        torch.testing.assert_close(ac.iqm(scores), parity[name], **CLOSE)
    torch.testing.assert_close(ac.probability_of_improvement(x, y), parity["poi"], **CLOSE)
    point, low, high = ac.bootstrap_iqm(x)
    torch.testing.assert_close(point, parity["iqm_x"], **CLOSE)
    torch.testing.assert_close(torch.stack([low, high]), parity["iqm_ci"], rtol=0, atol=0.03)
    torch.testing.assert_close(ac.spearman(parity["sp_a"], parity["sp_b"]), parity["sp"], **CLOSE)


@pytest.mark.equation("eq-actor_critic-marginal")
def test_parity_of_effects(parity, grid):
    for family in ("critic", "network", "plasticity"):
        found = ac.first_order_effects(grid, family)
        np.testing.assert_allclose(list(found.values()), parity[f"first_{family}"], rtol=0, atol=1e-10)
    assert list(ac.first_order_effects(grid, "network")) == list(ac.NETWORK)
    for name, families in (("second_cn", ("critic", "network")), ("second_np", ("network", "plasticity"))):
        torch.testing.assert_close(ac.second_order_effects(grid, *families), parity[name], **CLOSE)
    spec = ac.AgentSpec("cdq", "layer_norm", "reset")
    found = ac.shapley_contributions(grid, spec)
    assert list(found) == ["critic", "network", "plasticity"]
    np.testing.assert_allclose(list(found.values()), parity["shapley_113"], rtol=0, atol=1e-10)


@pytest.mark.equation("eq-actor_critic-marginal")
def test_effects_of_an_additive_world(grid):
    """Where techniques add up, first-order differences are the techniques' own worth."""
    worth = {"none": 0.0, "cdq": 1.0, "gpl": 2.0, "top": 3.0, "layer_norm": 10.0, "reset": -4.0}
    scores = {s: sum(worth.get(v, 0.0) for v in (s.critic, s.network, s.plasticity)) for s in grid}
    critic = ac.first_order_effects(scores, "critic")
    assert [critic[v] - critic["none"] for v in ac.CRITIC] == pytest.approx([0, 1, 2, 3])
    found = ac.shapley_contributions(scores, ac.AgentSpec("top", "layer_norm", "reset"))
    assert found == pytest.approx({"critic": 3, "network": 10, "plasticity": -4})


@pytest.mark.equation("eq-actor_critic-shapley")
def test_shapley_is_efficient_and_symmetric(grid):
    """E15, against the formula over subsets."""
    sac = ac.AgentSpec()
    for spec in ac.full_grid():
        assert sum(ac.shapley_contributions(grid, spec).values()) == pytest.approx(
            grid[spec] - grid[sac], abs=1e-12
        )
    spec = ac.AgentSpec("gpl", "spectral_norm", "crelu")
    fields = ("critic", "network", "plasticity")

    def worth(members):
        return grid[ac.AgentSpec(**{f: getattr(spec, f) for f in members})]

    for name in fields:
        others = [f for f in fields if f != name]
        total = sum(
            math.factorial(size) * math.factorial(2 - size) / 6 * (worth((*s, name)) - worth(s))
            for size in range(3)
            for s in itertools.combinations(others, size)
        )
        assert ac.shapley_contributions(grid, spec)[name] == pytest.approx(total, abs=1e-12)
    equal = {s: float((s.critic == "cdq") + (s.network == "layer_norm")) ** 2 for s in grid}
    pair = ac.shapley_contributions(equal, ac.AgentSpec("cdq", "layer_norm", "redo"))
    assert pair["critic"] == pytest.approx(pair["network"])
    assert pair["plasticity"] == 0


@pytest.mark.equation("eq-actor_critic-iqm")
def test_iqm_is_robust():
    """E14: one wild score of eight changes nothing; the mean of a uniform sample is kept."""
    x = torch.linspace(0, 1, 8, dtype=torch.float64)
    assert float(ac.iqm(x)) == pytest.approx(0.5)
    wild = x.clone()
    wild[-1] = 1e9
    assert torch.equal(ac.iqm(wild), ac.iqm(x))
    y = rand(5, 7)
    assert float(ac.iqm(y)) == pytest.approx(scipy.stats.trim_mean(y.flatten(), 0.25), abs=1e-14)
    assert ac.iqm([1, 2, 3]).item() == 2.0
    assert ac.iqm(torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.equation("eq-actor_critic-iqm")
def test_bootstrap_stays_within_tasks():
    """Tasks of very different level but no spread: resampling within tasks gives width zero."""
    scores = torch.arange(6.0).double().expand(5, 6) * 100
    point, low, high = ac.bootstrap_iqm(scores, reps=200)
    assert point == low == high
    noisy = rand(20, 3)
    assert ac.bootstrap_iqm(noisy, reps=300) == ac.bootstrap_iqm(noisy, reps=300)
    g = torch.Generator().manual_seed(5)
    wide, narrow = (ac.bootstrap_iqm(noisy, confidence=c, generator=g) for c in (0.99, 0.5))
    assert wide[2] - wide[1] > narrow[2] - narrow[1]


def test_probability_of_improvement_by_counting():
    x, y = rand(3, 4).round(), rand(6, 4, seed=1).round()
    wins = [
        (x[i, t] > y[j, t]).double() + 0.5 * (x[i, t] == y[j, t])
        for i in range(3)
        for j in range(6)
        for t in range(4)
    ]
    assert float(ac.probability_of_improvement(x, y)) == pytest.approx(float(sum(wins)) / len(wins))
    assert float(ac.probability_of_improvement(x, y) + ac.probability_of_improvement(y, x)) == pytest.approx(
        1
    )


@pytest.mark.equation("eq-actor_critic-spearman")
def test_spearman_is_pearson_of_mid_ranks():
    """E16, against SciPy, with many ties."""
    for seed in range(20):
        a, b = (2 * rand(15, seed=2 * seed)).round(), rand(15, seed=2 * seed + 1)
        assert float(ac.spearman(a, b)) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    assert float(ac.spearman(a, a.exp())) == pytest.approx(1)
    assert torch.isnan(ac.spearman(torch.ones(4), torch.arange(4.0)))


def test_partial_grids_have_gaps():
    some = {ac.AgentSpec("cdq", "layer_norm"): 2.0, ac.AgentSpec("cdq"): 1.0}
    assert ac.first_order_effects(some, "critic")["cdq"] == 1.5
    assert math.isnan(ac.first_order_effects(some, "critic")["top"])
    table = ac.second_order_effects(some, "critic", "network")
    assert table.shape == (4, 4)
    assert int(torch.isnan(table).sum()) == 14


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ac.AgentSpec("CDQ"), "expected one of"),
        (lambda: ac.AgentSpec(network="batch_norm"), "layer_norm"),
        (lambda: ac.AgentSpec(None), "critic"),
        (lambda: ac.first_order_effects({ac.AgentSpec(): 1.0}, "actor"), "family"),
        (lambda: ac.first_order_effects({}, "critic"), "empty"),
        (lambda: ac.first_order_effects({ac.AgentSpec("none", "dropout"): 1.0}, "critic"), "grid"),
        (lambda: ac.second_order_effects({ac.AgentSpec(): math.nan}, "critic", "network"), "finite"),
        (lambda: ac.second_order_effects({ac.AgentSpec(): 1.0}, "critic", "critic"), "different"),
        (lambda: ac.iqm(torch.tensor([])), "empty"),
        (lambda: ac.iqm([1.0, math.nan]), "finite"),
        (lambda: ac.iqm("abc"), "numbers"),
        (lambda: ac.bootstrap_iqm(torch.ones(5)), "runs, tasks"),
        (lambda: ac.bootstrap_iqm(torch.ones(5, 2), reps=0), "reps"),
        (lambda: ac.bootstrap_iqm(torch.ones(5, 2), confidence=1.0), "confidence"),
        (lambda: ac.probability_of_improvement(torch.ones(3, 2), torch.ones(3, 3)), "same tasks"),
        (lambda: ac.spearman(torch.ones(3), torch.ones(4)), "one length"),
        (lambda: ac.spearman(torch.ones(1), torch.ones(1)), "at least 2"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_a_missing_agent_is_named():
    with pytest.raises(KeyError, match="layer_norm"):
        ac.shapley_contributions({ac.AgentSpec(): 0.0}, ac.AgentSpec("none", "layer_norm"))
