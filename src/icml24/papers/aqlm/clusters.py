r"""k-means, and k-means of what k-means left: where the codebooks start."""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate

__all__ = ["kmeans", "residual_kmeans"]

CHECK_EVERY = 10  # iterations between two tests of convergence, as the released code has it


def kmeans(
    data: Tensor,
    num_clusters: int,
    *,
    init: Tensor | None = None,
    max_iter: int = 100,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Lloyd's iterations from random rows of the data, or from given centres.

    Parameters
    ----------
    data : Tensor, shape (N, D), floating
    num_clusters : int
        K, at most N.
    init : Tensor, shape (K, D), optional
        First centres; then nothing is random.
    max_iter : int, default 100
    generator : torch.Generator, optional
        Draws K distinct rows as first centres; without it a stream of its own with a fixed seed.

    Returns
    -------
    (Tensor (K, D), Tensor (N,) int64)
        Centres, and the nearest centre of every row under the *final* centres.

    Raises
    ------
    ValueError
        More clusters than rows, ``num_clusters < 1``, ``max_iter < 1``, wrong shapes, values that
        are not finite.

    Notes
    -----
    Nearest by the largest :math:`r^\top c - \\lVert c\\rVert^2/2`, ties to the lowest index. A centre
    without rows stays where it is. Every tenth iteration, the first included, new and old centres
    are compared, and when they agree the new ones are not taken.
    """
    _validate.floating("data", data, 2)
    checks.whole("num_clusters", num_clusters, 1)
    checks.whole("max_iter", max_iter, 1)
    if num_clusters > len(data):
        raise ValueError(
            f"num_clusters = {num_clusters} exceeds the number of points, {len(data)}; use fewer bits a code"
        )
    data = data.detach()
    if init is None:
        centres = data[permutation(len(data), stream(generator)).to(data.device)[:num_clusters]]
    else:
        _validate.floating("init", init, 2)
        if tuple(init.shape) != (num_clusters, data.shape[1]):
            raise ValueError(f"init must be {(num_clusters, data.shape[1])}; got {tuple(init.shape)}")
        centres = init.detach().to(data.dtype).clone()
    for iteration in range(max_iter):
        updated = _means(data, nearest(data, centres), centres)
        if iteration % CHECK_EVERY == 0 and torch.allclose(updated, centres, rtol=1e-6, atol=1e-8):
            break
        centres = updated
    return centres, nearest(data, centres)


def stream(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or a new one with a fixed seed: nothing here draws from torch's global stream."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def permutation(count: int, generator: torch.Generator) -> Tensor:
    """A random order of `count` things, on the generator's device."""
    return torch.randperm(count, generator=generator, device=generator.device)


def nearest(data: Tensor, centres: Tensor) -> Tensor:
    """Index of the nearest centre of each row, shape (N,)."""
    offset = centres.square().sum(1) / 2
    chunk = max(1, (1 << 20) // len(centres))  # scores of a chunk stay in cache
    return torch.cat([(part @ centres.T - offset).argmax(1) for part in data.split(chunk)])


def _means(data: Tensor, labels: Tensor, old: Tensor) -> Tensor:
    sums = torch.zeros_like(old).index_add_(0, labels, data)
    counts = torch.bincount(labels, minlength=len(old))[:, None]
    return torch.where(counts > 0, sums / counts.clamp(min=1), old)


def residual_kmeans(
    data: Tensor,
    num_codebooks: int,
    num_clusters: int,
    *,
    max_iter: int = 100,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""k-means of the rows, then of the rests :math:`r_{m+1} = r_m - C_m[b_m]`, and so on.

    Parameters
    ----------
    data : Tensor, shape (N, D), floating
    num_codebooks, num_clusters : int
        M and K.
    max_iter : int, default 100
        Lloyd iterations a codebook.
    generator : torch.Generator, optional

    Returns
    -------
    (Tensor (M, K, D), Tensor (N, M) int64)
        Codebooks and codes; the sum of the chosen words approximates the row.

    Raises
    ------
    ValueError
        As `kmeans`; ``num_codebooks < 1``.

    Notes
    -----
    Source: eq-aqlm-residual, the paper's start of codebooks and codes.
    """
    _validate.floating("data", data, 2)
    checks.whole("num_codebooks", num_codebooks, 1)
    generator = stream(generator)
    books, codes, rest = [], [], data.detach()
    for _ in range(num_codebooks):
        centres, labels = kmeans(rest, num_clusters, max_iter=max_iter, generator=generator)
        books.append(centres)
        codes.append(labels)
        rest = rest - centres[labels]
    return torch.stack(books), torch.stack(codes, 1)
