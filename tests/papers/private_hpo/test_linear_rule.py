"""Radii, their decomposition, and the line."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from icml24.papers.private_hpo import LinearRule, decompose_radius, fit_linear_rule, radius_candidates
from icml24.papers.private_hpo.linear_rule import extrapolation_std, nearest_pair

ETAS = tuple(10 ** np.arange(-1, 1, 0.15))
STEPS = tuple(range(5, 65, 5))


@pytest.mark.equation("eq-private_hpo-admissible")
def test_drawing_until_admissible_is_uniform():
    """E11: rejection over the grid and one uniform pick have the same law (chi-square, 5000 draws each)."""
    r, rtol, draws = 60.0, 0.25, 5000
    candidates = radius_candidates(r, ETAS, STEPS, rtol)
    assert len(candidates) >= 4
    rng = np.random.default_rng(0)
    rejected = dict.fromkeys(candidates, 0)
    while sum(rejected.values()) < draws:
        pair = float(rng.choice(ETAS)), int(rng.choice(STEPS))
        if abs(pair[0] * pair[1] - r) <= rtol * r:
            rejected[pair] += 1
    g = torch.Generator().manual_seed(0)
    picked = dict.fromkeys(candidates, 0)
    for _ in range(draws):
        picked[decompose_radius(r, ETAS, STEPS, rtol=rtol, generator=g)] += 1
    assert chisquare(list(rejected.values())).pvalue > 1e-4
    assert chisquare(list(picked.values())).pvalue > 1e-4


def test_candidates_by_hand():
    assert radius_candidates(10.0, [0.5, 1.0, 2.0], [5, 10, 20], 0.0) == [(0.5, 20), (1.0, 10), (2.0, 5)]
    assert radius_candidates(9.0, [0.5, 1.0, 2.0], [5, 10, 20], 0.05) == []
    assert radius_candidates(10.4, [1.0], [10], 0.05) == [(1.0, 10)]


@settings(deadline=None)
@given(st.floats(0.5, 600.0), st.floats(0.001, 0.3))
def test_candidates_are_exactly_the_admissible_pairs(r, rtol):
    found = radius_candidates(r, ETAS, STEPS, rtol)
    assert found == sorted(found)
    every = {(float(e), t) for e in ETAS for t in STEPS}
    assert all(abs(e * t - r) <= rtol * r for e, t in found)
    assert all(abs(e * t - r) > rtol * r for e, t in every - set(found))
    assert all(type(e) is float and type(t) is int for e, t in found)


def test_decompose_names_the_nearest_product():
    with pytest.raises(ValueError, match=r"rtol = 0\.05 of r = 9;.*nearest product is 10 "):
        decompose_radius(9.0, [0.5, 1.0], [5, 10, 20])


def test_decompose_is_seeded_and_leaves_global_state(global_random_state):
    before = global_random_state()
    one, two = (
        decompose_radius(60, ETAS, STEPS, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert one == two
    assert global_random_state() == before


def test_decompose_accepts_iterators():
    assert decompose_radius(10.0, iter([1.0]), iter([10])) == (1.0, 10)


def test_nearest_pair_is_logarithmic():
    assert nearest_pair(3.5, [1.0], [2, 6]) == (1.0, 6)  # 3.5/2 > 6/3.5
    assert nearest_pair(-4.0, [1.0, 2.0], [3, 6]) == (1.0, 3)


@pytest.mark.equation("eq-private_hpo-line")
@settings(deadline=None)
@given(
    st.floats(0.01, 1.0), st.floats(1.05, 4.0), st.floats(-50, 500), st.floats(-50, 500), st.floats(0.1, 10)
)
def test_two_points_are_interpolated(first, factor, r1, r2, target):
    """E12: the line through two points is (1-u) r1 + u r2 with u = (eps_f - eps_1)/(eps_2 - eps_1)."""
    rule = fit_linear_rule([first, first * factor], [r1, r2])
    u = (target - first) / (first * factor - first)
    assert rule(target) == pytest.approx((1 - u) * r1 + u * r2, rel=1e-8, abs=1e-6)


@pytest.mark.equation("eq-private_hpo-line")
def test_three_points_are_fitted_like_polyfit():
    eps, radii = [0.1, 0.2, 0.5], [3.0, 9.0, 11.0]
    rule = fit_linear_rule(eps, radii)
    np.testing.assert_allclose([rule.slope, rule.intercept], np.polyfit(eps, radii, 1), rtol=1e-12)
    assert LinearRule(2.0, -1.0)(3.0) == 5.0


@pytest.mark.equation("eq-private_hpo-curvature")
def test_error_of_the_line_on_a_quadratic():
    """E12: r''/2 (eps_f - eps_1)(eps_f - eps_2), symbolically."""
    a, b, c, e1, e2, ef = sympy.symbols("a b c e1 e2 ef")

    def r(e):
        return a * e**2 + b * e + c

    u = (ef - e1) / (e2 - e1)
    error = r(ef) - ((1 - u) * r(e1) + u * r(e2))
    assert sympy.simplify(error - sympy.diff(r(e1), e1, 2) / 2 * (ef - e1) * (ef - e2)) == 0


@pytest.mark.equation("eq-private_hpo-variance")
@pytest.mark.parametrize(("trials", "final", "std"), [((0.05, 0.1), 0.96, 25.0), ((0.1, 0.2), 0.863, 10.2)])
def test_variance_of_the_extrapolation(trials, final, std):
    """E12: standard deviation s sqrt((1-u)^2 + u^2), by Monte Carlo through the fit itself."""
    rng = np.random.default_rng(1)
    draws = np.array(
        [fit_linear_rule(trials, rng.standard_normal(2) + np.array([3, 6]))(final) for _ in range(20_000)]
    )
    exact = extrapolation_std(trials, final)
    assert abs(draws.std() / exact - 1) < 4 / np.sqrt(2 * len(draws))
    assert exact == pytest.approx(std, rel=0.03)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fit_linear_rule([0.1], [1.0]), "at least 2 distinct epsilons"),
        (lambda: fit_linear_rule([0.1, 0.1], [1.0, 2.0]), "at least 2 distinct epsilons"),
        (lambda: fit_linear_rule([0.1, 0.2], [1.0]), "one length"),
        (lambda: fit_linear_rule([0.1, 0.2], [1.0, float("nan")]), "finite"),
        (lambda: radius_candidates(0.0, ETAS, STEPS), "r must be positive"),
        (lambda: radius_candidates(1.0, [], STEPS), "etas must hold at least one"),
        (lambda: radius_candidates(1.0, ETAS, [0]), "steps must be a whole number"),
        (lambda: radius_candidates(1.0, [-1.0], STEPS), "etas must be positive"),
        (lambda: radius_candidates(1.0, ETAS, STEPS, -0.1), "rtol"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
