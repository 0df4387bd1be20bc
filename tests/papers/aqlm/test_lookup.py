"""Multiplying by looking up, and the layer that does it."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import QuantizedLinear, QuantizedWeight, dequantize, lut_matvec
from icml24.papers.aqlm.lookup import _reference_sums, _table, arrange, lookup


def test_parity_with_the_released_kernel(core):
    for k in range(2):
        x, codes, books, scales, out = (
            core[f"lut{k}_{n}"] for n in ("x", "codes", "codebooks", "scales", "out")
        )
        torch.testing.assert_close(lut_matvec(x, codes, books, scales), out, rtol=0, atol=1e-4)


@pytest.mark.equation("eq-aqlm-lookup")
@pytest.mark.parametrize("shape", [(12,), (1, 12), (2, 3, 12)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_looking_up_is_multiplying(problem, shape, dtype):
    """E10: kernel, plain torch and dense product agree."""
    _, codes, books, scales, _ = problem(o=7, i=3, m=3, k=9)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = x @ dequantize(codes, books, scales).T
    got = lut_matvec(x, codes.to(dtype), books, scales)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert got.shape == (*shape[:-1], 7)
    plain = _reference_sums(_table(x.reshape(-1, 12), books), codes) * scales.view(-1)
    torch.testing.assert_close(plain.view_as(got), got, rtol=1e-12, atol=1e-12)


@pytest.mark.equation("eq-aqlm-cost")
def test_operations_by_counting(problem):
    """E10: an instrumented plain loop; d_in M K products, d_out I M additions."""
    _, codes, books, scales, _ = problem(o=5, i=3, m=2, k=4)
    x = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    products = additions = 0
    table = {}
    for j in range(3):
        for m in range(2):
            for k in range(4):
                total = 0.0
                for t in range(4):
                    total += float(x[4 * j + t] * books[m, k, 0, t])
                    products += 1
                table[j, m, k] = total
    out = []
    for i in range(5):
        total = 0.0
        for j in range(3):
            for m in range(2):
                total += table[j, m, int(codes[i, j, m])]
                additions += 1
        out.append(total * float(scales[i]))
    torch.testing.assert_close(
        lut_matvec(x, codes, books, scales), torch.tensor(out, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )
    d_in, d_out, m, k, g = 12, 5, 2, 4, 4
    assert (products, additions) == (d_in * m * k, d_out * d_in // g * m)
    assert abs((products + additions) / (d_in * d_out) - (m * k / d_out + m / g)) < 1e-12


def test_dtype_follows_the_codebooks(problem):
    _, codes, books, scales, _ = problem(dtype=torch.float32)
    for dtype in (torch.float32, torch.float64):
        assert lut_matvec(torch.ones(12, dtype=dtype), codes, books, scales.to(dtype)).dtype == torch.float32


def test_tiles_larger_than_one(problem):
    _, codes, books, scales, _ = problem(o=1100, i=45, m=2, k=16, g_in=2, dtype=torch.float32)
    x = torch.randn(2, 90, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        lut_matvec(x, codes.to(torch.uint8), books, scales),
        x @ dequantize(codes, books, scales).T,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.equation("eq-aqlm-lookup")
@pytest.mark.parametrize(("words", "bits"), [(16, 8), (300, 16), (2**15 + 1, 32)])
def test_codes_in_the_order_of_the_kernel(problem, words, bits):
    """The same sums, also when the codes of a row fill no whole read, for codes of one, two and four bytes."""
    _, codes, books, scales, _ = problem(o=70, i=5, m=3, k=words, g_in=2)
    codes[0, 0] = words - 1  # the widest code there is
    x = torch.randn(2, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ordered, count = arrange(codes, words), 64 // bits
    assert ordered.shape == (-(-15 // count), 70)
    for n, column in enumerate(codes.flatten(1).T):
        assert torch.equal((ordered[n // count] >> (bits * (n % count))) & (2**bits - 1), column)
    expected = x @ dequantize(codes, books, scales).T
    for order in (ordered, None):
        got = lookup(x, codes, books, scales, order)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_codes_that_do_not_lie_in_a_row(problem):
    """Slices of larger code tensors: strided, and starting at an odd byte."""
    _, codes, books, scales, _ = problem(o=9, i=8, m=2, k=16)
    x = torch.randn(32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = dequantize(codes, books, scales) @ x
    narrow = codes.to(torch.uint8)
    odd = torch.cat((torch.zeros(1, dtype=torch.uint8), narrow.flatten()))[1:].view(9, 8, 2)
    wide = narrow.repeat_interleave(2, 0)[::2]
    for laid in (odd, wide, narrow.transpose(0, 1).contiguous().transpose(0, 1)):
        torch.testing.assert_close(lut_matvec(x, laid, books, scales), expected, rtol=1e-12, atol=1e-12)


def test_a_layer_that_loads_other_codes_looks_those_up(problem):
    _, codes, books, scales, _ = problem()
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = QuantizedLinear(QuantizedWeight(codes, books, scales), kernel="lut")
    other = QuantizedLinear(QuantizedWeight((codes + 1) % 4, books, scales), kernel="lut")
    with torch.no_grad():
        assert not torch.allclose(first(x), other(x))
        first.load_state_dict(other.state_dict())
        assert torch.equal(first(x), other(x))
    assert set(first.state_dict()) == {"codes", "codebooks", "scales"}
    for bad, kind in ((x[:, :11], ValueError), (torch.tensor(1.0), ValueError), (x * torch.nan, ValueError)):
        with pytest.raises(kind):
            first(bad)


def test_gradients(problem):
    _, codes, books, scales, _ = problem()
    x = torch.randn(
        2, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    books.requires_grad_(True)
    scales.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda *a: lut_matvec(a[0], codes, a[1], a[2]), (x, books, scales))


@pytest.mark.parametrize("kernel", ["dequantize", "lut"])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_layer(problem, kernel, biased):
    _, codes, books, scales, _ = problem()
    bias = torch.arange(5.0, dtype=torch.float64) if biased else None
    layer = QuantizedLinear(QuantizedWeight(codes, books, scales), bias, kernel=kernel)
    x = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.nn.functional.linear(x, dequantize(codes, books, scales), bias)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
    layer(x).sum().backward()
    names = {name for name, p in layer.named_parameters() if p.grad is not None}
    assert names == {"codebooks", "scales", *(["bias"] if biased else [])}
    assert dict(layer.named_buffers())["codes"].dtype == torch.uint8
    assert torch.equal(layer.quantized_weight.codes, codes)
    other = QuantizedLinear(QuantizedWeight(codes * 0, books * 0, scales), bias, kernel=kernel)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.dequantize(), layer.dequantize())
    assert kernel in repr(layer)


def test_bad_input(problem):
    _, codes, books, scales, _ = problem()
    with pytest.raises(ValueError, match="12 features"):
        lut_matvec(torch.zeros(11, dtype=torch.float64), codes, books, scales)
    with pytest.raises(ValueError, match=r"\[0, 4\)"):
        lut_matvec(torch.zeros(12, dtype=torch.float64), codes + 4, books, scales)
    _, codes2, books2, scales2, _ = problem(g_out=2)
    with pytest.raises(ValueError, match="out_group_size = 1"):
        lut_matvec(torch.zeros(12, dtype=torch.float64), codes2, books2, scales2)
    with pytest.raises(ValueError, match="out_group_size = 1"):
        QuantizedLinear(QuantizedWeight(codes2, books2, scales2), kernel="lut")
    with pytest.raises(ValueError, match="kernel"):
        QuantizedLinear(QuantizedWeight(codes, books, scales), kernel="fast")
    with pytest.raises(ValueError, match="bias"):
        QuantizedLinear(QuantizedWeight(codes, books, scales), torch.zeros(4))
