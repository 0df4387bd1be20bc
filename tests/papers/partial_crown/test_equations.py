"""Residuals and conditions of the four equations: formulas by autograd, soundness, rates, and the error link."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from icml24.papers.partial_crown import AllenCahn, Burgers, DiffusionSorption, Schrodinger, TanhMLP, solution
from icml24.papers.partial_crown.data import SMALL, small_pinns
from icml24.papers.partial_crown.enclosures import Box
from icml24.papers.partial_crown.equations import cosine_profile, sine_profile, taylor_band
from icml24.papers.partial_crown.references import cole_hopf, error_bound
from icml24.papers.partial_crown.systems import _minus_two_sech

EQUATIONS = [Burgers(), AllenCahn(), Schrodinger(), DiffusionSorption()]


def network(pde, hidden, seed, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    net = TanhMLP([2, *hidden, pde.outputs], *pde.domain, generator=g)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return net.requires_grad_(False)


def face(boxes, axis, value):
    out = boxes.clone()
    out[..., axis] = value
    return out


def by_autograd(net, x):
    x = x.clone().requires_grad_(True)
    u = net(x)
    first = [torch.autograd.grad(u[:, o].sum(), x, create_graph=True)[0] for o in range(u.shape[1])]
    second = [torch.autograd.grad(g[:, 1].sum(), x, retain_graph=True)[0][:, 1] for g in first]
    return u.detach(), [g.detach() for g in first], second


@pytest.mark.equation("eq-partial_crown-residual")
@pytest.mark.parametrize("pde", EQUATIONS, ids=lambda p: type(p).__name__)
def test_residuals_by_autograd(pde, draw):
    net = network(pde, (6, 5), 1, 0.7)
    low, high = pde.domain
    x = low + (high - low) * draw(64, 2, seed=1)
    u, first, second = by_autograd(net, x)
    if isinstance(pde, Burgers):
        expected = first[0][:, 0] + u[:, 0] * first[0][:, 1] - 0.01 / math.pi * second[0]
    elif isinstance(pde, AllenCahn):
        expected = first[0][:, 0] + 5 * u[:, 0] ** 3 - 5 * u[:, 0] - 1e-4 * second[0]
    elif isinstance(pde, Schrodinger):
        h, v = u.T
        real = first[1][:, 0] - 0.5 * second[0] - (h**2 + v**2) * h
        imaginary = first[0][:, 0] + 0.5 * second[1] + (h**2 + v**2) * v
        expected = real**2 + imaginary**2
    else:
        w = u[:, 0].clamp(min=0)
        sorption = (1 - 0.29) / 0.29 * 2880 * 3.5e-4 * 0.874 * (w + 1e-6) ** (0.874 - 1)
        expected = torch.where(u[:, 0] > 0, first[0][:, 0] - 5e-4 / (1 + sorption) * second[0], 0.0)
    torch.testing.assert_close(pde.residual(net, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.equation("eq-partial_crown-residual")
@pytest.mark.parametrize("pde", EQUATIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    "options", [{}, {"product": "entry"}, {"method": "ibp"}], ids=["neuron", "entry", "ibp"]
)
def test_residuals_stay_inside(pde, options, boxes_in, points_in):
    for seed, hidden in enumerate([(1, 1), (2, 1), (8, 8), ()]):
        net = network(pde, hidden, seed)
        for radius in (0.2, 0.01, 0.0):
            boxes = boxes_in(pde.domain, 10, radius, seed)
            low, high = pde.residual_bounds(net, boxes, **options)
            assert low.shape == high.shape == (10,)
            f = pde.residual(net, points_in(boxes, 100, seed).reshape(-1, 2)).reshape(10, 100)
            assert bool(((f >= low[:, None]) & (f <= high[:, None])).all())


@pytest.mark.parametrize("pde", EQUATIONS, ids=lambda p: type(p).__name__)
def test_conditions_stay_inside(pde, boxes_in, points_in):
    (t0, x0), (_, x1) = pde.domain.tolist()
    for seed, hidden in enumerate([(1,), (2, 1), (8, 8)]):
        net = network(pde, hidden, 10 + seed)
        for radius in (0.2, 0.01, 0.0):
            boxes = boxes_in(pde.domain, 10, radius, seed)
            start = face(boxes, 0, t0)
            x = points_in(start, 60, seed).reshape(-1, 2)
            checks = [(pde.initial_bounds(net, start), pde.initial_error(net, x[:, 1]))]
            for side in (x0, x1):
                edge = face(boxes, 1, side)
                x = points_in(edge, 60, seed).reshape(-1, 2)
                checks.append((pde.boundary_bounds(net, edge), pde.boundary_error(net, x)))
                if isinstance(pde, Schrodinger):
                    checks.append(
                        (pde.boundary_bounds(net, edge, order=1), pde.boundary_error(net, x, order=1))
                    )
            for (low, high), values in checks:
                f = values.reshape(10, 60)
                assert bool(((f >= low[:, None]) & (f <= high[:, None])).all())


@pytest.mark.equation("eq-partial_crown-taylor")
@pytest.mark.parametrize("pde", [Burgers(), AllenCahn(), Schrodinger()], ids=lambda p: type(p).__name__)
def test_initial_bounds_of_single_precision_networks(pde, boxes_in):
    """A box of the network whose scale float32 cannot hold: on points only rounding is left, and must be covered."""
    g = torch.Generator().manual_seed(7)
    net = TanhMLP([2, 2, pde.outputs], [-0.1, -5.3], [0.7, 6.1], generator=g, dtype=torch.float32)
    for radius in (0.0, 1e-9, 1e-3):
        start = face(boxes_in(pde.domain, 50, radius, 8), 0, 0.0)
        low, high = pde.initial_bounds(net, start)
        for k in (0, 1):
            f = pde.initial_error(net, start[:, k, 1]).detach()
            assert bool(((low <= f) & (f <= high)).all())
        if radius == 0.0:
            assert float((high - low).max()) < 1e-8


def test_condition_values(draw):
    x = draw(20, seed=2, low=-1.0)
    start = torch.stack((torch.zeros_like(x), x), 1)
    net = network(Burgers(), (5,), 1)
    torch.testing.assert_close(Burgers().initial_error(net, x), net(start)[:, 0] + torch.sin(torch.pi * x))
    torch.testing.assert_close(
        AllenCahn().initial_error(net, x), net(start)[:, 0] - x**2 * torch.cos(torch.pi * x)
    )
    two = network(Schrodinger(), (5,), 1)
    h, v = two(start).T
    torch.testing.assert_close(Schrodinger().initial_error(two, x), (h - 2 / torch.cosh(x)) ** 2 + v**2)
    ends = torch.stack((x.abs(), torch.ones_like(x)), 1)
    torch.testing.assert_close(Burgers().boundary_error(net, ends), net(ends)[:, 0])
    other = torch.stack((x.abs(), -torch.ones_like(x)), 1)
    torch.testing.assert_close(AllenCahn().boundary_error(net, ends), net(ends)[:, 0] - net(other)[:, 0])
    sorption = DiffusionSorption()
    dry = network(sorption, (5,), 1)
    at = torch.stack((500 * x.abs(), torch.zeros_like(x)), 1)
    torch.testing.assert_close(sorption.boundary_error(dry, at), torch.relu(dry(at)[:, 0]) - 1)


@pytest.mark.equation("eq-partial_crown-taylor")
def test_taylor_bands_hold(boxes_in):
    net = network(Schrodinger(), (3,), 0)
    functions = {
        "sine": lambda x: torch.sin(torch.pi * x),
        "cosine": lambda x: -(x**2) * torch.cos(torch.pi * x),
        "sech": lambda x: -2 / torch.cosh(x),
    }
    for radius in (0.1, 0.01, 1e-3):
        boxes = face(boxes_in(net.lower.new_tensor([[0, -1], [1, 1]]), 40, radius, 3), 0, 0.0)
        box = Box.of(boxes, net.lower, net.upper)
        bands = {
            "sine": sine_profile(boxes, box, net, 1.0),
            "cosine": cosine_profile(boxes, box, net),
            "sech": taylor_band(boxes, box, net, _minus_two_sech, 10.0),
        }
        x = boxes[:, None, 0, 1] + 2 * radius * torch.linspace(0, 1, 201, dtype=torch.float64)
        x = torch.minimum(x, boxes[:, None, 1, 1])
        delta = 2 * (x + 5) / 10 - 1 - box.centre[:, 1:]
        for name, band in bands.items():
            high, low = band.edges
            assert bool((functions[name](x) <= high[:, 0, 1:2] * delta + high[:, 0, 2:]).all())
            assert bool((functions[name](x) >= low[:, 0, 1:2] * delta + low[:, 0, 2:]).all())
            r = 2 * radius
            assert float((high - low)[..., -1].max()) < (24.5 + 110 * r) * r**2 + 1e-9  # second order


@pytest.mark.equation("eq-partial_crown-rate")
def test_excess_width_is_of_second_order():
    """E6: width of the residual's bounds minus the true width falls like r^2: slope in [1.7, 2.3]."""
    net = small_pinns()[1500]
    centre = torch.tensor([[0.31, 0.12], [0.62, -0.43], [0.45, 0.71]], dtype=torch.float64)
    corners = torch.cartesian_prod(*[torch.linspace(-1, 1, 41, dtype=torch.float64)] * 2)
    excess = []
    radii = [1e-2, 1e-3, 1e-4]
    for r in radii:
        low, high = SMALL.residual_bounds(net, torch.stack((centre - r, centre + r), 1))
        f = SMALL.residual(net, (centre[:, None] + r * corners).reshape(-1, 2)).reshape(3, -1)
        excess.append((high - low - (f.amax(1) - f.amin(1))).log10())
    for a, b in itertools.pairwise(excess):
        assert bool(((a - b > 1.7) & (a - b < 2.3)).all())


@pytest.mark.equation("eq-partial_crown-link")
def test_error_link_on_a_short_horizon():
    """E12: nu = 0.1 / pi, T = 0.2: certified pieces bound the measured error; the pieces hold pointwise."""
    bound, error = solution.link(small_pinns()[1500], 0.2, 200)
    assert 0 < error <= bound < math.inf
    x = torch.tensor([[0.13, 0.3], [0.5, -0.7]], dtype=torch.float64, requires_grad=True)
    # the exact solution by finite differences satisfies the equation, so e = u_theta - u has residual r
    h = 1e-4
    with torch.no_grad():
        t, s = torch.tensor([h, 0.0]), torch.tensor([0.0, h])
        u = lambda dx: cole_hopf(x + dx, SMALL.viscosity)  # noqa: E731
        ut, ux = (u(t) - u(-t)) / (2 * h), (u(s) - u(-s)) / (2 * h)
        uxx = (u(s) - 2 * u(0 * s) + u(-s)) / h**2
        assert float((ut + u(0 * s) * ux - SMALL.viscosity * uxx).abs().max()) < 1e-5
    start = torch.tensor([[0.0, 0.3], [0.0, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(cole_hopf(start, SMALL.viscosity), -torch.sin(torch.pi * start[:, 1]))
    assert error_bound(0.1, 0.2, 0.3, -1.0, 2.0) == pytest.approx(0.8)
    assert error_bound(0.3, 0.2, 0.0, 2.0, 0.5) == pytest.approx(0.3 * math.e)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: Burgers(viscosity=0.0), "viscosity"),
        (lambda n: Burgers().residual_bounds(n, [[[0.3, 0.0], [0.1, 1.0]]]), "box lower corner exceeds"),
        (lambda n: Burgers().residual_bounds(n, [[0.3, 0.0], [0.1, 1.0]]), "shape"),
        (lambda n: Burgers().residual_bounds(n, [[[0.0, 0.0], [0.1, 1.0]]], method="x"), "unknown method"),
        (lambda n: Burgers().initial_bounds(n, [[[0.0, 0.0], [0.1, 1.0]]]), "t = 0"),
        (lambda n: Burgers().boundary_bounds(n, [[[0.0, 0.0], [0.1, 0.0]]]), "x = -1 or 1"),
        (lambda n: Burgers().initial_error(n, torch.zeros(3, 2, dtype=torch.float64)), "shape"),
        (lambda n: Schrodinger().residual_bounds(n, [[[0.0, 0.0], [0.1, 1.0]]]), "2 output"),
        (
            lambda n: Schrodinger().boundary_error(
                network(Schrodinger(), (3,), 0), torch.ones(1, 2), order=2
            ),
            "order",
        ),
        (lambda n: DiffusionSorption(porosity=1.5), "porosity"),
        (lambda n: Burgers().residual_bounds(torch.nn.Linear(2, 1), [[[0.0, 0.0], [0.1, 1.0]]]), "TanhMLP"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(network(Burgers(), (3,), 0))
