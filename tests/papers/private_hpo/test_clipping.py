"""Clipping and the kernel that never makes a per-sample gradient."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.private_hpo import clip_per_sample, clipped_gradient_sum
from icml24.papers.private_hpo.clipping import MODES, _reference_clipped_gradient_sum


def problem(n=30, d=7, k=4, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=dtype)
    x[3] = 0.0
    y = torch.randint(k, (n,), generator=g)
    return torch.randn(k, d, generator=g, dtype=dtype), x, y


@pytest.mark.equation("eq-private_hpo-kernel")
def test_norm_of_a_gradient_factorises():
    """E5: the norm of autograd's gradient of each record is |p - e_y| |x|."""
    weight, x, y = problem()
    for i in range(len(y)):
        w = weight.clone().requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(x[i : i + 1] @ w.T, y[i : i + 1])
        (grad,) = torch.autograd.grad(loss, w)
        residual = torch.softmax(weight @ x[i], 0) - torch.nn.functional.one_hot(y[i], 4)
        assert abs(grad.norm() - residual.norm() * x[i].norm()) < 1e-10


@pytest.mark.equation("eq-private_hpo-kernel")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("max_norm", [0.1, 1.0, 5.0])
def test_sum_is_the_sum_of_clipped_autograd_gradients(mode, max_norm):
    """E5: against one autograd call a record, clipped one by one."""
    weight, x, y = problem()
    expected = torch.zeros_like(weight)
    for i in range(len(y)):
        w = weight.clone().requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(x[i : i + 1] @ w.T, y[i : i + 1])
        expected += clip_per_sample(torch.autograd.grad(loss, w)[0][None], max_norm, mode)[0]
    torch.testing.assert_close(
        clipped_gradient_sum(weight, x, y, max_norm, mode), expected, rtol=0, atol=1e-10
    )
    torch.testing.assert_close(_reference_clipped_gradient_sum(weight, x, y, max_norm, mode), expected)


def test_parity_with_opacus(dp_step):
    weight, x, y, c = dp_step["weight0"], dp_step["x"], dp_step["y"].long(), float(dp_step["max_norm"])
    grads = dp_step["per_sample_grads"]
    # opacus divides by the norm plus 1e-6
    torch.testing.assert_close(
        clipped_gradient_sum(weight, x, y, c), dp_step["clipped_sum"], rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(clip_per_sample(grads, c).sum(0), dp_step["clipped_sum"], rtol=1e-4, atol=1e-4)
    for mode, name in (("automatic", "automatic_sum"), ("normalize", "normalized_sum")):
        torch.testing.assert_close(
            clipped_gradient_sum(weight, x, y, c, mode), dp_step[name], rtol=1e-8, atol=1e-8
        )
        torch.testing.assert_close(
            clip_per_sample(grads, c, mode).sum(0), dp_step[name], rtol=1e-8, atol=1e-8
        )


@pytest.mark.equation("eq-private_hpo-clip")
def test_factors_by_hand():
    grads = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)  # norms 5, 1/2, 0
    abadi = clip_per_sample(grads, 1.0)
    torch.testing.assert_close(abadi, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64))
    normal = clip_per_sample(grads, 2.0, "normalize")
    torch.testing.assert_close(
        normal, torch.tensor([[1.2, 1.6], [1.2, 1.6], [0.0, 0.0]], dtype=torch.float64)
    )
    automatic = clip_per_sample(grads, 1.0, "automatic", stability=0.5)
    torch.testing.assert_close(automatic[0], grads[0] / 5.5)
    torch.testing.assert_close(automatic[1], grads[1])


row_scales = st.lists(st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 37.0, 1e6]), min_size=2, max_size=12)


@pytest.mark.equation("eq-private_hpo-sensitivity")
@settings(max_examples=60, deadline=None)
@given(row_scales, st.sampled_from(MODES), st.floats(0.01, 10.0), st.integers(0, 1000))
def test_adding_a_record_moves_the_sum_by_at_most_the_clipping_norm(scales, mode, max_norm, seed):
    """E6: the sensitivity of the clipped sum, rows up to 1e6 and zero rows included."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(len(scales), 5, generator=g, dtype=torch.float64)
    x = x * torch.tensor(scales, dtype=torch.float64)[:, None]
    y = torch.randint(3, (len(scales),), generator=g)
    weight = torch.randn(3, 5, generator=g, dtype=torch.float64)
    whole = clipped_gradient_sum(weight, x, y, max_norm, mode)
    without = clipped_gradient_sum(weight, x[:-1], y[:-1], max_norm, mode)
    assert torch.linalg.norm(whole - without) <= max_norm * (1 + 1e-9)


@pytest.mark.equation("eq-private_hpo-sensitivity")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
def test_every_clipped_gradient_is_short(mode, dtype):
    g = torch.Generator().manual_seed(1)
    grads = torch.randn(200, 3, 4, generator=g, dtype=dtype) * 10 ** torch.linspace(-9, 9, 200)[
        :, None, None
    ].to(dtype)
    grads[7] = 0
    norms = torch.linalg.vector_norm(clip_per_sample(grads, 0.7, mode).flatten(1), dim=1)
    assert torch.all(norms <= 0.7 * (1 + 1e-5))
    assert norms[7] == 0
    if mode == "normalize":
        assert math.isclose(float(norms[0]), 0.7, rel_tol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept_and_inputs_are_untouched(dtype):
    weight, x, y = (t.to(dtype) if t.is_floating_point() else t for t in problem())
    before = x.clone(), weight.clone()
    assert clipped_gradient_sum(weight, x, y).dtype == dtype
    assert clip_per_sample(x).dtype == dtype
    assert torch.equal(x, before[0])
    assert torch.equal(weight, before[1])


@pytest.mark.equation("eq-private_hpo-clip")
@pytest.mark.parametrize("max_norm", [0.1, 1.0, 5.0, 1e3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_neither_overflows_nor_loses_a_record(dtype, mode, max_norm):
    # norms up to 1.2e5, beyond the largest half, and down to half's smallest numbers
    scales = torch.tensor([0.0, 6e-8, 3e-5, 6e-5, 1.0, 300.0, 6e4], dtype=torch.float64)
    grads = (scales[:, None] * torch.ones(4, dtype=torch.float64)).to(dtype)
    clipped = clip_per_sample(grads, max_norm, mode)
    assert clipped.dtype == dtype
    norms = clipped.double().norm(dim=1)
    expected = clip_per_sample(grads.double(), max_norm, mode).norm(dim=1)
    # one rounding to half: eight bits of mantissa in bfloat16, multiples of 6e-8 in float16
    torch.testing.assert_close(norms, expected, rtol=2**-8, atol=2e-7)
    total = clipped_gradient_sum(torch.zeros(2, 4, dtype=dtype), grads, torch.arange(7) % 2, max_norm, mode)
    exact = clipped_gradient_sum(
        torch.zeros(2, 4).double(), grads.double(), torch.arange(7) % 2, max_norm, mode
    )
    torch.testing.assert_close(total.double(), exact, rtol=2**-7, atol=1e-4 * max_norm)


def test_a_trainable_weight_leaves_no_graph():
    weight, x, y = problem()
    total = clipped_gradient_sum(torch.nn.Parameter(weight), x, y)
    assert not total.requires_grad
    assert torch.equal(total, clipped_gradient_sum(weight, x, y))


def test_shapes_of_gradients():
    assert clip_per_sample(torch.ones(4)).shape == (4,)
    assert clip_per_sample(torch.ones(0, 3, 2)).shape == (0, 3, 2)
    assert (
        clipped_gradient_sum(torch.ones(2, 3), torch.ones(0, 3), torch.zeros(0, dtype=torch.long)).abs().sum()
        == 0
    )


def test_labels_of_any_integer_type():
    weight, x, y = problem()
    torch.testing.assert_close(clipped_gradient_sum(weight, x, y.int()), clipped_gradient_sum(weight, x, y))


def test_memory_stays_linear():
    # the (N, K, D) tensor would be 8 GB here
    weight, x = torch.zeros(1000, 100), torch.ones(20_000, 100)
    assert clipped_gradient_sum(weight, x, torch.zeros(20_000, dtype=torch.long)).shape == (1000, 100)


W, X, Y = problem()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: clip_per_sample(X, 0.0), "max_norm must be positive"),
        (
            lambda: clip_per_sample(X, 1.0, "flat"),
            r"unknown clipping mode 'flat'.*abadi.*automatic.*normalize",
        ),
        (lambda: clip_per_sample(X, 1.0, "automatic", stability=0.0), "stability"),
        (lambda: clip_per_sample(X.long()), "floating"),
        (lambda: clip_per_sample(torch.tensor(1.0)), r"\(N, \.\.\.\)"),
        (lambda: clip_per_sample(X * math.nan), "finite"),
        (lambda: clipped_gradient_sum(W, X, Y[:-1]), "30 rows and 29 labels"),
        (lambda: clipped_gradient_sum(W, X, Y + 1), r"labels must lie in 0\.\.3"),
        (lambda: clipped_gradient_sum(W, X, Y - 1), r"labels must lie in 0\.\.3"),
        (lambda: clipped_gradient_sum(W, X, Y.double()), "y must be an integer tensor"),
        (lambda: clipped_gradient_sum(W, X * math.inf, Y), "x must be finite"),
        (lambda: clipped_gradient_sum(W[:, :-1], X, Y), "weight must have shape"),
        (lambda: clipped_gradient_sum(W.float(), X, Y), "one dtype"),
        (lambda: clipped_gradient_sum(W, X, Y, -1.0), "max_norm"),
        (lambda: clipped_gradient_sum(W, X[0], Y), r"x must be a floating tensor of shape \(N, D\)"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
