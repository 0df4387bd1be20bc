"""Thresholds, protocol and reply scores against the same work done with scikit-learn's pieces."""

from __future__ import annotations

import warnings

import harness
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score, precision_recall_curve, precision_score, recall_score
from sklearn.model_selection import train_test_split

from icml24.papers import nanomorphology as nm
from icml24.papers.nanomorphology.generated import generated_dataset
from icml24.papers.nanomorphology.replies import format_shapes

SEEDS = (0, 10, 20, 30, 40)
TREES = 20


def peer_threshold(y: np.ndarray, p: np.ndarray) -> tuple[float, float, float]:
    """Break-even threshold and scores, as one writes them with sklearn.metrics."""
    precision, recall, thresholds = precision_recall_curve(y, p)
    threshold = thresholds[np.argmin(np.abs(precision - recall))]
    said = p >= threshold
    return threshold, accuracy_score(y, said), f1_score(y, said, average="macro")


def our_threshold(y: np.ndarray, p: np.ndarray) -> tuple[float, float, float]:
    """The same with the package."""
    threshold = nm.break_even_threshold(y, p)
    return threshold, *nm.evaluate_at_threshold(y, p, threshold)


def peer_holdout(x: np.ndarray, y: np.ndarray) -> list[tuple[float, ...]]:
    """The protocol with forests, written with scikit-learn alone."""
    out = []
    for seed in SEEDS:
        train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.33, random_state=seed)
        forest = RandomForestClassifier(n_estimators=TREES, random_state=seed).fit(train_x, train_y)
        out.append(peer_threshold(test_y, forest.predict_proba(test_x)[:, 1]))
    return out


def peer_scores(replies: list[str], truth: np.ndarray) -> dict[str, tuple[float, ...]]:
    """Reply scores by a loop over classes with sklearn.metrics; replies parsed by str.split."""
    said = np.array(
        [[shape in {part.strip() for part in r.split(",")} for shape in nm.SHAPES] for r in replies]
    )
    out = {}
    for k, shape in enumerate(nm.SHAPES):
        pair = (truth[:, k], said[:, k])
        out[shape] = (
            accuracy_score(*pair),
            precision_score(*pair, zero_division=1),
            recall_score(*pair, zero_division=0),
            f1_score(*pair, zero_division=0),
        )
    flat = (truth.ravel(), said.ravel())
    out["Macro-Average"] = (accuracy_score(truth, said), *np.mean(list(out.values()), axis=0)[1:])
    out["Micro-Average"] = (
        accuracy_score(*flat),
        precision_score(*flat),
        recall_score(*flat),
        f1_score(*flat),
    )
    return out


def main() -> None:
    """Check that both sides agree, time them, store the table."""
    warnings.simplefilter("ignore")
    frame = generated_dataset(0)
    x, y = nm.feature_matrix(frame).to_numpy(), frame["Stick"].to_numpy()
    draw = np.random.default_rng(0)
    labels, scores = draw.integers(0, 2, 69), draw.random(69)
    assert np.allclose(our_threshold(labels, scores), peer_threshold(labels, scores), atol=1e-12)
    big_labels, big_scores = draw.integers(0, 2, 100_000), draw.random(100_000)

    ours = nm.repeated_holdout(frame, "Stick", seeds=SEEDS, params={"n_estimators": TREES})
    theirs = np.array(peer_holdout(x, y))
    assert np.allclose(np.stack([ours.threshold, ours.accuracy, ours.macro_f1], axis=1), theirs, atol=1e-12)

    truth = frame[list(nm.SHAPES)].to_numpy()[:42]
    replies = [format_shapes(row) for row in draw.permutation(truth)]
    left, right = nm.score_replies(replies, truth), peer_scores(replies, truth)
    assert all(np.allclose(list(left[key].values()), right[key], atol=1e-12) for key in right)

    rows = [
        harness.compare(
            "break-even threshold and two scores, 69 rows",
            lambda: our_threshold(labels, scores),
            lambda: peer_threshold(labels, scores),
            number=50,
            peer_number=10,
            unit="us",
        ),
        harness.compare(
            "break-even threshold and two scores, 100,000 rows",
            lambda: our_threshold(big_labels, big_scores),
            lambda: peer_threshold(big_labels, big_scores),
            unit="ms",
        ),
        harness.compare(
            f"repeated hold-out, 5 splits, forests of {TREES} trees, 209 rows (the same forests on both sides)",
            lambda: nm.repeated_holdout(frame, "Stick", seeds=SEEDS, params={"n_estimators": TREES}),
            lambda: peer_holdout(x, y),
            repeats=7,
            unit="ms",
        ),
        harness.compare(
            "scores of 42 replies, all classes, macro and micro",
            lambda: nm.score_replies(replies, truth),
            lambda: peer_scores(replies, truth),
            number=20,
            peer_number=3,
            unit="ms",
        ),
    ]
    harness.write(
        "nanomorphology",
        "Threshold, hold-out and reply scores",
        "scikit-learn's metrics, put together by hand",
        rows,
        ["scikit-learn", "numpy", "pandas"],
    )


if __name__ == "__main__":
    main()
