"""One layer, whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from icml24.papers.aqlm import (
    AQLMConfig,
    beam_search_codes,
    dequantize,
    layer_mse,
    least_squares_codebooks,
    quantize_layer,
)
from icml24.papers.aqlm.layer_studies import against_released, released_layer
from icml24.papers.aqlm.layers import initial_code


def seeded(k=0):
    return torch.Generator().manual_seed(k)


def test_as_good_as_the_released_code():
    """The bar: at most 1.12 times the worst of its seeds, and a history that does not rise."""
    for row in against_released(0):
        assert row["ratio"] <= 1.12
        assert row["largest rise"] <= 1e-3
        assert row["bits"] == 2.375


def test_the_error_reported_is_that_of_the_weight():
    weight, gram, _ = released_layer()
    config = AQLMConfig(nbits_per_codebook=5, lr=1e-3, adam_steps=20, max_rounds=3)
    got = quantize_layer(weight, gram, config, generator=seeded())
    assert abs(float(layer_mse(weight, got.dequantize(), gram)) / got.history[-1] - 1) < 1e-4


def test_exact_rounds_are_monotone(problem):
    """E4: least squares and beam search in turn never raise the error, and end."""
    w, codes, books, scales, gram = problem(o=24, i=4, k=6)
    errors = [float(layer_mse(w, dequantize(codes, books, scales), gram))]
    for _ in range(30):
        books = least_squares_codebooks(w, codes, books, scales, gram)
        errors.append(float(layer_mse(w, dequantize(codes, books, scales), gram)))
        new = beam_search_codes(w, codes, books, scales, gram)
        errors.append(float(layer_mse(w, dequantize(new, books, scales), gram)))
        if torch.equal(new, codes):
            break
        codes = new
    else:
        pytest.fail("thirty rounds without an end")
    assert all(b <= a * (1 + 1e-10) for a, b in pairwise(errors))
    assert errors[-1] < 0.5 * errors[0]


def test_history_and_its_ends(problem, tiny_config):
    w, _, _, _, gram = problem(o=16, i=4)
    out = quantize_layer(w, gram, tiny_config, generator=seeded())
    assert len(out.history) == tiny_config.max_rounds + 1
    start = initial_code(w, gram, tiny_config, seeded())
    assert abs(out.history[0] - float(layer_mse(w, dequantize(*start), gram))) < 1e-10
    assert abs(out.history[-1] - float(layer_mse(w, out.dequantize(), gram))) < 1e-10
    stopped = quantize_layer(
        w, gram, AQLMConfig(**(vars(tiny_config) | {"relative_mse_tolerance": 0.9})), generator=seeded()
    )
    assert len(stopped.history) == 2
    assert stopped.history == out.history[:2]


def test_initial_scales_are_row_norms(problem, tiny_config):
    w, _, _, _, gram = problem(o=16, i=4)
    _, _, scales = initial_code(w, gram, tiny_config, seeded())
    torch.testing.assert_close(scales.flatten(), w.norm(dim=1) + 1e-9)


def test_rows_of_zeros_stay_small(problem, tiny_config):
    w, _, _, _, gram = problem(o=16, i=4)
    w[3] = 0
    out = quantize_layer(w, gram, tiny_config, generator=seeded())
    assert torch.isfinite(out.codebooks).all()
    nothing = quantize_layer(torch.zeros_like(w), gram, tiny_config, generator=seeded())
    assert nothing.dequantize().abs().max() < 1e-8
    assert nothing.history == [0.0] or nothing.history[-1] < 1e-15


@pytest.mark.parametrize("g_out", [1, 2])
def test_dtype_layout_and_repeatability(problem, tiny_config, g_out, global_random_state):
    w, _, _, _, gram = problem(o=16, i=4, dtype=torch.float32)
    config = AQLMConfig(**(vars(tiny_config) | {"out_group_size": g_out}))
    before = global_random_state()
    first, again = (
        quantize_layer(w.T.contiguous().T.requires_grad_(True), gram, config, generator=seeded(4))
        for _ in "ab"
    )
    assert global_random_state() == before
    assert torch.equal(first.codes, again.codes)
    assert torch.equal(first.codebooks, again.codebooks)
    assert first.codes.shape == (16 // g_out, 4, 2)
    assert first.codes.dtype == torch.int64
    assert first.codebooks.shape == (2, 8, g_out, 4)
    assert first.codebooks.dtype == first.dequantize().dtype == torch.float32
    assert not first.codebooks.requires_grad


@pytest.mark.parametrize(
    "change",
    [
        *({"num_codebooks": 0}, {"nbits_per_codebook": 17}, {"nbits_per_codebook": 0}, {"beam_size": 0}),
        *({"adam_steps": 0}, {"max_rounds": -1}, {"lr": 0.0}, {"lr": -1.0}, {"in_group_size": 2.0}),
        *({"relative_mse_tolerance": 1.0}, {"relative_mse_tolerance": -0.1}, {"adam_betas": (1.0, 0.9)}),
    ],
)
def test_bad_configurations(change):
    with pytest.raises(ValueError):
        AQLMConfig(**change)


def test_defaults_of_the_contract():
    assert vars(AQLMConfig()) == {
        "num_codebooks": 2,
        "nbits_per_codebook": 8,
        "in_group_size": 8,
        "out_group_size": 1,
        "kmeans_max_iter": 100,
        "beam_size": 1,
        "adam_steps": 100,
        "lr": 1e-4,
        "adam_betas": (0.0, 0.95),
        "amsgrad": True,
        "max_rounds": 50,
        "relative_mse_tolerance": 0.01,
    }


def test_bad_layers(problem, tiny_config):
    w, _, _, _, gram = problem(o=16, i=4)
    for bad, match in (
        ((w[:, :-1], gram[:-1, :-1]), "does not divide in_features = 15"),
        ((w * torch.inf, gram), "finite"),
        ((w, gram * torch.nan), "finite"),
        ((w, gram[:4, :4]), "gram must be"),
        ((w[:1], gram), "exceeds the number of points"),
    ):
        with pytest.raises(ValueError, match=match):
            quantize_layer(*bad, tiny_config)
    odd = AQLMConfig(**(vars(tiny_config) | {"out_group_size": 3}))
    with pytest.raises(ValueError, match="does not divide out_features"):
        quantize_layer(w, gram, odd)
