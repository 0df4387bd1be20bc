r"""Intervals and robust means over seeds.

With five or eight seeds a normal interval is a guess; the percentile bootstrap is
at least an honest description of the seeds one has. The interquartile mean keeps
the middle half of the runs, so that one lucky or broken seed cannot decide a claim
(Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical
Precipice*, 2021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["bootstrap_interval", "interquartile_mean"]


def interquartile_mean(x: ArrayLike, axis: int = -1) -> np.ndarray | float:
    r"""Mean of the middle half of the values.

    Parameters
    ----------
    x : array_like, shape (..., n)
        At least one value along `axis`; any unit.
    axis : int, default -1
        The axis of the runs.

    Returns
    -------
    float or ndarray
        With :math:`k = \lfloor n/4 \rfloor`, the mean of the sorted values after the
        `k` smallest and the `k` largest are dropped (``scipy.stats.trim_mean`` at 0.25).

    Raises
    ------
    ValueError
        Empty axis or non-finite values.
    """
    values = _finite(x, axis)
    n = values.shape[-1]
    k = n // 4
    mean = np.sort(values, axis=-1)[..., k : n - k].mean(axis=-1)
    return float(mean) if mean.ndim == 0 else mean


def bootstrap_interval(
    x: ArrayLike,
    statistic: str | Callable[..., np.ndarray] = "mean",
    *,
    level: float = 0.95,
    draws: int = 2000,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic of independent runs.

    Parameters
    ----------
    x : array_like, shape (n,)
        One value a run; any unit.
    statistic : {"mean", "median", "iqm"} or callable
        A callable takes an array of shape (draws, n) and ``axis=-1``.
    level : float, default 0.95
        Coverage asked for, in (0, 1).
    draws : int, default 2000
        Number of resamples.
    generator : numpy.random.Generator
        The only source of randomness.

    Returns
    -------
    (float, float)
        Lower and upper end, in the unit of `x`. One run gives an interval of width zero.

    Raises
    ------
    ValueError
        Empty or non-finite `x`, `level` outside (0, 1), `draws` < 1, unknown statistic.
    """
    values = _finite(x, -1)
    if values.ndim != 1:
        raise ValueError(f"expected one value a run, shape (n,); got shape {values.shape}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1); got {level}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1; got {draws}")
    named: dict[str, Callable[..., np.ndarray]] = {
        "mean": np.mean,
        "median": np.median,
        "iqm": interquartile_mean,  # type: ignore[dict-item]
    }
    if isinstance(statistic, str):
        if statistic not in named:
            raise ValueError(
                f"unknown statistic {statistic!r}; expected one of {sorted(named)} or a callable"
            )
        statistic = named[statistic]
    picks = generator.integers(0, len(values), size=(draws, len(values)))
    tail = (1 - level) / 2
    low, high = np.quantile(statistic(values[picks], axis=-1), [tail, 1 - tail])
    return float(low), float(high)


def _finite(x: ArrayLike, axis: int) -> np.ndarray:
    values = np.moveaxis(np.atleast_1d(np.asarray(x, dtype=np.float64)), axis, -1)
    if values.shape[-1] == 0:
        raise ValueError("no values: expected at least one run")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; drop or explain failed runs before averaging")
    return values
