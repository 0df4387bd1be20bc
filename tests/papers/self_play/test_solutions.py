"""Solution concepts: existence, uniqueness, closed forms, parity, bad input."""

from __future__ import annotations

import math

import pytest
import sympy
import torch
from scipy.optimize import minimize

from icml24.papers.self_play import (
    borda_scores,
    condorcet_winner,
    copeland_scores,
    duality_gap,
    fit_bradley_terry,
    minimax_winner,
)
from icml24.papers.self_play.data import (
    RANKINGS,
    cyclic_game,
    population_game,
    population_grid,
    random_game,
    winner_game,
)

SIZES = (3, 5, 12)


def _exp(n, g):
    x = -torch.rand(n, generator=g, dtype=torch.float64).log()
    return x / x.sum()


# --- equations --------------------------------------------------------------------------------


@pytest.mark.equation("eq-self_play-value")
def test_value_of_a_symmetric_game_is_zero(rng):
    """E1: p^T P p = 0, symbolically for n = 3 and numerically; no strategy guarantees more than 0."""
    a, b, c, p0, p1 = sympy.symbols("a b c p0 p1")
    P = sympy.Matrix([[0, a, -c], [-a, 0, b], [c, -b, 0]])
    p = sympy.Matrix([p0, p1, 1 - p0 - p1])
    assert sympy.expand((p.T * P * p)[0]) == 0
    for n in (3, 7, 20):
        P = random_game(n, rng)
        x = _exp(n, rng)
        assert abs((x @ P @ x).item()) < 1e-12
        assert (P.T @ x).min() <= 1e-12  # min_q x^T P q <= x^T P x = 0
        assert abs((P.T @ minimax_winner(P)).min().item()) < 1e-9  # and the winner attains it


@pytest.mark.equation("eq-self_play-minimax")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 30])
def test_no_option_beats_the_minimax_winner(n, rng):
    """C1: existence, also in intransitive games, and optimality among random strategies."""
    for _ in range(10):
        P = random_game(n, rng)
        p = minimax_winner(P)
        assert (p >= 0).all()
        assert abs(p.sum().item() - 1) < 1e-12
        assert (P @ p).max() <= 1e-8
        others = torch.stack([_exp(n, rng) for _ in range(50)])
        assert (others @ P).min(1).values.max() <= (p @ P).min() + 1e-9  # nobody guarantees more


@pytest.mark.equation("eq-self_play-gap")
def test_gap_is_twice_the_best_reply_and_vanishes_at_the_winner(rng):
    """Definition against enumeration of all pure replies; gap(p, p) = 2 max_i (P p)_i."""
    for n in (2, 5, 11):
        P = random_game(n, rng)
        p, q = _exp(n, rng), _exp(n, rng)
        pure = torch.eye(n, dtype=torch.float64)
        best = max((e @ P @ q).item() for e in pure) - min((p @ P @ e).item() for e in pure)
        assert abs(duality_gap(P, p, q).item() - best) < 1e-12
        assert abs(duality_gap(P, p).item() - 2 * max((e @ P @ p).item() for e in pure)) < 1e-12
        assert duality_gap(P, p) > 0
        assert duality_gap(P, minimax_winner(P)).abs() < 1e-9


@pytest.mark.equation("eq-self_play-condorcet")
def test_condorcet_winner_takes_all_the_mass(rng):
    """E2: with a winner i, e_i is the only Minimax Winner, and e_i^T P q > 0 for every q != e_i."""
    for _ in range(100):
        n = int(torch.randint(2, 20, (1,), generator=rng))
        P, winner = winner_game(n, rng)
        assert condorcet_winner(P) == winner
        assert minimax_winner(P)[winner] > 1 - 1e-9
        q = _exp(n, rng)
        assert (P @ q)[winner] > 0  # so q is no Minimax Winner: option i beats it
        assert (P.T @ torch.eye(n, dtype=torch.float64)[winner]).min() >= 0


@pytest.mark.equation("eq-self_play-cycle")
def test_three_cycle_has_a_closed_form(rng):
    """E3: P p = 0 has the solution (b, c, a) / (a + b + c); as c -> 0 option 1 loses its mass."""
    a, b, c = sympy.symbols("a b c", positive=True)
    P = sympy.Matrix([[0, a, -c], [-a, 0, b], [c, -b, 0]])
    assert sympy.simplify(P * sympy.Matrix([b, c, a])) == sympy.zeros(3, 1)
    for _ in range(50):
        x, y, z = (0.05 + 0.95 * torch.rand(3, generator=rng, dtype=torch.float64)).tolist()
        expected = torch.tensor([y, z, x], dtype=torch.float64) / (x + y + z)
        torch.testing.assert_close(minimax_winner(cyclic_game(x, y, z)), expected, rtol=0, atol=1e-8)
    near = minimax_winner(cyclic_game(0.4, 0.2, 1e-6))
    assert near[1] < 1e-5  # although option 1 beats option 2 by 0.2
    torch.testing.assert_close(near[0].item(), 0.2 / 0.6, rtol=0, atol=1e-5)


@pytest.mark.equation("eq-self_play-bradleyterry")
def test_bradley_terry_matches_a_general_optimiser(rng):
    """Newton's maximum against BFGS on the objective written out with loops."""
    for n in (2, 4, 7):
        P = random_game(n, rng)
        w = ((1 + P) / 2).tolist()

        def loss(r, n=n, w=w):
            total = 0.0
            for i in range(n):
                for j in range(i + 1, n):
                    d = r[i] - r[j]
                    total -= w[i][j] * -math.log1p(math.exp(-d)) + (1 - w[i][j]) * -math.log1p(math.exp(d))
            return total + 5e-4 * sum(x * x for x in r)

        best = torch.as_tensor(minimize(loss, [0.0] * n, method="BFGS", options={"gtol": 1e-9}).x)
        torch.testing.assert_close(fit_bradley_terry(P), best, rtol=0, atol=1e-5)


def test_bradley_terry_recovers_known_rewards(rng):
    """Preferences that come from rewards: with a tiny ridge the rewards come back, centred."""
    r = torch.randn(6, generator=rng, dtype=torch.float64)
    P = torch.tanh((r[:, None] - r[None, :]) / 2)
    torch.testing.assert_close(fit_bradley_terry(P, ridge=1e-9), r - r.mean(), rtol=0, atol=1e-6)


@pytest.mark.equation("eq-self_play-corner")
def test_a_reward_model_ends_in_a_corner_far_from_a_mixed_winner():
    """E11: corner i is 2 (1 - p*_i) away from p*, at least 2 (1 - max p*); the fitted one is a corner."""
    weights, mixed = population_grid(20)
    for w in weights[mixed]:
        P = population_game(w)
        p = minimax_winner(P)
        for i, corner in enumerate(torch.eye(3, dtype=torch.float64)):
            distance = (corner - p).abs().sum()
            torch.testing.assert_close(distance, 2 * (1 - p[i]), rtol=0, atol=1e-12)
            assert distance >= 2 * (1 - p.max()) - 1e-12
        chosen = torch.eye(3, dtype=torch.float64)[fit_bradley_terry(P).argmax()]
        assert (chosen - p).abs().sum() >= 0.9


def test_reward_model_can_miss_an_existing_condorcet_winner():
    """The Bradley-Terry optimum is the Borda winner, which need not be the Condorcet winner."""
    weights, mixed = population_grid(20)
    misses = 0
    for w in weights[~mixed]:
        P = population_game(w)
        winner = condorcet_winner(P)
        top = fit_bradley_terry(P).argmax().item()
        assert borda_scores(P)[top] >= borda_scores(P).max() - 1e-9
        misses += winner is not None and winner != top
    assert misses > 0


def test_ties_leave_many_winners_and_the_gap_still_judges_them():
    P = torch.zeros(4, 4, dtype=torch.float64)
    assert duality_gap(P, minimax_winner(P)) == 0
    half = population_game(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))
    assert duality_gap(half, minimax_winner(half)).abs() < 1e-9
    assert condorcet_winner(half) is None


def test_winner_does_not_depend_on_the_scale_of_the_margins(rng):
    P = random_game(5, rng)
    torch.testing.assert_close(minimax_winner(P * 1e-7), minimax_winner(P), rtol=0, atol=1e-9)


# --- scores -----------------------------------------------------------------------------------


def test_scores_by_hand():
    P = torch.tensor([[0.0, 0.2, -1.0], [-0.2, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert torch.equal(copeland_scores(P), torch.tensor([0.0, -0.5, 0.5]))
    torch.testing.assert_close(borda_scores(P), torch.tensor([-0.4, -0.1, 0.5]))
    assert condorcet_winner(P) is None


def test_one_option():
    one = torch.zeros(1, 1)
    assert condorcet_winner(one) == 0
    assert copeland_scores(one).tolist() == borda_scores(one).tolist() == [0.0]
    assert minimax_winner(one).tolist() == [1.0]
    assert fit_bradley_terry(one).tolist() == [0.0]


def test_rounding_on_the_diagonal_hides_no_winner():
    P = torch.tensor([[4e-7, 0.5], [-0.5, 0.0]])
    assert condorcet_winner(P) == 0


# --- parity and dtypes ------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_parity(n, parity):
    P, x, y = parity[f"P{n}"], parity[f"x{n}"], parity[f"y{n}"]
    torch.testing.assert_close(minimax_winner(P), parity[f"mw{n}"], rtol=0, atol=1e-7)
    torch.testing.assert_close((P.T @ minimax_winner(P)).min(), parity[f"mw{n}_value"], rtol=0, atol=1e-7)
    torch.testing.assert_close(duality_gap(P, x, y), parity[f"gap{n}_xy"], rtol=0, atol=1e-12)
    torch.testing.assert_close(duality_gap(P, x), parity[f"gap{n}_xx"], rtol=0, atol=1e-12)
    torch.testing.assert_close(copeland_scores(P), parity[f"copeland{n}"], rtol=0, atol=1e-12)
    torch.testing.assert_close(borda_scores(P), parity[f"borda{n}"], rtol=0, atol=1e-12)
    torch.testing.assert_close(fit_bradley_terry(P, ridge=1e-3), parity[f"bt{n}"], rtol=0, atol=1e-5)


def test_parity_of_aggregated_winners(parity):
    for P, winner in zip(parity["agg"], parity["agg_mw"], strict=True):
        torch.testing.assert_close(minimax_winner(P), winner, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept(dtype, rng):
    P = random_game(6, rng).to(dtype)
    p = torch.full((6,), 1 / 6, dtype=dtype)
    for out in (
        minimax_winner(P),
        duality_gap(P, p),
        duality_gap(P, p, minimax_winner(P)),
        copeland_scores(P),
        borda_scores(P),
        fit_bradley_terry(P),
    ):
        assert out.dtype == dtype
    assert duality_gap(P, p).shape == ()


# --- bad input --------------------------------------------------------------------------------

GAME = cyclic_game(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "function",
    [condorcet_winner, copeland_scores, borda_scores, minimax_winner, fit_bradley_terry],
)
@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (torch.zeros(2, 3), ValueError, "square"),
        (torch.zeros(2, 2).long(), TypeError, "floating point"),
        (torch.ones(2, 2), ValueError, "antisymmetric"),
    ],
)
def test_every_concept_checks_its_matrix(function, bad, error, match):
    with pytest.raises(error, match=match):
        function(bad)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: duality_gap(GAME, torch.tensor([0.5, 0.5], dtype=torch.float64)), "row must have shape"),
        (lambda: duality_gap(GAME, torch.tensor([0.5, 0.5, 0.5])), "sum to 1"),
        (lambda: duality_gap(GAME, torch.tensor([1.5, -0.5, 0.0])), "non-negative"),
        (
            lambda: duality_gap(GAME, torch.ones(3) / 3, torch.tensor([float("nan"), 0.5, 0.5])),
            "col must be finite",
        ),
        (lambda: fit_bradley_terry(GAME, ridge=0.0), "ridge"),
        (lambda: fit_bradley_terry(GAME, ridge=-1.0), "ridge"),
        (lambda: fit_bradley_terry(GAME, max_iter=0), "max_iter"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_bradley_terry_says_when_it_stopped_early(rng):
    P = population_game(torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64))
    with pytest.warns(RuntimeWarning, match="max_iter = 1"):
        fit_bradley_terry(P, max_iter=1)


def test_certain_wins_stay_finite():
    P = torch.ones(5, 5, dtype=torch.float64).triu(1)
    r = fit_bradley_terry(P - P.T)
    assert torch.isfinite(r).all()
    assert (r.diff() < 0).all()
    assert RANKINGS.shape == (3, 3)
