"""Codes, codebooks, scales: what they mean and what they cost."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.aqlm import QuantizedWeight, bits_per_parameter, dequantize

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.equation("eq-aqlm-format")
@pytest.mark.parametrize(("g_out", "g_in", "m"), [(1, 4, 2), (2, 3, 3), (1, 1, 1)])
def test_a_block_is_a_scaled_sum_of_words(problem, g_out, g_in, m):
    _, codes, books, scales, _ = problem(m=m, g_out=g_out, g_in=g_in)
    dense = dequantize(codes, books, scales)
    assert dense.shape == (codes.shape[0] * g_out, codes.shape[1] * g_in)
    for row in range(dense.shape[0]):
        for column in range(dense.shape[1]):
            i, j = row // g_out, column // g_in
            total = sum(float(books[n, codes[i, j, n], row % g_out, column % g_in]) for n in range(m))
            assert abs(float(dense[row, column]) - float(scales[i]) * total) < 1e-12


@pytest.mark.equation("eq-aqlm-gauge")
def test_a_vector_may_move_between_codebooks(problem):
    """E7: adding v to one codebook and taking it from another changes no weight."""
    _, codes, books, scales, _ = problem(m=3, g_in=4)
    moved, v = books.clone(), torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    moved[0] += v
    moved[2] -= v
    torch.testing.assert_close(
        dequantize(codes, moved, scales), dequantize(codes, books, scales), rtol=0, atol=1e-12
    )


def test_parity_of_dequantisation(core):
    for b in range(3):
        names = ("codes", "codebooks", "scales", "dequantized")
        codes, books, scales, expected = (core[f"beam{b}_{name}"] for name in names)
        torch.testing.assert_close(dequantize(codes, books, scales), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_codes_of_any_integer_type(problem, dtype):
    _, codes, books, scales, _ = problem()
    assert torch.equal(dequantize(codes.to(dtype), books, scales), dequantize(codes, books, scales))


def test_gradients_reach_codebooks_and_scales(problem):
    _, codes, books, scales, _ = problem()
    books.requires_grad_(True)
    scales.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda b, s: dequantize(codes, b, s), (books, scales))


def test_dtype_follows_codebooks_and_scales_default_to_one(problem):
    _, codes, books, _, _ = problem()
    assert dequantize(codes, books.float()).dtype == torch.float32
    assert dequantize(codes, books.float(), torch.ones(len(codes), 1, 1, 1).double()).dtype == torch.float32
    ones = torch.ones(len(codes), 1, 1, 1, dtype=torch.float64)
    assert torch.equal(dequantize(codes, books), dequantize(codes, books, ones))


@pytest.mark.equation("eq-aqlm-size")
def test_parity_of_sizes(core_facts):
    for row in core_facts["bits"]:
        sizes = {key: row[key] for key in row if key not in ("bits", "out_features", "in_features")}
        assert bits_per_parameter(row["out_features"], row["in_features"], **sizes) == row["bits"]


@pytest.mark.equation("eq-aqlm-size")
def test_the_worked_example_of_the_paper():
    """C11: gate_proj of the 70B model, two codebooks of 8 bits for groups of 8."""
    got = bits_per_parameter(28672, 8192, num_codebooks=2, nbits_per_codebook=8, in_group_size=8)
    assert abs(got - 2.0024) < 5e-4
    assert f"{got:.3f}" == "2.002"  # as printed


@pytest.mark.equation("eq-aqlm-size")
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(1, 8))
def test_size_counts_what_is_stored(o, i, m, b, g):
    """E9: numbers in the tensors, times their bits."""
    packed = QuantizedWeight(
        torch.zeros(o, i, m, dtype=torch.int64), torch.zeros(m, 2**b, 1, g), torch.ones(o, 1, 1, 1)
    )
    stored = 16 * packed.codebooks.numel() + b * packed.codes.numel() + 16 * packed.scales.numel()
    assert Fraction(packed.bits_per_parameter).limit_denominator(10**6) == Fraction(stored, o * i * g)


@pytest.mark.equation("eq-aqlm-size")
def test_codebooks_cost_nothing_on_tall_layers():
    """E9: with many rows only codes and scales are left."""
    sizes = {"num_codebooks": 3, "nbits_per_codebook": 6, "in_group_size": 8}
    assert abs(bits_per_parameter(10**9, 128, **sizes) - (3 * 6 / 8 + 16 / 128)) < 1e-5
    assert bits_per_parameter(128, 128, **sizes) > bits_per_parameter(1024, 128, **sizes)


def test_numpy_numbers_are_whole_numbers():
    sizes = {"num_codebooks": np.int64(2), "nbits_per_codebook": np.int32(6), "in_group_size": np.int16(8)}
    plain = {name: int(value) for name, value in sizes.items()}
    assert bits_per_parameter(np.int64(28672), 8192, **sizes) == bits_per_parameter(28672, 8192, **plain)


@pytest.mark.parametrize("words", [4, 256, 1024, 65536])
def test_packing_round_trip(words):
    g = torch.Generator().manual_seed(0)
    codes = torch.randint(words, (6, 5, 2), generator=g)
    codes[0, 0] = words - 1
    books = torch.randn(2, words, 1, 2, generator=g).half().float()
    whole = QuantizedWeight(codes, books, torch.ones(6, 1, 1, 1), [2.0, 1.0])
    packed = whole.to_packed()
    assert packed["codes"].dtype == (torch.uint8 if words <= 256 else torch.int16)
    assert packed["codebooks"].dtype == packed["scales"].dtype == torch.float16
    back = QuantizedWeight.from_packed(packed)
    assert torch.equal(back.codes, codes)
    assert torch.equal(back.dequantize(), whole.dequantize())
    assert back.history == []


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"codes": torch.full((5, 3, 2), 4)}, r"\[0, 4\)"),
        ({"codes": torch.full((5, 3, 2), -1)}, r"\[0, 4\)"),
        ({"codes": torch.zeros(5, 3, 1, dtype=torch.int64)}, "codes must be"),
        ({"codes": torch.zeros(5, 3, dtype=torch.int64)}, "codes must be"),
        ({"scales": torch.ones(4, 1, 1, 1)}, "scales must be"),
        ({"codebooks": torch.full((2, 4, 1, 4), float("nan"))}, "finite"),
        ({"codebooks": torch.ones(2, 4, 4)}, "4 dimensions"),
    ],
)
def test_bad_codes_are_refused(problem, change, match):
    _, codes, books, scales, _ = problem()
    with pytest.raises(ValueError, match=match):
        dequantize(**({"codes": codes, "codebooks": books, "scales": scales} | change))


def test_codes_that_are_no_integers_are_refused(problem):
    _, codes, books, _, _ = problem()
    for bad in (codes.double(), codes.tolist()):
        with pytest.raises(TypeError, match="integers"):
            dequantize(bad, books)


@pytest.mark.parametrize(
    "change",
    [
        *({"nbits_per_codebook": 17}, {"nbits_per_codebook": 0}, {"num_codebooks": 0}, {"in_group_size": 3}),
        {"out_group_size": 3},
    ],
)
def test_bad_sizes_are_refused(change):
    sizes = {"num_codebooks": 2, "nbits_per_codebook": 8, "in_group_size": 8} | change
    with pytest.raises(ValueError):
        bits_per_parameter(64, 64, **sizes)


def test_packing_refuses_what_half_precision_cannot_hold():
    big = QuantizedWeight(
        torch.zeros(1, 1, 1, dtype=torch.int64), torch.full((1, 2, 1, 2), 1e6), torch.ones(1, 1, 1, 1)
    )
    with pytest.raises(ValueError, match="float16"):
        big.to_packed()
    with pytest.raises(ValueError, match="lacks"):
        QuantizedWeight.from_packed({"codes": torch.zeros(1, 1, 1, dtype=torch.uint8)})
