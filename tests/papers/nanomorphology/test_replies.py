"""Reading and scoring replies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import f1_score, precision_score, recall_score

from icml24.papers.nanomorphology import SHAPES, parse_reply, score_replies
from icml24.papers.nanomorphology.replies import format_shapes

labels = arrays(np.int8, (5,), elements=st.integers(0, 1))
tables = st.integers(1, 12).flatmap(lambda n: arrays(np.int8, (n, 5), elements=st.integers(0, 1)))


@pytest.mark.equation("eq-nanomorphology-parser")
@settings(deadline=None, max_examples=50)
@given(labels, st.permutations(range(5)), st.data())
def test_order_case_and_what_follows_do_not_matter(truth, order, data):
    """E9."""
    case = data.draw(st.sampled_from([str.lower, str.upper, str.title]))
    rest = data.draw(st.sampled_from(["", ".", " and so on", ", Am", "\nbecause of the cubes", " Stic"]))
    names = [case(SHAPES[k]) for k in order if truth[k]]
    assert parse_reply(", ".join(names) + rest).tolist() == truth.tolist()


@pytest.mark.equation("eq-nanomorphology-parser")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Flat, Cube, Sphere, Amorph", "10110"),
        ("Stick-like", "01000"),
        ("Cubes", "00000"),
        ("cube,stick", "11000"),
        ("Sphere_like", "00000"),
        ("", "00000"),
        ("Based on the conditions provided, the", "00000"),
        ("AMORPHOUS; Cube; amorphous", "10001"),
        ("FlatCube", "00000"),
        ("\u017ftick", "00000"),  # a long s: equal to "s" for a case-blind pattern, not for lower()
    ],
)
def test_whole_words_only(text, expected):
    out = parse_reply(text)
    assert out.dtype == np.int8
    assert out.shape == (5,)
    assert "".join(map(str, out)) == expected


@settings(deadline=None, max_examples=50)
@given(labels)
def test_format_and_parse_are_inverse(truth):
    assert parse_reply(format_shapes(truth)).tolist() == truth.tolist()


@pytest.mark.equation("eq-nanomorphology-subset")
@settings(deadline=None, max_examples=50)
@given(tables, st.randoms(use_true_random=False))
def test_all_five_right_is_never_more_frequent_than_one_right(truth, random):
    """E6: subset accuracy is at most the smallest class accuracy."""
    said = truth ^ np.array([[random.random() < 0.3 for _ in SHAPES] for _ in truth])
    scores = score_replies([format_shapes(row) for row in said], truth)
    lowest = min(scores[shape]["Accuracy"] for shape in SHAPES)
    assert scores["Macro-Average"]["Accuracy"] <= lowest + 1e-12
    bound = 1 - sum(1 - scores[shape]["Accuracy"] for shape in SHAPES)
    assert scores["Macro-Average"]["Accuracy"] >= bound - 1e-12


@settings(deadline=None, max_examples=50)
@given(tables, st.randoms(use_true_random=False))
def test_scores_equal_scikit_learn(truth, random):
    said = truth ^ np.array([[random.random() < 0.4 for _ in SHAPES] for _ in truth])
    scores = score_replies([format_shapes(row) for row in said], truth)
    for k, shape in enumerate(SHAPES):
        expected = (
            np.mean(said[:, k] == truth[:, k]),
            precision_score(truth[:, k], said[:, k], zero_division=1),
            recall_score(truth[:, k], said[:, k], zero_division=0),
            f1_score(truth[:, k], said[:, k], zero_division=0),
        )
        assert tuple(scores[shape].values()) == pytest.approx(expected, abs=1e-12)
    micro = scores["Micro-Average"]
    assert micro["F1"] == pytest.approx(f1_score(truth, said, average="micro", zero_division=0), abs=1e-12)
    assert micro["Accuracy"] == pytest.approx(np.mean(said == truth), abs=1e-12)


def test_parity_with_the_authors_files(parity):
    """Every figure of six recorded runs, to 1e-12."""
    runs = json.loads((parity / "llm_metrics.json").read_text())
    assert len(runs) == 6
    for run in runs:
        truth = np.array([[int(digit) for digit in row] for row in run["truth"]])
        replies = [format_shapes([int(digit) for digit in row]) for row in run["predicted"]]
        ours = score_replies(replies, truth)
        assert set(ours) == set(run["metrics"])
        for key, row in run["metrics"].items():
            assert ours[key] == pytest.approx(row, abs=1e-12), (run["config"], run["run"], key)


def test_by_hand():
    scores = score_replies(["Cube", "Cube, Stick"], np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]))
    assert scores["Cube"] == {"Accuracy": 0.5, "Precision": 0.5, "Recall": 1.0, "F1": 2 / 3}
    assert scores["Sphere"] == {"Accuracy": 1.0, "Precision": 1.0, "Recall": 0.0, "F1": 0.0}
    assert scores["Macro-Average"]["Accuracy"] == 0.5
    assert scores["Micro-Average"] == {"Accuracy": 0.9, "Precision": 2 / 3, "Recall": 1.0, "F1": 0.8}


@pytest.mark.parametrize(
    ("replies", "truth", "match"),
    [
        (["Cube"], np.zeros((2, 5), int), "same length"),
        ([], np.zeros((0, 5), int), "no reply"),
        (["Cube"], np.zeros((1, 4), int), r"shape \(n, 5\)"),
        (["Cube"], np.full((1, 5), 2), "0 and 1"),
    ],
)
def test_bad_arguments(replies, truth, match):
    with pytest.raises(ValueError, match=match):
        score_replies(replies, truth)


def test_format_refuses_another_length():
    with pytest.raises(ValueError, match="one 0/1 entry a shape"):
        format_shapes([1, 0])
