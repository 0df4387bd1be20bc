"""The chapter's equations about the model; files, caches and parity are tested in tests/common/test_gpt.py."""

import math

import pytest
import torch

from icml24.papers.knowledge_extraction import apply_rotary, rotary_tables

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def rotation(m, width, base=10000.0):
    """Dense matrix of the turn by position m, from its definition in pairs."""
    matrix = torch.zeros(width, width, dtype=F64)
    half = width // 2
    for j in range(half):
        angle = m * base ** (-2 * j / width)
        c, s = math.cos(angle), math.sin(angle)
        matrix[j, j], matrix[j, j + half], matrix[j + half, j], matrix[j + half, j + half] = c, -s, s, c
    return matrix


@pytest.mark.equation("eq-knowledge_extraction-rotary")
@pytest.mark.parametrize("width", [2, 6, 24])
def test_rotary_is_a_block_rotation(width):
    x = torch.randn(3, 40, width, dtype=F64, generator=gen(width))
    y = apply_rotary(x, *rotary_tables(40, width, dtype=F64))
    expected = torch.stack([x[:, m] @ rotation(m, width).T for m in range(40)], 1)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-12)


@pytest.mark.equation("eq-knowledge_extraction-relative")
def test_scores_depend_on_the_distance_only():
    """E2: <R_m q, R_n k> = <q, R_{n-m} k>."""
    g = gen(1)
    q, k = (torch.randn(24, dtype=F64, generator=g) for _ in range(2))
    cos, sin = rotary_tables(200, 24, dtype=F64)
    turn = lambda x, m: apply_rotary(x[None], cos[m : m + 1], sin[m : m + 1])[0]  # noqa: E731
    for m, n in torch.randint(100, (50, 2), generator=g).sort(1).values.tolist():
        score = turn(q, m) @ turn(k, n)
        assert score.item() == pytest.approx((q @ turn(k, n - m)).item(), abs=1e-12)


@pytest.mark.equation("eq-knowledge_extraction-relative")
def test_logits_ignore_a_common_shift(make_model, corpus):
    """E3: all positions moved by 37, same logits."""
    model = make_model()
    ids = torch.tensor([q["company"].ids for q in corpus.questions])
    h = model.wte(ids)
    cos, sin = model.rotary(ids.shape[1], like=h, start=37)
    for block in model.blocks:
        h = block(h, cos, sin)
    torch.testing.assert_close(model.unembed(h), model(ids), rtol=0, atol=1e-10)


@pytest.mark.equation("eq-knowledge_extraction-relative")
def test_a_row_does_not_feel_its_padding_or_its_slot_in_a_window(make_model, corpus):
    """E3: rows of their own equal a packed window with a mask between documents."""
    model = make_model()
    a, b = corpus.bio_ids[0][0], corpus.bio_ids[1][0]
    packed = model.wte(torch.tensor([a + b]))
    cos, sin = model.rotary(packed.shape[1], like=packed)
    document = torch.tensor([0] * len(a) + [1] * len(b))
    mask = (document[:, None] == document) & torch.ones(len(document), len(document)).tril().bool()
    h = packed
    for block in model.blocks:
        heads = [
            f(block.ln1(h)).unflatten(-1, (2, -1)).transpose(1, 2)
            for f in (block.attn.q, block.attn.k, block.attn.v)
        ]
        q, k, v = apply_rotary(heads[0], cos, sin), apply_rotary(heads[1], cos, sin), heads[2]
        scores = (q @ k.mT / math.sqrt(8)).masked_fill(~mask, -math.inf)
        h = h + block.attn.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        inner = block.fc(block.ln2(h))
        h = h + block.proj(torch.nn.functional.gelu(inner, approximate="tanh"))
    rows = corpus.bios[0][[0, 3]]
    alone = model.hidden_states(rows)[-1]
    torch.testing.assert_close(h[0, : len(a)], alone[0, : len(a)], rtol=0, atol=1e-10)
    torch.testing.assert_close(h[0, len(a) :], alone[1, : len(b)], rtol=0, atol=1e-10)


@pytest.mark.equation("eq-knowledge_extraction-model")
def test_model_is_what_the_equation_says(make_model, corpus):
    """Float64, from the state dict alone: dense rotations, one score matrix a head, no shared code."""
    model = make_model(2)
    w, ids = model.state_dict(), torch.tensor(corpus.bio_ids[0][0][:12])

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["wte.weight"][ids]
    for b in range(2):
        inside = norm(x, f"blocks.{b}.ln1")
        q, k, v = (affine(inside, f"blocks.{b}.attn.{part}") for part in "qkv")
        heads = []
        for part in (slice(0, 8), slice(8, 16)):
            scores = torch.full((12, 12), -math.inf, dtype=F64)
            for m in range(12):
                for n in range(m + 1):
                    scores[m, n] = (
                        (rotation(m, 8) @ q[m, part]) @ (rotation(n, 8) @ k[n, part]) / math.sqrt(8)
                    )
            heads.append(scores.softmax(-1) @ v[:, part])
        y = x + affine(torch.cat(heads, -1), f"blocks.{b}.attn.o")
        u = affine(norm(y, f"blocks.{b}.ln2"), f"blocks.{b}.fc")
        gelu = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        x = y + affine(gelu, f"blocks.{b}.proj")
    logits = norm(x, "ln_f") @ w["wte.weight"].T
    torch.testing.assert_close(model(ids[None])[0], logits, rtol=0, atol=1e-10)
