r"""How good is a designed peptide: types, positions, binding site, side chains.

Positions are in angstrom, in the receptor's frame; angles in radians in, degrees out.
"""

from __future__ import annotations

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .residues import CHI_PI, TORSION_MASK, UNK
from .torus import torus_log

__all__ = ["aar", "binding_site_ratio", "ca_rmsd", "chi_errors", "kabsch", "secondary_structure_ratio"]


def aar(pred: ArrayLike, native: ArrayLike, mask: ArrayLike | None = None) -> float:
    """Amino-acid recovery: the fraction of residues whose type is the native one.

    Parameters
    ----------
    pred, native : array_like, one shape, integer
        Types.
    mask : array_like of bool, same shape, optional
        Residues that count.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        The shapes differ or no residue counts.
    """
    pred, native = torch.as_tensor(pred), torch.as_tensor(native)
    if pred.shape != native.shape:
        raise ValueError(
            f"pred and native must have one shape; got {tuple(pred.shape)} and {tuple(native.shape)}"
        )
    same = pred == native
    if mask is not None:
        mask = torch.as_tensor(mask).bool()
        if mask.shape != same.shape:
            raise ValueError(
                f"mask must have the shape of the types, {tuple(same.shape)}; got {tuple(mask.shape)}"
            )
        same = same[mask]
    if same.numel() == 0:
        raise ValueError("no residue to compare; recovery is undefined")
    return float(same.double().mean())


def ca_rmsd(pred: ArrayLike, native: ArrayLike, *, superpose: bool = False) -> float:
    r"""Root mean square distance of CA positions.

    Parameters
    ----------
    pred, native : array_like, shape (n, 3)
        Angstrom.
    superpose : bool, default False
        Move `pred` onto `native` by the best rotation and shift first (never a reflection). Off by
        default: a peptide in the wrong place of the pocket is wrong.

    Returns
    -------
    float
        Angstrom.

    Raises
    ------
    ValueError
        Shapes other than (n, 3), different or empty; coordinates that are not finite.
    """
    pred, native = _points("pred", pred), _points("native", native)
    if pred.shape != native.shape:
        raise ValueError(
            f"pred and native must have one shape; got {tuple(pred.shape)} and {tuple(native.shape)}"
        )
    if superpose:
        R, shift = kabsch(pred, native)
        pred = pred @ R.T + shift
    return math.sqrt(float((pred - native).square().sum(-1).mean()))


def kabsch(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    r"""Rotation and shift that bring points `x` closest to `y`, both (n, 3) (eq-pepflow-kabsch).

    The smallest singular direction is flipped where the best orthogonal matrix would mirror, so the
    determinant is always one.
    """
    mean_x, mean_y = x.mean(0), y.mean(0)
    U, _, Vt = torch.linalg.svd((x - mean_x).T @ (y - mean_y))
    sign = torch.ones(3, dtype=x.dtype)
    sign[2] = torch.sign(torch.linalg.det(U) * torch.linalg.det(Vt))
    R = (Vt.T * sign) @ U.T
    return R, mean_y - R @ mean_x


def binding_site_ratio(
    pred_ca: ArrayLike, native_ca: ArrayLike, receptor_ca: ArrayLike, cutoff: float = 10.0
) -> float:
    r"""Share of the native binding site that the designed peptide touches too.

    A site is the set of receptor residues whose CA is within `cutoff` of any CA of the peptide.

    Parameters
    ----------
    pred_ca, native_ca : array_like, shapes (n, 3) and (m, 3)
        Angstrom; the lengths may differ.
    receptor_ca : array_like, shape (r, 3)
        Rows are identities: residues of different chains never collide.
    cutoff : float, default 10.0

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Wrong shapes, coordinates that are not finite, a cutoff that is not positive, or a native
        peptide that touches nothing.
    """
    if not cutoff > 0:
        raise ValueError(f"cutoff must be positive; got {cutoff}")
    receptor = _points("receptor_ca", receptor_ca)

    def site(ca: Tensor) -> Tensor:
        return (torch.cdist(receptor, ca, compute_mode="donot_use_mm_for_euclid_dist") <= cutoff).any(-1)

    native = site(_points("native_ca", native_ca))
    if not bool(native.any()):
        raise ValueError(f"no receptor residue lies within {cutoff:g} angstrom of the native peptide")
    return int((site(_points("pred_ca", pred_ca)) & native).sum()) / int(native.sum())


def secondary_structure_ratio(pred: str, native: str) -> float:
    """Share of equal letters of two secondary-structure strings (for instance simplified DSSP: H, E, C).

    Raises
    ------
    TypeError
        An argument is no string.
    ValueError
        The lengths differ or are zero.
    """
    if not isinstance(pred, str) or not isinstance(native, str):
        raise TypeError("secondary structures are strings of one letter a residue")
    if len(pred) != len(native) or not native:
        raise ValueError(
            f"need two strings of one length, at least 1; got lengths {len(pred)} and {len(native)}"
        )
    return sum(a == b for a, b in zip(pred, native, strict=True)) / len(native)


def chi_errors(pred: Tensor, native: Tensor, aa: Tensor) -> tuple[Tensor, Tensor]:
    r"""Errors of chi1 to chi4, counting half turns of symmetric groups as none.

    Parameters
    ----------
    pred, native : Tensor, shape (..., 5), floating
        Psi, chi1 to chi4 in radians.
    aa : Tensor, shape (...), integer
        Types; unknown ones have no chi.

    Returns
    -------
    degrees : Tensor, shape (..., 4)
        In [0, 180], or [0, 90] for chi2 of ASP, PHE, TYR and chi3 of GLU; 0 where masked.
    mask : BoolTensor, shape (..., 4)

    Raises
    ------
    ValueError
        Shapes that do not fit.
    """
    pred, native, aa = torch.as_tensor(pred), torch.as_tensor(native), torch.as_tensor(aa)
    if pred.shape != native.shape or pred.shape != (*aa.shape, 5):
        raise ValueError(
            f"pred and native must have shape {(*aa.shape, 5)} for these types; "
            f"got {tuple(pred.shape)} and {tuple(native.shape)}"
        )
    row = torch.where((aa >= 0) & (aa < UNK), aa, torch.full_like(aa, UNK)).long()
    mask = TORSION_MASK[row][..., 1:]
    gap = torus_log(native[..., 1:], pred[..., 1:]).abs()
    half = torch.cat((CHI_PI, torch.zeros(1, 4, dtype=torch.bool)))[row]
    gap = torch.where(half, torch.minimum(gap, math.pi - gap), gap)
    return torch.rad2deg(gap).masked_fill(~mask, 0.0), mask


def _points(name: str, value: ArrayLike) -> Tensor:
    points = torch.as_tensor(value).detach().double()
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
        raise ValueError(f"{name} must have shape (n, 3) with n >= 1, in angstrom; got {tuple(points.shape)}")
    if not bool(points.isfinite().all()):
        raise ValueError(f"{name} holds coordinates that are not finite; drop or complete those residues")
    return points
