"""Scores: the floor of the surprisal, norms, oracles, longest common subsequences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes.readouts import strict_hit


@pytest.mark.equation("eq-patchscopes-surprisal")
def test_scores_by_hand():
    source = torch.tensor([[0.5, 0.25, 0.25], [0.7, 0.2, 0.1]], dtype=torch.float64).log() + 3.0
    patched = torch.tensor([[9.0, 1.0, 0.0], [-1.0, -3.0, 0.0]], dtype=torch.float64)
    assert ps.precision_at_1(source, patched).tolist() == [1.0, 0.0]
    expected = torch.tensor([math.log(2), -math.log(0.1)], dtype=torch.float64)
    torch.testing.assert_close(ps.surprisal(source, patched), expected, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-patchscopes-floor")
def test_surprisal_has_a_floor(normal):
    # E5: at least -log max p, with equality exactly where the choices agree (no ties here)
    source, patched = normal(500, 9, seed=1), normal(500, 9, seed=2)
    floor = -source.softmax(-1).amax(-1).log()
    gap = ps.surprisal(source, patched) - floor
    agree = ps.precision_at_1(source, patched).bool()
    assert (gap >= -1e-12).all()
    assert gap[agree].abs().max() < 1e-12
    assert gap[~agree].min() > 1e-6
    assert 20 < int(agree.sum()) < 120
    torch.testing.assert_close(ps.surprisal(source, source).mean(), floor.mean(), rtol=0, atol=1e-12)


def test_scores_keep_dtype_and_survive_half():
    source = torch.tensor([[30.0, 0.0]])
    assert ps.precision_at_1(source, source).dtype == torch.float32
    far = torch.tensor([[0.0, 1.0]])
    assert float(ps.surprisal(source.half(), far.half())) == pytest.approx(30.0, abs=1e-3)
    assert ps.surprisal(source[:0], far[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("source", "patched", "error", "match"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4), ValueError, "one shape"),
        (torch.zeros(3), torch.zeros(3), ValueError, "one shape"),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3), TypeError, "floating"),
        (torch.full((1, 3), torch.nan), torch.zeros(1, 3), ValueError, "NaN"),
    ],
)
def test_scores_reject(source, patched, error, match):
    for score in (ps.precision_at_1, ps.surprisal):
        with pytest.raises(error, match=match):
            score(source, patched)


@pytest.mark.equation("eq-patchscopes-norm")
@pytest.mark.parametrize(
    ("gain", "same"),
    [
        (torch.ones(16), True),
        (torch.full((16,), 1.3), True),  # a constant gain cancels
        (torch.tensor([1.0, -1.0] * 8), False),  # signs do not: w^2 = 1, not w
        (torch.full((16,), -1.0), False),
        (torch.linspace(0.5, 2.0, 16), False),
    ],
)
def test_norm_twice_is_once_for_a_constant_positive_gain_only(make_hf, normal, gain, same):
    # E6, through the read-out of a real RMSNorm without epsilon (it computes in float32: 1e-4)
    model = make_hf("llama")
    norm = model.model.norm
    norm.variance_epsilon, norm.weight.data = 0.0, gain.double()
    lm, h = ps.HFResidualLM(model), normal(50, 16, seed=4)
    once, twice = ps.logit_lens(lm, h), ps.logit_lens(lm, norm(h))
    assert bool((once - twice).abs().max() < 1e-4) == same
    if not same:
        assert float(ps.precision_at_1(once, twice).mean()) < 1.0  # predictions change


@pytest.mark.equation("eq-patchscopes-scale")
def test_lens_does_not_see_the_length_and_a_patchscope_does(plain, normal):
    # E7 (the norm has no epsilon here)
    h, ids = normal(4, 12, seed=6), torch.tensor([1, 2, 3])
    for c in (0.1, 7.0):
        torch.testing.assert_close(ps.logit_lens(plain, c * h), ps.logit_lens(plain, h), rtol=0, atol=1e-10)
        for layer in range(plain.n_layers):
            one, other = (ps.patched_logits(plain, ids, v, target_layer=layer)[:, -1] for v in (h, c * h))
            assert (one - other).abs().amax(-1).min() > 1e-3


@pytest.mark.equation("eq-patchscopes-oracle")
@pytest.mark.parametrize(("p", "k"), [(0.0004, 1600), (0.05, 20), (0.3, 3)])
def test_oracle_over_many_pairs_is_high_by_chance(p, k):
    # E8: within four standard errors of 1 - (1 - p)^K; the mean stays at p
    items = 3000
    hits = torch.rand(k, items, generator=torch.Generator().manual_seed(k)) < p
    found = ps.oracle_accuracy(hits)
    q = 1 - (1 - p) ** k
    assert abs(found["oracle"] - q) < 4 * math.sqrt(q * (1 - q) / items)
    assert abs(found["mean"] - p) < 4 * math.sqrt(p * (1 - p) / (items * k))
    assert found["mean"] <= found["best_single"] <= found["oracle"]


def test_oracle_by_hand():
    hits = torch.tensor([[True, False, False, False], [False, True, True, False]])
    assert ps.oracle_accuracy(hits) == {"oracle": 0.75, "best_single": 0.5, "mean": 0.375}


@pytest.mark.parametrize(
    ("hits", "error"),
    [
        (torch.ones(2, 3), TypeError),
        (torch.ones(3, dtype=torch.bool), ValueError),
        (torch.ones(0, 3).bool(), ValueError),
    ],
)
def test_oracle_rejects(hits, error):
    with pytest.raises(error, match="hits"):
        ps.oracle_accuracy(hits)


def brute_lcs(a, b):
    for size in range(min(len(a), len(b)), 0, -1):
        subsequences = {tuple(a[i] for i in pick) for pick in itertools.combinations(range(len(a)), size)}
        if any(
            tuple(b[i] for i in pick) in subsequences for pick in itertools.combinations(range(len(b)), size)
        ):
            return size
    return 0


@pytest.mark.equation("eq-patchscopes-rouge")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 3), max_size=7))
def test_rouge_is_the_longest_common_subsequence(a, b):
    # E10 against all subsequences
    lcs = brute_lcs(a, b)
    precision, recall = lcs / max(len(a), 1), lcs / max(len(b), 1)
    expected = 2 * precision * recall / (precision + recall) if lcs else 0.0
    assert ps.rouge_l(a, b) == pytest.approx(expected, abs=1e-12)
    assert ps.rouge_l(a, b) == ps.rouge_l(b, a)


def test_rouge_by_hand():
    assert ps.rouge_l(["the", "cat", "sat"], ["the", "big", "cat"]) == pytest.approx(2 / 3)
    assert ps.rouge_l([], ["a"]) == 0.0
    assert ps.rouge_l(["a"], []) == 0.0


def test_attribute_hit():
    assert ps.attribute_hit(" Washington\n D.C. is", "Washington D.C.")
    assert ps.attribute_hit("it is PARIS.", "Paris")
    assert not ps.attribute_hit("Par is", "Rome")
    assert ps.attribute_hit("I wonder", "Won")  # containment, as the authors score
    assert not strict_hit("I wonder", "Won")
    assert strict_hit("the won, a currency", "Won")
    assert strict_hit("Paris.", "Paris")
    with pytest.raises(ValueError, match="blank"):
        ps.attribute_hit("anything", " ")


def test_logit_lens_rejects(plain):
    with pytest.raises(ValueError, match="12"):
        ps.logit_lens(plain, torch.zeros(2, 11))
