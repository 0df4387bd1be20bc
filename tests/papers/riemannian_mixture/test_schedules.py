"""The clock, its rate and the importance times."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from icml24.papers.riemannian_mixture import Euclidean, LinearSchedule, two_way_sample

SCHEDULES = [
    LinearSchedule(),
    LinearSchedule(0.05, 0.4, 2.0),
    LinearSchedule(0.1, 0.1),
    LinearSchedule(0.3, 0.0),
]


@pytest.mark.equation("eq-riemannian_mixture-timechange")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_clock_is_the_integral_of_beta(schedule):  # E1
    T = schedule.T
    for s, t in [(0.0, 0.3 * T), (0.2 * T, 0.9 * T), (0.0, T)]:
        assert schedule.integral(s, t) == pytest.approx(quad(schedule.beta, s, t)[0], abs=1e-12)
    assert schedule.integral(0, 0.4) + schedule.integral(0.4, T) == pytest.approx(schedule.integral(0, T))
    h = 1e-6
    slope = (schedule.integral(0, 0.4 + h) - schedule.integral(0, 0.4 - h)) / (2 * h)
    assert slope == pytest.approx(schedule.beta(0.4), rel=1e-6)


@pytest.mark.equation("eq-riemannian_mixture-timechange")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_on_its_clock_every_bridge_is_the_constant_one(schedule):  # E1
    t = torch.linspace(0, 0.99 * schedule.T, 50, dtype=torch.float64)
    s, end = schedule.integral(torch.zeros_like(t), t), schedule.integral(0.0, schedule.T)
    constant = LinearSchedule(1.0, 1.0, end)  # dX = (z - X) / (end - s) ds + dB
    torch.testing.assert_close(schedule.rate(t), constant.rate(s) * schedule.beta(t))


@pytest.mark.equation("eq-riemannian_mixture-timechange")
def test_a_bridge_and_its_time_changed_twin_have_one_law():
    line, n = Euclidean(1), 20_000
    schedule = LinearSchedule(0.8, 0.1)
    constant = LinearSchedule(1.0, 1.0, schedule.integral(0.0, 1.0))
    x0, x1 = torch.zeros(n, 1, dtype=torch.float64), torch.ones(n, 1, dtype=torch.float64)
    t = torch.full((n,), 0.3, dtype=torch.float64)
    s = schedule.integral(0.0, t)
    g = torch.Generator().manual_seed(0)
    a = two_way_sample(line, x0, x1, t, schedule, n_steps=200, generator=g)
    b = two_way_sample(line, x0, x1, s, constant, n_steps=200, generator=g)
    gap = a.mean() - b.mean()
    assert abs(gap) < 4 * (2 * a.var() / n) ** 0.5 + 2e-3
    assert a.var() / b.var() == pytest.approx(1, abs=4 * (4 / n) ** 0.5 + 5e-3)


@pytest.mark.equation("eq-riemannian_mixture-importance")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_importance_times_invert_their_distribution_function(schedule):  # E10
    eps = 1e-3
    u = torch.linspace(0, 1, 101, dtype=torch.float64)
    t = schedule.importance_time(u, eps)
    assert t[0].item() == pytest.approx(eps, abs=1e-12)
    assert t[-1].item() == pytest.approx(schedule.T - eps, abs=1e-12)
    Z = schedule.inv_beta_integral(eps, schedule.T - eps)
    assert (
        pytest.approx(quad(lambda s: 1 / schedule.beta(s), eps, schedule.T - eps, limit=200)[0], rel=1e-8)
        == Z
    )
    mass = torch.tensor([schedule.inv_beta_integral(eps, float(s)) / Z for s in t], dtype=torch.float64)
    torch.testing.assert_close(mass, u, atol=1e-10, rtol=0)


@pytest.mark.equation("eq-riemannian_mixture-importance")
def test_both_weightings_have_one_expectation():  # E10
    schedule, eps, n = LinearSchedule(0.2, 0.001), 1e-3, 400_000
    u = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = lambda t: 1 + 0.2 * torch.sin(5 * t)  # noqa: E731 - varies less than 1 / beta
    uniform = eps + u * (1 - 2 * eps)
    a = loss(uniform) / schedule.beta(uniform) * (1 - 2 * eps)
    b = loss(schedule.importance_time(u, eps)) * schedule.inv_beta_integral(eps, 1 - eps)
    assert abs(a.mean() - b.mean()) < 4 * (a.var() / n + b.var() / n) ** 0.5
    assert b.var() < a.var() / 5  # which is why one does it


@given(st.floats(1e-4, 2), st.floats(1e-4, 2), st.floats(0.1, 5), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_floats_and_tensors_agree(b0, bf, T, u):
    s, tensor = LinearSchedule(b0, bf, T), lambda a: torch.tensor([a], dtype=torch.float64)
    pairs = [
        (s.beta(u * T), s.beta(tensor(u * T))),
        (s.rate(0.9 * u * T), s.rate(tensor(0.9 * u * T))),
        (s.integral(0.1 * T, u * T), s.integral(0.1 * T, tensor(u * T))),
        (s.inv_beta_integral(0.0, u * T), s.inv_beta_integral(0.0, tensor(u * T))),
        (s.importance_time(u, 1e-3 * T), s.importance_time(tensor(u), 1e-3 * T)),
    ]
    for plain, as_tensor in pairs:
        assert float(as_tensor) == pytest.approx(float(plain), rel=1e-9, abs=1e-12)


def test_rate_without_final_noise_is_two_over_what_is_left():
    s = LinearSchedule(0.3, 0.0)
    assert s.rate(0.75) == pytest.approx(8.0)
    assert s.rate(1.0) == math.inf
    assert torch.isinf(s.rate(torch.ones(1))).all()


def test_reverse_swaps_the_ends():
    s = LinearSchedule(0.3, 0.1, 2.0)
    assert s.reverse() == LinearSchedule(0.1, 0.3, 2.0)
    assert s.reverse().rate(2.0 - 0.5) == pytest.approx(s.beta(0.5) / s.integral(0.0, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    t, s = torch.rand(4, dtype=dtype), LinearSchedule()
    for value in (s.beta(t), s.integral(t, t), s.rate(t), s.inv_beta_integral(t, t), s.importance_time(t)):
        assert value.dtype == dtype


@pytest.mark.parametrize(
    ("kwargs", "field"),
    [({"beta_0": -0.1}, "beta_0"), ({"beta_f": -1}, "beta_f"), ({"beta_0": 0, "beta_f": 0}, "both be zero"),
     ({"T": 0}, "T must be"), ({"T": -1.0}, "T must be"), ({"beta_0": math.nan}, "beta_0")],
)  # fmt: skip
def test_rejects(kwargs, field):
    with pytest.raises(ValueError, match=field):
        LinearSchedule(**kwargs)


def test_rejects_times_where_the_density_does_not_exist():
    with pytest.raises(ValueError, match="eps > 0"):
        LinearSchedule(0.2, 0.0).importance_time(0.5, 0.0)
    with pytest.raises(ValueError, match="eps must lie"):
        LinearSchedule().importance_time(0.5, 0.5)
