"""The three models against the authors' outputs; the names of their parameters."""

from __future__ import annotations

import pytest
import torch

from icml24.common.checks import WrongType
from icml24.papers.gred import (
    LRU,
    GREDConfig,
    GREDLayer,
    GREDModel,
    hop_masks,
    load_reference_params,
    shortest_path_distances,
)
from icml24.papers.gred.baselines import GCN, GIN, TanhModel, Transformer

DOUBLE = torch.float64
INPUTS = {"zinc": ("z", 1, None), "superpixel": ("f", 4, 5), "sbm": ("tok", 6, None)}


def model_of(case, task, params_of, kind=GREDModel):
    h, v, hops, layers = case["meta"].tolist()
    _, out_dim, in_dim = INPUTS[task]
    config = GREDConfig(h, v, layers, num_hops=hops)
    model = kind(config, task=task, out_dim=out_dim, in_dim=in_dim, dtype=DOUBLE)
    return load_reference_params(model, params_of(case)) if kind is GREDModel else model


def inputs_of(case, task, hops=None):
    x = torch.from_numpy(case[INPUTS[task][0]])
    dist = torch.from_numpy(case["dist"]).long()
    edge = torch.from_numpy(case["edge"]) if task == "zinc" else None
    return x, hop_masks(dist, hops or int(case["meta"][2])), torch.from_numpy(case["node_mask"]), edge


@pytest.mark.parametrize("task", ["zinc", "superpixel", "sbm"])
def test_models_of_the_authors(model_cases, params_of, task):
    case = model_cases[task]
    model = model_of(case, task, params_of)
    y = torch.from_numpy(case["y"])
    torch.testing.assert_close(model(*inputs_of(case, task)), y, rtol=0, atol=1e-8)
    # masks beyond the model's number of hops are left out
    torch.testing.assert_close(model(*inputs_of(case, task, hops=9)), y, rtol=0, atol=1e-8)


@pytest.mark.parametrize("task", ["zinc", "superpixel", "sbm"])
@pytest.mark.parametrize("kind", [GREDModel, GIN, GCN, TanhModel])
def test_padding_and_relabelling(model_cases, params_of, task, kind):
    """E9 and E10 for whole models, the compared ones included."""
    case = model_cases[task]
    model = model_of(case, task, params_of, kind)
    x, masks, real, edge = inputs_of(case, task)
    y = model(x, masks, real, edge)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    moved_edge = None if edge is None else edge[:, order][:, :, order]
    again = model(x[:, order], masks[:, :, order][..., order], real[:, order], moved_edge)
    torch.testing.assert_close(again, y[:, order] if task == "sbm" else y, rtol=0, atol=1e-12)
    changed = x.clone()
    changed[~real] = changed[~real] * 0
    again = model(changed, masks, real, edge)
    keep = real if task == "sbm" else slice(None)
    torch.testing.assert_close(again[keep], y[keep], rtol=0, atol=1e-12)


def test_transformer_ignores_padding():
    config = GREDConfig(8, 1, 2)
    model = Transformer(config, task="superpixel", in_dim=3, out_dim=2, dtype=DOUBLE)
    x = torch.randn(2, 5, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    real = torch.ones(2, 5, dtype=torch.bool)
    y = model(x, torch.zeros(2, 2, 5, 5), real)
    wide = torch.cat([x, torch.ones(2, 2, 3, dtype=DOUBLE)], dim=1)
    padded = torch.cat([real, torch.zeros(2, 2, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(model(wide, torch.zeros(2, 2, 7, 7), padded), y, rtol=0, atol=1e-12)


def test_single_layers_take_flat_names(layer_cases, params_of):
    case = layer_cases["full"]
    h, v, _, _ = case["meta"].tolist()
    params = params_of(case)
    layer = load_reference_params(GREDLayer(h, v, dtype=DOUBLE), params)
    unit = load_reference_params(LRU(h, v), {k: a for k, a in params.items() if k.startswith("LRU_0/")})
    assert unit.B_re.dtype == torch.float32  # the module keeps its own dtype
    torch.testing.assert_close(unit.B_re, layer.lru.B_re.float())
    torch.testing.assert_close(layer.inner.weight.T, torch.from_numpy(params["MLP_0/Dense_0/kernel"]))


def test_names_must_fit_exactly(layer_cases, params_of):
    case = layer_cases["full"]
    h, v, _, _ = case["meta"].tolist()
    layer, params = GREDLayer(h, v, dtype=DOUBLE), params_of(case)
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(KeyError, match="LRU_0/B_re"):
        load_reference_params(layer, {k: a for k, a in params.items() if k != "LRU_0/B_re"})
    with pytest.raises(KeyError, match="LRU_0/D"):
        load_reference_params(layer, params | {"LRU_0/D": params["LRU_0/B_re"]})
    with pytest.raises(ValueError, match="MLP_0/Dense_0/kernel"):
        load_reference_params(layer, params | {"MLP_0/Dense_0/kernel": params["MLP_0/Dense_0/kernel"][:2]})
    with pytest.raises(ValueError, match="NaN"):
        load_reference_params(layer, params | {"LRU_0/B_re": params["LRU_0/B_re"] * float("nan")})
    with pytest.raises(WrongType, match="GREDModel"):
        load_reference_params(torch.nn.Linear(2, 2), params)
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))


def zinc(**options):
    return GREDModel(GREDConfig(4, 3, 1, num_hops=3), task="zinc", out_dim=1, **options)


def test_hop_zero_alone_still_sees_edges_at_the_input():
    model = GREDModel(GREDConfig(4, 3, 1, num_hops=1), task="zinc", out_dim=1)
    path = shortest_path_distances(torch.tensor([[0, 1], [1, 0]])[None])
    x, real = torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool)
    outputs = [model(x, hop_masks(path, 2), real, torch.full((1, 2, 2), t)) for t in (0, 1)]
    assert not torch.equal(*outputs)
    with pytest.raises(ValueError, match="hops 0 and 1"):
        model(x, hop_masks(path, 1), real, torch.zeros(1, 2, 2, dtype=torch.int64))


def test_lone_nodes_have_no_edges():
    """All hops of a batch without an edge are hop 0; a wider mask, empty beyond it, says the same."""
    model = GREDModel(GREDConfig(4, 3, 2), task="zinc", out_dim=1, dtype=DOUBLE)
    dist = shortest_path_distances(torch.zeros(3, 1, 1))
    x, real = torch.tensor([[0], [5], [27]]), torch.ones(3, 1, dtype=torch.bool)
    edge = torch.zeros(3, 1, 1, dtype=torch.int64)
    out = model(x, hop_masks(dist), real, edge)
    assert out.shape == (3, 1)
    short = GREDModel(GREDConfig(4, 3, 2, num_hops=1), task="zinc", out_dim=1, dtype=DOUBLE)
    short.load_state_dict(model.state_dict())
    torch.testing.assert_close(short(x, hop_masks(dist, 2), real, edge), out, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"edge": None}, "edge"),
        ({"node_mask": None}, "node_mask"),
        ({"node_mask": torch.ones(1, 3, dtype=torch.bool)}, "node_mask"),
        ({"edge": torch.full((1, 4, 4), 4)}, "0..3"),
        ({"edge": torch.zeros(1, 4, 4)}, "integer"),
        ({"x": torch.full((1, 4), 28)}, "0..27"),
        ({"x": torch.full((1, 4), -1)}, "0..27"),
        ({"x": torch.zeros(1, 4)}, "integer"),
        ({"x": torch.zeros(1, 5, dtype=torch.int64)}, "masks"),
    ],
)
def test_bad_inputs_of_zinc(change, match):
    dist = shortest_path_distances(torch.ones(1, 4, 4))
    good = {
        "x": torch.zeros(1, 4, dtype=torch.int64),
        "masks": hop_masks(dist, 3),
        "node_mask": torch.ones(1, 4, dtype=torch.bool),
        "edge": torch.zeros(1, 4, 4, dtype=torch.int64),
    }
    assert zinc()(**good).shape == (1, 1)
    with pytest.raises(ValueError, match=match):
        zinc()(**(good | change))


def test_bad_models():
    with pytest.raises(ValueError, match="zinc, superpixel, sbm"):
        GREDModel(GREDConfig(4, 3, 1), task="peptides", out_dim=1)
    with pytest.raises(ValueError, match="in_dim"):
        GREDModel(GREDConfig(4, 3, 1), task="superpixel", out_dim=1)
    with pytest.raises(WrongType, match="GREDConfig"):
        GREDModel({"dim_h": 4}, task="sbm", out_dim=1)
    with pytest.raises(ValueError, match="out_dim"):
        GREDModel(GREDConfig(4, 3, 1), task="sbm", out_dim=0)


def test_larger_vocabulary_and_seeding():
    a, b = (zinc(in_dim=50, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert a.embed.weight.shape == (50, 4)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert 0.005 < float(a.embed.weight.std()) < 0.02
