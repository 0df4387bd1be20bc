"""Configurations, the trained comparisons in small, costs, and the figures."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from icml24.papers.gred import GREDModel, experiments
from icml24.papers.gred.baselines import GIN
from icml24.papers.gred.comparisons import (
    MOLECULE_MODELS,
    cluster,
    fit,
    predict,
    ranges,
    ring_network,
    rings,
    weighted_radius,
)
from icml24.papers.gred.data import batches_of, molecules, ring_batch


def test_profiles():
    assert experiments.configure("quick") == experiments.QUICK
    assert experiments.configure("full", seed=3).seed == 3
    with pytest.raises(ValueError, match="quick"):
        experiments.configure("medium")


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
    table = experiments.costs(experiments.configure("quick", cost_nodes=(8, 16)), total=32)
    kept = table.pivot_table(index="nodes", columns="layer", values="kept")
    assert kept.loc[16, "pair attention"] > 1.5 * kept.loc[8, "pair attention"]
    assert (table["ms"] > 0).all()


def test_comparisons_have_a_row_for_every_run():
    config = experiments.configure(
        "quick", cluster_graphs=6, cluster_epochs=1, ring_sizes=(4, 6), ring_seeds=1, ring_steps=2
    )
    table = cluster(config)
    assert list(table["model"]) == ["GRED", "GIN", "GCN"]
    assert table["accuracy"].between(0, 1).all()
    assert len(rings(config)) == 6
    moved, eigenvalues = ranges(config, n=6, seeds=2)
    assert list(moved["task"]) == ["near", "far"] * 2
    assert (moved.groupby("seed")["before"].nunique() == 1).all()  # one start for both tasks
    assert sorted(eigenvalues) == ["far", "near", "start"]
    times = experiments.recurrence_times(0, nodes=2, channels=2, repeats=1)
    assert sorted(times["form"].unique()) == ["scan", "sequential", "sum"]
    assert (times["ms"] > 0).all()


def test_figures_draw_what_they_are_given():
    from icml24.papers.gred import figures

    made = [
        figures.plot_hops(molecules(40)[0][0], 0),
        figures.plot_conditioning(experiments.conditioning(0, draws=2)),
        figures.plot_impulses(torch.tensor([0.5 + 0.1j, -0.9 + 0.3j]), 8),
        figures.plot_eigenvalues({"start": torch.tensor([0.5 + 0.1j]), "far": torch.tensor([0.9j])}),
        figures.plot_times(pd.DataFrame({"form": ["sum", "sum"], "hops": [2, 4], "ms": [1.0, 2.0]})),
        figures.plot_rings(pd.DataFrame({"model": ["a", "a"], "n": [4, 8], "accuracy": [1.0, 0.2]})),
        figures.plot_molecules(pd.DataFrame({"model": ["a", "median"], "test": [0.5, 1.5]})),
        figures.plot_ablation(
            pd.DataFrame({"variant": ["2", "6", "6, dense tanh"], "test": [0.7, 0.5, 0.6]})
        ),
    ]
    for figure in made:
        assert figure.axes
        assert all(axis.get_xlabel() or axis.get_ylabel() or not axis.axison for axis in figure.axes)
    plt.close("all")
