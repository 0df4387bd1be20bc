"""Peptide geometry and attention: ours beside three peers, interleaved in one run.

``python bench/pepflow.py`` needs the extra ``bench``. Before anything is timed, both sides must
give the same attention (the peer's weights are ours, rearranged), rotations and dihedrals.
"""

from __future__ import annotations

import warnings

import click
import harness
import mdtraj
import numpy as np
import torch
from invariant_point_attention import InvariantPointAttention as Peer
from scipy.spatial.transform import Rotation

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.frames import dihedrals

warnings.filterwarnings("ignore", category=FutureWarning)

B, L, C_S, C_Z, C, H, P = 8, 34, 64, 24, 16, 4, 4


def attention() -> tuple[pf.InvariantPointAttention, Peer, tuple[torch.Tensor, ...]]:
    """Both modules with the same function, and inputs of the chapter's size."""
    g = torch.Generator().manual_seed(0)
    ours = pf.InvariantPointAttention(C_S, C_Z, C, H, P, P)
    with torch.no_grad():
        for name, p in ours.named_parameters():
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
            if name.endswith("bias") and name.startswith(("linear_q", "linear_kv")):
                p.zero_()  # the peer's projections have none
    inputs = (
        torch.randn(B, L, C_S, generator=g),
        torch.randn(B, L, L, C_Z, generator=g),
        pf.random_so3((B, L), generator=g),
        5 * torch.randn(B, L, 3, generator=g),
        torch.ones(B, L, dtype=torch.bool),
    )
    return ours, peer_like(ours), inputs


@torch.no_grad()
def peer_like(ours: pf.InvariantPointAttention) -> Peer:
    """The peer with our weights: key and value unstacked, points from x|y|z to triples, pairs unprojected."""
    peer = Peer(
        dim=C_S, heads=H, scalar_key_dim=C, scalar_value_dim=C, point_key_dim=P, point_value_dim=P,
        pairwise_repr_dim=C_Z,
    )  # fmt: skip
    kv = ours.linear_kv.weight.reshape(H, 2, C, C_S)
    peer.to_scalar_q.weight.copy_(ours.linear_q.weight)
    peer.to_scalar_k.weight.copy_(kv[:, 0].flatten(0, 1))
    peer.to_scalar_v.weight.copy_(kv[:, 1].flatten(0, 1))
    triples = lambda w: w.reshape(3, H, -1, C_S).permute(1, 2, 0, 3)  # noqa: E731  (H, points, 3, C_S)
    key, value = triples(ours.linear_kv_points.weight).split(P, dim=1)
    peer.to_point_q.weight.copy_(triples(ours.linear_q_points.weight).flatten(0, 2))
    peer.to_point_k.weight.copy_(key.flatten(0, 2))
    peer.to_point_v.weight.copy_(value.flatten(0, 2))
    peer.point_weights.copy_(ours.head_weights)
    peer.to_pairwise_attn_bias[0].weight.copy_(ours.linear_b.weight)
    peer.to_pairwise_attn_bias[0].bias.copy_(ours.linear_b.bias)
    scalar, points, norms, pair = ours.linear_out.weight.split((H * C, 3 * H * P, H * P, H * C_Z // 4), dim=1)
    points = points.reshape(C_S, 3, H * P).permute(0, 2, 1).flatten(1)
    pair = pair.reshape(C_S, H, C_Z // 4)
    peer.to_out.weight.copy_(
        torch.cat((scalar, points, norms, (pair @ ours.down_z.weight).flatten(1)), dim=1)
    )
    peer.to_out.bias.copy_(ours.linear_out.bias + pair.sum(1) @ ours.down_z.bias)
    return peer


def strand() -> tuple[mdtraj.Trajectory, np.ndarray, torch.Tensor]:
    """A thousand frames of 120 random atoms, and 100 quadruples."""
    draw = np.random.default_rng(0)
    xyz = draw.normal(size=(1000, 120, 3)).astype(np.float32)
    topology = mdtraj.Topology()
    residue = topology.add_residue("GLY", topology.add_chain())
    for _ in range(120):
        topology.add_atom("C", mdtraj.element.carbon, residue)
    quadruples = np.stack([draw.choice(120, 4, replace=False) for _ in range(100)])
    return mdtraj.Trajectory(xyz, topology), quadruples, torch.from_numpy(xyz)


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time attention, rotation vectors and dihedrals against the peers."""
    torch.set_num_threads(1)
    ours, peer, (s, z, R, t, mask) = attention()
    rows_form = R.transpose(-1, -2).contiguous()  # the peer multiplies points from the left, as rows
    w = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrices = pf.so3_exp(w)
    trajectory, quadruples, xyz = strand()
    slots = torch.from_numpy(quadruples)

    def our_attention() -> torch.Tensor:
        with torch.no_grad():
            return ours(s, z, R, t, mask)

    def peer_attention() -> torch.Tensor:
        with torch.no_grad():
            return peer(s, z, rotations=rows_form, translations=t, mask=mask)

    def our_dihedrals() -> torch.Tensor:
        return dihedrals(*(xyz[:, slots[:, k]] for k in range(4)))

    def peer_dihedrals() -> np.ndarray:
        return mdtraj.compute_dihedrals(trajectory, quadruples, periodic=False)

    torch.testing.assert_close(our_attention(), peer_attention(), rtol=1e-4, atol=1e-3)
    peer_exp = lambda: Rotation.from_rotvec(w.numpy()).as_matrix()  # noqa: E731
    peer_log = lambda: Rotation.from_matrix(matrices.numpy()).as_rotvec()  # noqa: E731
    np.testing.assert_allclose(matrices.numpy(), peer_exp(), atol=1e-12)
    np.testing.assert_allclose(pf.so3_log(matrices).numpy(), peer_log(), atol=1e-9)
    gap = pf.torus_log(our_dihedrals(), torch.from_numpy(peer_dihedrals())).abs()
    assert float(gap.quantile(0.999)) < 1e-3

    rows = [
        harness.compare(
            f"attention, forward, B = {B}, L = {L}, {H} heads, {P} points (invariant-point-attention)",
            *(our_attention, peer_attention),
            repeats=repeats,
            number=3,
            unit="ms",
        ),
        harness.compare(
            "rotation matrices of 10,000 vectors, float64 (scipy)",
            *(lambda: pf.so3_exp(w), peer_exp),
            repeats=repeats,
            number=3,
            unit="ms",
        ),
        harness.compare(
            "rotation vectors of 10,000 matrices, float64 (scipy)",
            *(lambda: pf.so3_log(matrices), peer_log),
            repeats=repeats,
            number=3,
            unit="ms",
        ),
        harness.compare(
            "100,000 dihedrals, float32 (mdtraj)", our_dihedrals, peer_dihedrals, repeats=repeats, unit="ms"
        ),
    ]
    harness.write(
        "pepflow",
        "Attention and geometry of peptides",
        "invariant-point-attention, scipy, mdtraj",
        rows,
        ["torch", "numpy", "scipy", "invariant-point-attention", "mdtraj"],
    )


if __name__ == "__main__":
    main()
