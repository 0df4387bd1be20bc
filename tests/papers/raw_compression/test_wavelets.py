"""The denoising baseline's transform and threshold."""

from __future__ import annotations

import numpy as np
import pytest

from icml24.papers.raw_compression.wavelets import HIGH, LOW, denoise_wavelet, join, split


def test_filters_are_orthonormal_with_two_vanishing_moments():
    assert pytest.approx(1) == LOW @ LOW
    assert LOW[2:] @ LOW[:2] == pytest.approx(0, abs=1e-12)
    assert pytest.approx(0, abs=1e-12) == LOW @ HIGH
    assert [HIGH @ np.arange(4) ** p for p in (0, 1)] == pytest.approx([0, 0], abs=1e-12)


def test_reconstruction_and_energy():
    x = np.random.default_rng(0).normal(size=(16, 24))
    coarse, details = split(x)
    assert coarse.shape == (8, 12)
    np.testing.assert_allclose(join(coarse, details), x, atol=1e-12)
    assert sum((band**2).sum() for band in (coarse, *details)) == pytest.approx((x**2).sum())


def test_noise_goes_and_edges_stay():
    rng = np.random.default_rng(1)
    clean = np.zeros((97, 130))
    clean[:, 60:] = 20.0
    noisy = clean + rng.normal(size=clean.shape)
    out = denoise_wavelet(noisy, 1.0)
    assert out.shape == clean.shape
    assert ((out - clean) ** 2).mean() < 0.25  # of a noise variance of 1
    assert (out[:, 90:] - out[:, :40][:, :1]).mean() == pytest.approx(20, abs=0.5)


def test_as_good_as_scikit_image():
    from skimage.restoration import denoise_wavelet as peer

    rng = np.random.default_rng(2)
    rows, columns = np.mgrid[:128, :160]
    clean = 8 * np.sin(rows / 9) + 6 * (columns > 70)
    noisy = clean + rng.normal(size=clean.shape)
    theirs = peer(noisy, sigma=1.0, wavelet="db2", method="BayesShrink", mode="soft", rescale_sigma=False)
    errors = [((out - clean) ** 2).mean() for out in (denoise_wavelet(noisy, 1.0), theirs)]
    assert 0.5 * errors[1] < errors[0] < 1.1 * errors[1]


def test_rejects():
    with pytest.raises(ValueError, match="shape"):
        denoise_wavelet(np.zeros(5), 1.0)
    with pytest.raises(ValueError, match="sigma"):
        denoise_wavelet(np.zeros((5, 5)), 0.0)
