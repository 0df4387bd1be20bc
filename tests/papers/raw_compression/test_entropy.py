"""What a latent costs: the discretised Gaussian, dither, and the range coder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from icml24.papers.raw_compression import discretized_gaussian
from icml24.papers.raw_compression.entropy import (
    RangeReader,
    RangeWriter,
    coded_probability,
    gaussian_bits,
    symbol_bound,
)

F64 = torch.float64


def test_parity(reference):
    v, mean, scale, p = (torch.from_numpy(reference[f"dg:{name}"]) for name in ("v", "mean", "scale", "p"))
    torch.testing.assert_close(discretized_gaussian(v, mean, scale), p, rtol=1e-6, atol=0)


@pytest.mark.equation("eq-raw_compression-bin")
@pytest.mark.parametrize(("mean", "scale"), [(0.3, 0.11), (-2.5, 1.0), (0.0, 7.0)])
def test_bins_tile_the_line(mean, scale):
    """3.4: probabilities of all whole numbers sum to one, and to the distribution function."""
    v = torch.arange(-80, 81, dtype=F64)
    p = discretized_gaussian(v, torch.tensor(mean, dtype=F64), torch.tensor(scale, dtype=F64), floor=0.0)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(p.cumsum(0).numpy(), stats.norm.cdf(v.numpy() + 0.5, mean, scale), atol=1e-12)


@pytest.mark.equation("eq-raw_compression-bin")
def test_tails_keep_relative_precision():
    v = torch.tensor([-30.0, 30.0], dtype=F64)
    one = torch.ones((), dtype=F64)
    p = discretized_gaussian(v, 0 * one, one, floor=0.0)
    expected = stats.norm.sf(29.5) - stats.norm.sf(30.5)
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-9)
    assert discretized_gaussian(v, 0 * one, one).tolist() == [1e-9, 1e-9]


def test_float32_gradients_and_broadcasting():
    v = torch.tensor([[0.0], [2.0]], requires_grad=True)
    scale = torch.tensor([0.5, 1.0, 3.0], requires_grad=True)
    p = discretized_gaussian(v, torch.tensor(0.2), scale)
    assert p.dtype == torch.float32
    assert p.shape == (2, 3)
    p.log().sum().backward()
    assert v.grad.isfinite().all()
    assert scale.grad.isfinite().all()


def test_plain_numbers_broadcast():
    v = torch.tensor([0.0, 1.0], dtype=F64)
    p = discretized_gaussian(v, 0.5, np.float64(2.0))
    assert p.dtype == F64
    expected = stats.norm.cdf(v.numpy() + 0.5, 0.5, 2) - stats.norm.cdf(v.numpy() - 0.5, 0.5, 2)
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="scale"):
        discretized_gaussian(v, 0.0, 0.0)


@pytest.mark.equation("eq-raw_compression-dither")
@pytest.mark.parametrize("scale", [0.4, 2.0])
def test_dithered_code_length_is_the_training_rate(scale, g):
    """E10: E_u[-log2 P(round(y - u) + u)] = E[-log2 p(y + u')], with y not of the model's law."""
    draws = 400_000
    y = 1.5 * torch.randn(draws, generator=g, dtype=F64).pow(3)
    u, v = (torch.rand(2, draws, generator=g, dtype=F64) - 0.5).unbind()
    mean, scale = torch.tensor(0.3, dtype=F64), torch.tensor(scale, dtype=F64)
    coded = gaussian_bits((y - u).round() + u, mean, scale)
    trained = gaussian_bits(y + v, mean, scale)
    error = float((coded.var() + trained.var()) / draws) ** 0.5
    assert abs(float(coded.mean() - trained.mean())) < 4 * error
    plain = gaussian_bits(y.round(), mean, scale)  # without dither the two differ
    assert abs(float(plain.mean() - trained.mean())) > 4 * error or scale > 1


@pytest.mark.equation("eq-raw_compression-coder")
@pytest.mark.parametrize("count", [1, 100, 20_000])
def test_length_is_the_information_plus_a_word_or_two(count, g):
    """E11: bits of the stream against the coder's own probabilities."""
    scale = torch.rand(count, generator=g, dtype=F64) * 3 + 0.11
    mean = torch.randn(count, generator=g, dtype=F64)
    v = (mean + scale * torch.randn(count, generator=g, dtype=F64)).round()
    bound = symbol_bound(v)
    writer = RangeWriter()
    writer.write(v, mean, scale, bound)
    information = float(-torch.log2(coded_probability(v, mean, scale, bound)).sum())
    length = 8 * len(writer.bytes())
    assert -1 <= length - information <= 64 + 1e-3 * information
    estimate = float(gaussian_bits(v, mean, scale).sum())
    assert abs(length - estimate) <= 0.03 * estimate + 256


@pytest.mark.equation("eq-raw_compression-coder")
def test_what_is_written_is_read(g):
    scale = torch.rand(3, 7, generator=g) + 0.2
    v, w = (torch.randn(2, 3, 7, generator=g) * 4).round().unbind()
    writer = RangeWriter()
    writer.write(v, 0.0, scale, 60)
    writer.write(w, 0.25, scale, 90)
    reader = RangeReader(writer.bytes())
    assert torch.equal(reader.read(0.0, scale, 60), v)
    assert torch.equal(reader.read(0.25, scale, 90), w)


def test_odd_payload_is_refused():
    with pytest.raises(ValueError, match="32-bit"):
        RangeReader(b"12345")


def test_random_payload_never_crashes(g):
    scale = torch.full((50,), 0.3)
    for seed in range(50):
        data = np.random.default_rng(seed).bytes(8)
        try:
            out = RangeReader(data).read(0.0, scale, 4)
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017 - either outcome is right
        else:
            assert out.abs().max() <= 4


def test_bounds():
    assert symbol_bound(torch.zeros(3)) == 1
    assert symbol_bound(torch.tensor([3.0, -8.0])) == 8
    with pytest.raises(ValueError, match="magnitude"):
        symbol_bound(torch.tensor([1e6]))
    with pytest.raises(ValueError, match="finite"):
        symbol_bound(torch.tensor([float("nan")]))


@pytest.mark.parametrize(
    ("v", "mean", "scale", "floor", "error", "match"),
    [
        (torch.zeros(2), torch.zeros(2), torch.zeros(2), 1e-9, ValueError, "scale"),
        (torch.zeros(2), torch.zeros(2), torch.full((2,), float("nan")), 1e-9, ValueError, "scale"),
        (torch.zeros(2), torch.zeros(2), torch.ones(2), -1.0, ValueError, "floor"),
        (torch.zeros(2).long(), torch.zeros(2), torch.ones(2), 1e-9, TypeError, "v"),
        (torch.zeros(2), [0.0, 0.0], torch.ones(2), 1e-9, TypeError, "mean"),
    ],
)
def test_rejects(v, mean, scale, floor, error, match):
    with pytest.raises(error, match=match):
        discretized_gaussian(v, mean, scale, floor=floor)
