r"""What is measured: retrieval, faithfulness, segmentation.

Equations eq-sparc-recall, eq-sparc-iou. Metrics, not losses: nothing here is differentiable, and
inputs may be tensors, arrays or nested lists.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from ._checks import check_floating, shape

__all__ = ["k_precision", "mean_iou", "retrieval_recall", "segment", "upsample"]


def retrieval_recall(similarity: ArrayLike | Tensor, ks: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    r"""Share of images (texts) whose own text (image) is among the best `k`.

    Parameters
    ----------
    similarity : array_like or Tensor, shape (N, N)
        Row i, column j: image i with text j; the diagonal holds the true pairs.
    ks : sequence of int
        At least 1 each.

    Returns
    -------
    dict of str to float
        "i2t_r1", "t2i_r1", "i2t_r5" ...; a pair's rank is one plus the number of *strictly*
        larger scores, so that ties count in its favour.

    Raises
    ------
    ValueError
        Not square, empty, NaN inside, or a `k` below 1.
    """
    scores = _tensor(similarity)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not len(scores):
        raise ValueError(f"expected a square matrix of images by texts; got shape {shape(scores)}")
    if scores.isnan().any():
        raise ValueError("similarity holds NaN: such pairs would count as found")
    if any(int(k) != k or k < 1 for k in ks):
        raise ValueError(f"ks must be whole numbers of at least 1; got {tuple(ks)}")
    own = scores.diagonal()
    ranks = {"i2t": 1 + (scores > own[:, None]).sum(1), "t2i": 1 + (scores > own[None]).sum(0)}
    return {f"{way}_r{int(k)}": float((rank <= k).double().mean()) for k in ks for way, rank in ranks.items()}


def k_precision(
    predicted: Sequence[Sequence[Hashable]],
    references: Sequence[Collection[Hashable]],
    *,
    restrict_to: Collection[Hashable] | None = None,
) -> float:
    """Share of the predicted words that are true of the image, averaged over images.

    Parameters
    ----------
    predicted : sequence of sequences
        Words (or ids) of the caption given to each image; repeats count each time.
    references : sequence of collections
        Words true of each image.
    restrict_to : collection, optional
        Count only these words of `predicted` (nouns and adjectives).

    Returns
    -------
    float
        In [0, 1]. Images without a counted word are skipped; NaN when all are.

    Raises
    ------
    ValueError
        Different numbers of images.
    """
    if len(predicted) != len(references):
        raise ValueError(
            f"one reference an image: got {len(predicted)} predictions and {len(references)} references"
        )
    allowed = None if restrict_to is None else set(_plain(restrict_to))
    shares = []
    for words, true in zip(map(_plain, predicted), map(_plain, references), strict=True):
        counted = [word for word in words if allowed is None or word in allowed]
        if counted:
            known = set(true)
            shares.append(sum(word in known for word in counted) / len(counted))
    return sum(shares) / len(shares) if shares else math.nan


def _plain(words: Collection[Hashable]) -> Collection[Hashable]:
    """Ids as numbers: members of a tensor are equal only to themselves as members of a set."""
    return words.tolist() if isinstance(words, (Tensor, np.ndarray)) else words


def segment(patches: Tensor, class_text: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Label every pixel by the class whose text is nearest to its patch.

    Parameters
    ----------
    patches : Tensor, shape (B, P, d), floating
        Row-major over the grid.
    class_text : Tensor, shape (C, d), floating
        One pooled prompt a class.
    grid : (int, int)
        Rows and columns of patches; their product is P.
    size : (int, int)
        Height and width of the result in pixels.

    Returns
    -------
    Tensor of int64, shape (B, H, W)
        Index of the best class (the first of equals): argmax of the cosines, nearest upsampling.
        There is no background class.

    Raises
    ------
    TypeError
        Not floating tensors of one dtype.
    ValueError
        Shapes that do not fit; a grid that does not multiply to P; an empty size.
    """
    check_floating(patches=patches, class_text=class_text)
    if patches.ndim != 3 or class_text.ndim != 2 or patches.shape[2] != class_text.shape[1]:
        raise ValueError(
            "expected patches (batch, patches, width) and class_text (classes, width); "
            f"got {shape(patches)} and {shape(class_text)}"
        )
    if not len(class_text):
        raise ValueError("class_text is empty: there is nothing to choose from")
    cosines = F.normalize(patches, dim=-1) @ F.normalize(class_text, dim=-1).T
    return upsample(cosines.argmax(-1), grid, size)


def upsample(labels: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Labels of patches [B, P] to pixels [B, H, W], nearest neighbour."""
    (rows, columns), (height, width) = grid, size
    if rows < 1 or rows * columns != labels.shape[1]:
        raise ValueError(f"a grid of {rows} x {columns} does not hold {labels.shape[1]} patches")
    if height < 1 or width < 1:
        raise ValueError(f"size must be positive; got {size}")
    down = torch.arange(height, device=labels.device) * rows // height
    across = torch.arange(width, device=labels.device) * columns // width
    return labels.view(-1, rows, columns)[:, down][:, :, across]


def mean_iou(
    prediction: ArrayLike | Tensor,
    target: ArrayLike | Tensor,
    *,
    ignore_index: int = -1,
    background: bool = True,
) -> float:
    """Intersection over union of the classes that an image shows, averaged over classes, then images.

    Parameters
    ----------
    prediction, target : array_like or Tensor of int, shape (N, H, W) or (H, W)
        Class of each pixel.
    ignore_index : int, default -1
        Value of `target` where there is no object.
    background : bool, default True
        Whether predictions there count as false positives (the paper's protocol as described);
        false leaves those pixels out altogether.

    Returns
    -------
    float
        In [0, 1]. Images without any object are skipped; NaN when all are.

    Raises
    ------
    ValueError
        Shapes differ or have fewer than two axes.
    """
    guess, truth = _tensor(prediction), _tensor(target)
    if guess.shape != truth.shape or truth.ndim < 2:
        raise ValueError(
            f"prediction and target need one shape (N, H, W); got {shape(guess)} and {shape(truth)}"
        )
    truth = truth.reshape(-1, *truth.shape[-2:]).flatten(1)
    guess = guess.reshape(truth.shape)
    counted = torch.ones_like(truth, dtype=torch.bool) if background else truth != ignore_index
    total = torch.zeros(len(truth), dtype=torch.float64)
    classes = torch.zeros(len(truth), dtype=torch.float64)
    for label in truth.unique().tolist():
        if label == ignore_index:
            continue
        here, found = truth == label, (guess == label) & counted
        present = here.any(1)
        overlap, union = (here & found).sum(1).double(), (here | found).sum(1).double()
        total += torch.where(present, overlap / union.clamp_min(1), 0.0).cpu()
        classes += present.cpu()
    shown = classes > 0
    return float((total[shown] / classes[shown]).mean()) if shown.any() else math.nan


def _tensor(x: ArrayLike | Tensor) -> Tensor:
    """A tensor of anything array-like, reversed views included."""
    return x.detach() if isinstance(x, Tensor) else torch.as_tensor(np.ascontiguousarray(x))
