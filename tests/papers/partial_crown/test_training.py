"""Training, the stored networks, and the experiments at toy size."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from icml24.papers.partial_crown import (
    AllenCahn,
    Burgers,
    DiffusionSorption,
    PINNConfig,
    Schrodinger,
    data,
    experiments,
    solution,
    train_pinn,
)

TINY = PINNConfig(widths=(2, 6, 1), n_collocation=64, n_initial=16, n_boundary=16, max_iter=30)


@pytest.mark.parametrize("pde", [Burgers(0.1), AllenCahn(), Schrodinger(0.3), DiffusionSorption()])
def test_training_lowers_the_loss(pde):
    losses = []
    config = replace(TINY, widths=(2, 6, pde.outputs))
    net = train_pinn(
        pde,
        config,
        generator=torch.Generator().manual_seed(0),
        on_step=lambda k, n, l: losses.append(l),
        chunk=5,
    )
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert net.weights[0].dtype == torch.float64
    assert not net.weights[0].requires_grad


def test_training_is_deterministic_and_zero_steps_is_the_start():
    nets = [train_pinn(Burgers(0.1), TINY, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(nets[0].weights[1], nets[1].weights[1])
    start = train_pinn(Burgers(0.1), replace(TINY, max_iter=0), generator=torch.Generator().manual_seed(1))
    assert not torch.equal(start.weights[1], nets[0].weights[1])
    assert not start.biases[0].any()


def test_state_of_the_global_generator_is_untouched():
    before = torch.get_rng_state()
    train_pinn(Burgers(0.1), replace(TINY, max_iter=2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_iter": -1}, "max_iter"),
        ({"n_collocation": 0}, "n_collocation"),
        ({"weights": (1.0, 2.0)}, "weights"),
        ({"weights": (1.0, -2.0, 1.0)}, "weights"),
    ],
)
def test_bad_config(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)


def test_widths_must_fit():
    with pytest.raises(ValueError, match="end with 2"):
        train_pinn(Schrodinger(), TINY)


def test_stored_networks_and_their_record():
    nets = data.small_pinns()
    assert tuple(nets) == data.SMALL_STEPS == tuple(data.provenance()["iterations"])
    assert [tuple(w.shape) for w in nets[250].weights] == [(16, 2), (16, 16), (16, 16), (1, 16)]
    errors = [solution.solution_error(net, 1.0) for net in nets.values()]
    assert errors[1] < errors[0] < 0.05


def test_stored_file_is_written_as_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SMALL_STEPS", (2, 4))
    monkeypatch.setattr(data, "PINNConfig", lambda **k: replace(TINY, widths=(2, 16, 16, 16, 1), **k))
    data.store_small(tmp_path / "small.npz")
    with np.load(tmp_path / "small.npz") as stored:
        assert {"2/W0", "4/b3", "provenance"} <= set(stored.files)
    assert (tmp_path / "small.npz").stat().st_size < 20_000


@pytest.mark.skipif(
    "ICML24_DATA" not in os.environ, reason="the authors' network is found through ICML24_DATA"
)
def test_official_network_is_the_one_of_the_parity_files(burgers_net):
    net = data.official_pinn()
    for ours, stored in zip(net.parameters(), burgers_net.parameters(), strict=True):
        assert torch.equal(ours, stored)


def test_rows_at_toy_size():
    config = experiments.configure("quick", samples=500)
    net = data.random_network((2, 4, 1), 0)
    rows = experiments.condition_rows("n", Burgers(), net, 40, config)
    assert [r.name for r in rows] == ["n, initial", "n, x = -1", "n, x = 1"]
    row = experiments.residual_row("n", Burgers(), net, 60, config)
    assert row.certified >= row.sampled >= row.sampled_few
    boxes, ratio = experiments.curve(row)
    assert boxes[-1] == row.boxes
    assert (np.diff(ratio) <= 0).all()
    assert ratio[-1] ** 2 == pytest.approx(row.ratio)
    two = data.TanhMLP((2, 3, 2), *Schrodinger().domain)
    names = [
        r.name for r in experiments.condition_rows("s", Schrodinger(), two.requires_grad_(False), 9, config)
    ]
    assert names == ["s, initial", "s, periodic", "s, periodic slope"]


def test_checkpoints_at_toy_size():
    config = experiments.configure("quick", samples=500, checkpoint_steps=(5, 10), checkpoint_evaluations=30)
    steps, residuals, errors = solution.checkpoints(config)
    assert steps.tolist() == [5, 10]
    assert (residuals > 0).all()
    assert (errors > 0).all()


def test_profiles():
    assert experiments.configure("full").official_evaluations > 0
    with pytest.raises(ValueError, match="profile"):
        experiments.configure("fast")
