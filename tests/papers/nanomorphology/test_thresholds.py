"""Break-even threshold and the floors under every score."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_curve, precision_score, recall_score

from icml24.papers.nanomorphology import SHAPES, break_even_threshold, evaluate_at_threshold
from icml24.papers.nanomorphology.thresholds import (
    majority_scores,
    no_positive_probability,
    random_accuracy,
    recall_interval,
)


def labelled(draw_scores):
    """Labels of both classes with scores drawn by the given strategy."""
    pair = st.tuples(st.integers(0, 1), draw_scores)
    return st.lists(pair, min_size=2, max_size=40).filter(
        lambda rows: 0 < sum(y for y, _ in rows) < len(rows)
    )


@pytest.mark.equation("eq-nanomorphology-breakeven")
@settings(deadline=None, max_examples=50)
@given(labelled(st.integers(0, 10**6)))
def test_break_even_is_the_pth_largest_score(rows):
    """E1: with distinct scores and a hit in the top P + 1, the threshold is the P-th largest score."""
    y = np.array([label for label, _ in rows])
    s = np.argsort(np.argsort([score for _, score in rows])) / 7.0  # distinct
    ranked, positives = np.sort(s)[::-1], int(y.sum())
    if not y[s >= ranked[positives]].any():  # P + 1 best: ranks 0..P
        return
    threshold = break_even_threshold(y, s)
    assert threshold == ranked[positives - 1]
    said = s >= threshold
    gap = precision_score(y, said) - recall_score(y, said)
    assert abs(gap) < 1e-12


@pytest.mark.equation("eq-nanomorphology-breakeven")
def test_break_even_degenerates_when_the_top_scores_are_all_negative():
    """E1's other branch: TP = 0 makes both sides 0, and the smallest such threshold wins."""
    y = np.array([0, 0, 0, 1, 0])
    s = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert break_even_threshold(y, s) == 3.0  # not 5.0, the P-th largest for P = 1


@settings(deadline=None, max_examples=50)
@given(labelled(st.integers(0, 4)))
def test_break_even_equals_the_search_over_scikit_learns_curve(rows):
    """Ties included: the first minimiser of |precision - recall|."""
    y, s = np.array([label for label, _ in rows]), np.array([score / 3 for _, score in rows])
    precision, recall, thresholds = precision_recall_curve(y, s)
    best = int(np.argmin(np.abs(precision - recall)))
    assert best < len(thresholds)  # the extra last point never wins
    assert break_even_threshold(y, s) == thresholds[best]


@settings(deadline=None, max_examples=50)
@given(labelled(st.floats(-1, 1)), st.floats(-1.5, 1.5))
def test_scores_equal_scikit_learn(rows, threshold):
    y, s = np.array([label for label, _ in rows]), np.array([score for _, score in rows])
    said = s >= threshold
    accuracy, macro = evaluate_at_threshold(y, s, threshold)
    assert accuracy == pytest.approx(accuracy_score(y, said), abs=1e-12)
    assert macro == pytest.approx(f1_score(y, said, average="macro", zero_division=0), abs=1e-12)


def test_parity_with_the_public_code(parity):
    with np.load(parity / "metrics.npz") as file:
        for i in range(int(file["n"])):
            y, p, (accuracy, macro, threshold) = file[f"y{i}"], file[f"p{i}"], file[f"out{i}"]
            assert break_even_threshold(y, p) == pytest.approx(threshold, abs=1e-12)
            assert evaluate_at_threshold(y, p, threshold) == pytest.approx((accuracy, macro), abs=1e-12)


@pytest.mark.equation("eq-nanomorphology-random")
@pytest.mark.parametrize("rate", [0.1, 0.4, 0.7])
def test_random_scores_at_break_even(rate):
    """E2: 1 - 2 pi (1 - pi), by Monte Carlo over 2000 draws of 200 rows."""
    draw = np.random.default_rng(0)
    y = np.zeros(200, dtype=int)
    y[: round(rate * 200)] = 1
    scores = draw.random((2000, 200))
    accuracy = np.array([evaluate_at_threshold(y, s, break_even_threshold(y, s))[0] for s in scores])
    error = 4 * accuracy.std() / math.sqrt(len(accuracy))
    assert error < 0.01
    if (
        rate >= 0.4
    ):  # below, orders without a positive in the top P + 1 pull the mean down (exact form: next line)
        assert abs(accuracy.mean() - random_accuracy(rate)) < error
    assert abs(accuracy.mean() - random_accuracy(rate, 200)) < error


def test_random_accuracy_by_hand_and_by_enumeration():
    assert random_accuracy(0.4) == pytest.approx(0.52, abs=1e-12)
    from itertools import combinations

    for rows, positives in ((5, 1), (6, 2), (7, 3)):
        total = []
        for places in combinations(range(rows), positives):
            y = np.zeros(rows, dtype=int)
            y[list(places)] = 1
            scores = -np.arange(rows, dtype=float)
            total.append(evaluate_at_threshold(y, scores, break_even_threshold(y, scores))[0])
        assert random_accuracy(positives / rows, rows) == pytest.approx(np.mean(total), abs=1e-12)


@pytest.mark.equation("eq-nanomorphology-majority")
@pytest.mark.parametrize(("positives", "rows"), [(140, 209), (84, 209), (40, 209), (16, 209), (1, 2)])
def test_majority_rule(positives, rows):
    """E3, E4: accuracy pi', macro-F1 pi'/(1 + pi'), against scikit-learn on the rule's answers."""
    y = np.arange(rows) < positives
    answer = np.full(rows, 2 * positives >= rows)
    accuracy, macro = majority_scores(positives / rows)
    assert accuracy == pytest.approx(accuracy_score(y, answer), abs=1e-12)
    assert macro == pytest.approx(f1_score(y, answer, average="macro", zero_division=0), abs=1e-12)
    assert macro <= 0.5


def test_majority_of_the_five_shapes(parity):
    """E3's numbers from the label counts alone."""
    with np.load(parity / "targets.npz") as file:
        rates = file["targets"][:, : len(SHAPES)].mean(axis=0)
    shares = [majority_scores(float(rate))[0] for rate in rates]
    assert np.round(shares, 3) == pytest.approx([0.670, 0.598, 0.809, 0.923, 0.837])
    assert np.mean(shares) == pytest.approx(0.767, abs=5e-4)


@pytest.mark.equation("eq-nanomorphology-nopositive")
@pytest.mark.parametrize(("rows", "positives", "test_rows"), [(209, 5, 69), (209, 11, 69), (20, 2, 10)])
def test_chance_of_a_test_part_without_a_positive(rows, positives, test_rows):
    from scipy.stats import hypergeom

    ours = no_positive_probability(rows, positives, test_rows)
    assert ours == pytest.approx(hypergeom.pmf(0, rows, positives, test_rows), rel=1e-10)
    draw = np.random.default_rng(1)
    misses = [draw.permutation(rows)[:test_rows].min() >= positives for _ in range(4000)]
    assert abs(np.mean(misses) - ours) < 4 * math.sqrt(ours * (1 - ours) / 4000)


def test_two_hits_of_two_say_little():
    """Clopper-Pearson by hand: two of two leaves everything above sqrt(.025)."""
    low, high = recall_interval(2, 2)
    assert (low, high) == pytest.approx((math.sqrt(0.025), 1.0), rel=1e-9)
    assert recall_interval(0, 3) == pytest.approx((0.0, 1 - 0.025 ** (1 / 3)), rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 30), st.data())
def test_recall_interval_holds_its_estimate(positives, data):
    hits = data.draw(st.integers(0, positives))
    low, high = recall_interval(hits, positives)
    assert 0 <= low <= hits / positives <= high <= 1


@pytest.mark.parametrize("y", [[0, 0, 0], [1, 1, 1]])
def test_one_class_is_refused(y):
    with pytest.raises(ValueError, match="both classes"):
        break_even_threshold(y, [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("y", "s", "match"),
    [
        ([0, 1], [0.1, 0.2, 0.3], "same length"),
        ([], [], "same length"),
        ([0, 1], [0.1, float("nan")], "finite"),
        ([0, 1], [0.1, float("inf")], "finite"),
        ([0, 2], [0.1, 0.2], "0 and 1"),
        ([[0, 1]], [[0.1, 0.2]], "same length"),
    ],
)
def test_bad_scores_are_refused(y, s, match):
    with pytest.raises(ValueError, match=match):
        break_even_threshold(y, s)
    with pytest.raises(ValueError, match=match):
        evaluate_at_threshold(y, s, 0.5)


def test_infinite_thresholds_call_nothing_or_everything_positive():
    assert evaluate_at_threshold([0, 1, 0], [0.1, 0.2, 0.3], float("inf"))[0] == pytest.approx(2 / 3)
    assert evaluate_at_threshold([0, 1, 0], [0.1, 0.2, 0.3], float("-inf"))[0] == pytest.approx(1 / 3)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="got NaN"):
        evaluate_at_threshold([0, 1], [0.1, 0.2], float("nan"))
    with pytest.raises(ValueError, match="strictly between"):
        random_accuracy(1.0)
    with pytest.raises(ValueError, match="two classes"):
        random_accuracy(0.01, 10)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        majority_scores(1.2)
    with pytest.raises(ValueError, match="positives, test_rows"):
        no_positive_probability(10, 11, 3)
    with pytest.raises(ValueError, match="hits"):
        recall_interval(3, 2)
    with pytest.raises(ValueError, match="level"):
        recall_interval(1, 2, 1.0)
