import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from icml24.common.gpt import (
    GPTConfig,
    RotaryGPT,
    apply_rotary,
    load_gpt,
    rotary_tables,
    save_gpt,
)

DATA = Path(__file__).parent / "data"
F64 = torch.float64


def small(seed: int = 0, dtype=F64, **sizes) -> RotaryGPT:
    config = GPTConfig(**({"vocab_size": 19, "n_layer": 3, "n_head": 2, "d_model": 16} | sizes))
    model = RotaryGPT(config, generator=torch.Generator().manual_seed(seed)).to(dtype)
    with torch.no_grad():  # larger than at the start, so that attention is far from uniform
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
            else:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)))
    return model


def tokens(b: int, t: int, vocab: int = 19, seed: int = 1):
    return torch.randint(vocab, (b, t), generator=torch.Generator().manual_seed(seed))


def reference(name: str) -> dict[str, torch.Tensor]:
    with np.load(DATA / name) as file:
        return {key: torch.from_numpy(file[key]) for key in file.files}


def test_rotation_is_complex_multiplication():
    ref = reference("rotary.npz")
    length, half = ref["cos"].shape
    cos, sin = rotary_tables(length, 2 * half, float(ref["base"]), dtype=F64)
    torch.testing.assert_close(cos, ref["cos"], rtol=0, atol=1e-10)
    torch.testing.assert_close(sin, ref["sin"], rtol=0, atol=1e-10)
    torch.testing.assert_close(apply_rotary(ref["x"], cos, sin), ref["y"], rtol=0, atol=1e-10)


def test_tables_are_rounded_once_from_float64():
    exact = rotary_tables(3000, 24, dtype=F64)
    for single, double in zip(rotary_tables(3000, 24), exact, strict=True):
        assert single.dtype == torch.float32
        assert torch.equal(single, double.float())


def test_rotary_keeps_dtype_gradient_and_strided_inputs():
    x = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(0)).transpose(1, 2).requires_grad_()
    cos, sin = rotary_tables(9, 8)
    y = apply_rotary(x, cos[4:], sin[4:])
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    y.square().sum().backward()  # |R x|^2 = |x|^2
    torch.testing.assert_close(x.grad, 2 * x.detach())


def parity_model(dtype):
    ref = reference("gpt_forward.npz")
    v, layers, heads, d = ref["config"].tolist()
    model = RotaryGPT(GPTConfig(v, layers, heads, d, rope_base=float(ref["rope_base"]))).to(dtype)
    model.load_state_dict({key[2:]: value for key, value in ref.items() if key.startswith("w/")})
    return model, ref


def test_forward_equals_gpt_neox():
    model, ref = parity_model(F64)
    torch.testing.assert_close(model(ref["ids"]), ref["logits"], rtol=0, atol=1e-5)
    states = model.hidden_states(ref["ids"])
    torch.testing.assert_close(torch.stack(states), ref["hidden"], rtol=0, atol=1e-5)
    single, _ = parity_model(torch.float32)
    logits = single(ref["ids"])
    assert logits.dtype == torch.float32
    assert (logits - ref["logits"]).abs().max() < 1e-4 * ref["logits"].abs().max()


def plain_forward(model: RotaryGPT, ids: torch.Tensor) -> torch.Tensor:
    """The formulas of the module's docstring, position by position and head by head."""
    c = model.config
    dh, w = c.d_model // c.n_head, model.state_dict()

    def norm(x, name):
        mean = x.mean()
        return (x - mean) / ((x - mean).square().mean() + c.ln_eps).sqrt() * w[name + ".weight"] + w[
            name + ".bias"
        ]

    def turn(x, m):
        z = torch.complex(x[: dh // 2], x[dh // 2 :])
        theta = torch.tensor([c.rope_base ** (-2 * j / dh) for j in range(dh // 2)], dtype=F64)
        z = z * torch.polar(torch.ones_like(theta), m * theta)
        return torch.cat((z.real, z.imag))

    x = [w["wte.weight"][i] for i in ids]
    for b in range(c.n_layer):
        p = f"blocks.{b}."
        lin = {
            n: (w[f"{p}{n}.weight"], w[f"{p}{n}.bias"])
            for n in ("attn.q", "attn.k", "attn.v", "attn.o", "fc", "proj")
        }
        rows = [{n: lin["attn." + n][0] @ norm(h, p + "ln1") + lin["attn." + n][1] for n in "qkv"} for h in x]
        for t in reversed(range(len(x))):
            heads = []
            for i in range(c.n_head):
                part = slice(i * dh, (i + 1) * dh)
                q = turn(rows[t]["q"][part], t)
                scores = torch.stack([q @ turn(rows[s]["k"][part], s) for s in range(t + 1)]) / math.sqrt(dh)
                heads.append(
                    torch.softmax(scores, 0) @ torch.stack([rows[s]["v"][part] for s in range(t + 1)])
                )
            y = x[t] + lin["attn.o"][0] @ torch.cat(heads) + lin["attn.o"][1]
            u = lin["fc"][0] @ norm(y, p + "ln2") + lin["fc"][1]
            gelu = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
            x[t] = y + lin["proj"][0] @ gelu + lin["proj"][1]
    return torch.stack([w["wte.weight"] @ norm(h, "ln_f") for h in x])


def test_forward_equals_the_formulas_written_out():
    model, ids = small(), tokens(2, 9)
    torch.testing.assert_close(
        model(ids), torch.stack([plain_forward(model, row) for row in ids]), rtol=0, atol=1e-10
    )


def test_state_dict_keys():
    norm = ["ln1", "ln2", "attn.q", "attn.k", "attn.v", "attn.o", "fc", "proj"]
    names = [f"blocks.{i}.{n}" for i in range(3) for n in norm] + ["ln_f"]
    expected = {"wte.weight"} | {f"{n}.{kind}" for n in names for kind in ("weight", "bias")}
    assert set(small().state_dict()) == expected


def test_weights_come_from_the_generator_alone(global_random_state):
    before = global_random_state()
    config = GPTConfig(200, n_layer=4, n_head=2, d_model=64)
    a, b = (RotaryGPT(config, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert global_random_state() == before
    for (name, x), y in zip(a.named_parameters(), b.parameters(), strict=True):
        assert torch.equal(x, y)
        if x.dim() == 2:
            std = 0.02 / math.sqrt(8) if name.endswith(("attn.o.weight", "proj.weight")) else 0.02
            assert x.std().item() == pytest.approx(std, rel=4 / math.sqrt(2 * x.numel()))
        elif "ln" in name and name.endswith("weight"):
            assert (x == 1).all()
        else:
            assert (x == 0).all()


def test_hidden_states_compose_into_the_forward_pass():
    model, ids = small(), tokens(2, 7)
    states = model.hidden_states(ids)
    assert len(states) == 4
    assert torch.equal(states[0], model.wte(ids))
    cos, sin = model.rotary(7, like=states[0])
    for i, block in enumerate(model.blocks):
        assert torch.equal(block(states[i], cos, sin), states[i + 1])
    assert torch.equal(model.unembed(states[-1]), model(ids))


def test_inputs_embeds_replace_the_embedding():
    model, ids = small(), tokens(2, 7)
    embeds = model.wte(ids).detach().requires_grad_()
    for given in (ids, None):
        assert torch.equal(model(given, inputs_embeds=embeds), model(ids))
    assert torch.equal(model.hidden_states(None, inputs_embeds=2 * embeds)[0], 2 * embeds)
    model(None, inputs_embeds=embeds).sum().backward()
    assert embeds.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="inputs_embeds"):
        model(ids[:, :3], inputs_embeds=embeds)
    with pytest.raises(ValueError, match="inputs_embeds"):
        model(None, inputs_embeds=embeds[..., :4])


def test_the_future_has_no_say():
    model, ids = small(), tokens(1, 8)
    changed = ids.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 19
    a, b = model(ids), model(changed)
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:], b[:, 5:])


@pytest.mark.parametrize("cuts", [(1,) * 9, (4, 1, 1, 3), (2, 7), (9,)])
def test_extending_a_past_equals_one_pass(cuts):
    model, ids = small(), tokens(3, 9)
    past, pieces, at = None, [], 0
    for size in cuts:
        logits, past = model.extend(ids[:, at : at + size], past)
        pieces.append(logits)
        at += size
        assert all(known.length == at for known in past)
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids), rtol=0, atol=1e-11)


def test_one_row_of_past_serves_many_new_rows():
    model, ids = small(), tokens(1, 6)
    new = torch.randn(5, 1, 16, dtype=F64, generator=torch.Generator().manual_seed(2))
    _, past = model.extend(ids)
    kept = [known.keys.clone() for known in past]
    h = new
    cos, sin = model.rotary(1, like=h, start=5)  # the last position once more, with another vector
    for block, known in zip(model.blocks, past, strict=True):
        h, longer = block.extend(h, cos, sin, known.prefix(5))
        assert longer.length == 6
    embeds = torch.cat((model.wte(ids[:, :5]).expand(5, -1, -1), new), 1)
    torch.testing.assert_close(
        model.unembed(h)[:, 0], model(None, inputs_embeds=embeds)[:, -1], rtol=0, atol=1e-11
    )
    assert all(
        torch.equal(a, known.keys) for a, known in zip(kept, past, strict=True)
    )  # nothing written in place


def test_generation_is_greedy_and_stops():
    model, ids = small(4), tokens(6, 5)
    new = model.generate(ids, 7)
    full = ids
    for step in range(7):
        token = model(full)[:, -1].argmax(-1)
        assert torch.equal(token, new[:, step])
        full = torch.cat((full, token[:, None]), 1)
    eos = int(new[0, 2])
    stopped = model.generate(ids, 7, eos_id=eos)
    for row, free in zip(stopped.tolist(), new.tolist(), strict=True):
        end = free.index(eos) if eos in free else 7
        assert row == free[:end] + [eos] * (7 - end)
    assert model.generate(ids, 0).shape == (6, 0)


class Doubled(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return 2 * self.base(x)


def test_every_matrix_can_be_replaced_and_hooked():
    ids = tokens(2, 6)
    for path in ("attn.q", "attn.k", "attn.v", "attn.o", "fc", "proj"):
        model = small()
        scaled = copy.deepcopy(model)
        owner, _, name = f"blocks.1.{path}".rpartition(".")
        layer = model.get_submodule(f"blocks.1.{path}")
        setattr(model.get_submodule(owner), name, Doubled(layer))
        with torch.no_grad():
            for parameter in scaled.get_submodule(f"blocks.1.{path}").parameters():
                parameter.mul_(2)
        torch.testing.assert_close(model(ids), scaled(ids), rtol=0, atol=1e-11)
        seen = []
        layer.register_forward_hook(lambda module, args, out, seen=seen: seen.append(args[0].shape))
        model(ids)
        assert seen == [(2, 6, 64 if path == "proj" else 16)]


def test_files_round_trip(tmp_path):
    model = small(dtype=torch.float32, rope_base=500.0, n_layer=2)
    path = save_gpt(model, tmp_path / "model.safetensors")
    again = load_gpt(path)
    assert again.config == model.config
    assert torch.equal(again(tokens(2, 7)), model(tokens(2, 7)))
    half = load_gpt(save_gpt(copy.deepcopy(model).half(), tmp_path / "half.safetensors"), dtype=torch.float32)
    torch.testing.assert_close(half(tokens(2, 7)), model(tokens(2, 7)), rtol=0, atol=0.5)
    with pytest.raises(FileNotFoundError, match="save_gpt"):
        load_gpt(tmp_path / "absent.safetensors")
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="save_gpt"):
        load_gpt(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"d_model": 10, "n_head": 4}, "divisible"),
        ({"d_model": 12, "n_head": 4}, "even"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"n_layer": 0}, "n_layer"),
        ({"n_head": 0}, "n_head"),
        ({"d_model": -8}, "d_model"),
        ({"rope_base": 0.0}, "positive"),
        ({"ln_eps": float("nan")}, "positive"),
    ],
)
def test_config_rejects(sizes, match):
    with pytest.raises(ValueError, match=match):
        GPTConfig(**({"vocab_size": 19} | sizes))


def test_rotary_rejects():
    for length, width, base in ((3, 5, 10.0), (3, 0, 10.0), (-1, 4, 10.0), (3, 4, 0.0)):
        with pytest.raises(ValueError, match="must"):
            rotary_tables(length, width, base)
    cos, sin = rotary_tables(4, 6)
    for x in (torch.zeros(4, 8), torch.zeros(5, 6), torch.zeros(6)):
        with pytest.raises(ValueError, match="tables"):
            apply_rotary(x, cos, sin)
    with pytest.raises(ValueError, match="tables"):
        apply_rotary(torch.zeros(1, 6), cos[0], sin[0])


def test_model_rejects():
    model = small()
    with pytest.raises(TypeError, match="token ids"):
        model(torch.zeros(1, 3))
    with pytest.raises(TypeError, match="token ids"):
        model([[1, 2]])
    for shape in ((3,), (1, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match="batch, length"):
            model(torch.zeros(shape, dtype=torch.int64))
    with pytest.raises(IndexError):
        model(torch.full((1, 2), 19))
    with pytest.raises(ValueError, match="max_new_tokens"):
        model.generate(tokens(1, 2), -1)
