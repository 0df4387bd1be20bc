"""Whole models, block by block."""

from __future__ import annotations

import copy

import pytest
import torch

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.papers.aqlm import (
    AQLMConfig,
    QuantizedLinear,
    activation_gram,
    finetune_block,
    gptq_quantize,
    load_causal_lm,
    quantize_model,
    rtn_quantize,
)
from icml24.papers.aqlm.blocks import BlockCall, first_inputs, run_block

LINEAR = ("attn.q", "attn.k", "attn.v", "attn.o", "fc", "proj")


@pytest.fixture
def model():
    net = RotaryGPT(GPTConfig(vocab_size=17, n_layer=2, n_head=2, d_model=16), generator=seeded())
    with torch.no_grad():
        for p in net.parameters():  # large enough for the blocks to matter
            p.add_(0.3 * torch.randn(p.shape, generator=seeded(p.numel())))
    return net


@pytest.fixture
def tokens():
    return torch.randint(17, (20, 12), generator=seeded(1))


def seeded(k=0):
    return torch.Generator().manual_seed(k)


def test_every_linear_layer_of_the_blocks_and_nothing_else(model, tokens, tiny_config):
    original = copy.deepcopy(model)
    report = quantize_model(model, tokens, tiny_config, generator=seeded())
    assert [one.name for one in report.layers] == [f"blocks.{b}.{name}" for b in range(2) for name in LINEAR]
    for b in range(2):
        for name in LINEAR:
            new, old = model.blocks[b].get_submodule(name), original.blocks[b].get_submodule(name)
            assert isinstance(new, QuantizedLinear)
            assert torch.equal(new.bias, old.bias)
    assert torch.equal(model.wte.weight, original.wte.weight)
    assert torch.equal(model.ln_f.weight, original.ln_f.weight)
    assert all(p.requires_grad for p in model.parameters())
    weights = sum(p.numel() for n, p in original.blocks.named_parameters() if p.dim() == 2)
    assert report.parameters == weights
    assert report.bytes == report.bits_per_parameter * weights / 8
    assert all(0 <= one.mse < one.signal for one in report.layers)
    assert model(tokens).shape == (20, 12, 17)


@pytest.mark.parametrize("method", ["rtn", "gptq"])
def test_uniform_methods_see_the_right_inputs(model, tokens, tiny_config, method):
    """The second block's Gram matrices come from its original form on inputs from the quantised first block."""
    original = copy.deepcopy(model)
    report = quantize_model(model, tokens, tiny_config, method=method)
    hidden, args, kwargs = first_inputs(original, tokens)
    for b in range(2):
        old = original.blocks[b]
        seen = activation_gram(old.ln1(hidden).double().detach())
        weight = old.attn.q.weight.detach()
        expected = (
            rtn_quantize(weight, 3) if method == "rtn" else gptq_quantize(weight, seen, 3, act_order=True)
        )
        torch.testing.assert_close(model.blocks[b].attn.q.weight.detach(), expected, rtol=1e-4, atol=1e-5)
        assert not model.blocks[b].attn.q.weight.requires_grad
        assert model.blocks[b].ln1.weight.requires_grad
        hidden = run_block(BlockCall(model.blocks[b], args, kwargs), hidden)
    assert report.layers[0].bits == 3 + 19 / 16


def test_first_inputs_are_those_of_the_model(model, tokens):
    hidden, args, kwargs = first_inputs(model, tokens)
    for block in model.blocks:
        hidden = run_block(BlockCall(block, args, kwargs), hidden)
    torch.testing.assert_close(model.unembed(hidden), model(tokens))


@pytest.mark.equation("eq-aqlm-block")
def test_tuning_lowers_the_error_of_the_block_and_keeps_the_codes(model, tokens, tiny_config):
    original = copy.deepcopy(model)
    hidden, args, kwargs = first_inputs(original, tokens)
    targets = run_block(BlockCall(original.blocks[0], args, kwargs), hidden)
    quantize_model(model, tokens, tiny_config, generator=seeded())
    call = BlockCall(model.blocks[0], args, kwargs)
    codes = [m.codes.clone() for m in call.modules() if isinstance(m, QuantizedLinear)]
    before = (run_block(call, hidden) - targets).square().mean()
    losses = finetune_block(call, hidden, targets, steps=40, lr=1e-2, batch_size=20, generator=seeded())
    after = (run_block(call, hidden) - targets).square().mean()
    assert abs(losses[0] / float(before) - 1) < 1e-4  # the loss is the block's mean squared error
    assert after < 0.8 * before
    assert all(
        torch.equal(a, m.codes)
        for a, m in zip(codes, (m for m in call.modules() if isinstance(m, QuantizedLinear)), strict=True)
    )


def test_tuning_in_the_model_helps_the_model(model, tokens, tiny_config):
    tuned, plain = copy.deepcopy(model), copy.deepcopy(model)
    quantize_model(plain, tokens, tiny_config, generator=seeded())
    report = quantize_model(
        tuned, tokens, tiny_config, finetune_steps=40, finetune_lr=1e-2, generator=seeded()
    )
    assert [len(losses) for losses in report.tuning] == [40, 40]
    assert (tuned(tokens) - model(tokens)).square().mean() < (plain(tokens) - model(tokens)).square().mean()


def test_same_generator_same_model(model, tokens, tiny_config, global_random_state):
    before = global_random_state()
    pair = copy.deepcopy(model), copy.deepcopy(model)
    for one in pair:
        quantize_model(one, tokens, tiny_config, finetune_steps=2, generator=seeded(3))
    assert global_random_state() == before
    assert all(torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in pair), strict=True))


def test_a_transformers_model_from_a_local_folder(tmp_path, tokens, tiny_config):
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    config = LlamaConfig(
        vocab_size=17,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    with torch.random.fork_rng():
        LlamaForCausalLM(config).save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a"))).save_pretrained(
        tmp_path
    )
    net, _ = load_causal_lm(tmp_path)
    whole, original = net(tokens).logits, copy.deepcopy(net)
    hidden, args, kwargs = first_inputs(net, tokens)
    for block in net.model.layers:
        hidden = run_block(BlockCall(block, args, kwargs), hidden)
    torch.testing.assert_close(net.lm_head(net.model.norm(hidden)), whole)
    report = quantize_model(net, tokens, tiny_config, finetune_steps=2, generator=seeded())
    assert len(report.layers) == 14
    assert torch.isfinite(net(tokens).logits).all()
    assert not torch.equal(net(tokens).logits, original(tokens).logits)
    with pytest.raises(FileNotFoundError):
        load_causal_lm(tmp_path / "nowhere")


def test_bad_input(model, tokens, tiny_config):
    with pytest.raises(ValueError, match="method"):
        quantize_model(model, tokens, tiny_config, method="awq")
    with pytest.raises(ValueError, match="finetune_steps"):
        quantize_model(model, tokens, tiny_config, finetune_steps=-1)
    with pytest.raises(TypeError, match="token ids"):
        quantize_model(model, tokens.float(), tiny_config)
    with pytest.raises(ValueError, match="calibration_tokens"):
        quantize_model(model, tokens[0], tiny_config)
    with pytest.raises(TypeError, match="no list of blocks"):
        quantize_model(torch.nn.Linear(2, 2), tokens, tiny_config)
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="does not divide the inputs of"):
        quantize_model(model, tokens, AQLMConfig(in_group_size=32, nbits_per_codebook=2))  # fits proj only
    with pytest.raises(ValueError, match="use fewer bits"):
        quantize_model(model, tokens, AQLMConfig(in_group_size=8, nbits_per_codebook=6))  # attn has 32 groups
    assert model.state_dict().keys() == whole.keys()
    assert all(torch.equal(value, whole[name]) for name, value in model.state_dict().items())
    net, x = torch.nn.Linear(3, 3), torch.zeros(4, 3)
    good = {"steps": 1, "lr": 0.1, "batch_size": 2}
    for change in ({"steps": 0}, {"lr": 0.0}, {"batch_size": 0}):
        with pytest.raises(ValueError):
            finetune_block(net, x, x, **(good | change))
    with pytest.raises(ValueError, match="length"):
        finetune_block(net, x, x[:2], **good)
    with pytest.raises(ValueError, match="nothing to train"):
        finetune_block(net.requires_grad_(False), x, x, **good)
