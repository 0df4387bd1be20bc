"""PSNR and Bjontegaard's averages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.raw_compression import bd_psnr, bd_rate, psnr
from icml24.papers.raw_compression.metrics import at_rate, upper_envelope

F64 = torch.float64
RATE, QUALITY = [0.05, 0.1, 0.22, 0.4, 0.9], [27.0, 29.5, 31.6, 33.0, 34.1]


@pytest.mark.equation("eq-raw_compression-psnr")
def test_psnr_by_hand():
    x, y = torch.zeros(2, 5, dtype=F64), torch.full((2, 5), 2.0, dtype=F64)
    assert float(psnr(x, y, 200.0)) == pytest.approx(40)  # mean square 4: 20 log10(200 / 2)
    y[0] = 0.0
    assert float(psnr(x, y, 200.0)) == pytest.approx(40 + 10 * math.log10(2))
    assert psnr(x, x, 1.0) == math.inf
    assert psnr(x.float(), y.float(), 3.0).dtype == torch.float32


def test_parity(reference):
    for j in range(3):
        a = reference[f"bd{j}:rate_a"], reference[f"bd{j}:psnr_a"]
        b = reference[f"bd{j}:rate_b"], reference[f"bd{j}:psnr_b"]
        assert bd_rate(*a, *b) == pytest.approx(float(reference[f"bd{j}:rate_pchip"]), rel=1e-6)
        assert bd_rate(*a, *b, method="cubic") == pytest.approx(
            float(reference[f"bd{j}:rate_cubic"]), rel=1e-6
        )
        assert bd_psnr(*a, *b) == pytest.approx(float(reference[f"bd{j}:psnr_pchip"]), rel=1e-6)


@pytest.mark.equation("eq-raw_compression-bjontegaard")
@pytest.mark.parametrize("method", ["pchip", "cubic"])
def test_half_the_rate(method):
    """E12: a curve against its copy at half the rate is -50 %, and +100 % the other way round."""
    half = [r / 2 for r in RATE]
    assert bd_rate(RATE, QUALITY, half, QUALITY, method=method) == pytest.approx(-50, abs=1e-9)
    assert bd_rate(half, QUALITY, RATE, QUALITY, method=method) == pytest.approx(100, abs=1e-9)
    better = [q + 1.5 for q in QUALITY]
    assert bd_psnr(RATE, QUALITY, RATE, better, method=method) == pytest.approx(1.5, abs=1e-9)


@pytest.mark.equation("eq-raw_compression-bjontegaard")
def test_antisymmetry_in_the_log_domain():
    """E12: ln(1 + BD/100) changes sign when the curves change places."""
    other = [0.06, 0.09, 0.2, 0.5, 0.8], [26.0, 28.9, 31.0, 33.5, 34.0]
    there, back = bd_rate(RATE, QUALITY, *other), bd_rate(*other, RATE, QUALITY)
    assert math.log1p(there / 100) == pytest.approx(-math.log1p(back / 100), rel=1e-9)
    assert bd_psnr(RATE, QUALITY, *other) == pytest.approx(-bd_psnr(*other, RATE, QUALITY), rel=1e-9)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_accepts_any_row_in_any_order(kind):
    order = [3, 0, 4, 1, 2]
    shuffled = kind([RATE[i] for i in order]), kind([QUALITY[i] for i in order])
    assert bd_rate(RATE, QUALITY, *shuffled) == pytest.approx(0, abs=1e-4)  # tensors come in float32


@pytest.mark.parametrize("function", [bd_rate, bd_psnr])
@pytest.mark.parametrize(
    ("curve", "match"),
    [
        ((RATE[:3], QUALITY[:3]), "at least 4"),
        ((RATE, QUALITY[:4]), "one psnr a rate"),
        ((RATE, [*QUALITY[:3], 31.0, 34.0]), "rise"),
        (([0.1, 0.1, 0.2, 0.4, 0.9], QUALITY), "rise"),
        (([0.0, *RATE[1:]], QUALITY), "positive"),
        ((RATE, [*QUALITY[:4], math.nan]), "finite"),
        (([f"r{r}" for r in RATE], QUALITY), "numbers"),
    ],
)
def test_rejects_curves(function, curve, match):
    with pytest.raises(ValueError, match=match):
        function(RATE, QUALITY, *curve)


def test_no_overlap_and_unknown_method():
    with pytest.raises(ValueError, match="no common range of quality"):
        bd_rate(RATE, QUALITY, RATE, [q + 20 for q in QUALITY])
    with pytest.raises(ValueError, match="no common range of rate"):
        bd_psnr(RATE, QUALITY, [100 * r for r in RATE], QUALITY)
    with pytest.raises(ValueError, match="akima"):
        bd_rate(RATE, QUALITY, RATE, QUALITY, method="akima")


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ((torch.zeros(2), torch.zeros(3), 1.0), ValueError, "one shape"),
        ((torch.zeros(0), torch.zeros(0), 1.0), ValueError, "empty"),
        ((torch.zeros(2), torch.zeros(2), 0.0), ValueError, "peak"),
        ((torch.zeros(2).int(), torch.zeros(2), 1.0), TypeError, "floating"),
    ],
)
def test_psnr_rejects(args, error, match):
    with pytest.raises(error, match=match):
        psnr(*args)


def test_envelope_and_its_readings():
    rate, quality = upper_envelope(np.array([3.0, 1, 2, 1, 4]), np.array([25.0, 20, 26, 22, 27]))
    assert rate.tolist() == [1, 2, 4]
    assert quality.tolist() == [22, 26, 27]
    assert at_rate(rate, quality, 2**0.5) == pytest.approx(24)
    assert math.isnan(at_rate(rate, quality, 0.9))
    assert at_rate(rate, quality, 9.0) == 27
