"""E9, E10: partitions, monotone certificates, and what sampling can and cannot say."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from icml24.papers.partial_crown import Burgers, greedy_branching, monte_carlo_extrema, uniform_branching
from icml24.papers.partial_crown.data import SMALL, random_network, small_pinns

SQUARE = [[0.0, -1.0], [1.0, 1.0]]


def wave(x):
    return torch.sin(3 * x[:, 0]) * x[:, 1]


def lipschitz_bounds(boxes):
    """Sound first-order bounds of `wave`: value at the centre plus Lipschitz constants times radii."""
    centre, half = boxes.mean(1), (boxes[:, 1] - boxes[:, 0]) / 2
    reach = 3 * half[:, 0] + half[:, 1]
    return wave(centre) - reach, wave(centre) + reach


def covered(boxes, domain):
    return float((boxes[:, 1] - boxes[:, 0]).prod(1).sum()) / float((domain[1] - domain[0]).prod())


@pytest.mark.equation("eq-partial_crown-partition")
def test_leaves_cover_the_domain_and_carry_the_certificate(draw):
    domain = torch.tensor(SQUARE, dtype=torch.float64)
    options = {"empirical_min": -0.9, "empirical_max": 0.9}
    for result in (
        greedy_branching(lipschitz_bounds, domain, max_evaluations=700, **options),
        uniform_branching(lipschitz_bounds, domain, splits=(7, 13)),
    ):
        assert abs(covered(result.boxes, domain) - 1) < 1e-12
        x = domain[0] + (domain[1] - domain[0]) * draw(3000, 2, seed=1)
        inside = ((x[:, None] >= result.boxes[:, 0]) & (x[:, None] <= result.boxes[:, 1])).all(-1)
        assert bool(inside.any(1).all())
        assert result.lower == float(result.box_lower.min())
        assert result.upper == float(result.box_upper.max())
        assert result.lower <= float(wave(x).min())
        assert result.upper >= float(wave(x).max())
        f = wave(x)[:, None]
        assert bool((~inside | ((f >= result.box_lower) & (f <= result.box_upper))).all())


@pytest.mark.equation("eq-partial_crown-monotone")
def test_parents_make_the_certificate_monotone():
    """A bound that is sound but erratic: looser on some small boxes than on their parents."""

    def erratic(boxes):
        low, high = lipschitz_bounds(boxes)
        wild = (torch.floor(boxes[:, 0, 0] * 1024) % 3 == 0).double()
        return low - wild, high + wild

    result = greedy_branching(
        erratic, SQUARE, max_evaluations=900, empirical_min=-0.9, empirical_max=0.9, batch=5
    )
    lows, highs = ([h[k] for h in result.history] for k in (1, 2))
    assert all(b >= a for a, b in itertools.pairwise(lows))
    assert all(b <= a for a, b in itertools.pairwise(highs))
    raw = erratic(result.boxes)
    assert bool((result.box_lower >= raw[0]).all())
    assert bool((result.box_lower > raw[0]).any())  # the intersection did something


def test_budget_and_history():
    for budget in (1, 2, 37, 100, 501):
        result = greedy_branching(
            lipschitz_bounds, SQUARE, max_evaluations=budget, empirical_min=-1.0, empirical_max=1.0
        )
        assert budget <= result.evaluations < budget + 4
        assert result.history[0][0] == 1
        assert result.history[-1] == (result.evaluations, result.lower, result.upper)
        assert len(result.boxes) == 1 + 3 * (result.evaluations - 1) // 4
    edge = greedy_branching(
        lipschitz_bounds, [[0.0, -1.0], [0.0, 1.0]], max_evaluations=51, empirical_min=0, empirical_max=0
    )
    assert not edge.boxes[..., 0].any()
    point = greedy_branching(
        lipschitz_bounds, [[0.5, 0.5], [0.5, 0.5]], max_evaluations=9, empirical_min=0, empirical_max=0
    )
    assert point.evaluations == 1


def test_greedy_splits_where_it_is_bad():
    net = random_network((2, 6, 6, 1), 2)
    pde = Burgers()
    low, high = monte_carlo_extrema(lambda x: pde.residual(net, x), pde.domain, 20_000)
    bounds = lambda b: pde.residual_bounds(net, b)  # noqa: E731
    greedy = greedy_branching(bounds, pde.domain, max_evaluations=1024, empirical_min=low, empirical_max=high)
    assert greedy.largest <= uniform_branching(bounds, pde.domain, splits=(32, 32)).largest


@pytest.mark.equation("eq-partial_crown-dispersion")
def test_sampling_gap_is_at_most_lipschitz_times_dispersion():
    """E10 on a grid, whose dispersion is known, and for the residual of a trained network by its certificate."""
    for n in (5, 20, 80):
        centres = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        x = torch.cartesian_prod(centres, 2 * centres - 1)
        gap = math.sin(3 * math.pi / 6) * 1.0 - float(wave(x).max())  # the maximum is 1, at t = pi / 6, x = 1
        assert 0 <= gap <= 3 * 0.5 / n + 1.0 / n + 1e-12
    net = small_pinns()[250]
    low, high = monte_carlo_extrema(lambda x: SMALL.residual(net, x), SMALL.domain, 20_000)
    result = greedy_branching(
        lambda b: SMALL.residual_bounds(net, b),
        SMALL.domain,
        **{"max_evaluations": 500, "empirical_min": low, "empirical_max": high},
    )
    assert result.lower <= low <= high <= result.upper


def test_monte_carlo_is_seeded_and_batched():
    g = [torch.Generator().manual_seed(1) for _ in range(2)]
    a = monte_carlo_extrema(wave, SQUARE, 1000, generator=g[0], batch=1000)
    b = monte_carlo_extrema(wave, SQUARE, 1000, generator=g[1], batch=77)
    assert a == b
    assert monte_carlo_extrema(wave, SQUARE, 1)[0] == monte_carlo_extrema(wave, SQUARE, 1)[1]


def greedy(bound_fn=lipschitz_bounds, domain=SQUARE, **changes):
    options = {"max_evaluations": 9, "empirical_min": 0, "empirical_max": 1} | changes
    return greedy_branching(bound_fn, domain, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: greedy(max_evaluations=0), "max_evaluations"),
        (lambda: greedy(empirical_min=2), "empirical_min"),
        (lambda: greedy(domain=[[1, 1], [0, 0]]), "corner"),
        (lambda: greedy(domain=[0, 1]), "shape"),
        (lambda: greedy(bound_fn=lambda b: (b, b)), "bound_fn"),
        (lambda: uniform_branching(lipschitz_bounds, SQUARE, splits=(3,)), "splits"),
        (lambda: uniform_branching(lipschitz_bounds, SQUARE, splits=(3, 0)), "splits"),
        (lambda: monte_carlo_extrema(wave, SQUARE, 0), "n must"),
        (lambda: monte_carlo_extrema(lambda x: x[:, 0] * float("nan"), SQUARE, 5), "NaN"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
