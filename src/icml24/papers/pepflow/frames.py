r"""Between atoms and coordinates of a residue: backbone frames, torsions, full atoms.

Frames follow eq-pepflow-frame, torsions eq-pepflow-dihedral, the way back eq-pepflow-groups with
the half turn of eq-pepflow-offset. Positions are in angstrom, angles in radians.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .residues import GROUP, GROUP_AXES, GROUP_ORIGIN, IDEAL, QUADRUPLES, TORSION_MASK, UNK
from .torus import positive

__all__ = ["backbone_frames", "dihedrals", "full_atom_reconstruction", "torsion_angles"]


def backbone_frames(n: Tensor, ca: Tensor, c: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    r"""Orientation and position of a residue from its N, CA and C.

    The first axis points from CA to C, the second to N's side, the third is their product.

    Parameters
    ----------
    n, ca, c : Tensor, shape (..., 3), floating
        Positions in angstrom.
    eps : float, default 1e-6
        Added to both lengths that are divided by (angstrom).

    Returns
    -------
    R : Tensor, shape (..., 3, 3)
        Axes as columns. Orthonormal up to `eps`; not a rotation where the three atoms coincide or
        are collinear.
    t : Tensor, shape (..., 3)
        `ca`.

    Raises
    ------
    TypeError
        An argument is no floating tensor.
    ValueError
        The last dimension is not 3, or the shapes differ.
    """
    for name, value in (("n", n), ("ca", ca), ("c", c)):
        _positions(name, value)
        if value.shape != ca.shape:
            raise ValueError(
                f"n, ca and c must have one shape; {name} has {tuple(value.shape)}, ca {tuple(ca.shape)}"
            )
    v, w = c - ca, n - ca
    e1 = v / (torch.linalg.vector_norm(v, dim=-1, keepdim=True) + eps)
    u = w - (e1 * w).sum(-1, keepdim=True) * e1
    e2 = u / (torch.linalg.vector_norm(u, dim=-1, keepdim=True) + eps)
    return torch.stack((e1, e2, torch.linalg.cross(e1, e2, dim=-1)), dim=-1), ca


def dihedrals(p0: Tensor, p1: Tensor, p2: Tensor, p3: Tensor) -> Tensor:
    r"""Dihedral angles by the IUPAC convention; (..., 3) four times to (...), in :math:`[-\pi, \pi]`.

    An arctangent of two products (eq-pepflow-dihedral) instead of a clamped arccosine: no digit is
    lost near 0 and :math:`\pi`. Coincident or collinear points give 0, with a zero gradient.
    """
    v0, v1, v2 = p2 - p1, p0 - p1, p3 - p2
    n1, n2 = torch.linalg.cross(v0, v1, dim=-1), torch.linalg.cross(v0, v2, dim=-1)
    y = torch.linalg.vector_norm(v0, dim=-1) * (torch.linalg.cross(v1, v2, dim=-1) * v0).sum(-1)
    x = (n1 * n2).sum(-1)
    flat = (x == 0) & (y == 0)
    return torch.atan2(y.masked_fill(flat, 0.0), x.masked_fill(flat, 1.0))


def torsion_angles(pos: Tensor, aa: Tensor) -> tuple[Tensor, Tensor]:
    r"""Torsions psi, chi1 to chi4 of residues with all their heavy atoms.

    Parameters
    ----------
    pos : Tensor, shape (..., L, 14, 3) or (..., L, 15, 3), floating
        Heavy atoms in the slots of `residues.ATOM_NAMES`, in angstrom.
    aa : Tensor, shape (..., L), integer
        Types; unknown and padding rows have no torsion.

    Returns
    -------
    angles : Tensor, shape (..., L, 5)
        In :math:`[0, 2\pi)`; 0 where masked. Psi is the dihedral N-CA-C-**O**, half a turn away from
        the IUPAC psi in a planar peptide bond.
    mask : BoolTensor, shape (..., L, 5)
        Torsions the type has, all four atoms finite.

    Raises
    ------
    TypeError
        `pos` is not floating or `aa` not integer.
    ValueError
        Shapes that do not fit.
    """
    _positions("pos", pos)
    _types(aa)
    if pos.ndim < 3 or pos.shape[-2] not in (14, 15) or pos.shape[:-2] != aa.shape:
        raise ValueError(
            f"pos must be (..., L, 14 or 15, 3) with the leading shape of aa; "
            f"got {tuple(pos.shape)} and {tuple(aa.shape)}"
        )
    row = _known(aa)
    slots = QUADRUPLES.to(aa.device)[row].flatten(-2)  # (..., L, 20)
    points = pos.gather(-2, slots.unsqueeze(-1).expand(*slots.shape, 3)).unflatten(-2, (5, 4))
    mask = TORSION_MASK.to(aa.device)[row] & points.isfinite().all(-1).all(-1)
    points = torch.where(mask[..., None, None], points, torch.zeros_like(points))
    angles = positive(dihedrals(*points.unbind(-2)))
    return angles.masked_fill(~mask, 0.0), mask


def full_atom_reconstruction(
    R: Tensor, t: Tensor, angles: Tensor, aa: Tensor, *, psi_offset: float = math.pi
) -> Tensor:
    r"""All heavy atoms from frames, torsions and types, by composing rigid groups.

    Parameters
    ----------
    R : Tensor, shape (..., L, 3, 3), floating
        Backbone orientations, axes as columns.
    t : Tensor, shape (..., L, 3)
        Positions of CA in angstrom.
    angles : Tensor, shape (..., L, 5)
        Psi (N-CA-C-O), chi1 to chi4 in radians; those a type lacks are ignored.
    aa : Tensor, shape (..., L), integer
        Types.
    psi_offset : float, default pi
        Added to psi; 0 reproduces the released code, which misplaces the oxygen.

    Returns
    -------
    Tensor, shape (..., L, 14, 3)
        Slots a type does not fill are unspecified; use ``ATOM_MASK[aa]``.

    Raises
    ------
    TypeError
        An array is not floating or `aa` not integer.
    ValueError
        Shapes that do not fit, or `angles` without five columns.

    Notes
    -----
    Source: eq-pepflow-groups and eq-pepflow-offset; AlphaFold 2, supplementary algorithm 24.
    """
    _types(aa)
    for name, value, tail in (("R", R, (3, 3)), ("t", t, (3,)), ("angles", angles, (5,))):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise TypeError(f"{name} must be a floating tensor; got {type(value).__name__}")
        if value.shape != (*aa.shape, *tail):
            raise ValueError(
                f"{name} must have shape {(*aa.shape, *tail)} for these types; got {tuple(value.shape)}"
            )
    row = _known(aa)
    axes, origin = (table.to(R)[row] for table in (GROUP_AXES, GROUP_ORIGIN))
    turned = axes @ _about_x(torch.cat((angles[..., :1] + psi_offset, angles[..., 1:]), dim=-1))
    frames = [(R, t), _compose(R, t, turned[..., 0, :, :], origin[..., 0, :])]
    frames.append(_compose(R, t, turned[..., 1, :, :], origin[..., 1, :]))
    for k in (2, 3, 4):  # chi_k hangs on chi_(k-1)
        frames.append(_compose(*frames[-1], turned[..., k, :, :], origin[..., k, :]))
    every_R = torch.stack([frame[0] for frame in frames], dim=-3)  # backbone, psi, chi1 .. chi4
    every_t = torch.stack([frame[1] for frame in frames], dim=-2)
    pick = (GROUP.to(aa.device)[row] - 2).clamp_min(0)  # groups 0, 1, 2 move with the backbone
    R_atom = every_R.gather(-3, pick[..., None, None].expand(*pick.shape, 3, 3))
    t_atom = every_t.gather(-2, pick[..., None].expand(*pick.shape, 3))
    return (R_atom @ IDEAL.to(R)[row].unsqueeze(-1)).squeeze(-1) + t_atom


def _compose(R1: Tensor, t1: Tensor, R2: Tensor, t2: Tensor) -> tuple[Tensor, Tensor]:
    return R1 @ R2, (R1 @ t2.unsqueeze(-1)).squeeze(-1) + t1


def _about_x(angle: Tensor) -> Tensor:
    """Rotations about the first axis; (...) to (..., 3, 3)."""
    c, s = angle.cos(), angle.sin()
    o, one = torch.zeros_like(c), torch.ones_like(c)
    return torch.stack((one, o, o, o, c, -s, o, s, c), dim=-1).unflatten(-1, (3, 3))


def _known(aa: Tensor) -> Tensor:
    """Row of the tables: the type, or UNK for anything that is none of the twenty."""
    return torch.where((aa >= 0) & (aa < UNK), aa, torch.full_like(aa, UNK)).long()


def _positions(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor of positions; got {type(value).__name__}")
    if value.ndim < 1 or value.shape[-1] != 3:
        raise ValueError(f"{name} must end in three coordinates; got shape {tuple(value.shape)}")


def _types(aa: Tensor) -> None:
    if not isinstance(aa, Tensor) or aa.is_floating_point() or aa.dtype == torch.bool:
        raise TypeError("aa must be an integer tensor of residue types, 0 to 19, 20 unknown, 21 padding")
