"""Packing, and the camera pipeline in both directions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.raw_compression import mosaic_from_srgb, pack_bayer, srgb_from_mosaic, unpack_bayer
from icml24.papers.raw_compression.bayer import PATTERNS

F64 = torch.float64


@pytest.mark.parametrize("pattern", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_parity(reference, pattern):
    mosaic = torch.from_numpy(reference["pack:mosaic"])
    planes = pack_bayer(mosaic, pattern)
    assert torch.equal(planes, torch.from_numpy(reference[f"pack:{pattern}"]))
    assert torch.equal(unpack_bayer(planes, pattern), mosaic)


def test_planes_by_hand():
    mosaic = torch.tensor([[1, 2], [3, 4]])
    assert pack_bayer(mosaic).flatten().tolist() == [1, 2, 3, 4]  # R, G on the red row, G on the blue row, B
    assert pack_bayer(mosaic, "GRBG").flatten().tolist() == [2, 1, 4, 3]


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(sorted(PATTERNS)),
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.integers(1, 3), max_size=2),
)
def test_unpacking_inverts_packing(pattern, h, w, batch):
    planes = torch.arange(4 * h * w * int(torch.tensor(batch).prod())).reshape(*batch, 4, h, w)
    mosaic = unpack_bayer(planes, pattern)
    assert mosaic.shape == (*batch, 2 * h, 2 * w)
    assert torch.equal(pack_bayer(mosaic, pattern), planes)


def test_grey_patch():
    """Grey 0.5: linear 0.2140; green as it is, red halved by its white balance."""
    planes = pack_bayer(mosaic_from_srgb(torch.full((8, 8, 3), 0.5, dtype=F64)))
    linear = ((0.5 + 0.055) / 1.055) ** 2.4
    assert linear == pytest.approx(0.2140, abs=5e-5)
    torch.testing.assert_close(planes[1:3], torch.full((2, 4, 4), linear, dtype=F64))
    torch.testing.assert_close(planes[0], planes[1] / 2)
    torch.testing.assert_close(planes[3], planes[1] / 1.7)


def test_development_undoes_the_mosaic_of_even_patches():
    rgb = torch.tensor([0.55, 0.5, 0.45], dtype=F64).expand(12, 10, 3)
    torch.testing.assert_close(srgb_from_mosaic(mosaic_from_srgb(rgb)), rgb, rtol=1e-6, atol=1e-6)


def test_green_interpolates_bilinearly():
    mosaic = torch.zeros(6, 6, dtype=F64)
    mosaic[2, 3] = 1.0  # a green site; its red neighbour (2, 2) has four green ones
    camera = 0.25
    green = 1.5 * camera
    value = srgb_from_mosaic(mosaic)[2, 2, 1]
    assert float(value) == pytest.approx(1.055 * green ** (1 / 2.4) - 0.055, rel=1e-9)


def test_float32_in_float32_out():
    rgb = torch.rand(6, 8, 3, generator=torch.Generator().manual_seed(0))
    mosaic = mosaic_from_srgb(rgb)
    assert mosaic.dtype == torch.float32
    assert (mosaic >= 0).all()
    assert (mosaic <= 1).all()
    assert srgb_from_mosaic(mosaic).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: pack_bayer(torch.zeros(3, 4)), ValueError, "even"),
        (lambda: pack_bayer(torch.zeros(4)), ValueError, "even"),
        (lambda: pack_bayer(torch.zeros(4, 4), "RGBG"), ValueError, "RGBG"),
        (lambda: pack_bayer([[1, 2], [3, 4]]), TypeError, "tensor"),
        (lambda: pack_bayer(torch.zeros(4, 4), ["RGGB"]), ValueError, "pattern"),
        (lambda: unpack_bayer(torch.zeros(3, 2, 2)), ValueError, "4, h, w"),
        (lambda: unpack_bayer(torch.zeros(4, 2, 2), "XXXX"), ValueError, "XXXX"),
        (lambda: mosaic_from_srgb(torch.zeros(4, 4)), ValueError, "H, W, 3"),
        (lambda: mosaic_from_srgb(torch.zeros(5, 4, 3)), ValueError, "even"),
        (lambda: mosaic_from_srgb(torch.full((4, 4, 3), 255.0)), ValueError, "255"),
        (lambda: mosaic_from_srgb(torch.zeros(4, 4, 3).byte()), TypeError, "floating"),
        (lambda: srgb_from_mosaic(torch.zeros(4, 5)), ValueError, "even"),
        (lambda: srgb_from_mosaic(torch.full((4, 4), float("inf"))), ValueError, "finite"),
        (lambda: srgb_from_mosaic(torch.zeros(1, 4, 4)), ValueError, "H, W"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call()
