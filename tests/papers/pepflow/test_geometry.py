"""Rotations, angles, frames, torsions, atoms."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from icml24.common.structures import dihedral
from icml24.papers import pepflow as pf
from icml24.papers.pepflow import residues
from icml24.papers.pepflow.embedders import AngularEncoding
from icml24.papers.pepflow.frames import dihedrals

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def haar(n, seed=0):
    return pf.random_so3((n,), generator=gen(seed), dtype=F64)


# -- rotations -------------------------------------------------------------------------------


@pytest.mark.equation("eq-pepflow-rotation")
def test_geodesic_speed_by_finite_differences():
    """E3: the path's body-frame velocity is log(R0' R1), and the way left shrinks like 1 - t."""
    R0, R1, h = haar(200), haar(200, 1), 1e-6
    v = pf.so3_log(R0.mT @ R1)
    for t in (0.0, 0.3, 0.9):
        Rt = pf.so3_geodesic(t, R1, R0)
        moved = (pf.so3_geodesic(t + h, R1, R0) - pf.so3_geodesic(t - h, R1, R0)) / (2 * h)
        spin = Rt.mT @ moved  # skew, its entries the angular velocity in the body frame
        numeric = torch.stack((spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]), dim=-1)
        assert (numeric - v).abs().max() < 1e-6
        left = pf.so3_log(Rt.mT @ R1)
        assert (left - (1 - t) * v).abs().max() < 1e-9


@pytest.mark.equation("eq-pepflow-rotation")
@pytest.mark.parametrize("angle", [0.0, 1e-8, 1e-4, 1.0, 3.0, math.pi - 1e-6, math.pi - 1e-9])
def test_log_of_exp_at_all_angles(angle):
    """E3: small angles and near half turns keep their digits; scipy agrees."""
    axis = torch.nn.functional.normalize(torch.randn(300, 3, generator=gen(), dtype=F64), dim=-1)
    w = angle * axis
    R = pf.so3_exp(w)
    assert (R @ R.mT - torch.eye(3, dtype=F64)).abs().max() < 1e-14
    assert (torch.linalg.det(R) - 1).abs().max() < 1e-14
    torch.testing.assert_close(
        R, torch.from_numpy(Rotation.from_rotvec(w.numpy()).as_matrix()), rtol=0, atol=1e-14
    )
    torch.testing.assert_close(pf.so3_log(R), w, rtol=1e-8, atol=1e-15)


def test_gradient_at_the_identity_is_finite():
    w = torch.zeros(4, 3, dtype=F64, requires_grad=True)
    pf.so3_log(pf.so3_exp(w)).sum().backward()
    assert w.grad.isfinite().all()


@pytest.mark.equation("eq-pepflow-haar")
def test_haar_angles_follow_their_law():
    """E4: Kolmogorov-Smirnov distance of 20,000 angles; left and right turns change nothing."""
    R = haar(20_000, 3)
    for Q in (R, haar(1, 5) @ R, R @ haar(1, 6)):
        angle = pf.so3_log(Q).norm(dim=-1).sort().values
        cdf = (angle - angle.sin()) / math.pi
        empirical = torch.arange(1, len(angle) + 1, dtype=F64) / len(angle)
        assert (cdf - empirical).abs().max() < 0.015


def test_random_so3_shapes_and_dtypes():
    assert pf.random_so3((), generator=gen()).shape == (3, 3)
    R = pf.random_so3((2, 0), generator=gen(), dtype=F64)
    assert R.shape == (2, 0, 3, 3)
    assert R.dtype == F64
    assert torch.equal(pf.random_so3((3,), generator=gen(7)), pf.random_so3((3,), generator=gen(7)))


# -- angles ----------------------------------------------------------------------------------


@pytest.mark.equation("eq-pepflow-torus")
def test_torus_path_is_the_shortest():
    """E5: never more than half a turn, constant speed, arrives modulo a full turn."""
    a, b = (2 * math.pi * torch.rand(500, 5, generator=gen(s), dtype=F64) for s in (0, 1))
    v = pf.torus_log(a, b)
    assert v.abs().max() <= math.pi
    ways = torch.stack([(b - a + 2 * math.pi * k).abs() for k in (-1, 0, 1)]).min(0).values
    torch.testing.assert_close(v.abs(), ways, rtol=0, atol=1e-12)
    assert pf.torus_log(pf.torus_geodesic(1.0, b, a), b).abs().max() < 1e-12
    for t in (0.0, 0.25, 0.9):
        xt = pf.torus_geodesic(t, b, a)
        assert ((xt >= 0) & (xt < 2 * math.pi)).all()
        torch.testing.assert_close(pf.torus_log(xt, b), (1 - t) * v, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-pepflow-torus")
def test_torus_jump_at_half_a_turn():
    """E5: a hair on either side of the antipode sends the path around opposite sides."""
    zero = torch.zeros(1, dtype=F64)
    below, above = (pf.torus_log(zero, torch.tensor([math.pi + e], dtype=F64)) for e in (-1e-6, 1e-6))
    assert below == pytest.approx(math.pi, abs=2e-6)
    assert above == pytest.approx(-math.pi, abs=2e-6)


def test_geodesic_never_returns_a_full_turn():
    tiny = torch.tensor([-1e-9], dtype=torch.float32)
    assert pf.torus_geodesic(0.0, tiny, tiny).item() == 0.0


def test_angles_must_be_floating():
    with pytest.raises(TypeError, match="radians"):
        pf.torus_log(torch.zeros(3, dtype=torch.long), torch.zeros(3))
    with pytest.raises(TypeError, match="a0"):
        pf.torus_geodesic(0.5, torch.zeros(3), [0.0, 0.0, 0.0])


@pytest.mark.equation("eq-pepflow-encoding")
def test_encoding_is_not_periodic():
    code = AngularEncoding(3).double()
    x = torch.tensor([0.7], dtype=F64)
    here, round_trip = code(x)[0], code(x + 2 * math.pi)[0]
    assert here.shape == (13,)
    same = (here - round_trip).abs() < 1e-6
    # sines and cosines at 1, 2, 3 and the second copy of 1 are; the number itself, 1/2 and 1/3 are not
    assert same.tolist() == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


# -- frames and torsions ---------------------------------------------------------------------


@pytest.mark.equation("eq-pepflow-frame")
def test_frames_turn_with_the_atoms(parity):
    pos = parity("structure")["pos"][:, :3]
    R, t = pf.backbone_frames(*pos.unbind(1))
    assert (R.mT @ R - torch.eye(3, dtype=F64)).abs().max() < 1e-5
    assert (torch.linalg.det(R) - 1).abs().max() < 1e-5
    Q, shift = haar(1)[0], torch.tensor([3.0, -1.0, 2.0], dtype=F64)
    R2, t2 = pf.backbone_frames(*(pos @ Q.T + shift).unbind(1))
    torch.testing.assert_close(R2, Q @ R, rtol=0, atol=1e-9)
    torch.testing.assert_close(t2, t @ Q.T + shift, rtol=0, atol=1e-9)
    local = torch.einsum("nji,naj->nai", R, pos - t.unsqueeze(1))  # N, CA, C in their own frame
    assert local[:, 2, 1:].abs().max() < 1e-5  # C on the first axis
    assert local[:, 0, 2].abs().max() < 1e-5  # N in the plane of the first two
    assert (local[:, 0, 1] > 0).all()


@pytest.mark.equation("eq-pepflow-dihedral")
def test_dihedral_against_the_projection():
    """The arctangent form against projecting on the plane normal to the middle bond (common.structures)."""
    p = torch.randn(300, 4, 3, generator=gen(), dtype=F64)
    ours = dihedrals(*p.unbind(1))
    other = torch.tensor([dihedral(*q) for q in p.numpy()], dtype=F64)
    assert pf.torus_log(ours, other).abs().max() < 1e-10
    mirrored = dihedrals(*(p * torch.tensor([1.0, 1.0, -1.0], dtype=F64)).unbind(1))
    torch.testing.assert_close(mirrored, -ours, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-pepflow-dihedral")
@pytest.mark.parametrize("angle", [1e-7, 0.5, math.pi - 1e-7])
def test_dihedral_keeps_its_digits(angle):
    p = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 0, 1.5], [math.cos(angle), math.sin(angle), 2.0]], dtype=F64)
    assert dihedrals(*p) == pytest.approx(angle, rel=1e-8)


def test_coincident_points_have_a_finite_gradient():
    p = torch.zeros(1, 1, 14, 3, dtype=F64, requires_grad=True)
    angles, mask = pf.torsion_angles(p, torch.tensor([[14]]))
    angles.sum().backward()
    assert p.grad.isfinite().all()
    assert mask.all()


# -- atoms -----------------------------------------------------------------------------------


def test_table_has_the_published_shape():
    assert pf.AA3[:3] == ["ALA", "CYS", "ASP"]
    assert len(pf.AA3) == 20
    assert pf.ATOM_MASK.shape == (21, 14)
    assert pf.ATOM_MASK.sum() == 167
    assert pf.TORSION_MASK.sum(0).tolist() == [20, 18, 14, 5, 2]
    assert not pf.TORSION_MASK[pf.UNK].any()
    assert {pf.AA3[i] for i in pf.CHI_PI.any(1).nonzero()[:, 0]} == {"ASP", "GLU", "PHE", "TYR"}


def test_table_equals_the_released_one():
    """Runs where ``ICML24_TEST_DATA`` names a folder laid out like ``ICML24_DATA``."""
    path = Path(os.environ.get("ICML24_TEST_DATA", "")) / "pepflow" / "residue_geometry.json"
    if "ICML24_TEST_DATA" not in os.environ or not path.is_file():
        pytest.skip("set ICML24_TEST_DATA to a folder that holds pepflow/residue_geometry.json")
    released = json.loads(path.read_text(encoding="utf8"))
    assert released["order"] == pf.AA3
    for k, name in enumerate(pf.AA3):
        groups = released["rigid_groups"][name]
        assert residues.ATOM_NAMES[name] == [a for a in released["atom_names"][name] if a]
        for slot, atom in enumerate(residues.ATOM_NAMES[name]):
            assert residues.GROUP[k, slot] == groups[atom]["group"]
            assert residues.IDEAL[k, slot].tolist() == pytest.approx(groups[atom]["xyz"], abs=1e-12)
        assert residues.CHI_ATOMS[name] == released["chi_atoms"][name]


def residue(kind, seed=0):
    g = gen(seed)
    angles = 2 * math.pi * torch.rand(1, 5, generator=g, dtype=F64)
    return (
        haar(1, seed),
        torch.randn(1, 3, generator=g, dtype=F64),
        angles,
        torch.tensor([pf.AA3.index(kind)]),
    )


@pytest.mark.equation("eq-pepflow-groups")
def test_a_torsion_moves_only_what_hangs_on_it():
    """E11: turning chi2 of arginine leaves six atoms and every bond where they were."""
    R, t, angles, aa = residue("ARG")
    turned = angles.clone()
    turned[0, 2] += 0.8
    x, y = (pf.full_atom_reconstruction(R, t, a, aa)[0] for a in (angles, turned))
    names = residues.ATOM_NAMES["ARG"]
    moved = {n for n, d in zip(names, (x - y).norm(dim=-1), strict=False) if d > 1e-9}
    assert moved == {"CD", "NE", "CZ", "NH1", "NH2"}
    bonds = ["N-CA", "CA-C", "C-O", "CA-CB", "CB-CG", "CG-CD", "CD-NE", "NE-CZ", "CZ-NH1", "CZ-NH2"]
    at = names.index
    for i, j in (map(at, b.split("-")) for b in bonds):
        assert (x[i] - x[j]).norm() == pytest.approx(float((y[i] - y[j]).norm()), abs=1e-12)
        assert 1.2 < (x[i] - x[j]).norm() < 1.6


@pytest.mark.equation("eq-pepflow-groups")
@pytest.mark.parametrize("kind", pf.AA3)
def test_torsions_come_back(kind):
    """Rebuilding and measuring are inverse; psi too, up to the table's own 0.02 rad of pucker."""
    R, t, angles, aa = residue(kind, 3)
    atoms = pf.full_atom_reconstruction(R, t, angles, aa)
    again, mask = pf.torsion_angles(atoms, aa)
    gap = pf.torus_log(angles, again).abs()[mask]
    assert gap.max() < 0.03
    frame, place = pf.backbone_frames(*atoms[:, :3].unbind(1))
    torch.testing.assert_close(frame, R, rtol=0, atol=1e-5)
    torch.testing.assert_close(place, t, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-pepflow-offset")
def test_oxygen_of_a_real_structure(parity):
    """E8: psi measured to O needs half a turn; without it every carbonyl oxygen is 2 angstrom off."""
    z = parity("structure")
    R, t = pf.backbone_frames(*z["pos"][:, :3].unbind(1))
    error = {}
    for offset in (math.pi, 0.0):
        atoms = pf.full_atom_reconstruction(R, t, z["torsion"], z["aa"], psi_offset=offset)
        error[offset] = (atoms[:, 3] - z["pos"][:, 3]).norm(dim=-1)
    assert error[math.pi].max() < 0.1
    assert error[0.0].mean() == pytest.approx(2.13, abs=0.05)
    default = pf.full_atom_reconstruction(R, t, z["torsion"], z["aa"])
    here = pf.ATOM_MASK[z["aa"]]
    rmsd = (default - z["pos"][:, :14])[here].square().sum(-1).mean().sqrt()
    assert rmsd < 0.35


@pytest.mark.equation("eq-pepflow-offset")
def test_oxygen_is_trans_to_the_next_nitrogen(complexes):
    """E8: in the planar peptide bond, the dihedrals to O and to the next N differ by half a turn."""
    row = complexes["1BD2"]
    pos = row["pos"][row["gen_mask"]].double()
    to_next = dihedrals(pos[:-1, 0], pos[:-1, 1], pos[:-1, 2], pos[1:, 0])
    to_o = row["torsion"][row["gen_mask"]][:-1, 0].double()
    assert (pf.torus_log(to_next, to_o).abs() - math.pi).abs().max() < 0.15


def test_reconstruction_moves_rigidly_and_batches():
    R, t, angles = (
        haar(6, 1).reshape(2, 3, 3, 3),
        torch.randn(2, 3, 3, generator=gen(), dtype=F64),
        torch.rand(2, 3, 5, generator=gen(), dtype=F64),
    )
    aa = torch.tensor([[0, 14, 18], [20, 21, 7]])
    x = pf.full_atom_reconstruction(R, t, angles, aa)
    assert x.shape == (2, 3, 14, 3)
    assert x.isfinite().all()
    Q, shift = haar(1, 9)[0], torch.ones(3, dtype=F64)
    y = pf.full_atom_reconstruction(Q @ R, t @ Q.T + shift, angles, aa)
    torch.testing.assert_close(y, x @ Q.T + shift, rtol=0, atol=1e-10)
    single = pf.full_atom_reconstruction(R[0, 1], t[0, 1], angles[0, 1], aa[0, 1])
    torch.testing.assert_close(single, x[0, 1], rtol=0, atol=1e-12)
    assert pf.full_atom_reconstruction(R.float(), t.float(), angles.float(), aa).dtype == torch.float32


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        ({"angles": torch.zeros(3, 4)}, ValueError, "angles must have shape"),
        ({"aa": torch.zeros(3)}, TypeError, "integer"),
        ({"R": torch.zeros(3, 3)}, ValueError, "R must have shape"),
        ({"t": [0.0, 0.0, 0.0]}, TypeError, "t must be a floating"),
    ],
)
def test_reconstruction_rejects(bad, error, match):
    good = {
        "R": torch.eye(3).repeat(3, 1, 1),
        "t": torch.zeros(3, 3),
        "angles": torch.zeros(3, 5),
        "aa": torch.zeros(3, dtype=torch.long),
    }
    with pytest.raises(error, match=match):
        pf.full_atom_reconstruction(**(good | bad))


def test_torsion_angles_rejects_and_masks():
    with pytest.raises(ValueError, match="14 or 15"):
        pf.torsion_angles(torch.zeros(2, 13, 3), torch.zeros(2, dtype=torch.long))
    pos = torch.randn(2, 15, 3, generator=gen(), dtype=F64)
    pos[1, 5] = float("nan")
    angles, mask = pf.torsion_angles(pos, torch.tensor([8, 8]))  # lysine
    assert mask[0].all()
    assert mask[1].tolist() == [True, False, False, False, False]
    assert (angles[~mask] == 0).all()
    np.testing.assert_array_equal(angles.isfinite().numpy(), True)


def test_frames_reject():
    with pytest.raises(ValueError, match="one shape"):
        pf.backbone_frames(torch.zeros(2, 3), torch.zeros(3, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="three coordinates"):
        pf.backbone_frames(torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 2))
