"""Similarities, min-max weights and language-grouped vectors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.sparc import (
    alignment_weights,
    language_grouped,
    minmax_normalize,
    token_patch_similarity,
)
from icml24.papers.sparc.alignment import MODES


def test_parity_with_the_loop_reference(case, arrays, variant):
    name, x, _ = case
    kind, options = variant
    similarity = token_patch_similarity(x["tokens"], x["patches"])
    torch.testing.assert_close(similarity, arrays[f"{name}_similarity"], rtol=0, atol=1e-9)
    weights = alignment_weights(similarity, **options)
    torch.testing.assert_close(weights, arrays[f"{name}_weights_{kind}"], rtol=0, atol=1e-9)
    grouped = language_grouped(x["tokens"], x["patches"], **options)
    torch.testing.assert_close(grouped, arrays[f"{name}_grouped_{kind}"], rtol=0, atol=1e-9)


@pytest.mark.equation("eq-sparc-similarity")
def test_similarity_is_not_a_cosine(make_batch):
    patches, tokens, _ = make_batch()
    s = token_patch_similarity(tokens, patches)
    assert s.shape == (4, 6, 9)
    assert math.isclose(s[1, 2, 3], math.fsum((tokens[1, 2] * patches[1, 3]).tolist()), rel_tol=1e-12)
    torch.testing.assert_close(token_patch_similarity(3 * tokens, patches), 3 * s)


@pytest.mark.equation("eq-sparc-minmax")
def test_minmax_by_hand():
    s = torch.tensor([[2.0, 6.0, 3.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, 1.0, 0.25], [1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(minmax_normalize(s), expected)


@pytest.mark.equation("eq-sparc-weights")
def test_weights_by_hand():
    """Normalised 0, 1, 1/4, 3/4; a threshold of 1/4 keeps what equals it."""
    s = torch.tensor([2.0, 6.0, 3.0, 5.0], dtype=torch.float64)
    torch.testing.assert_close(
        alignment_weights(s), torch.tensor([0, 0.5, 0.125, 0.375], dtype=torch.float64)
    )
    torch.testing.assert_close(
        alignment_weights(s, threshold=0.26), torch.tensor([0, 4 / 7, 0, 3 / 7], dtype=torch.float64)
    )
    torch.testing.assert_close(
        alignment_weights(s, threshold=1.0), torch.tensor([0, 1.0, 0, 0], dtype=torch.float64)
    )


@pytest.mark.equation("eq-sparc-grouped")
@pytest.mark.parametrize("mode", MODES)
def test_grouped_vector_is_a_weighted_sum_of_own_patches(make_batch, mode):
    patches, tokens, _ = make_batch(seed=3)
    grouped = language_grouped(tokens, patches, mode=mode)
    weights = alignment_weights(token_patch_similarity(tokens, patches), mode=mode)
    for i in range(4):
        by_hand = sum(weights[i, 2, p] * patches[i, p] for p in range(9))
        torch.testing.assert_close(grouped[i, 2], by_hand)


@pytest.mark.equation("eq-sparc-invariance")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_weights_forget_scale_and_offset(seed, scale):
    """E1: positive factors of the words and one vector added to all patches change no weight."""
    g = torch.Generator().manual_seed(seed)
    patches = torch.randn(2, 9, 8, generator=g, dtype=torch.float64)
    tokens = torch.randn(2, 5, 8, generator=g, dtype=torch.float64)
    offset = torch.randn(2, 1, 8, generator=g, dtype=torch.float64)
    factors = scale * torch.exp(torch.randn(2, 5, 1, generator=g, dtype=torch.float64))
    for mode in ("sparse", "dense"):
        before = alignment_weights(token_patch_similarity(tokens, patches), mode=mode, threshold=0.3)
        after = alignment_weights(
            token_patch_similarity(factors * tokens, patches + offset), mode=mode, threshold=0.3
        )
        torch.testing.assert_close(after, before, rtol=0, atol=1e-11)
    moved = language_grouped(factors * tokens, patches + offset) - language_grouped(tokens, patches)
    torch.testing.assert_close(moved, offset.expand_as(moved), rtol=0, atol=1e-10)


@pytest.mark.equation("eq-sparc-simplex")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(MODES))
def test_weights_are_on_the_simplex(seed, mode):
    """E2: not negative, sum one, the best patch weighs most, the worst nothing; c in the convex hull."""
    g = torch.Generator().manual_seed(seed)
    patches = torch.randn(2, 12, 6, generator=g, dtype=torch.float64)
    tokens = torch.randn(2, 4, 6, generator=g, dtype=torch.float64)
    similarity = token_patch_similarity(tokens, patches)
    weights = alignment_weights(similarity, mode=mode)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert torch.equal(weights.argmax(-1), similarity.argmax(-1))
    if mode != "softmax":
        assert (weights.gather(-1, similarity.argmin(-1, keepdim=True)) == 0).all()
    direction = torch.randn(6, generator=g, dtype=torch.float64)
    heights = language_grouped(tokens, patches, mode=mode) @ direction
    assert (heights <= (patches @ direction).amax(1, keepdim=True) + 1e-12).all()


def test_constant_rows_are_uniform_with_zero_gradient():
    s = torch.full((2, 5), 3.0, dtype=torch.float64, requires_grad=True)
    weights = alignment_weights(s)
    torch.testing.assert_close(weights, torch.full_like(weights, 0.2))
    (weights * torch.arange(5.0)).sum().backward()
    assert torch.equal(s.grad, torch.zeros_like(s))


@pytest.mark.equation("eq-sparc-zeroed")
@pytest.mark.parametrize("p", [25, 49, 196])
def test_expected_number_of_zeroed_patches(p):
    """E3: uniform interior similarities lose 1 + (P-2)/P patches; Gaussian ones fewer."""
    g = torch.Generator().manual_seed(p)
    n = 20_000
    inner = torch.rand(n, p, generator=g, dtype=torch.float64)
    inner[:, 0], inner[:, 1] = 0.0, 1.0
    zeroed = (alignment_weights(inner) == 0).sum(1).double()
    assert abs(zeroed.mean() - (1 + (p - 2) / p)) < 4 * zeroed.std() / math.sqrt(n)
    normal = (alignment_weights(torch.randn(n, p, generator=g, dtype=torch.float64)) == 0).sum(1).double()
    stored = {25: 1.32, 49: 1.21, 196: 1.08}[p]  # the dossier's own Monte Carlo
    assert abs(normal.mean() - stored) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
def test_dtype_and_gradients(make_batch, mode, dtype):
    patches, tokens, _ = make_batch(dtype=dtype)
    strided = patches.mT.contiguous().mT.requires_grad_(True)
    out = language_grouped(tokens, strided, mode=mode)
    assert out.dtype == dtype
    out.sum().backward()
    assert torch.isfinite(strided.grad).all()
    torch.testing.assert_close(out.detach(), language_grouped(tokens, patches, mode=mode))


def test_one_patch_and_nan():
    one = torch.randn(2, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    words = torch.ones(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(language_grouped(words, one), one.expand(2, 3, 4))
    row = torch.tensor([1.0, math.nan, 2.0])
    assert alignment_weights(row).isnan().all()


BAD = [
    (
        lambda: token_patch_similarity(torch.zeros(2, 3, 4), torch.zeros(3, 5, 4)),
        ValueError,
        r"\(2, 3, 4\).*\(3, 5, 4\)",
    ),
    (lambda: token_patch_similarity(torch.zeros(2, 3, 4), torch.zeros(2, 5, 6)), ValueError, r"\(2, 5, 6\)"),
    (lambda: token_patch_similarity(torch.zeros(3, 4), torch.zeros(2, 5, 4)), ValueError, "three axes"),
    (lambda: language_grouped(torch.zeros(2, 0, 4), torch.zeros(2, 5, 4)), ValueError, "empty"),
    (lambda: token_patch_similarity(torch.zeros(2, 3, 4).int(), torch.zeros(2, 5, 4)), TypeError, "floating"),
    (
        lambda: token_patch_similarity(torch.zeros(2, 3, 4).double(), torch.zeros(2, 5, 4)),
        TypeError,
        "one dtype",
    ),
    (lambda: token_patch_similarity([[[1.0]]], torch.zeros(1, 1, 1)), TypeError, "torch.Tensor"),
    (lambda: alignment_weights(torch.zeros(2, 3), mode="hard"), ValueError, "unknown mode"),
    (lambda: alignment_weights(torch.zeros(2, 3), threshold=1.5), ValueError, r"\[0, 1\]"),
    (lambda: alignment_weights(torch.zeros(2, 3), threshold=-0.1), ValueError, r"\[0, 1\]"),
    (
        lambda: language_grouped(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), mode="x"),
        ValueError,
        "unknown mode",
    ),
    (lambda: minmax_normalize(torch.zeros(2, 0)), ValueError, "empty"),
    (lambda: minmax_normalize(torch.zeros(2, 3), eps=-1.0), ValueError, "eps"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
