"""Scenes, cameras, training and files: small runs of everything the chapter calls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from icml24.papers.raw_compression import baselines, data, experiments, training
from icml24.papers.raw_compression.training import Recipe

TINY = Recipe(channels=4, latent_channels=6, steps=6, patch=16, batch=2)


@pytest.fixture(scope="module")
def night():
    pattern = data.fixed_pattern(0)
    calibration = data.Calibration(16.0, 20.0, pattern, torch.zeros(2), torch.zeros(2))
    return data.Camera(data.EXPOSURES["night"], pattern, calibration, torch.zeros(2, 2, 2))


@pytest.fixture(scope="module")
def chelsea(night):
    return data.shoot("chelsea", night, 0)


@pytest.mark.parametrize("name", [*data.TRAINING_SCENES, *data.TEST_SCENES])
def test_scenes(name):
    mosaic = data.scene(name)
    assert mosaic.dtype == torch.float32
    assert all(
        side % 32 == 0 and side <= most for side, most in zip(mosaic.shape, data.SENSOR_SIZE, strict=True)
    )
    assert 0 <= mosaic.min() < mosaic.max() <= 1


def test_test_scenes_are_not_trained_on():
    assert not set(data.TRAINING_SCENES) & set(data.TEST_SCENES)
    with pytest.raises(ValueError, match="unknown scene"):
        data.scene("lena")


def test_shot(night, chelsea):
    assert chelsea.clean.shape == (288, 448)
    assert chelsea.planes.shape == (4, 144, 224)
    assert torch.equal(chelsea.raw, chelsea.raw.round())
    residual = chelsea.linear - chelsea.clean
    assert abs(float(residual.mean())) < 1
    assert float(residual.var()) == pytest.approx(float(16 * chelsea.clean.mean()) + 400, rel=0.03)
    noise = chelsea.planes - chelsea.clean_planes
    assert float(noise.var()) == pytest.approx(1.05, abs=0.05)  # dark: a few percent above one
    assert torch.equal(data.shoot("chelsea", night, 0).raw, chelsea.raw)
    assert not torch.equal(data.shoot("chelsea", night, 1).raw, chelsea.raw)
    brighter = data.shoot("chelsea", night, 0, light=2.0)
    torch.testing.assert_close(brighter.clean, 2 * chelsea.clean)
    left_in = data.shoot("chelsea", night, 0, subtract=False)
    assert torch.equal(left_in.raw, chelsea.raw)
    assert not torch.equal(left_in.planes, chelsea.planes)


def test_pattern_has_columns():
    pattern = data.fixed_pattern(3, pixel_std=3.0, column_std=12.0)
    assert pattern.shape == data.SENSOR_SIZE
    assert float(pattern.mean(0).std()) == pytest.approx(12, rel=0.1)
    assert float((pattern - pattern.mean(0)).std()) == pytest.approx(3, rel=0.02)


def test_training_lowers_the_loss_and_repeats(night, chelsea):
    exposure, recipe = data.EXPOSURES["night"], dataclasses.replace(TINY, steps=40)
    losses = {}
    codecs = {}
    for run in "ab":
        losses[run] = []
        codecs[run] = training.train(
            exposure, [chelsea], "recorrupted", recipe, 0, lambda _, loss, run=run: losses[run].append(loss)
        )
    assert losses["a"] == losses["b"]
    assert np.mean(losses["a"][-8:]) < np.mean(losses["a"][:8])
    assert not codecs["a"].training
    for x, y in zip(codecs["a"].parameters(), codecs["b"].parameters(), strict=True):
        assert torch.equal(x, y)
    with pytest.raises(ValueError, match="unknown target"):
        training.train(exposure, [chelsea], "dirty", recipe, 0)


def test_only_the_oracle_reads_the_clean_planes(chelsea):
    exposure = data.EXPOSURES["night"]
    blind = dataclasses.replace(chelsea, clean_planes=torch.full_like(chelsea.planes, float("nan")))
    for target in ("recorrupted", "noisy"):
        codec = training.train(exposure, [blind], target, TINY, 0)
        assert all(p.isfinite().all() for p in codec.parameters())
    oracle = training.train(exposure, [blind], "clean", TINY, 0)
    assert any(p.isnan().any() for p in oracle.parameters())


def test_seeds_share_patches_across_targets(chelsea):
    draws = [training.draw_patches([chelsea], 3, 8, torch.Generator().manual_seed(5)) for _ in "ab"]
    assert all(torch.equal(x, y) for x, y in zip(*draws, strict=True))
    noisy, clean = draws[0]
    assert noisy.shape == clean.shape == (3, 4, 8, 8)
    assert float((noisy - clean).var()) < 1.6  # noise only: windows and flips agree


def test_global_state_is_left_alone(chelsea, global_random_state):
    before = global_random_state()
    training.train(data.EXPOSURES["night"], [chelsea], "recorrupted", TINY, 0)
    assert global_random_state() == before


def test_files_are_real_and_points_say_what_they_are(night, chelsea):
    exposure = data.EXPOSURES["night"]
    codec = training.train(exposure, [chelsea], "recorrupted", TINY, 0)
    (points,) = experiments.evaluate(codec, exposure, [chelsea])
    assert [p.level for p in points] == [0, 1, 2, 3]
    assert all(p.bpp == 8 * p.size / (288 * 448) for p in points)
    assert all(p.excess < 0.03 for p in points)
    assert 0 < experiments.hyper_bits(codec, chelsea.planes[None], 2) < points[2].estimate


def test_lossless_and_lossy_baselines(chelsea):
    crop = chelsea.raw[:64, :64].contiguous()
    assert 6 < baselines.lossless_bpp(crop) < 11
    assert baselines.lossless_bpp(crop, "PNG") > 6
    planes = chelsea.planes[:, :40, :40].double().numpy()
    small, rough = baselines.j2k_planes(planes, 20.0)
    large, fine = baselines.j2k_planes(planes, 50.0)
    assert len(small) < len(large)
    assert np.abs(fine - planes).max() < np.abs(rough - planes).max()
    assert np.abs(fine - planes).mean() < 0.05


def test_profiles():
    assert experiments.configure("quick") == experiments.QUICK
    assert experiments.configure("full", seed=3).seed == 3
    with pytest.raises(ValueError, match="unknown profile"):
        experiments.configure("slow")
    with pytest.raises(ValueError, match="full profile"):
        experiments._short(experiments.QUICK)
