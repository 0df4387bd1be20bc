r"""Four flows at once: interpolation between noise and data, and one Euler step of a sampler.

Time runs from 0 (noise) to 1 (data). Each residue carries a rotation, a position in angstrom,
five angles in radians and twenty logits; each moves on the geodesic of its own space
(eq-pepflow-paths), and rows outside the generated peptide never move.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from icml24.common.rotations import so3_geodesic

from .torus import torus_geodesic

__all__ = ["INTEGRATORS", "State", "euler_step", "interpolate"]

#: Integrators of `euler_step`.
INTEGRATORS = ("geodesic", "released")


class State(NamedTuple):
    r"""What flows, for a batch of complexes.

    Parameters
    ----------
    rotmats : Tensor, shape (B, L, 3, 3)
        Backbone orientations.
    trans : Tensor, shape (B, L, 3)
        Positions of CA in angstrom.
    angles : Tensor, shape (B, L, 5)
        Psi, chi1 to chi4 in :math:`[0, 2\pi)`.
    logits : Tensor, shape (B, L, 20)
        Of the residue type.
    """

    rotmats: Tensor
    trans: Tensor
    angles: Tensor
    logits: Tensor


def interpolate(x1: State, x0: State, t: Tensor, gen_mask: Tensor) -> State:
    r"""State at time `t` on the way from noise `x0` to data `x1`.

    Parameters
    ----------
    x1, x0 : State
        Data and noise of one shape.
    t : Tensor, shape (B,)
        One time a complex, in [0, 1].
    gen_mask : BoolTensor, shape (B, L)
        Generated residues; all other rows are those of `x1`.

    Returns
    -------
    State
        At ``t = 0`` the noise, at ``t = 1`` the data, up to rounding.

    Raises
    ------
    ValueError
        Shapes that do not fit or times outside [0, 1].

    Notes
    -----
    Source: eq-pepflow-paths.
    """
    _fit(x1=x1, x0=x0)
    B, L = x1.trans.shape[:2]
    t = torch.as_tensor(t, dtype=x1.trans.dtype, device=x1.trans.device)
    if t.shape != (B,):
        raise ValueError(f"t must hold one time a complex, shape ({B},); got {tuple(t.shape)}")
    if not bool(((t >= 0) & (t <= 1)).all()):
        raise ValueError("times must lie in [0, 1]")
    if gen_mask.shape != (B, L) or gen_mask.dtype != torch.bool:
        raise ValueError(f"gen_mask must be a bool tensor of shape ({B}, {L}); got {tuple(gen_mask.shape)}")
    s = t[:, None, None]
    moved = State(
        so3_geodesic(s, x1.rotmats, x0.rotmats),
        (1 - s) * x0.trans + s * x1.trans,
        torus_geodesic(s, x1.angles, x0.angles),
        (1 - s) * x0.logits + s * x1.logits,
    )
    return merge(gen_mask, moved, x1)


def euler_step(
    xt: State,
    pred: State,
    t: float,
    h: float,
    *,
    x0: State | None = None,
    rot_rate: float | None = 10.0,
    integrator: str = "geodesic",
) -> State:
    r"""One step of length `h` from time `t` towards predicted clean values.

    Parameters
    ----------
    xt : State
        State at time `t`.
    pred : State
        Predicted clean values; the logits already at ``+-k``.
    t, h : float
        ``0 <= t < 1`` and ``h > 0``; steps beyond time 1 end at time 1.
    x0 : State, optional
        The initial noise; the integrator "released" needs it.
    rot_rate : float or None, default 10.0
        Fraction of the rotation's way covered in unit time (an exponential schedule); None takes the
        fraction of the other modalities.
    integrator : {"geodesic", "released"}
        "geodesic" covers the fraction :math:`r = h / (1 - t)` of the way that is left
        (eq-pepflow-euler); "released" does what the released code does: positions and logits move by
        `h` times the way from the *initial noise* to the prediction, angles by the fraction `h`.

    Returns
    -------
    State

    Raises
    ------
    ValueError
        Unknown integrator, "released" without `x0`, a step or time out of range, shapes that differ.
    """
    if integrator not in INTEGRATORS:
        raise ValueError(f"unknown integrator {integrator!r}; expected one of {INTEGRATORS}")
    if not (0 <= t < 1 and h > 0 and math.isfinite(h)):
        raise ValueError(f"a step starts at a time in [0, 1) and has positive length; got t = {t}, h = {h}")
    if rot_rate is not None and not (rot_rate > 0 and math.isfinite(rot_rate)):
        raise ValueError(f"rot_rate must be positive or None; got {rot_rate}")
    _fit(xt=xt, pred=pred)
    r = min(1.0, h / (1 - t))
    if integrator == "geodesic":
        turn = r if rot_rate is None else min(1.0, rot_rate * h)
        return State(
            so3_geodesic(turn, pred.rotmats, xt.rotmats),
            xt.trans + r * (pred.trans - xt.trans),
            torus_geodesic(r, pred.angles, xt.angles),
            xt.logits + r * (pred.logits - xt.logits),
        )
    if x0 is None:
        raise ValueError('the integrator "released" steps from the initial noise: pass it as x0')
    _fit(xt=xt, x0=x0)
    return State(
        so3_geodesic(r if rot_rate is None else rot_rate * h, pred.rotmats, xt.rotmats),
        xt.trans + h * (pred.trans - x0.trans),
        torus_geodesic(h, pred.angles, xt.angles),
        xt.logits + h * (pred.logits - x0.logits),
    )


def merge(mask: Tensor, there: State, elsewhere: State) -> State:
    """Take rows of one state where `mask`, (B, L), holds, and of another elsewhere."""
    return State(
        *(
            torch.where(mask.reshape(*mask.shape, *[1] * (a.ndim - 2)), a, b)
            for a, b in zip(there, elsewhere, strict=True)
        )
    )


def _fit(**states: State) -> None:
    (_, first), *_ = states.items()
    if first.trans.ndim != 3:
        raise ValueError(f"positions must have shape (B, L, 3); got {tuple(first.trans.shape)}")
    B, L = first.trans.shape[:2]
    tails = {"rotmats": (3, 3), "trans": (3,), "angles": (5,)}
    for name, state in states.items():
        for field, tail in tails.items():
            value = getattr(state, field)
            if value.shape != (B, L, *tail):
                raise ValueError(
                    f"{field} of {name} must have shape {(B, L, *tail)}; got {tuple(value.shape)}"
                )
        if state.logits.shape != first.logits.shape or state.logits.shape[:2] != (B, L):
            raise ValueError(
                f"logits of {name} must have shape ({B}, {L}, 20); got {tuple(state.logits.shape)}"
            )
