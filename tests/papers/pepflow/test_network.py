"""Attention, embedders, denoiser: symmetries, leaks, padding, gradients."""

import math

import numpy as np
import pytest
import torch

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.batches import collate
from icml24.papers.pepflow.encoder import FrameUpdate, time_embedding

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def moved(batch, Q, shift):
    pos = batch["pos"] @ Q.T.to(batch["pos"]) + shift.to(batch["pos"])
    return batch | {"pos": torch.where(batch["atom_mask"].unsqueeze(-1), pos, torch.zeros_like(pos))}


def denoise(model, batch, state, t):
    node, edge = model.encode(batch)
    aa = batch["aa"]
    return model.ga_encoder(t, *state[:3], aa, node, edge, batch["res_mask"])


MOTION = pf.random_so3((), generator=gen(4), dtype=F64), torch.tensor([11.0, -7.0, 4.0], dtype=F64)


def reference_attention(ipa, s, z, R, t, mask):
    """The definition, one pair of residues and one head at a time."""
    L, H, c, P, V = len(s), ipa.no_heads, ipa.c_hidden, ipa.no_qk_points, ipa.no_v_points
    q = ipa.linear_q(s).reshape(L, H, c)
    kv = ipa.linear_kv(s).reshape(L, H, 2 * c)
    world = lambda f, i: R[i] @ f[i].reshape(3, -1) + t[i][:, None]  # noqa: E731  columns: points
    q_pts = [world(ipa.linear_q_points(s), i).reshape(3, H, P) for i in range(L)]
    kv_pts = [world(ipa.linear_kv_points(s), i).reshape(3, H, P + V) for i in range(L)]
    bias, down = ipa.linear_b(z), ipa.down_z(z)
    weight = torch.log1p(ipa.head_weights.exp()) * math.sqrt(2 / (27 * P))
    scalars, points, pairs = [], [], []
    for i in range(L):
        for h in range(H):
            logit = torch.stack(
                [
                    q[i, h] @ kv[j, h, :c] / math.sqrt(3 * c)
                    + bias[i, j, h] / math.sqrt(3)
                    - 0.5 * weight[h] * (q_pts[i][:, h] - kv_pts[j][:, h, :P]).square().sum()
                    - (0.0 if mask[j] else math.inf)
                    for j in range(L)
                ]
            )
            a = torch.softmax(logit, 0)
            scalars.append(sum(a[j] * kv[j, h, c:] for j in range(L)))
            mean = sum(a[j] * kv_pts[j][:, h, P:] for j in range(L))
            points.append(R[i].T @ (mean - t[i][:, None]))
            pairs.append(sum(a[j] * down[i, j] for j in range(L)))
    rows = []
    for i in range(L):
        p = torch.cat(points[i * H : (i + 1) * H], dim=1)
        norm = (p.square().sum(0) + 1e-8).sqrt()
        rows.append(
            torch.cat((*scalars[i * H : (i + 1) * H], p.flatten(), norm, *pairs[i * H : (i + 1) * H]))
        )
    return ipa.linear_out(torch.stack(rows))


@pytest.fixture
def attention():
    ipa = pf.InvariantPointAttention(12, 8, 5, 3, 2, 4).double()
    g = gen(2)
    with torch.no_grad():
        for p in ipa.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=g, dtype=F64))
    L = 6
    s, z = torch.randn(1, L, 12, generator=g, dtype=F64), torch.randn(1, L, L, 8, generator=g, dtype=F64)
    R, t = pf.random_so3((1, L), generator=g, dtype=F64), 2 * torch.randn(1, L, 3, generator=g, dtype=F64)
    return ipa, s, z, R, t, torch.tensor([[1, 1, 0, 1, 1, 1]]).bool()


@pytest.mark.equation("eq-pepflow-ipa")
def test_attention_is_its_definition(attention):
    ipa, s, z, R, t, mask = attention
    ours = ipa(s, z, R, t, mask)[0]
    reference = reference_attention(ipa, s[0], z[0], R[0], t[0], mask[0])
    torch.testing.assert_close(ours[mask[0]], reference[mask[0]], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ipa(s, z, R, t, mask.double()), ipa(s, z, R, t, mask))


@pytest.mark.equation("eq-pepflow-ipa")
def test_attention_is_invariant(attention):
    """E7: moving all frames changes nothing."""
    ipa, s, z, R, t, mask = attention
    Q, shift = MOTION
    torch.testing.assert_close(
        ipa(s, z, Q @ R, t @ Q.T + shift, mask), ipa(s, z, R, t, mask), rtol=0, atol=1e-9
    )


def test_attention_rejects():
    with pytest.raises(ValueError, match="divisible by 4"):
        pf.InvariantPointAttention(8, 6, 4, 2, 2, 2)
    with pytest.raises(ValueError, match="at least 1"):
        pf.InvariantPointAttention(8, 8, 4, 0, 2, 2)
    ipa = pf.InvariantPointAttention(8, 4, 4, 2, 2, 2)
    with pytest.raises(ValueError, match="z must start"):
        ipa(
            torch.zeros(1, 3, 8),
            torch.zeros(1, 3, 2, 4),
            torch.zeros(1, 3, 3, 3),
            torch.zeros(1, 3, 3),
            torch.ones(1, 3),
        )


@pytest.mark.equation("eq-pepflow-update")
def test_frame_update_is_a_rigid_motion_in_the_own_frame():
    update = FrameUpdate(4).double()
    s = torch.randn(1, 9, 4, generator=gen(), dtype=F64)
    with torch.no_grad():
        update.linear.weight.copy_(torch.randn(6, 4, generator=gen(1), dtype=F64))
    R, x = (
        pf.random_so3((1, 9), generator=gen(2), dtype=F64),
        torch.randn(1, 9, 3, generator=gen(3), dtype=F64),
    )
    mask = torch.ones(1, 9, 1, dtype=F64)
    mask[0, 0] = 0
    R2, x2 = update(s, R, x, mask)
    assert torch.equal(x2[0, 0], x[0, 0])
    assert (R2[0, 0] - R[0, 0]).abs().max() < 1e-15
    q, v = (update.linear(s)).split(3, -1)
    angle = 2 * torch.atan(q.norm(dim=-1))  # of the quaternion (1, q): twice the arctangent
    turn = pf.so3_log(R.mT @ R2)
    torch.testing.assert_close(turn.norm(dim=-1)[0, 1:], torch.minimum(angle, 2 * math.pi - angle)[0, 1:])
    assert torch.linalg.cross(turn, q)[0, 1:].abs().max() < 1e-9
    torch.testing.assert_close((R.mT @ (x2 - x).unsqueeze(-1)).squeeze(-1)[0, 1:], v[0, 1:])
    Q, shift = MOTION
    R3, x3 = update(s, Q @ R, x @ Q.T + shift, mask)
    torch.testing.assert_close(R3, Q @ R2)
    torch.testing.assert_close(x3, x2 @ Q.T + shift)


@pytest.mark.equation("eq-pepflow-equivariance")
@pytest.mark.parametrize(("dtype", "tol"), [(F64, 1e-5), (torch.float32, 1e-4)])
def test_network_is_equivariant(model, batch, random_state, dtype, tol):
    """E7: frames move along, logits and angles stay."""
    import copy

    net = copy.deepcopy(model).to(dtype)
    B, L = batch["aa"].shape
    state = pf.State(*(a.to(dtype) for a in random_state(B, L)))
    t = torch.tensor([0.3, 0.8], dtype=dtype)
    Q, shift = (m.to(dtype) for m in MOTION)
    there = state._replace(rotmats=Q @ state.rotmats, trans=state.trans @ Q.T + shift)
    R, x, a, s = denoise(net, batch, state, t)
    R2, x2, a2, s2 = denoise(net, moved(batch, *MOTION), there, t)
    rows = batch["res_mask"]
    assert (Q @ R - R2)[rows].abs().max() < tol
    assert (x @ Q.T + shift - x2)[rows].abs().max() < tol
    assert pf.torus_log(a, a2)[rows].abs().max() < tol
    assert (s - s2)[rows].abs().max() < tol


def test_hidden_peptide_does_not_leak(model, batch):
    """Types and atoms of the generated rows change nothing at all."""
    node, edge = model.encode(batch)
    gen_mask = batch["gen_mask"]
    other = batch | {
        "aa": torch.where(gen_mask, (batch["aa"] + 7) % 20, batch["aa"]),
        "pos": batch["pos"]
        + torch.where(gen_mask[..., None, None], torch.randn(1, 1, 15, 3, generator=gen()), 0.0),
    }
    node2, edge2 = model.encode(other)
    assert torch.equal(node, node2)
    assert torch.equal(edge, edge2)


def test_receptor_does_speak(model, batch):
    node, edge = model.encode(batch)
    receptor = ~batch["gen_mask"] & batch["res_mask"]
    node2, edge2 = model.encode(batch | {"aa": torch.where(receptor, (batch["aa"] + 7) % 20, batch["aa"])})
    assert (node - node2)[receptor].abs().max() > 1e-3
    assert (edge - edge2).abs().max() > 1e-3


def test_padding_does_not_leak(model, batch, random_state):
    B, L = batch["aa"].shape
    state, t = random_state(B, L), torch.tensor([0.3, 0.8], dtype=F64)
    padded = denoise(model, batch, state, t)
    n = int(batch["res_mask"][0].sum())
    assert n < L
    alone = {k: v[:1, :n] for k, v in batch.items()}
    single = denoise(model, alone, pf.State(*(a[:1, :n] for a in state)), t[:1])
    for a, b in zip(padded, single, strict=True):
        torch.testing.assert_close(a[:1, :n], b, rtol=0, atol=1e-5)


def test_gradients_are_finite_with_padding_and_absent_atoms(model, batch):
    receptor_row = 3
    mask = batch["atom_mask"].clone()
    mask[:, receptor_row, 5:] = False
    out = model.loss(batch | {"atom_mask": mask}, gen())
    sum(out[k] * w for k, w in pf.LOSS_WEIGHTS.items()).backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None]
    assert not silent
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model.zero_grad()


def test_time_embedding_by_hand():
    e = time_embedding(torch.tensor([0.5], dtype=F64), 4)[0]
    assert e.tolist() == pytest.approx(
        [math.sin(1028), math.sin(0.5), math.cos(1028), math.cos(0.5)], abs=1e-9
    )


def test_initial_weights_follow_their_laws_and_the_generator(global_random_state):
    cfg = pf.PepFlowConfig(c_s=64, c_z=16, c_hidden=16, no_heads=4, num_blocks=2, seq_tfmr_num_layers=1)
    before = global_random_state()
    a, b = (pf.PepFlow(cfg, generator=gen(3)) for _ in range(2))
    assert global_random_state() == before
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert torch.equal(p, q), name
    ipa = a.ga_encoder.trunk["ipa_0"]
    assert ipa.linear_kv.weight.detach().std() == pytest.approx(64**-0.5, rel=0.05)
    assert a.ga_encoder.trunk["node_transition_0"].linear_1.weight.detach().std() == pytest.approx(
        (2 / 64) ** 0.5, rel=0.05
    )
    zero = ("linear_out", "post_tfmr", "linear_3", "final_layer", "bb_update", "distcoef")
    for name, p in a.named_parameters():
        if any(z in name for z in zero):
            assert p.abs().max() == 0, name
    assert torch.nn.functional.softplus(ipa.head_weights).detach().numpy() == pytest.approx(1.0)


def test_denoiser_starts_at_the_identity(batch, random_state):
    """All frame updates start at zero, so the first prediction of a fresh network is the noisy frame."""
    cfg = pf.PepFlowConfig(c_s=16, c_z=8, c_hidden=8, no_heads=2, num_blocks=2)
    net = pf.PepFlow(cfg, generator=gen()).double()
    state = random_state(*batch["aa"].shape)
    R, x, _, _ = denoise(net, batch, state, torch.tensor([0.3, 0.8], dtype=F64))
    torch.testing.assert_close(R, state.rotmats)
    torch.testing.assert_close(x, state.trans)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"c_s": 15}, "even"),
        ({"c_s": 10, "seq_tfmr_num_heads": 4}, "divisible by the transformer"),
        ({"c_z": 6}, "divisible by 4"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"c_hidden": 2.5}, "integer"),
        ({"c_s": 16.0}, "integer"),
        ({"sigma": 0.0}, "sigma"),
        ({"min_t": 0.7}, "min_t"),
    ],
)
def test_configuration_rejects(change, match):
    with pytest.raises(ValueError, match=match):
        pf.PepFlowConfig(**change)


def test_official_sizes_are_the_defaults():
    assert pf.PepFlowConfig(c_s=np.int64(16)).c_s == 16  # any kind of integer
    cfg = pf.PepFlowConfig()
    assert (cfg.c_s, cfg.c_z, cfg.c_hidden, cfg.no_heads, cfg.no_qk_points, cfg.no_v_points) == (
        128,
        64,
        128,
        8,
        8,
        12,
    )
    assert (cfg.seq_tfmr_num_heads, cfg.seq_tfmr_num_layers, cfg.num_blocks) == (4, 2, 6)


def test_encoder_rejects_wrong_shapes(model, batch, random_state):
    state = random_state(*batch["aa"].shape)
    node, edge = model.encode(batch)
    t = torch.tensor([0.1, 0.2], dtype=F64)
    good = {"R": state.rotmats, "x": state.trans, "angles": state.angles, "node": node, "edge": edge}
    good["res_mask"] = batch["res_mask"]
    for name, value in good.items():
        inputs = good | {name: value[:, :-1]}
        with pytest.raises(ValueError, match=f"{name} must have shape"):
            model.ga_encoder(t=t, seq=batch["aa"], **inputs)
    with pytest.raises(ValueError, match="angles must have shape"):
        denoise(
            model, batch, state._replace(angles=state.angles[..., :4]), torch.tensor([0.1, 0.2], dtype=F64)
        )


def test_collate_pads(complexes):
    rows = list(complexes.values())
    short = {k: v[:-3] for k, v in rows[0].items()}
    out = collate([rows[1], short])
    assert out["aa"][1, -3:].tolist() == [21, 21, 21]
    assert not out["res_mask"][1, -3:].any()
    with pytest.raises(ValueError, match="no complexes"):
        collate([])
