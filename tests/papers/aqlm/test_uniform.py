"""The baselines on a uniform grid."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import gptq_quantize, layer_mse, rtn_quantize, uniform_bits_per_parameter


def test_parity(extra, extra_facts):
    """The references: one inverse of the trailing block a step, in numpy."""
    for k in range(4):
        options = dict(extra_facts[f"gptq{k}_args"])
        bits, group = options.pop("bits"), options.pop("group_size")
        w, gram = extra[f"gptq{k}_weight"], extra[f"gptq{k}_gram"]
        got = gptq_quantize(w, gram, bits, group_size=group, **options)
        torch.testing.assert_close(got, extra[f"gptq{k}_out"], rtol=0, atol=1e-8)
        torch.testing.assert_close(
            rtn_quantize(w, bits, group_size=group), extra[f"gptq{k}_rtn"], rtol=0, atol=1e-8
        )
        assert abs(float(layer_mse(w, got, gram)) - extra_facts[f"gptq{k}_mse_gptq"]) < 1e-8


@pytest.mark.equation("eq-aqlm-obq")
def test_the_rest_of_a_row_answers_a_fixed_coordinate_in_the_best_way():
    """E11: with the first column fixed where GPTQ puts it, the best continuous rest of each row.

    At 16 bits the later columns hardly move from where the correction puts them.
    """
    g = torch.Generator().manual_seed(0)
    w = torch.randn(4, 6, generator=g, dtype=torch.float64)
    x = torch.randn(50, 6, generator=g, dtype=torch.float64)
    h = x.T @ x / 50
    w[:, 0] = torch.tensor([0.013, -0.021, 0.034, 0.008], dtype=torch.float64)
    coarse = gptq_quantize(w * torch.tensor([1.0] + [1e-3] * 5, dtype=torch.float64), h, 2, damping=0.0)
    scaled = w * torch.tensor([1.0] + [1e-3] * 5, dtype=torch.float64)
    # exact conditional minimum, by solving the normal equations of the free coordinates
    error = scaled[:, 0] - coarse[:, 0]
    best = scaled[:, 1:] + torch.outer(error, torch.linalg.solve(h[1:, 1:], h[1:, 0]))
    inverse = torch.linalg.inv(h)
    step = scaled[:, 1:] - torch.outer(error / inverse[0, 0], inverse[0, 1:])
    torch.testing.assert_close(best, step, rtol=1e-9, atol=1e-12)
    fine = gptq_quantize(torch.cat((coarse[:, :1], scaled[:, 1:]), 1), h, 16, damping=0.0)
    torch.testing.assert_close(fine, torch.cat((coarse[:, :1], scaled[:, 1:]), 1), rtol=0, atol=1e-4)


@pytest.mark.equation("eq-aqlm-grid")
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_rounding_errs_by_half_a_step(bits):
    w = torch.randn(7, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got = rtn_quantize(w, bits)
    step = (w.amax(1, keepdim=True).clamp(min=0) - w.amin(1, keepdim=True).clamp(max=0)) / (2**bits - 1)
    assert ((got - w).abs() <= step * (0.5 + 0.5) + 1e-12).all()  # the zero point is rounded too
    assert (
        (got / step).round() * step - got
    ).abs().max() < 1e-9  # multiples of the step: zero is on the grid
    assert all(len(row.unique()) <= 2**bits for row in got)
    inner = (w > w.amin(1, keepdim=True) + step) & (w < w.amax(1, keepdim=True) - step)
    assert ((got - w).abs() <= step / 2 + 1e-12)[inner].all()


def test_gptq_beats_rounding_on_correlated_inputs_and_equals_it_on_white_ones():
    g = torch.Generator().manual_seed(2)
    w = torch.randn(16, 24, generator=g, dtype=torch.float64)
    x = torch.randn(300, 24, generator=g, dtype=torch.float64) @ torch.randn(
        24, 24, generator=g, dtype=torch.float64
    )
    h = x.T @ x / 300
    assert layer_mse(w, gptq_quantize(w, h, 3), h) < 0.7 * layer_mse(w, rtn_quantize(w, 3), h)
    eye = torch.eye(24, dtype=torch.float64)
    torch.testing.assert_close(gptq_quantize(w, eye, 3), rtn_quantize(w, 3))


def test_all_zero_rows_and_dtype():
    w = torch.zeros(2, 8)
    assert torch.equal(rtn_quantize(w, 2), w)
    w = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    assert gptq_quantize(w.requires_grad_(True), torch.eye(8).double(), 4).dtype == torch.float32


def test_bits_by_counting():
    assert uniform_bits_per_parameter(128, 2) == 2 + 18 / 128
    assert uniform_bits_per_parameter(128, 3, group_size=32) == 3 + 19 / 32


def test_bad_input():
    w, eye = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), torch.eye(8)
    for call in (
        lambda: rtn_quantize(w, 0),
        lambda: rtn_quantize(w, 17),
        lambda: rtn_quantize(w, 2, group_size=3),
        lambda: gptq_quantize(w, eye, 2, group_size=0),
        lambda: gptq_quantize(w, eye, 2, damping=-1.0),
        lambda: uniform_bits_per_parameter(8, 2, group_size=5),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError, match="raise damping"):
        gptq_quantize(w, -eye, 2)
    singular = torch.ones(8, 8)
    with pytest.raises(ValueError, match="raise damping"):
        gptq_quantize(w, singular, 2, damping=0.0)
    with pytest.raises(ValueError, match="finite"):
        gptq_quantize(w * torch.nan, eye, 2)
    with pytest.raises(ValueError, match="gram must be"):
        gptq_quantize(w, torch.eye(7), 2)
