"""The public bounds: parity with the released code, its unsound cases, soundness search, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.partial_crown import Burgers, TanhMLP, bound_network, network_derivatives
from icml24.papers.partial_crown import experiments as ex
from icml24.papers.partial_crown.data import random_network, released_bounds, released_unsound, small_pinns
from icml24.papers.partial_crown.soundness import search, search_equation

BOX = [[[0.1, -0.2], [0.3, 0.4]]]


def test_parity_widths_and_soundness(stored, burgers_net):
    """Every width at most 1.02 of the released one, means of the residual below the bars, samples inside."""
    p = stored("bounds")
    ratios = ex.released_comparison(burgers_net, {k: v.numpy() for k, v in p.items()})
    for product, bar in (("neuron", 0.35), ("entry", 0.6)):
        assert max(r.max() for r in ratios[product].values()) <= 1.02
        assert np.exp(np.log(ratios[product]["r"]).mean()) <= bar
        e = bound_network(burgers_net, p["boxes"], product=product)
        low, high = Burgers().residual_bounds(burgers_net, p["boxes"], product=product)
        found = {"u": (e.u.lower[:, 0], e.u.upper[:, 0]), "r": (low, high)}
        found |= {
            "ut": (e.du[0].lower[:, 0], e.du[0].upper[:, 0]),
            "ux": (e.du[1].lower[:, 0], e.du[1].upper[:, 0]),
        }
        found["uxx"] = (e.d2u[1].lower[:, 0], e.d2u[1].upper[:, 0])
        for name, (a, b) in found.items():
            assert bool((a <= p[f"sample_{name}"][:, 0]).all()), (product, name)
            assert bool((b >= p[f"sample_{name}"][:, 1]).all()), (product, name)


def test_released_bounds_miss_a_value_and_ours_do_not():
    cases = released_unsound()
    assert len(cases) == 3
    for case in cases:
        value = float(network_derivatives(case["net"], case["witness"][None])[2][0, 0, 1])
        assert abs(value - case["value"]) < 1e-9
        low, high = case["official"]
        assert not low <= value <= high
        inside = (case["box"][0] <= case["witness"]) & (case["witness"] <= case["box"][1])
        assert bool(inside.all())
        for product in ("neuron", "entry"):
            e = bound_network(case["net"], case["box"][None], product=product).d2u[1]
            assert float(e.lower) <= value <= float(e.upper)


def test_package_carries_the_parity_files(stored):
    carried = released_bounds()
    for name, value in stored("bounds").items():
        np.testing.assert_array_equal(carried[name], value.numpy())


def test_no_point_outside():
    """The search of the chapter, small: random narrow and wide networks in both dtypes, and a trained one."""
    config = ex.configure("quick", seed=3)
    networks = {**ex.sound_networks(config), "trained": small_pinns()[1500]}
    found = search(networks, 12, 300, 3, products=("neuron", "entry"))
    assert found.points >= 30_000
    assert found.ascended > 30_000
    assert found.violations == 0
    assert found.closest >= 0


def test_search_finds_a_wrong_bound(monkeypatch):
    """The search itself can fail: with bounds shrunk by a thousandth it reports violations."""
    from icml24.papers.partial_crown import soundness

    def shrunk(net, boxes, **options):
        e = bound_network(net, boxes, **options)
        width = 1e-3 * (e.u.upper - e.u.lower)
        return type(e)(
            type(e.u)(e.u.A_lo, e.u.b_lo, e.u.A_hi, e.u.b_hi, e.u.lower + width, e.u.upper - width),
            e.du,
            e.d2u,
        )

    monkeypatch.setattr(soundness, "bound_network", shrunk)
    assert search({"n": random_network((2, 1, 1), 0)}, 12, 300, 3).violations > 0


def test_residual_of_the_released_network(burgers_net):
    found = search_equation(Burgers(), burgers_net, 24, 400, 5)
    assert found.violations == 0


def test_no_point_outside_any_bound_of_the_equations():
    """Residuals, initial and boundary bounds of the four equations on narrow networks in both precisions."""
    pairs = ex.sound_equations(ex.configure("quick", seed=4))
    assert {(type(pde).__name__, net.weights[0].dtype) for pde, net in pairs} == {
        (name, dtype)
        for name in ("Burgers", "AllenCahn", "Schrodinger", "DiffusionSorption")
        for dtype in (torch.float32, torch.float64)
    }
    for pde, net in pairs:
        found = search_equation(pde, net, 16, 120, 4)
        assert found.points >= 16 * 120
        assert found.violations == 0, type(pde).__name__


@pytest.mark.parametrize("scale", [10.0, 1e-3])
def test_margins_cover_rounding_on_points(scale, draw):
    """Degenerate boxes: what is left between bound and value is rounding, and must be on the right side."""
    for seed, widths in enumerate([(2, 1, 1), (2, 40, 40, 1), (2, 12, 12, 12, 12, 2)]):
        net = random_network(widths, seed, scale=scale / widths[1] ** 0.5)
        x = draw(40, 2, seed=seed, low=-1.0)
        e = bound_network(net, torch.stack((x, x), 1), second=(0, 1))
        u, du, d2u = network_derivatives(net, x)
        pairs = [
            (e.u, u),
            *((e.du[i], du[..., i]) for i in (0, 1)),
            *((e.d2u[i], d2u[..., i]) for i in (0, 1)),
        ]
        for enclosure, value in pairs:
            assert bool(((enclosure.lower <= value) & (value <= enclosure.upper)).all())
            assert float((enclosure.upper - enclosure.lower).max()) < 1e-6 * (1 + float(value.abs().max()))


def test_single_precision_is_read_exactly(draw):
    single = random_network((2, 6, 6, 1), 4, dtype=torch.float32)
    boxes = torch.tensor(BOX, dtype=torch.float32)
    e = bound_network(single, boxes)
    assert e.u.lower.dtype == torch.float64
    f = bound_network(single.double(), boxes.double())
    torch.testing.assert_close(e.d2u[1].upper, f.d2u[1].upper, rtol=0, atol=0)


def test_shapes_and_input_kinds():
    net = random_network((2, 4, 3), 5)
    for boxes in (BOX, np.array(BOX), torch.tensor(BOX), torch.tensor(BOX, requires_grad=True)):
        e = bound_network(net, boxes)
        assert e.u.A_lo.shape == (1, 3, 2)
        assert e.u.b_hi.shape == e.u.lower.shape == e.d2u[1].upper.shape == (1, 3)
        assert set(e.du) == {0, 1}
        assert set(e.d2u) == {1}
        assert not e.u.lower.requires_grad
    assert bound_network(net, np.zeros((0, 2, 2))).u.lower.shape == (0, 3)
    strided = torch.tensor(BOX, dtype=torch.float64).permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert torch.equal(bound_network(net, strided).u.lower, bound_network(net, BOX).u.lower)
    swapped = np.array(BOX)[:, ::-1]  # negative strides, corners in the wrong order
    with pytest.raises(ValueError, match="box lower corner exceeds upper corner"):
        bound_network(net, swapped)
    again = bound_network(net, np.ascontiguousarray(swapped)[:, ::-1])
    assert torch.equal(again.u.lower, bound_network(net, BOX).u.lower)
    only = bound_network(net, BOX, first=(), second=(0,))
    assert set(only.du) == set()
    assert set(only.d2u) == {0}


def test_three_inputs_and_no_hidden_layer():
    net = TanhMLP([3, 5, 2], [0, 0, 0], [1, 2, 3])
    e = bound_network(net, torch.tensor([[[0.1, 0.2, 0.3], [0.2, 0.3, 0.5]]]), first=(2,), second=(0,))
    assert e.u.A_hi.shape == (1, 2, 3)
    line = TanhMLP([2, 1], [0, 0], [1, 1])
    e = bound_network(line, BOX)
    true = network_derivatives(line, torch.tensor(BOX, dtype=torch.float64)[:, 0])[1].detach()
    assert abs(float(e.du[0].upper - e.du[0].lower)) < 1e-10
    assert abs(float(e.du[0].upper - true[0, 0, 0])) < 1e-10


def test_same_bits_twice():
    net = random_network((2, 8, 8, 1), 6)
    results = [bound_network(net, BOX).d2u[1] for _ in range(2)]
    assert torch.equal(results[0].A_hi, results[1].A_hi)
    assert torch.equal(results[0].lower, results[1].lower)


def broken(position):
    net = random_network((2, 3, 1), 0)
    with torch.no_grad():
        net.weights[position].view(-1)[0] = float("nan")
    return net


def cornerless():
    net = random_network((2, 3, 1), 0)
    net.upper[1] = float("inf")
    return net


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: bound_network(n, [[0.0, 0.0], [1.0, 1.0]]), r"shape \(B, 2, 2\)"),
        (lambda n: bound_network(n, np.zeros((3, 2, 3))), r"\(3, 2, 3\)"),
        (lambda n: bound_network(n, [[[0.3, 0.0], [0.1, 1.0]]]), "box lower corner exceeds upper corner"),
        (lambda n: bound_network(n, [[[float("nan"), 0.0], [0.1, 1.0]]]), "finite"),
        (lambda n: bound_network(n, [[[0.0, 0.0], [float("inf"), 1.0]]]), "finite"),
        (lambda n: bound_network(broken(1), BOX), r"weights\[1\]"),
        (lambda n: bound_network(cornerless(), BOX), "upper corner of the network"),
        (lambda n: bound_network(n, BOX, method="zonotope"), "crown"),
        (lambda n: bound_network(n, BOX, product="matrix"), "neuron"),
        (lambda n: bound_network(n, BOX, second=(2,)), "second"),
        (lambda n: bound_network(n, BOX, first=(0, 0)), "first"),
        (lambda n: bound_network(torch.nn.Linear(2, 1), BOX), "TanhMLP"),
        (lambda n: bound_network(n, "boxes"), "boxes"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_network((2, 3, 1), 0))
