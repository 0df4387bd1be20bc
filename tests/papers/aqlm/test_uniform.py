"""The baselines on a uniform grid."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import gptq_quantize, layer_mse, rtn_quantize, uniform_bits_per_parameter


@pytest.mark.equation("eq-aqlm-grid")
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
@pytest.mark.parametrize("bits", [2, 4])
def test_every_error_is_made_good_by_the_best_rest_of_the_row(bits):
    """E11: one linear system a column for the least-loss answer of the free coordinates, no factorisation."""
    g = torch.Generator().manual_seed(0)
    w = torch.randn(5, 9, generator=g, dtype=torch.float64)
    x = torch.randn(60, 9, generator=g, dtype=torch.float64) @ torch.randn(
        9, 9, generator=g, dtype=torch.float64
    )
    h = x.T @ x / 60
    damped = h + 0.05 * h.diagonal().mean() * torch.eye(9, dtype=torch.float64)
    low, high = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
    step = (high - low) / (2**bits - 1)
    zero = (-low / step).round()
    now, expected = w.clone(), torch.empty_like(w)
    for q in range(9):
        level = ((now[:, q] / step).round() + zero).clamp(0, 2**bits - 1)
        expected[:, q] = (level - zero) * step
        if q < 8:
            answer = torch.linalg.solve(damped[q + 1 :, q + 1 :], damped[q + 1 :, q])
            now[:, q + 1 :] += torch.outer(now[:, q] - expected[:, q], answer)
    torch.testing.assert_close(gptq_quantize(w, h, bits, damping=0.05), expected, rtol=0, atol=1e-9)


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
