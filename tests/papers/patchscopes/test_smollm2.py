"""The real model: stored answers, the cache, and the sizes the chapter states. One load a process."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes import experiments
from icml24.papers.patchscopes.cache import _reference_generate
from icml24.papers.patchscopes.data import IDENTITY_PROMPT
from icml24.papers.patchscopes.sweeps import encode

pytestmark = pytest.mark.slow


def test_sizes_and_tokenizer(smollm2, smollm2_reference):
    model, tokenizer = smollm2
    assert (model.n_layers, model.d_model) == (30, 576)
    assert model.unembed(torch.zeros(1, 576)).shape == (1, 49_152)
    block = sum(p.numel() for p in model.model.model.layers[0].parameters() if p.dim() == 2)
    assert block == 3_538_944
    assert encode(tokenizer, IDENTITY_PROMPT).tolist() == smollm2_reference["target_ids"]
    for row in smollm2_reference["rows"]:
        assert tokenizer(row["text"])["input_ids"] == row["ids"]
        assert tokenizer.decode(row["ids"]) == row["text"]
    assert tokenizer("<|im_end|>")["input_ids"] == [tokenizer.eos_token_id]
    assert not any(p.requires_grad for p in model.model.parameters())


def test_stored_next_tokens(smollm2, smollm2_reference):
    # stored with weights rounded to float16 once: 90 % of the ids, precision within 0.13
    model, _ = smollm2
    rows, layers = smollm2_reference["rows"], smollm2_reference["layers"]
    out = ps.next_token_sweep(
        model,
        [torch.tensor(row["ids"]) for row in rows],
        [row["position"] for row in rows],
        torch.tensor(smollm2_reference["target_ids"]),
        layers=layers,
    )
    agree = out["source_token"] == torch.tensor([row["next"] for row in rows])
    assert agree.double().mean() >= 0.9
    for method in ("patchscope", "logit_lens"):
        stored = torch.tensor([row[method] for row in rows]).T
        assert (out[f"{method}_token"] == stored).double().mean() >= 0.9
        precision = out[f"{method}_precision"].mean(1)
        expected = torch.tensor(smollm2_reference["precision"][method])
        assert (precision - expected).abs().max() <= 0.13


def test_cached_generation_is_recomputation_here_too(smollm2):
    model, tokenizer = smollm2
    prompt = encode(tokenizer, "The capital city of x is")
    source = encode(tokenizer, "The delegation arrived from Spain")
    states = ps.residual_stream(model, source)[[2, 8, 14], 0, -1]
    options = {"target_layer": 5, "target_position": len(prompt) - 2, "max_new_tokens": 4}
    fast = ps.patched_generate(model, prompt, states, **options)
    assert torch.equal(fast, _reference_generate(model, prompt[None], states, **options))
    assert "Madrid" in tokenizer.decode(fast[1])
    cached = ps.PrefixCache(model, prompt).logits(states, target_layer=15)
    full = ps.patched_logits(model, prompt, states, target_layer=15)[:, -1]
    assert (cached - full).abs().max() < 1e-3


def test_descriptions_change_with_depth(smollm2):
    # an example, so only what would be an accident otherwise: the last word first, the whole name later
    model, tokenizer = smollm2
    early, late = experiments.describe(model, tokenizer, ["Diana, Princess of Wales"], (1, 12), 5)
    assert "Country" in early[0]
    assert "monarch" in late[0]
