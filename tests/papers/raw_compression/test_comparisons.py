"""What is read off the files, on curves with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from icml24.papers.raw_compression import comparisons
from icml24.papers.raw_compression.baselines import Setting
from icml24.papers.raw_compression.comparisons import Point

RATE = np.array([0.1, 0.2, 0.4, 0.8])


def row(rates, qualities, scene="chelsea"):
    return [
        Point(scene, level, int(1000 * r), 8000 * r, r, q)
        for level, (r, q) in enumerate(zip(rates, qualities, strict=True))
    ]


def test_gain_at_equal_rate():
    ours = RATE, np.array([30.0, 31, 32, 33])
    other = RATE / 2, np.array([26.0, 27, 28, 29])  # at equal rate: one doubling ahead, three dB behind
    mean, least = comparisons.gain_at_equal_rate(ours, other, high=0.4)
    assert mean == pytest.approx(3)
    assert least == pytest.approx(3)
    mean, _ = comparisons.gain_at_equal_rate(ours, other)  # beyond 0.4 the other stays at its best
    assert 3 < mean < 4
    with pytest.raises(ValueError, match="no common rates"):
        comparisons.gain_at_equal_rate(ours, other, low=1.0, high=2.0)


def test_rate_ratio():
    quality = np.array([30.0, 31, 32, 33])
    assert comparisons.rate_ratio((RATE, quality), (3 * RATE, quality)) == pytest.approx(3)
    assert comparisons.rate_ratio((RATE, quality), (RATE, quality - 9)) == np.inf
    assert comparisons.rate_ratio((RATE, quality - 9), (RATE, quality)) == 0


def test_bd_between():
    test, anchor = [row(RATE, [30, 31, 32, 33])] * 2, [row(2 * RATE, [30, 31, 32, 33])] * 2
    assert comparisons.bd_between(anchor, test) == pytest.approx(-50)
    far = [row(RATE, [40, 41, 42, 43])] * 2  # better everywhere: no quality that both reach
    assert comparisons.bd_between(anchor, far) == -100
    assert comparisons.bd_between(far, anchor) > 1000
    folded = [row(RATE, [30, 31, 30.5, 32])] * 2  # an envelope of three points
    assert comparisons.bd_between(folded, folded) == pytest.approx(0, abs=1e-9)


def test_mean_curve_and_level_near():
    points = [row(RATE, [30, 31, 32, 33]), row(2 * RATE, [20, 21, 22, 23])]
    rate, quality = comparisons.mean_curve(points)
    np.testing.assert_allclose(rate, 1.5 * RATE)
    np.testing.assert_allclose(quality, [25, 26, 27, 28])
    assert comparisons.level_near(points, 0.29) == 1
    rates, qualities = comparisons.near([points], 0.29)
    np.testing.assert_allclose(rates, [[0.2, 0.4]])
    np.testing.assert_allclose(qualities, [[31, 21]])


def test_gains_over_a_sweep():
    files = [[row(RATE, [30, 31, 32, 33])]]
    sweep = [
        Setting("linear", float(level), r, q)
        for level, r, q in zip((20, 21, 22), RATE, (28, 30, 30), strict=False)
    ]
    whole = comparisons.gains_over(files, {"chelsea": sweep}, 0.1, 0.2)
    assert whole.shape == (1, 1)
    assert whole[0, 0] == pytest.approx(1.5)
    coarse = comparisons.gains_over(files, {"chelsea": sweep}, 0.1, 0.2, levels=(20.0, 22.0))
    assert coarse[0, 0] == pytest.approx(2.0)  # 28 to 30 over two doublings: a weaker envelope


def test_seed_gaps():
    def seeds(target, rates, qualities):
        return {("night", target, s): [row(rates, np.array(qualities) + s)] for s in (0, 1)}

    results = (
        seeds("recorrupted", RATE, [30, 31, 32, 33])
        | seeds("noisy", 2 * RATE, [30, 30, 30, 30])
        | seeds("clean", RATE, [30.2, 31.2, 32.2, 33.2])
    )
    gaps = comparisons.seed_gaps(results)
    np.testing.assert_allclose(gaps["lost to clean"], [0.2, 0.2])
    np.testing.assert_allclose(gaps["gain over noisy"], [[0, 1, 2, 3]] * 2)
    np.testing.assert_allclose(gaps["chelsea over noisy"], [3, 3])
    np.testing.assert_allclose(gaps["share of bits"], [0.5, 0.5])
    assert len(comparisons.runs(results, "night", "noisy")) == 2


def test_excess():
    assert Point("chelsea", 0, 200, 1344.0, 0.1, 30.0).excess == pytest.approx(0)
    assert Point("chelsea", 0, 200, 2000.0, 0.1, 30.0).excess == pytest.approx(144 / 2000)
