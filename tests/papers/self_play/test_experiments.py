"""Experiments and figures: the heading game, the sweep's bars, profiles, plots that compute nothing."""

from __future__ import annotations

import dataclasses
import time

import matplotlib as mpl
import pytest
import torch

from icml24 import ledger
from icml24.common.random import generator
from icml24.papers.self_play import (
    PointMass,
    SPOConfig,
    constrained_preference,
    experiments,
    headings,
    plots,
    train,
)
from icml24.papers.self_play.headings import importance_gain, sector_game
from icml24.papers.self_play.policies import rollout

mpl.use("Agg")

TINY = experiments.Config(
    winner_games=5,
    play_games=3,
    play_horizons=(10, 100),
    margin_horizons=(100, 1000),
    seeds=2,
    iterations=2,
    noise_iterations=2,
    constrained_iterations=2,
    heading_rounds=5,
)


@pytest.mark.equation("eq-self_play-importance")
def test_importance_weights_undo_the_sampling(rng):
    """E[g_k] = (P p)_k for options above the floor, within 4 standard errors."""
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    P = sector_game()
    repeats, batch = 20_000, 16
    drawn = torch.multinomial(p, repeats * batch, replacement=True, generator=rng).view(repeats, batch)
    preference = P[drawn[:, :, None], drawn[:, None, :]]
    rates = (preference.sum(2) - preference.diagonal(dim1=1, dim2=2)) / (batch - 1)
    estimates = torch.stack([importance_gain(c, r, p) for c, r in zip(drawn, rates, strict=True)])
    error = estimates.std(0) / repeats**0.5
    assert ((estimates.mean(0) - P @ p).abs() < 4 * error).all()
    tiny = torch.tensor([1 - 1e-6, 1e-6], dtype=torch.float64)
    gain = importance_gain(torch.tensor([0, 1]), torch.tensor([0.25, -0.25], dtype=torch.float64), tiny)
    assert gain[1].item() == pytest.approx(-0.25 / (2 * 1e-3), rel=1e-12)  # the floor 1e-3, not 1e-6, divides


def test_heading_game_visits_every_sector_as_often_as_the_winner_asks():
    for seed in range(3):
        game = headings.heading_game(1000, seed=seed)
        torch.testing.assert_close(
            game.target, torch.tensor([0.5, 0.16, 0.34], dtype=torch.float64), rtol=0, atol=1e-9
        )
        assert game.distance <= 0.10
    again = headings.heading_game(1000, seed=2)
    assert torch.equal(again.visits, game.visits)


def test_a_gaussian_policy_cannot_play_the_heading_game():
    """The negative result: at least one sector is never visited, far from the winner's 0.16."""
    for queue in (None, 256):
        visits = headings.collapse(20, queue=queue)
        assert visits.sum() == 1
        assert visits.min() == 0
        assert (visits - torch.tensor([0.5, 0.16, 0.34], dtype=torch.float64)).abs().sum() > 0.3


def test_sweep_meets_the_bars_of_the_mixed_region():
    start = time.perf_counter()
    sweep = experiments.simplex_sweep(experiments.QUICK)
    elapsed = time.perf_counter() - start
    assert sweep.spo[sweep.mixed].max() <= 0.02
    assert sweep.rm[sweep.mixed].min() >= 0.9
    assert sweep.spo_gap.max() <= 0.02  # also where ties leave the winner open
    assert sweep.rm_gap[sweep.mixed].min() > 0.05
    assert elapsed < 20  # the LP and the fits, too; the played part alone is timed in the benchmarks


def test_batched_sweep_is_fast():
    """The bar is half a second on an idle core; the best of five, so that a busy machine passes, too."""
    from icml24.papers.self_play import data
    from icml24.papers.self_play.hedge import hedge_averages

    weights, _ = data.population_grid(20)
    games = torch.stack([data.population_game(w) for w in weights])
    times = []
    for _ in range(5):
        start = time.perf_counter()
        hedge_averages(games, 2000, step_size=0.5, optimistic=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5


def test_game_studies_hold_their_bounds():
    found = experiments.winner_study(TINY, 0)
    assert found["residual"] <= 1e-8
    assert found["condorcet"] == 1
    play = experiments.play_study(TINY, 0)
    assert play["difference"] <= 1e-12
    assert 0 < play["ratio"] <= 1
    margin = experiments.margin_study(TINY, 0)
    share = margin["off"] / margin["bound"]
    assert (share <= 1).all()
    assert share[-1] > 0.3  # the bound is of the right size, not merely large
    rates = experiments.rate_study(TINY, 0)
    for name in ("hedge", "optimistic", "margin"):
        assert (rates[name] <= rates[f"{name} bound"]).all()
        assert rates[name].shape == rates["T"].shape


def test_held_out_trajectories_are_split_at_three_quarters():
    found = experiments.constrained_study(TINY, 0, samples=16)
    policy = train(
        PointMass(reward="vx"), lambda a, b: constrained_preference(a, b, threshold=0.5), SPOConfig(2)
    ).policy
    rewards = rollout(PointMass(reward="vx"), policy, 16, 50, generator(0, "self_play", "held out")).reward
    torch.testing.assert_close(found.early["spo"][0], rewards[:, :38].sum(1))
    torch.testing.assert_close(found.late["spo"][0], rewards[:, 38:].sum(1))
    assert found.feasible("spo").item() == ((rewards[:, 38:].sum(1) <= 0.5).sum() / 16).item()
    assert found.best_early == pytest.approx(11.67, abs=0.01)


def test_curves_have_the_promised_shapes_and_streams():
    curves = experiments.learning_curves(TINY, 0)
    assert set(curves.returns) == {"oracle", "spo", "spo-36", "rm"}
    assert all(r.shape == (2, 2) for r in curves.returns.values())
    assert curves.trajectories["spo-36"].tolist() == [36, 72]
    assert curves.queries["spo-36"].tolist() == [630, 1260]
    later = experiments.learning_curves(dataclasses.replace(TINY, seeds=1), 1)
    assert torch.equal(later.returns["spo"][0], curves.returns["spo"][1])  # a seed's run is its own


def test_profiles_differ_in_size_only():
    assert set(experiments.PROFILES) == {"quick", "full"}
    assert experiments.FULL.seeds == 5
    assert experiments.FULL.iterations == 100
    assert experiments.pendulum_study(experiments.QUICK, 0).returns == {}


def test_figures_show_the_numbers_they_are_given():
    """Values on the page's figures are the results', point by point."""
    import matplotlib.pyplot as plt

    rates = experiments.rate_study(TINY, 0)
    lines = plots.plot_rates(rates).axes[0].get_lines()
    shown = [f"{name}{end}" for name in ("hedge", "optimistic", "margin") for end in ("", " bound")]
    for line, key in zip(lines, shown, strict=True):
        assert list(line.get_ydata()) == pytest.approx(rates[key].tolist())
    sweep = experiments.simplex_sweep(dataclasses.replace(TINY, sweep_steps=50))
    for ax, values in zip(plots.plot_simplex(sweep).axes, (sweep.spo, sweep.rm), strict=False):
        assert ax.collections[0].get_array().tolist() == pytest.approx(values.tolist())
    curves = experiments.learning_curves(TINY, 0)
    left, right = plots.plot_curves(curves).axes
    drawn = {line.get_label(): line for line in left.get_lines()}
    assert set(drawn) == {"true reward", "self-play", "reward model"}
    assert list(drawn["self-play"].get_ydata()) == pytest.approx(curves.returns["spo"].mean(0).tolist())
    assert drawn["self-play"].get_xdata().tolist() == [64, 128]
    drawn = {line.get_label(): line for line in right.get_lines()}
    assert set(drawn) == {"self-play", "self-play, B = 36", "reward model"}
    assert drawn["reward model"].get_xdata().tolist() == [640, 1280]
    constrained = experiments.constrained_study(TINY, 0, samples=16)
    inside, outside, *_ = plots.plot_constrained(constrained).axes[0].get_lines()
    assert len(inside.get_xdata()) == (constrained.late["spo"] <= 0.5).sum()
    assert len(inside.get_xdata()) + len(outside.get_xdata()) == 16
    game = headings.heading_game(20)
    averages = [
        line for line in plots.plot_headings(game).axes[0].get_lines() if "sector" in line.get_label()
    ]
    assert [line.get_ydata()[-1] for line in averages] == pytest.approx(game.visits.mean(0).tolist())
    plt.close("all")


def test_remaining_figures_draw_lines():
    import matplotlib.pyplot as plt

    orbit = experiments.orbit(200)
    curve, average, *_ = plots.plot_orbit(orbit).axes[0].get_lines()[1:]
    assert len(curve.get_xdata()) == len(average.get_xdata()) == 200
    config = dataclasses.replace(TINY, seeds=1, algorithms=("spo",))
    noise, clean = experiments.noise_study(config, 0), experiments.learning_curves(config, 0)
    line = plots.plot_noise(noise, clean).axes[0].get_lines()[0]
    runs = [clean, *(noise[tau] for tau in (5.0, 20.0, 80.0))]
    assert list(line.get_ydata()) == pytest.approx([run.returns["spo"].mean().item() for run in runs])
    plt.close("all")


def test_claims_are_those_of_the_dossier():
    claims = ledger.load_claims("self_play", "icml24")
    assert [claim.id for claim in claims][:8] == [f"C{k}" for k in range(1, 9)]
    assert sum(claim.profile == "quick" for claim in claims) >= 4
