"""Configurations, the trained comparisons in small, costs, and the figures."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
import torch

from icml24.papers.gred import GREDModel, experiments
from icml24.papers.gred.baselines import GIN
from icml24.papers.gred.comparisons import (
    MOLECULE_MODELS,
    fit,
    predict,
    ring_network,
    weighted_radius,
)
from icml24.papers.gred.data import batches_of, molecules, ring_batch


def test_profiles():
    assert experiments.config_of("quick") == experiments.QUICK
    assert experiments.config_of("full", seed=3).seed == 3
    with pytest.raises(ValueError, match="quick"):
        experiments.config_of("medium")


def test_ring_is_solved_by_reach_alone():
    accuracy, start, model = ring_network(GREDModel, 1, 10, 0, 100)
    assert accuracy == 1.0
    assert 0 < weighted_radius(start) < 1
    assert weighted_radius(model) != weighted_radius(start)
    near, _, blind = ring_network(GIN, 2, 10, 0, 60)
    assert near == pytest.approx(0.2)
    batch = ring_batch(10)
    out = predict(blind, batch)[:, 0]
    torch.testing.assert_close(out, out[:1].expand_as(out), rtol=0, atol=1e-5)  # five hops are out of reach


def test_training_lowers_the_error_and_repeats_itself():
    chosen, vocabulary = molecules(150)
    batches = batches_of(chosen, 32, 6)

    def loss(out, batch):
        return (out - batch.target).abs().mean()

    def total(model):
        with torch.no_grad():
            return sum(float(loss(predict(model, b), b)) for b in batches)

    for kind, sizes in MOLECULE_MODELS.values():
        finals = []
        for _ in range(2):
            g = torch.Generator().manual_seed(0)
            model = kind(sizes, task="zinc", out_dim=1, in_dim=vocabulary, generator=g)
            before = total(model)
            fit(model, batches, loss, epochs=4, lr=3e-3, order=torch.Generator().manual_seed(1))
            finals.append(total(model))
        assert finals[0] < before
        assert finals[0] == finals[1]


def test_costs_count_what_is_kept():
    table = experiments.costs(experiments.config_of("quick", cost_nodes=(8, 16)), total=32)
    kept = table.pivot_table(index="nodes", columns="layer", values="kept")
    assert kept.loc[16, "pair attention"] > 1.5 * kept.loc[8, "pair attention"]
    assert (table["ms"] > 0).all()


def test_figures_draw_what_they_are_given():
    from icml24.papers.gred import figures

    made = [
        figures.plot_hops(molecules(40)[0][0], 0),
        figures.plot_conditioning(experiments.conditioning(0, draws=2)),
        figures.plot_impulses(torch.tensor([0.5 + 0.1j, -0.9 + 0.3j]), 8),
    ]
    for figure in made:
        assert figure.axes
        assert all(axis.get_xlabel() or axis.get_ylabel() or not axis.axison for axis in figure.axes)
    plt.close("all")
