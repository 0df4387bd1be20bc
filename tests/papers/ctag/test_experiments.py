"""Tiny sizes: shapes, pairing and repeatability of what the chapter runs."""

import numpy as np
import pytest
import torch

from icml24.papers.ctag import data, experiments, gradients

TINY = experiments.configure(
    "quick", clips=24, epochs=1, validation=24, distractors=24, population=4, generations=3, gradient_points=4,
    adam_steps=1, ablated_classes=("siren",),
)  # fmt: skip


@pytest.fixture(scope="module")
def comparison():
    return experiments.compare(TINY)


def test_comparison(comparison):
    assert set(comparison.sounds) == {(m, n, 0) for m in TINY.methods for n in data.CLASSES}
    for method in TINY.methods:
        assert comparison.similarity(method).shape == (1, 12)
        history = comparison.history(method)
        assert history.shape == (1, 12, 3)
        assert (np.diff(history) >= 0).all()
        np.testing.assert_allclose(history[..., -1], comparison.similarity(method).clip(min=0), atol=1e-6)
    mean, low, high = comparison.lead("LES", "random search")
    assert low <= mean <= high
    assert comparison.lead("LES", "LES") == (0.0, 0.0, 0.0)
    assert 0 <= comparison.recognised("no search")[0] <= 12
    own, second = comparison.advantage()
    assert own.shape == second.shape == (1, 12)


def test_random_search_shares_its_draws_but_not_its_choices(comparison):
    w = experiments.world(TINY)
    for name in ("rain", "bell"):
        sound = comparison.sounds["random search", name, 0].result
        again = w.voice(sound.unit[None], w.noise)
        score = experiments.similarity_of(w.scorer, again, [data.prompt_of(name)]).item()
        assert abs(score - sound.similarity) < 1e-3


def test_repeatable(comparison):
    again = experiments.compare(TINY)
    assert all(
        torch.equal(again.sounds[key].result.unit, s.result.unit) for key, s in comparison.sounds.items()
    )


def test_paths_and_sensitivity(comparison):
    path = experiments.path(TINY, comparison, ("siren", "rain"), steps=5)
    assert path.similarity.shape == (5, 2)
    assert torch.equal(path.units[0], comparison.sounds["LES", "siren", 0].result.unit)
    assert torch.equal(path.units[-1], comparison.sounds["LES", "rain", 0].result.unit)
    losses = experiments.sensitivity(TINY, comparison, "siren")
    assert losses.shape == (78,)
    assert (losses >= 0).all()


def test_ablations_and_gradients(comparison):
    table = experiments.ablations(TINY, comparison)
    assert list(table) == ["Voice", "NoNoise", "NoLFO", "OneOsc", "ShapedNoise"]
    study = gradients.gradient_study(TINY, steps=(1e-7,))
    assert study.gradients.shape == (4, 78)
    assert study.disagreement[1e-7] < 1e-3  # autograd against central differences
    (ascent,) = gradients.ascend(TINY, comparison)
    assert ascent.adam.shape == (1,)


def test_unknown_method():
    from icml24.papers.ctag.comparison import strategy_of

    with pytest.raises(ValueError, match="random search"):
        strategy_of("hill climbing", 4)
