r"""Tree explanations: exact path-dependent Shapley values, by definition and through SHAP.

The value of a set of known features is the tree's expectation when a split on an unknown feature
sends the row both ways, weighted by how many training rows went each way (node covers). Summing
marginal contributions over all orders gives eq-nanomorphology-shapley; that they add up to the
prediction is eq-nanomorphology-efficiency. The plain form here enumerates all subsets and serves
small trees and tests; ``shap.TreeExplainer`` computes the same numbers for whole forests.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["TreeExplanation", "brute_force_shapley", "explain_forest"]


@dataclass(frozen=True)
class TreeExplanation:
    """Contributions of features to the probability of class 1.

    Attributes
    ----------
    values : ndarray, shape (rows, features)
        In units of probability; positive means towards class 1.
    base : float
        Expected probability with no feature known.
    prediction : ndarray, shape (rows,)
        The forest's probability of class 1.
    features : DataFrame, shape (rows, features)
        The rows explained.
    """

    values: np.ndarray
    base: float
    prediction: np.ndarray
    features: pd.DataFrame

    @property
    def additivity_gap(self) -> float:
        """Largest ``|base + sum of contributions - prediction|`` over the rows (eq-nanomorphology-efficiency)."""
        return float(np.abs(self.base + self.values.sum(axis=1) - self.prediction).max())

    def ranking(self, top: int = 10) -> list[str]:
        """Names of the `top` features by mean absolute contribution, largest first."""
        order = np.argsort(-np.abs(self.values).mean(axis=0), kind="stable")
        return [str(self.features.columns[j]) for j in order[:top]]


def explain_forest(forest: Any, rows: pd.DataFrame) -> TreeExplanation:
    """Path-dependent Tree SHAP of a fitted scikit-learn forest.

    Parameters
    ----------
    forest : RandomForestClassifier
        Fitted on classes 0 and 1.
    rows : pandas.DataFrame, shape (rows, features)
        In the column order of the fit.

    Returns
    -------
    TreeExplanation
        Of class 1, the last index of SHAP's (rows, features, classes) array. Class 0 has the
        same numbers with the opposite sign.

    Raises
    ------
    ImportError
        SHAP is not installed.
    ValueError
        The forest does not know exactly the classes 0 and 1.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about progress bars in notebooks
            import shap
    except ImportError as error:
        raise ImportError("explain_forest needs SHAP: pip install shap") from error
    if list(forest.classes_) != [0, 1]:
        raise ValueError(f"expected a forest of classes [0, 1]; got {list(forest.classes_)}")
    explainer = shap.TreeExplainer(forest, feature_perturbation="tree_path_dependent")
    table = rows.to_numpy(np.float64)
    values = np.asarray(explainer.shap_values(table, check_additivity=False))[..., 1]
    base = float(np.asarray(explainer.expected_value)[1])
    return TreeExplanation(values, base, forest.predict_proba(table)[:, 1], rows)


def brute_force_shapley(tree: Any, row: np.ndarray, output: int = 1) -> tuple[np.ndarray, float]:
    r"""Shapley values of one row of one decision tree by enumerating all subsets.

    .. math:: \phi_j = \sum_{S \subseteq F \setminus j} \frac{|S|!\,(|F| - |S| - 1)!}{|F|!}
        \bigl[v(S \cup j) - v(S)\bigr]

    Parameters
    ----------
    tree : DecisionTreeClassifier
        Fitted; at most about 12 features (:math:`2^{|F|}` tree walks).
    row : ndarray, shape (features,)
    output : int, default 1
        Class index.

    Returns
    -------
    (ndarray of shape (features,), float)
        Contributions and :math:`v(\emptyset)`, in units of probability.

    Notes
    -----
    Source: eq-nanomorphology-shapley with the path-dependent value function.
    """
    row = np.asarray(row, dtype=np.float32)  # the precision in which scikit-learn's trees compare
    names = range(len(row))
    value = {
        known: _expectation(tree.tree_, row, frozenset(known), output, 0)
        for size in range(len(row) + 1)
        for known in combinations(names, size)
    }
    phi = np.zeros(len(row))
    for j in names:
        for known, worth in value.items():
            if j in known:
                continue
            weight = math.factorial(len(known)) * math.factorial(len(row) - len(known) - 1)
            more = tuple(sorted((*known, j)))
            phi[j] += weight / math.factorial(len(row)) * (value[more] - worth)
    return phi, value[()]


def _expectation(nodes: Any, row: np.ndarray, known: frozenset[int], output: int, node: int) -> float:
    left, right = nodes.children_left[node], nodes.children_right[node]
    if left == right:
        leaf = nodes.value[node][0]
        return float(leaf[output] / leaf.sum())
    feature = int(nodes.feature[node])
    if feature in known:
        branch = left if row[feature] <= nodes.threshold[node] else right
        return _expectation(nodes, row, known, output, branch)
    cover = nodes.weighted_n_node_samples
    return (
        cover[left] * _expectation(nodes, row, known, output, left)
        + cover[right] * _expectation(nodes, row, known, output, right)
    ) / cover[node]
