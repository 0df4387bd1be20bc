"""The symbolic world, costs, and the functions that the chapter calls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from icml24.papers.sparc import cost, experiments
from icml24.papers.sparc.symbolic import SymbolicConfig, draw_symbols, train_symbols


def test_symbols_are_where_they_are_said():
    config = SymbolicConfig(noise=0.0)
    prototypes = torch.randn(9, 16, generator=torch.Generator().manual_seed(0))
    features, symbols, words, mask = draw_symbols(200, prototypes, config, torch.Generator().manual_seed(1))
    assert torch.equal(features, prototypes[symbols])
    for scene, spoken, real in zip(symbols, words, mask, strict=True):
        shown = set(scene[scene >= 0].tolist())
        assert shown == set(spoken[real].tolist())
        assert all(2 <= int((scene == w).sum()) <= 4 for w in shown)
        assert len(shown) in (3, 4)


def test_symbolic_training_is_seeded_and_learns():
    config = dataclasses.replace(SymbolicConfig(), steps=60, test=100)
    one, two = (train_symbols("clip", config, seed=5) for _ in range(2))
    assert one == two
    assert one.curves["loss"][-1] < one.curves["loss"][0]
    assert one.pointing > 0.7


@pytest.mark.equation("eq-sparc-cost")
@pytest.mark.parametrize("name", ["sparc (local)", "filip", "gloria (local)"])
def test_flops_are_those_of_the_formula(name):
    """E12: torch's own counter of matrix products; linear against quadratic in the batch."""
    counts = []
    for size in (4, 8):
        batch = cost.random_batch(size, length=5, patches=7, width=16)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            cost.LOSSES[name](batch)
        assert counter.get_total_flops() == cost.loss_flops(name, size, 5, 7, 16)
        counts.append(counter.get_total_flops())
    ratio = counts[1] / counts[0]
    assert ratio == 2 if name == "sparc (local)" else 3.5 < ratio <= 4


@pytest.mark.equation("eq-sparc-cost")
def test_memory_is_linear_for_sparc_and_quadratic_for_filip():
    sizes = (8, 16, 32)
    slopes = {name: cost.exponent(sizes, cost.measure(name, sizes, repeats=1)[1]) for name in cost.LOSSES}
    assert 0.95 < slopes["sparc (local)"] < 1.05
    assert slopes["filip"] > 1.6
    assert slopes["gloria (local)"] > 1.6


def test_saved_bytes_by_hand():
    """The square keeps its own input: ten floats of four bytes."""
    x = torch.ones(10, requires_grad=True)
    assert cost.saved_bytes(lambda: (x * x).sum()) == 40


def test_exponent_and_flops_of_unknown():
    assert cost.exponent([1, 2, 4], np.array([3.0, 12.0, 48.0])) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no count"):
        cost.loss_flops("clip", 1, 1, 1, 1)


def test_loop_over_samples_is_the_batched_loss():
    batch = cost.random_batch(6)
    batch["mask"] = torch.arange(cost.LENGTH)[None] < torch.tensor([[13], [1], [4], [9], [2], [13]])
    torch.testing.assert_close(cost._sample_by_sample(batch), cost.LOSSES["sparc (local)"](batch))


def test_loop_is_slower():
    assert cost.speedup(32, repeats=1) > 2


def test_chapter_functions_at_small_size():
    config = experiments.configure(
        "quick",
        train_scenes=80,
        test_scenes=12,
        single_scenes=14,
        context_steps=4,
        transformer_steps=3,
        extra_objectives=("filip",),
        long_steps=5,
        side=True,
    )
    data = experiments.scenes(config)
    runs = experiments.main_runs(config, data)
    assert set(runs) == {
        *(("context", o) for o in ("clip", "sparc", "filip")),
        *(("transformer", o) for o in ("clip", "sparc")),
    }
    gap, low, high = experiments.difference(runs["context", "sparc"], runs["context", "clip"], "zero_shot")
    assert gap == low == high
    counts = experiments.zeroed_patches(runs["context", "sparc"][0], data)
    assert len(counts) == int(data.test.mask.sum())
    assert (counts >= 1).all()
    assert len(experiments.side_runs(config, data)) == 6


def test_padding_claim_and_profiles():
    assert experiments.padding_is_silent()
    assert experiments.FULL.seeds == 3
    assert "softmax" in experiments.FULL.context_objectives
    with pytest.raises(ValueError, match="unknown profile"):
        experiments.configure("huge")
