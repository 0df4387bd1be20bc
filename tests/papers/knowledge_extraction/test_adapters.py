from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from icml24.papers.knowledge_extraction import LoRALinear, LowRankEmbedding, apply_lora
from icml24.papers.knowledge_extraction.probes import probe_size

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def linear(n_in, n_out, seed=0, dtype=F64):
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out, dtype=dtype)
    with torch.no_grad():
        layer.weight.normal_(generator=gen(seed))
        layer.bias.normal_(generator=gen(seed + 1))
    return layer


def embedding(words, width, seed=0, dtype=F64):
    table = nn.utils.skip_init(nn.Embedding, words, width, dtype=dtype)
    with torch.no_grad():
        table.weight.normal_(generator=gen(seed))
    return table


@pytest.fixture(scope="module")
def parity():
    with np.load(Path(__file__).parent / "data" / "lora.npz") as file:
        return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}


@pytest.mark.equation("eq-knowledge_extraction-lora")
def test_parity_of_the_adapted_layer(parity):
    base = linear(10, 6)
    layer = LoRALinear(base, int(parity["rank"]), alpha=float(parity["alpha"]))
    with torch.no_grad():
        for parameter, name in ((base.weight, "W"), (base.bias, "b"), (layer.A, "A"), (layer.B, "B")):
            parameter.copy_(parity[name])
    torch.testing.assert_close(layer(parity["x"]), parity["y"], rtol=0, atol=1e-10)
    torch.testing.assert_close(layer.merged_weight(), parity["merged"], rtol=0, atol=1e-10)


@pytest.mark.equation("eq-knowledge_extraction-embedding")
def test_parity_of_the_adapted_embedding(parity):
    base = embedding(13, 10)
    table = LowRankEmbedding(base, 3)
    with torch.no_grad():
        for parameter, name in ((base.weight, "E"), (table.U, "U"), (table.V, "V")):
            parameter.copy_(parity[name])
    torch.testing.assert_close(table(parity["ids"]), parity["emb"], rtol=0, atol=1e-10)
    torch.testing.assert_close(table.weight[parity["ids"]], parity["emb"], rtol=0, atol=1e-10)


@pytest.mark.equation("eq-knowledge_extraction-lora")
def test_an_update_starts_at_nothing_and_merges():
    """E4: same function at the start, rank at most r, merged weight the same map."""
    base = linear(12, 8)
    layer = LoRALinear(base, 3, alpha=6.0, generator=gen(2))
    x = torch.randn(5, 4, 12, dtype=F64, generator=gen(3))
    assert torch.equal(layer(x), base(x))
    assert layer.scale == 2.0
    with torch.no_grad():
        layer.B.normal_(generator=gen(4))
    update = layer.merged_weight() - base.weight
    assert int(torch.linalg.matrix_rank(update)) == 3
    torch.testing.assert_close(layer(x), x @ layer.merged_weight().T + base.bias, rtol=0, atol=1e-12)
    rows = torch.stack(
        [base.weight[i] + 2.0 * sum(layer.B[i, r] * layer.A[r] for r in range(3)) for i in range(8)]
    )
    torch.testing.assert_close(layer.merged_weight(), rows, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-knowledge_extraction-gradient")
def test_first_gradients():
    """E4: at the start A gets no gradient and B gets scale * (dL/dy)^T x A^T."""
    layer = LoRALinear(linear(7, 5), 2, alpha=3.0, generator=gen(1))
    x = torch.randn(9, 7, dtype=F64, generator=gen(2))
    target = torch.randn(9, 5, dtype=F64, generator=gen(3))
    y = layer(x)
    (0.5 * (y - target).square().sum()).backward()
    assert layer.A.grad.abs().max() == 0
    dy = (y - target).detach()
    torch.testing.assert_close(layer.B.grad, 1.5 * dy.T @ x @ layer.A.detach().T, rtol=0, atol=1e-11)
    step = 1e-5  # the same by central differences of the loss in one entry of B
    with torch.no_grad():
        losses = []
        for sign in (1, -1):
            layer.B[3, 1] = sign * step
            losses.append(0.5 * (layer(x) - target).square().sum())
    assert (losses[0] - losses[1]).item() / (2 * step) == pytest.approx(layer.B.grad[3, 1].item(), rel=1e-6)


def test_factors_have_the_stated_variance():
    layer = LoRALinear(linear(400, 300), 100, generator=gen(1))
    assert layer.scale == 1.0
    assert layer.A.shape == (100, 400)
    assert layer.A.std().item() == pytest.approx(400**-0.5, rel=4 / (2 * 40_000) ** 0.5)
    table = LowRankEmbedding(embedding(500, 256), 64, generator=gen(2))
    assert table.V.std().item() == pytest.approx(256**-0.5, rel=4 / (2 * 64 * 256) ** 0.5)
    assert (table.U == 0).all()


@pytest.mark.equation("eq-knowledge_extraction-embedding")
def test_embedding_update_starts_at_nothing_and_has_low_rank():
    base = embedding(30, 12)
    table = LowRankEmbedding(base, 4, generator=gen(1))
    ids = torch.randint(30, (3, 5), generator=gen(2))
    assert torch.equal(table(ids), base(ids))
    with torch.no_grad():
        table.U.normal_(generator=gen(3))
    assert int(torch.linalg.matrix_rank(table.weight - base.weight)) == 4
    torch.testing.assert_close(table(ids), table.weight[ids], rtol=0, atol=1e-13)


@pytest.mark.equation("eq-knowledge_extraction-size")
@pytest.mark.parametrize(
    ("words", "width", "classes", "rank"), [(30, 12, 5, 2), (100, 16, 40, 16), (9, 8, 3, 0)]
)
def test_size_of_a_probe(words, width, classes, rank):
    """E5: r (V + d) + C (d + 1) parameters, whatever the depth."""
    modules = nn.ModuleList([linear(width, classes)])
    if rank:
        table = LowRankEmbedding(embedding(words, width), rank)
        table.base.requires_grad_(False)
        modules.append(table)
    counted = sum(p.numel() for p in modules.parameters() if p.requires_grad)
    assert counted == probe_size(words, width, classes, rank)


def test_adapting_a_model(make_model, corpus):
    model, plain = make_model(), make_model()
    ids = torch.tensor([q["major"].ids for q in corpus.questions])
    trained = apply_lora(model, qv_rank=2, embedding_rank=3, generator=gen(1))
    assert torch.equal(model(ids), plain(ids))
    assert [p.shape for p in trained] == [p.shape for p in model.parameters() if p.requires_grad]
    vocab = len(corpus.tokenizer)
    assert sum(p.numel() for p in trained) == 2 * 2 * (2 * 16 + 16 * 2) + 3 * (vocab + 16)
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=F64, generator=gen(4)))
        merged = make_model()
        merged.wte.weight.copy_(model.wte.weight)  # the output matrix follows the updated embedding
        for ours, theirs in zip(model.blocks, merged.blocks, strict=True):
            theirs.attn.q.weight.copy_(ours.attn.q.merged_weight())
            theirs.attn.v.weight.copy_(ours.attn.v.merged_weight())
    torch.testing.assert_close(model(ids), merged(ids), rtol=0, atol=1e-10)
    model(ids).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
    with pytest.raises(ValueError, match="already"):
        apply_lora(model, qv_rank=2)


def test_adapters_keep_the_dtype():
    layer = LoRALinear(linear(6, 6, dtype=torch.float32), 2, generator=gen(0))
    assert layer(torch.randn(3, 6, generator=gen(0))).dtype == torch.float32
    assert LowRankEmbedding(embedding(9, 6, dtype=torch.float32), 2).weight.dtype == torch.float32


@pytest.mark.parametrize("rank", [0, -1, 7])
def test_ranks_out_of_range(rank, make_model):
    with pytest.raises(ValueError, match=r"1\.\.6"):
        LoRALinear(linear(9, 6), rank)
    with pytest.raises(ValueError, match=r"1\.\.6"):
        LowRankEmbedding(embedding(6, 9), rank)
    model = make_model()
    for ranks in (
        {"qv_rank": 0},
        {"qv_rank": 17},
        {"qv_rank": 2, "embedding_rank": 17},
        {"qv_rank": 2, "embedding_rank": -1},
    ):
        with pytest.raises(ValueError, match="rank"):
            apply_lora(model, **ranks)
    assert all(p.requires_grad for p in model.parameters())  # refused before anything is changed
