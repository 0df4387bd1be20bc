r"""Thresholds and the scores they give: the break-even rule and what trivial rules reach.

The protocol turns probabilities into decisions at the threshold where precision and recall
agree. eq-nanomorphology-breakeven says which threshold that is, eq-nanomorphology-random what
it gives to scores that know nothing, and eq-nanomorphology-majority what a rule reaches that
never looks: the floors under every table of the chapter.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "break_even_threshold",
    "evaluate_at_threshold",
    "majority_scores",
    "no_positive_probability",
    "random_accuracy",
    "recall_interval",
]


def break_even_threshold(y_true: ArrayLike, scores: ArrayLike) -> float:
    r"""Threshold at which precision and recall are closest.

    .. math:: t^\star = \arg\min_{t \in \{s_i\}}
        \left| \frac{TP(t)}{k(t)} - \frac{TP(t)}{P} \right|,
        \qquad k(t) = \#\{i : s_i \ge t\}

    Parameters
    ----------
    y_true : array_like, shape (n,)
        Labels 0 and 1; both must occur.
    scores : array_like, shape (n,)
        Finite; larger means more likely 1.

    Returns
    -------
    float
        One of the scores; the smallest of several minimisers. With distinct scores and a
        positive among the top ``P + 1`` of them it is the ``P``-th largest score, with ``P``
        the number of positives.

    Raises
    ------
    ValueError
        Different lengths, non-finite scores, labels other than 0 and 1, or one class only.

    Notes
    -----
    Source: eq-nanomorphology-breakeven; the same value as the arg-min over
    ``sklearn.metrics.precision_recall_curve``, whose extra last point (precision 1, recall 0)
    differs by 1 and can never win: at the lowest score recall is 1 and precision above 0.
    Deterministic, O(n log n).

    Examples
    --------
    >>> break_even_threshold([0, 1, 0, 1], [0.1, 0.8, 0.6, 0.7])   # two positives: second largest
    0.7
    """
    labels, values = _binary(y_true, scores)
    positives = int(labels.sum())
    if positives in (0, len(labels)):
        raise ValueError("break-even needs both classes: the labels are all " + ("1" if positives else "0"))
    return _lowest_minimiser(labels, values)


def evaluate_at_threshold(y_true: ArrayLike, scores: ArrayLike, threshold: float) -> tuple[float, float]:
    r"""Accuracy and macro-F1 of the decision ``scores >= threshold``.

    Parameters
    ----------
    y_true : array_like, shape (n,)
        Labels 0 and 1; one class only is allowed.
    scores : array_like, shape (n,)
        Finite.
    threshold : float
        Any number but NaN; infinity calls no row positive.

    Returns
    -------
    (float, float)
        Share of correct rows, and the mean of the F1 of class 0 and of class 1, where
        :math:`F_1 = 2TP/(2TP + FP + FN)` and 0 when a class neither occurs nor is predicted.

    Raises
    ------
    ValueError
        Different lengths, no row, non-finite scores, a threshold of NaN, labels other than 0 and 1.
    """
    labels, values = _binary(y_true, scores)
    if math.isnan(threshold):
        raise ValueError("the threshold must be a number; got NaN")
    return decision_scores(labels, values >= threshold)


def decision_scores(labels: np.ndarray, decision: np.ndarray) -> tuple[float, float]:
    """Accuracy and macro-F1 of 0/1 decisions, shape (n,) each."""
    tp = int(np.count_nonzero(labels & decision))
    tn = int(np.count_nonzero(~labels & ~decision))
    wrong = len(labels) - tp - tn
    f1 = [2 * hits / (2 * hits + wrong) if hits else 0.0 for hits in (tn, tp)]
    return (tp + tn) / len(labels), (f1[0] + f1[1]) / 2


def random_accuracy(positive_rate: float, rows: int | None = None) -> float:
    r"""Expected accuracy at break-even of scores that are independent of the labels.

    .. math:: \mathbb{E}[\text{accuracy}] = 1 - 2\pi(1 - \pi)

    Parameters
    ----------
    positive_rate : float
        Share :math:`\pi` of positives, strictly between 0 and 1.
    rows : int, optional
        With a number of rows, the degenerate orders in which the rule does not return the
        ``P``-th largest score (no positive among the top ``P + 1``) are accounted for exactly;
        they matter only when positives are few.

    Returns
    -------
    float
        eq-nanomorphology-random.
    """
    if not 0 < positive_rate < 1:
        raise ValueError(f"the positive rate must lie strictly between 0 and 1; got {positive_rate}")
    plain = 1 - 2 * positive_rate * (1 - positive_rate)
    if rows is None:
        return plain
    positives = round(positive_rate * rows)
    if not 0 < positives < rows:
        raise ValueError(f"{rows} rows at rate {positive_rate} hold no two classes")
    # First positive at rank r (1-based). r <= P + 1: break-even at k = P, otherwise k = r - 1, TP = 0.
    correct = 0.0
    for rank in range(1, rows - positives + 2):
        chance = math.comb(rows - rank, positives - 1) / math.comb(rows, positives)
        if rank > positives + 1:
            correct += chance * (rows - (rank - 1) - positives)
        elif rank == positives + 1:
            correct += chance * (rows - 2 * positives)
        else:
            # Given the first positive at `rank`, the other P - 1 fall uniformly behind it.
            hits = 1 + (positives - 1) * (positives - rank) / (rows - rank)
            correct += chance * (rows - 2 * (positives - hits))
    return correct / rows


def majority_scores(positive_rate: float) -> tuple[float, float]:
    r"""Accuracy and macro-F1 of always answering the more frequent class.

    .. math:: \text{accuracy} = \pi', \qquad \text{macro-}F_1 = \frac{\pi'}{1 + \pi'},
        \qquad \pi' = \max(\pi, 1 - \pi)

    Parameters
    ----------
    positive_rate : float
        Share of positives in [0, 1].

    Returns
    -------
    (float, float)
        eq-nanomorphology-majority.
    """
    if not 0 <= positive_rate <= 1:
        raise ValueError(f"the positive rate must lie in [0, 1]; got {positive_rate}")
    share = max(positive_rate, 1 - positive_rate)
    return share, share / (1 + share)


def no_positive_probability(rows: int, positives: int, test_rows: int) -> float:
    r"""Chance that a random test part holds no positive row.

    .. math:: \Pr(P_{\text{test}} = 0) = \binom{n - P}{m} \Big/ \binom{n}{m}

    Parameters
    ----------
    rows, positives, test_rows : int
        :math:`n`, :math:`P` and :math:`m`, with ``0 <= positives, test_rows <= rows``.

    Returns
    -------
    float
        eq-nanomorphology-nopositive.
    """
    if not (0 <= positives <= rows and 0 <= test_rows <= rows):
        raise ValueError(f"expected 0 <= positives, test_rows <= rows; got {positives}, {test_rows}, {rows}")
    return math.comb(rows - positives, test_rows) / math.comb(rows, test_rows)


def recall_interval(hits: int, positives: int, level: float = 0.95) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval of a recall measured on a few positives.

    Parameters
    ----------
    hits, positives : int
        ``0 <= hits <= positives`` and ``positives >= 1``.
    level : float, default 0.95
        Coverage, in (0, 1).

    Returns
    -------
    (float, float)
    """
    from scipy.stats import beta

    if not 0 <= hits <= positives or positives < 1:
        raise ValueError(f"expected 0 <= hits <= positives and a positive; got {hits} of {positives}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1); got {level}")
    tail = (1 - level) / 2
    low = beta.ppf(tail, hits, positives - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, positives - hits) if hits < positives else 1.0
    return float(low), float(high)


def lowest_score_or_break_even(labels: np.ndarray, scores: np.ndarray) -> float:
    """Break-even threshold that also accepts a test part of one class, as the public code does.

    Without a positive row precision is 0 and recall is set to 1 at every threshold; the first
    minimiser is then the lowest score and every row is called positive. Without a negative row
    precision is 1 everywhere, and recall is 1 at the lowest score: the same answer.
    """
    if labels.min() == labels.max():
        return float(scores.min())
    return _lowest_minimiser(labels.astype(bool), scores)


def _lowest_minimiser(labels: np.ndarray, scores: np.ndarray) -> float:
    order = np.argsort(scores, kind="stable")[::-1]
    ranked = scores[order]
    last = np.flatnonzero(np.diff(ranked) != 0)  # last position of each run of equal scores
    last = np.append(last, len(ranked) - 1)
    hits = np.cumsum(labels[order])[last]
    gap = np.abs(hits / (last + 1) - hits / hits[-1])
    best = len(gap) - 1 - int(np.argmin(gap[::-1]))  # smallest threshold among the minimisers
    return float(ranked[last[best]])


def _binary(y_true: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    labels, values = np.asarray(y_true), np.asarray(scores, dtype=np.float64)
    if labels.ndim != 1 or values.ndim != 1 or len(labels) != len(values):
        raise ValueError(
            f"labels and scores must have the same length and one axis; got shapes {labels.shape}, {values.shape}"
        )
    if len(labels) == 0:
        raise ValueError("no rows: expected at least one label and score, of the same length")
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite numbers")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be 0 and 1")
    return labels.astype(bool), values
