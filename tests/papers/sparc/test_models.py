"""Encoders, training and evaluation, at sizes of seconds."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.sparc import DualEncoder, EncoderConfig, SceneConfig, evaluate, fit, render_scenes
from icml24.papers.sparc.evaluation import class_texts, embed, pointing_accuracy
from icml24.papers.sparc.training import OBJECTIVES


@pytest.fixture(scope="module")
def data():
    g = torch.Generator().manual_seed(0)
    single = SceneConfig(min_classes=1, max_classes=1)
    return (
        render_scenes(200, generator=g),
        render_scenes(30, split="test", generator=g),
        render_scenes(28, single, split="test", generator=g),
    )


VARIANTS = [
    {},
    {"encoder": "transformer"},
    {"pooling": "dense"},
    {"text": "transformer"},
    {"encoder": "transformer", "image_positions": 25},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_shapes_and_gradients(data, changes):
    model = DualEncoder(**changes)
    scenes = data[0]
    out = model(scenes.images[:8], scenes.tokens[:8], scenes.mask[:8])
    assert set(out) == {"image", "patches", "text", "tokens", "inverse_temperature"}
    assert out["image"].shape == out["text"].shape == (8, 64)
    assert out["patches"].shape == (8, 25, 64)
    assert out["tokens"].shape == (8, 6, 64)
    assert math.isclose(float(out["inverse_temperature"].detach()), 1 / 0.07, rel_tol=1e-6)
    sum(value.sum() for value in out.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_pooling_is_the_mean_in_the_shared_space(data):
    scenes = data[0]
    model = DualEncoder().double()
    out = model(scenes.images[:5], scenes.tokens[:5], scenes.mask[:5])
    torch.testing.assert_close(out["image"], out["patches"].mean(1))
    for i in range(5):
        torch.testing.assert_close(out["text"][i], out["tokens"][i][scenes.mask[i]].mean(0))
    dense = DualEncoder(pooling="dense")
    image, patches = dense.encode_image(scenes.images[:5])
    assert (image - patches.mean(1)).abs().max() > 1e-3


@pytest.mark.parametrize("encoder", ["context", "transformer"])
def test_image_encoder_is_equivariant_under_permutations_of_patches(data, encoder):
    model = DualEncoder(encoder=encoder).double()
    images = data[0].images[:3]
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
    cut = images.view(3, 5, 8, 5, 8, 3).transpose(2, 3).reshape(3, 25, 8, 8, 3)[:, order]
    mixed = cut.view(3, 5, 5, 8, 8, 3).transpose(2, 3).reshape(3, 40, 40, 3)
    image, patches = model.encode_image(images)
    moved_image, moved = model.encode_image(mixed)
    torch.testing.assert_close(moved, patches[:, order])
    torch.testing.assert_close(moved_image, image)


@pytest.mark.parametrize("text", ["words", "transformer"])
def test_padding_tokens_do_not_reach_the_caption(data, text):
    scenes = data[0]
    model = DualEncoder(text=text)
    spoiled = torch.where(scenes.mask, scenes.tokens, torch.tensor(7))
    for one, two in zip(
        model.encode_text(scenes.tokens[:9], scenes.mask[:9]),
        model.encode_text(spoiled[:9], scenes.mask[:9]),
        strict=True,
    ):
        real = scenes.mask[:9, :, None] if one.ndim == 3 else torch.tensor(True)
        assert torch.equal(torch.where(real, one, 0.0), torch.where(real, two, 0.0))  # bit for bit


def test_temperature_is_clamped():
    model = DualEncoder()
    with torch.no_grad():
        model.log_scale.fill_(10.0)
    assert float(model.inverse_temperature.detach()) == pytest.approx(100.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains_and_is_measured(data, objective):
    model = DualEncoder(EncoderConfig(hidden=16, width=16, dim=16))
    history = fit(model, data[0], objective, steps=40, batch_size=32, lr=5e-3)
    assert [record["step"] for record in history] == list(range(1, 41))
    first, last = (sum(r["loss"] for r in part) for part in (history[:5], history[-5:]))
    assert last < first
    found = evaluate(model, data[1], data[2], objective=objective)
    assert {
        "zero_shot",
        "i2t_r1",
        "t2i_r10",
        "k_precision",
        "k_precision_na",
        "pointing",
        "duplicates",
    } < set(found)
    assert {"miou_strict", "miou_foreground", "miou_present"} < set(found)
    assert all(0 <= value <= 1 for value in found.values())
    assert found["miou_strict"] <= found["miou_foreground"] + 1e-12
    assert found["miou_foreground"] <= found["miou_present"] + 1e-12


def test_training_is_seeded(data, global_random_state):
    before = global_random_state()
    runs = []
    for _ in range(2):
        model = DualEncoder(generator=torch.Generator().manual_seed(3))
        generator = torch.Generator().manual_seed(4)
        history = fit(model, data[0], "sparc", steps=5, batch_size=16, lr=1e-3, generator=generator)
        runs.append((history, model.words.weight.detach()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert global_random_state() == before


def test_no_steps_no_records(data):
    assert fit(DualEncoder(), data[0], "clip", steps=0, batch_size=8, lr=1e-3) == []


def test_pointing_by_hand():
    """Class 0 peaks on its own patch, class 1 on background, class 2 is not shown."""
    cosines = torch.tensor([[[0.9, 0.1, 0.5], [0.2, 0.3, 0.9], [0.1, 0.8, 0.0]]])
    assert pointing_accuracy(cosines, torch.tensor([[0, 1, -1]])) == 0.5


def test_class_texts_and_batches_of_embedding(data):
    model = DualEncoder()
    assert class_texts(model).shape == (14, 64)
    assert class_texts(model, style="sentence", ensemble=True).shape == (14, 64)
    one, two = embed(model, data[1], batch=7), embed(model, data[1])
    torch.testing.assert_close(one.patches, two.patches)


def test_a_loss_that_explodes_is_reported(data):
    model = DualEncoder()
    with torch.no_grad():
        model.words.weight.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="step 1"):
        fit(model, data[0], "sparc", steps=3, batch_size=8, lr=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda d: DualEncoder(encoder="cnn"), ValueError, "unknown encoder"),
        (lambda d: DualEncoder(pooling="max"), ValueError, "unknown pooling"),
        (lambda d: DualEncoder({"dim": 3}), TypeError, "EncoderConfig"),
        (lambda d: DualEncoder(depth=3), TypeError, "depth"),
        (lambda d: DualEncoder(heads=5), ValueError, "heads"),
        (
            lambda d: DualEncoder(patch=7)(d[0].images[:2], d[0].tokens[:2], d[0].mask[:2]),
            ValueError,
            "7 x 7",
        ),
        (lambda d: DualEncoder().encode_image(d[0].images[0]), ValueError, "batch, height"),
        (lambda d: DualEncoder().encode_text(d[0].tokens, d[0].mask[:1]), ValueError, "one shape"),
        (
            lambda d: fit(DualEncoder(), d[0], "siglip", steps=1, batch_size=2, lr=1e-3),
            ValueError,
            "objective",
        ),
        (
            lambda d: fit(DualEncoder(), d[0], "clip", steps=1, batch_size=500, lr=1e-3),
            ValueError,
            "200 scenes",
        ),
        (lambda d: fit(DualEncoder(), d[0], "clip", steps=-1, batch_size=2, lr=1e-3), ValueError, "steps"),
        (lambda d: evaluate(DualEncoder(), d[1], d[1], objective="clip"), ValueError, "one class"),
        (lambda d: evaluate(DualEncoder(), d[1], d[2], objective="x"), ValueError, "objective"),
    ],
)
def test_bad_input(data, call, error, words):
    with pytest.raises(error, match=words):
        call(data)
