r"""Six losses, one forward pass (eq-pepflow-fieldloss, eq-pepflow-rotloss, eq-pepflow-sincos)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from icml24.common.rotations import so3_log

from .flows import State
from .residues import IDEAL
from .torus import torus_log

__all__ = ["LOSS_WEIGHTS", "flow_losses"]

#: Weights of the six losses in the training objective (official configuration).
LOSS_WEIGHTS: dict[str, float] = {
    "trans": 0.5,
    "rot": 0.5,
    "bb_atom": 0.25,
    "seq": 1.0,
    "angle": 1.0,
    "torsion": 0.5,
}


def flow_losses(
    pred_R: Tensor,
    pred_t: Tensor,
    pred_a: Tensor,
    pred_logits: Tensor,
    x1: State,
    xt: State,
    seq: Tensor,
    t: Tensor,
    gen_mask: Tensor,
    torsion_mask: Tensor,
    *,
    t_clip: float = 0.9,
) -> dict[str, Tensor]:
    r"""Losses of predicted clean values, each a mean over the batch.

    Parameters
    ----------
    pred_R, pred_t, pred_a, pred_logits : Tensor, shapes (B, L, 3, 3), (B, L, 3), (B, L, 5), (B, L, 20)
        Predicted orientations, positions (angstrom), angles (radians), logits.
    x1, xt : State
        Data, and the state the prediction was made from.
    seq : LongTensor, shape (B, L)
        True types, 0 to 19 on generated rows.
    t : Tensor, shape (B,)
    gen_mask : BoolTensor, shape (B, L)
        Generated rows; at least one in every complex.
    torsion_mask : BoolTensor, shape (B, L, 5)
        Torsions that count (those of the types sampled from the prediction).
    t_clip : float, default 0.9
        Weights :math:`\kappa = 1/(1 - \min(t, t_{clip}))` stop growing there.

    Returns
    -------
    dict of str to Tensor
        Scalars in the dtype of `pred_t`: ``trans``, ``bb_atom`` (square angstrom), ``rot`` (square
        radians, per squared unit of time), ``seq`` (nats), ``angle``, ``torsion``.

    Raises
    ------
    ValueError
        A complex without a generated row, a generated row of unknown type, `pred_a` without five
        columns, other shapes that do not fit, or `t_clip` outside [0, 1).

    Notes
    -----
    ``trans`` carries no time factor and ``rot`` does, as in the released code.
    """
    B, L = seq.shape
    for name, state in (("x1", x1), ("xt", xt)):
        _shapes(f" of {name}", B, L, rotmats=state.rotmats, trans=state.trans, angles=state.angles)
    _shapes("", B, L, pred_R=pred_R, pred_t=pred_t, pred_a=pred_a, pred_logits=pred_logits)
    _shapes("", B, L, torsion_mask=torsion_mask, gen_mask=gen_mask)
    if t.shape != (B,):
        raise ValueError(f"t must hold one time a complex, shape ({B},); got {tuple(t.shape)}")
    if not 0 <= t_clip < 1:
        raise ValueError(f"t_clip must lie in [0, 1); got {t_clip}")
    n = gen_mask.sum(-1).to(pred_t)
    if not bool((n > 0).all()):
        raise ValueError("gen_mask selects no residue in some complex; nothing could be learnt from it")
    if bool(((seq < 0) | (seq >= pred_logits.shape[-1]))[gen_mask].any()):
        raise ValueError(
            "every generated residue needs a type from 0 to 19; drop complexes with unknown ones"
        )
    gen, t, seq = gen_mask.to(pred_t), t.to(pred_t), seq.long()
    kappa2 = (1 - t.clamp_max(t_clip)).pow(-2)

    def per_residue(value: Tensor) -> Tensor:  # (B, L) -> (B,)
        return (value * gen).sum(-1) / n

    back = xt.rotmats.transpose(-1, -2)
    rot = (so3_log(back @ x1.rotmats) - so3_log(back @ pred_R)).square().sum(-1)
    atoms = IDEAL[0, :3].to(pred_t).T  # N, CA, C of alanine as columns
    atom_gap = (pred_R - x1.rotmats) @ atoms + (pred_t - x1.trans).unsqueeze(-1)
    true = torch.where(gen_mask, seq, torch.zeros_like(seq))
    nll = cross_entropy(pred_logits.flatten(0, 1), true.flatten(), reduction="none").reshape(B, L)

    m = (torsion_mask & gen_mask.unsqueeze(-1)).to(pred_t)
    count = m.sum((-1, -2)).clamp_min(1.0)

    def per_torsion(a: Tensor, b: Tensor) -> Tensor:  # 2 - 2 cos(a - b), from sines and cosines
        gap = (a.sin() - b.sin()).square() + (a.cos() - b.cos()).square()
        return (m * gap).sum((-1, -2)) / (2 * count)

    field = per_torsion(torus_log(xt.angles, x1.angles), torus_log(xt.angles, pred_a))
    losses = {
        "trans": per_residue((pred_t - x1.trans).square().sum(-1)),
        "rot": kappa2 * per_residue(rot),
        "bb_atom": per_residue(atom_gap.square().sum((-1, -2))),
        "seq": per_residue(nll),
        "angle": kappa2 * field,
        "torsion": per_torsion(pred_a, x1.angles),
    }
    return {name: value.mean() for name, value in losses.items()}


_TAILS = {
    "rotmats": (3, 3), "trans": (3,), "angles": (5,), "pred_R": (3, 3), "pred_t": (3,), "pred_a": (5,),
    "pred_logits": (20,), "torsion_mask": (5,), "gen_mask": (),
}  # fmt: skip


def _shapes(whose: str, B: int, L: int, **given: Tensor) -> None:
    for name, value in given.items():
        shape = (B, L, *_TAILS[name])
        if value.shape != shape:
            raise ValueError(f"{name}{whose} must have shape {shape}; got {tuple(value.shape)}")
        if name.endswith("mask") and value.dtype != torch.bool:
            raise ValueError(f"{name} must be a bool mask; got {value.dtype}")
