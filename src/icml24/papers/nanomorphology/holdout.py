r"""Repeated hold-out: forests, boosted trees and the majority rule under one protocol.

For each seed: split the rows, fit on the training part, turn test probabilities into decisions
at a break-even threshold (eq-nanomorphology-breakeven), report accuracy and macro-F1. The
threshold may come from the test rows, as in the public code, or from out-of-fold scores of the
training part, which is the same rule without a look at the answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from icml24.papers.nanomorphology.targets import feature_matrix, make_targets
from icml24.papers.nanomorphology.thresholds import (
    break_even_threshold,
    decision_scores,
    evaluate_at_threshold,
    lowest_score_or_break_even,
)

__all__ = ["GRID", "SEEDS", "HoldoutResult", "holdout", "repeated_holdout", "tuned_holdout"]

#: The protocol's five seeds: they split the rows and seed the model.
SEEDS: tuple[int, ...] = (0, 10, 20, 30, 40)

MODELS = ("rf", "xgb", "majority")
SOURCES = ("test", "train_cv")
FOLDS = 5

#: Reduced search grid (12 points instead of the public code's 486).
GRID: Mapping[str, list[Any]] = {
    "max_depth": [3, 6, 9],
    "max_leaf_nodes": [6, 9],
    "max_features": ["sqrt", None],
    "n_estimators": [50],
}


@dataclass(frozen=True)
class HoldoutResult:
    """Scores of one target, one value a seed.

    Attributes
    ----------
    accuracy, macro_f1, threshold : ndarray, shape (n_seeds,)
        In the order of the seeds given. `threshold` is NaN where none was searched.
    """

    accuracy: np.ndarray
    macro_f1: np.ndarray
    threshold: np.ndarray

    @property
    def accuracy_mean(self) -> float:
        """Mean accuracy over the seeds."""
        return float(np.mean(self.accuracy))

    @property
    def accuracy_std(self) -> float:
        """Population standard deviation (ddof 0) of the accuracy over the seeds."""
        return float(np.std(self.accuracy))

    @property
    def macro_f1_mean(self) -> float:
        """Mean macro-F1 over the seeds."""
        return float(np.mean(self.macro_f1))

    @property
    def macro_f1_std(self) -> float:
        """Population standard deviation (ddof 0) of the macro-F1 over the seeds."""
        return float(np.std(self.macro_f1))


def repeated_holdout(
    frame: pd.DataFrame,
    target: str,
    *,
    model: str = "rf",
    filtered: bool = True,
    test_size: float = 0.33,
    seeds: Sequence[int] = SEEDS,
    threshold_source: str = "test",
    params: Mapping[str, Any] | None = None,
) -> HoldoutResult:
    r"""Accuracy and macro-F1 of one target over several random splits.

    Parameters
    ----------
    frame : pandas.DataFrame
        The labelled table, one synthesis a row.
    target : str
        One of the twenty names of `make_targets`.
    model : {"rf", "xgb", "majority"}
        ``"majority"`` answers the training part's more frequent class (0 on a tie) on every
        test row and searches no threshold.
    filtered : bool, default True
        22 feature columns instead of 29.
    test_size : float, default 0.33
        Share of rows held out; the split is random, not stratified.
    seeds : sequence of int, default (0, 10, 20, 30, 40)
        Each seeds one split and the model fitted on it.
    threshold_source : {"test", "train_cv"}
        Where the break-even threshold is searched: on the test rows themselves, or on
        out-of-fold scores of a stratified shuffled 5-fold split of the training part.
    params : mapping, optional
        Passed to the model's constructor (not ``random_state``, which is the seed).

    Returns
    -------
    HoldoutResult

    Raises
    ------
    KeyError
        A column is missing.
    ValueError
        Unknown target, model or threshold source; no seed; `params` that cannot be used; or a
        training part of one class.
    ImportError
        ``model="xgb"`` without XGBoost.

    Notes
    -----
    A test part without a positive row has no break-even point. The public code then calls every
    row positive (accuracy 0 in that seed), and so does ``threshold_source="test"``; this is where
    the very large standard deviations of rare size targets come from. Deterministic: no global
    random state is read or changed.
    """
    _choose("target", target, list(make_targets(frame).columns))
    _choose("model", model, MODELS)
    _choose("threshold_source", threshold_source, SOURCES)
    params = dict(params or {})
    if "random_state" in params:
        raise ValueError("params must not set random_state: the protocol's seeds do (argument seeds)")
    if model == "majority" and params:
        raise ValueError(f"model 'majority' has no parameters; got {sorted(params)}")
    features = feature_matrix(frame, filtered=filtered).to_numpy()
    labels = make_targets(frame)[target].to_numpy()

    def fit_scores(train_x, train_y, test_x, seed):
        return _probability(_model(model, seed, params).fit(train_x, train_y), test_x)

    return holdout(
        features,
        labels,
        None if model == "majority" else fit_scores,
        name=target,
        test_size=test_size,
        seeds=seeds,
        threshold_source=threshold_source,
    )


def holdout(
    features: np.ndarray,
    labels: np.ndarray,
    fit_scores,
    *,
    name: str = "target",
    test_size: float = 0.33,
    seeds: Sequence[int] = SEEDS,
    threshold_source: str = "test",
) -> HoldoutResult:
    """The protocol on plain arrays, for any scorer.

    Parameters
    ----------
    features : ndarray, shape (n, d)
    labels : ndarray of 0 and 1, shape (n,)
    fit_scores : callable or None
        ``(train_x, train_y, test_x, seed) -> scores``; None stands for the majority rule.
    name : str
        What an error message calls the target.
    test_size, seeds, threshold_source
        As for `repeated_holdout`.

    Returns
    -------
    HoldoutResult
    """
    if len(seeds) == 0:
        raise ValueError("seeds is empty; expected at least one integer")
    rows = [
        _one_split(features, labels, fit_scores, name, test_size, int(seed), threshold_source)
        for seed in seeds
    ]
    accuracy, macro_f1, threshold = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    return HoldoutResult(accuracy, macro_f1, threshold)


def tuned_holdout(
    frame: pd.DataFrame,
    target: str,
    *,
    filtered: bool = True,
    test_size: float = 0.33,
    seeds: Sequence[int] = SEEDS,
    grid: Mapping[str, list[Any]] = GRID,
) -> HoldoutResult:
    """`repeated_holdout` of a forest whose parameters are searched on each training part.

    Parameters
    ----------
    frame, target, filtered, test_size, seeds
        As for `repeated_holdout`; the threshold is searched on the test rows.
    grid : mapping of parameter to values
        Searched exhaustively by the F1 of class 1 over five unshuffled stratified folds.

    Returns
    -------
    HoldoutResult
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV

    _choose("target", target, list(make_targets(frame).columns))

    def fit_scores(train_x, train_y, test_x, seed):
        search = GridSearchCV(RandomForestClassifier(random_state=seed), dict(grid), scoring="f1", cv=FOLDS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # folds without a positive row: F1 counts as 0 there
            search.fit(train_x, train_y)
        return _probability(search.best_estimator_, test_x)

    features = feature_matrix(frame, filtered=filtered).to_numpy()
    labels = make_targets(frame)[target].to_numpy()
    return holdout(features, labels, fit_scores, name=target, test_size=test_size, seeds=seeds)


def _one_split(features, labels, fit_scores, name, test_size, seed, source) -> tuple[float, float, float]:
    from sklearn.model_selection import train_test_split

    train_x, test_x, train_y, test_y = train_test_split(
        features, labels, test_size=test_size, random_state=seed, shuffle=True
    )
    if fit_scores is None:
        answer = np.full(len(test_y), np.bincount(train_y, minlength=2).argmax() == 1)
        return *decision_scores(test_y.astype(bool), answer), float("nan")
    if train_y.min() == train_y.max():
        raise ValueError(
            f"{name}: the training part of seed {seed} holds one class only, a fit needs both classes; "
            "use other seeds or a smaller test_size"
        )
    scores = np.asarray(fit_scores(train_x, train_y, test_x, seed), dtype=np.float64)
    if source == "test":
        threshold = lowest_score_or_break_even(test_y, scores)
    else:
        threshold = break_even_threshold(train_y, _out_of_fold(train_x, train_y, fit_scores, seed))
    return *evaluate_at_threshold(test_y, scores, threshold), threshold


def _out_of_fold(features, labels, fit_scores, seed: int) -> np.ndarray:
    from sklearn.model_selection import StratifiedKFold

    scores = np.empty(len(labels))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer positives than folds: some folds hold none
        for inside, outside in folds.split(features, labels):
            scores[outside] = fit_scores(features[inside], labels[inside], features[outside], seed)
    return scores


def _model(name: str, seed: int, params: Mapping[str, Any]):
    if name == "rf":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(**params, random_state=seed)
    try:
        from xgboost import XGBClassifier
    except ImportError as error:
        raise ImportError("model='xgb' needs XGBoost: pip install xgboost-cpu") from error
    return XGBClassifier(**{"n_jobs": 1, **params}, random_state=seed)


def _probability(model, features: np.ndarray) -> np.ndarray:
    """Probability of class 1, also when the training rows held one class only."""
    classes = list(model.classes_)
    if 1 not in classes:
        return np.zeros(len(features))
    return model.predict_proba(features)[:, classes.index(1)].astype(np.float64)


def _choose(what: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {what} {value!r}; expected one of {list(choices)}")
