"""Hedge in self-play: the update, the regret identity, rates, parity, bad input."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.self_play import duality_gap, hedge_self_play, hedge_two_player, minimax_winner
from icml24.papers.self_play.data import (
    cyclic_game,
    margin_game,
    population_game,
    population_grid,
    random_game,
)
from icml24.papers.self_play.hedge import hedge_averages

SIZES = (3, 5, 12)


def strategy(n, g):
    x = -torch.rand(n, generator=g, dtype=torch.float64).log()
    return x / x.sum()


# --- equations --------------------------------------------------------------------------------


@pytest.mark.equation("eq-self_play-hedge")
def test_update_is_multiplicative_and_solves_the_mirror_step(rng):
    """p_{t+1} is p_t e^{eta g_t} normalised, and maximises eta g.p - KL(p || p_t)."""
    P, eta = random_game(5, rng), 0.3
    run = hedge_self_play(P, 6, step_size=eta, init=strategy(5, rng))
    for p, following in zip(run.iterates[:-1], run.iterates[1:], strict=True):
        g = P @ p
        weights = p * torch.exp(eta * g)
        torch.testing.assert_close(following, weights / weights.sum(), rtol=0, atol=1e-14)

        def value(x, p=p, g=g):
            return (eta * g * x - x * (x / p).log()).sum()

        for _ in range(20):
            rival = 0.9 * following + 0.1 * strategy(5, rng)
            assert value(following) >= value(rival)


@pytest.mark.equation("eq-self_play-regret")
@pytest.mark.parametrize("optimistic", [False, True])
def test_gap_is_exactly_twice_the_mean_regret(optimistic, rng):
    """E4: equality at every prefix, for a learner with and without optimism."""
    for n in (2, 6, 15):
        run = hedge_self_play(random_game(n, rng), 300, step_size=0.2, optimistic=optimistic)
        t = torch.arange(1, 301, dtype=torch.float64)
        torch.testing.assert_close(run.gap, 2 * run.regret / t, rtol=0, atol=1e-9)


@pytest.mark.equation("eq-self_play-twoplayer")
def test_second_player_is_superfluous_from_equal_starts(rng):
    """E5/C2: equal starts, equal iterates; in general gap(pbar, qbar) = (R_row + R_col) / T."""
    for n in (3, 8, 30):
        P = random_game(n, rng)
        alone = hedge_self_play(P, 200, step_size=0.2).iterates
        for player in hedge_two_player(P, 200, step_size=0.2):
            assert (player - alone).abs().max() <= 1e-12
        row, col = hedge_two_player(
            P, 200, step_size=0.2, init_row=strategy(n, rng), init_col=strategy(n, rng)
        )
        assert (row - col).abs().max() > 1e-3
        earned = torch.einsum("ti,ij,tj->", row, P, col)
        regret_row = (P @ col.sum(0)).max() - earned
        regret_col = earned - (P.T @ row.sum(0)).min()
        gap = duality_gap(P, row.mean(0), col.mean(0))
        torch.testing.assert_close(gap, (regret_row + regret_col) / 200, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-self_play-potential")
def test_potential_grows_no_faster_than_hoeffding_allows(rng):
    """E6, one step: log E_p exp(eta g) <= eta p.g + eta^2 / 2 for |g| <= 1; sharp at +-1."""
    for _ in range(200):
        n = int(torch.randint(2, 12, (1,), generator=rng))
        p, g = strategy(n, rng), 2 * torch.rand(n, generator=rng, dtype=torch.float64) - 1
        eta = 3 * torch.rand(1, generator=rng, dtype=torch.float64)
        left = torch.logsumexp(p.log() + eta * g, 0)
        assert left <= eta * (p * g).sum() + eta**2 / 2 + 1e-12
    coin = torch.tensor([0.5, 0.5], dtype=torch.float64).log() + 0.1 * torch.tensor([1.0, -1.0])
    assert torch.logsumexp(coin, 0) > 0.99 * 0.1**2 / 2  # the constant 1/2 cannot be improved


@pytest.mark.equation("eq-self_play-rate")
def test_gap_stays_below_the_hedge_bound(rng):
    """E6: gap <= 2 sqrt(2 log n / T) at the tuned step; regret <= log n / eta + eta T / 2 at any."""
    games = torch.stack([random_game(8, rng) for _ in range(50)])
    for T in (10, 100, 1000, 10_000):
        bound = 2 * math.sqrt(2 * math.log(8) / T)
        for P, p in zip(games, hedge_averages(games, T), strict=True):
            assert duality_gap(P, p) <= bound
    for eta in (0.05, 0.3, 1.0):
        run = hedge_self_play(games[0], 500, step_size=eta)
        t = torch.arange(1, 501, dtype=torch.float64)
        assert (run.regret <= math.log(8) / eta + eta * t / 2).all()


@pytest.mark.equation("eq-self_play-margin")
@pytest.mark.parametrize(("n", "margin"), [(20, 0.3), (5, 0.6), (50, 0.2)])
def test_fast_rate_with_a_margin(n, margin, rng):
    """E7: mass off the winner <= 8 log n / (margin^2 T), gap at most twice that, slope -1."""
    P = margin_game(n, margin, rng)
    off = []
    for T in (1000, 10_000):
        run = hedge_self_play(P, T, step_size=margin / 4)
        off.append(1 - run.average[0].item())
        assert off[-1] <= 8 * math.log(n) / (margin**2 * T)
        assert run.gap[-1] <= 2 * off[-1] + 1e-12
        w = 1 - run.iterates[:, 0]
        gains = run.iterates @ P.T
        assert (gains[:, 0] >= margin * w - 1e-12).all()  # the two steps of the proof
        assert ((run.iterates * gains**2).sum(1) <= 2 * w + 1e-12).all()
    assert math.log10(off[1] / off[0]) <= -0.9


@pytest.mark.equation("eq-self_play-optimistic")
def test_optimism_gives_a_one_over_T_rate(rng):
    """E8: gap <= 2 (log n / eta + eta) / T for eta <= 1/2, and Hedge alone does not manage it."""
    for n in (3, 20):
        P = random_game(n, rng)
        for eta in (0.1, 0.25, 0.5):
            run = hedge_self_play(P, 5000, step_size=eta, optimistic=True)
            t = torch.arange(1, 5001, dtype=torch.float64)
            assert (run.gap * t <= 2 * (math.log(n) / eta + eta)).all()
    plain = hedge_self_play(P, 5000).gap[-1]
    assert plain > 3 * hedge_self_play(P, 5000, optimistic=True).gap[-1]
    for _ in range(
        2
    ):  # T * gap stays level at the default step; with a gap of order T^(-1/2) it would grow tenfold
        gap = hedge_self_play(random_game(20, rng), 10_000, optimistic=True).gap
        scaled = [T * gap[T - 1].item() for T in (100, 1000, 10_000)]
        assert max(scaled) <= 1.25 * scaled[0]


def test_optimistic_update_counts_the_last_gain_twice(rng):
    P = random_game(4, rng)
    start = strategy(4, rng)
    run = hedge_self_play(P, 3, step_size=0.4, init=start, optimistic=True)
    g1, g2 = P @ run.iterates[0], P @ run.iterates[1]
    torch.testing.assert_close(run.iterates[1], torch.softmax(start.log() + 0.8 * g1, 0))
    torch.testing.assert_close(run.iterates[2], torch.softmax(start.log() + 0.4 * g1 + 0.8 * g2, 0))


# --- behaviour --------------------------------------------------------------------------------


def test_last_iterate_runs_away_while_the_average_settles():
    P = cyclic_game(1.0, 1.0, 1.0)
    run = hedge_self_play(P, 4000, step_size=0.1, init=torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    assert run.iterates[-1].max() > 0.9
    assert (run.average - 1 / 3).abs().max() < 0.05


def test_start_is_the_first_iterate_and_zeros_stay_zero():
    init = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    for optimistic in (False, True):
        run = hedge_self_play(cyclic_game(0.3, 0.2, 0.7), 50, init=init, optimistic=optimistic)
        assert torch.equal(run.iterates[0], init)
        assert (run.iterates[:, 1] == 0).all()
        assert torch.isfinite(run.gap).all()
    torch.testing.assert_close(run.average, run.iterates.mean(0))


def test_one_option_and_one_step():
    run = hedge_self_play(torch.zeros(1, 1), 5, step_size=-1.0)  # nothing to step: not even checked
    assert run.iterates.shape == (5, 1)
    assert run.iterates.unique().tolist() == [1.0]
    assert run.regret.abs().max() == run.gap.abs().max() == 0
    single = hedge_self_play(cyclic_game(1, 1, 1), 1)
    assert single.iterates.shape == (1, 3)


def test_small_gap_can_hide_a_large_distance():
    """The near-degenerate mixture of the dossier: weights .49, .26, .25, plain Hedge."""
    P = population_game(torch.tensor([0.49, 0.26, 0.25], dtype=torch.float64))
    run = hedge_self_play(P, 2000)
    assert run.gap[-1] < 0.03
    assert (run.average - minimax_winner(P)).abs().sum() > 0.4


# --- the batched kernel -----------------------------------------------------------------------


@pytest.mark.parametrize("optimistic", [False, True])
def test_batched_games_equal_single_ones(optimistic, rng):
    games = torch.stack([random_game(4, rng) for _ in range(7)])
    together = hedge_averages(games, 150, step_size=0.3, optimistic=optimistic)
    for P, p in zip(games, together, strict=True):
        alone = hedge_self_play(P, 150, step_size=0.3, optimistic=optimistic).average
        torch.testing.assert_close(p, alone, rtol=0, atol=1e-12)


def test_batched_sweep_meets_the_bar_of_claim_c4():
    weights, mixed = population_grid(20)
    games = torch.stack([population_game(w) for w in weights])[mixed]
    average = hedge_averages(games, 2000, step_size=0.5, optimistic=True)
    target = torch.stack([minimax_winner(P) for P in games])
    assert (average - target).abs().sum(1).max() <= 0.02


def test_batched_games_are_checked():
    for shape in ((3, 3), (0, 3, 3), (2, 3, 2), (2, 0, 0)):
        with pytest.raises(ValueError, match="games, n, n"):
            hedge_averages(torch.zeros(shape), 10)
    good = cyclic_game(1, 1, 1)
    with pytest.raises(ValueError, match="antisymmetric"):
        hedge_averages(torch.stack([good, good.abs()]), 10)
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        hedge_averages(torch.stack([good, 3 * good]), 10)
    with pytest.raises(ValueError, match="finite"):
        hedge_averages(torch.stack([good, good * float("nan")]), 10)


# --- parity, dtypes, bad input ----------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_parity(n, parity):
    P, x, y, T = parity[f"P{n}"], parity[f"x{n}"], parity[f"y{n}"], int(parity["T"])
    close = {"rtol": 0, "atol": 1e-9}
    run = hedge_self_play(P, T)
    torch.testing.assert_close(run.average, parity[f"hedge{n}_average"], **close)
    torch.testing.assert_close(run.regret, parity[f"hedge{n}_regret"], **close)
    torch.testing.assert_close(run.gap, parity[f"hedge{n}_gap"], **close)
    torch.testing.assert_close(run.iterates[:: T // 20], parity[f"hedge{n}_iterates"], **close)
    hopeful = hedge_self_play(P, T, step_size=0.25, init=x, optimistic=True)
    torch.testing.assert_close(hopeful.average, parity[f"ohedge{n}_average"], **close)
    torch.testing.assert_close(hopeful.gap, parity[f"ohedge{n}_gap"], **close)
    row, col = hedge_two_player(P, 50, step_size=0.3, init_row=x, init_col=y)
    torch.testing.assert_close(row, parity[f"two{n}_row"], **close)
    torch.testing.assert_close(col, parity[f"two{n}_col"], **close)


def test_float32_in_float32_out_and_close_to_float64(rng):
    P = random_game(6, rng)
    single, double = hedge_self_play(P.float(), 2000), hedge_self_play(P, 2000)
    for name in ("iterates", "average", "regret", "gap"):
        assert getattr(single, name).dtype == torch.float32
        torch.testing.assert_close(getattr(single, name).double(), getattr(double, name), rtol=0, atol=2e-4)
    assert all(x.dtype == torch.float32 for x in hedge_two_player(P.float(), 5))
    assert hedge_averages(P.float()[None], 5).dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"num_steps": 0}, ValueError, "num_steps"),
        ({"num_steps": 2.5}, TypeError, "num_steps"),
        ({"step_size": 0.0}, ValueError, "step_size"),
        ({"step_size": -0.1}, ValueError, "step_size"),
        ({"step_size": float("nan")}, ValueError, "step_size"),
        ({"init": torch.tensor([0.5, 0.5])}, ValueError, "init must have shape"),
        ({"init": torch.tensor([1.5, -0.5, 0.0])}, ValueError, "non-negative"),
        ({"init": torch.tensor([0.5, 0.4, 0.3])}, ValueError, "sum to 1"),
        ({"init": torch.tensor([1, 0, 0])}, TypeError, "floating point"),
    ],
)
def test_rejects(options, error, match):
    call = {"num_steps": 10, **options}
    with pytest.raises(error, match=match):
        hedge_self_play(cyclic_game(1, 1, 1), **call)
    if "init" in call:
        call["init_col"] = call.pop("init")
        match = match.replace("init ", "init_col ")
    with pytest.raises(error, match=match):
        hedge_two_player(cyclic_game(1, 1, 1), **call)
