"""The search: what it calls, what it costs, what it refuses."""

from __future__ import annotations

import dataclasses
import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers import private_hpo
from icml24.papers.private_hpo import AdaptiveHPOConfig, adaptive_hpo
from icml24.papers.private_hpo.search import _admissible_radii

ETAS = tuple(10 ** np.arange(-1, 1, 0.15))
STEPS = tuple(range(5, 65, 5))


def config(**changes):
    base = {"trial_epsilons": (0.1, 0.2), "etas": ETAS, "steps": STEPS, "delta": 1 / 7000}
    return AdaptiveHPOConfig(**base | changes)


def peak_at(radius):
    """A score that is best at eta * T = radius, and records the calls."""
    calls = []

    def train_eval(lr, steps, noise_multiplier, generator):
        calls.append((lr, steps, noise_multiplier, generator))
        return -abs(math.log(lr * steps / radius))

    return train_eval, calls


def test_calls_in_order():
    train_eval, calls = peak_at(40.0)
    g = torch.Generator().manual_seed(0)
    cfg = config(trials_per_epsilon=4)
    result = adaptive_hpo(train_eval, cfg, generator=g)
    assert len(calls) == 4 * 2 + 1
    runs = [*result.trials, result.final]
    assert [(t.lr, t.steps, t.noise_multiplier) for t in runs] == [c[:3] for c in calls]
    assert [t.stage for t in runs] == [1] * 4 + [2] * 4 + [3]
    assert [t.epsilon for t in result.trials] == [0.1] * 4 + [0.2] * 4
    assert all(c[3] is g for c in calls)
    assert all(lr in cfg.etas and steps in cfg.steps for lr, steps, *_ in calls)
    assert all(type(lr) is float and type(steps) is int and type(s) is float for lr, steps, s, _ in calls)


@pytest.mark.parametrize("target", [0.5, 1.0, 2.0])
def test_total_is_the_target_for_every_seed(target):
    """C1: trials and final run compose to the target."""
    cfg = config(target_epsilon=target, trial_epsilons=(0.1 * target, 0.2 * target))
    for seed in range(25):
        g = torch.Generator().manual_seed(seed)
        result = adaptive_hpo(lambda lr, t, s, g: float(torch.rand((), generator=g)), cfg, generator=g)
        assert abs(result.epsilon_total - target) <= 1e-9
        spent = [private_hpo.gaussian_mu(t.noise_multiplier, t.steps) for t in (*result.trials, result.final)]
        assert result.mu_total == pytest.approx(math.sqrt(sum(mu**2 for mu in spent)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_learning_rates_do_not_enter_the_budget(seed, scale):
    """Steps and noise set a run's cost; scaling every learning rate (and radius) changes neither."""

    def search(factor):
        cfg = config(etas=tuple(factor * e for e in ETAS), radius_low=factor)
        return adaptive_hpo(lambda lr, t, s, g: 1 / t, cfg, generator=torch.Generator().manual_seed(seed))

    for result in (search(1.0), search(scale)):
        for run in (*result.trials, result.final):
            assert run.noise_multiplier == private_hpo.calibrate_sigma(run.epsilon, 1 / 7000, run.steps)
        assert abs(result.epsilon_total - 1.0) <= 1e-9


def test_stages_and_extrapolation():
    train_eval, _ = peak_at(30.0)
    result = adaptive_hpo(train_eval, config(), generator=torch.Generator().manual_seed(1))
    first = max((t for t in result.trials if t.stage == 1), key=lambda t: t.score)
    second = max((t for t in result.trials if t.stage == 2), key=lambda t: t.score)
    assert result.radii == (first.lr * first.steps, second.lr * second.steps)
    top = max(ETAS) * max(STEPS)
    for trial in result.trials:
        low, high = (1.0, 0.1 * top) if trial.stage == 1 else (result.radii[0], 0.2 * top)
        assert low / 1.06 <= trial.lr * trial.steps <= high * 1.06
    assert result.rule(0.1) == pytest.approx(result.radii[0])
    assert result.rule(0.2) == pytest.approx(result.radii[1])
    assert result.radius_final == pytest.approx(result.rule(result.final.epsilon))
    if not result.clipped:
        assert abs(result.final.lr * result.final.steps / result.radius_final - 1) <= 0.05


def test_clipping_to_the_grid():
    cfg = config(trial_epsilons=(0.01, 0.012), radius_high_fractions=(0.1, 0.9))
    clipped = [
        adaptive_hpo(lambda lr, t, s, g: lr * t, cfg, generator=torch.Generator().manual_seed(s))
        for s in range(8)
    ]
    assert any(r.clipped for r in clipped)
    for result in clipped:
        if result.clipped:
            assert result.radius_final >= cfg.radius_max
            assert (result.final.lr, result.final.steps) == (max(cfg.etas), max(cfg.steps))
            assert abs(result.epsilon_total - 1.0) <= 1e-9


def test_falling_line_ends_at_the_smallest_product():
    # rounding inside rtol can make the second radius smaller, and a long extrapolation negative
    cfg = config(
        trial_epsilons=(0.1, 0.1001), etas=(1.0, 1.04), steps=(20, 200), radius_high_fractions=(0.1, 0.101)
    )
    for seed in range(30):
        result = adaptive_hpo(lambda lr, t, s, g: -lr, cfg, generator=torch.Generator().manual_seed(seed))
        if result.radius_final <= 0:
            assert (result.final.lr, result.final.steps) == (1.0, 20)
            assert not result.clipped
        assert abs(result.epsilon_total - 1.0) <= 1e-9


def test_radius_without_a_pair_takes_the_nearest():
    few = {"etas": (1.0,), "trial_epsilons": (0.01, 0.02), "trials_per_epsilon": 20}
    cfg = config(**few, steps=(5, 10, 40), radius_high_fractions=(0.15, 0.3))
    result = adaptive_hpo(lambda lr, t, s, g: t, cfg, generator=torch.Generator().manual_seed(0))
    assert result.radii == (5.0, 10.0)
    assert result.radius_final > 40
    assert result.clipped
    gentle = adaptive_hpo(
        lambda lr, t, s, g: t,
        dataclasses.replace(cfg, steps=(5, 10, 40_000), radius_high_fractions=(7 / 40_000, 12 / 40_000)),
        generator=torch.Generator().manual_seed(0),
    )
    assert 400 < gentle.radius_final < 600
    assert not gentle.clipped
    assert gentle.final.steps == 10  # nearest on a logarithmic scale


def test_same_seed_same_result(global_random_state):
    def noisy(lr, steps, sigma, generator):
        return float(torch.rand((), generator=generator))

    before = global_random_state()
    one, two, other = (
        adaptive_hpo(noisy, config(), generator=torch.Generator().manual_seed(s)) for s in (5, 5, 6)
    )
    assert one == two
    assert one != other
    assert global_random_state() == before


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.0, 30.0), st.floats(1.5, 8.0))
def test_radii_are_drawn_where_the_grid_has_pairs(seed, low, factor):
    """E11: the admissible radii are exactly those of the definition."""
    cfg = config()
    rng = np.random.default_rng(seed)
    intervals = _admissible_radii(low, low * factor, cfg)
    for r in rng.uniform(low, low * factor, 20):
        inside = any(a <= r <= b for a, b in intervals)
        assert inside == bool(private_hpo.radius_candidates(r, cfg.etas, cfg.steps, cfg.rtol))


def test_never_an_endless_loop_on_a_coarse_grid():
    cfg = config(etas=(1.0,), steps=(10, 100), radius_low=12.0, radius_high_fractions=(0.2, 0.5))
    with pytest.raises(
        ValueError, match=r"no pair of the grid.*any r in \[12, 20\]; the nearest product is 10"
    ):
        adaptive_hpo(lambda *a: 0.0, cfg)


@pytest.mark.parametrize(
    ("bad_call", "name"), [(0, "trial 1 of round 1"), (4, "trial 2 of round 2"), (6, "the final run")]
)
def test_nan_score_names_the_trial(bad_call, name):
    count = iter(range(100))
    with pytest.raises(ValueError, match=f"NaN for {name}"):
        adaptive_hpo(lambda *a: math.nan if next(count) == bad_call else 0.5, config())


def test_more_than_two_rounds():
    cfg = config(
        trial_epsilons=(0.05, 0.1, 0.15), radius_high_fractions=(0.1, 0.2, 0.3), trials_per_epsilon=2
    )
    result = adaptive_hpo(peak_at(30.0)[0], cfg, generator=torch.Generator().manual_seed(0))
    assert len(result.trials) == 6
    assert len(result.radii) == 3
    assert abs(result.epsilon_total - 1.0) <= 1e-9


def test_defaults_are_the_authors_constants():
    cfg = AdaptiveHPOConfig()
    np.testing.assert_allclose(cfg.etas, 10 ** np.arange(-5, 0, 0.15))
    assert cfg.steps == tuple(range(5, 150, 5))
    assert (cfg.trial_epsilons, cfg.trials_per_epsilon, cfg.rtol) == ((0.05, 0.1), 3, 0.05)
    assert (cfg.radius_low, cfg.radius_high_fractions) == (1.0, (0.1, 0.2))
    assert cfg.final_epsilon == pytest.approx(0.968484, abs=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.delta = 0.5


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"trial_epsilons": (0.1,)}, "at least 2 distinct budgets"),
        ({"trial_epsilons": (0.1, 0.1)}, "at least 2 distinct budgets"),
        ({"trial_epsilons": (0.2, 0.1)}, "increasing order"),
        ({"trial_epsilons": (0.0, 0.1)}, "trial_epsilons must be positive"),
        ({"trial_epsilons": (0.5, 0.9)}, "trials alone exceed the target"),
        ({"trials_per_epsilon": 0}, "trials_per_epsilon"),
        ({"etas": ()}, "etas"),
        ({"steps": (0, 5)}, "steps"),
        ({"radius_high_fractions": (0.1,)}, "radius_high_fractions"),
        ({"radius_high_fractions": (0.1, 1.5)}, "radius_high_fractions"),
        ({"radius_low": 1e6}, "radius_low must not exceed"),
        ({"rtol": 0.0}, "rtol"),
    ],
)
def test_config_rejects(changes, match):
    with pytest.raises(ValueError, match=match):
        config(**changes)


def test_contract():
    """The signatures that others call: names, order, what is positional, defaults."""
    sample = "max_norm=1.0, mode='abadi', *, stability=0.01"
    expected = {
        "gdp_delta": "mu, epsilon",
        "gdp_epsilon": "mu, delta",
        "gdp_mu": "epsilon, delta",
        "gaussian_mu": "noise_multiplier, steps",
        "compose_mu": "mus",
        "calibrate_sigma": "epsilon, delta, steps",
        "remaining_epsilon": "target_epsilon, delta, spent_epsilons",
        "rdp_subsampled_gaussian": "noise_multiplier, sample_rate, steps, orders",
        "rdp_to_epsilon": "orders, rdp, delta, conversion='improved'",
        "pld_epsilon": "noise_multiplier, sample_rate, steps, delta, *, discretization=0.0001",
        "private_selection_rdp": "orders, rdp, mean, shape",
        "clip_per_sample": f"grads, {sample}",
        "clipped_gradient_sum": f"weight, x, y, {sample}",
        "dp_gd_linear": "x, y, num_classes, *, lr, steps, noise_multiplier, max_norm=1.0, momentum=0.9, "
        "clip='abadi', weight=None, generator=None",
        "contraction_factor": "lr, alpha, beta",
        "noisy_radius_bound": "rho, lr, c, steps",
        "LinearRule": "slope, intercept",
        "fit_linear_rule": "epsilons, radii",
        "radius_candidates": "r, etas, steps, rtol=0.05",
        "decompose_radius": "r, etas, steps, *, rtol=0.05, generator=None",
        "adaptive_hpo": "train_eval, config, *, generator=None",
        "Trial": "stage, epsilon, lr, steps, noise_multiplier, score",
        "HPOResult": "trials, radii, rule, final, radius_final, clipped, mu_total, epsilon_total",
    }
    assert set(private_hpo.__all__) == set(expected) | {"AdaptiveHPOConfig"}
    for name, signature in expected.items():
        assert _bare_signature(getattr(private_hpo, name)) == f"({signature})", name
    names = [f.name for f in dataclasses.fields(AdaptiveHPOConfig)]
    assert names[:4] == ["target_epsilon", "delta", "trial_epsilons", "trials_per_epsilon"]
    assert names[4:] == ["etas", "steps", "radius_low", "radius_high_fractions", "rtol"]


def _bare_signature(function):
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
