"""Repeated hold-out."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score, precision_recall_curve
from sklearn.model_selection import train_test_split

from icml24.papers.nanomorphology import (
    HoldoutResult,
    break_even_threshold,
    feature_matrix,
    make_targets,
    repeated_holdout,
)
from icml24.papers.nanomorphology.generated import generated_dataset
from icml24.papers.nanomorphology.holdout import holdout, tuned_holdout

SMALL = {"n_estimators": 10}


@pytest.fixture(scope="module")
def frame():
    return generated_dataset(7)


def test_mean_and_population_deviation():
    result = HoldoutResult(np.array([0.5, 0.7]), np.array([0.2, 0.6]), np.array([0.1, 0.1]))
    assert (result.accuracy_mean, result.accuracy_std) == pytest.approx((0.6, 0.1))
    assert (result.macro_f1_mean, result.macro_f1_std) == pytest.approx((0.4, 0.2))


@pytest.mark.parametrize("filtered", [True, False])
def test_the_protocol_spelled_out(frame, filtered):
    """Each seed's figures against the steps written with scikit-learn's own pieces."""
    result = repeated_holdout(frame, "Stick", filtered=filtered, seeds=(0, 10), params=SMALL)
    x, y = feature_matrix(frame, filtered=filtered).to_numpy(), make_targets(frame)["Stick"].to_numpy()
    for i, seed in enumerate((0, 10)):
        a, b, c, d = train_test_split(x, y, test_size=0.33, random_state=seed)
        assert (len(a), len(b)) == (140, 69)
        p = RandomForestClassifier(**SMALL, random_state=seed).fit(a, c).predict_proba(b)[:, 1]
        precision, recall, thresholds = precision_recall_curve(d, p)
        threshold = thresholds[np.argmin(np.abs(precision - recall))]
        assert result.threshold[i] == pytest.approx(threshold, abs=1e-12)
        assert result.accuracy[i] == pytest.approx(accuracy_score(d, p >= threshold), abs=1e-12)
        assert result.macro_f1[i] == pytest.approx(f1_score(d, p >= threshold, average="macro"), abs=1e-12)


def test_shapes_reproducible_and_no_global_state(frame, global_random_state):
    before = global_random_state()
    first = repeated_holdout(frame, "Cube", seeds=(3, 1, 2), threshold_source="train_cv", params=SMALL)
    again = repeated_holdout(frame, "Cube", seeds=(3, 1, 2), threshold_source="train_cv", params=SMALL)
    assert global_random_state() == before
    for name in ("accuracy", "macro_f1", "threshold"):
        assert getattr(first, name).shape == (3,)
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def test_params_are_forwarded(frame):
    stump = repeated_holdout(frame, "Stick", seeds=(0,), params={"n_estimators": 1, "max_depth": 1})
    forest = repeated_holdout(frame, "Stick", seeds=(0,), params=SMALL)
    assert stump.threshold[0] != forest.threshold[0]


def test_majority_answers_the_training_majority(frame):
    result = repeated_holdout(frame, "Flat", model="majority", seeds=(0, 10))
    y = make_targets(frame)["Flat"].to_numpy()
    for i, seed in enumerate((0, 10)):
        train, test = train_test_split(y, test_size=0.33, random_state=seed)
        assert train.mean() < 0.5
        assert result.accuracy[i] == 1 - test.mean()
    assert np.isnan(result.threshold).all()


def test_the_leak_free_threshold_ignores_the_test_labels():
    """Flipping every test label changes the threshold found on the test rows, never the other one."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 3))
    y = (x[:, 0] + draw.normal(size=120) > 0.6).astype(int)
    _, rows = train_test_split(np.arange(120), test_size=0.33, random_state=0)
    flipped = y.copy()
    flipped[rows] = 1 - flipped[rows]

    def first_column(train_x, train_y, test_x, seed):
        return test_x[:, 0]

    for source, same in (("train_cv", True), ("test", False)):
        one = holdout(x, y, first_column, seeds=(0,), threshold_source=source).threshold[0]
        two = holdout(x, flipped, first_column, seeds=(0,), threshold_source=source).threshold[0]
        assert bool(one == two) is same
    train = np.setdiff1d(np.arange(120), rows)
    assert holdout(x, y, first_column, seeds=(0,), threshold_source="train_cv").threshold[
        0
    ] == break_even_threshold(y[train], x[train, 0])


def test_a_test_part_without_positives_is_called_positive_throughout():
    """What the public code does there: the lowest score becomes the threshold, accuracy 0."""
    _, rows = train_test_split(np.arange(40), test_size=0.33, random_state=0)
    y = np.zeros(40, dtype=int)
    y[np.setdiff1d(np.arange(40), rows)[:8]] = 1
    result = holdout(np.arange(40.0)[:, None], y, lambda a, b, c, s: c[:, 0], seeds=(0,))
    assert (result.accuracy[0], result.macro_f1[0]) == (0.0, 0.0)
    assert result.threshold[0] == rows.min()


def test_a_training_part_of_one_class_is_refused():
    train, _ = train_test_split(np.arange(40), test_size=0.33, random_state=0)
    y = np.ones(40, dtype=int)
    y[train] = 0
    with pytest.raises(ValueError, match=r"rare: .*seed 0.*both classes"):
        holdout(np.zeros((40, 1)), y, lambda a, b, c, s: c[:, 0], name="rare", seeds=(0,))


def test_tuning_searches_on_the_training_part(frame):
    grid = {"max_depth": [1, 4], "n_estimators": [10]}
    tuned = tuned_holdout(frame, "Stick", seeds=(0,), grid=grid)
    fixed = [
        repeated_holdout(frame, "Stick", seeds=(0,), params={"max_depth": depth, "n_estimators": 10})
        for depth in (1, 4)
    ]
    assert tuned.threshold[0] in [result.threshold[0] for result in fixed]


def test_boosted_trees(frame):
    result = repeated_holdout(frame, "Stick", model="xgb", seeds=(0, 10), params={"n_estimators": 20})
    assert result.accuracy_mean > 0.7  # majority about 0.5 on this table


def test_without_xgboost_the_message_says_what_to_install(frame, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match="pip install xgboost-cpu"):
        repeated_holdout(frame, "Stick", model="xgb", seeds=(0,))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"target": "Cuboid"}, r"unknown target 'Cuboid'.*'Cube'.*'Amorphous_l'"),
        ({"model": "svm"}, r"unknown model 'svm'.*rf.*xgb.*majority"),
        ({"threshold_source": "oracle"}, r"unknown threshold_source 'oracle'.*test.*train_cv"),
        ({"seeds": ()}, "seeds is empty"),
        ({"params": {"random_state": 1}}, "random_state"),
        ({"model": "majority", "params": {"depth": 1}}, "no parameters"),
    ],
)
def test_bad_arguments(frame, changes, match):
    arguments = {"target": "Cube"} | changes
    with pytest.raises(ValueError, match=match):
        repeated_holdout(frame, **arguments)


def test_missing_column(frame):
    with pytest.raises(KeyError, match="PEG"):
        repeated_holdout(frame.drop(columns="PEG"), "Cube")


def test_importing_the_package_leaves_optional_libraries_alone():
    import subprocess

    code = (
        "import sys, icml24.papers.nanomorphology as m; "
        "print(sorted({'xgboost', 'shap', 'openpyxl'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
