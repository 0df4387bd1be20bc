"""Stacked networks and the regularisers inside them."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import actor_critic as ac


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layers(parity, kind):
    return [parity[f"net_{kind}_w{k}"] for k in range(3)], [parity[f"net_{kind}_b{k}"] for k in range(3)]


@pytest.mark.parametrize("kind", ["plain", "ln", "crelu"])
def test_parity_with_torch_modules(parity, kind):
    norm = [(parity[f"net_ln_g{k}"], parity[f"net_ln_o{k}"]) for k in range(2)] if kind == "ln" else None
    found = ac.mlp_forward(
        *layers(parity, kind), parity["net_x"], norm=norm, crelu_activation=kind == "crelu"
    )
    torch.testing.assert_close(found, parity[f"net_{kind}_y"], rtol=0, atol=1e-9)


def test_parity_of_spectral_norm(parity):
    found, u = ac.spectral_normalize(parity["sn_w"], parity["sn_u"], iterations=400)
    torch.testing.assert_close(found, parity["sn_out"], rtol=0, atol=1e-6)
    torch.testing.assert_close(u.norm(dim=-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.equation("eq-actor_critic-layernorm")
def test_layer_norm_by_moments():
    """With an identity output layer the network shows its hidden layer: relu of a standardised vector."""
    x, eye = 5 * rand(1, 7, 4) + 3, torch.eye(6, dtype=torch.float64)[None]
    one, zero = torch.ones(1, 6, dtype=torch.float64), torch.zeros(1, 6, dtype=torch.float64)
    found = ac.mlp_forward([rand(1, 4, 6), eye], [zero, zero], x, norm=[(one, zero)])
    other = ac.mlp_forward([rand(1, 4, 6), -eye], [zero, zero], x, norm=[(-one, zero)])
    whole = found + other  # positive part minus negative part
    torch.testing.assert_close(whole.mean(-1), torch.zeros(1, 7, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        whole.var(-1, correction=0), torch.ones(1, 7, dtype=torch.float64), rtol=1e-5, atol=0
    )
    plain = ac.mlp_forward([rand(1, 4, 6), eye], [zero, zero], x)
    assert (plain - found).abs().max() > 1


@pytest.mark.equation("eq-actor_critic-bound")
def test_values_cannot_exceed_the_output_weights():
    """E6, for inputs of any size; without the norm they do."""
    weights, zero = [rand(1, 4, 32), rand(1, 32, 1)], torch.zeros(1, 32, dtype=torch.float64)
    biases, one = [zero, rand(1, 1)], torch.ones(1, 32, dtype=torch.float64)
    bound = weights[1].norm() * 32**0.5 + biases[1].abs()
    x = 1e6 * rand(1, 200, 4, seed=3)
    assert (ac.mlp_forward(weights, biases, x, norm=[(one, zero)]).abs() <= bound).all()
    assert (ac.mlp_forward(weights, biases, x).abs() > bound).any()
    # attained: one unit standing out from the rest has relu(norm) = sqrt(n - 1) there and 0 elsewhere
    spike = torch.eye(32, dtype=torch.float64)[None]
    out = ac.mlp_forward([spike, weights[1]], [zero, 0 * biases[1]], 1e3 * spike[:, :1], norm=[(one, zero)])
    assert out.abs().item() == pytest.approx(31**0.5 * weights[1][0, 0, 0].abs().item(), rel=1e-6)


@pytest.mark.equation("eq-actor_critic-scale")
def test_layer_norm_is_blind_to_the_scale_of_weights():
    """E7: the output stays, the gradient shrinks by c, so the effective step falls by its square."""
    x, one, zero = rand(1, 50, 4), *(torch.full((1, 16), v, dtype=torch.float64) for v in (1.0, 0.0))
    found = []
    for c in (1.0, 7.0):
        w = (c * rand(1, 4, 16)).requires_grad_()
        out = ac.mlp_forward(
            [w, rand(1, 16, 1, seed=1)], [zero, zero[:, :1]], x, norm=[(one, zero)], eps=1e-18
        )
        (g,) = torch.autograd.grad(out.square().mean(), w)
        found.append((out.detach(), g))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found[0][1], 7 * found[1][1], rtol=1e-6, atol=1e-12)


@pytest.mark.equation("eq-actor_critic-spectral")
def test_spectral_norm_against_the_svd():
    """E8: after many steps the largest singular value is 1; the error falls at the stated rate."""
    weight, u = rand(3, 9, 5), rand(3, 5, seed=1)
    divided, _ = ac.spectral_normalize(weight, u, iterations=300)
    top = torch.linalg.svdvals(divided)[:, 0]
    torch.testing.assert_close(top, torch.ones(3, dtype=torch.float64), rtol=1e-8, atol=0)
    x = rand(3, 40, 9, seed=2)
    assert ((x @ divided).norm(dim=-1) <= x.norm(dim=-1) * (1 + 1e-8)).all()
    square = torch.diag(torch.tensor([1.0, 0.8, 0.5], dtype=torch.float64))[None]
    start, gaps = torch.ones(1, 3, dtype=torch.float64), []
    for k in (10, 15):
        divided, u = ac.spectral_normalize(square, start, iterations=k)
        gaps.append((u[0, 1] / u[0, 0]).item())  # the angle to the top direction
        sigma = 1 / divided[0, 0, 0].item()
        assert 1 - 0.8 ** (4 * k) <= sigma <= 1  # the value is off by the angle squared
    assert gaps[1] / gaps[0] == pytest.approx(0.8**10, rel=1e-9)


def test_a_zero_matrix_keeps_its_direction():
    divided, u = ac.spectral_normalize(torch.zeros(3, 2).double(), rand(2))
    assert torch.equal(divided, torch.zeros(3, 2).double())
    assert float(u.norm()) == pytest.approx(1)


def test_spectral_gradient_flows_through_sigma_only():
    weight = rand(1, 6, 4).requires_grad_()
    divided, u = ac.spectral_normalize(weight, rand(1, 4, seed=1), iterations=200)
    left, s, right = torch.linalg.svd(weight.detach()[0])
    probe = rand(6, 4, seed=5)
    (divided[0] * probe).sum().backward()
    outer = left[:, :1] @ right[:1]
    expected = probe / s[0] - (weight.detach()[0] * probe).sum() / s[0] ** 2 * outer
    torch.testing.assert_close(weight.grad[0], expected, rtol=1e-6, atol=1e-9)
    assert not u.requires_grad


@pytest.mark.equation("eq-actor_critic-crelu")
def test_crelu_keeps_everything():
    """E10: the halves differ by x, and each unit has a gradient on one side at least."""
    x = rand(5, 3).requires_grad_()
    out = ac.crelu(x)
    assert out.shape == (5, 6)
    assert torch.equal(out[:, :3] - out[:, 3:], x)
    (g,) = torch.autograd.grad(out.sum(), x)
    assert (g.abs() == 1).all()
    assert ac.crelu(x, 0).shape == (10, 3)


@pytest.mark.equation("eq-actor_critic-crelu")
def test_crelu_network_from_its_own_pieces():
    x, w = rand(2, 6, 3), [rand(2, 3, 4), rand(2, 8, 1)]
    b = [rand(2, 4, seed=1), rand(2, 1, seed=2)]
    hidden = torch.einsum("nbi,nio->nbo", x, w[0]) + b[0][:, None]
    expected = torch.einsum("nbi,nio->nbo", ac.crelu(hidden), w[1]) + b[1][:, None]
    torch.testing.assert_close(ac.mlp_forward(w, b, x, crelu_activation=True), expected)


def test_runs_of_a_stack_do_not_mix():
    x, w, b = rand(3, 5, 4), [rand(3, 4, 6), rand(3, 6, 2)], [rand(3, 6), rand(3, 2)]
    alone = [
        ac.mlp_forward([v[i : i + 1] for v in w], [v[i : i + 1] for v in b], x[i : i + 1]) for i in range(3)
    ]
    torch.testing.assert_close(ac.mlp_forward(w, b, x), torch.cat(alone), rtol=0, atol=1e-13)
    by_vmap = torch.func.vmap(lambda w0, w1, b0, b1, x: torch.relu(x @ w0 + b0) @ w1 + b1)(*w, *b, x)
    torch.testing.assert_close(ac.mlp_forward(w, b, x), by_vmap, rtol=0, atol=1e-12)
    assert ac.mlp_forward([v.float() for v in w], [v.float() for v in b], x.float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ac.mlp_forward([], [], rand(1, 2, 3)), "at least one"),
        (lambda: ac.mlp_forward([rand(1, 3, 2)], [rand(1, 2)], rand(2, 3)), r"\(n, B, in\)"),
        (lambda: ac.mlp_forward([rand(1, 4, 2)], [rand(1, 2)], rand(1, 2, 3)), "layer 0"),
        (
            lambda: ac.mlp_forward(
                [rand(1, 3, 4), rand(1, 4, 1)], [rand(1, 4), rand(1, 1)], rand(1, 2, 3), crelu_activation=True
            ),
            "layer 1",
        ),
        (
            lambda: ac.mlp_forward(
                [rand(1, 3, 4), rand(1, 4, 1)], [rand(1, 4), rand(1, 1)], rand(1, 2, 3), norm=[]
            ),
            "norm",
        ),
        (lambda: ac.spectral_normalize(rand(3, 4), rand(3)), "shape"),
        (lambda: ac.spectral_normalize(rand(3, 4), rand(4), iterations=0), "iterations"),
        (lambda: ac.spectral_normalize(rand(3, 4), torch.zeros(4).double()), "zero"),
        (lambda: ac.crelu(torch.arange(3)), "floating"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
