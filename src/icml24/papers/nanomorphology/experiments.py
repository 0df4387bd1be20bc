r"""What the chapter computes: configurations, and functions from a configuration to results.

``QUICK`` and ``FULL`` are two instances of one configuration. Every function takes the table it
works on, so the same code runs on the generated table and, where it is present, on the
laboratory's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from icml24.common.random import numpy_generator
from icml24.papers.nanomorphology.clients import ChatClient, build_messages
from icml24.papers.nanomorphology.data import Recording
from icml24.papers.nanomorphology.holdout import SEEDS, holdout, repeated_holdout, tuned_holdout
from icml24.papers.nanomorphology.published import FOREST_ALL, FOREST_FILTERED
from icml24.papers.nanomorphology.replies import format_shapes, score_replies
from icml24.papers.nanomorphology.shapley import TreeExplanation, explain_forest
from icml24.papers.nanomorphology.shots import (
    copy_accuracy,
    copy_probability,
    first_class,
    select_examples,
    simulate_copy_rule,
)
from icml24.papers.nanomorphology.targets import SHAPES, TARGETS, feature_matrix, make_targets
from icml24.papers.nanomorphology.training import TextEmbedding

__all__ = [
    "FULL",
    "PROFILES",
    "QUICK",
    "Config",
    "against_authors",
    "explain_sticks",
    "few_shot",
    "forest_panel",
    "leak_curve",
    "rescore",
    "shuffle_labels",
    "size_panel",
    "text_forest",
    "tuned_panel",
]


@dataclass(frozen=True)
class Config:
    """Sizes of one run.

    Attributes
    ----------
    trees : int
        Trees a forest on the generated table (100, scikit-learn's default, on the laboratory's).
    seeds, size_seeds : tuple of int
        Splits of the shape targets and of the fifteen size targets.
    shots : tuple of int
        Numbers of examples on the leak curve.
    splits, query_splits : int
        Splits of the copy-rule simulation and of the few-shot runs with a client.
    epochs, width, link_epochs, batch, lr : int and float
        Of the autoencoder (Adam's rate and batch too) and the linking network.
    kl_weight : float
        0.00125 gives 32x32 crops with 32 latents the authors' effective weight 0.04.
    """

    trees: int = 40
    seeds: tuple[int, ...] = SEEDS
    size_seeds: tuple[int, ...] = SEEDS[:3]
    shots: tuple[int, ...] = (2, 4, 6, 8, 10)
    splits: int = 20
    query_splits: int = 5
    epochs: int = 20
    width: int = 16
    link_epochs: int = 20
    batch: int = 16
    lr: float = 3e-3
    kl_weight: float = 0.00125


QUICK = Config()
FULL = Config(
    trees=100,
    size_seeds=SEEDS,
    splits=100,
    query_splits=20,
    epochs=60,
    width=32,
    link_epochs=60,
    batch=32,
    lr=1e-3,
)
PROFILES: Mapping[str, Config] = {"quick": QUICK, "full": FULL}


def forest_panel(
    frame: pd.DataFrame,
    *,
    targets: Sequence[str] = SHAPES,
    trees: int = 100,
    seeds: Sequence[int] = SEEDS,
    filtered: bool = True,
    model: str = "rf",
    rules: Sequence[str] = ("test", "train_cv", "majority"),
) -> pd.DataFrame:
    """Rules a target: threshold from the test rows, from the training rows, and the majority.

    Returns
    -------
    pandas.DataFrame
        Columns ``target, rule, accuracy, accuracy_std, macro_f1, macro_f1_std``; one row a target
        and rule.
    """
    rows = []
    params = {"n_estimators": trees}
    for target in targets:
        for rule in rules:
            trivial = rule == "majority"
            result = repeated_holdout(
                frame,
                target,
                model="majority" if trivial else model,
                filtered=filtered,
                seeds=seeds,
                threshold_source="test" if trivial else rule,
                params=None if trivial else params,
            )
            rows.append(_row(result, target=target, rule=rule))
    return pd.DataFrame(rows)


def size_panel(
    frame: pd.DataFrame, *, trees: int = 100, seeds: Sequence[int] = SEEDS, filtered: bool = True
) -> pd.DataFrame:
    """Forests on the fifteen size targets, threshold from the test rows as in the public code.

    Returns
    -------
    pandas.DataFrame
        As `forest_panel` without ``rule``; `positives` is the number of positive rows in all.
    """
    counts = make_targets(frame).sum()
    rows = []
    for target in TARGETS[len(SHAPES) :]:
        result = repeated_holdout(
            frame, target, filtered=filtered, seeds=seeds, params={"n_estimators": trees}
        )
        rows.append(_row(result, target=target, positives=int(counts[target])))
    return pd.DataFrame(rows)


def against_authors(frame: pd.DataFrame, *, filtered: bool) -> pd.DataFrame:
    """Default forests in the public protocol beside the authors' printed figures.

    Returns
    -------
    pandas.DataFrame
        One row a shape and score: ``shape, score, authors, authors_std, here, here_std, gap, std_gap``;
        the last two are distances of the figures rounded to two decimals, as printed.
    """
    printed = FOREST_FILTERED if filtered else FOREST_ALL
    rows = []
    for shape in SHAPES:
        result = repeated_holdout(frame, shape, filtered=filtered)
        for k, score in enumerate(("accuracy", "macro_f1")):
            mean, std = printed[shape][k]
            here, here_std = getattr(result, f"{score}_mean"), getattr(result, f"{score}_std")
            rows.append(
                {
                    "shape": shape,
                    "score": score,
                    "authors": mean,
                    "authors_std": std,
                    "here": here,
                    "here_std": here_std,
                    "gap": round(abs(round(here, 2) - mean), 2),
                    "std_gap": round(abs(round(here_std, 2) - std), 2),
                }
            )
    return pd.DataFrame(rows)


def tuned_panel(frame: pd.DataFrame, *, seeds: Sequence[int] = SEEDS) -> pd.DataFrame:
    """Forests tuned on each training part over the reduced grid; columns as `forest_panel`."""
    return pd.DataFrame([_row(tuned_holdout(frame, s, seeds=seeds), target=s, rule="tuned") for s in SHAPES])


def text_forest(
    frame: pd.DataFrame, texts: Sequence[str], *, trees: int = 100, seeds: Sequence[int] = SEEDS
) -> pd.DataFrame:
    """Forests on embeddings of the procedure text, fitted on each training part; columns as `forest_panel`."""
    from sklearn.ensemble import RandomForestClassifier

    def fit_scores(train, labels, test, seed):
        embedding = TextEmbedding().fit([texts[i] for i in train[:, 0]])
        forest = RandomForestClassifier(n_estimators=trees, random_state=seed)
        forest.fit(embedding.transform([texts[i] for i in train[:, 0]]), labels)
        return forest.predict_proba(embedding.transform([texts[i] for i in test[:, 0]]))[:, 1]

    rows = np.arange(len(frame))[:, None]
    return pd.DataFrame(
        [_row(holdout(rows, frame[s].to_numpy(), fit_scores, name=s, seeds=seeds), target=s) for s in SHAPES]
    )


def explain_sticks(
    frame: pd.DataFrame, *, trees: int = 100, seed: int = 0, filtered: bool = True
) -> TreeExplanation:
    """SHAP values of the forest for Stick on the test rows of one split."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    features = feature_matrix(frame, filtered=filtered)
    train, test = train_test_split(np.arange(len(frame)), test_size=0.33, random_state=seed)
    forest = RandomForestClassifier(n_estimators=trees, random_state=seed)
    forest.fit(features.to_numpy()[train], frame["Stick"].to_numpy()[train])
    return explain_forest(forest, features.iloc[test])


def leak_curve(labels: np.ndarray, config: Config, *, seed: int = 0) -> pd.DataFrame:
    """Average accuracy and F1 of the copy rule by number of examples, with and without the leak.

    Returns
    -------
    pandas.DataFrame
        ``shots, leak, accuracy, std, f1, exact``: mean over splits and shapes, standard deviation
        over splits, and the closed form with all rows as the pool (leak only); then the accuracy
        of each shape.
    """
    rows = []
    for shots in config.shots:
        for leak in (True, False):
            streams = [
                numpy_generator(seed, "nanomorphology", "leak", shots, i, int(leak))
                for i in range(config.splits)
            ]
            run = simulate_copy_rule(labels, shots=shots, splits=config.splits, leak=leak, generators=streams)
            average = run["accuracy"].mean(axis=1)
            exact = copy_accuracy(labels, copy_probability(labels, shots)).mean() if leak else float("nan")
            rows.append(
                {
                    "shots": shots,
                    "leak": leak,
                    "accuracy": average.mean(),
                    "std": average.std(),
                    "f1": run["f1"].mean(),
                    "exact": exact,
                    **dict(zip(SHAPES, run["accuracy"].mean(axis=0), strict=True)),
                }
            )
    return pd.DataFrame(rows)


def few_shot(
    labels: np.ndarray,
    texts: Sequence[str],
    client: ChatClient,
    *,
    leak: bool,
    shots: int = 10,
    splits: int = 5,
    test_fraction: float = 0.2,
    limit: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The few-shot protocol from prompt to score, with any client.

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)
    texts : sequence of str
        Procedure of each row.
    client : ChatClient
    leak : bool
        True: every example contains the test item's first class. False: random examples.
    shots, splits, test_fraction, seed
        As named.
    limit : int, optional
        Ask about the first `limit` test rows only (a server that costs money).

    Returns
    -------
    ndarray, shape (splits, 5)
        Accuracy per shape.
    """
    size = int(np.ceil(test_fraction * len(labels)))
    out = []
    for split in range(splits):
        draw = numpy_generator(seed, "nanomorphology", "few-shot", split)
        order = draw.permutation(len(labels))
        test, train = order[:size][:limit], order[size:]
        replies = []
        for i, first in zip(test, first_class(labels[test]), strict=True):
            strategy = "strict" if leak and labels[train, first].any() else "random"
            picks = train[
                select_examples(
                    labels[train], shots, strategy=strategy, target_class=int(first), generator=draw
                )
            ]
            examples = [(texts[j], format_shapes(labels[j])) for j in picks]
            replies.append(client.complete(build_messages(examples, texts[i])))
        scores = score_replies(replies, labels[test])
        out.append([scores[shape]["Accuracy"] for shape in SHAPES])
    return np.array(out)


def shuffle_labels(labels: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """The same label rows in random order: whatever the conditions said about them is gone."""
    return labels[numpy_generator(seed, "nanomorphology", "shuffle").permutation(len(labels))]


def rescore(recordings: Mapping[str, Recording]) -> pd.DataFrame:
    """Recorded replies scored again: one row a setting, means over its runs.

    Returns
    -------
    pandas.DataFrame
        Index the setting; columns ``model, shots, test_fraction``, the five shapes' accuracies,
        ``accuracy`` and ``f1`` (averages over shapes and runs) and ``std``, the README's ``±``: the
        mean over the shapes of the sample deviation (ddof 1) of the accuracy over the runs.
    """
    rows = {}
    for name, entry in recordings.items():
        runs = [score_replies(list(r), t) for r, t in zip(entry.replies, entry.truth, strict=True)]
        accuracy = np.array([[run[shape]["Accuracy"] for shape in SHAPES] for run in runs])
        rows[name] = {
            "model": entry.model,
            "shots": entry.shots,
            "test_fraction": entry.test_fraction,
            **dict(zip(SHAPES, accuracy.mean(axis=0), strict=True)),
            "accuracy": accuracy.mean(),
            "std": accuracy.std(axis=0, ddof=1).mean(),
            "f1": np.mean([run["Macro-Average"]["F1"] for run in runs]),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _row(result, **labels) -> dict[str, object]:
    return {
        **labels,
        "accuracy": result.accuracy_mean,
        "accuracy_std": result.accuracy_std,
        "macro_f1": result.macro_f1_mean,
        "macro_f1_std": result.macro_f1_std,
    }
