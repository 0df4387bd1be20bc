"""The operation: hooks as an oracle, the authors' outputs, the methods it contains, bad inputs."""

from __future__ import annotations

import pytest
import torch

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes.patching import states_at

S = torch.tensor([3, 14, 15, 9, 2, 6])
T = torch.tensor([5, 3, 5, 8, 9])


@pytest.mark.equation("eq-patchscopes-operation")
@pytest.mark.parametrize("source_layer", [1, 3])
@pytest.mark.parametrize("target_layer", [1, 2, 4])
@pytest.mark.parametrize(("source_position", "target_position"), [(-1, -1), (2, 1)])
def test_operation_is_a_hook_on_the_module(gpt, source_layer, target_layer, source_position, target_position):
    # the definition, done to the torch module itself: read one block's output, overwrite another's
    seen = {}
    handle = gpt.model.blocks[source_layer - 1].register_forward_hook(
        lambda module, args, out: seen.update(h=out[0, source_position].clone())
    )
    gpt.model(S[None])
    handle.remove()

    def overwrite(module, args, out):
        out = out.clone()
        out[0, target_position] = seen["h"]
        return out

    handle = gpt.model.blocks[target_layer - 1].register_forward_hook(overwrite)
    expected = gpt.model(T[None])
    handle.remove()
    spec = ps.PatchSpec(source_layer, target_layer, source_position, target_position)
    torch.testing.assert_close(ps.patchscope(gpt, S, gpt, T, spec), expected, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-patchscopes-noop")
def test_noop_changes_nothing(gpt, plain, make_hf):
    # E1: same prompt, place and layer: the value written is the value that stood there
    for model in (
        gpt,
        plain,
        *(ps.HFResidualLM(make_hf(kind)) for kind in ("llama", "gpt_neox", "gptj", "gpt2")),
    ):
        plainly = model.unembed(ps.run_layers(model, model.embed(S[None]), 0, model.n_layers))
        for layer in range(model.n_layers + 1):
            for position in range(len(S)):
                spec = ps.PatchSpec(layer, layer, position, position)
                assert torch.equal(ps.patchscope(model, S, model, S, spec), plainly)


@pytest.mark.equation("eq-patchscopes-lens")
def test_logit_lens_is_the_patch_at_the_last_layer(gpt, plain, make_hf):
    # E2, and the lens itself against the module's own norm and output matrix
    for model in (
        gpt,
        plain,
        *(ps.HFResidualLM(make_hf(kind)) for kind in ("llama", "gpt_neox", "gptj", "gpt2")),
    ):
        stream = ps.residual_stream(model, S)
        for layer in range(model.n_layers + 1):
            for position in (0, 3, -1):
                spec = ps.PatchSpec(layer, model.n_layers, position, position)
                out = ps.patchscope(model, S, model, S, spec)[:, position]
                lens = ps.logit_lens(model, stream[layer][:, position])
                torch.testing.assert_close(out, lens, rtol=0, atol=1e-12)
    h = ps.residual_stream(gpt, S)[2]
    own = (
        torch.nn.functional.layer_norm(h, (16,), gpt.model.ln_f.weight, gpt.model.ln_f.bias)
        @ gpt.model.wte.weight.T
    )
    torch.testing.assert_close(ps.logit_lens(gpt, h), own, rtol=0, atol=1e-12)


def test_tuned_lens_and_activation_patching_are_instances(gpt, normal):
    # the other rows of the unification table: an affine map before the last layer; a patch between prompts
    mapping = ps.AffineMap(normal(16, 16, seed=3), normal(16, seed=4))
    h = ps.residual_stream(gpt, S)[2][:, -1]
    tuned = ps.patchscope(gpt, S, gpt, S, ps.PatchSpec(2, 4), mapping=mapping)[:, -1]
    torch.testing.assert_close(tuned, gpt.unembed(h @ mapping.weight + mapping.bias), rtol=0, atol=1e-12)
    other = torch.tensor([3, 14, 1, 9, 2, 6])  # the same prompt but for one token: causal tracing
    clean = ps.patchscope(gpt, S, gpt, other, ps.PatchSpec(0, 0, 2, 2))
    torch.testing.assert_close(clean[:, -1], gpt.model(S[None])[:, -1], rtol=0, atol=1e-12)


def test_official_outputs(official):
    # the authors' functions on the same weights; their block k is layer k + 1, their read-out the last position
    vocabulary, layers, heads, width = official["config"].tolist()
    model = RotaryGPT(GPTConfig(vocabulary, layers, heads, width)).double().requires_grad_(False)
    model.load_state_dict({name[2:]: value for name, value in official.items() if name.startswith("w/")})
    lm = ps.RotaryGPTLM(model)
    for i in range(3):
        source, target = official[f"source{i}"], official[f"target{i}"]
        at, to = official["positions"][i].tolist()
        truth = model(source[None])[:, at]
        for a in range(layers - 1):
            for b in range(layers):
                out = ps.patchscope(lm, source, lm, target, ps.PatchSpec(a + 1, b + 1, at, to))[:, -1]
                assert float(ps.precision_at_1(truth, out)) == float(official["precision"][i, a, b])
                assert float(ps.surprisal(truth, out)) == pytest.approx(
                    float(official["surprisal"][i, a, b]), abs=1e-6
                )
                text = ps.patched_generate(
                    lm,
                    target,
                    ps.residual_stream(lm, source)[a + 1][:, at],
                    target_layer=b + 1,
                    target_position=to,
                    max_new_tokens=4,
                    eos_id=int(official["eos"]),
                )
                stored = official["generated"][i, a, b]
                assert torch.equal(text[0][stored >= 0], stored[stored >= 0])


def test_official_hidden_states_end_before_the_norm(gpt):
    stream = ps.residual_stream(gpt, S)
    assert stream.shape == (5, 1, 6, 16)
    torch.testing.assert_close(gpt.unembed(stream[-1]), gpt.model(S[None]), rtol=0, atol=1e-12)
    for layer, h in enumerate(gpt.model.hidden_states(S[None])):
        torch.testing.assert_close(stream[layer], h, rtol=0, atol=1e-12)


def test_batches_and_broadcasting(plain, normal):
    v = normal(3, 12)
    one = ps.patched_logits(plain, T, v, target_layer=2)
    assert one.shape == (3, 5, 23)
    assert torch.equal(one, ps.patched_logits(plain, T[None], v, target_layer=2))
    many = ps.patched_logits(plain, T.expand(3, -1), v, target_layer=2)
    torch.testing.assert_close(one, many, rtol=0, atol=1e-12)
    two = ps.patchscope(plain, torch.stack([S, S.flip(0)]), plain, T, ps.PatchSpec(1, 2))
    alone = ps.patchscope(plain, S.flip(0), plain, T, ps.PatchSpec(1, 2))
    torch.testing.assert_close(two[1:], alone, rtol=0, atol=1e-12)
    assert ps.patched_logits(plain, T, v[:0], target_layer=2).shape == (0, 5, 23)


def test_inputs_are_left_alone_and_gradients_flow(plain, normal):
    v = normal(2, 12).requires_grad_()
    table = plain.table.clone()
    ps.patched_logits(plain, T, v, target_layer=0, target_position=1)[:, -1].sum().backward()
    assert torch.equal(plain.table, table)
    assert v.grad.abs().min() > 0
    strided = normal(2, 24)[:, ::2]  # not contiguous
    same = ps.patched_logits(plain, T, strided.contiguous(), target_layer=1)
    assert torch.equal(ps.patched_logits(plain, T, strided, target_layer=1), same)


def test_padding_on_the_right_changes_no_state(plain):
    sources = [S, T, S[:2]]
    states = states_at(plain, sources, torch.tensor([5, 3, 1]), batch=2)
    for j, (ids, at) in enumerate(zip(sources, (5, 3, 1), strict=True)):
        torch.testing.assert_close(states[j], ps.residual_stream(plain, ids)[:, 0, at], rtol=0, atol=1e-12)


def test_other_width_needs_a_map(plain, make_plain, normal):
    wide = make_plain(layers=3, width=20, vocabulary=23, seed=5)
    with pytest.raises(ValueError, match=r"pass mapping=fit_affine\(\.\.\.\)"):
        ps.patchscope(plain, S, wide, T, ps.PatchSpec(1, 2))
    mapping = ps.AffineMap(normal(12, 20), normal(20))
    out = ps.patchscope(plain, S, wide, T, ps.PatchSpec(1, 2), mapping=mapping)
    state = ps.residual_stream(plain, S)[1][:, -1]
    torch.testing.assert_close(out, ps.patched_logits(wide, T, mapping(state), target_layer=2))


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        (ps.PatchSpec(-1, 0), ValueError, r"source_layer = -1 .*0\.\.5"),
        (ps.PatchSpec(0, 6), ValueError, r"target_layer = 6 .*0\.\.5"),
        (ps.PatchSpec(0, 0, source_position=6), IndexError, "source_position = 6"),
        (ps.PatchSpec(0, 0, target_position=-6), IndexError, "target_position = -6"),
        (ps.PatchSpec(1.0, 0), TypeError, "float"),
    ],
)
def test_rejects_places(plain, spec, error, match):
    with pytest.raises(error, match=match):
        ps.patchscope(plain, S, plain, T, spec)


@pytest.mark.parametrize(
    ("ids", "vectors", "error", "match"),
    [
        (T[:0], torch.zeros(1, 12).double(), ValueError, "empty prompt"),
        (T.double(), torch.zeros(1, 12).double(), TypeError, "token ids"),
        (T[None, None], torch.zeros(1, 12).double(), ValueError, "shape"),
        (T, torch.zeros(1, 11).double(), ValueError, "fit_affine"),
        (T, torch.zeros(12).double(), ValueError, "shape"),
        (T, torch.zeros(1, 12), TypeError, "float32"),
        (T, [[0.0] * 12], TypeError, "must be a tensor"),
        (T.expand(3, -1), torch.zeros(2, 12).double(), ValueError, "3 target prompts for 2 vectors"),
    ],
)
def test_rejects_inputs(plain, ids, vectors, error, match):
    with pytest.raises(error, match=match):
        ps.patched_logits(plain, ids, vectors, target_layer=1)


def test_run_layers(plain):
    h = plain.embed(S[None])
    assert ps.run_layers(plain, h, 2, 2) is h
    two = plain.block(1, plain.block(0, h))
    assert torch.equal(ps.run_layers(plain, h, 0, 2), two)
    with pytest.raises(ValueError, match="above"):
        ps.run_layers(plain, h, 3, 2)
    with pytest.raises(ValueError, match="stop = 6"):
        ps.run_layers(plain, h, 0, 6)
    with pytest.raises(ValueError, match="states"):
        ps.run_layers(plain, h[0], 0, 1)
