"""Recovering hops from the last state, and when it cannot be done."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.gred import LRU, init_lru_from_uniform, linear_recurrence, lru_eigenvalues
from icml24.papers.gred.experiments import conditioning, recovery
from icml24.papers.gred.injectivity import recover_hops, state_matrix, vandermonde

DOUBLE = torch.float64


@pytest.mark.equation("eq-gred-vandermonde")
def test_state_is_a_vandermonde_system():
    """E3: diag(b) Vand(lambda) x against the recurrence itself."""
    g = torch.Generator().manual_seed(0)
    lam, b = torch.randn(2, 9, generator=g, dtype=torch.complex128) * 0.5
    x = torch.randn(6, generator=g, dtype=DOUBLE).to(lam.dtype)
    state = linear_recurrence(lam, x[:, None] * b)
    torch.testing.assert_close(torch.diag(b) @ vandermonde(lam, 6) @ x, state, rtol=0, atol=1e-13)


@pytest.mark.equation("eq-gred-vandermonde")
def test_rank_drops_when_eigenvalues_coincide():
    lam = torch.polar(torch.linspace(0.5, 0.95, 8, dtype=DOUBLE), torch.linspace(0, 5, 8, dtype=DOUBLE))
    assert int(torch.linalg.matrix_rank(vandermonde(lam, 8))) == 8
    lam[3] = lam[5]
    assert int(torch.linalg.matrix_rank(vandermonde(lam, 8))) == 7


@pytest.mark.equation("eq-gred-vandermonde")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hops_come_back(seed):
    found = recovery(seed)
    assert found["scalar"] < 1e-8
    assert found["vector"] < 1e-8
    assert found["merged"] > 0.1


def test_hops_come_back_from_a_layer():
    """The recurrence of an untrained unit, its own input map included: LN'(x) at every hop."""
    unit = LRU(3, 24, r_min=0.5, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    xs = torch.randn(8, 1, 5, 3, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    state = linear_recurrence(unit.eigenvalues(), unit.project(xs))[0]
    w_in = torch.complex(unit.B_re, unit.B_im) * unit.gamma_log.exp()
    found = recover_hops(unit.eigenvalues().detach(), w_in.detach(), state.detach(), 8)
    torch.testing.assert_close(found, unit.norm(xs)[:, 0].detach(), rtol=0, atol=1e-8)


def test_matrix_columns_are_single_hops():
    g = torch.Generator().manual_seed(2)
    lam, w_in = (
        torch.randn(5, generator=g, dtype=torch.complex128),
        torch.randn(2, 5, generator=g, dtype=torch.complex128),
    )
    matrix = state_matrix(lam, w_in, 3)
    z = torch.zeros(3, 2, dtype=DOUBLE)
    z[2, 1] = 1.0
    torch.testing.assert_close(
        matrix[:, 5], linear_recurrence(lam, z.to(w_in.dtype) @ w_in), rtol=1e-12, atol=0
    )


@pytest.mark.equation("eq-gred-conditioning")
def test_large_radii_condition_better():
    """E4: medians over twenty draws, on logarithms of base ten."""
    table = conditioning(0).set_index(["r_min", "hops"])["median"]
    for hops in (21, 31, 41):
        assert table[0.95, hops] < table[0.0, hops]
    assert table[0.0, 41] > table[0.0, 21] > table[0.0, 9]


@pytest.mark.equation("eq-gred-conditioning")
@pytest.mark.parametrize("hops", [2, 9, 30])
def test_condition_number_has_its_lower_bound(hops):
    """The bound from the mean of |lambda|^(2K), and equality for a single hop beside hop 0 at equal moduli."""
    u = torch.rand(2, 60, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    lam = lru_eigenvalues(*init_lru_from_uniform(u[0], u[1])[:2])
    bound = (lam.abs() ** (2 * hops - 2)).mean() ** -0.5
    assert float(torch.linalg.cond(vandermonde(lam, hops))) >= float(bound) > 1
    around = 0.25 * torch.polar(torch.ones(8, dtype=DOUBLE), torch.arange(8, dtype=DOUBLE) * torch.pi / 4)
    torch.testing.assert_close(
        torch.linalg.cond(vandermonde(around, 2)), torch.tensor(4.0, dtype=DOUBLE), rtol=1e-12, atol=0
    )
