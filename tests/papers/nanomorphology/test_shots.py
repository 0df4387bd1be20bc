"""Few-shot examples and the rule that never reads the query."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.nanomorphology import SHAPES, copy_majority, select_examples
from icml24.papers.nanomorphology.shots import (
    conditional_labels,
    copy_accuracy,
    copy_limit,
    copy_probability,
    first_class,
    simulate_copy_rule,
)


@pytest.fixture(scope="module")
def labels(parity):
    """The 209 label rows (numbers of the parity file)."""
    with np.load(parity / "targets.npz") as file:
        return file["targets"][:, : len(SHAPES)]


def some_labels(seed: int, rows: int = 60) -> np.ndarray:
    out = np.random.default_rng(seed).integers(0, 2, (rows, 5))
    out[~out.any(axis=1), 0] = 1
    return out


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.integers(0, 4),
    st.sampled_from(["random", "strict", "occurrence"]),
)
def test_examples_are_distinct_and_as_promised(seed, n, target, strategy):
    rows = some_labels(5)
    pick = select_examples(
        rows, n, strategy=strategy, target_class=target, generator=np.random.default_rng(seed)
    )
    assert len(set(pick.tolist())) == len(pick)
    assert ((pick >= 0) & (pick < 60)).all()
    members = int(rows[:, target].sum())
    if strategy == "strict":
        assert len(pick) == min(n, members)
        assert rows[pick, target].all()
    else:
        assert len(pick) == n
    if strategy == "occurrence":
        assert rows[pick[0], target] == 1


@pytest.mark.parametrize("strategy", ["random", "strict", "occurrence"])
def test_the_generator_decides(strategy, global_random_state):
    rows, before = some_labels(1), global_random_state()

    def pick(seed):
        return select_examples(
            rows, 8, strategy=strategy, target_class=2, generator=np.random.default_rng(seed)
        ).tolist()

    assert pick(0) == pick(0)
    assert pick(0) != pick(1)
    assert global_random_state() == before


def test_strict_returns_fewer_when_the_class_is_small(labels):
    pick = select_examples(labels, 50, strategy="strict", target_class=3, generator=np.random.default_rng(0))
    assert len(pick) == 16 == labels[:, 3].sum()
    few_rows = labels[labels[:, 3] == 1][:3]
    assert (
        len(
            select_examples(
                few_rows, 10, strategy="strict", target_class=3, generator=np.random.default_rng(0)
            )
        )
        == 3
    )


def test_every_member_is_equally_likely_to_be_shown():
    rows = some_labels(2, rows=12)
    members = np.flatnonzero(rows[:, 1])
    draw = np.random.default_rng(0)
    counts = np.zeros(12)
    for _ in range(4000):
        counts[select_examples(rows, 2, strategy="strict", target_class=1, generator=draw)] += 1
    expected = 4000 * 2 / len(members)
    assert np.abs(counts[members] - expected).max() < 4 * math.sqrt(expected)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"strategy": "best"}, r"unknown strategy 'best'.*random.*strict.*occurrence"),
        ({"strategy": "strict"}, "needs a target_class"),
        ({"strategy": "occurrence"}, "needs a target_class"),
        ({"strategy": "strict", "target_class": 4}, "no example contains Amorphous"),
        ({"strategy": "occurrence", "target_class": 4}, "no example contains Amorphous"),
        ({"strategy": "strict", "target_class": 5}, "between 0 and 4"),
        ({"n": 0}, "n must lie"),
        ({"n": 61}, "n must lie"),
        ({"labels": np.zeros((4, 3), int)}, r"shape \(rows, 5\)"),
        ({"labels": np.full((4, 5), 3)}, "0 and 1"),
    ],
)
def test_bad_arguments(changes, match):
    rows = some_labels(3)
    rows[:, 4] = 0
    arguments = {"labels": rows, "n": 5, "strategy": "random"} | changes
    with pytest.raises(ValueError, match=match):
        select_examples(
            arguments.pop("labels"), arguments.pop("n"), **arguments, generator=np.random.default_rng(0)
        )


def test_copy_majority_by_hand():
    out = copy_majority(np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0]]))
    assert out.tolist() == [1, 1, 0, 0, 1]  # a half counts
    assert (out.dtype, out.shape) == (np.int8, (5,))
    assert copy_majority(np.array([[1, 0, 0, 0, 1]] + 2 * [[0, 1, 0, 0, 0]])).tolist() == [0, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="no example"):
        copy_majority(np.zeros((0, 5), int))


@pytest.mark.equation("eq-nanomorphology-conditional")
def test_label_matrix_of_the_table(labels):
    """E5's matrix, and its definition by counting."""
    q = conditional_labels(labels)
    expected = [
        [1, 0.41, 0.14, 0.06, 0.10],
        [0.68, 1, 0.02, 0.01, 0.07],
        [0.50, 0.05, 1, 0.05, 0.02],
        [0.56, 0.06, 0.12, 1, 0],
        [0.41, 0.18, 0.03, 0, 1],
    ]
    assert np.abs(q - expected).max() < 0.0051
    for c in range(5):
        np.testing.assert_allclose(q[c], labels[labels[:, c] == 1].mean(axis=0), rtol=1e-12)
    assert np.bincount(first_class(labels)).tolist() == [140, 27, 20, 6, 16]


@pytest.mark.equation("eq-nanomorphology-leakfinite")
@pytest.mark.parametrize("shots", [1, 2, 5, 10])
def test_copy_probability_is_what_sampling_gives(labels, shots):
    """The hypergeometric form against 1500 strict prompts a class."""
    exact = copy_probability(labels, shots)
    draw = np.random.default_rng(shots)
    for c in range(5):
        answers = [
            copy_majority(
                labels[select_examples(labels, shots, strategy="strict", target_class=c, generator=draw)]
            )
            for _ in range(1500)
        ]
        error = 4 * np.sqrt(exact[c] * (1 - exact[c]) / 1500) + 1e-9
        assert (np.abs(np.mean(answers, axis=0) - exact[c]) <= error).all()


@pytest.mark.equation("eq-nanomorphology-leakfinite")
def test_all_members_shown_is_the_limit():
    """With every member of every class in the prompt, chance is gone: the limit of E5."""
    rows = some_labels(4)
    np.testing.assert_array_equal(copy_probability(rows, 60), copy_limit(rows))


@pytest.mark.equation("eq-nanomorphology-leakfinite")
def test_large_tables_approach_the_limit(labels):
    """Repeating the table keeps q; off q = 1/2 the probability tends to 0 or 1 as shots grow."""
    big, q = np.tile(labels, (50, 1)), conditional_labels(labels)
    clear = np.abs(q - 0.5) > 0.05
    gaps = [np.abs(copy_probability(big, n) - copy_limit(big))[clear].max() for n in (11, 101, 301)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


@pytest.mark.equation("eq-nanomorphology-leak")
def test_closed_form_accuracy(labels):
    """E5: .746 .727 .904 .952 .914, mean .849; and, for any rule, the average over drawn answers."""
    limit = copy_accuracy(labels, copy_limit(labels))
    assert np.round(limit, 3) == pytest.approx([0.746, 0.727, 0.904, 0.952, 0.914])
    assert limit.mean() == pytest.approx(0.849, abs=5e-4)
    draw = np.random.default_rng(0)
    chance = draw.random((5, 5))
    told = chance[first_class(labels)]
    runs = np.array([((draw.random(told.shape) < told) == labels).mean(axis=0) for _ in range(2000)])
    gap = np.abs(runs.mean(axis=0) - copy_accuracy(labels, chance))
    assert (gap < 4 * runs.std(axis=0) / math.sqrt(2000)).all()


@pytest.mark.equation("eq-nanomorphology-leak")
def test_closed_form_against_the_simulated_protocol(labels):
    """N = 10, 20 % test: within .03 of both forms; without the leak far below."""
    told = simulate_copy_rule(labels, shots=10, leak=True, generators=np.random.default_rng(0))
    blind = simulate_copy_rule(labels, shots=10, leak=False, generators=np.random.default_rng(0))
    assert told["accuracy"].shape == (20, 5)
    mean = told["accuracy"].mean()
    assert abs(mean - copy_accuracy(labels, copy_limit(labels)).mean()) < 0.03
    assert abs(mean - copy_accuracy(labels, copy_probability(labels, 10)).mean()) < 0.015
    assert mean == pytest.approx(0.83, abs=0.015)
    assert told["f1"].mean() == pytest.approx(0.64, abs=0.03)
    assert blind["accuracy"].mean() == pytest.approx(0.73, abs=0.015)
    assert blind["f1"].mean() == pytest.approx(0.22, abs=0.03)


def test_more_shots_help_a_rule_that_never_reads(labels):
    means = [copy_accuracy(labels, copy_probability(labels, n)).mean() for n in (2, 4, 6, 8, 10)]
    assert np.all(np.diff(means) > 0)
    assert means == pytest.approx([0.756, 0.806, 0.821, 0.833, 0.831], abs=0.025)  # simulated by others


def test_one_generator_a_split_gives_independent_splits(labels):
    streams = [np.random.default_rng(i) for i in range(3)]
    three = simulate_copy_rule(labels, shots=4, splits=3, leak=True, generators=streams)["accuracy"]
    alone = simulate_copy_rule(labels, shots=4, splits=1, leak=True, generators=[np.random.default_rng(2)])
    np.testing.assert_array_equal(three[2], alone["accuracy"][0])


def test_bad_simulations(labels):
    draw = np.random.default_rng(0)
    with pytest.raises(ValueError, match="test_fraction"):
        simulate_copy_rule(labels, shots=2, test_fraction=1.0, leak=True, generators=draw)
    with pytest.raises(ValueError, match="one generator a split"):
        simulate_copy_rule(labels, shots=2, splits=3, leak=True, generators=[draw])
    with pytest.raises(ValueError, match="shots"):
        copy_probability(labels, 0)
    with pytest.raises(ValueError, match="at least one shape"):
        first_class(np.zeros((2, 5), int))
