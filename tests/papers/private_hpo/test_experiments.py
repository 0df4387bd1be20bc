"""Methods at their honest price, and the experiments that compare them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from icml24.papers.private_hpo import dp_gd_linear, experiments, gaussian_mu, gdp_epsilon, pld_epsilon
from icml24.papers.private_hpo.data import Problem
from icml24.papers.private_hpo.experiments import (
    FULL,
    QUICK,
    RadiusMap,
    compare,
    configure,
    digits_map,
    sampled_sigma,
    search_config,
)
from icml24.papers.private_hpo.methods import METHODS, Trainer, run_method, selection_mu


@pytest.fixture(scope="module")
def problem():
    g = torch.Generator().manual_seed(0)
    y = torch.randint(10, (700,), generator=g)
    x = torch.nn.functional.normalize(torch.eye(10, 20)[y] + 0.2 * torch.randn(700, 20, generator=g), dim=1)
    return Problem(x[:400], y[:400], x[400:550], y[400:550], x[550:], y[550:])


class Spy(Trainer):
    """A trainer that adds up what it spends."""

    spent: list[float]

    def __call__(self, lr, steps, noise_multiplier, generator):
        self.spent = [*getattr(self, "spent", []), gaussian_mu(noise_multiplier, steps)]
        return super().__call__(lr, steps, noise_multiplier, generator)


@pytest.mark.parametrize("name", [m for m in METHODS if m != "oracle"])
def test_methods_cost_their_target(name, problem):
    config = search_config(1.0, problem.delta)
    spy = Spy(dataclasses.replace(problem, x_test=None, y_test=None))  # a look at the test set would raise
    best, epsilon, _ = METHODS[name](spy, config, torch.Generator().manual_seed(1), 20)
    assert epsilon == pytest.approx(1.0, abs=1e-9)
    assert best.shape == (10, 20)
    if (
        name == "private selection"
    ):  # accounted by the Rényi bound, which allows each run less than the target
        assert {round(mu, 9) for mu in spy.spent} == {round(selection_mu(1.0, problem.delta, 7.0), 9)}
        assert gdp_epsilon(spy.spent[0], problem.delta) < 1.0
    else:
        assert gdp_epsilon(math.hypot(*spy.spent), problem.delta) == pytest.approx(1.0, abs=1e-9)
    assert len(spy.spent) == {"adaptive": 7, "random, composed": 7, "grid, composed": 9, "single": 1}.get(
        name, len(spy.spent)
    )


def test_oracle_says_what_it_really_spends(problem):
    outcome = run_method(
        "oracle", problem, search_config(1.0, problem.delta), torch.Generator().manual_seed(0), oracle_runs=4
    )
    assert outcome.runs == 4
    assert outcome.epsilon > 1.5


def test_runs_are_seeded(problem, global_random_state):
    config = search_config(1.0, problem.delta)
    before = global_random_state()
    for name in METHODS:
        one, two = (
            run_method(name, problem, config, torch.Generator().manual_seed(5), oracle_runs=2)
            for _ in range(2)
        )
        assert one == two
    assert global_random_state() == before


def test_selection_without_a_run_answers_a_constant(problem, monkeypatch):
    monkeypatch.setattr(torch, "poisson", lambda rate, generator: torch.zeros(()))
    outcome = run_method(
        "private selection", problem, search_config(1.0, problem.delta), torch.Generator().manual_seed(0)
    )
    assert outcome.runs == 0
    assert outcome.accuracy == float((problem.y_test == 0).double().mean())


def test_unknown_names_list_the_known(problem):
    with pytest.raises(ValueError, match=r"unknown method 'best'.*adaptive"):
        run_method("best", problem, search_config(1.0, problem.delta), torch.Generator())
    with pytest.raises(ValueError, match=r"unknown profile 'fast'.*quick"):
        configure("fast")


def test_profiles_differ_in_size_only():
    assert configure("quick", seeds=None) == QUICK
    assert configure("full", seed=3).seed == 3
    assert FULL.seeds >= 8
    assert QUICK.seeds >= 8
    assert set(QUICK.methods) <= set(FULL.methods) == set(METHODS)


def test_search_config_leaves_most_to_the_final_run():
    config = search_config(2.0, 1 / 7000)
    assert config.trial_epsilons == (0.2, 0.4)
    assert config.radius_max == pytest.approx(10**0.95 * 60)
    assert 1.5 < config.final_epsilon < 2.0


def test_map_reads_ridge_line_and_spread():
    radii, eps = np.array([16.0, 32, 64, 128]), np.array([0.1, 0.2, 0.4])
    accuracy = np.zeros((2, 3, 4, 2))
    for i, best in enumerate((0, 1, 2)):
        accuracy[:, i, :, :] = 0.8 - 0.1 * np.abs(np.arange(4) - best)[None, :, None]
    accuracy[..., 1] += 0.01  # the second step count is a little better everywhere
    result = RadiusMap(eps, radii, (10, 20), accuracy)
    assert result.best_radii.tolist() == [16, 32, 64]
    rule, r_squared, correlation = result.line(0.4)
    assert rule.slope == pytest.approx(160)
    assert r_squared == pytest.approx(1.0)
    assert correlation == pytest.approx(1.0)
    over_steps, chance, over_radii = result.spreads()
    assert over_steps == pytest.approx(0.01)
    assert chance == 0.0  # both seeds agree
    assert over_radii == pytest.approx(1 / 6)
    assert result.spread_ratio() == pytest.approx(0.01 / np.mean([0.2, 0.2, 0.1, 0.2, 0.2, 0.1]), rel=1e-9)


def test_chance_alone_is_estimated():
    g = np.random.default_rng(0)
    pure = RadiusMap(
        np.array([1.0, 2.0]), 2.0 ** np.arange(400), (1, 2, 3), g.normal(0.5, 0.1, (50, 2, 400, 3))
    )
    over_steps, chance, _ = pure.spreads()
    assert over_steps == pytest.approx(chance, rel=0.05)


def test_digits_map_climbs():
    config = configure("quick", digits_epsilons=(0.2, 4.0), digits_radii=(32.0, 512.0), digits_seeds=1)
    result = digits_map(config)
    assert result.accuracy.shape == (1, 2, 2, 1)
    assert result.best_radii.tolist() == [32, 512]
    np.testing.assert_array_equal(result.accuracy, digits_map(config).accuracy)  # same bits


def test_sampled_noise_costs_its_budget():
    sigma = sampled_sigma(1.0, 1e-4, 0.1, 40)
    assert pld_epsilon(sigma, 0.1, 40, 1e-4) == pytest.approx(1.0, rel=1e-3)


def test_sampled_run_divides_by_the_expected_batch(monkeypatch):
    """At q = 1 it is the full-batch recipe; at q = 1/2 the drawn half stands for the whole."""
    monkeypatch.setattr(experiments, "sampled_sigma", lambda *_: 0.0)
    x = torch.nn.functional.normalize(torch.randn(1, 8, generator=torch.Generator().manual_seed(2)), dim=1)
    same = Problem(x.expand(4000, 8), torch.full((4000,), 3), x, x, x, x)
    full = dp_gd_linear(same.x, same.y, 10, lr=0.1, steps=5, noise_multiplier=0.0)
    whole, half = (
        experiments._sampled(0.1, 5, rate)(same, 0.0, torch.Generator().manual_seed(0)) for rate in (1.0, 0.5)
    )
    torch.testing.assert_close(whole, full)
    assert torch.linalg.norm(half - full) < 0.05 * torch.linalg.norm(full)  # std of a batch: 1.6 %


@pytest.mark.slow
def test_adaptive_search_meets_its_bars():
    """C1, C3: eight seeds at epsilon = 1, the cost of the search included."""
    result = compare(configure("quick", targets=(1.0,), methods=("adaptive", "random, composed")))
    mean, low, high = result.interval(1.0, "adaptive")
    assert len(result.accuracies(1.0, "adaptive")) == 8
    assert 0.845 <= mean <= 0.872
    assert low <= mean <= high
    assert 0.805 <= result.interval(1.0, "random, composed")[0] <= 0.84
    assert result.interval(1.0, "adaptive", minus="random, composed")[0] >= 0.01
    assert result.largest_gap() <= 1e-6
