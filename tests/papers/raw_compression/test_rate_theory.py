"""Who pays bits for noise, and how many."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from icml24.papers.raw_compression import SensorModel, discretized_gaussian, recorrupt, simulate_raw
from icml24.papers.raw_compression.rate_theory import (
    CRITICAL_LAMBDA,
    description_length,
    mean_noise_entropy,
    noise_entropy,
    predictable_variance,
    waterfill,
)

F64 = torch.float64


@pytest.mark.equation("eq-raw_compression-waterfilling")
@pytest.mark.parametrize("lam", [0.35, 0.72, 1.2, 20.0])
def test_waterfilling_is_the_minimum(lam):
    """E7: no distortion on a fine grid has a smaller R + lambda D, for any variance."""
    v = torch.tensor([0.05, 0.5, 1.0, 3.0, 40.0], dtype=F64)
    distortion, rate = waterfill(v, lam)
    grid = v[:, None] * torch.linspace(1e-3, 1, 20_000, dtype=F64)
    cost = 0.5 * torch.log2(v[:, None] / grid) + lam * grid
    assert (rate + lam * distortion <= cost.min(1).values + 1e-9).all()
    torch.testing.assert_close(rate + lam * distortion, cost.min(1).values, atol=1e-3, rtol=1e-3)


def scalar_codec(step):
    """Rate and distortion of a uniform quantiser of N(0, 1) with entropy coding and centroid decoding."""
    k = torch.arange(-400, 401, dtype=F64)
    inverse = torch.tensor(1 / step, dtype=F64)
    p = discretized_gaussian(k, torch.zeros((), dtype=F64), inverse, floor=0.0)
    edges = np.concatenate([k.numpy() - 0.5, [400.5]]) * step
    moments = -np.diff(stats.norm.pdf(edges))
    kept = p > 1e-300
    rate = float(-(p[kept] * torch.log2(p[kept])).sum())
    return rate, 1 - float((moments[kept.numpy()] ** 2 / p[kept].numpy()).sum())


@pytest.mark.equation("eq-raw_compression-critical")
@pytest.mark.parametrize(("lam", "pays"), [(0.35, False), (0.7, False), (1.2, True), (5.0, True)])
def test_noise_is_coded_above_the_critical_slope_only(lam, pays):
    """E7: unit-variance noise as a noisy target, with a real scalar quantiser: zero bits iff lambda <= 0.72."""
    costs = [rate + lam * distortion for rate, distortion in map(scalar_codec, np.linspace(0.2, 12, 120))]
    assert (min(costs) < lam - 1e-3) == pays
    _, rate = waterfill(torch.ones(1, dtype=F64), lam)
    assert (float(rate) > 0) == pays
    assert min(costs) >= float(rate) + lam * min(1, CRITICAL_LAMBDA / lam) - 1e-9  # theory is the floor


@pytest.mark.equation("eq-raw_compression-critical")
def test_recorrupted_target_holds_no_predictable_noise(g):
    """E7: what a codec can predict of t_out from t_in has variance S^2 / (S + 1 + alpha^2), 0 without signal."""
    for signal in (0.0, 0.5, 9.0):
        m = signal**0.5 * torch.randn(600_000, generator=g, dtype=F64)
        source, target = recorrupt(m + torch.randn(m.shape, generator=g, dtype=F64), 0.7, generator=g)
        slope = (source * target).mean() / source.square().mean()
        expected = predictable_variance(torch.tensor(signal, dtype=F64), 1.49)
        assert float((slope * source).var()) == pytest.approx(float(expected), abs=0.03)
    for lam in (0.35, 20.0, 1e4):
        assert float(waterfill(torch.full((1,), 1e-12, dtype=F64), lam)[1]) == 0


@pytest.mark.equation("eq-raw_compression-entropy")
def test_noise_entropy_against_the_exact_one():
    """E8: Poisson summed with rounded Gaussian noise, K = 16, s = 20: within 0.012 bit from 0.3 to 30 e-."""
    check_noise_entropy(16.0, 20.0, (0.3, 2.0, 8.0, 30.0), 0.0125)


@pytest.mark.equation("eq-raw_compression-entropy")
def test_noise_entropy_counts_rounding():
    """E8: with noise of about a DN, the 1/12 of rounding is what keeps the formula right."""
    check_noise_entropy(0.5, 0.8, (4.0, 20.0), 0.01)


def check_noise_entropy(gain, read_std, means, slack):
    values = np.arange(-400, 2200)
    for electrons in means:
        k = np.arange(0, 120)
        inside = stats.norm.cdf(values[:, None] + 0.5, gain * k, read_std) - stats.norm.cdf(
            values[:, None] - 0.5, gain * k, read_std
        )
        p = inside @ stats.poisson.pmf(k, electrons)
        exact = -(p[p > 0] * np.log2(p[p > 0])).sum()
        bound = float(noise_entropy(torch.tensor(gain * electrons, dtype=F64), gain, read_std))
        assert 0 <= bound - exact < slack


@pytest.mark.equation("eq-raw_compression-entropy")
def test_no_code_built_on_the_clean_signal_is_shorter(g):
    """E8: the ideal code length of simulated raw values given the signal averages to the bound."""
    x = torch.rand(300, 300, generator=g, dtype=F64) * 4000 + 2000
    raw = simulate_raw(x, SensorModel(4.0, 6.0), generator=g) - 512
    scale = (4 * x + 36 + 1 / 12).sqrt()
    bits = -torch.log2(discretized_gaussian(raw, x, scale))
    assert float(bits.mean()) == pytest.approx(mean_noise_entropy(x, 4.0, 6.0), abs=0.02)


@pytest.mark.equation("eq-raw_compression-mdl")
def test_description_length(g):
    """E9: R + NLL = R + 0.7213 |.|^2 + n/2 log2(2 pi), against scipy's density."""
    residual = torch.randn(4, 9, generator=g, dtype=F64) * 2
    total = float(description_length(torch.tensor(31.0, dtype=F64), residual))
    assert total == pytest.approx(31 - stats.norm.logpdf(residual.numpy()).sum() / math.log(2), rel=1e-12)
    closed = 31 + CRITICAL_LAMBDA * float(residual.square().sum()) + 18 * math.log2(2 * math.pi)
    assert total == pytest.approx(closed, rel=1e-12)
    assert pytest.approx(0.7213, abs=5e-5) == CRITICAL_LAMBDA


def test_waterfill_rejects():
    with pytest.raises(ValueError, match="lam"):
        waterfill(torch.ones(2), 0.0)
