"""The global and the sequence-wise loss."""

from __future__ import annotations

import math

import pytest
import torch

from icml24.papers.sparc import (
    global_contrastive_loss,
    language_grouped,
    sequence_contrastive_loss,
    sparc_loss,
)
from icml24.papers.sparc.losses import REDUCTIONS, reference_local_loss


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_parity_of_the_local_loss(case, numbers, variant, reduction):
    name, x, it = case
    kind, options = variant
    grouped = language_grouped(x["tokens"], x["patches"], **options)
    value = sequence_contrastive_loss(grouped, x["tokens"], x["mask"], it, reduction=reduction)
    assert abs(float(value) - numbers[f"{name}_local_{kind}_{reduction}"]) < 1e-8


@pytest.mark.equation("eq-sparc-total")
def test_parity_of_global_and_total(case, numbers):
    name, x, it = case
    assert abs(float(global_contrastive_loss(x["image"], x["text"], it)) - numbers[f"{name}_global"]) < 1e-8
    inputs = [x[key] for key in ("image", "text", "patches", "tokens", "mask")]
    default = sparc_loss(*inputs, it)
    assert set(default) == {"loss", "global", "local"}
    assert abs(float(default["loss"]) - numbers[f"{name}_sparc"]) < 1e-8
    other = sparc_loss(*inputs, it, global_weight=2, local_weight=5, mode="softmax", reduction="token")
    assert abs(float(other["loss"]) - numbers[f"{name}_sparc_2_5_token_softmax"]) < 1e-8
    assert math.isclose(float(default["loss"]), 0.5 * float(default["global"]) + float(default["local"]))


def test_gradient_against_stored_differences(arrays, numbers):
    patches = arrays["c0_patches"].clone().requires_grad_(True)
    tokens, mask = arrays["c0_tokens"], arrays["c0_mask"]
    loss = sequence_contrastive_loss(language_grouped(tokens, patches), tokens, mask, numbers["c0_it"])
    loss.backward()
    for index, stored in zip(numbers["c0_fd_index"], numbers["c0_fd_patches"], strict=True):
        assert abs(float(patches.grad[tuple(index)]) - stored) < 1e-5


@pytest.mark.equation("eq-sparc-global")
def test_global_loss_by_hand():
    """Two orthogonal pairs: each row is softmax of (it, 0)."""
    eye = torch.eye(2, dtype=torch.float64)
    expected = math.log(1 + math.exp(-3.0))
    assert math.isclose(float(global_contrastive_loss(5 * eye, 0.1 * eye, 3.0)), expected, rel_tol=1e-12)
    assert math.isclose(
        float(global_contrastive_loss(eye, eye.flip(0), torch.tensor(3.0))), expected + 3.0, rel_tol=1e-7
    )


@pytest.mark.equation("eq-sparc-sequence")
def test_loss_is_the_loop_over_captions_and_words(make_batch):
    patches, tokens, mask = make_batch(b=5, length=7, p=11, seed=4)
    value = sequence_contrastive_loss(language_grouped(tokens, patches), tokens, mask, 7.0)
    torch.testing.assert_close(value, reference_local_loss(patches, tokens, mask, 7.0), rtol=0, atol=1e-12)


@pytest.mark.equation("eq-sparc-sequence")
def test_reductions_weigh_captions_or_words():
    """One caption of three words at loss log 3, one of a single word at loss 0."""
    grouped = torch.ones(2, 3, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    sample = sequence_contrastive_loss(grouped, grouped, mask, 5.0)
    token = sequence_contrastive_loss(grouped, grouped, mask, 5.0, reduction="token")
    assert math.isclose(float(sample), math.log(3) / 2, rel_tol=1e-12)
    assert math.isclose(float(token), 3 * math.log(3) / 4, rel_tol=1e-12)


@pytest.mark.equation("eq-sparc-floor")
@pytest.mark.parametrize("length", [1, 2, 5])
def test_floor_and_ceiling(length):
    """E8: equal logits cost log L; orthonormal words with c = t cost log(1 + (L-1) exp(-it))."""
    mask = torch.ones(3, length, dtype=torch.bool)
    same = torch.ones(3, length, 8, dtype=torch.float64)
    value = float(sequence_contrastive_loss(same, same, mask, 9.0))
    assert math.isclose(value, math.log(length), rel_tol=1e-12, abs_tol=1e-15)
    basis = torch.eye(8, dtype=torch.float64)[:length].expand(3, -1, -1)
    value = float(sequence_contrastive_loss(4 * basis, basis, mask, 3.0))
    assert math.isclose(value, math.log(1 + (length - 1) * math.exp(-3.0)), rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.equation("eq-sparc-floor")
def test_repeated_word_costs_log_two():
    """Two equal words in a caption cannot be told apart: each costs at least log 2."""
    basis = torch.eye(8, dtype=torch.float64)
    words = basis[[0, 1, 0]][None]
    mask = torch.ones(1, 3, dtype=torch.bool)
    value = float(sequence_contrastive_loss(words, words, mask, 50.0))
    assert math.isclose(value, 2 * math.log(2) / 3, rel_tol=1e-9)


@pytest.mark.equation("eq-sparc-bound")
def test_information_bound_on_a_known_joint():
    """E9: a noisy channel from words to vision vectors, optimal critic; the bound holds and is not idle."""
    g = torch.Generator().manual_seed(0)
    k, size, right, draws = 8, 16, 0.8, 4000
    exact = math.log(k) + right * math.log(right) + (1 - right) * math.log((1 - right) / (k - 1))
    critic = math.log(right * (k - 1) / (1 - right))  # log-ratio of a hit to a miss
    word = torch.randint(k, (draws, size), generator=g)
    shift = torch.randint(1, k, (draws, size), generator=g)
    hit = torch.rand(draws, size, generator=g) < right
    seen = torch.where(hit, word, (word + shift) % k)
    basis = torch.eye(k, dtype=torch.float64)
    mask = torch.ones(40, size, dtype=torch.bool)
    pairs = list(zip(basis[seen].split(40), basis[word].split(40), strict=True))

    def bound(scale):
        each = torch.stack([sequence_contrastive_loss(c, t, mask, scale) for c, t in pairs])
        return float(math.log(size) - each.mean()), float(each.std() / math.sqrt(len(each)))

    value, error = bound(critic)
    assert 0.6 * exact < value < exact + 4 * error
    worse, _ = bound(3 * critic)
    assert worse < value


@pytest.mark.equation("eq-sparc-temperature")
def test_gradient_of_the_temperature():
    """E13: it times the mean of (expected cosine minus own cosine) over rows and columns."""
    g = torch.Generator().manual_seed(1)
    image, text = (torch.randn(6, 5, generator=g, dtype=torch.float64) for _ in range(2))
    theta = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    global_contrastive_loss(image, text, theta.exp()).backward()
    cosine = torch.nn.functional.cosine_similarity(image[:, None], text[None], dim=-1)
    it = math.exp(1.3)
    rows = (torch.softmax(it * cosine, 1) * cosine).sum(1) - cosine.diagonal()
    columns = (torch.softmax(it * cosine, 0) * cosine).sum(0) - cosine.diagonal()
    expected = it * float(rows.mean() + columns.mean()) / 2
    assert math.isclose(float(theta.grad), expected, rel_tol=1e-10)


@pytest.mark.equation("eq-sparc-shortcut")
def test_dense_mode_in_closed_form():
    """E7: c = ((V'V) t - m P vmean) / (P (<t, vmean> - m))."""
    g = torch.Generator().manual_seed(2)
    v = torch.randn(1, 14, 6, generator=g, dtype=torch.float64)
    t = torch.randn(1, 5, 6, generator=g, dtype=torch.float64)
    grouped = language_grouped(t, v, mode="dense")
    for j in range(5):
        least = (v[0] @ t[0, j]).min()
        mean = v[0].mean(0)
        top = v[0].T @ v[0] @ t[0, j] - least * 14 * mean
        torch.testing.assert_close(grouped[0, j], top / (14 * (t[0, j] @ mean - least)), rtol=0, atol=1e-10)


@pytest.mark.equation("eq-sparc-shortcut")
def test_spread_patches_answer_every_caption():
    """E7: orthonormal columns with zero mean give c parallel to t, and a loss near zero, without grounding."""
    g = torch.Generator().manual_seed(3)
    raw = torch.randn(25, 9, generator=g, dtype=torch.float64)
    raw[:, 0] = 1.0
    v = torch.linalg.qr(raw).Q[:, 1:][None]  # orthogonal to the constant: zero mean
    t = torch.randn(1, 6, 8, generator=g, dtype=torch.float64)
    mask = torch.ones(1, 6, dtype=torch.bool)
    for mode, least in (("dense", 1 - 1e-10), ("sparse", 0.95), ("softmax", 0.9)):
        grouped = language_grouped(t, v, mode=mode)
        cosine = torch.nn.functional.cosine_similarity(grouped, t, dim=-1)
        assert (cosine > least).all()
    words = torch.linalg.qr(torch.randn(8, 6, generator=g, dtype=torch.float64)).Q.T[None]
    grouped = language_grouped(words, v, mode="dense")
    assert float(sequence_contrastive_loss(grouped, words, mask, 14.3)) < 1e-5


@pytest.mark.parametrize("mode", ["sparse", "dense", "softmax"])
@pytest.mark.parametrize("garbage", [1e4, -1e4, math.nan, math.inf])
def test_padding_changes_nothing(make_batch, mode, garbage):
    """E10: value and gradients, bit for bit; no gradient reaches padded places."""
    patches, tokens, mask = make_batch(seed=5)
    image, text = tokens[:, 0], patches[:, 0]
    spoiled = torch.where(mask[..., None], tokens, torch.full_like(tokens, garbage))
    results = []
    for words in (tokens, spoiled):
        v, t = patches.clone().requires_grad_(True), words.clone().requires_grad_(True)
        out = sparc_loss(image, text, v, t, mask, 14.3, mode=mode)
        out["loss"].backward()
        results.append((out["loss"].detach(), out["local"].detach(), v.grad, t.grad))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
    assert (results[0][3][~mask] == 0).all()


def test_padding_of_the_sequence_loss_alone(make_batch):
    patches, tokens, mask = make_batch(seed=6)
    grouped = language_grouped(tokens, patches)
    clean = sequence_contrastive_loss(grouped, tokens, mask, 14.3)
    hole = ~mask[..., None]
    dirty = sequence_contrastive_loss(
        grouped.masked_fill(hole, 1e4).requires_grad_(True), tokens.masked_fill(hole, -1e4), mask, 14.3
    )
    assert torch.equal(clean, dirty.detach())


@pytest.mark.equation("eq-sparc-symmetry")
def test_symmetries(make_batch):
    """E11: patches, words of a caption, and pairs may be reordered."""
    patches, tokens, mask = make_batch(seed=7)
    g = torch.Generator().manual_seed(0)

    def loss(v, t, m):
        return sparc_loss(v.mean(1), t.mean(1), v, t, m, 11.0)["loss"]

    before = loss(patches, tokens, mask)
    a, b, c = (torch.randperm(n, generator=g) for n in (9, 6, 4))
    torch.testing.assert_close(loss(patches[:, a], tokens, mask), before, rtol=0, atol=1e-12)
    torch.testing.assert_close(loss(patches, tokens[:, b], mask[:, b]), before, rtol=0, atol=1e-12)
    torch.testing.assert_close(loss(patches[c], tokens[c], mask[c]), before, rtol=0, atol=1e-12)


def test_float32_non_contiguous_and_training_mode(make_batch):
    patches, tokens, mask = make_batch(dtype=torch.float32)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    out = sparc_loss(patches[:, 0], tokens[:, 0], patches.mT.contiguous().mT, tokens, mask, scale)
    assert out["loss"].dtype == torch.float32
    out["loss"].backward()
    assert torch.isfinite(scale.grad)
    one = sparc_loss(patches[:1, 0], tokens[:1, 0], patches[:1], tokens[:1], mask[:1], 5.0)
    assert float(one["global"]) == 0.0
    patches[0, 0, 0] = math.nan
    assert out["loss"].isfinite()
    assert sparc_loss(patches[:, 0], tokens[:, 0], patches, tokens, mask, 5.0)["loss"].isnan()


def mistakes():
    x, m = (
        torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)),
        torch.ones(2, 3, dtype=torch.bool),
    )
    empty = m.clone()
    empty[1] = False
    pair = torch.ones(2, 4)
    return [
        (lambda: sequence_contrastive_loss(x, x[:, :2], m, 1.0), ValueError, "one shape"),
        (lambda: sequence_contrastive_loss(x, x, m[:, :2], 1.0), ValueError, r"\(2, 3\)"),
        (lambda: sequence_contrastive_loss(x, x, m.int(), 1.0), TypeError, "boolean"),
        (lambda: sequence_contrastive_loss(x, x, empty, 1.0), ValueError, r"rows \[1\]"),
        (lambda: sequence_contrastive_loss(x, x, m, 1.0, reduction="sum"), ValueError, "unknown reduction"),
        (lambda: sequence_contrastive_loss(x, x, m, 0.0), ValueError, "positive"),
        (lambda: sequence_contrastive_loss(x, x, m, torch.tensor([1.0])), ValueError, "one number"),
        (lambda: global_contrastive_loss(pair, pair[:1], 1.0), ValueError, r"\(2, 4\).*\(1, 4\)"),
        (lambda: global_contrastive_loss(pair, pair, -1.0), ValueError, "positive"),
        (lambda: global_contrastive_loss(pair[:0], pair[:0], 1.0), ValueError, "empty"),
        (lambda: global_contrastive_loss(pair[0], pair[0], 1.0), ValueError, "batch"),
        (lambda: sparc_loss(pair[:1], pair[:1], x, x, m, 1.0), ValueError, "one batch size"),
        (lambda: sparc_loss(pair, pair, x, x, m, 1.0, mode="none"), ValueError, "unknown mode"),
        (lambda: sparc_loss(pair, pair, x, x, empty, 1.0), ValueError, r"rows \[1\]"),
    ]


@pytest.mark.parametrize(("call", "error", "words"), mistakes())
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
