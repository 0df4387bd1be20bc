import math

import pytest
import torch

from icml24.common.contrastive import symmetric_info_nce
from icml24.papers import ctag
from icml24.papers.ctag import ContrastiveScorer, data
from icml24.papers.ctag.scorers import Judge, train_judge, train_scorer


@pytest.fixture(scope="module")
def corpus():
    return data.make_corpus(144, 3, "scorer test")


@pytest.fixture(scope="module")
def trained(corpus):
    voice = ctag.Voice(ctag.SynthConfig(16000, 160, 1.0))
    distractors = voice(torch.rand(48, 78, generator=torch.Generator().manual_seed(1)))
    return train_scorer(corpus, distractors, epochs=6, seed=3), distractors


@pytest.mark.equation("eq-ctag-infonce")
def test_loss_is_the_mean_of_two_guesses():
    # softmax by hand along rows and along columns
    g = torch.Generator().manual_seed(2)
    logits = torch.randn(5, 5, generator=g, dtype=torch.float64)
    table = logits.tolist()
    guesses = [
        math.log(math.exp(table[i][i]) / sum(math.exp(v) for v in line))
        for i in range(5)
        for line in (table[i], [row[i] for row in table])
    ]
    assert math.isclose(symmetric_info_nce(logits), -sum(guesses) / 10, rel_tol=1e-12)


@pytest.mark.equation("eq-ctag-information")
@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_information_bound_on_gaussian_pairs(rho):
    # E10: log B - L stays below the known information and comes close with the true log density ratio
    g = torch.Generator().manual_seed(4)
    size, batches = 64, 300
    information = -0.5 * math.log(1 - rho**2)
    bounds = {"exact": [], "blunt": []}
    for _ in range(batches):
        x = torch.randn(size, generator=g, dtype=torch.float64)
        y = rho * x + math.sqrt(1 - rho**2) * torch.randn(size, generator=g, dtype=torch.float64)
        ratio = -((y - rho * x[:, None]) ** 2) / (2 * (1 - rho**2)) + y**2 / 2
        for name, logits in (("exact", ratio), ("blunt", 0.3 * ratio)):
            bounds[name].append(math.log(size) - symmetric_info_nce(logits).item())
    exact, blunt = (torch.tensor(bounds[name]) for name in ("exact", "blunt"))
    error = exact.std().item() / math.sqrt(batches)
    assert exact.mean() < information + 4 * error
    assert exact.mean() > information - 0.1
    assert blunt.mean() < exact.mean()


def test_training_learns(trained, corpus):
    scorer, distractors = trained
    with torch.no_grad():
        texts = scorer.embed_text([data.prompt_of(name) for name in data.CLASSES])
        found = scorer.embed_audio(corpus.audio, 16000) @ texts.T
        strange = scorer.embed_audio(distractors, 16000) @ texts.T
    assert (found.argmax(1) == corpus.labels).float().mean() > 0.25  # three times chance after 18 steps
    assert strange.amax(1).mean() < found.gather(1, corpus.labels[:, None]).mean()
    assert not any(weight.requires_grad for weight in scorer.weights.values())


def test_judge_learns(corpus):
    judge = train_judge(corpus, epochs=8, seed=3)
    chances = judge.classify(corpus.audio, 16000)
    torch.testing.assert_close(chances.sum(1), torch.ones(144))
    assert (chances.argmax(1) == corpus.labels).float().mean() > 0.6


def test_training_is_repeatable_and_private(corpus, global_random_state):
    before = global_random_state()
    small = data.Corpus(corpus.audio[:48], corpus.labels[:48], corpus.captions[:48])
    first, second = (train_scorer(small, corpus.audio[:4], epochs=1, seed=1) for _ in range(2))
    other = train_scorer(small, corpus.audio[:4], epochs=1, seed=1, stream=1)
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert not torch.equal(first.weights["conv2"], other.weights["conv2"])
    assert global_random_state() == before


def test_embeddings():
    scorer = ContrastiveScorer(["sound of rain", "a Bird!"])
    assert scorer.vocabulary == ["a", "bird", "of", "rain", "sound"]
    texts = scorer.embed_text(["rain", "sound of RAIN", "a bird xylophone"])
    assert texts.shape == (3, 64)
    torch.testing.assert_close(texts.norm(dim=-1), torch.ones(3))
    torch.testing.assert_close(texts[2:], scorer.embed_text(["bird a"]))
    g = torch.Generator().manual_seed(0)
    sounds = torch.rand(2, 16000, generator=g, dtype=torch.float64) * 2 - 1
    embedded = scorer.embed_audio(sounds, 16000)
    assert embedded.shape == (2, 64)
    assert embedded.dtype == torch.float64
    torch.testing.assert_close(embedded.norm(dim=-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(scorer.embed_audio(0.1 * sounds, 16000), embedded)  # loudness does not matter
    silence = scorer.embed_audio(torch.zeros(1, 16000), 16000)
    assert torch.isfinite(silence).all()
    assert scorer.embed_audio(sounds[:, :100].float(), 16000).shape == (2, 64)


def test_other_rates_are_resampled():
    scorer = ContrastiveScorer(["rain"])
    t = torch.arange(48000, dtype=torch.float64) / 48000
    tone = (0.8 * torch.sin(2 * math.pi * 440 * t))[None]
    torch.testing.assert_close(
        scorer.embed_audio(tone, 48000), scorer.embed_audio(tone[:, ::3], 16000), rtol=0, atol=1e-6
    )
    assert not torch.allclose(scorer.embed_audio(tone, 16000), scorer.embed_audio(tone, 48000), atol=1e-3)


def test_gradient_reaches_the_sound():
    scorer = ContrastiveScorer(["rain"])
    sounds = torch.rand(
        1, 4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).requires_grad_(True)
    scorer.embed_audio(sounds, 16000)[0, 0].backward()
    assert torch.isfinite(sounds.grad).all()
    assert sounds.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s: s.embed_text("rain"), TypeError, "list"),
        (lambda s: s.embed_text([]), ValueError, "at least one prompt"),
        (lambda s: s.embed_text(["  "]), ValueError, "empty"),
        (lambda s: s.embed_text([3]), TypeError, "string"),
        (lambda s: s.embed_text(["thunder"]), ValueError, "bird.*rain"),
        (lambda s: s.embed_audio(torch.zeros(16000), 16000), ValueError, r"\(batch, samples\)"),
        (lambda s: s.embed_audio(torch.zeros(1, 0), 16000), ValueError, "samples"),
        (lambda s: s.embed_audio(torch.full((1, 9), math.nan), 16000), ValueError, "finite"),
        (lambda s: s.embed_audio(torch.zeros(1, 9, dtype=torch.int16), 16000), TypeError, "floating"),
        (lambda s: s.embed_audio(torch.zeros(1, 9), 0), ValueError, "rate"),
        (lambda s: ContrastiveScorer([]), ValueError, "vocabulary"),
        (lambda s: Judge().classify(torch.zeros(3), 16000), ValueError, "batch"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call(ContrastiveScorer(["rain", "bird"]))
