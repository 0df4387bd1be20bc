"""Sensor and photon transfer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from icml24.papers.raw_compression import Calibration, SensorModel, calibrate, simulate_raw

F64 = torch.float64


@pytest.mark.equation("eq-raw_compression-sensor")
def test_shot_noise_is_poisson_and_the_rest_is_added(g):
    """3.1: without read noise, (raw - pattern - black) / gain counts electrons."""
    signal = torch.full((200, 300), 12.0, dtype=F64)
    pattern = torch.arange(300.0, dtype=F64).expand(200, 300)
    raw = simulate_raw(signal, SensorModel(3.0, 0.0), fixed_pattern=pattern, generator=g)
    counts = ((raw - 512 - pattern) / 3).round()
    assert torch.equal(3 * counts + pattern + 512, raw)
    seen = np.bincount(counts.long().flatten().numpy(), minlength=15)[:15] / counts.numel()
    expected = stats.poisson.pmf(np.arange(15), 4.0)
    assert np.abs(seen - expected).max() < 4 * 0.5 / np.sqrt(counts.numel())


@pytest.mark.equation("eq-raw_compression-sensor")
def test_whole_numbers_clipped_at_both_ends(g):
    sensor = SensorModel(1.0, 300.0, black_level=100.0, white_level=1000.0)
    raw = simulate_raw(torch.full((50, 50), 400.0, dtype=F64), sensor, generator=g)
    assert torch.equal(raw, raw.round())
    assert raw.min() == 0
    assert raw.max() == 1000


@pytest.mark.equation("eq-raw_compression-moments")
@pytest.mark.parametrize(("gain", "read", "row", "signal"), [(4, 6, 0, 40), (16, 20, 9, 800), (2, 1, 3, 9)])
def test_moments(gain, read, row, signal, g):
    """E1: mean x + n_fp + b, variance K x + s_r^2 + s_row^2 + 1/12, within 3 %."""
    sensor = SensorModel(float(gain), float(read), float(row))
    x = torch.full((9000, 10), float(signal), dtype=F64)
    raw = simulate_raw(x, sensor, fixed_pattern=torch.full((9000, 10), -7.0, dtype=F64), generator=g)
    variance = gain * signal + read**2 + row**2 + 1 / 12
    assert abs(float(raw.mean()) - (signal - 7 + 512)) < 4 * (variance / 9e4 + row**2 / 9e3) ** 0.5
    assert float(raw.var()) == pytest.approx(variance, rel=0.03)
    assert float(sensor.variance(x[0, 0])) == pytest.approx(variance)
    between_rows = float(raw.mean(1).var()) - (variance - row**2) / 10
    assert between_rows == pytest.approx(row**2, abs=0.03 * variance)


def flats(gain, read, levels, size, g, response=1.0):
    light = torch.tensor(levels, dtype=F64)[:, None, None, None].expand(-1, 2, *size)
    return simulate_raw(light * response, SensorModel(gain, read), generator=g)


@pytest.mark.equation("eq-raw_compression-pairs")
def test_pairs_cancel_offsets_and_uneven_response(g):
    """E2: a fixed offset and a 5 % spread of sensitivities leave the variance of a difference alone."""
    size = (300, 300)
    response = 1 + 0.05 * torch.randn(size, generator=g, dtype=F64)
    offsets = 40 * torch.randn(size, generator=g, dtype=F64)
    bias = simulate_raw(torch.zeros(8, *size, dtype=F64), SensorModel(4.0, 6.0), generator=g) + offsets
    pairs = flats(4.0, 6.0, [500.0, 2000.0], size, g, response) + offsets
    found = calibrate(bias, pairs)
    expected = 4 * found.mean + 36 + 1 / 12
    assert (found.variance / expected - 1).abs().max() < 0.02  # a single frame: 2000 * 5 % adds 1e4 to 8e3
    assert float((pairs[1, 0] - 512 - found.fixed_pattern).var()) > 1.5 * float(expected[1])
    assert float((found.fixed_pattern - offsets).std()) == pytest.approx(6 / 8**0.5, rel=0.03)


@pytest.mark.equation("eq-raw_compression-gain")
def test_gain_is_the_weighted_line_through_the_origin(g):
    """E2: the same slope from a general least-squares solver; the truth within 5 % and 3 %."""
    size = (120, 160)
    bias = simulate_raw(torch.zeros(16, *size, dtype=F64), SensorModel(4.0, 6.0), generator=g)
    found = calibrate(bias, flats(4.0, 6.0, [100.0, 400.0, 3000.0, 9000.0], size, g))
    root = (1 / found.variance.clamp(min=1)).sqrt().numpy()
    read = np.diff(bias.numpy(), axis=0)
    target = found.variance.numpy() - (read**2).mean() / 2
    slope = np.linalg.lstsq((root * found.mean.numpy())[:, None], root * target, rcond=None)[0][0]
    assert found.gain == pytest.approx(slope, rel=1e-10)
    assert found.gain == pytest.approx(4, rel=0.05)
    assert found.read_std == pytest.approx(6, rel=0.03)


def test_parity(reference):
    bias, pairs = (torch.from_numpy(reference[f"ptc:{name}"]) for name in ("bias", "flats"))
    found = calibrate(bias, pairs)
    assert found.fixed_pattern.dtype == F64
    assert found.gain == pytest.approx(float(reference["ptc:gain_wls"]), rel=1e-6)
    assert found.read_std == pytest.approx(float(reference["ptc:read_std"]), rel=1e-6)
    np.testing.assert_allclose(found.mean.numpy(), reference["ptc:mean"], rtol=1e-6)
    np.testing.assert_allclose(found.variance.numpy(), reference["ptc:var"], rtol=1e-6)
    np.testing.assert_allclose(found.fixed_pattern.numpy(), bias.double().numpy().mean(0) - 512, rtol=1e-12)
    gain, read_std = reference["ptc:true"]
    assert found.gain == pytest.approx(gain, rel=0.05)
    assert found.read_std == pytest.approx(read_std, rel=0.03)
    error = found.fixed_pattern.numpy() - reference["ptc:fixed_pattern"]
    assert error.std() == pytest.approx(read_std / 4, rel=0.05)  # 16 frames


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_dtype_and_strides_are_kept(dtype, g):
    signal = torch.rand(3, 8, 6, generator=g, dtype=dtype).mul(100).transpose(-1, -2).requires_grad_()
    raw = simulate_raw(signal, SensorModel(2.0, 1.0), generator=g)
    assert raw.dtype == dtype
    assert raw.shape == (3, 6, 8)
    assert not raw.requires_grad


def test_same_generator_same_noise_and_no_global_state(global_random_state):
    before = global_random_state()
    x = torch.full((4, 4), 50.0)
    draws = [
        simulate_raw(x, SensorModel(2.0, 3.0, 1.0), generator=torch.Generator().manual_seed(1)) for _ in "ab"
    ]
    assert torch.equal(*draws)
    assert global_random_state() == before


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"gain": 0.0}, "gain"),
        ({"gain": -1.0}, "gain"),
        ({"read_std": -0.1}, "read_std"),
        ({"row_std": -1.0}, "row_std"),
        ({"white_level": 512.0}, "white_level"),
        ({"gain": float("nan")}, "gain"),
    ],
)
def test_rejects_sensors(fields, match):
    with pytest.raises(ValueError, match=match):
        SensorModel(**({"gain": 1.0, "read_std": 1.0} | fields))


@pytest.mark.parametrize(
    ("signal", "pattern", "error", "match"),
    [
        (torch.zeros(4), None, ValueError, "shape"),
        (torch.full((2, 2), -1.0), None, ValueError, "positive"),
        (torch.full((2, 2), float("nan")), None, ValueError, "finite"),
        (torch.zeros(2, 2).int(), None, TypeError, "floating"),
        ([[1.0]], None, TypeError, "tensor"),
        (torch.zeros(2, 4), torch.zeros(4, 4), ValueError, "fixed_pattern"),
        (torch.zeros(2, 4), torch.zeros(3, 2, 4), ValueError, "fixed_pattern"),
        (torch.zeros(3, 2, 4), torch.zeros(2, 2, 4), ValueError, "fixed_pattern"),
    ],
)
def test_rejects_signals(signal, pattern, error, match):
    with pytest.raises(error, match=match):
        simulate_raw(signal, SensorModel(1.0, 1.0), fixed_pattern=pattern)


def shape(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0), dtype=F64) * 9 + 600


@pytest.mark.parametrize(
    ("bias", "pairs", "match"),
    [
        (shape(1, 8, 8), shape(3, 2, 8, 8), "N >= 2"),
        (shape(8, 8), shape(3, 2, 8, 8), "N >= 2"),
        (shape(4, 8, 8), shape(1, 2, 8, 8), "2 light levels"),
        (shape(4, 8, 8), shape(3, 3, 8, 8), "L, 2, H, W"),
        (shape(4, 8, 8), shape(2, 8, 8), "L, 2, H, W"),
        (shape(4, 8, 8), shape(3, 2, 8, 6), "same photosites"),
        (shape(4, 8, 8) * float("nan"), shape(3, 2, 8, 8), "finite"),
        (shape(4, 8, 8), shape(3, 2, 8, 8).clamp(max=601), "level 0 is saturated"),
    ],
)
def test_rejects_calibrations(bias, pairs, match):
    with pytest.raises(ValueError, match=match):
        calibrate(bias, pairs)


def test_saturated_level_is_named(g):
    size = (40, 40)
    bias = simulate_raw(torch.zeros(4, *size, dtype=F64), SensorModel(4.0, 6.0), generator=g)
    with pytest.raises(ValueError, match="level 1 is saturated"):
        calibrate(bias, flats(4.0, 6.0, [500.0, 15700.0], size, g))  # 2 % of the noise reaches white
    assert isinstance(calibrate(bias, flats(4.0, 6.0, [500.0, 15000.0], size, g)), Calibration)


def test_narrow_noise_is_not_taken_for_saturation(g):
    size = (60, 60)
    bias = simulate_raw(torch.zeros(8, *size, dtype=F64), SensorModel(0.01, 0.4), generator=g)
    found = calibrate(bias, flats(0.01, 0.4, [50.0, 200.0, 1000.0], size, g))
    assert found.gain == pytest.approx(0.01, rel=0.1)


def test_ties_in_a_small_frame_are_no_saturation():
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        bias = simulate_raw(torch.zeros(6, 8, 8, dtype=F64), SensorModel(0.5, 2.0), generator=g)
        assert calibrate(bias, flats(0.5, 2.0, [200.0, 2000.0], (8, 8), g)).gain > 0


def test_pattern_for_every_exposure(g):
    signal = torch.zeros(2, 3, 4, 6, dtype=F64)
    sensor = SensorModel(1.0, 0.0)
    for pattern in (torch.full((4, 6), 7.0), torch.full((3, 4, 6), 7.0), torch.full((2, 1, 4, 6), 7.0)):
        raw = simulate_raw(signal, sensor, fixed_pattern=pattern, generator=g)
        assert torch.equal(raw, torch.full_like(signal, 519.0))


def test_flats_without_light_are_refused(g):
    size = (30, 30)
    bias = simulate_raw(torch.zeros(4, *size, dtype=F64), SensorModel(4.0, 6.0), generator=g)
    with pytest.raises(ValueError, match="does not grow"):
        calibrate(bias, bias.reshape(2, 2, *size).sub(100))
