"""Loss, score, schedule and groups of parameters against the authors' values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score
from torch import nn

from icml24.papers.gred import (
    GREDConfig,
    GREDModel,
    balanced_accuracy,
    param_groups,
    warmup_cosine_lr,
    weighted_node_cross_entropy,
)

DOUBLE = torch.float64


@pytest.mark.parametrize("case", ["loss", "loss2"])
def test_loss_and_score_of_the_authors(train_cases, case):
    stored = {k: torch.from_numpy(np.asarray(v)) for k, v in train_cases[case].items()}
    logits, labels, mask = stored["logits"], stored["labels"], stored["node_mask"]
    loss = weighted_node_cross_entropy(logits, labels, mask)
    torch.testing.assert_close(loss, stored["loss"], rtol=0, atol=1e-9)
    score = balanced_accuracy(logits.argmax(dim=-1), labels, mask, logits.shape[-1])
    assert score == pytest.approx(float(stored["balanced_accuracy"]), abs=1e-9)


@pytest.mark.equation("eq-gred-loss")
def test_loss_by_hand():
    """Two nodes of class 0, one of class 1: weights 1/3, 1/3, 2/3."""
    logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 3.0], [9.0, 9.0]]], dtype=DOUBLE)
    labels, mask = torch.tensor([[0, 0, 1, 7]]), torch.tensor([[True, True, True, False]])
    ce = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(1)), math.log(1 + math.exp(-3))]
    wanted = (ce[0] / 3 + ce[1] / 3 + 2 * ce[2] / 3) / (4 / 3)
    assert float(weighted_node_cross_entropy(logits, labels, mask)) == pytest.approx(wanted, abs=1e-12)
    assert balanced_accuracy(logits.argmax(-1), labels, mask, 2) == pytest.approx(0.75)


@pytest.mark.equation("eq-gred-loss")
def test_balanced_classes_leave_the_plain_mean():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 3, generator=g, dtype=DOUBLE)
    labels = torch.tensor([[0, 1, 2, 0, 1, 2]]).expand(2, -1)
    plain = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    full = torch.ones(2, 6, dtype=torch.bool)
    torch.testing.assert_close(weighted_node_cross_entropy(logits, labels, full), plain, rtol=0, atol=1e-12)


def test_score_equals_sklearn_and_counts_absent_classes():
    g = torch.Generator().manual_seed(1)
    pred, labels = torch.randint(4, (2, 3, 30), generator=g)
    mask = torch.rand(3, 30, generator=g) < 0.7
    wanted = balanced_accuracy_score(labels[mask].numpy(), pred[mask].numpy())
    assert balanced_accuracy(pred, labels, mask, 4) == pytest.approx(wanted, abs=1e-12)
    assert balanced_accuracy(pred, labels, mask, 5) == pytest.approx(wanted * 4 / 5, abs=1e-12)
    assert balanced_accuracy(pred, labels, torch.zeros_like(mask), 4) == 0.0


def test_degenerate_losses():
    logits = torch.zeros(1, 2, 3, requires_grad=True)
    labels = torch.zeros(1, 2, dtype=torch.int64)
    for mask in (torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)):
        loss = weighted_node_cross_entropy(logits, labels, mask)
        assert float(loss) == 0.0
        loss.backward()
    assert weighted_node_cross_entropy(logits, labels, mask).dtype == torch.float32


@pytest.mark.parametrize("case", ["sched", "sched2"])
def test_schedule_of_the_authors(train_cases, case):
    stored = train_cases[case]
    (total, warmup), (low, high) = stored["meta"].tolist(), stored["lr"].tolist()
    for step, value in zip(stored["step"].tolist(), stored["value"].tolist(), strict=True):
        found = warmup_cosine_lr(step, total=total, warmup=warmup, lr_min=low, lr_max=high)
        assert abs(found - value) <= 1e-9 * high


@pytest.mark.equation("eq-gred-schedule")
def test_schedule_by_its_shape():
    """Ends, peak, symmetry of the cosine about its middle, and a straight start."""
    options = {"total": 110, "warmup": 10, "lr_min": 0.1, "lr_max": 0.5}
    rate = [warmup_cosine_lr(t, **options) for t in range(112)]
    assert (rate[0], rate[10], rate[110], rate[111]) == pytest.approx((0.1, 0.5, 0.1, 0.1))
    assert np.allclose(np.diff(rate[:11]), 0.04)
    assert np.allclose([a + b for a, b in zip(rate[10:111], rate[110:9:-1], strict=True)], 0.6)
    assert rate[60] == pytest.approx(0.3)
    assert warmup_cosine_lr(0, total=5, warmup=0, lr_min=0.0, lr_max=1.0) == 1.0
    assert warmup_cosine_lr(9, total=5, warmup=5, lr_min=0.0, lr_max=1.0) == 0.0


def test_optimiser_of_the_authors(train_cases):
    """Four updates with stored gradients: the groups decide who decays."""
    stored = {k: torch.from_numpy(np.asarray(v)) for k, v in train_cases["opt"].items()}
    low, high, warmup, total, decay = stored["hp"].tolist()

    def stored_as(name: str) -> nn.Parameter:
        return nn.Parameter(stored[f"p0/{name}"].clone())

    model = nn.Module()
    model.dense, model.norm, model.embed = nn.Linear(2, 3), nn.LayerNorm(3), nn.Embedding(3, 2)
    model.dense.weight, model.dense.bias = stored_as("Dense_0/kernel"), stored_as("Dense_0/bias")
    model.norm.weight, model.norm.bias = stored_as("LayerNorm_0/scale"), None
    model.embed.weight = stored_as("Embed_0/embedding")
    for name in ("nu_log", "B_re", "C_re"):
        setattr(model, name, stored_as(name))
    places = {
        "Dense_0/kernel": model.dense.weight,
        "Dense_0/bias": model.dense.bias,
        "LayerNorm_0/scale": model.norm.weight,
        "Embed_0/embedding": model.embed.weight,
    } | {name: getattr(model, name) for name in ("nu_log", "B_re", "C_re")}
    groups = param_groups(model, lr=high, weight_decay=decay)
    optimiser = torch.optim.AdamW([{k: v for k, v in g.items() if k != "name"} for g in groups], lr=high)
    for t in range(4):
        for group in optimiser.param_groups:
            group["lr"] = warmup_cosine_lr(t, total=int(total), warmup=int(warmup), lr_min=low, lr_max=high)
        for name, parameter in places.items():
            parameter.grad = stored[f"g{t}/{name}"].clone()
        optimiser.step()
        for name, parameter in places.items():
            torch.testing.assert_close(parameter.detach(), stored[f"p{t + 1}/{name}"], rtol=0, atol=1e-8)


def test_groups_are_a_partition():
    model = GREDModel(GREDConfig(4, 3, 2), task="zinc", out_dim=1)
    groups = param_groups(model, lr=1e-3, weight_decay=0.2, lr_factor=0.5)
    assert [g["name"] for g in groups] == ["recurrent", "no_decay", "regular"]
    ids = [id(p) for g in groups for p in g["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert [(g["lr"], g["weight_decay"]) for g in groups] == [(5e-4, 0.0), (1e-3, 0.0), (1e-3, 0.2)]
    names = {id(p): name for name, p in model.named_parameters()}
    members = {g["name"]: {names[id(p)].rsplit(".", 1)[-1] for p in g["params"]} for g in groups}
    assert members["recurrent"] == {"nu_log", "theta_log", "gamma_log", "B_re", "B_im"}
    assert members["regular"] == {"weight", "C_re", "C_im"}
    assert torch.optim.AdamW(groups)  # the extra key is harmless


def test_bad_inputs():
    logits, labels, mask = torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2).bool()
    with pytest.raises(ValueError, match=r"\(B,N,C\)"):
        weighted_node_cross_entropy(logits[0], labels, mask)
    with pytest.raises(ValueError, match="labels"):
        weighted_node_cross_entropy(logits, labels[:, :1], mask)
    with pytest.raises(ValueError, match=r"0\.\.2"):
        weighted_node_cross_entropy(logits, labels + 3, mask)
    with pytest.raises(TypeError, match="integer"):
        balanced_accuracy(labels, labels.float(), mask, 3)
    with pytest.raises(ValueError, match="argmax"):
        balanced_accuracy(logits, labels, mask, 3)
    with pytest.raises(ValueError, match="warmup"):
        warmup_cosine_lr(0, total=5, warmup=6, lr_min=0.0, lr_max=1.0)
    with pytest.raises(ValueError, match="step"):
        warmup_cosine_lr(-1, total=5, warmup=1, lr_min=0.0, lr_max=1.0)
    with pytest.raises(ValueError, match="lr must be positive"):
        param_groups(nn.Linear(1, 1), lr=0.0, weight_decay=0.0)
    with pytest.raises(TypeError, match="Module"):
        param_groups([], lr=1.0, weight_decay=0.0)
