r"""Angles: the shortest way round, and the flow along it (eq-pepflow-torus).

Angles are radians. The torus of five torsions is five circles side by side.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["positive", "torus_geodesic", "torus_log", "wrap"]


def wrap(a: Tensor) -> Tensor:
    r"""Angle in :math:`[-\pi, \pi]`: ``atan2(sin a, cos a)``; any shape."""
    return torch.atan2(a.sin(), a.cos())


def positive(a: Tensor) -> Tensor:
    r"""Angle in :math:`[0, 2\pi)`; any shape.

    A remainder alone can round a tiny negative angle up to a full turn; that turn becomes zero.
    """
    a = torch.remainder(a, 2 * math.pi)
    return torch.where(a >= 2 * math.pi, torch.zeros_like(a), a)


def torus_log(a: Tensor, b: Tensor) -> Tensor:
    r"""Velocity that leads from `a` to `b` in unit time, the shortest way.

    Parameters
    ----------
    a, b : Tensor, shapes that broadcast, floating
        Radians.

    Returns
    -------
    Tensor
        ``wrap(b - a)``, in :math:`[-\pi, \pi]`. At a difference of exactly half a turn both signs
        are right and rounding picks one.

    Raises
    ------
    TypeError
        An argument is no floating tensor.
    """
    _angles(a=a, b=b)
    return wrap(b - a)


def torus_geodesic(t: Tensor | float, a1: Tensor, a0: Tensor) -> Tensor:
    r"""Angle at time `t` on the shortest way from `a0` (``t = 0``) to `a1` (``t = 1``).

    Parameters
    ----------
    t : float or Tensor
        Broadcasts against the angles.
    a1, a0 : Tensor, shapes that broadcast, floating
        Radians.

    Returns
    -------
    Tensor
        In :math:`[0, 2\pi)`.

    Raises
    ------
    TypeError
        `a1` or `a0` is no floating tensor.
    """
    _angles(a1=a1, a0=a0)
    return positive(a0 + t * torus_log(a0, a1))


def _angles(**given: Tensor) -> None:
    for name, value in given.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise TypeError(f"{name} must be a floating tensor of radians; got {_kind(value)}")


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"{type(value).__name__}"
