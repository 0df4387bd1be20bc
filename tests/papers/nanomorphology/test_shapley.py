"""Explanations of trees and forests."""

from __future__ import annotations

import sys
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import shap
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from icml24.papers.nanomorphology.generated import generated_dataset
from icml24.papers.nanomorphology.shapley import brute_force_shapley, explain_forest
from icml24.papers.nanomorphology.targets import feature_matrix


@pytest.fixture(scope="module")
def small():
    """A depth-2 tree on three correlated features, and rows."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3))
    x[:, 1] += x[:, 0]
    y = (x[:, 0] * x[:, 1] + 0.5 * x[:, 2] > 0.2).astype(int)
    return DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y), x


@pytest.mark.equation("eq-nanomorphology-shapley")
def test_subsets_against_shap(small):
    """E7: 2^3 subsets with node-cover weights equal path-dependent Tree SHAP."""
    tree, x = small
    explainer = shap.TreeExplainer(tree, feature_perturbation="tree_path_dependent")
    theirs = np.asarray(explainer.shap_values(x))[..., 1]
    for row, expected in zip(x, theirs, strict=True):
        phi, base = brute_force_shapley(tree, row)
        np.testing.assert_allclose(phi, expected, atol=1e-7)  # SHAP sums in float32 internally
        assert base == pytest.approx(float(explainer.expected_value[1]), abs=1e-7)


@pytest.mark.equation("eq-nanomorphology-shapley")
def test_subset_weights_are_the_average_over_orders(small):
    """The weights |S|!(F-|S|-1)!/F! are those of a feature's place in a random order."""
    from icml24.papers.nanomorphology.shapley import _expectation

    tree, x = small
    row = x[3].astype(np.float32)
    gain = np.zeros(3)
    for order in permutations(range(3)):
        for place, j in enumerate(order):
            before = frozenset(order[:place])
            gain[j] += _expectation(tree.tree_, row, before | {j}, 1, 0) - _expectation(
                tree.tree_, row, before, 1, 0
            )
    np.testing.assert_allclose(brute_force_shapley(tree, x[3])[0], gain / 6, atol=1e-12)


@pytest.mark.equation("eq-nanomorphology-efficiency")
def test_contributions_add_up_to_the_prediction(small):
    tree, x = small
    for row, expected in zip(x, tree.predict_proba(x), strict=True):
        for output in (0, 1):
            phi, base = brute_force_shapley(tree, row, output)
            assert base + phi.sum() == pytest.approx(expected[output], abs=1e-12)


@pytest.mark.equation("eq-nanomorphology-efficiency")
def test_additivity_of_a_forest_row_by_row():
    frame = generated_dataset(7)
    features = feature_matrix(frame)
    forest = RandomForestClassifier(n_estimators=20, random_state=0).fit(
        features.to_numpy()[:140], frame["Stick"].to_numpy()[:140]
    )
    result = explain_forest(forest, features.iloc[140:])
    assert result.values.shape == (69, 22)
    assert result.additivity_gap < 1e-6
    assert result.ranking(3)[0] == "Temperature, C"  # the rule's strongest condition for sticks
    assert len(result.ranking()) == 10


def test_class_zero_is_the_mirror(small):
    tree, x = small
    np.testing.assert_allclose(brute_force_shapley(tree, x[0], 0)[0], -brute_force_shapley(tree, x[0], 1)[0])


def test_other_classes_are_refused(small):
    _, x = small
    forest = RandomForestClassifier(n_estimators=2, random_state=0).fit(x, np.arange(80) % 3)
    with pytest.raises(ValueError, match=r"classes \[0, 1\]"):
        explain_forest(forest, pd.DataFrame(x))


def test_without_shap_the_message_says_what_to_install(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match="pip install shap"):
        explain_forest(None, pd.DataFrame())
