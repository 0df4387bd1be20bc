"""The layer against the authors' outputs, against a loop over nodes, and its symmetries."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from icml24.common.checks import WrongType
from icml24.papers.gred import (
    LRU,
    GREDConfig,
    GREDLayer,
    hop_masks,
    load_reference_params,
    shortest_path_distances,
)
from icml24.papers.gred.baselines import TanhLayer

DOUBLE = torch.float64


def scene(n: int = 8, d: int = 5, v: int = 6, hops: int | None = None, **options):
    """A layer with parameters moved off their start, nodes and masks."""
    g = torch.Generator().manual_seed(0)
    layer = GREDLayer(d, v, generator=g, dtype=DOUBLE, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.1 * torch.randn(p.shape, generator=g, dtype=DOUBLE)
    drawn = (torch.rand(2, n, n, generator=g) < 0.3).triu(1)
    dist = shortest_path_distances(drawn | drawn.transpose(1, 2))
    return layer, torch.randn(2, n, d, generator=g, dtype=DOUBLE), hop_masks(dist, hops), dist


def norm(x, module):
    return F.layer_norm(x, x.shape[-1:], module.weight, module.bias, eps=1e-6)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("case", ["full", "half", "none", "sparse"])
def test_layer_of_the_authors(layer_cases, params_of, case):
    stored = layer_cases[case]
    h, v, hops, expand = stored["meta"].tolist()
    layer = GREDLayer(h, v, expand=expand, act=str(stored["act"]), dtype=DOUBLE)
    load_reference_params(layer, params_of(stored))
    masks = hop_masks(shortest_path_distances(torch.from_numpy(stored["adj"])), hops)
    x, y = torch.from_numpy(stored["x"]), torch.from_numpy(stored["y"])
    torch.testing.assert_close(layer(x, masks), y, rtol=0, atol=1e-9)
    torch.testing.assert_close(layer(x, masks.double()), y, rtol=0, atol=1e-9)


@pytest.mark.equation("eq-gred-aggregation")
def test_aggregation_by_a_loop():
    layer, x, masks, dist = scene(expand=2)
    hops = layer.aggregate(x, masks)
    for b, k, v in ((0, 0, 1), (0, 1, 3), (1, 2, 5), (1, masks.shape[1] - 1, 0)):
        total = torch.zeros(5, dtype=DOUBLE)
        for u in range(8):
            if int(dist[b, v, u]) == k:
                total = total + x[b, u]
        wanted = total + layer.outer(gelu(layer.inner(norm(total, layer.norm))))
        torch.testing.assert_close(hops[b, k, v], wanted, rtol=0, atol=1e-12)


def test_empty_hops_are_not_zero():
    layer, x, _, dist = scene()
    masks = hop_masks(dist, 20)
    hops = layer.aggregate(x, masks)[:, -1]
    assert bool((hops.abs().sum(dim=-1) > 0).all())
    torch.testing.assert_close(hops, hops[:1, :1].expand_as(hops), rtol=0, atol=1e-14)  # one constant
    assert not torch.allclose(layer(x, masks), layer(x, hop_masks(dist)))


@pytest.mark.equation("eq-gred-input")
def test_input_map_is_linear_with_gamma():
    unit = scene()[0].lru
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    w_in = torch.complex(unit.B_re, unit.B_im) * unit.gamma_log.exp()
    torch.testing.assert_close(unit.project(x), norm(x, unit.norm).to(w_in.dtype) @ w_in, rtol=0, atol=1e-13)


@pytest.mark.equation("eq-gred-output")
@pytest.mark.parametrize("act", ["full-glu", "half-glu", "none"])
def test_gate_in_complex_arithmetic(act):
    unit = scene(act=act)[0].lru
    x = torch.randn(4, 2, 3, 5, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    w_in = torch.complex(unit.B_re, unit.B_im) * unit.gamma_log.exp()
    w_out = torch.complex(unit.C_re, unit.C_im)
    state = sum(unit.eigenvalues() ** k * (norm(x[k], unit.norm).to(w_in.dtype) @ w_in) for k in range(4))
    y = gelu((state @ w_out).real)
    gate = 1.0 if act == "none" else 1 / (1 + torch.exp(-unit.gate(y)))
    value = unit.value(y) if act == "full-glu" else y
    torch.testing.assert_close(unit.read(x, 0), value * gate, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-gred-layer")
def test_skip_starts_at_the_aggregated_node():
    layer, x, masks, _ = scene()
    hops = layer.aggregate(x, masks)
    update = layer(x, masks) - hops[:, 0]
    torch.testing.assert_close(update, layer.lru.read(hops, 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.lru(hops.movedim(1, 0)), layer(x, masks), rtol=0, atol=1e-12)
    with torch.no_grad():  # with nothing read from the hops, the layer returns x_{v,0} gated by constants
        layer.lru.C_re.zero_()
        layer.lru.C_im.zero_()
        layer.lru.value.bias.zero_()
    torch.testing.assert_close(layer(x, masks), layer.aggregate(x, masks)[:, 0], rtol=0, atol=1e-14)
    assert not torch.allclose(layer(x, masks), x)


@pytest.mark.equation("eq-gred-equivariance")
def test_relabelling_and_padding():
    """E9 and E10: relabelling commutes with the layer; isolated nodes change no other node."""
    layer, x, masks, dist = scene(hops=6)
    y, order = layer(x, masks), torch.randperm(8, generator=torch.Generator().manual_seed(3))
    moved = hop_masks(dist[:, order][:, :, order], 6)
    torch.testing.assert_close(layer(x[:, order], moved), y[:, order], rtol=0, atol=1e-12)
    padded = torch.full((2, 11, 11), -1)
    padded[:, :8, :8] = dist
    padded[:, range(8, 11), range(8, 11)] = 0
    wide = torch.cat(
        [x, torch.randn(2, 3, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(4))], dim=1
    )
    torch.testing.assert_close(layer(wide, hop_masks(padded, 6))[:, :8], y, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-gred-cost")
@pytest.mark.parametrize(("n", "d", "v", "hops"), [(8, 5, 6, 3), (11, 4, 3, 7)])
def test_cost_is_what_a_counter_counts(n, d, v, hops):
    """E11: operations of the products, counted by torch while the package computes them."""
    layer, x, masks, _ = scene(n, d, v, hops)
    rows = 2 * hops * n
    with FlopCounterMode(display=False) as sums_and_perceptron, torch.no_grad():
        vectors = layer.aggregate(x, masks)
    assert sums_and_perceptron.get_total_flops() == 2 * rows * n * d + 4 * rows * d**2
    with FlopCounterMode(display=False) as input_map, torch.no_grad():
        inputs = layer.lru.project(vectors)
    assert input_map.get_total_flops() == 4 * rows * d * v
    assert inputs.numel() == rows * v  # a complex multiply-add for each: eight operations


def test_gradients_by_differences():
    layer, x, masks, _ = scene(n=4, d=3, v=2)
    assert torch.autograd.gradcheck(lambda h: layer(h, masks), (x.requires_grad_(),))
    names = [name for name, _ in layer.named_parameters()]

    def call(*values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x.detach(), masks))

    assert torch.autograd.gradcheck(call, tuple(p.detach().requires_grad_() for p in layer.parameters()))


def test_start_has_the_stated_variances():
    unit = LRU(400, 300, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    for parameter, variance in ((unit.B_re, 0.5 / 400), (unit.C_im, 1 / 300), (unit.gate.weight, 1 / 400)):
        assert abs(float(parameter.detach().var()) / variance - 1) < 0.02
        assert float(parameter.detach().abs().max()) <= 2 * variance**0.5 / 0.8796 + 1e-12
    assert not unit.gate.bias.any()
    torch.testing.assert_close(
        unit.gamma_log.exp().square(), 1 - unit.eigenvalues().abs().square(), rtol=1e-10, atol=1e-12
    )


def test_same_generator_same_layer_in_both_precisions(global_random_state):
    before = global_random_state()
    single, double = (
        GREDLayer(6, 4, generator=torch.Generator().manual_seed(7), dtype=t) for t in (torch.float32, DOUBLE)
    )
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b.float(), rtol=0, atol=0)
    assert global_random_state() == before


def test_dropout_follows_its_generator_and_spares_the_mlp():
    layer, x, masks, _ = scene(drop_rate=0.5)
    twin = copy.deepcopy(layer)
    a, b = layer(x, masks), layer(x, masks)
    assert not torch.equal(a, b)
    assert torch.equal(twin(x, masks), a)
    assert torch.equal(layer.eval()(x, masks), layer(x, masks))
    torch.testing.assert_close(layer.train().aggregate(x, masks), layer.eval().aggregate(x, masks))


def test_non_contiguous_inputs_and_float32():
    layer, x, masks, _ = scene()
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(layer(strided, masks), layer(x, masks), rtol=0, atol=1e-13)
    assert layer.float()(x.float(), masks).dtype == torch.float32
    xs = torch.randn(3, 2, 4, 5).transpose(1, 2)
    assert layer.lru(xs).shape == (4, 2, 5)


def test_no_graphs_and_one_node():
    layer = scene()[0]
    assert layer(torch.zeros(0, 3, 5, dtype=DOUBLE), torch.zeros(0, 2, 3, 3)).shape == (0, 3, 5)
    assert layer(torch.ones(1, 1, 5, dtype=DOUBLE), torch.ones(1, 1, 1, 1)).shape == (1, 1, 5)


def test_tanh_ablation_shares_the_aggregation():
    layer = TanhLayer(4, 3, torch.Generator().manual_seed(0), DOUBLE)
    _, _, masks, _ = scene()
    x = torch.randn(2, 8, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    hops = layer.aggregate(x, masks)
    inputs = layer.enter(norm(hops, layer.read_norm))
    state = torch.zeros(2, 8, 6, dtype=DOUBLE)
    for k in reversed(range(masks.shape[1])):
        state = torch.tanh((0 if k == masks.shape[1] - 1 else layer.recur(state)) + inputs[:, k])
    y = gelu(layer.leave(state))
    torch.testing.assert_close(layer(x, masks), hops[:, 0] + layer.value(y) * torch.sigmoid(layer.gate(y)))


@pytest.mark.parametrize(
    ("x", "masks"),
    [
        (torch.zeros(2, 4, 3), torch.zeros(2, 2, 4, 4)),
        (torch.zeros(2, 4, 5), torch.zeros(3, 2, 4, 4)),
        (torch.zeros(2, 4, 5), torch.zeros(2, 2, 5, 5)),
        (torch.zeros(4, 5), torch.zeros(2, 4, 4)),
        (torch.zeros(2, 4, 5), torch.zeros(2, 0, 4, 4)),
    ],
)
def test_shapes_that_do_not_fit(x, masks):
    with pytest.raises(ValueError, match="masks") as caught:
        GREDLayer(5, 4)(x, masks)
    assert str(tuple(x.shape)) in str(caught.value)
    assert str(tuple(masks.shape)) in str(caught.value)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="full-glu, half-glu, none"):
        GREDLayer(4, 4, act="relu")
    with pytest.raises(ValueError, match="full-glu, half-glu, none"):
        GREDConfig(4, 4, 1, act="relu")
    with pytest.raises(ValueError, match="num_hops must be >= 1"):
        GREDConfig(4, 4, 1, num_hops=0)
    with pytest.raises(ValueError, match="drop_rate"):
        LRU(4, 4, drop_rate=1.0)
    with pytest.raises(ValueError, match="dim_h"):
        LRU(0, 4)
    with pytest.raises(WrongType, match="dtype must be"):
        LRU(4, 4, dtype=torch.float16)
    with pytest.raises(WrongType, match="dtype"):
        GREDLayer(5, 4)(torch.zeros(2, 4, 5, dtype=DOUBLE), torch.zeros(2, 2, 4, 4))
    with pytest.raises(ValueError, match=r"\(K\+1, B, N, H\)"):
        LRU(4, 4)(torch.zeros(3, 2, 2, 5))
