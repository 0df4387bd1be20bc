"""The error on the inputs, through the Gram matrix."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.aqlm import GramAccumulator, activation_gram, dequantize, layer_mse


@pytest.mark.equation("eq-aqlm-objective")
@pytest.mark.parametrize("rows", [3, 50])
def test_error_through_the_gram_matrix(rows):
    """E1: for fewer and for more inputs than features."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 9, generator=g, dtype=torch.float64)
    w, other = torch.randn(2, 4, 9, generator=g, dtype=torch.float64)
    direct = (x @ w.T - x @ other.T).square().sum() / rows / 4
    torch.testing.assert_close(layer_mse(w, other, activation_gram(x)), direct, rtol=1e-10, atol=0)


def test_parity_of_errors(core, core_facts):
    for b in range(3):
        w, gram, dense = (core[f"beam{b}_{name}"] for name in ("weight", "xtx", "dequantized"))
        assert abs(float(layer_mse(w, dense, gram)) / core_facts[f"beam{b}_mse_before"] - 1) < 1e-12
        torch.testing.assert_close(activation_gram(core[f"beam{b}_x"]), gram, rtol=1e-12, atol=1e-12)


@pytest.mark.equation("eq-aqlm-pairs")
def test_every_assignment_has_the_energy_of_its_pairs(problem):
    """E2: 81 assignments of a row; inner products of words against the error on the inputs."""
    w, _, books, _, gram = problem(o=1, i=2, m=2, k=3, g_in=2)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    for flat in torch.cartesian_prod(*[torch.arange(3)] * 4):
        codes = flat.view(1, 2, 2)
        words = []
        for j in range(2):
            for m in range(2):
                word = torch.zeros(4, dtype=torch.float64)
                word[2 * j : 2 * j + 2] = books[m, codes[0, j, m], 0]
                words.append(word)
        unary = -2 * sum(w[0] @ gram @ c for c in words)
        pairs = sum(c @ gram @ other for c in words for other in words)
        energy = w[0] @ gram @ w[0] + unary + pairs
        torch.testing.assert_close(
            layer_mse(w, dequantize(codes, books, one), gram), energy, rtol=1e-10, atol=1e-12
        )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_accumulated_in_parts_as_in_one(parts):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(sum(parts), 5, generator=g, dtype=torch.float64)
    total = GramAccumulator(5)
    for part in x.split(parts):
        total.update(part)
    assert total.count == len(x)
    torch.testing.assert_close(total.value, activation_gram(x), rtol=1e-12, atol=1e-14)


def test_leading_dimensions_are_rows_and_dtype_is_kept():
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(activation_gram(x), activation_gram(x.reshape(6, 5)))
    assert activation_gram(x).dtype == torch.float32
    total = GramAccumulator(5)
    total.update(x.requires_grad_(True))
    assert total.value.dtype == torch.float64
    assert not total.value.requires_grad
    w = torch.zeros(2, 5)
    assert layer_mse(w, w + 1, total.value).dtype == torch.float32


def test_bad_input():
    eye, w = torch.eye(3), torch.zeros(2, 3)
    for bad, match in (
        ((w, w, torch.eye(4)), "gram must be"),
        ((w, torch.zeros(3, 3), eye), "differ in shape"),
        ((w, w * torch.nan, eye), "finite"),
        ((w, w, eye * torch.inf), "finite"),
    ):
        with pytest.raises(ValueError, match=match):
            layer_mse(*bad)
    with pytest.raises(ValueError, match="empty"):
        activation_gram(torch.zeros(0, 3))
    with pytest.raises(ValueError, match="3 features"):
        GramAccumulator(3).update(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="dim"):
        GramAccumulator(0)
    with pytest.raises(TypeError, match="floating"):
        activation_gram(torch.ones(3, 3, dtype=torch.int64))
