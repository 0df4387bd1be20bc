"""Dormant units, recycling and rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from icml24.papers import actor_critic as ac


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("tau", ["0.0", "0.025", "0.1"])
def test_parity_with_community_code(parity, tau):
    layers = [parity["act0"], parity["act1"]]
    for k, layer in enumerate(layers):
        assert torch.equal(ac.dormant_mask(layer, float(tau)), parity[f"mask{k}_{tau}"])
    assert ac.dormant_ratio(layers, float(tau)) == pytest.approx(float(parity[f"dormant_{tau}"]), abs=1e-15)


def test_parity_of_rank(parity):
    assert ac.effective_rank(parity["feat"]) == int(parity["rank99"])
    assert ac.effective_rank(parity["feat"], threshold=0.9) == int(parity["rank90"])


@pytest.mark.equation("eq-actor_critic-dormant")
def test_scores_by_hand():
    """Mean sizes 0, 1, 5: scores 0, 1/2, 5/2; the batch's signs do not matter."""
    x = torch.tensor([[0.0, 1.0, -4.0], [0.0, -1.0, 6.0]])
    assert ac.dormant_mask(x, 0.49).tolist() == [True, False, False]
    assert ac.dormant_mask(x, 0.51).tolist() == [True, True, False]
    assert ac.dormant_mask(1e3 * x, 0.51).tolist() == [True, True, False]  # no scale
    assert ac.dormant_ratio([x, torch.ones(4, 1)], 0.51) == 0.5
    assert ac.dormant_mask(torch.zeros(3, 2)).all()


@pytest.mark.equation("eq-actor_critic-rank")
def test_rank_against_its_definition():
    values = np.array([50.0, 30.0, 19.0, 0.9, 0.1])
    left, right = (np.linalg.qr(rand(8, 5, seed=s).numpy())[0] for s in (0, 1))
    features = torch.from_numpy(left * values @ right.T)
    for threshold, rank in ((0.5, 1), (0.51, 2), (0.8, 2), (0.99, 3), (0.9905, 4), (0.9995, 5)):
        # sums 50, 80, 99, 99.9, 100 of 100; the float comparison at equality is left out
        if threshold not in (0.5, 0.8, 0.99):
            assert ac.effective_rank(features, threshold=threshold) == rank
    assert ac.effective_rank(features, threshold=1.0) == 5
    assert ac.effective_rank(torch.zeros(4, 3)) == 0
    assert ac.effective_rank(torch.eye(3), threshold=1e-9) == 1


@pytest.mark.equation("eq-actor_critic-recycle")
def test_recycling_dead_units_changes_no_output():
    """E11: units of score 0 are silent, so silencing them is free; live units stay bit for bit."""
    torch_stream = torch.Generator().manual_seed(3)
    first, second = nn.Linear(4, 8).double(), nn.Linear(8, 2).double()
    with torch.no_grad():
        first.bias[[1, 5]] = -100.0
    x = rand(30, 4)
    hidden = torch.relu(first(x))
    mask = ac.dormant_mask(hidden.detach(), 0.0)
    assert mask.nonzero()[:, 0].tolist() == [1, 5]
    before, kept, bias = second(hidden).detach(), first.weight[~mask].clone(), second.bias.clone()
    ac.recycle_dormant(first, second, mask, generator=torch_stream)
    torch.testing.assert_close(second(torch.relu(first(x))), before, rtol=0, atol=1e-12)
    assert torch.equal(first.weight[~mask], kept)
    assert torch.equal(second.bias, bias)
    assert (second.weight[:, mask] == 0).all()
    assert (first.bias[mask] == 0).all()
    assert (torch.relu(first(x))[:, mask] > 0).any()  # awake again
    assert first.weight[mask].norm(dim=1).max() <= 2**0.5 + 1e-12


@pytest.mark.equation("eq-actor_critic-recycle")
def test_change_is_bounded_by_what_the_units_contributed():
    first, second = nn.Linear(4, 8).double(), nn.Linear(8, 2).double()
    x, mask = rand(30, 4), torch.arange(8) < 3
    hidden = torch.relu(first(x)).detach()
    removed = hidden[:, mask].abs() @ second.weight[:, mask].detach().abs().T
    before = second(hidden).detach()
    ac.recycle_dormant(first, second, mask, generator=torch.Generator().manual_seed(1))
    change = (second(torch.relu(first(x))) - before).abs()
    assert (change <= removed + 1e-12).all()
    assert change.max() > 0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ac.dormant_mask(torch.ones(3)), r"\(B, width\)"),
        (lambda: ac.dormant_mask(torch.ones(3, 2), -0.1), "tau"),
        (lambda: ac.dormant_ratio([]), "at least one"),
        (lambda: ac.effective_rank(torch.ones(3, 2), threshold=0.0), r"\(0, 1\]"),
        (lambda: ac.effective_rank(torch.ones(3, 2), threshold=1.1), r"\(0, 1\]"),
        (lambda: ac.effective_rank(torch.full((3, 2), torch.nan)), "finite"),
        (lambda: ac.recycle_dormant(nn.Linear(3, 4), nn.Linear(5, 1), torch.ones(4) > 0), "read"),
        (lambda: ac.recycle_dormant(nn.Linear(3, 4), nn.Linear(4, 1), torch.ones(4)), "bool"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
