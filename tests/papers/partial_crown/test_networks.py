"""E1: the recursions against automatic differentiation; parity with the stored pointwise values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.partial_crown import Burgers, TanhMLP, network_derivatives
from icml24.papers.partial_crown.data import random_network


def autograd(net, x):
    """Values, gradients and second derivatives of every output by nested autograd."""
    x = x.clone().requires_grad_(True)
    u = net(x)
    du = torch.stack(
        [torch.autograd.grad(u[:, o].sum(), x, create_graph=True)[0] for o in range(u.shape[1])], 1
    )
    d2u = torch.stack(
        [
            torch.stack(
                [torch.autograd.grad(du[:, o, i].sum(), x, retain_graph=True)[0][:, i] for i in range(2)], 1
            )
            for o in range(u.shape[1])
        ],
        1,
    )
    return u.detach(), du.detach(), d2u


@pytest.mark.equation("eq-partial_crown-first")
@pytest.mark.parametrize("widths", [(2, 1, 1), (2, 5, 7, 2), (2, 9, 9, 9, 1)])
def test_first_derivatives_are_autograds(widths, draw):
    net = random_network(widths, 3)
    x = draw(50, 2, seed=1, low=-1.0)
    u, du, _ = network_derivatives(net, x)
    expected = autograd(net, x)
    torch.testing.assert_close(u, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(du, expected[1], rtol=1e-10, atol=1e-10)


@pytest.mark.equation("eq-partial_crown-second")
@pytest.mark.parametrize("widths", [(2, 1, 1), (2, 5, 7, 2), (2, 9, 9, 9, 1)])
def test_second_derivatives_are_autograds(widths, draw):
    net = random_network(widths, 4)
    x = draw(50, 2, seed=2, low=-1.0)
    torch.testing.assert_close(network_derivatives(net, x)[2], autograd(net, x)[2], rtol=1e-10, atol=1e-9)


def test_parity_pointwise(stored, burgers_net):
    p = stored("pointwise")
    u, du, d2u = network_derivatives(burgers_net, p["x"])
    for ours, name in ((u[:, 0], "u"), (du[:, 0], "du"), (d2u[:, 0], "d2u")):
        torch.testing.assert_close(ours, p[name], rtol=1e-9, atol=1e-9)
    residual = Burgers().residual(burgers_net, p["x"])
    torch.testing.assert_close(residual, p["burgers_residual"], rtol=1e-9, atol=1e-9)


def test_derivatives_train(draw):
    net = TanhMLP([2, 4, 1], [0, 0], [1, 2], generator=torch.Generator().manual_seed(0))
    network_derivatives(net, draw(5, 2, seed=0))[2].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.weights)


def test_dtypes_promote(draw):
    single = random_network((2, 4, 1), 0, dtype=torch.float32)
    x = draw(6, 2, seed=3)
    assert network_derivatives(single, x)[0].dtype == torch.float64
    assert single(x.float()).dtype == torch.float32
    assert network_derivatives(random_network((2, 4, 1), 0), x.float())[2].dtype == torch.float64


def test_from_arrays_keeps_single_precision_and_takes_lists():
    w = [np.ones((3, 2), np.float32), np.ones((1, 3), np.float32)]
    b = [np.zeros(3, np.float32), np.zeros(1, np.float32)]
    assert TanhMLP.from_arrays(w, b, [0, 0], [1, 1]).weights[0].dtype == torch.float32
    lists = TanhMLP.from_arrays([a.tolist() for a in w], [a.tolist() for a in b], [0, 0], [1, 1])
    assert lists.weights[0].dtype == torch.float64
    assert lists.weights[1].shape == (1, 3)


def test_same_generator_same_network():
    nets = [TanhMLP([2, 3, 1], [0, 0], [1, 1], generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(nets[0].weights[0], nets[1].weights[0])
    assert not nets[0].biases[0].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TanhMLP([2], [0, 0], [1, 1]), "widths"),
        (lambda: TanhMLP([2, 0, 1], [0, 0], [1, 1]), "widths"),
        (lambda: TanhMLP([2, 3, 1], [0], [1, 1]), "shape"),
        (lambda: TanhMLP([2, 3, 1], [0, 1], [1, 1]), "below upper"),
        (
            lambda: TanhMLP.from_arrays(
                [np.ones((3, 2)), np.ones((1, 4))], [np.ones(3), [1]], [0, 0], [1, 1]
            ),
            "layer 1",
        ),
        (lambda: TanhMLP.from_arrays([np.ones((3, 2))], [np.ones(2)], [0, 0], [1, 1]), "layer 0"),
        (lambda: TanhMLP.from_arrays([], [], [0, 0], [1, 1]), "biases"),
        (lambda: TanhMLP.from_arrays([[[np.nan, 1.0]]], [[0.0]], [0, 0], [1, 1]), "finite"),
        (
            lambda: network_derivatives(random_network((2, 3, 1), 0), torch.zeros(4, 3, dtype=torch.float64)),
            "shape",
        ),
        (
            lambda: network_derivatives(random_network((2, 3, 1), 0), torch.zeros(4, 2, dtype=torch.int64)),
            "floating",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
