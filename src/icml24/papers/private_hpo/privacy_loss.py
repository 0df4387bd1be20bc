r"""Privacy-loss distributions: the loss of one step on a grid, composed by FFT.

The tightest numerical accountant, and the only one here that handles subsampled steps
without a lossy conversion. It also serves as an independent check of the closed forms in
`gaussian`: at full batch both must give the same epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from . import _validate as check

__all__ = ["pld_epsilon"]

TAIL = 1e-12  # probability that may be cut, relative to delta
CELLS = 1 << 22  # most cells that a composed distribution may hold
RESOLUTION = 10  # least number of cells in a standard deviation of one step's loss


@dataclass(frozen=True)
class Release:
    """One kind of release, made `steps` times: noise multiplier, sampling rate, count."""

    noise_multiplier: float
    sample_rate: float
    steps: int


def pld_epsilon(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    *,
    discretization: float = 1e-4,
) -> float:
    r"""Epsilon of `steps` Poisson-subsampled Gaussian releases from the privacy loss itself.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over the clipping norm; positive.
    sample_rate : float
        Probability with which each record enters a step, in (0, 1].
    steps : int
        At least 1.
    delta : float
        In (0, 1).
    discretization : float, default 1e-4
        Coarsest cell of the loss, in nats. Refined by itself when one step's loss varies
        less than ten cells, coarsened only when the composed loss would not fit in memory.

    Returns
    -------
    float
        The larger of the two directions (a record added, a record removed); 0.0 when
        already :math:`\delta(0) \le \delta`.

    Raises
    ------
    ValueError
        A bad argument.

    Notes
    -----
    Source: eq-private_hpo-loss. Masses are rounded to the nearest cell and the mean of
    each step restored exactly, so the answer is an estimate, good to a fraction of a
    percent, not a bound. The composition runs under an exponential tilt centred on the
    tail that decides epsilon, so that small deltas keep their relative precision.
    """
    release = Release(
        check.positive("noise_multiplier", noise_multiplier),
        check.sample_rate(sample_rate),
        check.steps(steps),
    )
    return composed_epsilon(
        [release],
        check.probability("delta", delta),
        check.positive("discretization", discretization),
    )


def composed_epsilon(releases: Sequence[Release], delta: float, discretization: float = 1e-4) -> float:
    """Epsilon of several kinds of releases together: the larger of the two directions."""
    if all(release.sample_rate == 1.0 for release in releases):
        return _direction(releases, delta, discretization, removed=True)  # both directions are equal
    return max(_direction(releases, delta, discretization, removed=side) for side in (True, False))


def _direction(releases: Sequence[Release], delta: float, spacing: float, *, removed: bool) -> float:
    moments = [_loss_moments(release, removed) for release in releases]
    spread = max(np.ptp(_loss_ends(release, delta, removed)) for release in releases)
    spacing = max(min(spacing, min(std for _, std in moments) / RESOLUTION), spread / CELLS)
    std = math.sqrt(sum(r.steps * s * s for r, (_, s) in zip(releases, moments, strict=True)))
    while True:
        cells = [_cells(release, spacing, delta, removed) for release in releases]
        low, high, tilt = _window(releases, cells, spacing, delta, std)
        if high - low < CELLS:
            break
        spacing *= 1.1 * (high - low) / CELLS
    size = 1 << max(math.ceil(high - low), 1).bit_length()
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    shift = log_norm = 0.0
    for release, (first, masses), (mean, _) in zip(releases, cells, moments, strict=True):
        index = first + np.arange(masses.size)
        shift += release.steps * (mean - spacing * float(masses @ index))  # the mean, exactly
        log_weights = _log(masses) + tilt * spacing * index
        log_one = float(logsumexp(log_weights))
        log_norm += release.steps * log_one
        folded = np.bincount(index % size, weights=np.exp(log_weights - log_one), minlength=size)
        spectrum *= np.fft.rfft(folded) ** release.steps
    index = math.floor(low) + np.arange(size)
    composed = np.maximum(np.fft.irfft(spectrum, size), 0.0)[index % size]
    log_mass = _log(composed) + log_norm - tilt * spacing * index  # tilt undone
    losses = spacing * index + shift
    keep = losses > 0
    return _solve(losses[keep], log_mass[keep], delta * (1 - 3 * TAIL))


def _solve(losses: np.ndarray, log_mass: np.ndarray, delta: float) -> float:
    # delta(eps) = S0 - e^eps S1, with S0 and S1 the sums of p and p e^-loss above eps: exact between two cells
    if losses.size == 0:
        return 0.0
    log_above = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    log_weighted = np.logaddexp.accumulate((log_mass - losses)[::-1])[::-1]
    above = np.exp(np.minimum(log_above, 700.0))
    at_cell = above - np.exp(np.minimum(log_weighted + losses, 700.0))  # delta at epsilon = losses[k]
    k = int(np.argmax(at_cell <= delta))
    if above[k] <= delta:
        return float(losses[k - 1]) if k else 0.0
    return max(math.log(above[k] - delta) - float(log_weighted[k]), 0.0)


def _loss(release: Release, z: np.ndarray) -> np.ndarray:
    sigma, q = release.noise_multiplier, release.sample_rate
    exponent = (2 * z - 1) / (2 * sigma**2)
    return exponent if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + exponent)


def _loss_moments(release: Release, removed: bool) -> tuple[float, float]:
    # mean and standard deviation of one step's loss, by the trapezoidal rule
    sigma, q = release.noise_multiplier, release.sample_rate
    low, high = -14 * sigma, 1 + 14 * sigma
    z = np.linspace(low, high, min(math.ceil((high - low) / min(sigma / 16, sigma**2 / 2)) + 1, 1 << 20))
    density = np.exp(-0.5 * (z / sigma) ** 2)
    if removed:
        density = (1 - q) * density + q * np.exp(-0.5 * ((z - 1) / sigma) ** 2)
    density /= density.sum()
    loss = _loss(release, z) if removed else -_loss(release, z)
    mean = float(density @ loss)
    return mean, math.sqrt(max(float(density @ (loss - mean) ** 2), 1e-300))


def _loss_ends(release: Release, delta: float, removed: bool) -> np.ndarray:
    # least and greatest loss that are kept; beyond them lies a fraction TAIL of delta over all steps
    reach = -float(ndtri(min(TAIL * delta / release.steps, 0.1))) * release.noise_multiplier
    ends = _loss(release, np.array([-reach, reach + removed]))
    return ends if removed else -ends[::-1]


def _cells(release: Release, spacing: float, delta: float, removed: bool) -> tuple[int, np.ndarray]:
    # probability of each cell ((k - 1/2) h, (k + 1/2) h] of one step's loss, tails lumped into the end cells
    sigma, q = release.noise_multiplier, release.sample_rate
    low, high = _loss_ends(release, delta, removed)
    first, last = math.floor(low / spacing), math.ceil(high / spacing)
    edges = spacing * (first + np.arange(last - first) + 0.5)
    z = _inverse_loss(release, edges if removed else -edges)
    if removed:
        below = (1 - q) * ndtr(z / sigma) + q * ndtr((z - 1) / sigma)
        above = (1 - q) * ndtr(-z / sigma) + q * ndtr((1 - z) / sigma)
    else:
        below, above = ndtr(-z / sigma), ndtr(z / sigma)
    # each mass from the smaller of its two tails, so that none is lost to cancellation
    lower, upper = np.diff(below, prepend=0.0), -np.diff(above, append=0.0)
    half = int(np.searchsorted(below, 0.5))
    masses = np.concatenate([lower[:half], [0.0], upper[half:]])
    masses[half] = max(1.0 - masses.sum(), 0.0)
    return first, masses


def _inverse_loss(release: Release, losses: np.ndarray) -> np.ndarray:
    sigma, q = release.noise_multiplier, release.sample_rate
    if q == 1.0:
        return sigma**2 * losses + 0.5
    out = np.full(losses.shape, -np.inf)  # no z has a loss at or below log(1 - q)
    inside = losses > math.log1p(-q)
    surplus = losses[inside]
    # log(e^l - 1 + q), from log(e^(l - log(1-q)) - 1) + log(1-q)
    gap = surplus - math.log1p(-q)
    log_odds = gap + np.log(-np.expm1(-gap)) + math.log1p(-q) - math.log(q)
    out[inside] = sigma**2 * log_odds + 0.5
    return out


def _window(
    releases: Sequence[Release],
    cells: Sequence[tuple[int, np.ndarray]],
    spacing: float,
    delta: float,
    std: float,
) -> tuple[float, float, float]:
    # Chernoff limits, in cells, of the sum under the tilt that centres it on its upper delta-quantile
    grouped = [_grouped(first, masses) for first, masses in cells]

    def cumulant(t: float) -> float:
        return sum(
            release.steps * float(logsumexp(log_mass + t * spacing * index))
            for release, (index, log_mass) in zip(releases, grouped, strict=True)
        )

    rates = np.geomspace(1e-2, 30.0, 30) / std
    values = np.array([cumulant(t) for t in rates])
    best = int(np.argmin((values - math.log(delta)) / rates))
    tilt = float(rates[best])
    slack = -2 * math.log(TAIL)
    high = min((cumulant(tilt + t) - values[best] + slack) / t for t in rates)
    low = max((values[best] - cumulant(tilt - t) - slack) / t for t in rates)
    return low / spacing, high / spacing, tilt


def _grouped(first: int, masses: np.ndarray, groups: int = 1 << 13) -> tuple[np.ndarray, np.ndarray]:
    # neighbouring cells merged at their mean index: enough for limits, and quick
    width = -(-masses.size // groups)
    starts = np.arange(0, masses.size, width)
    mass = np.add.reduceat(masses, starts)
    moment = np.add.reduceat(masses * np.arange(masses.size), starts)
    index = first + np.divide(moment, mass, out=starts.astype(np.float64), where=mass > 0)
    return index, _log(mass)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)
