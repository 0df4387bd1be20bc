"""Preference functions: definitions, parity, laws, bad input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.self_play import (
    aggregate_preferences,
    bradley_terry_preference,
    constrained_preference,
    max_return_preference,
    minimax_winner,
    preference_from_probability,
    sample_preference,
    validate_preference,
)
from icml24.papers.self_play.data import RANKINGS, population_grid, random_game

NAN, INF = float("nan"), float("inf")
skew = st.integers(0, 10_000).map(lambda s: torch.Generator().manual_seed(s))


# --- definitions and equations ---------------------------------------------------------------


@pytest.mark.equation("eq-self_play-antisymmetry")
@given(g=skew, size=st.integers(1, 9), steps=st.integers(2, 12))
@settings(max_examples=25, deadline=None)
def test_every_preference_function_is_antisymmetric(g, size, steps):
    rewards = torch.randn(size, steps, generator=g, dtype=torch.float64)
    for P in (
        max_return_preference(rewards, rewards),
        bradley_terry_preference(rewards, rewards, temperature=0.7),
        constrained_preference(rewards, rewards, split=0.5, threshold=0.1),
    ):
        assert torch.equal(P, -P.T)
        assert validate_preference(P) is P


def test_probability_and_preference_agree_on_a_hand_worked_pair():
    w = torch.tensor([[0.5, 0.9], [0.1, 0.5]], dtype=torch.float64)
    P = preference_from_probability(w)
    torch.testing.assert_close(P, torch.tensor([[0.0, 0.8], [-0.8, 0.0]], dtype=torch.float64))


def test_what_passes_as_probability_passes_as_preference():
    """Rounded probabilities convert to a valid preference; what would not is refused at once."""
    for excess in (1e-7, 4e-7):
        w = torch.tensor([[0.5, 0.9 + excess], [0.1, 0.5]], dtype=torch.float64)
        validate_preference(preference_from_probability(w))
    with pytest.raises(ValueError, match="= 1"):
        preference_from_probability(torch.tensor([[0.5, 0.9 + 9e-7], [0.1, 0.5]], dtype=torch.float64))


@pytest.mark.equation("eq-self_play-populations")
def test_three_conflicting_groups_make_a_cycle_exactly_below_one_half():
    """E12: P01 = 1 - 2 w1, P12 = 1 - 2 w2, P20 = 1 - 2 w0; mixed winner (1-2w2, 1-2w0, 1-2w1)."""
    weights, mixed = population_grid(20)
    assert weights.shape == (171, 3)
    assert mixed.sum() == 36
    for w, is_mixed in zip(weights, mixed, strict=True):
        P = aggregate_preferences(RANKINGS, w)
        around = torch.stack([P[0, 1], P[1, 2], P[2, 0]])
        torch.testing.assert_close(around, 1 - 2 * w[[1, 2, 0]], rtol=0, atol=1e-12)
        assert bool((around > 1e-9).all()) == bool(is_mixed)  # a cycle below one half, a flipped sign above
        if is_mixed:
            torch.testing.assert_close(minimax_winner(P), 1 - 2 * w[[2, 0, 1]], rtol=0, atol=1e-9)
        elif (w > 0.5 + 1e-9).any():
            assert minimax_winner(P)[w.argmax()] > 1 - 1e-9  # the majority group's favourite


@pytest.mark.equation("eq-self_play-constrained")
def test_constrained_order_is_lexicographic_and_not_markovian():
    """The rule of the three cases on hand-made trajectories, and no per-step reward explains it."""
    good = torch.tensor([5.0, 5.0, 5.0, 0.0])  # A = 15, C = 0: feasible
    slow = torch.tensor([1.0, 1.0, 1.0, 0.0])  # A = 3, feasible
    greedy = torch.tensor([9.0, 9.0, 9.0, 4.0])  # A = 27, infeasible
    reckless = torch.tensor([9.0, 9.0, 9.0, 8.0])  # infeasible, worse late part
    rewards = torch.stack([good, slow, greedy, reckless])
    expected = torch.tensor([[0, 1, 1, 1], [-1, 0, 1, 1], [-1, -1, 0, 1], [-1, -1, -1, 0]]).float()
    assert torch.equal(constrained_preference(rewards, rewards, threshold=1.0), expected)
    # An additive score f1(a) + f2(c) cannot rank (hi, ok) > (lo, ok), (lo, ok) > (hi, bad), (lo, bad) = (hi, bad).
    hi_ok, lo_ok = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])
    hi_bad, lo_bad = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 3.0])
    P = constrained_preference(
        torch.stack([hi_ok, lo_ok, hi_bad, lo_bad]),
        torch.stack([hi_ok, lo_ok, hi_bad, lo_bad]),
        split=0.5,
        threshold=1.0,
    )
    assert P[0, 1] == 1  # early reward counts here ...
    assert P[2, 3] == 0  # ... and does not count there


def test_constrained_split_rounds_half_to_even():
    """H = 50: 37.5 steps round to 38, the figure that the chapter's task uses."""
    a, b = torch.zeros(1, 50), torch.zeros(1, 50)
    a[0, 37] = 1.0  # step 37 belongs to the early part exactly when k = 38
    assert constrained_preference(a, b, threshold=0.5).item() == 1
    a[0, 37], a[0, 38] = 0.0, 1.0  # now it is late, above the threshold
    assert constrained_preference(a, b, threshold=0.5).item() == -1


@pytest.mark.parametrize("value", [-1.0, -0.4, 0.0, 0.75, 1.0])
def test_sampled_labels_have_the_right_mean(value, rng):
    labels = sample_preference(torch.full((200, 200), value, dtype=torch.float64), generator=rng)
    assert set(labels.unique().tolist()) <= {-1.0, 1.0}
    error = math.sqrt((1 - value**2) / labels.numel())
    assert abs(labels.mean().item() - value) <= 4 * error


def test_sampling_leaves_global_randomness_alone(global_random_state):
    before = global_random_state()
    P = torch.zeros(8, 8)
    assert not torch.equal(sample_preference(P), sample_preference(P))  # fresh each time without a generator
    one = sample_preference(P, generator=torch.Generator().manual_seed(3))
    assert torch.equal(one, sample_preference(P, generator=torch.Generator().manual_seed(3)))
    assert global_random_state() == before


def test_equal_rows_tie_whatever_the_batch_around_them(rng):
    a = torch.rand(37, 50, generator=rng)
    for size in (1, 2, 5):
        assert (max_return_preference(a, a[:size]).diagonal() == 0).all()
        assert (constrained_preference(a[:size], a, threshold=0.1).diagonal() == 0).all()


# --- parity -----------------------------------------------------------------------------------


def test_parity_preferences(parity):
    ra, rb = parity["ra"], parity["rb"]
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(max_return_preference(ra, rb), parity["pref_max"], **close)
    tau = parity["temperature"].item()
    torch.testing.assert_close(bradley_terry_preference(ra, rb, temperature=tau), parity["pref_bt"], **close)
    options = {"split": parity["split"].item(), "threshold": parity["threshold"].item()}
    torch.testing.assert_close(constrained_preference(ra, rb, **options), parity["pref_con"], **close)
    assert max_return_preference(ra, rb)[0, 0] == 0  # the stored tie


def test_parity_aggregate(parity):
    for w, agg in zip(parity["weights"], parity["agg"], strict=True):
        torch.testing.assert_close(aggregate_preferences(parity["rankings"], w), agg, rtol=0, atol=1e-12)


def test_rankings_are_items_by_rank_not_ranks_by_item():
    """(2, 0, 1) is its own trap: as ranks by item it would read 1 > 2 > 0."""
    P = aggregate_preferences(torch.tensor([[2, 0, 1]]), torch.tensor([1.0]))
    assert torch.equal(P, torch.tensor([[0.0, 1.0, -1.0], [-1.0, 0.0, -1.0], [1.0, 1.0, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept(dtype, rng):
    P = random_game(4, rng).to(dtype)
    a = torch.randn(3, 6, generator=rng).to(dtype)
    w = torch.tensor([0.2, 0.3, 0.5], dtype=dtype)
    for out in (
        validate_preference(P),
        preference_from_probability((1 + P) / 2),
        aggregate_preferences(RANKINGS, w),
        max_return_preference(a, a),
        bradley_terry_preference(a, a),
        constrained_preference(a, a),
        sample_preference(P, generator=rng),
    ):
        assert out.dtype == dtype


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        ([[0.0]], TypeError, "floating point"),
        (torch.zeros(2, 2, dtype=torch.int64), TypeError, "floating point"),
        (torch.zeros(2, 3), ValueError, "square"),
        (torch.zeros(3), ValueError, "square"),
        (torch.zeros(0, 0), ValueError, "empty"),
        (torch.tensor([[0.0, NAN], [NAN, 0.0]]), ValueError, "finite"),
        (torch.tensor([[0.0, INF], [-INF, 0.0]]), ValueError, "finite"),
        (torch.tensor([[0.0, 1.5], [-1.5, 0.0]]), ValueError, r"\[-1, 1\]"),
        (torch.tensor([[0.0, 0.5], [0.5, 0.0]]), ValueError, "antisymmetric"),
        (torch.tensor([[0.1, 0.5], [-0.5, 0.0]]), ValueError, "antisymmetric"),
    ],
)
def test_validate_names_the_fault(bad, error, match):
    with pytest.raises(error, match=match):
        validate_preference(bad)


def test_validate_tolerance_is_the_callers():
    P = torch.tensor([[0.0, 0.5], [-0.499, 0.0]], dtype=torch.float64)
    assert validate_preference(P, atol=1e-2) is P
    with pytest.raises(ValueError, match="antisymmetric"):
        validate_preference(P)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: preference_from_probability(torch.tensor([[0.5, 1.2], [-0.2, 0.5]])),
            ValueError,
            r"\[0, 1\]",
        ),
        (lambda: preference_from_probability(torch.tensor([[0.5, 0.9], [0.9, 0.5]])), ValueError, "= 1"),
        (lambda: preference_from_probability(torch.tensor([[0.0, 0.9], [0.1, 0.0]])), ValueError, "= 1"),
        (lambda: preference_from_probability(torch.ones(2, 2).int()), TypeError, "floating point"),
        (lambda: aggregate_preferences(torch.tensor([[0, 0, 2]]), torch.ones(1)), ValueError, "permutation"),
        (lambda: aggregate_preferences(torch.tensor([[1, 2, 3]]), torch.ones(1)), ValueError, "permutation"),
        (lambda: aggregate_preferences(RANKINGS.double(), torch.ones(3) / 3), TypeError, "integer"),
        (lambda: aggregate_preferences(RANKINGS, torch.tensor([0.5, 0.6, -0.1])), ValueError, "non-negative"),
        (lambda: aggregate_preferences(RANKINGS, torch.tensor([0.5, 0.5, 0.5])), ValueError, "sum to 1"),
        (lambda: aggregate_preferences(RANKINGS, torch.tensor([0.5, 0.5])), ValueError, "shape"),
        (lambda: aggregate_preferences(RANKINGS, torch.tensor([1, 0, 0])), TypeError, "floating point"),
        (lambda: max_return_preference(torch.zeros(3), torch.zeros(3, 2)), ValueError, "rewards_a"),
        (
            lambda: max_return_preference(torch.ones(2, 2).long(), torch.ones(2, 2)),
            TypeError,
            "floating point",
        ),
        (
            lambda: bradley_terry_preference(torch.ones(2, 2), torch.ones(2, 2), temperature=0),
            ValueError,
            "temperature",
        ),
        (
            lambda: bradley_terry_preference(torch.ones(2, 2), torch.ones(2, 2), temperature=-1),
            ValueError,
            "temperature",
        ),
        (lambda: bradley_terry_preference(torch.full((1, 2), NAN), torch.ones(2, 2)), ValueError, "finite"),
        (lambda: constrained_preference(torch.ones(2, 4), torch.ones(2, 5)), ValueError, "horizons"),
        (
            lambda: constrained_preference(torch.ones(2, 4), torch.ones(2, 4), split=0.0),
            ValueError,
            "empty part",
        ),
        (
            lambda: constrained_preference(torch.ones(2, 4), torch.ones(2, 4), split=1.0),
            ValueError,
            "empty part",
        ),
        (lambda: constrained_preference(torch.ones(2, 1), torch.ones(2, 1)), ValueError, "empty part"),
        (
            lambda: constrained_preference(torch.ones(2, 4), torch.ones(2, 4), threshold=NAN),
            ValueError,
            "NaN",
        ),
        (lambda: sample_preference(torch.tensor([1.5])), ValueError, r"\[-1, 1\]"),
        (lambda: sample_preference(torch.tensor([NAN])), ValueError, r"\[-1, 1\]"),
        (lambda: sample_preference(torch.tensor([1])), TypeError, "floating point"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call()
