"""Pairs whose noises are independent, or at least uncorrelated."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.raw_compression import (
    SensorModel,
    recorrupt,
    recorrupt_poisson_gaussian,
    simulate_raw,
)

F64 = torch.float64
DRAWS = 1_000_000


@pytest.mark.equation("eq-raw_compression-pair")
@pytest.mark.parametrize("alpha", [0.4, 0.7, 1.5])
def test_noises_are_uncorrelated(alpha, g):
    """E3: Cov = 1 - alpha / alpha = 0; variances 1 + alpha^2 and 1 + 1/alpha^2."""
    source, target = recorrupt(torch.randn(DRAWS, generator=g, dtype=F64), alpha, generator=g)
    va, vb = 1 + alpha**2, 1 + alpha**-2
    assert abs(float((source * target).mean())) < 4 * (va * vb / DRAWS) ** 0.5
    assert float(source.var()) == pytest.approx(va, rel=4 * (2 / DRAWS) ** 0.5)
    assert float(target.var()) == pytest.approx(vb, rel=4 * (2 / DRAWS) ** 0.5)


@pytest.mark.equation("eq-raw_compression-pair")
def test_pair_averages_back_to_the_picture(g):
    t = torch.randn(50, generator=g, dtype=F64)
    source, target = recorrupt(t, 0.7, generator=g)
    torch.testing.assert_close((source + 0.49 * target) / 1.49, t)  # z cancels


@pytest.mark.equation("eq-raw_compression-decoupled")
@pytest.mark.parametrize(
    "reconstruct",
    [torch.round, lambda t: 3 * torch.tanh(t), lambda t: t],
    ids=["quantiser", "squashing", "identity"],
)
def test_pair_loss_is_the_clean_loss_plus_a_constant(reconstruct, g):
    """E3: for every g, a rounding one included, the gap is 1 + 1/alpha^2 a value."""
    m = 4 * torch.randn(DRAWS, generator=g, dtype=F64)
    t = m + torch.randn(DRAWS, generator=g, dtype=F64)
    source, target = recorrupt(t, 0.7, generator=g)
    x = reconstruct(source)
    gap = (x - target).square() - (x - m).square()
    assert abs(float(gap.mean()) - (1 + 0.7**-2)) < 4 * float(gap.std()) / DRAWS**0.5


@pytest.mark.equation("eq-raw_compression-decoupled")
def test_best_shrinkage_is_the_clean_one(g):
    """E3: argmin_c E(c t_in - t_out)^2 = S / (S + 1 + alpha^2); a noisy target would ask for c = 1."""
    m = 2 * torch.randn(DRAWS, generator=g, dtype=F64)
    t = m + torch.randn(DRAWS, generator=g, dtype=F64)
    source, target = recorrupt(t, 0.7, generator=g)
    found = float((source * target).sum() / source.square().sum())
    assert found == pytest.approx(4 / (4 + 1.49), abs=0.01)


@pytest.mark.equation("eq-raw_compression-linear")
@pytest.mark.parametrize(("gain", "read_std", "signal"), [(4.0, 30.0, 300.0), (16.0, 60.0, 2000.0)])
def test_linear_pair_is_uncorrelated_but_not_independent(gain, read_std, signal, g):
    """E4: Cov = Var(y) - E[K y + s^2] = 0, yet E[(y - x) z^2] = K Var(y)."""
    x = torch.full((1000, DRAWS // 1000), signal, dtype=F64)
    y = simulate_raw(x, SensorModel(gain, read_std), generator=g) - 512
    source, target = recorrupt_poisson_gaussian(y, gain, read_std, 0.7, generator=g)
    a, b = source - signal, target - signal
    product = a * b
    slack = 1 / 12  # rounding to whole numbers is in y, not in the model
    assert abs(float(product.mean())) < 4 * float(product.std()) / DRAWS**0.5 + slack
    z = (source - y) / 0.7
    third = (y - signal) * z.square()
    expected = gain * (gain * signal + read_std**2)
    assert abs(float(third.mean()) - expected) < 4 * float(third.std()) / DRAWS**0.5


def test_variance_is_cut_at_zero(g):
    y = torch.full((1000,), -500.0, dtype=F64)
    source, target = recorrupt_poisson_gaussian(y, 4.0, 6.0, 0.7, generator=g)
    assert torch.equal(source, y)
    assert torch.equal(target, y)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_dtype_shape_and_generator(dtype, global_random_state):
    before = global_random_state()
    t = torch.ones(2, 4, 3, dtype=dtype).transpose(0, 2)
    pairs = [recorrupt(t, 0.7, generator=torch.Generator().manual_seed(3)) for _ in "ab"]
    assert all(x.dtype == dtype and x.shape == t.shape for x in pairs[0])
    assert all(torch.equal(x, y) for x, y in zip(*pairs, strict=True))
    assert global_random_state() == before


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_rejects_alpha(alpha):
    with pytest.raises(ValueError, match="alpha"):
        recorrupt(torch.zeros(2), alpha)
    with pytest.raises(ValueError, match="alpha"):
        recorrupt_poisson_gaussian(torch.zeros(2), 1.0, 1.0, alpha)


def test_rejects_other_arguments():
    with pytest.raises(TypeError, match="floating"):
        recorrupt(torch.zeros(2).int(), 0.7)
    with pytest.raises(ValueError, match="gain"):
        recorrupt_poisson_gaussian(torch.zeros(2), 0.0, 1.0, 0.7)
    with pytest.raises(ValueError, match="read_std"):
        recorrupt_poisson_gaussian(torch.zeros(2), 1.0, -1.0, 0.7)
