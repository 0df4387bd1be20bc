"""The released code's numbers, at the tolerances they allow."""

import pytest
import torch

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.embedders import EdgeEmbedder


@pytest.fixture(scope="module")
def net(parity, sizes):
    z = parity("network")
    model = pf.PepFlow(pf.PepFlowConfig(**sizes))
    model.load_state_dict({k[2:]: v for k, v in z.items() if k.startswith("w.")}, strict=True)
    return model.eval()


@pytest.fixture(scope="module")
def stored_batch(parity):
    z = parity("structure")
    keys = ("aa", "res_nb", "chain_nb", "pos", "atom_mask", "gen_mask", "torsion")
    batch = {key: z[key].unsqueeze(0) for key in keys}
    return batch | {"res_mask": torch.ones_like(batch["gen_mask"])}


def close(a, b, tol):
    torch.testing.assert_close(a, b.to(a.dtype), rtol=0, atol=tol)


def test_configuration_is_the_stored_one(parity, sizes):
    assert {k[4:]: int(v) for k, v in parity("network").items() if k.startswith("cfg_")} == sizes


def test_rotations(parity):
    z = parity("geometry")
    close(pf.so3_exp(z["rotvec"]), z["R_exp"], 1e-7)
    close(pf.so3_log(z["R_exp"]), z["log"], 1e-7)
    close(pf.so3_log(z["R_exp"]), z["log_scipy"], 1e-7)
    close(pf.so3_geodesic(z["t"], z["R1"], z["R0"]), z["geodesic"], 1e-7)


def test_angles_and_logits(parity):
    z = parity("geometry")
    close(pf.torus_log(z["ang_a"], z["ang_b"]), z["ang_log"], 1e-7)
    along = pf.torus_geodesic(z["t"], z["ang_b"], z["ang_a"])
    assert pf.torus_log(along, z["ang_geo"]).abs().max() <= 1e-7
    close(pf.sequence_to_logits(z["seq"], dtype=torch.float64), z["seq_logits"], 1e-7)


def test_frames_torsions_atoms(parity):
    z = parity("structure")
    R, t = pf.backbone_frames(z["pos"][:, 0], z["pos"][:, 1], z["pos"][:, 2])
    close(R, z["frames"], 1e-4)
    angles, mask = pf.torsion_angles(z["pos"], z["aa"])
    assert torch.equal(mask, z["torsion_mask"])
    close(angles, z["torsion"], 1e-4)
    atoms = pf.full_atom_reconstruction(R, t, z["torsion"], z["aa"], psi_offset=0.0)
    here = z["pos14_mask"]
    assert torch.equal(pf.ATOM_MASK[z["aa"]], here)
    close(atoms[here], z["pos14"][here], 1e-4)


def test_embedders(net, stored_batch, parity):
    z = parity("network")
    node, edge = net.encode(stored_batch)
    close(node, z["node"], 1e-4)
    close(edge, z["edge"], 3e-3)  # the reference clamps an arccosine in its dihedrals


def test_interpolation_denoiser_losses(net, stored_batch, parity):
    z = parity("network")
    gen = stored_batch["gen_mask"]
    x1 = net.clean(stored_batch)
    weight = gen.float().unsqueeze(-1)
    x0 = z["noise_x"] - (z["noise_x"] * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
    noise = pf.State(z["noise_R"], x0, z["noise_a"], net.cfg.simplex_value * z["noise_l"])
    xt = pf.interpolate(x1, noise, z["t"], gen)
    for name, value in zip("Rxal", xt, strict=True):
        close(value, z[f"xt_{name}"], 1e-4)
    pred = net.ga_encoder(
        z["t"], *(z[f"xt_{n}"] for n in "Rxa"), z["seq_t"], z["node"], z["edge"], stored_batch["res_mask"]
    )
    for name, value in zip("Rxal", pred, strict=True):
        close(value, z[f"pred_{name}"], 1e-4)
    losses = pf.flow_losses(*pred, x1, xt, stored_batch["aa"], z["t"], gen, pf.TORSION_MASK[z["pred_seq"]])
    stored = {"seq": "seqs"}
    for name, value in losses.items():
        torch.testing.assert_close(value, z[f"loss.{stored.get(name, name)}_loss"], rtol=1e-3, atol=0)


def test_attention(parity):
    z = parity("network")
    ipa = pf.InvariantPointAttention(16, 8, 8, 2, 3, 4)
    ipa.load_state_dict({k[4:]: v for k, v in z.items() if k.startswith("ipa.")}, strict=True)
    out = ipa(z["ipa_s"], z["ipa_z"], z["xt_R"], z["xt_x"], z["ipa_mask"])
    rows = z["ipa_mask"].bool()  # on absent rows a bias of -1e5 eats the float32 digits of either side
    close(out[rows], z["ipa_out"][rows], 1e-4)


def test_distance_coefficients_start_at_zero():
    assert EdgeEmbedder(8).aapair_to_distcoef.weight.abs().max() == 0
