"""FILIP, PACL and GLoRIA."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from icml24.papers.sparc import filip_loss, filip_similarity, gloria_local_loss, pacl_loss


def test_parity(case, arrays, numbers):
    name, x, it = case
    to_text, to_image = filip_similarity(x["patches"], x["tokens"], x["mask"])
    torch.testing.assert_close(to_text, arrays[f"{name}_filip_i2t"], rtol=0, atol=1e-9)
    torch.testing.assert_close(to_image, arrays[f"{name}_filip_t2i"], rtol=0, atol=1e-9)
    assert abs(float(filip_loss(x["patches"], x["tokens"], x["mask"], it)) - numbers[f"{name}_filip"]) < 1e-8
    assert abs(float(pacl_loss(x["patches"], x["text"], it)) - numbers[f"{name}_pacl"]) < 1e-8
    value = gloria_local_loss(x["patches"], x["tokens"], x["mask"], it)
    assert abs(float(value) - numbers[f"{name}_gloria"]) < 1e-8


@pytest.mark.equation("eq-sparc-filip")
def test_filip_by_loops(make_batch):
    patches, tokens, mask = make_batch(b=3, seed=1)
    to_text, to_image = filip_similarity(patches, tokens, mask)
    for i in range(3):
        for j in range(3):
            words = tokens[j][mask[j]]
            cosine = F.cosine_similarity(patches[i][:, None], words[None], dim=-1)
            assert math.isclose(to_text[i, j], cosine.max(1).values.mean(), rel_tol=1e-12)
            assert math.isclose(to_image[j, i], cosine.max(0).values.mean(), rel_tol=1e-12)


@pytest.mark.equation("eq-sparc-filip")
def test_filip_scores_are_not_transposes(make_batch):
    to_text, to_image = filip_similarity(*make_batch(seed=2))
    assert (to_text - to_image.T).abs().max() > 0.01


@pytest.mark.equation("eq-sparc-pacl")
def test_pacl_by_loops(make_batch):
    patches, tokens, _ = make_batch(b=3, seed=3)
    text, it = tokens[:, 0], 6.0
    logits = torch.empty(3, 3, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            weight = torch.softmax(F.cosine_similarity(patches[i], text[j][None], dim=-1), 0)
            logits[i, j] = it * F.cosine_similarity(weight @ patches[i], text[j], dim=0)
    here = torch.arange(3)
    expected = (F.cross_entropy(logits, here) + F.cross_entropy(logits.T, here)) / 2
    torch.testing.assert_close(pacl_loss(patches, text, it), expected, rtol=0, atol=1e-10)


@pytest.mark.equation("eq-sparc-gloria")
def test_gloria_by_loops(make_batch):
    """The vectors that the package never forms, formed."""
    patches, tokens, mask = make_batch(b=3, seed=4)
    it, kappa = 6.0, 2.5
    logits = torch.empty(3, 3, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            words = tokens[j][mask[j]]
            attended = torch.softmax(words @ patches[i].T / math.sqrt(8), 1) @ patches[i]
            cosine = F.cosine_similarity(attended, words, dim=-1)
            logits[i, j] = it * torch.logsumexp(kappa * cosine, 0) / kappa
    here = torch.arange(3)
    expected = (F.cross_entropy(logits, here) + F.cross_entropy(logits.T, here)) / 2
    value = gloria_local_loss(patches, tokens, mask, it, token_temperature=kappa)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss", [filip_loss, gloria_local_loss])
@pytest.mark.parametrize("garbage", [1e4, math.nan])
def test_padding_changes_nothing(make_batch, loss, garbage):
    patches, tokens, mask = make_batch(seed=5)
    spoiled = torch.where(mask[..., None], tokens, torch.full_like(tokens, garbage))
    results = []
    for words in (tokens, spoiled):
        v, t = patches.clone().requires_grad_(True), words.clone().requires_grad_(True)
        value = loss(v, t, mask, 10.0)
        value.backward()
        results.append((value.detach(), v.grad, t.grad))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
    assert torch.isfinite(results[1][2]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_and_dtype_kept(make_batch, dtype):
    patches, tokens, mask = make_batch(dtype=dtype)
    patches = patches.requires_grad_(True)
    total = (
        filip_loss(patches, tokens, mask, 10.0)
        + pacl_loss(patches, tokens[:, 0], 10.0)
        + gloria_local_loss(patches, tokens, mask, torch.tensor(10.0))
    )
    assert total.dtype == dtype
    total.backward()
    assert torch.isfinite(patches.grad).all()


@pytest.mark.parametrize("loss", [filip_loss, gloria_local_loss])
def test_vectors_of_length_zero_are_survived(make_batch, loss):
    patches, tokens, mask = make_batch(seed=8)
    tokens[:, 0], patches[1] = 0.0, 0.0
    v, t = patches.requires_grad_(True), tokens.requires_grad_(True)
    value = loss(v, t, mask, 10.0)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(v.grad).all()
    assert torch.isfinite(t.grad).all()


def test_gloria_where_patches_cancel():
    """Patches of mean zero and short words: the attended vector is rounding, and must not blow up."""
    g = torch.Generator().manual_seed(0)
    half = torch.randn(2, 12, 8, generator=g)
    patches, tokens = torch.cat([half, -half], 1), 1e-5 * torch.randn(2, 5, 8, generator=g)
    value = gloria_local_loss(patches, tokens, torch.ones(2, 5, dtype=torch.bool), 10.0)
    assert 0 <= float(value) < 20


def mistakes():
    x, m = torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    none = torch.zeros(2, 3, dtype=torch.bool)
    return [
        (lambda: filip_similarity(x, x[:1], m), ValueError, r"\(1, 3, 4\)"),
        (lambda: filip_similarity(x, x, none), ValueError, r"rows \[0, 1\]"),
        (lambda: filip_loss(x, x, m, 0.0), ValueError, "positive"),
        (lambda: pacl_loss(x, x, 1.0), ValueError, "text"),
        (lambda: pacl_loss(x, x[:1, 0], 1.0), ValueError, r"\(1, 4\)"),
        (lambda: pacl_loss(x.int(), x[:, 0].int(), 1.0), TypeError, "floating"),
        (lambda: gloria_local_loss(x, x, m, 1.0, token_temperature=0.0), ValueError, "token_temperature"),
        (lambda: gloria_local_loss(x, x, m.float(), 1.0), TypeError, "boolean"),
    ]


@pytest.mark.parametrize(("call", "error", "words"), mistakes())
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
