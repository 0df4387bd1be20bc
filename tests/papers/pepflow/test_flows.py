"""Paths, Euler steps, losses, the line on which everything is known."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.spatial.transform import Rotation

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.matching import binned_field, conditional_draws, marginal_field
from icml24.papers.pepflow.simplex import draw_types

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def everywhere(state):
    return torch.ones(state.trans.shape[:2], dtype=torch.bool)


# -- flow matching on a line -----------------------------------------------------------------

POINTS, WEIGHTS = torch.tensor([-1.0, 2.0], dtype=F64), torch.tensor([0.3, 0.7], dtype=F64)


@pytest.mark.equation("eq-pepflow-cfm")
@pytest.mark.parametrize("t", [0.2, 0.6])
def test_regression_finds_the_marginal_field(t):
    """E1: least squares on single targets recovers the closed form at four standard errors."""
    xt, target = conditional_draws(400_000, t, POINTS, WEIGHTS, generator=gen())
    x, mean, error = binned_field(xt, target, torch.linspace(-2, 3, 101, dtype=F64))
    use = error.isfinite() & (error < 0.05)
    assert use.sum() > 40
    gap = (mean - marginal_field(x, t, POINTS, WEIGHTS))[use].abs()
    curvature = 2e-3  # the field bends inside a bin of width 0.05
    assert (gap < 4 * error[use] + curvature).all()


@pytest.mark.equation("eq-pepflow-cfm")
def test_gradients_of_both_losses_agree():
    """E1: for a linear model, the gradient against single targets is that against the marginal field."""
    t, n = 0.4, 1_000_000
    xt, target = conditional_draws(n, t, POINTS, WEIGHTS, generator=gen(1))
    basis = torch.stack((torch.ones_like(xt), xt, xt.sin()), dim=-1)
    model = basis @ torch.tensor([0.5, -0.2, 0.1], dtype=F64)
    gradients = [(model - u).unsqueeze(-1) * basis for u in (target, marginal_field(xt, t, POINTS, WEIGHTS))]
    gap = gradients[0] - gradients[1]
    assert (gap.mean(0).abs() < 4 * gap.std(0) / n**0.5).all()


def test_field_needs_a_time_before_one():
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        marginal_field(torch.zeros(1), 1.0, POINTS, WEIGHTS)


# -- paths -----------------------------------------------------------------------------------


@pytest.mark.equation("eq-pepflow-paths")
def test_paths_start_at_noise_and_end_at_data(random_state):
    x0, x1 = random_state(2, 6), random_state(2, 6, 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 1, 1]]).bool()
    for t, expected in ((0.0, x0), (1.0, x1)):
        xt = pf.interpolate(x1, x0, torch.full((2,), t, dtype=F64), mask)
        assert (xt.rotmats - expected.rotmats)[mask].abs().max() < 1e-9
        assert (xt.trans - expected.trans)[mask].abs().max() < 1e-12
        assert pf.torus_log(xt.angles, expected.angles)[mask].abs().max() < 1e-12
        assert (xt.logits - expected.logits)[mask].abs().max() < 1e-12
        for a, b in zip(xt, x1, strict=True):
            assert torch.equal(a[~mask], b[~mask])


@pytest.mark.equation("eq-pepflow-paths")
def test_speeds_are_constant(random_state):
    """Half of each path, measured from either end, in the metric of its space."""
    x0, x1 = random_state(1, 50), random_state(1, 50, 1)
    t = torch.tensor([0.3], dtype=F64)
    xt = pf.interpolate(x1, x0, t, everywhere(x1))
    for ratio in (
        pf.so3_log(x0.rotmats.mT @ xt.rotmats).norm(dim=-1)
        / pf.so3_log(x0.rotmats.mT @ x1.rotmats).norm(dim=-1),
        (xt.trans - x0.trans).norm(dim=-1) / (x1.trans - x0.trans).norm(dim=-1),
        pf.torus_log(x0.angles, xt.angles) / pf.torus_log(x0.angles, x1.angles),
        (xt.logits - x0.logits) / (x1.logits - x0.logits),
    ):
        assert (ratio - 0.3).abs().max() < 1e-8


@pytest.mark.parametrize(
    ("t", "mask", "match"),
    [
        (torch.zeros(3), torch.ones(2, 4).bool(), "one time a complex"),
        (torch.tensor([0.5, 1.5]), torch.ones(2, 4).bool(), r"\[0, 1\]"),
        (torch.tensor([0.5, float("nan")]), torch.ones(2, 4).bool(), r"\[0, 1\]"),
        (torch.zeros(2), torch.ones(2, 4), "bool"),
        (torch.zeros(2), torch.ones(2, 5).bool(), "gen_mask"),
    ],
)
def test_interpolate_rejects(random_state, t, mask, match):
    with pytest.raises(ValueError, match=match):
        pf.interpolate(random_state(2, 4), random_state(2, 4, 1), t, mask)


def test_interpolate_rejects_four_angles(random_state):
    x = random_state(1, 3)
    with pytest.raises(ValueError, match="angles of x1"):
        pf.interpolate(x._replace(angles=x.angles[..., :4]), x, torch.zeros(1), everywhere(x))


# -- simplex ---------------------------------------------------------------------------------


@pytest.mark.equation("eq-pepflow-simplex")
def test_probability_of_the_true_type_grows():
    """E6: from 1/20 on average to 1 / (1 + 19 e^{-2k}), without a turn."""
    clean = pf.sequence_to_logits(torch.zeros(20_000, dtype=torch.long), dtype=F64)
    noise = 5 * torch.randn(20_000, 20, generator=gen(), dtype=F64)
    p = [
        torch.softmax((1 - t) * noise + t * clean, -1)[:, 0].mean().item() for t in (0, 0.2, 0.4, 0.6, 0.8, 1)
    ]
    assert p[0] == pytest.approx(0.05, abs=4 * 0.17 / 20_000**0.5)
    assert p == sorted(p)
    assert p[-1] == pytest.approx(1 / (1 + 19 * math.exp(-10)), rel=1e-12)
    assert p[-1] == pytest.approx(0.99914, abs=5e-6)


def test_logits_of_types():
    out = pf.sequence_to_logits(torch.tensor([[3, 20, -1]]), k=2.0, dtype=F64)
    assert out.shape == (1, 3, 20)
    assert out.dtype == F64
    assert out[0, 0].tolist() == [2.0 if k == 3 else -2.0 for k in range(20)]
    assert (out[0, 1:] == -2.0).all()
    assert pf.sequence_to_logits(torch.zeros(0, dtype=torch.long)).shape == (0, 20)
    for bad, error in ((torch.zeros(2), TypeError), ([1, 2], TypeError)):
        with pytest.raises(error, match="integer"):
            pf.sequence_to_logits(bad)
    for k in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            pf.sequence_to_logits(torch.tensor([1]), k=k)


def test_drawn_types_follow_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -50.0], dtype=F64).expand(100_000, 4)
    share = torch.bincount(draw_types(logits, generator=gen()), minlength=4) / 100_000
    assert (share - torch.softmax(logits[0], -1)).abs().max() < 4 * 0.5 / 100_000**0.5


# -- Euler -----------------------------------------------------------------------------------


def integrate(x0, target, n, **kwargs):
    times = torch.linspace(0.01, 1.0, n, dtype=F64).tolist()
    xt = x0
    for a, b in pairwise(times):
        xt = pf.euler_step(xt, target, a, b - a, x0=x0, **kwargs)
    return xt


@pytest.mark.equation("eq-pepflow-euler")
@pytest.mark.parametrize("n", [2, 3, 10, 57])
def test_exact_field_arrives_for_any_step_count(random_state, n):
    """E9: with a constant target the product of (1 - r) is zero at the last step."""
    x0, x1 = random_state(2, 5), random_state(2, 5, 1)
    end = integrate(x0, x1, n, rot_rate=None)
    assert (end.rotmats - x1.rotmats).abs().max() < 1e-9
    assert (end.trans - x1.trans).abs().max() < 1e-12
    assert pf.torus_log(end.angles, x1.angles).abs().max() < 1e-12
    assert (end.logits - x1.logits).abs().max() < 1e-12


@pytest.mark.equation("eq-pepflow-euler")
def test_steps_follow_the_straight_path(random_state):
    """E9: before the end too, Euler with the exact field is on the interpolant, not only at its end."""
    x0, x1 = random_state(1, 5), random_state(1, 5, 1)
    t, h = 0.37, 0.2
    xt = pf.interpolate(x1, x0, torch.tensor([t], dtype=F64), everywhere(x1))
    there = pf.interpolate(x1, x0, torch.tensor([t + h], dtype=F64), everywhere(x1))
    step = pf.euler_step(xt, x1, t, h, rot_rate=None)
    for a, b in zip(step, there, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.equation("eq-pepflow-released")
def test_released_steps_stop_short(random_state):
    """E9: angles keep (1 - h)^n of their error, about e^{-0.99}; positions and logits 1 %."""
    x0, x1 = random_state(1, 4), random_state(1, 4, 1)
    n = 100
    end = integrate(x0, x1, n, integrator="released")
    h = 0.99 / (n - 1)
    left = pf.torus_log(end.angles, x1.angles) / pf.torus_log(x0.angles, x1.angles)
    assert (left - (1 - h) ** (n - 1)).abs().max() < 1e-9
    assert float(left.mean()) == pytest.approx(math.exp(-0.99), abs=3e-3)
    for field in ("trans", "logits"):
        a, b, c = (getattr(s, field) for s in (end, x1, x0))
        torch.testing.assert_close(b - a, 0.01 * (b - c), rtol=0, atol=1e-9)


def test_rotations_stay_rotations_over_200_steps(random_state):
    """Bar of the chapter: orthonormal to 1e-5 in single precision, with a target that jumps."""
    xt = pf.State(*(x.float() for x in random_state(1, 8)))
    times = torch.linspace(0.01, 1, 200, dtype=F64).tolist()
    for k, (a, b) in enumerate(pairwise(times)):
        target = pf.State(*(x.float() for x in random_state(1, 8, k + 1)))
        xt = pf.euler_step(xt, target, a, b - a)
    assert (xt.rotmats.mT @ xt.rotmats - torch.eye(3)).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"integrator": "heun"}, "geodesic"),
        ({"integrator": "released"}, "x0"),
        ({"t": 1.0}, r"\[0, 1\)"),
        ({"h": 0.0}, "positive"),
        ({"h": float("nan")}, "positive"),
        ({"rot_rate": -1.0}, "rot_rate"),
    ],
)
def test_euler_rejects(random_state, change, match):
    arguments = {"t": 0.5, "h": 0.1} | change
    t, h = arguments.pop("t"), arguments.pop("h")
    with pytest.raises(ValueError, match=match):
        pf.euler_step(random_state(1, 2), random_state(1, 2, 1), t, h, **arguments)


# -- losses ----------------------------------------------------------------------------------


def losses(x1, xt, pred, t, gen=None, torsions=None, seq=None, **kwargs):
    B, L = x1.trans.shape[:2]
    seq = torch.zeros(B, L, dtype=torch.long) if seq is None else seq
    torsions = torch.ones(B, L, 5, dtype=torch.bool) if torsions is None else torsions
    return pf.flow_losses(*pred, x1, xt, seq, t, everywhere(x1) if gen is None else gen, torsions, **kwargs)


@pytest.mark.equation("eq-pepflow-fieldloss")
def test_position_loss_is_the_field_loss_times_one_minus_t_squared(random_state):
    """E2: |u' - u|^2 (1 - t)^2 of the conditional fields is |x' - x1|^2, the coded loss."""
    x1, pred, x0 = (random_state(3, 4, s) for s in range(3))
    t = torch.tensor([0.1, 0.5, 0.8], dtype=F64)
    xt = pf.interpolate(x1, x0, t, everywhere(x1))
    left = (1 - t)[:, None, None]
    u, v = (x1.trans - xt.trans) / left, (pred.trans - xt.trans) / left
    torch.testing.assert_close(u, x1.trans - x0.trans, rtol=0, atol=1e-12)
    field = ((u - v).square().sum(-1).mean(-1) * (1 - t) ** 2).mean()
    torch.testing.assert_close(losses(x1, xt, pred, t)["trans"], field, rtol=1e-12, atol=0)


def rotvec(a, b):
    """Rotation vectors from one state's frames to another's, by scipy."""
    return torch.from_numpy(Rotation.from_matrix((a.rotmats.mT @ b.rotmats)[0].numpy()).as_rotvec())


@pytest.mark.equation("eq-pepflow-rotloss")
def test_rotation_loss_compares_body_velocities(random_state):
    """kappa times the gap of rotation vectors is the gap of velocities while t <= 0.9; then it stops."""
    x1, pred, x0 = (random_state(1, 6, s) for s in range(3))
    for t in (0.2, 0.95):
        time = torch.tensor([t], dtype=F64)
        xt = pf.interpolate(x1, x0, time, everywhere(x1))
        gap = (rotvec(xt, pred) - rotvec(xt, x1)) / (1 - min(t, 0.9))
        expected = gap.square().sum(-1).mean()
        torch.testing.assert_close(losses(x1, xt, pred, time)["rot"], expected, rtol=1e-9, atol=0)
    assert losses(x1, xt, x1, time)["rot"] < 1e-12


@pytest.mark.equation("eq-pepflow-sincos")
def test_sine_cosine_loss_is_a_chord(random_state):
    """E10: (sin a - sin b)^2 + (cos a - cos b)^2 = 4 sin^2((a - b) / 2); half of it is the loss."""
    x1, pred, xt = (random_state(1, 7, s) for s in range(3))
    t = torch.tensor([0.5], dtype=F64)
    mask = torch.rand(1, 7, 5, generator=gen()) < 0.5
    out = losses(x1, xt, pred, t, torsions=mask)
    chord = 4 * torch.sin((pred.angles - x1.angles) / 2) ** 2
    torch.testing.assert_close(out["torsion"], chord[mask].mean() / 2, rtol=1e-12, atol=0)
    # a difference of wrapped velocities is the same difference, modulo a turn: kappa^2 = 4 apart
    torch.testing.assert_close(out["angle"], 4 * out["torsion"], rtol=1e-9, atol=0)


def test_backbone_atom_loss_by_hand(random_state):
    """A pure shift moves N, CA and C alike: three times its square; a turn about CA leaves CA."""
    x1 = random_state(1, 3)
    t = torch.tensor([0.5], dtype=F64)
    moved = x1._replace(trans=x1.trans + torch.tensor([0.0, 0.0, 2.0], dtype=F64))
    assert losses(x1, x1, moved, t)["bb_atom"] == pytest.approx(12.0)
    half = torch.diag(torch.tensor([-1.0, -1.0, 1.0], dtype=F64))
    turned = x1._replace(rotmats=x1.rotmats @ half)
    assert losses(x1, x1, turned, t)["bb_atom"] == pytest.approx(4 * (0.525**2 + 1.363**2 + 1.526**2))


def test_losses_read_generated_rows_only(random_state):
    x1, pred, xt = (random_state(2, 5, s) for s in range(3))
    gen_mask = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 1]]).bool()
    t = torch.tensor([0.3, 0.6], dtype=F64)
    seq = torch.randint(0, 20, (2, 5), generator=gen())
    one = losses(x1, xt, pred, t, gen_mask, seq=seq)
    other = pf.State(*(torch.where(gen_mask.reshape(2, 5, *[1] * (a.ndim - 2)), a, a + 1) for a in pred))
    seq = torch.where(gen_mask, seq, torch.full_like(seq, 21))
    two = losses(x1, xt, other, t, gen_mask, seq=seq)
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    assert set(one) == set(pf.LOSS_WEIGHTS)
    assert losses(x1, xt, x1, t, gen_mask, seq=seq)["trans"] == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gen": torch.zeros(1, 3).bool()}, "no residue"),
        ({"seq": torch.tensor([[0, 1, 20]])}, "type from 0 to 19"),
        ({"torsions": torch.ones(1, 3, 4).bool()}, "torsion_mask"),
        ({"t_clip": 1.0}, "t_clip"),
    ],
)
def test_losses_reject(random_state, change, match):
    x = random_state(1, 3)
    with pytest.raises(ValueError, match=match):
        losses(x, x, x, torch.zeros(1, dtype=F64), **change)
    with pytest.raises(ValueError, match="angles of x1"):
        losses(x._replace(angles=x.angles[..., :4]), x, x, torch.zeros(1, dtype=F64))
    with pytest.raises(ValueError, match="of xt"):
        losses(x, random_state(2, 3), x, torch.zeros(1, dtype=F64))
    with pytest.raises(ValueError, match="pred_a"):
        losses(x, x, x._replace(angles=x.angles[..., :4]), torch.zeros(1, dtype=F64))


def test_losses_keep_their_dtype(random_state):
    x1, pred, xt = (pf.State(*(a.float() for a in random_state(1, 4, s))) for s in range(3))
    out = losses(x1, xt, pred, torch.tensor([0.3], dtype=F64), seq=torch.zeros(1, 4, dtype=torch.int32))
    assert {v.dtype for v in out.values()} == {torch.float32}
