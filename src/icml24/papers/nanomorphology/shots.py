r"""Few-shot examples, and how much of the answer their choice gives away.

In the public code the class that every shown example must contain is taken from the test item
itself. The copy rule here never reads the query: it returns what most examples contain. Its
accuracy under that choice has a closed form (eq-nanomorphology-leakfinite, and its limit
eq-nanomorphology-leak) and is the floor any reading of the query has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from icml24.papers.nanomorphology.targets import SHAPES

__all__ = [
    "conditional_labels",
    "copy_accuracy",
    "copy_limit",
    "copy_majority",
    "copy_probability",
    "first_class",
    "select_examples",
    "simulate_copy_rule",
]

STRATEGIES = ("random", "strict", "occurrence")


def select_examples(
    labels: np.ndarray,
    n: int,
    *,
    strategy: str,
    target_class: int | None = None,
    generator: np.random.Generator,
) -> np.ndarray:
    """Indices of the examples shown in one prompt.

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)
        Labels of the rows to choose from (the training part).
    n : int
        Number of examples, at least 1 and (but for ``"strict"``) at most the number of rows.
    strategy : {"random", "strict", "occurrence"}
        ``"random"``: any `n` rows. ``"strict"``: the first `n` rows of a shuffle that contain
        the target class, fewer when the class has fewer members. ``"occurrence"``: one row that
        contains it, first, and `n` - 1 others at random.
    target_class : int, optional
        Index into `SHAPES`; needed by ``"strict"`` and ``"occurrence"``.
    generator : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    ndarray of int
        Distinct row numbers.

    Raises
    ------
    ValueError
        Unknown strategy, `n` out of range, wrong shape, target class missing, out of range or
        in no row.
    """
    labels = _labels(labels)
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; expected one of {list(STRATEGIES)}")
    if n < 1 or (n > len(labels) and strategy != "strict"):
        raise ValueError(f"n must lie between 1 and the number of rows, {len(labels)}; got {n}")
    shuffled = generator.permutation(len(labels))
    if strategy == "random":
        return shuffled[:n]
    if target_class is None:
        raise ValueError(f"strategy {strategy!r} needs a target_class (an index into SHAPES)")
    if not 0 <= target_class < len(SHAPES):
        raise ValueError(f"target_class must lie between 0 and {len(SHAPES) - 1}; got {target_class}")
    holds = labels[shuffled, target_class]
    if not holds.any():
        raise ValueError(f"no example contains {SHAPES[target_class]} (target_class={target_class})")
    if strategy == "strict":
        return shuffled[holds][:n]
    first = shuffled[holds][0]
    return np.concatenate([[first], shuffled[shuffled != first][: n - 1]])


def copy_majority(example_labels: np.ndarray) -> np.ndarray:
    """The text-blind rule: answer every shape that at least half of the examples contain.

    Parameters
    ----------
    example_labels : ndarray of 0 and 1, shape (n, 5)
        Labels of the examples shown; ``n >= 1``.

    Returns
    -------
    ndarray, shape (5,), int8
    """
    labels = _labels(example_labels)
    if len(labels) == 0:
        raise ValueError("no example to copy from; expected at least one row")
    return (labels.mean(axis=0) >= 0.5).astype(np.int8)


def first_class(labels: np.ndarray) -> np.ndarray:
    """Index of each row's first true class in the order `SHAPES`; every row must have one."""
    labels = _labels(labels)
    if not labels.any(axis=1).all():
        raise ValueError("every row must contain at least one shape")
    return labels.argmax(axis=1)


def conditional_labels(labels: np.ndarray) -> np.ndarray:
    r"""Label matrix :math:`q_c(k) = \Pr(k \text{ present} \mid c \text{ present})`.

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)

    Returns
    -------
    ndarray, shape (5, 5)
        Row ``c``, column ``k``; NaN in the row of a class that never occurs.
    """
    counts = _counts(labels)
    total = np.diag(counts).astype(float)[:, None]
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def copy_probability(labels: np.ndarray, shots: int) -> np.ndarray:
    r"""Chance that the copy rule answers ``k`` after strict examples of class ``c``.

    .. math:: \rho_N(c, k) = \Pr\bigl(2 H \ge N_c\bigr), \qquad
        H \sim \mathrm{Hypergeometric}(n_c, n_{ck}, N_c), \quad N_c = \min(N, n_c)

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)
        The rows that examples are drawn from.
    shots : int
        Number of examples :math:`N \ge 1`.

    Returns
    -------
    ndarray, shape (5, 5)
        Zero in the row of a class that never occurs.

    Notes
    -----
    Source: eq-nanomorphology-leakfinite. Exact: strict sampling draws without replacement from
    the :math:`n_c` rows with class ``c``, of which :math:`n_{ck}` also hold ``k``.
    """
    from scipy.stats import hypergeom

    if shots < 1:
        raise ValueError(f"shots must be at least 1; got {shots}")
    counts = _counts(labels)
    out = np.zeros(counts.shape)
    for c, total in enumerate(np.diag(counts)):
        drawn = min(shots, int(total))
        if drawn:
            out[c] = hypergeom.sf(np.ceil(drawn / 2) - 1, total, counts[c], drawn)
    return out


def copy_limit(labels: np.ndarray) -> np.ndarray:
    """The limit of `copy_probability` for many shots: 1 where half of the rows with ``c`` hold ``k``, else 0."""
    return (np.nan_to_num(conditional_labels(labels)) >= 0.5).astype(float)


def copy_accuracy(labels: np.ndarray, probability: np.ndarray) -> np.ndarray:
    r"""Expected accuracy per shape of a rule that knows the first true class and nothing else.

    .. math:: A_k = \frac{1}{n} \sum_i \bigl[ y_{ik}\,\rho(c_i, k) + (1 - y_{ik})(1 - \rho(c_i, k)) \bigr],
        \qquad c_i = \min\{c : y_{ic} = 1\}

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)
        The rows to be answered.
    probability : ndarray, shape (5, 5)
        :math:`\rho(c, k)`, from `copy_probability` or `copy_limit`.

    Returns
    -------
    ndarray, shape (5,)
        eq-nanomorphology-leak.
    """
    labels = _labels(labels)
    chance = np.asarray(probability, dtype=float)[first_class(labels)]
    return np.where(labels, chance, 1 - chance).mean(axis=0)


def simulate_copy_rule(
    labels: np.ndarray,
    *,
    shots: int,
    test_fraction: float = 0.2,
    splits: int = 20,
    leak: bool,
    generators: Sequence[np.random.Generator] | np.random.Generator,
) -> dict[str, np.ndarray]:
    """Play the few-shot protocol with the copy rule in place of the language model.

    Parameters
    ----------
    labels : ndarray of 0 and 1, shape (rows, 5)
        All labels; each split holds out ``ceil(test_fraction * rows)`` rows.
    shots : int
        Examples a prompt.
    test_fraction : float, default 0.2
    splits : int, default 20
        Random splits.
    leak : bool
        True: strict examples of the test item's own first class. False: random examples.
    generators : numpy.random.Generator or sequence of them
        One for all splits, or one a split.

    Returns
    -------
    dict
        ``"accuracy"`` and ``"f1"``, each of shape (splits, 5).
    """
    labels = _labels(labels)
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must lie in (0, 1); got {test_fraction}")
    streams = [generators] * splits if isinstance(generators, np.random.Generator) else list(generators)
    if len(streams) != splits or splits < 1:
        raise ValueError(f"expected one generator a split ({splits}); got {len(streams)}")
    size = int(np.ceil(test_fraction * len(labels)))
    accuracy, f1 = [], []
    for stream in streams:
        order = stream.permutation(len(labels))
        test, train = labels[order[:size]], labels[order[size:]]
        answers = []
        for c in first_class(test):
            given = leak and train[:, c].any()  # a class without a training row cannot be shown
            strategy = "strict" if given else "random"
            picks = select_examples(train, shots, strategy=strategy, target_class=int(c), generator=stream)
            answers.append(copy_majority(train[picks]))
        said = np.array(answers, dtype=bool)
        accuracy.append((said == test).mean(axis=0))
        hits, either = (said & test).sum(axis=0), said.sum(axis=0) + test.sum(axis=0)
        f1.append(np.divide(2 * hits, either, out=np.zeros(len(SHAPES)), where=hits > 0))
    return {"accuracy": np.array(accuracy), "f1": np.array(f1)}


def _counts(labels: np.ndarray) -> np.ndarray:
    whole = _labels(labels).astype(np.int64)
    return whole.T @ whole


def _labels(labels: ArrayLike) -> np.ndarray:
    out = np.asarray(labels)
    if out.ndim != 2 or out.shape[1] != len(SHAPES):
        raise ValueError(f"labels must have shape (rows, {len(SHAPES)}); got {out.shape}")
    if not np.isin(out, (0, 1)).all():
        raise ValueError("labels must hold 0 and 1 only")
    return out.astype(bool)
