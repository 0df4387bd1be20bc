"""Digit scenes: what is drawn is what is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from icml24.papers.sparc import CLASSES, COLOURS, SceneConfig, Vocabulary, render_scenes
from icml24.papers.sparc.data import _alphas


def scenes(num=60, split="train", seed=0, **changes):
    return render_scenes(
        num, SceneConfig(**changes), split=split, generator=torch.Generator().manual_seed(seed)
    )


def test_shapes_and_types():
    drawn = scenes()
    assert drawn.images.shape == (60, 40, 40, 3)
    assert drawn.images.dtype == torch.uint8
    assert drawn.segmentation.shape == (60, 40, 40)
    assert drawn.segmentation.dtype == torch.int16
    assert drawn.tokens.shape == drawn.mask.shape == (60, 6)
    assert drawn.tokens.dtype == torch.int64
    assert torch.equal(drawn.mask, drawn.tokens != Vocabulary.PAD)
    assert len(drawn) == 60


@pytest.mark.parametrize("style", ["labels", "sentence"])
def test_captions_name_the_objects(style):
    drawn = scenes(200, caption_style=style)
    coloured = 0
    for i, objects in enumerate(drawn.objects):
        words = drawn.caption(i).split()
        assert [w for w in words if w in CLASSES] == [CLASSES[o.label] for o in objects]
        named = [w for w in words if w in COLOURS]
        assert named in ([], [o.colour for o in objects])
        coloured += bool(named)
        if style == "labels":
            assert set(words) <= {*CLASSES, *COLOURS}
        else:
            assert words.count("a") == len(objects)
            assert words.count("and") == len(objects) - 1
    assert 70 < coloured < 130
    if style == "sentence":
        assert 30 < sum(drawn.caption(i).startswith("there is") for i in range(200)) < 90


def test_masks_cover_the_cells_and_the_ink():
    drawn = scenes(50)
    for i, objects in enumerate(drawn.objects):
        cells = torch.full((25,), -1)
        for o in objects:
            assert 1 <= len(o.cells) <= 3
            cells[list(o.cells)] = o.label
        assert torch.equal(drawn.cells[i], cells)
        assert torch.equal(
            drawn.segmentation[i].long(),
            cells.view(5, 5).repeat_interleave(8, 0).repeat_interleave(8, 1),
        )
        background = drawn.images[i][drawn.segmentation[i] == -1]
        assert (background == background[0]).all()  # one colour, no noise
        for o in objects:
            row, column = divmod(o.cells[0], 5)
            patch = drawn.images[i, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            assert (patch != background[0]).any()
    assert {len(o) for o in drawn.objects} == {2, 3}


def test_handwriting_of_the_splits_is_disjoint():
    digits = load_digits()
    pools = {split: _alphas(split, 8)[0][:-4] for split in ("train", "test")}
    assert sum(len(pool) for pool in pools.values()) == 1797
    assert len(pools["test"]) == len(range(0, 1797, 5))
    keys = {split: {p.numpy().tobytes() for p in pool} for split, pool in pools.items()}
    ours = digits.images[::5].astype(np.float32) / 16
    assert {p.tobytes() for p in ours} == keys["test"]


def test_colour_is_the_named_one():
    drawn = scenes(100, min_classes=1, max_classes=1, max_copies=1, colour_probability=1.0)
    for i, (o,) in enumerate(drawn.objects):
        assert drawn.caption(i) == f"{o.colour} {CLASSES[o.label]}"
        row, column = divmod(o.cells[0], 5)
        patch = drawn.images[i, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8].reshape(-1, 3).float()
        fullest = patch[(patch - patch.min(0).values).abs().sum(1).argmax()]
        palette = torch.tensor(list(COLOURS.values())).float()
        nearest = torch.nn.functional.cosine_similarity(fullest[None], palette, dim=1).argmax()
        assert list(COLOURS)[nearest] == o.colour


def test_relations_are_true():
    drawn = scenes(100, relations=True)
    for i, (one, two) in enumerate(drawn.objects):
        (row, column), (other_row, other_column) = divmod(one.cells[0], 5), divmod(two.cells[0], 5)
        words = drawn.caption(i).split()
        if "left" in words:
            assert column < other_column
        elif "right" in words:
            assert column > other_column
        else:
            assert column == other_column
            assert ("above" in words) == (row < other_row)


def test_seeded_and_global_state_untouched(global_random_state):
    before = global_random_state()
    one, two, other = scenes(seed=1), scenes(seed=1), scenes(seed=2)
    assert torch.equal(one.images, two.images)
    assert one.objects == two.objects
    assert not torch.equal(one.images, other.images)
    assert torch.equal(render_scenes(5).images, render_scenes(5).images)
    assert global_random_state() == before


def test_other_sizes():
    drawn = scenes(3, grid=4, cell=14)
    assert drawn.images.shape == (3, 56, 56, 3)
    assert len(render_scenes(1)) == 1


def test_vocabulary():
    ids = Vocabulary.encode(["red", "seven"])
    assert Vocabulary().decode(torch.tensor([*ids, 0, 0])) == ["red", "seven"]
    assert Vocabulary.encode("red seven") == ids
    assert len(set(Vocabulary.encode([*CLASSES, *COLOURS]))) == 18
    assert Vocabulary.CLASSES == CLASSES
    with pytest.raises(ValueError, match="purple"):
        Vocabulary.encode("purple seven")
    with pytest.raises(ValueError, match="99"):
        Vocabulary.decode([99])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: render_scenes(0), ValueError, "at least 1"),
        (lambda: render_scenes(2.5), TypeError, "whole number"),
        (lambda: render_scenes(2, split="validation"), ValueError, "unknown split"),
        (lambda: render_scenes(2, {"grid": 5}), TypeError, "SceneConfig"),
        (lambda: SceneConfig(caption_style="poem"), ValueError, "caption_style"),
        (lambda: SceneConfig(grid=2), ValueError, "fit"),
        (lambda: SceneConfig(min_classes=3, max_classes=2), ValueError, "min_classes"),
        (lambda: SceneConfig(colour_probability=2.0), ValueError, "colour_probability"),
        (lambda: SceneConfig(relations=True, max_classes=2, min_classes=1, cell=0), ValueError, "at least 1"),
        (lambda: SceneConfig(relations=True, min_classes=3), ValueError, "two classes"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
