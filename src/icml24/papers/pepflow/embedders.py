r"""What the receptor tells the network: features of residues and of pairs, the peptide hidden.

Every feature is invariant under rigid motions: local coordinates, distances, dihedrals. Of the
residues to be generated nothing is read but where they stand in the chain: types become UNK,
coordinates, distances and dihedrals vanish.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .frames import backbone_frames, dihedrals
from .residues import UNK

__all__ = ["AngularEncoding", "EdgeEmbedder", "NodeEmbedder", "mlp"]

#: Embedded types: twenty, UNK, padding.
TYPES = 22
#: Sequence distances beyond this share one embedding.
MAX_RELPOS = 32
N, CA, C = 0, 1, 2


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them, none at the end."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class AngularEncoding(nn.Module):
    r"""A number with its sines and cosines at frequencies 1..f and 1, 1/2, .., 1/f (eq-pepflow-encoding).

    The number itself and the fractional frequencies are not periodic: angles 0 and
    :math:`2\pi` are encoded differently. Kept as released.
    """

    def __init__(self, num_funcs: int) -> None:
        super().__init__()
        bands = [float(i) for i in range(1, num_funcs + 1)]
        self.register_buffer("freq_bands", torch.tensor(bands + [1 / b for b in bands]))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., d, 1 + 4 f)."""
        y = x.unsqueeze(-1)
        phase = y * self.freq_bands
        return torch.cat((y, phase.sin(), phase.cos()), dim=-1)


class NodeEmbedder(nn.Module):
    """Features of single residues; `dim` is their width."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.aatype_embed = nn.Embedding(TYPES, dim)
        self.dihed_embed = AngularEncoding(3)
        self.mlp = mlp(dim + TYPES * 45 + 39, 2 * dim, dim, dim, dim)

    def forward(
        self, aa: Tensor, res_nb: Tensor, chain_nb: Tensor, pos: Tensor, atom_mask: Tensor, known: Tensor
    ) -> Tensor:
        r"""Embed.

        Parameters
        ----------
        aa, res_nb, chain_nb : LongTensor, shape (B, L)
        pos, atom_mask : Tensor, shapes (B, L, 15, 3) and (B, L, 15)
        known : BoolTensor, shape (B, L)
            Rows whose type and structure may be read.

        Returns
        -------
        Tensor, shape (B, L, dim)
        """
        seen = torch.where(known, aa, torch.full_like(aa, UNK))
        R, t = backbone_frames(pos[..., N, :], pos[..., CA, :], pos[..., C, :])
        local = (pos - t.unsqueeze(-2)) @ R
        use = atom_mask & known.unsqueeze(-1)
        local = torch.where(use.unsqueeze(-1), local, torch.zeros_like(local)).flatten(-2)
        # one slot of 45 numbers a type, zero but for the residue's own
        placed = local.new_zeros(*aa.shape, TYPES, 45)
        placed = placed.scatter(
            -2, seen[..., None, None].expand(*aa.shape, 1, 45), local.unsqueeze(-2)
        ).flatten(-2)
        angles, mask = _backbone_dihedrals(pos, chain_nb, res_nb, atom_mask[..., CA])
        both = known & known.roll(1, 1) & known.roll(-1, 1)
        mask = mask & both.unsqueeze(-1)
        angles = torch.where(mask, angles, torch.zeros_like(angles))
        coded = (self.dihed_embed(angles) * mask.unsqueeze(-1)).flatten(-2)
        out = self.mlp(torch.cat((self.aatype_embed(seen), placed, coded), dim=-1))
        return out * atom_mask[..., CA].unsqueeze(-1)


class EdgeEmbedder(nn.Module):
    """Features of ordered pairs of residues; `dim` is their width."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.aa_pair_embed = nn.Embedding(TYPES * TYPES, dim)
        self.relpos_embed = nn.Embedding(2 * MAX_RELPOS + 1, dim)
        self.aapair_to_distcoef = nn.Embedding(TYPES * TYPES, 225)
        nn.init.zeros_(self.aapair_to_distcoef.weight)
        self.distance_embed = nn.Sequential(nn.Linear(225, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.dihedral_embed = AngularEncoding(3)
        self.out_mlp = mlp(3 * dim + 26, dim, dim, dim)

    def forward(
        self, aa: Tensor, res_nb: Tensor, chain_nb: Tensor, pos: Tensor, atom_mask: Tensor, known: Tensor
    ) -> Tensor:
        r"""Embed; inputs as for `NodeEmbedder`.

        Returns
        -------
        Tensor, shape (B, L, L, dim)
            Row, column: features of the pair as seen from the row's residue.
        """
        seen = torch.where(known, aa, torch.full_like(aa, UNK))
        pair = seen.unsqueeze(2) * TYPES + seen.unsqueeze(1)
        same = (chain_nb.unsqueeze(2) == chain_nb.unsqueeze(1)).unsqueeze(-1)
        gap = (res_nb.unsqueeze(2) - res_nb.unsqueeze(1)).clamp(-MAX_RELPOS, MAX_RELPOS) + MAX_RELPOS
        both = known.unsqueeze(2) & known.unsqueeze(1)
        distance, dihedral = self._structure(pos, atom_mask, pair, both)
        features = (self.aa_pair_embed(pair), self.relpos_embed(gap) * same, distance, dihedral)
        exists = atom_mask[..., CA]
        return self.out_mlp(torch.cat(features, dim=-1)) * (
            exists.unsqueeze(2) & exists.unsqueeze(1)
        ).unsqueeze(-1)

    def _structure(self, pos: Tensor, atom_mask: Tensor, pair: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
        """Distance and dihedral features of the pairs that are known on both sides, zero elsewhere."""
        b, i, j = both.nonzero(as_tuple=True)  # a list: hidden and padded pairs cost nothing
        p, q = pos[b, i], pos[b, j]
        square = _squared_distances(0.1 * p, 0.1 * q).flatten(-2)  # nm^2
        present = (atom_mask[b, i].unsqueeze(-1) & atom_mask[b, j].unsqueeze(-2)).flatten(-2)
        rate = softplus(self.aapair_to_distcoef.weight)[pair[b, i, j]]
        near = self.distance_embed(torch.exp(-rate * square) * present)
        phi = dihedrals(p[:, C], q[:, N], q[:, CA], q[:, C])
        psi = dihedrals(p[:, N], p[:, CA], p[:, C], q[:, N])
        turn = self.dihedral_embed(torch.stack((phi, psi), dim=-1)).flatten(-2)
        empty = near.new_zeros(*both.shape, near.shape[-1] + turn.shape[-1])
        filled = empty.index_put((b, i, j), torch.cat((near, turn), dim=-1))
        return filled[..., : near.shape[-1]], filled[..., near.shape[-1] :]


def _squared_distances(p: Tensor, q: Tensor) -> Tensor:
    """(P, m, 3) and (P, n, 3) to (P, m, n), by one product; the common origin is moved to the points first."""
    origin = p[:, CA : CA + 1]
    p, q = p - origin, q - origin
    own = p.square().sum(-1).unsqueeze(-1) + q.square().sum(-1).unsqueeze(-2)
    return torch.baddbmm(own, p, q.transpose(-1, -2), alpha=-2.0).clamp_min(0.0)


def _backbone_dihedrals(
    pos: Tensor, chain_nb: Tensor, res_nb: Tensor, exists: Tensor
) -> tuple[Tensor, Tensor]:
    """Omega, phi (with the residue before) and psi (with the next N) of every row, and their mask; (B, L, 3)."""
    n, ca, c = pos[..., N, :], pos[..., CA, :], pos[..., C, :]
    linked = (
        (chain_nb[:, 1:] == chain_nb[:, :-1])
        & ((res_nb[:, 1:] - res_nb[:, :-1]).abs() == 1)
        & exists[:, 1:]
        & exists[:, :-1]
    )
    omega = dihedrals(ca[:, :-1], c[:, :-1], n[:, 1:], ca[:, 1:])
    phi = dihedrals(c[:, :-1], n[:, 1:], ca[:, 1:], c[:, 1:])
    psi = dihedrals(n[:, :-1], ca[:, :-1], c[:, :-1], n[:, 1:])
    first, last = torch.zeros_like(pos[:, :1, 0, 0]), linked.new_zeros(linked.shape[0], 1)
    angles = torch.stack(
        (torch.cat((first, omega), 1), torch.cat((first, phi), 1), torch.cat((psi, first), 1)), dim=-1
    )
    before, after = torch.cat((last, linked), 1), torch.cat((linked, last), 1)
    return angles, torch.stack((before, before, after), dim=-1)
