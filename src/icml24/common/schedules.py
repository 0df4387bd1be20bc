r"""Learning-rate factors: linear warm-up, then a cosine or linear decay to a floor."""

from __future__ import annotations

import math

__all__ = ["warmup_decay"]


def warmup_decay(step: int, total: int, *, warmup: int, floor: float = 0.1, kind: str = "cosine") -> float:
    r"""Factor of the base learning rate at a step.

    .. math::

        \lambda(s) &= \begin{cases} (s+1)/w & s < w \\
        f + (1-f)\,\tfrac12\bigl(1+\cos\pi t\bigr) & \text{cosine} \\
        f + (1-f)(1-t) & \text{linear} \end{cases} \\
        t &= \min\bigl(1, (s-w)/\max(1, S-w)\bigr)

    Parameters
    ----------
    step : int
        Number :math:`s` of optimiser steps already taken, from 0.
    total : int
        Length :math:`S` of the schedule; afterwards the factor stays at `floor`.
    warmup : int
        Number :math:`w` of warm-up steps; 0 starts at the full rate.
    floor : float, default 0.1
        Final factor :math:`f`, in [0, 1].
    kind : {"cosine", "linear"}

    Returns
    -------
    float
        In (0, 1] for a positive floor.

    Raises
    ------
    ValueError
        Negative `step` or `warmup`, `total` below 1, `floor` outside [0, 1], unknown `kind`.
    """
    if step < 0 or warmup < 0 or total < 1:
        raise ValueError(f"expected step >= 0, warmup >= 0, total >= 1; got {step}, {warmup}, {total}")
    if not 0.0 <= floor <= 1.0:
        raise ValueError(f"floor is a factor in [0, 1]; got {floor}")
    if kind not in ("cosine", "linear"):
        raise ValueError(f"unknown kind {kind!r}; expected 'cosine' or 'linear'")
    if step < warmup:
        return (step + 1) / warmup
    t = min(1.0, (step - warmup) / max(1, total - warmup))
    shape = 0.5 * (1.0 + math.cos(math.pi * t)) if kind == "cosine" else 1.0 - t
    return floor + (1.0 - floor) * shape
