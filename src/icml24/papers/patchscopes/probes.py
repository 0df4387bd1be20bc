r"""Linear probes: the trained baseline of attribute extraction.

Multinomial logistic regression on standardised states with an L2 penalty on the weights (C = 1
in the usual parametrisation), minimised by L-BFGS in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["fit_probe", "folds_by_subject", "folds_within_subject", "probe_hits"]


def fit_probe(X: Tensor, y: Tensor, classes: int, *, c: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""Weights (d, K) and bias (K,) of

    .. math:: \min_{W, b}\; C \sum_j -\log \mathrm{softmax}(x_j W + b)_{y_j} + \tfrac12 \lVert W \rVert_F^2 .

    Parameters
    ----------
    X : Tensor, shape (N, d), float64
    y : LongTensor, shape (N,), values 0..K-1
    classes : int
        K.
    c : float, default 1.0
        C, positive.
    """
    parameters = torch.zeros(X.shape[1] + 1, classes, dtype=X.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [parameters], max_iter=60, history_size=10, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        weight, bias = parameters[:-1], parameters[-1]
        value = c * F.cross_entropy(X @ weight + bias, y, reduction="sum") + 0.5 * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return parameters.detach()[:-1], parameters.detach()[-1]


def probe_hits(X: Tensor, objects: Sequence[str], folds: Sequence[int]) -> Tensor:
    """Whether a probe fitted on all other folds names the object of each row, BoolTensor (N,).

    Features are standardised with the training rows' mean and deviation. An object that no training
    row has cannot be named: such rows count as misses.
    """
    x, fold = X.double(), torch.tensor(folds)
    hits = torch.zeros(len(x), dtype=torch.bool)
    for held_out in fold.unique().tolist():
        test = fold == held_out
        names = sorted({name for name, out in zip(objects, test.tolist(), strict=True) if not out})
        label = torch.tensor([names.index(name) if name in names else -1 for name in objects])
        mean, deviation = x[~test].mean(0), x[~test].std(0).clamp_min(1e-6)
        z = (x - mean) / deviation
        weight, bias = fit_probe(z[~test], label[~test], len(names))
        hits[test] = (z[test] @ weight + bias).argmax(-1) == label[test]
    return hits


def folds_by_subject(subjects: Sequence[str], count: int) -> list[int]:
    """All rows of a subject in one fold: the subjects of a test fold were never seen."""
    order = {subject: k for k, subject in enumerate(dict.fromkeys(subjects))}
    return [order[subject] % count for subject in subjects]


def folds_within_subject(subjects: Sequence[str], count: int) -> list[int]:
    """The rows of each subject spread over the folds: the probe has seen the subject in other contexts."""
    seen: dict[str, int] = {}
    out = []
    for subject in subjects:
        out.append(seen.get(subject, 0) % count)
        seen[subject] = seen.get(subject, 0) + 1
    return out
