"""Codebooks and scales for fixed codes."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import dequantize, layer_mse, least_squares_codebooks, update_codebooks


def test_parity_of_adam(core):
    for b in range(3):
        w, gram, books, scales, codes = (
            core[f"beam{b}_{n}"] for n in ("weight", "xtx", "codebooks", "scales", "codes_beam1")
        )
        got = update_codebooks(w, codes, books, scales, gram, steps=20, lr=1e-3)
        for value, name in zip(got, ("codebooks", "scales", "losses"), strict=True):
            torch.testing.assert_close(value, core[f"beam{b}_adam_{name}"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("g_out", [1, 2])
def test_first_step_goes_along_autograd(problem, g_out):
    """With beta1 = 0, Adam's first step is lr times the sign of the gradient."""
    w, codes, books, scales, gram = problem(g_out=g_out)
    leaves = books.clone().requires_grad_(True), scales.clone().requires_grad_(True)
    loss = layer_mse(w, dequantize(codes, *leaves), gram)
    grads = torch.autograd.grad(loss, leaves)
    new_books, new_scales, losses = update_codebooks(w, codes, books, scales, gram, steps=1, lr=1e-3)
    torch.testing.assert_close(losses[0], loss.detach())
    for new, old, grad in zip((new_books, new_scales), (books, scales), grads, strict=True):
        torch.testing.assert_close(new - old, -1e-3 * grad / (grad.abs() + 1e-8), rtol=1e-6, atol=1e-12)


def test_inputs_stay_and_float32_stays_float32(problem):
    w, codes, books, scales, gram = problem(dtype=torch.float32)
    kept = books.clone(), scales.clone()
    out = update_codebooks(w, codes, books.requires_grad_(True), scales, gram.double(), steps=3)
    assert all(part.dtype == torch.float32 for part in out)
    assert out[2].shape == (3,)
    assert torch.equal(books, kept[0])
    assert torch.equal(scales, kept[1])
    assert not out[0].requires_grad


@pytest.mark.equation("eq-aqlm-normal")
def test_parity_of_least_squares(extra, extra_facts):
    """E6: the weight and the minimum; codebooks themselves may differ by a gauge."""
    for k in range(2):
        names = ("weight", "gram", "codes", "scales", "codebooks_start", "what")
        w, gram, codes, scales, start, expected = (extra[f"lsq{k}_{n}"] for n in names)
        dense = dequantize(codes, least_squares_codebooks(w, codes, start, scales, gram), scales)
        torch.testing.assert_close(dense, expected, rtol=0, atol=1e-6)
        assert abs(float(layer_mse(w, dense, gram)) - extra_facts[f"lsq{k}_min_mse"]) < 1e-6


@pytest.mark.equation("eq-aqlm-normal")
@pytest.mark.parametrize("g_out", [1, 2])
def test_the_gradient_vanishes_at_the_solution(problem, g_out):
    """E6."""
    w, codes, books, scales, gram = problem(o=12, g_out=g_out)
    best = least_squares_codebooks(w, codes, books, scales, gram).requires_grad_(True)
    loss = layer_mse(w, dequantize(codes, best, scales), gram)
    start = books.clone().requires_grad_(True)
    before = layer_mse(w, dequantize(codes, start, scales), gram)
    (grad,) = torch.autograd.grad(loss, best)
    (first,) = torch.autograd.grad(before, start)
    assert loss < before
    assert grad.abs().max() < 1e-9 * first.abs().max()


@pytest.mark.equation("eq-aqlm-gauge")
def test_the_solution_moves_no_more_than_it_must(problem):
    """E7: no part of the change lies along a shift between codebooks; unused words stay."""
    w, codes, books, scales, gram = problem(o=4, i=2, k=8)
    change = least_squares_codebooks(w, codes, books, scales, gram) - books
    assert (change[0].sum(0) - change[1].sum(0)).abs().max() < 1e-8
    for m in range(2):
        unused = torch.bincount(codes[..., m].flatten(), minlength=8) == 0
        assert unused.any()
        assert change[m][unused].abs().max() < 1e-8


def test_adam_approaches_the_exact_solution(problem):
    w, codes, books, scales, gram = problem(o=16)
    best = layer_mse(
        w, dequantize(codes, least_squares_codebooks(w, codes, books, scales, gram), scales), gram
    )
    losses = update_codebooks(w, codes, books, scales, gram, steps=400, lr=1e-2)[2]
    assert losses[-1] < losses[0]
    assert losses[-1] < 1.2 * best


def test_bad_input(problem):
    w, codes, books, scales, gram = problem()
    for change in ({"steps": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"betas": (0.9, 1.0)}):
        with pytest.raises(ValueError):
            update_codebooks(w, codes, books, scales, gram, **change)
    for call in (update_codebooks, least_squares_codebooks):
        with pytest.raises(ValueError, match="weight must be"):
            call(w[:, :8], codes, books, scales, gram[:8, :8])
        with pytest.raises(ValueError, match="finite"):
            call(w, codes, books, scales, gram * torch.nan)


def test_divergence_names_its_step(problem):
    w, codes, books, scales, gram = problem(dtype=torch.float32)
    with pytest.raises(FloatingPointError, match="step"):
        update_codebooks(w, codes, books * 1e18, scales * 1e18, gram, steps=5)
