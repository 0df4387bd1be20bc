"""The recurrence in all its forms, its start, and its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest

from icml24.common.checks import WrongType
from icml24.papers.gred import (
    LRU,
    init_lru_from_uniform,
    linear_recurrence,
    load_reference_params,
    lru_eigenvalues,
)
from icml24.papers.gred.recurrence import hop_recurrence, scan_operator, suffix_states

DOUBLE = torch.float64


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128)


def eigenvalues(count: int, r_min: float = 0.3) -> torch.Tensor:
    u = torch.rand(2, count, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    return lru_eigenvalues(*init_lru_from_uniform(u[0], u[1], r_min=r_min)[:2])


@pytest.mark.parametrize("case", ["wide", "ring", "narrow"])
def test_start_of_the_authors(init_cases, case):
    stored = {k: torch.from_numpy(v) for k, v in init_cases[case].items()}
    r_min, r_max, max_phase = stored["r"].tolist()
    found = init_lru_from_uniform(
        stored["u_mag"], stored["u_phase"], r_min=r_min, r_max=r_max, max_phase=max_phase
    )
    for name, value in zip(("nu_log", "theta_log", "gamma_log"), found, strict=True):
        torch.testing.assert_close(value, stored[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["a", "long", "k1"])
def test_unit_of_the_authors(lru_cases, params_of, case):
    stored = lru_cases[case]
    h, v, _, _ = stored["meta"].tolist()
    unit = load_reference_params(LRU(h, v, act=str(stored["act"]), dtype=DOUBLE), params_of(stored))
    lam = torch.complex(torch.from_numpy(stored["lam_re"]), torch.from_numpy(stored["lam_im"]))
    torch.testing.assert_close(unit.eigenvalues(), lam, rtol=0, atol=1e-9)
    xs = torch.from_numpy(stored["xs"])
    inputs = torch.complex(torch.from_numpy(stored["Bu_re"]), torch.from_numpy(stored["Bu_im"]))
    torch.testing.assert_close(unit.project(xs), inputs, rtol=0, atol=1e-9)
    states = torch.complex(torch.from_numpy(stored["states_re"]), torch.from_numpy(stored["states_im"]))
    torch.testing.assert_close(suffix_states(lam, inputs), states, rtol=0, atol=1e-9)
    for method in ("sequential", "sum", "scan"):
        torch.testing.assert_close(
            linear_recurrence(lam, inputs, method=method), states[0], rtol=0, atol=1e-9
        )
    torch.testing.assert_close(unit(xs), torch.from_numpy(stored["y"]), rtol=0, atol=1e-9)


@pytest.mark.equation("eq-gred-recurrence")
@pytest.mark.equation("eq-gred-unrolled")
@pytest.mark.parametrize("far", [0, 1, 2, 7, 63])
def test_all_forms_agree(far):
    """E1: the unrolled sum, written out with polar powers, against every form of the recurrence."""
    lam, u = eigenvalues(6), draw(far + 1, 3, 2, 6)
    k = torch.arange(far + 1, dtype=DOUBLE)[:, None]
    powers = torch.polar(lam.abs() ** k, lam.angle() * k)
    truth = (powers[:, None, None] * u).sum(dim=0)
    for method in ("sequential", "sum", "scan"):
        torch.testing.assert_close(linear_recurrence(lam, u, method=method), truth, rtol=0, atol=1e-12)
    torch.testing.assert_close(hop_recurrence(lam, u), truth, rtol=0, atol=1e-12)
    torch.testing.assert_close(hop_recurrence(lam, u.movedim(0, 1), dim=1), truth, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-gred-recurrence")
def test_every_state_obeys_the_recurrence():
    lam, u = eigenvalues(4), draw(9, 5, 4)
    states = suffix_states(lam, u)
    assert torch.equal(states[-1], u[-1])
    torch.testing.assert_close(states[:-1], lam * states[1:] + u[:-1], rtol=0, atol=1e-13)


@pytest.mark.equation("eq-gred-scan")
def test_scan_operator_is_associative():
    """E2, with the identity, and against the composition of the maps themselves."""
    p, q, r = ((draw(50, seed=s), draw(50, seed=s + 10)) for s in range(3))
    left, right = scan_operator(scan_operator(p, q), r), scan_operator(p, scan_operator(q, r))
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-13)
    one, c = (torch.ones(50, dtype=p[0].dtype), torch.zeros(50, dtype=p[0].dtype)), draw(50, seed=30)
    for a, b in zip(scan_operator(one, p), p, strict=True):
        assert torch.equal(a, b)
    a, b = scan_operator(p, q)
    torch.testing.assert_close(a * c + b, q[0] * (p[0] * c + p[1]) + q[1], rtol=1e-13, atol=1e-13)


@pytest.mark.equation("eq-gred-eigenvalues")
def test_eigenvalues_lie_inside_the_disk():
    """By hand: modulus 1/2 at a quarter turn is i/2; and always inside."""
    nu_log = torch.tensor([math.log(math.log(2.0))], dtype=DOUBLE)
    theta_log = torch.tensor([math.log(math.pi / 2)], dtype=DOUBLE)
    lam = lru_eigenvalues(nu_log, theta_log)
    torch.testing.assert_close(lam, torch.tensor([0.5j], dtype=torch.complex128), rtol=0, atol=1e-15)
    grid = torch.linspace(-12, 8, 500, dtype=DOUBLE)
    assert bool((lru_eigenvalues(grid, grid.flip(0)).abs() < 1).all())


@pytest.mark.equation("eq-gred-ring")
@pytest.mark.parametrize(("r_min", "r_max"), [(0.0, 1.0), (0.9, 1.0), (0.5, 0.9)])
def test_squared_radius_is_uniform(r_min, r_max):
    """E6: Kolmogorov and Smirnov on 20,000 draws; angles uniform as well."""
    u = torch.rand(2, 20_000, generator=torch.Generator().manual_seed(4), dtype=DOUBLE)
    nu_log, theta_log, _ = init_lru_from_uniform(u[0], u[1], r_min=r_min, r_max=r_max, max_phase=3.0)
    square = lru_eigenvalues(nu_log, theta_log).abs().square()
    law = (r_min**2, r_max**2 - r_min**2)
    assert kstest(square.numpy(), "uniform", args=law).statistic < 0.015
    assert kstest(theta_log.exp().numpy(), "uniform", args=(0, 3.0)).statistic < 0.015


@pytest.mark.equation("eq-gred-normalisation")
def test_gamma_makes_the_variance_one():
    """E5: Monte Carlo with unit inputs; 120 hops stand for infinitely many at this radius."""
    u = torch.rand(2, 5, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    nu_log, theta_log, gamma_log = init_lru_from_uniform(u[0], u[1], r_min=0.7, r_max=0.97)
    lam = lru_eigenvalues(nu_log, theta_log)
    hops = torch.randn(120, 40_000, 5, generator=torch.Generator().manual_seed(6), dtype=DOUBLE)
    state = linear_recurrence(lam, (gamma_log.exp() * hops).to(lam.dtype))
    variance = state.abs().square().mean(dim=0)
    full = 1 - lam.abs() ** 240
    assert float((variance / full - 1).abs().max()) < 0.02
    short = linear_recurrence(lam, (gamma_log.exp() * hops[:4]).to(lam.dtype)).abs().square().mean(dim=0)
    assert float((short / (1 - lam.abs() ** 8) - 1).abs().max()) < 0.02


@pytest.mark.equation("eq-gred-gradient")
def test_gradient_decays_as_the_powers():
    """E7: autograd through the public form and through the layer's form."""
    lam = eigenvalues(4)
    for form in (linear_recurrence, hop_recurrence):
        u = draw(7, 4).requires_grad_()
        form(lam, u).real.sum().backward()
        for k in range(7):
            torch.testing.assert_close(u.grad[k], (lam.conj() ** k), rtol=1e-13, atol=1e-13)
            torch.testing.assert_close(u.grad[k].abs(), lam.abs() ** k, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dim", [0, 1])
def test_backward_by_differences(dim):
    lam, u = eigenvalues(3).requires_grad_(), draw(4, 5, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: hop_recurrence(a, b, dim=dim), (lam, u))
    assert torch.autograd.gradcheck(lambda b: hop_recurrence(lam.detach(), b, dim=dim), (u,))
    one = draw(1, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(hop_recurrence, (lam, one))


@pytest.mark.parametrize("method", ["sequential", "sum", "scan"])
def test_gradients_of_the_public_forms(method):
    lam, u = eigenvalues(3).requires_grad_(), draw(5, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: linear_recurrence(a, b, method=method), (lam, u))


def test_start_is_finite_at_the_ends():
    for dtype in (torch.float32, DOUBLE):
        ends = torch.tensor([0.0, 1 - torch.finfo(dtype).eps], dtype=dtype)
        logs = init_lru_from_uniform(ends, ends)
        assert all(x.dtype == dtype and bool(x.isfinite().all()) for x in logs)
        lam = lru_eigenvalues(*logs[:2])
        assert float(lam[0].abs()) < 1e-15
        assert float(lam.abs().max()) <= 1


@pytest.mark.parametrize("method", ["sequential", "sum", "scan"])
def test_real_and_mixed_inputs_lose_nothing(method):
    lam, u = eigenvalues(4), draw(6, 3, 4)
    truth = linear_recurrence(lam, u.real.to(lam.dtype), method=method)
    assert bool((truth.imag.abs() > 0.1).any())
    torch.testing.assert_close(linear_recurrence(lam, u.real, method=method), truth, rtol=0, atol=1e-14)
    for pair in ((lam.to(torch.complex64), u), (lam, u.to(torch.complex64)), (lam.real, u.real)):
        wanted = linear_recurrence(*(x.to(torch.complex128) for x in pair), method=method)
        found = linear_recurrence(*pair, method=method)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)


def test_dtypes_and_layouts():
    lam, u = eigenvalues(4).to(torch.complex64), draw(6, 4, 3).to(torch.complex64).transpose(1, 2)
    for method in ("sequential", "sum", "scan"):
        assert linear_recurrence(lam, u, method=method).dtype == torch.complex64
    same = linear_recurrence(lam, u[:1])
    assert torch.equal(same, u[0])
    assert same.data_ptr() != u.data_ptr()


@pytest.mark.parametrize(
    ("radii", "match"),
    [
        ((-0.1, 1.0), "r_min"),
        ((0.0, 1.1), "r_max"),
        ((0.5, 0.5), "0 <= r_min < r_max <= 1"),
        ((0.9, 0.1), "r_min"),
    ],
)
def test_radii_out_of_order(radii, match):
    u = torch.rand(3)
    with pytest.raises(ValueError, match=match):
        init_lru_from_uniform(u, u, r_min=radii[0], r_max=radii[1])
    with pytest.raises(ValueError, match=match):
        LRU(3, 3, r_min=radii[0], r_max=radii[1])


def test_bad_draws():
    with pytest.raises(ValueError, match="uniform draws"):
        init_lru_from_uniform(torch.ones(2), torch.zeros(2))
    with pytest.raises(ValueError, match="one shape"):
        init_lru_from_uniform(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        init_lru_from_uniform(torch.full((2,), float("nan")), torch.zeros(2))
    with pytest.raises(TypeError):
        init_lru_from_uniform([0.1], [0.1])


def test_bad_recurrences():
    lam, u = eigenvalues(3), draw(4, 2, 3)
    with pytest.raises(ValueError, match="sum, sequential, scan"):
        linear_recurrence(lam, u, method="fft")
    with pytest.raises(ValueError, match="expected lam"):
        linear_recurrence(lam[:2], u)
    with pytest.raises(ValueError, match="hop 0"):
        linear_recurrence(lam, u[:0])
    with pytest.raises(WrongType, match="complex"):
        linear_recurrence(lam, [1.0])
