import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from icml24.common.statistics import bootstrap_interval, interquartile_mean

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=40))
def test_interquartile_mean_is_scipys_trimmed_mean(values):
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


def test_interquartile_mean_by_hand_and_along_an_axis():
    assert interquartile_mean([0, 1, 2, 3, 1000]) == 2.0  # k = 1: mean of 1, 2, 3
    x = np.arange(24.0).reshape(2, 3, 4)
    expected = np.stack([stats.trim_mean(x, 0.25, axis=1)])[0]
    np.testing.assert_allclose(interquartile_mean(x, axis=1), expected)


def test_bootstrap_interval_agrees_with_scipy():
    x = np.random.default_rng(1).normal(size=30)
    low, high = bootstrap_interval(x, draws=20_000, generator=np.random.default_rng(0))
    peer = stats.bootstrap(
        (x,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(5)
    )
    scale = x.std() / 30**0.5
    assert abs(low - peer.confidence_interval.low) < 0.05 * scale  # Monte Carlo error of a quantile, 4 s.e.
    assert abs(high - peer.confidence_interval.high) < 0.05 * scale


def test_bootstrap_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        low, high = bootstrap_interval(rng.normal(size=25), draws=400, generator=rng)
        hits += low <= 0 <= high
    assert 0.88 <= hits / 400 <= 0.97  # the percentile bootstrap undercovers slightly at n = 25


@pytest.mark.parametrize("name", ["mean", "median", "iqm"])
def test_bootstrap_of_one_run_has_no_width(name):
    assert bootstrap_interval([3.0], name, generator=np.random.default_rng(0)) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("x", "options", "match"),
    [
        ([], {}, "at least one run"),
        ([1.0, np.nan], {}, "finite"),
        ([[1.0, 2.0]], {}, "one value a run"),
        ([1.0, 2.0], {"level": 1.0}, "level"),
        ([1.0, 2.0], {"draws": 0}, "draws"),
        ([1.0, 2.0], {"statistic": "mode"}, "median"),
    ],
)
def test_bootstrap_rejects(x, options, match):
    with pytest.raises(ValueError, match=match):
        bootstrap_interval(x, generator=np.random.default_rng(0), **options)
