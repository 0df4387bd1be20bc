r"""Effects and the two errors by which estimates of them are judged."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import _validate as check

__all__ = ["EFFECTS", "average_error", "individual_error"]

#: Main, spillover and total effect: the two points (t, z) that are compared, first minus second.
EFFECTS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "ME": ((1.0, 0.0), (0.0, 0.0)),
    "SE": ((0.0, 0.7), (0.0, 0.2)),
    "TE": ((1.0, 1.0), (0.0, 0.0)),
}


def average_error(pred1: Any, pred0: Any, true1: Any, true0: Any) -> Tensor:
    r"""Error of the average effect, :math:`\lvert \overline{\hat\tau} - \overline{\tau} \rvert`.

    Parameters
    ----------
    pred1, pred0, true1, true0 : Tensor or array_like, shape (n,)
        Predicted and true outcome of every unit at the effect's two points.

    Returns
    -------
    Tensor, shape ()
        In the unit of the outcome.

    Raises
    ------
    ValueError
        Shapes that differ, no units, or values that are not finite.
    """
    return _difference(pred1, pred0, true1, true0).mean().abs()


def individual_error(pred1: Any, pred0: Any, true1: Any, true0: Any) -> Tensor:
    r"""Root mean squared error of the individual effects; never below `average_error`.

    Parameters
    ----------
    pred1, pred0, true1, true0 : Tensor or array_like, shape (n,)
        As for `average_error`.

    Returns
    -------
    Tensor, shape ()
        In the unit of the outcome.

    Raises
    ------
    ValueError
        As `average_error`.
    """
    return _difference(pred1, pred0, true1, true0).square().mean().sqrt()


def _difference(pred1: Any, pred0: Any, true1: Any, true0: Any) -> Tensor:
    first = check.vector("pred1", pred1)
    rest = [
        check.vector(name, value, len(first), first)
        for name, value in (("pred0", pred0), ("true1", true1), ("true0", true0))
    ]
    return (first - rest[0]) - (rest[1] - rest[2])
