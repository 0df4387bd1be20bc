"""The CLAP adapter on a tiny random checkpoint that the test itself writes."""

import json
import sys
import types

import pytest
import torch

from icml24.papers import ctag
from icml24.papers.ctag import ClapScorer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    import transformers

    folder = tmp_path_factory.mktemp("clap")
    characters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghijklmnopqrstuvwxyz", "Ġ"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(characters)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.RobertaTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    text = dict(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                max_position_embeddings=66, projection_dim=12)  # fmt: skip
    sound = dict(window_size=8, num_mel_bins=64, spec_size=256, hidden_size=16, patch_embeds_hidden_size=8,
                 depths=[1, 1], num_attention_heads=[1, 2], projection_dim=12)  # fmt: skip
    config = transformers.ClapConfig(text_config=text, audio_config=sound, projection_dim=12)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.ClapModel(config).save_pretrained(folder)
    extractor = transformers.ClapFeatureExtractor(truncation="rand_trunc")
    transformers.ClapProcessor(extractor, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def scorer(checkpoint):
    return ClapScorer.from_pretrained(checkpoint)


def tones(n, seconds, rate):
    t = torch.arange(int(seconds * rate), dtype=torch.float64) / rate
    return torch.stack([0.5 * torch.sin(2 * torch.pi * 200.0 * (i + 1) * t) for i in range(n)])


def test_unit_vectors_and_determinism(scorer):
    texts = scorer.embed_text(["a dog", "rain"])
    assert texts.shape == (2, 12)
    torch.testing.assert_close(texts.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(scorer.embed_text(["a dog"]), texts[:1], rtol=0, atol=1e-5)
    sounds = tones(3, 0.5, 48000)
    embedded = scorer.embed_audio(sounds, 48000)
    assert embedded.shape == (3, 12)
    assert embedded.dtype == torch.float64
    assert scorer.sample_rate == 48000
    torch.testing.assert_close(embedded.norm(dim=-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-6)
    assert torch.equal(embedded, scorer.embed_audio(sounds, 48000))


def test_other_rates_and_long_clips(scorer, global_random_state):
    at_48, at_16 = (scorer.embed_audio(tones(2, 0.5, rate), rate) for rate in (48000, 16000))
    torch.testing.assert_close(at_48, at_16, rtol=0, atol=2e-2)
    before = global_random_state()
    long = tones(1, 10.5, 48000)
    torch.testing.assert_close(scorer.embed_audio(long, 48000), scorer.embed_audio(long[:, :480000], 48000))
    assert global_random_state() == before  # CLAP's own front end would cut at random


def test_search_runs_on_it(scorer, weights):
    voice = ctag.Voice(ctag.SynthConfig(48000, 480, 0.05))
    found = ctag.optimise("a bird", voice, scorer, ctag.LES(weights, population_size=4), iterations=2)
    assert found.audio.shape == (2400,)
    assert -1 <= found.similarity <= 1


def test_single_file_goes_to_laion_clap(tmp_path, monkeypatch):
    file = tmp_path / "630k.pt"
    file.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "laion_clap", None)
    with pytest.raises(ImportError, match="laion-clap"):
        ClapScorer.from_pretrained(file)

    class Module:
        def __init__(self, enable_fusion, amodel):
            assert (enable_fusion, amodel) == (False, "HTSAT-tiny")

        def load_ckpt(self, path):
            assert path == str(file)

        def get_text_embedding(self, prompts, use_tensor):
            assert len(prompts) >= 2  # a single prompt loses its batch axis there
            return torch.tensor([[float(len(p)), 1.0] for p in prompts])

        def get_audio_embedding_from_data(self, x, use_tensor):
            return x[:, :2] + 2

    monkeypatch.setitem(sys.modules, "laion_clap", types.SimpleNamespace(CLAP_Module=Module))
    scorer = ClapScorer.from_pretrained(str(file))
    assert scorer.embed_text(["rain"]).shape == (1, 2)
    assert scorer.embed_audio(torch.zeros(3, 100), 48000).shape == (3, 2)


def test_bad_inputs(tmp_path, monkeypatch, scorer):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*clap-htsat-unfused"):
        ClapScorer.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="empty"):
        scorer.embed_text([""])
    with pytest.raises(TypeError, match="list"):
        scorer.embed_text("rain")
    with pytest.raises(ValueError, match="batch"):
        scorer.embed_audio(torch.zeros(100), 48000)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="transformers"):
        ClapScorer.from_pretrained(tmp_path)
