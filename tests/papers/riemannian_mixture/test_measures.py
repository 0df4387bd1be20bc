"""Judging trained models: paired gaps, partitions, distances from a manifold."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.riemannian_mixture import Hyperboloid, Sphere, Torus
from icml24.papers.riemannian_mixture.hyperboloid import wrapped_normal
from icml24.papers.riemannian_mixture.measures import (
    face_shares,
    nll_rows,
    off_manifold,
    paired_gap,
    total_variation,
)
from icml24.papers.riemannian_mixture.training import Trained


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_pairing_removes_what_both_models_share():
    hard = 5 * torch.randn(400, generator=gen(1))  # some rows are hard for every model
    ours = [hard + 0.1 + 0.01 * torch.randn(400, generator=gen(s)) for s in (2, 3)]
    theirs = [hard + 0.01 * torch.randn(400, generator=gen(s)) for s in (4, 5)]
    gap = paired_gap(ours, theirs, 0)
    assert gap["mean"] == pytest.approx(0.1, abs=2e-3)
    assert 0.095 < gap["low"] < gap["mean"] < gap["high"] < 0.105
    assert len(gap["by seed"]) == 2
    assert sum(gap["by seed"]) / 2 == pytest.approx(gap["mean"])
    assert paired_gap(ours, theirs, 0) == gap
    back = paired_gap(theirs, ours, 0)
    assert back["mean"] == pytest.approx(-gap["mean"])


def test_interval_covers_a_known_mean():
    inside = 0
    for s in range(40):
        rows = [0.3 + torch.randn(200, generator=gen(s))]
        gap = paired_gap(rows, [torch.zeros(200)], s)
        inside += gap["low"] <= 0.3 <= gap["high"]
    assert 33 <= inside <= 40


def test_shares_and_total_variation(bumpy):
    x = bumpy.random_uniform(500, generator=gen(1), dtype=torch.float64)
    shares = face_shares(bumpy, x)
    assert shares.shape == (len(bumpy.faces),)
    assert float(shares.sum()) == pytest.approx(1)
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.0, 0.5])
    assert total_variation(p, q) == pytest.approx(0.5)
    assert total_variation(p, p) == 0


def test_distance_from_the_manifold_is_seen():
    x = Sphere(2).random_uniform(50, generator=gen(1))
    assert off_manifold(Sphere(2), x) < 1e-6
    x[3] *= 1 + 1e-4
    assert off_manifold(Sphere(2), x) > 5e-5
    m = Hyperboloid(2)
    y = wrapped_normal(m, 50, generator=gen(2))
    assert off_manifold(m, y) < 1e-5  # a float32 row this far out is no nearer to the sheet
    y[3, 0] += 1e-2
    assert off_manifold(m, y) > 1e-4


def test_rows_of_a_standing_flow_are_the_uniform_law():
    m = Torus(2)
    still = Trained("none", (), lambda y, s: torch.zeros_like(y), (0.0, 1.0), [], 0.0)
    nll = nll_rows(still, m, m.random_uniform(5, generator=gen(1)), 3)
    torch.testing.assert_close(nll, torch.full((5,), m.log_volume))
