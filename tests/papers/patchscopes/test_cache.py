"""The fast path equals the plain form: one token a patch, any place, any generation."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes.cache import _reference_generate, cost_ratio, greedy

T = torch.tensor([5, 3, 5, 8, 9, 7])


@pytest.mark.equation("eq-patchscopes-causality")
def test_a_patch_reaches_only_later_places(gpt, plain, normal):
    # E3: earlier positions keep their logits; layers up to l* keep their states
    for model in (gpt, plain):
        v = normal(1, model.d_model)
        before = model.unembed(ps.residual_stream(model, T)[-1])
        for layer in range(model.n_layers + 1):
            out = ps.patched_logits(model, T, v, target_layer=layer, target_position=3)
            assert torch.equal(out[:, :3], before[:, :3])
            changed = (out - before).abs().amax(-1)[0]
            assert changed[3] > 1e-3
            assert bool((changed[4:] > 1e-9).all()) == (layer < model.n_layers)


@pytest.mark.equation("eq-patchscopes-causality")
@pytest.mark.parametrize("length", [1, 2, 6])
def test_cached_logits_are_the_full_ones(gpt, plain, make_hf, normal, length):
    models = [gpt, plain] + [ps.HFResidualLM(make_hf(kind)) for kind in ("llama", "gpt_neox", "gptj", "gpt2")]
    for model in models:
        v = normal(4, model.d_model)
        cache = ps.PrefixCache(model, T[:length])
        for layer in range(model.n_layers + 1):
            full = ps.patched_logits(model, T[:length], v, target_layer=layer)[:, -1]
            torch.testing.assert_close(cache.logits(v, target_layer=layer), full, rtol=0, atol=1e-10)


def test_one_prompt_per_vector(gpt, normal):
    prompts, v = torch.stack([T, T.flip(0)]), normal(2, 16)
    full = ps.patched_logits(gpt, prompts, v, target_layer=2)[:, -1]
    torch.testing.assert_close(
        ps.PrefixCache(gpt, prompts).logits(v, target_layer=2), full, rtol=0, atol=1e-10
    )
    text = ps.patched_generate(gpt, prompts, v, target_layer=2, target_position=3, max_new_tokens=5)
    for j in range(2):
        alone = ps.patched_generate(
            gpt, prompts[j], v[j : j + 1], target_layer=2, target_position=3, max_new_tokens=5
        )
        assert torch.equal(text[j : j + 1], alone)


@pytest.mark.parametrize("position", [0, 2, -1])
@pytest.mark.parametrize("kind", ["gpt", "plain", "llama", "gpt_neox", "gptj", "gpt2"])
def test_cached_generation_is_recomputation(kind, position, gpt, plain, make_hf, normal):
    model = {"gpt": gpt, "plain": plain}.get(kind) or ps.HFResidualLM(make_hf(kind))
    v = normal(3, model.d_model, seed=7)
    for layer in (0, 1, model.n_layers):
        options = {"target_layer": layer, "target_position": position, "max_new_tokens": 6}
        fast = ps.patched_generate(model, T, v, **options)
        assert fast.shape == (3, 6)
        assert fast.dtype == torch.int64
        assert torch.equal(fast, _reference_generate(model, T[None], v, **options))


def test_the_patch_stays_in_force(gpt, normal):
    # decoding on from the first token without the patch gives other text for some vector
    v = normal(20, 16, seed=3)
    patched = ps.patched_generate(gpt, T, v, target_layer=1, max_new_tokens=4)
    forgotten = greedy(gpt, torch.cat([T.expand(20, -1), patched[:, :1]], dim=1), 3)
    assert not torch.equal(patched[:, 1:], forgotten)


def test_rows_end_at_eos(gpt, normal):
    v = normal(8, 16, seed=2)
    free = ps.patched_generate(gpt, T, v, target_layer=1, max_new_tokens=6)
    eos = int(free[0, 1])  # the second token of the first row
    text = ps.patched_generate(gpt, T, v, target_layer=1, max_new_tokens=6, eos_id=eos)
    for row, other in zip(text, free, strict=True):
        ended = (other == eos).nonzero()
        stop = int(ended[0]) if len(ended) else 6
        assert torch.equal(row[:stop], other[:stop])
        assert (row[stop:] == eos).all()
    assert (text[0, 1:] == eos).all()


def test_greedy_is_ordinary_decoding(gpt):
    assert torch.equal(greedy(gpt, T, 5), gpt.model.generate(T[None], 5))


class Counting:
    """Forwards to a model and counts the tokens that pass its blocks and its output matrix."""

    def __init__(self, model):
        self.model, self.n_layers, self.d_model = model, model.n_layers, model.d_model
        self.block_tokens = self.read_tokens = 0

    def embed(self, ids):
        return self.model.embed(ids)

    def block(self, index, h):
        self.block_tokens += h.shape[0] * h.shape[1]
        return self.model.block(index, h)

    def block_step(self, index, h, cache, position):
        self.block_tokens += h.shape[0] * h.shape[1]
        return self.model.block_step(index, h, cache, position)

    def unembed(self, h):
        self.read_tokens += h[..., 0].numel()
        return self.model.unembed(h)


@pytest.mark.equation("eq-patchscopes-cost")
@pytest.mark.parametrize("layer", [0, 1, 4])
def test_cost_is_what_is_really_run(gpt, normal, layer):
    # E11 against a count of the tokens that pass, with parameters counted on the module
    block = sum(p.numel() for p in gpt.model.blocks[0].parameters() if p.dim() == 2)
    output = gpt.model.wte.weight.numel()
    whole, one = Counting(gpt), Counting(gpt)
    ps.run_layers(whole, whole.embed(T[None]), 0, 4)
    cache = ps.PrefixCache(one, T)
    one.block_tokens = one.read_tokens = 0
    cache.logits(normal(1, 16), target_layer=layer)
    assert one.read_tokens == 1
    counted = (whole.block_tokens * block + output) / (one.block_tokens * block + output)
    assert cost_ratio(len(T), layer, 4, block, output) == pytest.approx(counted, rel=1e-12)


def test_cost_of_smollm2():
    # hand-worked: 20 tokens, l* = 15 of 30, 3,538,944 weights a block, 49,152 x 576 read-out
    assert cost_ratio(20, 15, 30, 3_538_944, 49_152 * 576) == pytest.approx(26.4, abs=0.05)


def test_rejects(gpt, normal):
    v = normal(2, 16)
    with pytest.raises(ValueError, match="empty prompt"):
        ps.PrefixCache(gpt, T[:0])
    with pytest.raises(ValueError, match=r"target_layer = 5 .*0\.\.4"):
        ps.PrefixCache(gpt, T).logits(v, target_layer=5)
    with pytest.raises(IndexError, match="target_position = 6"):
        ps.patched_generate(gpt, T, v, target_layer=1, target_position=6, max_new_tokens=2)
    with pytest.raises(ValueError, match="max_new_tokens"):
        ps.patched_generate(gpt, T, v, target_layer=1, max_new_tokens=-1)
    with pytest.raises(TypeError, match="float32"):
        ps.PrefixCache(gpt, T).logits(v.float(), target_layer=1)
    assert ps.patched_generate(gpt, T, v, target_layer=1, max_new_tokens=0).shape == (2, 0)
    assert ps.patched_generate(gpt, T, v[:0], target_layer=1, max_new_tokens=3).shape == (0, 3)
