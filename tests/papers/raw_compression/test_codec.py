"""The codec: layers, estimates, objective; streams are tested in test_bitstream."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from icml24.papers.raw_compression import CodecConfig, CodecOutput, RawCodec, rate_distortion_loss
from icml24.papers.raw_compression.codec import GDN
from icml24.papers.raw_compression.training import LAMBDAS

F64 = torch.float64
SMALL = CodecConfig(channels=6, latent_channels=8)


@pytest.fixture
def codec():
    return RawCodec(SMALL).eval()


def planes(b, h, w, dtype=torch.float32, seed=0):
    return 3 + 2 * torch.randn(b, 4, h, w, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def levels(*values):
    return torch.tensor(values)


@pytest.mark.equation("eq-raw_compression-gdn")
@pytest.mark.parametrize("inverse", [False, True])
def test_gdn_is_the_double_sum(inverse, g):
    """3.4: y_i = x_i (beta_i + sum_j |gamma_ij| x_j^2)^(-1/2), or (+1/2) for the inverse."""
    layer = GDN(3, inverse).double()
    with torch.no_grad():
        layer.gamma.copy_(torch.randn(3, 3, generator=g, dtype=F64))
        layer.beta.copy_(torch.tensor([0.5, -2.0, 1.0]))
    x = torch.randn(2, 3, 4, 5, generator=g, dtype=F64)
    y = layer(x)
    for i in range(3):
        energy = abs(layer.beta[i].item()) + 1e-6
        energy = energy + sum(abs(layer.gamma[i, j].item()) * x[:, j] ** 2 for j in range(3))
        torch.testing.assert_close(y[:, i], x[:, i] * energy ** (0.5 if inverse else -0.5))


@pytest.mark.equation("eq-raw_compression-gains")
def test_gain_units_scale_the_latent_only(codec):
    """3.4: gains rise with the level; without rounding they would cancel between analysis and synthesis."""
    gains = codec.log_gain.exp()
    assert (gains[1:] > gains[:-1]).all()
    assert float(gains[0, 0]) == 1
    assert float(gains[-1, 0]) == pytest.approx(math.exp(1.5))
    t = planes(1, 16, 16)
    with torch.no_grad():
        codec.log_gain += 5.0  # bins shrink against the latent: rounding vanishes
        fine = codec(t, levels(0)).x_hat
        y = codec.analysis(t)
        torch.testing.assert_close(fine, codec.synthesis(y), rtol=1e-2, atol=1e-2)
        codec.log_gain -= 9.0
        assert (codec(t, levels(0)).x_hat - codec.synthesis(y)).abs().max() > 0.05


def test_shapes_and_sizes():
    codec = RawCodec().eval()
    assert codec.config == CodecConfig(32, 96, 4, 1.0, 0.0)
    with torch.no_grad():
        assert codec.analysis(planes(1, 64, 48)).shape == (1, 96, 8, 6)
        out = codec(planes(2, 21, 50), levels(0, 3))
    assert isinstance(out, CodecOutput)
    assert out.x_hat.shape == (2, 4, 21, 50)
    assert out.bits.shape == (2,)
    assert out.bits.dtype == torch.float32
    assert (out.bits > 0).all()


def test_scale_and_offset_of_the_input_are_undone():
    t = planes(1, 32, 32)
    plain = RawCodec(SMALL).eval()
    scaled = RawCodec(dataclasses.replace(SMALL, input_scale=0.5, input_offset=-4.0)).eval()
    with torch.no_grad():
        a = plain(0.5 * t - 4, levels(1))
        b = scaled(t, levels(1))
    torch.testing.assert_close(b.x_hat, (a.x_hat + 4) / 0.5)
    torch.testing.assert_close(a.bits, b.bits)


def test_evaluation_is_deterministic_and_training_dithers(codec):
    t = planes(1, 32, 32)
    with torch.no_grad():
        assert torch.equal(codec(t, levels(2)).x_hat, codec(t, levels(2)).x_hat)
        codec.train()
        codec.reset_dither(5)
        first, second = codec(t, levels(2)), codec(t, levels(2))
        assert not torch.equal(first.bits, second.bits)
        codec.reset_dither(5)
        assert torch.equal(codec(t, levels(2)).bits, first.bits)
        assert torch.equal(first.x_hat, second.x_hat)  # the distortion sees rounded latents
        torch.testing.assert_close(first.x_hat, codec.eval()(t, levels(2)).x_hat, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_weight():
    codec = RawCodec(SMALL).train()
    out = codec(planes(4, 32, 32), levels(0, 1, 2, 3))
    rate_distortion_loss(out, planes(4, 32, 32), torch.tensor(LAMBDAS)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in codec.parameters())
    assert all(p.grad.abs().sum() > 0 for p in codec.parameters())


@pytest.mark.equation("eq-raw_compression-objective")
def test_objective_by_hand():
    """3.5: mean over pictures of (bits + lambda |error|^2) / samples."""
    x = torch.zeros(2, 4, 2, 3, dtype=F64)
    target = x.clone()
    target[0, 0, 0, 0], target[1] = 3.0, 1.0
    out = CodecOutput(x, torch.tensor([48.0, 24.0], dtype=F64))
    lam = torch.tensor([2.0, 0.5], dtype=F64)
    value = ((48 + 2 * 9) / 24 + (24 + 0.5 * 24) / 24) / 2
    assert float(rate_distortion_loss(out, target, lam)) == pytest.approx(value)
    assert float(rate_distortion_loss(out, target, torch.tensor(0.0, dtype=F64))) == pytest.approx(1.5)
    assert float(rate_distortion_loss(out, target, 0.0)) == pytest.approx(1.5)


@pytest.mark.equation("eq-raw_compression-objective")
def test_recorrupted_loss_is_the_clean_one_plus_a_constant(codec, g):
    """E3 through the codec itself: the gap of the two losses is lambda (1 + 1/alpha^2), whatever the weights."""
    from icml24.papers.raw_compression import recorrupt

    codec = codec.double()
    clean = planes(64, 32, 32, F64)
    source, target = recorrupt(clean + torch.randn(clean.shape, generator=g, dtype=F64), 0.7, generator=g)
    lam = torch.tensor(5.0, dtype=F64)
    with torch.no_grad():
        out = codec(source, torch.full((64,), 2))
    gap = rate_distortion_loss(out, target, lam) - rate_distortion_loss(out, clean, lam)
    error = 5 * (2 * (1 + 0.7**-2) * float((out.x_hat - clean).square().mean()) * 2 / clean.numel()) ** 0.5
    assert abs(float(gap) - 5 * (1 + 0.7**-2)) < 4 * error + 0.05


def test_weights_do_not_come_from_the_global_state(global_random_state):
    before = global_random_state()
    a, b = RawCodec(SMALL), RawCodec(SMALL)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    b.reset_parameters(torch.Generator().manual_seed(1))
    assert not torch.equal(a.analysis[0].weight, b.analysis[0].weight)
    a.train()(planes(1, 16, 16), levels(0))
    assert global_random_state() == before


def test_initial_weights_follow_pytorchs_law():
    layer = RawCodec(CodecConfig(32, 96)).analysis[4]
    bound = 1 / math.sqrt(32 * 25)
    assert layer.weight.abs().max() <= bound
    assert float(layer.weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02)


@pytest.mark.parametrize(
    ("t", "level", "error", "match"),
    [
        (torch.zeros(4, 8, 8), [0], ValueError, "B, 4, h, w"),
        (torch.zeros(1, 3, 8, 8), [0], ValueError, "B, 4, h, w"),
        (torch.zeros(1, 4, 0, 8), [0], ValueError, "B, 4, h, w"),
        (torch.zeros(1, 4, 8, 8, dtype=F64), [0], TypeError, "dtype"),
        (torch.zeros(1, 4, 8, 8).long(), [0], TypeError, "floating"),
        (torch.full((1, 4, 8, 8), float("nan")), [0], ValueError, "finite"),
        (torch.zeros(1, 4, 8, 8), [4], ValueError, "0 ... 3"),
        (torch.zeros(1, 4, 8, 8), [-1], ValueError, "0 ... 3"),
        (torch.zeros(1, 4, 8, 8), [0, 1], ValueError, "shape"),
        (torch.zeros(1, 4, 8, 8), [0.0], TypeError, "LongTensor"),
    ],
)
def test_rejects(codec, t, level, error, match):
    with pytest.raises(error, match=match):
        codec(t, torch.tensor(level))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"channels": 0}, ValueError),
        ({"n_levels": 257}, ValueError),
        ({"latent_channels": 2.0}, TypeError),
        ({"input_scale": 0.0}, ValueError),
    ],
)
def test_rejects_configurations(fields, error):
    with pytest.raises(error, match=next(iter(fields))):
        CodecConfig(**fields)


def test_rejects_losses(codec):
    out = CodecOutput(torch.zeros(2, 4, 8, 8), torch.ones(2))
    with pytest.raises(ValueError, match="target"):
        rate_distortion_loss(out, torch.zeros(1, 4, 8, 8), torch.tensor(1.0))
    with pytest.raises(ValueError, match="lam"):
        rate_distortion_loss(out, out.x_hat, torch.ones(3))
    with pytest.raises(ValueError, match="lam"):
        rate_distortion_loss(out, out.x_hat, torch.tensor(-1.0))
    with pytest.raises(TypeError, match="lam"):
        rate_distortion_loss(out, out.x_hat, torch.tensor(1))
