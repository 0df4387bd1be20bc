import numpy as np
import pytest
import torch

from icml24.common.random import numpy_generator
from icml24.papers.ctag import data


def test_corpus_shapes_and_balance():
    corpus = data.make_corpus(36, 0, "train", 0)
    assert corpus.audio.shape == (36, 16000)
    assert corpus.audio.dtype == torch.float32
    assert corpus.labels.bincount().tolist() == [3] * 12
    assert all(
        text in data.captions_of(data.CLASSES[label])
        for text, label in zip(corpus.captions, corpus.labels, strict=True)
    )
    peaks = corpus.audio.abs().amax(1)
    assert ((peaks > 0.9) & (peaks < 1.03)).all()


def test_streams():
    first, again = (data.make_corpus(3, 0, "a").audio for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(first, data.make_corpus(5, 0, "a").audio[:3])
    assert not torch.equal(first, data.make_corpus(3, 0, "b").audio)
    assert not torch.equal(first, data.make_corpus(3, 1, "a").audio)


@pytest.mark.parametrize("name", data.CLASSES)
def test_every_recipe_sounds(name):
    clips = np.array([data.render_clip(name, numpy_generator(0, "recipe", i)) for i in range(4)])
    assert np.isfinite(clips).all()
    assert not np.allclose(clips[0], clips[1])
    power = np.abs(np.fft.rfft(clips)) ** 2
    centroid = (power * np.arange(8001)).sum(1) / power.sum(1)
    low = {"heartbeat": 400, "engine": 800, "wind": 1500, "drone": 2500, "footsteps": 2500}
    if name in low:
        assert (centroid < low[name]).all()
    if name in ("rain", "clock", "bird"):
        assert (centroid > 2000).all()


def test_held_out_words_are_new_combinations_of_known_ones():
    known = {word for name in data.CLASSES for text in data.captions_of(name) for word in text.split()}
    for name, names in data.NAMES.items():
        text = data.HELD_OUT_TEMPLATE.format(names[2])
        assert text not in data.captions_of(name)
        assert set(names[2].split()) & known


def test_rejects():
    with pytest.raises(ValueError, match="at least one clip"):
        data.make_corpus(0, 0)
    with pytest.raises(ValueError, match="siren"):
        data.prompt_of("thunder")
    with pytest.raises(ValueError, match="siren"):
        data.render_clip("thunder", numpy_generator(0))
