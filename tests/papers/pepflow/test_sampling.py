"""The prior, sampling in all its modes, bad batches."""

import math

import pytest
import torch

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.batches import repeat

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.equation("eq-pepflow-prior")
def test_prior_is_a_projected_normal(model, random_state):
    """E13: peptide means are zero; each coordinate has variance 1 - 1/n, two residues covariance -1/n."""
    n, B = 4, 20_000
    x1 = random_state(1, n + 2)
    x1 = pf.State(*(a.expand(B, *a.shape[1:]) for a in x1))
    mask = torch.tensor([[0, 1, 1, 1, 1, 0]]).bool().expand(B, -1)
    x0 = model.prior(x1, mask, gen())
    x = x0.trans[:, 1:5]
    assert x.mean(1).abs().max() < 1e-12
    flat = x.permute(0, 2, 1).reshape(-1, n)
    cov = flat.T @ flat / len(flat)
    projection = torch.eye(n, dtype=F64) - 1 / n
    assert (cov - projection).abs().max() < 4 * math.sqrt(2 / len(flat))
    for a, b in zip(x0, x1, strict=True):
        assert torch.equal(a[:, [0, 5]], b[:, [0, 5]])
    assert x0.logits[:, 1].std() == pytest.approx(5.0, rel=0.02)
    assert x0.angles[:, 1:5].mean() == pytest.approx(math.pi, rel=0.02)


def test_same_generator_same_sample(model, batch):
    one, two, other = (model.sample(batch, 3, generator=gen(s)) for s in (0, 0, 1))
    for key, value in one.items():
        assert torch.equal(value, two[key]), key
    assert not torch.equal(one["trans"], other["trans"])


def test_sampling_touches_no_global_state(model, batch, global_random_state):
    before = global_random_state()
    model.sample(batch, 2, generator=gen())
    model.loss(batch, gen())
    assert global_random_state() == before


@pytest.mark.parametrize("integrator", ["geodesic", "released"])
@pytest.mark.parametrize("flags", [(1, 1, 0), (0, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0)])
def test_fixed_modalities_stay_bit_for_bit(model, batch, flags, integrator):
    bb, ang, seq = (bool(f) for f in flags)
    out = model.sample(
        batch, 3, sample_bb=bb, sample_ang=ang, sample_seq=seq, generator=gen(), integrator=integrator
    )
    x1, rows, hidden = model.clean(batch), batch["gen_mask"], ~batch["gen_mask"]
    for key, free in (("rotmats", bb), ("trans", bb), ("angles", ang)):
        clean = getattr(x1, key)
        assert torch.equal(out[key][hidden], clean[hidden]), key
        assert torch.equal(out[key][rows], clean[rows]) != free, key
    assert torch.equal(out["seq"][hidden], batch["aa"][hidden])
    assert seq or torch.equal(out["seq"], batch["aa"])


def test_sample_is_consistent(model, batch):
    out = model.sample(batch, 3, generator=gen())
    rows = batch["gen_mask"]
    B, L = rows.shape
    assert out["pos14"].shape == (B, L, 14, 3)
    assert ((out["seq"] >= 0) & (out["seq"] < 20))[rows].all()
    absent = ~pf.TORSION_MASK[out["seq"].clamp_max(20)] & rows.unsqueeze(-1)
    assert (out["angles"][absent] == 0).all()
    assert ((out["angles"] >= 0) & (out["angles"] < 2 * math.pi)).all()
    rebuilt = pf.full_atom_reconstruction(out["rotmats"], out["trans"], out["angles"], out["seq"])
    assert torch.equal(rebuilt, out["pos14"])
    # bonds inside a residue are the table's, whatever the network says
    n_ca = (out["pos14"][..., 0, :] - out["pos14"][..., 1, :]).norm(dim=-1)[rows]
    assert ((n_ca > 1.44) & (n_ca < 1.48)).all()
    gram = out["rotmats"].mT @ out["rotmats"]
    assert (gram - torch.eye(3, dtype=F64))[rows].abs().max() < 1e-9


def test_float32_batches_and_many_copies(batch, sizes):
    net = pf.PepFlow(pf.PepFlowConfig(**sizes), generator=gen())
    out = net.sample(repeat(batch, 2), 2, generator=gen())  # a float64 batch, float32 weights
    assert out["trans"].dtype == torch.float32
    assert out["trans"].shape[0] == 4
    assert not torch.equal(out["trans"][0], out["trans"][1])
    losses = net.loss(batch, gen())
    assert {v.dtype for v in losses.values()} == {torch.float32}
    assert all(v.ndim == 0 and v.isfinite() for v in losses.values())


def test_clean_state(model, batch):
    x1 = model.clean(batch)
    rows = batch["res_mask"]
    assert torch.equal(x1.trans, batch["pos"][..., 1, :])
    assert torch.equal(x1.angles, batch["torsion"])
    assert torch.equal(x1.logits.argmax(-1)[rows], batch["aa"][rows])
    assert torch.equal(x1.rotmats[~rows], torch.eye(3, dtype=F64).expand_as(x1.rotmats[~rows]))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_steps": 1}, "at least 2"),
        ({"n_steps": 2.5}, "integer"),
        ({"n_steps": 3, "integrator": "heun"}, "geodesic"),
        ({"n_steps": 3, "sample_bb": False, "sample_ang": False, "sample_seq": False}, "nothing to sample"),
    ],
)
def test_sample_rejects(model, batch, arguments, match):
    with pytest.raises(ValueError, match=match):
        model.sample(batch, **arguments)


def broken(batch, key, value):
    return batch | {key: value}


@pytest.mark.parametrize("method", ["clean", "encode", "loss", "sample"])
def test_every_method_names_a_missing_key(model, batch, method):
    for key in batch:
        with pytest.raises(KeyError, match=key):
            getattr(model, method)({k: v for k, v in batch.items() if k != key})


def test_bad_batches(model, batch):
    gen_mask, none = batch["gen_mask"], torch.zeros_like(batch["gen_mask"])
    no_ca = batch["atom_mask"].clone()
    b, i = gen_mask.nonzero()[2].tolist()
    no_ca[b, i, 1] = False
    cases = [
        ("torsion", batch["torsion"][..., :4], "torsion must be"),
        ("pos", batch["pos"][:, :, :14], "pos must be"),
        ("aa", batch["aa"][:, :-1], "as aa is"),
        ("aa", batch["aa"].double(), "aa must be of integer"),
        ("aa", torch.full_like(batch["aa"], 22), "0 .. 21"),
        ("gen_mask", gen_mask.long(), "gen_mask must be a bool"),
        ("gen_mask", none, "selects no residue"),
        ("gen_mask", batch["res_mask"], "no receptor"),
        ("atom_mask", no_ca, rf"residue {int(batch['res_nb'][b, i])} .*lacks N, CA or C"),
        ("pos", torch.full_like(batch["pos"], float("nan")), "finite"),
    ]
    for key, value, match in cases:
        with pytest.raises(ValueError, match=match):
            model.loss(broken(batch, key, value))


def test_single_rows_must_be_collated(model, complexes):
    with pytest.raises(ValueError, match="collate"):
        model.clean(complexes["1BD2"])
