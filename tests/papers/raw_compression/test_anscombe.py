"""Variance stabilisation and its unbiased inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from icml24.papers.raw_compression import generalized_anscombe, inverse_generalized_anscombe
from icml24.papers.raw_compression.anscombe import expected_anscombe

F64 = torch.float64


def moments(electrons, gain, read_std):
    """Mean and variance of the stabilised value: Poisson summation and 81-point Gauss-Hermite."""
    k = np.arange(int(electrons + 15 * electrons**0.5 + 30))
    nodes, weights = np.polynomial.hermite_e.hermegauss(81)
    y = torch.from_numpy(gain * k[:, None] + read_std * nodes[None])
    t = generalized_anscombe(y, gain, read_std).numpy()
    joint = stats.poisson.pmf(k, electrons)[:, None] * (weights / weights.sum())
    mean = float((joint * t).sum())
    return mean, float((joint * t**2).sum()) - mean**2


def test_parity(reference):
    for i in range(int(reference["n_vst"])):
        gain, read_std = reference[f"vst{i}:gain_std"]
        y, t = (torch.from_numpy(reference[f"vst{i}:{name}"]) for name in ("y", "t"))
        torch.testing.assert_close(generalized_anscombe(y, gain, read_std), t, rtol=1e-9, atol=1e-9)


@pytest.mark.equation("eq-raw_compression-anscombe")
@pytest.mark.parametrize(("gain", "read_std"), [(1.0, 0.0), (16.0, 20.0), (0.25, 1.5)])
def test_noise_has_unit_variance(gain, read_std):
    """E5: variance 1 within 2 % from 10 electrons, and converging faster than 1/x."""
    gaps = [abs(moments(x, gain, read_std)[1] - 1) for x in (10, 40, 160)]
    assert gaps[0] < 0.02
    assert gaps[2] < 1 / 160 * 0.1  # the 1/x term is gone; with c = 0 in place of 3/8 it would be 3/8 / x


@pytest.mark.equation("eq-raw_compression-anscombe")
def test_slope_is_one_over_the_noise():
    """E5: f'(y) = 1 / sqrt(K y + s^2 + 3/8 K^2)."""
    y = torch.linspace(-20, 5000, 40, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(generalized_anscombe(y, 16.0, 20.0).sum(), y)
    torch.testing.assert_close(slope, (16 * y.detach() + 400 + 96).rsqrt())


@pytest.mark.equation("eq-raw_compression-inverse")
def test_inverse_is_unbiased(reference):
    """E6: from E[t] back to the mean within 0.04 noise std; the plain inverse is low by about K/4."""
    for i in range(int(reference["n_vst"])):
        gain, read_std = (float(v) for v in reference[f"vst{i}:gain_std"])
        for electrons, expected in zip(
            reference[f"vst{i}:mean_electrons"], reference[f"vst{i}:expected_t"], strict=True
        ):
            assert moments(electrons, gain, read_std)[0] == pytest.approx(expected, abs=1e-6)
            noise = (electrons + (read_std / gain) ** 2) ** 0.5
            t = torch.tensor([expected], dtype=F64)
            back = float(inverse_generalized_anscombe(t, gain, read_std)) / gain
            assert abs(back - electrons) < 0.04 * noise
            plain = expected**2 / 4 - 3 / 8 - (read_std / gain) ** 2
            assert plain - electrons == pytest.approx(-0.25, abs=0.05)


@pytest.mark.equation("eq-raw_compression-inverse")
def test_inverse_by_hand():
    # K = 1, s = 0, q = 2: 1 + r/8 - 11/32 + 5r/64 - 1/8 with r = sqrt(3/2)
    r = 1.5**0.5
    value = inverse_generalized_anscombe(torch.tensor([2.0], dtype=F64), 1.0, 0.0)
    assert float(value) == pytest.approx(1 + r / 8 - 11 / 32 + 5 * r / 64 - 1 / 8, rel=1e-12)


def test_inverse_is_clamped_below():
    t = torch.tensor([-1e6, -3.0, 0.0, 1e-9], dtype=F64)
    x = inverse_generalized_anscombe(t, 16.0, 20.0)
    assert (x == x[0]).all()
    assert float(x[0]) / 16 == pytest.approx(
        0.218, abs=0.005
    )  # the darkest value it can return, in electrons


def test_inverse_is_monotone():
    x = inverse_generalized_anscombe(torch.linspace(-1, 60, 4000, dtype=F64), 2.0, 4.0)
    assert (x.diff() >= 0).all()


def test_expected_value_is_what_the_inverse_undoes():
    x = torch.linspace(8.0, 15000.0, 500)
    t = expected_anscombe(x, 16.0, 20.0)
    assert t.dtype == torch.float32
    torch.testing.assert_close(inverse_generalized_anscombe(t, 16.0, 20.0), x, rtol=1e-3, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_dtype_gradient_and_nan(dtype):
    y = torch.tensor([[-1e4, 5.0], [float("nan"), 0.0]], dtype=dtype).T.requires_grad_()
    t = generalized_anscombe(y, 4.0, 2.0)
    assert t.dtype == dtype
    assert float(t[0, 0].detach()) == 0
    assert t[0, 1].isnan()
    (slope,) = torch.autograd.grad(t[[0, 1, 1], [0, 0, 1]].sum(), y)
    assert slope[0, 0] == 0
    assert slope[:, 0].isfinite().all()


@pytest.mark.parametrize("function", [generalized_anscombe, inverse_generalized_anscombe])
@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ((torch.ones(2), 0.0, 1.0), ValueError, "gain"),
        ((torch.ones(2), 1.0, -1.0), ValueError, "read_std"),
        ((torch.ones(2).int(), 1.0, 1.0), TypeError, "floating"),
        (([1.0], 1.0, 1.0), TypeError, "tensor"),
        ((torch.ones(2), "1", 1.0), TypeError, "gain"),
    ],
)
def test_rejects(function, args, error, match):
    with pytest.raises(error, match=match):
        function(*args)
