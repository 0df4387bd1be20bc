"""E6, E7, E8: every stage of a sweep alone, against the network itself; narrow networks included."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.partial_crown import bound_network, mccormick, relax_activation
from icml24.papers.partial_crown.data import random_network
from icml24.papers.partial_crown.enclosures import Band, Box
from icml24.papers.partial_crown.joint import combined_band, summed_band
from icml24.papers.partial_crown.networks import network_derivatives
from icml24.papers.partial_crown.propagation import sweep

UNIT = torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
WIDTHS = [(2, 1, 1, 1), (2, 2, 1, 1), (2, 2, 2, 1), (2, 8, 8, 2)]


def normalised(net, x):
    return 2 * (x - net.lower) / (net.upper - net.lower) - 1


def affine_ok(e, values, z):
    """Do the affine bounds hold at points z (B, N, d), values (B, N, m)?"""
    low = torch.einsum("bmd,bnd->bnm", e.A_lo, z) + e.b_lo[:, None]
    high = torch.einsum("bmd,bnd->bnm", e.A_hi, z) + e.b_hi[:, None]
    return bool((low <= values).all()) and bool((values <= high).all())


@pytest.mark.equation("eq-partial_crown-band")
def test_band_through_a_matrix_is_the_sign_aware_substitution(draw):
    high, low = draw(3, 5, 3, seed=0), draw(3, 5, 3, seed=1, low=-1.0, high=0.0)
    c = draw(3, 4, 5, seed=2, low=-1.0)
    positive, negative = c.clamp(min=0), c.clamp(max=0)
    edges = Band.between(high, low).through(c).edges
    torch.testing.assert_close(edges[0], positive @ high + negative @ low)
    torch.testing.assert_close(edges[1], positive @ low + negative @ high)


@pytest.mark.equation("eq-partial_crown-crown")
def test_crown_is_back_substitution_of_the_lines(boxes_in):
    """E6 for one hidden layer of two neurons, written out with plain loops."""
    net = random_network((2, 2, 1), 5)
    boxes = boxes_in(UNIT, 6, 0.2, 3)
    e = bound_network(net, boxes, first=(), second=())
    w1, w2, b1, b2 = (p.detach() for p in (*net.weights, *net.biases))
    for k, box in enumerate(normalised(net, boxes)):
        centre, radius = box.mean(0), (box[1] - box[0]) / 2
        y = w1 @ centre + b1
        reach = w1.abs() @ radius
        a_lo, c_lo, a_hi, c_hi = relax_activation("tanh", y - reach, y + reach)
        slope, cut = torch.zeros(2, dtype=torch.float64), float(b2)
        for j in range(2):
            a, c = (a_hi[j], c_hi[j]) if w2[0, j] > 0 else (a_lo[j], c_lo[j])
            slope = slope + w2[0, j] * a * w1[j]
            cut = cut + float(w2[0, j] * (a * b1[j] + c))
        torch.testing.assert_close(e.u.A_hi[k, 0], slope, rtol=1e-6, atol=1e-6)
        assert abs(float(e.u.b_hi[k, 0]) - cut) < 1e-6


@pytest.mark.equation("eq-partial_crown-crown")
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("radius", [0.3, 0.02, 0.0])
def test_values_stay_inside(widths, radius, boxes_in, points_in):
    for seed in range(4):
        net = random_network(widths, seed, scale=2.0)
        boxes = boxes_in(UNIT, 16, radius, seed)
        x = points_in(boxes, 150, seed)
        e = bound_network(net, boxes, first=(), second=())
        u = net(x.reshape(-1, 2)).reshape(16, 150, -1)
        assert affine_ok(e.u, u, normalised(net, x))
        assert bool(((u >= e.u.lower[:, None]) & (u <= e.u.upper[:, None])).all())


@pytest.mark.equation("eq-partial_crown-chain")
def test_chain_is_the_product_of_mean_slopes(boxes_in):
    """E7: on a point the chain is exact; on a box its matrix is W D W D W with D the middle of sigma'."""
    net = random_network((2, 3, 4, 1), 6)
    boxes = boxes_in(UNIT, 5, 0.05, 4)
    found = sweep(net, boxes, (0, 1), (), "neuron")
    w = [p.detach() for p in net.weights]
    # the coefficient of the first layer's remainder in du/dx: perturb its constant and see what moves
    d1, d2 = found.layers[0].slope, found.layers[1].slope
    start = (w[2] @ (d2[:, :, None] * (w[1] @ (d1[:, :, None] * w[0])))) * found.parameters.scale
    box = Box.of(boxes, net.lower, net.upper)
    for i in (0, 1):
        rest = torch.zeros(5, 1, dtype=torch.float64)
        rad = torch.zeros_like(rest)
        for layer, matrix in ((0, w[2] @ (d2[:, :, None] * w[1])), (1, w[2].expand(5, -1, -1))):
            on_s1, constant, slack = found.layers[layer].first[i]
            y = network_pre(net, boxes.mean(1), layer)
            sigma = 1 - torch.tanh(y) ** 2
            rest = rest + (matrix @ (on_s1 * sigma + constant)[..., None])[..., 0]
            rad = rad + (matrix.abs() @ slack[..., None])[..., 0]
        middle = start[:, :, i] + rest
        low, high = found.intervals[1, i]
        true = network_derivatives(net, boxes.mean(1))[1][..., i]
        assert bool(((true - middle).abs() <= rad + 1e-9).all())  # the identity behind the bound
        assert bool(((low <= true) & (true <= high)).all())
        edge = found.bands[1, i].interval(box)
        assert bool((edge[0] <= middle + rad).all())
        assert bool((middle - rad <= edge[1]).all())


def network_pre(net, x, layer):
    z = normalised(net, x)
    for k in range(layer + 1):
        y = z @ net.weights[k].T + net.biases[k]
        z = torch.tanh(y)
    return y.detach()


@pytest.mark.equation("eq-partial_crown-chain")
@pytest.mark.equation("eq-partial_crown-curvature")
@pytest.mark.parametrize("product", ["neuron", "entry"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_derivatives_stay_inside(widths, product, boxes_in, points_in):
    """E8 too: affine bounds and intervals of first and second derivatives, both coordinates."""
    for seed in range(6):
        net = random_network(widths, 10 + seed, scale=1.0 + seed % 2)
        for radius in (0.3, 0.05, 0.0):
            boxes = boxes_in(UNIT, 12, radius, seed)
            x = points_in(boxes, 80, seed)
            e = bound_network(net, boxes, second=(0, 1), product=product)
            _, du, d2u = network_derivatives(net, x.reshape(-1, 2))
            for i in (0, 1):
                for enclosure, values in ((e.du[i], du[..., i]), (e.d2u[i], d2u[..., i])):
                    q = values.reshape(12, 80, -1)
                    assert bool(((q >= enclosure.lower[:, None]) & (q <= enclosure.upper[:, None])).all())
                    assert affine_ok(enclosure, q, normalised(net, x))


@pytest.mark.equation("eq-partial_crown-curvature")
def test_square_lies_between_tangent_and_secant(draw):
    """v^2 in 2 m v - m^2 + [0, r^2], the relation inside the second derivative's remainder."""
    low, high = draw(2, 500, seed=30, low=-3.0, high=3.0).sort(0).values
    v = low + (high - low) * draw(50, 500, seed=31)
    m, r = (low + high) / 2, (high - low) / 2
    rest = v**2 - 2 * m * v + m**2
    assert float(rest.min()) >= -1e-12
    assert float((rest - r**2).max()) <= 1e-12
    s2 = (draw(500, seed=32, low=-0.7, high=0.0), draw(500, seed=33, high=0.7))
    from icml24.papers.partial_crown import propagation

    line = Band(torch.zeros(1, 500, 3, dtype=torch.float64), torch.zeros(1, 500, 3, dtype=torch.float64))
    # constant bands: sigma'' fixed at its middle and v at its own, so only constants and slacks act
    v_band = line.shifted(m[None], r[None])
    s_mid, s_half = (s2[0] + s2[1]) / 2, (s2[1] - s2[0]) / 2
    s_band = line.shifted(s_mid[None], s_half[None])
    band, _ = propagation._curvature((s2[0][None], s2[1][None]), s_band, (low[None], high[None]), v_band)
    edges = [edge[0, :, -1] for edge in band.edges]
    for share in torch.linspace(0, 1, 11, dtype=torch.float64):
        q = (s2[0] + share * (s2[1] - s2[0])) * v**2
        assert bool((q <= edges[0] + 1e-12).all())
        assert bool((q >= edges[1] - 1e-12).all())


@pytest.mark.equation("eq-partial_crown-entry")
def test_entry_products_sum_to_the_package_remainder(boxes_in):
    """E7: sum over n of McCormick planes of J_jn d_n, entry by entry, gives the closed form of the package."""
    net = random_network((2, 3, 4, 1), 8)
    boxes = boxes_in(UNIT, 4, 0.1, 5)
    found = sweep(net, boxes, (0, 1), (), "entry")
    w = net.weights[1].detach()
    shorter = random_network((2, 3, 4, 1), 8)  # d^1 from a network cut after the first layer
    shorter = type(net).from_arrays(
        [shorter.weights[0].detach(), torch.eye(3, dtype=torch.float64)],
        [shorter.biases[0].detach(), torch.zeros(3, dtype=torch.float64)],
        net.lower,
        net.upper,
    )
    e = bound_network(shorter, boxes, product="entry", second=())
    pre = type(net).from_arrays(
        [p.detach() for p in net.weights[:2]], [p.detach() for p in net.biases[:2]], net.lower, net.upper
    )
    y = bound_network(pre, boxes, first=(), second=()).u
    from icml24.papers.partial_crown import activation_range

    s_low, s_high = activation_range("dtanh", y.lower, y.upper)
    for i in (0, 1):
        on_s1, constant, slack = found.layers[1].first[i]
        d_low, d_high = e.du[i].lower, e.du[i].upper
        ends = torch.stack((s_low[..., None] * w, s_high[..., None] * w))
        j_low, j_high = ends.amin(0), ends.amax(0)
        lower, upper = mccormick(
            j_low, j_high, d_low[:, None].expand_as(j_low), d_high[:, None].expand_as(j_low)
        )
        torch.testing.assert_close(upper[1], found.layers[1].slope[..., None] * w.expand_as(j_low))
        torch.testing.assert_close((upper[0] * w).sum(-1), on_s1, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(((upper[2] + lower[2]) / 2).sum(-1), constant, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(((upper[2] - lower[2]) / 2).sum(-1), slack, rtol=1e-6, atol=1e-9)


@pytest.mark.equation("eq-partial_crown-entry")
def test_neuron_is_no_wider_than_entry(boxes_in):
    for radius in (0.3, 0.1, 0.02):
        net = random_network((2, 10, 10, 10, 1), 9, scale=0.6)
        boxes = boxes_in(UNIT, 40, radius, 6)
        widths = []
        for product in ("neuron", "entry"):
            e = bound_network(net, boxes, product=product)
            widths.append([(q.upper - q.lower).median() for q in (e.du[0], e.du[1], e.d2u[1])])
        assert all(a <= b for a, b in zip(*widths, strict=True))


@pytest.mark.equation("eq-partial_crown-joint")
@pytest.mark.parametrize("widths", [(2, 1, 1, 1), (2, 2, 2, 1), (2, 8, 8, 2)])
def test_joint_bounds_hold_and_beat_the_sum(widths, boxes_in, points_in, draw):
    better = []
    for seed in range(4):
        net = random_network(widths, 20 + seed)
        boxes = boxes_in(UNIT, 20, 0.05, seed)
        found = sweep(net, boxes, (0, 1), (1,), "neuron")
        keys = [(0, 0), (1, 0), (1, 1), (2, 1)]
        c = {key: draw(20, 3, widths[-1], seed=40 + k, low=-1.0) for k, key in enumerate(keys)}
        x = points_in(boxes, 60, seed)
        u, du, d2u = network_derivatives(net, x.reshape(-1, 2))
        parts = {(0, 0): u, (1, 0): du[..., 0], (1, 1): du[..., 1], (2, 1): d2u[..., 1]}
        true = sum(torch.einsum("bmo,bno->bnm", c[key], parts[key].reshape(20, 60, -1)) for key in keys)
        widths_found = []
        for band in (combined_band(found, c), summed_band(found, c)):
            low, high = band.interval(found.box)
            assert bool(((true >= low[:, None]) & (true <= high[:, None])).all())
            widths_found.append((high - low).median())
        better.append(widths_found[0] <= widths_found[1] * 1.0001)
    assert sum(better) >= 3


@pytest.mark.equation("eq-partial_crown-joint")
def test_joint_of_one_term_is_that_term(boxes_in):
    """On points every relaxation is exact, so the combination must be the linear combination itself."""
    net = random_network((2, 6, 5, 2), 30)
    boxes = boxes_in(UNIT, 10, 0.0, 1)
    found = sweep(net, boxes, (0, 1), (1,), "neuron")
    u, du, d2u = network_derivatives(net, boxes[:, 0])
    one = torch.tensor([[[0.7, -0.4]]], dtype=torch.float64).expand(10, 1, 2)
    for key, value in (((0, 0), u), ((1, 0), du[..., 0]), ((1, 1), du[..., 1]), ((2, 1), d2u[..., 1])):
        low, high = combined_band(found, {key: one}).interval(found.box)
        expected = value @ one[0, 0]
        assert bool(((low[:, 0] <= expected) & (expected <= high[:, 0])).all())
        assert float((high - low).max()) < 1e-9


@pytest.mark.equation("eq-partial_crown-interval")
@pytest.mark.parametrize("widths", [(2, 1, 1), (2, 2, 2, 1), (2, 8, 8, 2)])
def test_interval_arithmetic_by_hand_and_looser(widths, boxes_in):
    net = random_network(widths, 31)
    boxes = boxes_in(UNIT, 12, 0.1, 2)
    ibp, crown = (bound_network(net, boxes, method=m) for m in ("ibp", "crown"))
    z = normalised(net, boxes)
    low, high = z[:, 0], z[:, 1]
    for k, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        pos, neg = w.detach().clamp(min=0), w.detach().clamp(max=0)
        low, high = low @ pos.T + high @ neg.T + b.detach(), high @ pos.T + low @ neg.T + b.detach()
        if k < len(net.weights) - 1:
            low, high = torch.tanh(low), torch.tanh(high)
    torch.testing.assert_close(ibp.u.lower, low, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ibp.u.upper, high, rtol=1e-9, atol=1e-9)
    assert not ibp.d2u[1].A_hi.any()  # the case of zero slopes
    for loose, tight in ((ibp.u, crown.u), (ibp.du[1], crown.du[1]), (ibp.d2u[1], crown.d2u[1])):
        assert bool((loose.lower <= tight.lower + 1e-9).all())
        assert bool((tight.upper <= loose.upper + 1e-9).all())


@pytest.mark.equation("eq-partial_crown-interval")
def test_interval_width_grows_with_the_norms():
    """E11: to first order the width of u is |W2| diag(sigma') |W1| r."""
    net = random_network((2, 5, 1), 32)
    x = torch.tensor([0.4, 0.2], dtype=torch.float64)
    r = 1e-6
    e = bound_network(net, torch.stack((x - r, x + r))[None], first=(), second=(), method="ibp")
    w1, w2 = (p.detach() for p in net.weights)
    y = w1 @ normalised(net, x) + net.biases[0].detach()
    norm = w2.abs() @ torch.diag(1 - torch.tanh(y) ** 2) @ w1.abs() @ (r * net_scale(net))
    assert abs(float((e.u.upper - e.u.lower) / (2 * norm)) - 1) < 1e-4


def net_scale(net):
    return 2 / (net.upper - net.lower)
