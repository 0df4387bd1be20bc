r"""Reading a language model's replies and scoring them as the authors did.

A shape counts as predicted when its name occurs as a whole word anywhere in the reply
(eq-nanomorphology-parser); scores follow per class, averaged over classes and pooled over
cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from icml24.papers.nanomorphology.targets import SHAPES

__all__ = ["format_shapes", "parse_reply", "score_replies"]

_INDEX = {shape.lower(): k for k, shape in enumerate(SHAPES)}
_WORD = re.compile(rf"\b({'|'.join(_INDEX)})\b")


def parse_reply(text: str) -> np.ndarray:
    r"""Shapes named in a reply.

    .. math:: \hat y_k = 1 \iff \text{the name of shape } k \text{ occurs as a whole word}

    Parameters
    ----------
    text : str
        Any reply, complete or cut off.

    Returns
    -------
    ndarray, shape (5,), int8
        Order `SHAPES`.

    Notes
    -----
    Source: eq-nanomorphology-parser. Case does not matter; a hyphen is a word boundary
    ("Stick-like" counts, "Cubes" does not).

    Examples
    --------
    >>> parse_reply("cube, SPHERE, Flat, Am")
    array([1, 0, 1, 1, 0], dtype=int8)
    """
    out = np.zeros(len(SHAPES), dtype=np.int8)
    for name in _WORD.findall(text.lower()):
        out[_INDEX[name]] = 1
    return out


def format_shapes(labels: Sequence[int] | np.ndarray) -> str:
    """Comma-separated names of the shapes present, in the order `SHAPES`; the inverse of `parse_reply`."""
    if len(labels) != len(SHAPES):
        raise ValueError(f"expected one 0/1 entry a shape ({len(SHAPES)}); got {len(labels)}")
    return ", ".join(shape for shape, present in zip(SHAPES, labels, strict=True) if present)


def score_replies(replies: Sequence[str], truth: np.ndarray) -> dict[str, dict[str, float]]:
    r"""Accuracy, precision, recall and F1 of a list of replies.

    Parameters
    ----------
    replies : sequence of str, length n
        One reply a row.
    truth : ndarray of 0 and 1, shape (n, 5)
        Order `SHAPES`.

    Returns
    -------
    dict of dict
        Outer keys: the five shapes, ``"Macro-Average"`` and ``"Micro-Average"``; inner keys
        ``"Accuracy"``, ``"Precision"``, ``"Recall"``, ``"F1"``. Macro accuracy is the share of
        rows with all five shapes right (never above any class's accuracy, see
        eq-nanomorphology-subset); the other macro figures are means over the classes. Micro
        accuracy is the mean over all cells, the other micro figures pool the cells.

    Raises
    ------
    ValueError
        No reply, a different number of rows, a wrong shape, or entries other than 0 and 1.

    Notes
    -----
    Precision is 1 where nothing is predicted, recall 0 where nothing is there, F1 0 where there
    is no hit: the conventions that reproduce the authors' result files.
    """
    truth = np.asarray(truth)
    if truth.ndim != 2 or truth.shape[1] != len(SHAPES):
        raise ValueError(f"truth must have shape (n, {len(SHAPES)}); got {truth.shape}")
    if len(replies) != len(truth):
        raise ValueError(f"replies and truth must have the same length; got {len(replies)} and {len(truth)}")
    if len(replies) == 0:
        raise ValueError("no reply to score; expected at least one")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("truth must hold 0 and 1 only")
    predicted = np.array([parse_reply(reply) for reply in replies], dtype=bool)
    truth = truth.astype(bool)
    hits = (predicted & truth).sum(axis=0)
    claimed = predicted.sum(axis=0)
    present = truth.sum(axis=0)
    right = predicted == truth
    per_class = [
        _scores(float(right[:, k].mean()), int(hits[k]), int(claimed[k]), int(present[k]))
        for k in range(len(SHAPES))
    ]
    out = dict(zip(SHAPES, per_class, strict=True))
    out["Macro-Average"] = {
        "Accuracy": float(right.all(axis=1).mean()),
        **{key: float(np.mean([row[key] for row in per_class])) for key in ("Precision", "Recall", "F1")},
    }
    out["Micro-Average"] = _scores(
        float(right.mean()), int(hits.sum()), int(claimed.sum()), int(present.sum())
    )
    return out


def _scores(accuracy: float, hits: int, claimed: int, present: int) -> dict[str, float]:
    precision = hits / claimed if claimed else 1.0
    recall = hits / present if present else 0.0
    f1 = 2 * hits / (claimed + present) if hits else 0.0
    return {"Accuracy": accuracy, "Precision": precision, "Recall": recall, "F1": f1}
