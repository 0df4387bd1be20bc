"""The generated table, its known truth, the rendered particles, and what is trained on them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from icml24.papers.nanomorphology import SHAPES, make_targets
from icml24.papers.nanomorphology.generated import (
    best_accuracy,
    encode_conditions,
    generated_conditions,
    generated_dataset,
    rule_probability,
)
from icml24.papers.nanomorphology.images import psnr
from icml24.papers.nanomorphology.particles import render_particle, render_table
from icml24.papers.nanomorphology.targets import FEATURES, POLYMERS, SOLVENTS, SURFACTANTS
from icml24.papers.nanomorphology.training import TextEmbedding, draw_from_text, train_linking, train_vae


def test_schema_of_the_laboratory_table():
    frame = generated_dataset(0)
    ends = [f"{s}_{e}" for s in SHAPES for e in ("min", "max")]
    assert list(frame.columns) == ["Image_id", *FEATURES, *ends, *SHAPES]
    assert frame.shape == (209, 45)
    floats = {"Polymer Mwt, kDa", "Polymer, % wt.", "Surfactant, % wt.", "Solvent, % vol."}
    for name, kind in frame.dtypes.items():
        assert kind == (np.float64 if name in floats else np.int64), name
    assert frame["Image_id"].is_unique
    assert frame["Image_id"].between(0, 214).all()
    for group in (SURFACTANTS, SOLVENTS, POLYMERS):
        assert (frame[list(group)].sum(axis=1) == 1).all()
    assert frame[list(SHAPES)].any(axis=1).all()
    for s in SHAPES:
        absent = frame[s] == 0
        assert (frame.loc[absent, [f"{s}_min", f"{s}_max"]] == 0).all(axis=None)
        assert (frame[f"{s}_min"] <= frame[f"{s}_max"]).all()
    assert (make_targets(frame).sum() > 0).all()


def test_rows_point_into_the_conditions():
    conditions, frame = generated_conditions(5), generated_dataset(5)
    assert conditions.shape == (215, 13)
    again = encode_conditions(conditions).loc[frame["Image_id"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, frame[list(FEATURES)], check_dtype=False)


def test_time_text_and_seconds_agree():
    encoded = encode_conditions(generated_conditions(0).assign(**{"Synthesis time": "12 min 34 sec"}))
    assert (encoded["Synthesis time"] == 754).all()


def test_seed_decides(global_random_state):
    before = global_random_state()
    pd.testing.assert_frame_equal(generated_dataset(1), generated_dataset(1))
    assert not generated_dataset(1).equals(generated_dataset(2))
    assert global_random_state() == before


@pytest.mark.equation("eq-nanomorphology-best")
def test_the_truth_is_the_truth():
    """Share of each shape over 30 tables against the rule's exact probability; the best rule's accuracy too."""
    gaps, hits, expected = [], [], []
    for seed in range(30):
        frame = generated_dataset(seed)
        chance, y = rule_probability(frame), frame[list(SHAPES)].to_numpy()
        gaps.append((y - chance.to_numpy()).mean(axis=0))
        hits.append(((chance.to_numpy() >= 0.5) == y).mean(axis=0))
        expected.append(best_accuracy(frame).to_numpy())
    for sample in (np.array(gaps), np.array(hits) - np.array(expected)):
        assert (np.abs(sample.mean(axis=0)) < 4 * sample.std(axis=0) / math.sqrt(30)).all()


@pytest.mark.equation("eq-nanomorphology-best")
def test_no_rule_beats_the_best():
    """Any threshold on any probability loses in expectation: sum of p or 1 - p is at most the maximum."""
    frame = generated_dataset(3)
    chance, best = rule_probability(frame).to_numpy(), best_accuracy(frame)
    draw = np.random.default_rng(0)
    for _ in range(200):
        said = draw.random(chance.shape) < draw.random()
        assert (np.where(said, chance, 1 - chance).mean(axis=0) <= best + 1e-12).all()


def test_flat_follows_no_condition():
    """The rule's Flat probability varies only through rows that would stay empty (Flat is never the likeliest)."""
    chance = rule_probability(generated_dataset(4))["Flat"]
    assert chance.nunique() == 1
    assert chance.iloc[0] == pytest.approx(1 / (1 + math.exp(2.7)))


@pytest.mark.parametrize("rows", [0, 216])
def test_bad_rows(rows):
    with pytest.raises(ValueError, match="rows"):
        generated_dataset(0, rows)


def test_at_least_one_condition_row():
    with pytest.raises(ValueError, match="at least 1"):
        generated_conditions(0, 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_particles_are_bright_bodies_on_black(shape):
    draw = np.random.default_rng(0)
    for size in (0.35, 0.8):
        crop = render_particle(shape, size, generator=draw)
        assert (crop.shape, crop.dtype) == ((32, 32), np.float32)
        assert crop.min() >= 0
        assert crop.max() <= 1
        assert crop.max() > 0.3
        border = np.concatenate([crop[0], crop[-1], crop[:, 0], crop[:, -1]])
        assert np.median(border) < 0.02
    small = np.mean([render_particle(shape, 0.3, generator=draw).sum() for _ in range(20)])
    large = np.mean([render_particle(shape, 0.8, generator=draw).sum() for _ in range(20)])
    assert large > 1.5 * small


def test_sticks_are_longer_than_balls():
    """Second moments: the ratio of principal axes tells a rod from a ball."""
    draw = np.random.default_rng(1)

    def elongation(crop):
        y, x = np.nonzero(crop > 0.15)
        values = np.linalg.eigvalsh(np.cov(np.stack([x, y]).astype(float)))
        return math.sqrt(values[1] / values[0])

    sticks, balls = (
        [elongation(render_particle(s, 0.7, generator=draw)) for _ in range(10)] for s in ("Stick", "Sphere")
    )
    assert min(sticks) > 2 > max(balls)


def test_crops_of_a_table():
    frame = generated_dataset(2).iloc[:12]
    crops, shown = render_table(frame, seed=2)
    assert crops.shape == (12, 1, 32, 32)
    assert all(frame.iloc[i][shape] == 1 for i, shape in enumerate(shown))
    np.testing.assert_array_equal(crops, render_table(frame, seed=2)[0])


def test_bad_particles():
    draw = np.random.default_rng(0)
    with pytest.raises(ValueError, match="unknown shape 'Star'"):
        render_particle("Star", generator=draw)
    with pytest.raises(ValueError, match="size"):
        render_particle("Cube", 0.0, generator=draw)


def test_training_is_deterministic_and_learns(global_random_state):
    crops, _ = render_table(generated_dataset(2).iloc[:48], seed=2)
    train_vae(crops[:4], epochs=1, width=2)  # libraries imported on first use may draw numbers for themselves
    TextEmbedding(2).fit(["a b", "b c"])
    before = global_random_state()
    one, two = (train_vae(crops, epochs=6, width=8, seed=1) for _ in range(2))
    assert one.losses == two.losses
    assert one.losses[-1] < one.losses[0]
    codes = one.network.code(torch.tensor(crops))
    texts = [f"row {i} at {i % 7} C" for i in range(48)]
    embedding = TextEmbedding(8).fit(texts).transform(texts)
    linked = train_linking(embedding, codes, epochs=5, seed=1)
    assert linked.losses[-1] < linked.losses[0]
    images = draw_from_text(one.network, linked.network, embedding)
    drawn = draw_from_text(one.network, linked.network, embedding, torch.Generator().manual_seed(0))
    assert images.shape == (48, 1, 32, 32)
    assert torch.isfinite(psnr(images, torch.tensor(crops))).all()
    assert not torch.equal(images, drawn)
    assert global_random_state() == before


def test_embedding_is_fitted_on_training_texts_only():
    fitted = TextEmbedding(5).fit([f"{i} C and {i * i} s" for i in range(20)])
    out = fitted.transform(["3 C and 9 s", "unseen words"])
    assert out.shape == (2, 5)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out[:1], fitted.transform(["3 C and 9 s"]), rtol=1e-6)
    with pytest.raises(ValueError, match="not fitted"):
        TextEmbedding().transform(["a"])
    with pytest.raises(ValueError, match="two texts"):
        TextEmbedding().fit(["a"])
    with pytest.raises(ValueError, match="dimension"):
        TextEmbedding(0)
