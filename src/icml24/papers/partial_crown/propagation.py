r"""One pass through a network: enclosures of all pre-activations and of all derivative recursions.

Layer by layer, each quantity is kept as a band and as an interval. The chain of mean slopes

.. math:: G_{K,k} = W^{K+1} D_K W^K D_{K-1} \cdots W^{k+1}, \qquad D_k = \mathrm{diag}(\mathrm{mid}\,\sigma'_k),

is common to first derivatives in every coordinate and to second derivatives: the centred product puts the
same matrix in front on both sides of a bound (eq-partial_crown-chain). It is extended by one product a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import activations
from .enclosures import Band, Box, Interval, meet
from .networks import TanhMLP
from .products import product_range, square_range

__all__ = ["Layer", "Sweep", "interval_sweep", "sweep"]

Lines = tuple[Tensor, Tensor, Tensor, Tensor]
#: Rounding of a product of magnitude one, summed over a row: local pad of the recursions.
PAD = 1e-13


@dataclass
class Parameters:
    """float64 copies of a network's parameters, detached, with what rounding margins need."""

    weights: list[Tensor]
    biases: list[Tensor]
    lower: Tensor
    upper: Tensor

    @classmethod
    def of(cls, net: TanhMLP) -> Parameters:
        """Upcast to float64."""
        double = [[p.detach().to(torch.float64) for p in group] for group in (net.weights, net.biases)]
        return cls(double[0], double[1], net.lower.to(torch.float64), net.upper.to(torch.float64))

    @property
    def scale(self) -> Tensor:
        """Physical to normalised: dz/dx, shape (d,)."""
        return 2 / (self.upper - self.lower)


@dataclass
class Layer:
    """What one layer leaves behind: lines of the activations in y, ranges, and the affine remainders."""

    lines: dict[str, Lines]
    slope: Tensor | None = None  # mid of sigma', (B, n)
    #: d = slope v + first[0] sigma' + first[1], up to first[2]
    first: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    #: h = slope g + second[0] sigma' + second[1] sigma'' + second[2] v + second[3], up to second[4]
    second: dict[int, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = field(default_factory=dict)


@dataclass
class Sweep:
    """Everything certified about a batch of boxes."""

    parameters: Parameters
    box: Box
    layers: list[Layer] = field(default_factory=list)
    bands: dict[tuple[int, int], Band] = field(default_factory=dict)  # (order, coordinate) -> output band
    intervals: dict[tuple[int, int], Interval] = field(default_factory=dict)


def sweep(
    net: TanhMLP, boxes: Tensor, first: tuple[int, ...], second: tuple[int, ...], product: str
) -> Sweep:
    """Bound values, first and second derivatives on boxes (B, 2, d); `second` must be among `first`."""
    p = Parameters.of(net)
    box = Box.of(boxes, p.lower, p.upper)
    out = Sweep(p, box)
    batch, d = box.centre.shape
    chain = p.weights[0].expand(batch, -1, -1)  # G with the columns of d^0
    remainders: dict[tuple[int, int], list[Band]] = {
        (o, i): [] for o, c in ((1, first), (2, second)) for i in c
    }
    d_old = {i: _unit(batch, d, i, p.scale) for i in first}
    h_old = {i: _nothing(batch, d) for i in second}
    tanh_lines: list[Lines] = []
    z_range = (box.centre - box.radius, box.centre + box.radius)
    for k, (w, b) in enumerate(zip(p.weights, p.biases, strict=True)):
        terms = z_range[0].abs().maximum(z_range[1].abs()) @ w.abs().T + b.abs()
        y_band = _values(p, tanh_lines, k, box)
        y = meet(y_band.interval(box), _linear(w, z_range, b, terms))
        v, v_band = {}, {}
        g, g_band = {}, {}
        width = chain.abs()
        for (order, i), bands in remainders.items():
            start = chain[:, :, i] * p.scale[i] if order == 1 else torch.zeros_like(chain[:, :, 0])
            band = _collect(chain[:, :, d:], width[:, :, d:], bands, start, d)
            old = d_old[i] if order == 1 else h_old[i]
            plain = _linear(w, old.range, None, old.size @ w.abs().T)
            target = (v, v_band) if order == 1 else (g, g_band)
            target[0][i], target[1][i] = meet(band.interval(box), plain), band
        if k == len(p.weights) - 1:
            out.bands[0, 0], out.intervals[0, 0] = y_band, y
            for i in first:
                out.bands[1, i], out.intervals[1, i] = v_band[i], v[i]
            for i in second:
                out.bands[2, i], out.intervals[2, i] = g_band[i], g[i]
            return out
        rounding = PAD * (1 + 0.01 * terms)
        lines = {"tanh": _padded(activations._relax("tanh", *y), rounding)}
        tanh_lines.append(lines["tanh"])
        z_range = (torch.tanh(y[0]) - rounding, torch.tanh(y[1]) + rounding)
        layer = Layer(lines)
        out.layers.append(layer)
        if not first:
            continue
        s1 = _widened(activations._range("dtanh", *y), rounding)
        lines["dtanh"] = _padded(activations._relax("dtanh", *y), rounding)
        s1_band = _compose(lines["dtanh"], y_band)
        layer.slope = 0.5 * (s1[0] + s1[1])
        s1_half = 0.5 * (s1[1] - s1[0])
        if second:
            s2 = _widened(activations._range("d2tanh", *y), 4 * rounding)
            lines["d2tanh"] = _padded(activations._relax("d2tanh", *y), 4 * rounding)
            s2_band = _compose(lines["d2tanh"], y_band)
        d_new, h_new = {}, {}
        for i in first:
            old = d_old[i]
            mid, size, half = _operand(product, w, v[i], old)
            pad = PAD * (old.size @ w.abs().T)
            layer.first[i] = (mid, -layer.slope * mid, s1_half * half + pad)
            rest = Band(mid[..., None] * s1_band.mid, size[..., None] * s1_band.rad)
            rest = rest.shifted(*layer.first[i][1:])
            remainders[1, i].append(rest)
            band = v_band[i].times(layer.slope).plus(rest)
            d_new[i] = _Kept.of(band, meet(band.interval(box), product_range(s1, v[i])))
        for i in second:
            old_d, old_h = d_old[i], h_old[i]
            pad = PAD * ((old_d.size @ w.abs().T) ** 2 + old_h.size @ w.abs().T)
            mid, size, half = _operand(product, w, g[i], old_h)
            part = Band(mid[..., None] * s1_band.mid, size[..., None] * s1_band.rad)
            if product == "neuron":
                rest, record = _curvature(s2, s2_band, v[i], v_band[i])
            else:
                rest, record = _curvature_entry(w, s2, s2_band, old_d, box), None
            constant, slack = -layer.slope * mid, s1_half * half + pad
            rest = rest.plus(part).shifted(constant, slack)
            if record is not None:
                layer.second[i] = (mid, *record[:2], record[2] + constant, record[3] + slack)
            remainders[2, i].append(rest)
            band = g_band[i].times(layer.slope).plus(rest)
            plain = _interval_sum(product_range(s2, square_range(v[i])), product_range(s1, g[i]))
            h_new[i] = _Kept.of(band, meet(band.interval(box), plain))
        d_old, h_old = d_new, h_new
        following = p.weights[k + 1]
        chain = torch.cat((following @ (layer.slope[..., None] * chain), following.expand(batch, -1, -1)), -1)
    raise AssertionError("a network has at least one layer")


def interval_sweep(net: TanhMLP, boxes: Tensor, first: tuple[int, ...], second: tuple[int, ...]) -> Sweep:
    """The same recursions in interval arithmetic alone: all slopes zero."""
    p = Parameters.of(net)
    box = Box.of(boxes, p.lower, p.upper)
    out = Sweep(p, box)
    batch, dim = box.centre.shape
    z = (box.centre - box.radius, box.centre + box.radius)
    d = {i: _unit(batch, dim, i, p.scale).range for i in first}
    h = {i: _nothing(batch, dim).range for i in second}
    for k, (w, b) in enumerate(zip(p.weights, p.biases, strict=True)):
        terms = _size(z) @ w.abs().T + b.abs()
        y = _linear(w, z, b, terms)
        v = {i: _linear(w, d[i], None, _size(d[i]) @ w.abs().T) for i in first}
        g = {i: _linear(w, h[i], None, _size(h[i]) @ w.abs().T) for i in second}
        if k == len(p.weights) - 1:
            found = {(0, 0): y, **{(1, i): v[i] for i in first}, **{(2, i): g[i] for i in second}}
            for key, (low, high) in found.items():
                mid = torch.zeros(*low.shape, dim + 1, dtype=low.dtype)
                rad = mid.clone()
                mid[..., -1], rad[..., -1] = 0.5 * (low + high), 0.5 * (high - low)
                out.bands[key], out.intervals[key] = Band(mid, rad), meet((low, high))
            return out
        rounding = PAD * (1 + 0.01 * terms)
        z = _widened((torch.tanh(y[0]), torch.tanh(y[1])), rounding)
        s1 = _widened(activations._range("dtanh", *y), rounding)
        s2 = _widened(activations._range("d2tanh", *y), 4 * rounding)
        d = {i: _widened(product_range(s1, v[i]), PAD * _size(v[i])) for i in first}
        h = {
            i: _widened(
                _interval_sum(product_range(s2, square_range(v[i])), product_range(s1, g[i])),
                PAD * (_size(v[i]) ** 2 + _size(g[i])),
            )
            for i in second
        }
    raise AssertionError("a network has at least one layer")


@dataclass(frozen=True)
class _Kept:
    """A derivative after the activation: band, interval and its centre, radius, size, (B, n) each."""

    band: Band
    range: Interval
    centre: Tensor
    radius: Tensor
    size: Tensor

    @classmethod
    def of(cls, band: Band, interval: Interval) -> _Kept:
        low, high = interval
        return cls(band, interval, 0.5 * (low + high), 0.5 * (high - low), _size(interval))


def _unit(batch: int, d: int, i: int, scale: Tensor) -> _Kept:
    """d^0 = s_i e_i, exactly."""
    mid = torch.zeros(batch, d, d + 1, dtype=scale.dtype)
    mid[:, i, -1] = scale[i]
    return _Kept.of(Band(mid, torch.zeros_like(mid)), (mid[..., -1], mid[..., -1]))


def _nothing(batch: int, d: int) -> _Kept:
    """h^0 = 0."""
    mid = torch.zeros(batch, d, d + 1, dtype=torch.float64)
    return _Kept.of(Band(mid, mid), (mid[..., -1], mid[..., -1]))


def _values(p: Parameters, tanh_lines: list[Lines], k: int, box: Box) -> Band:
    """Band of y^k: back-substitution of the tanh lines, upper form of the rows [W; -W]."""
    w = p.weights[k]
    n = w.shape[0]
    high = upper_form(p, torch.cat((w, -w)), torch.cat((p.biases[k], -p.biases[k])), tanh_lines, box)
    return Band.between(high[:, :n], -high[:, n:])


def upper_form(p: Parameters, rows: Tensor, constant: Tensor, lines: list[Lines], box: Box) -> Tensor:
    """Affine upper bound (B, m, d + 1), centred, of ``rows @ z + constant``, z after the last of `lines`."""
    for j in range(len(lines) - 1, -1, -1):
        slope_lo, cut_lo, slope_hi, cut_hi = lines[j]
        positive = rows.clamp(min=0)
        negative = rows - positive
        constant = constant + ((positive @ cut_hi[..., None] + negative @ cut_lo[..., None]).squeeze(-1))
        rows = positive * slope_hi[:, None] + negative * slope_lo[:, None]
        constant = constant + rows @ p.biases[j]
        rows = rows @ p.weights[j]
    rows = rows.expand(len(box.centre), -1, -1)
    shift = (rows @ box.centre[..., None]).squeeze(-1)
    return torch.cat((rows, (constant + shift)[..., None]), -1)


def _collect(chain: Tensor, size: Tensor, bands: list[Band], start: Tensor, d: int) -> Band:
    """Back-substitution in one product: chain times the remainders of all layers, plus the start."""
    if bands:
        mid = chain @ torch.cat([band.mid for band in bands], 1)
        rad = size @ torch.cat([band.rad for band in bands], 1)
    else:
        mid = torch.zeros(*start.shape, d + 1, dtype=start.dtype)
        rad = torch.zeros_like(mid)
    return Band(mid, rad).shifted(start, PAD * start.abs())


def _compose(lines: Lines, y: Band) -> Band:
    """Band of a(y) from its lines and the band of y: lines of either sign of slope."""
    slope_lo, cut_lo, slope_hi, cut_hi = lines
    high = y.times(slope_hi).shifted(cut_hi)
    low = y.times(slope_lo).shifted(cut_lo)
    return Band.between(high.edges[0], low.edges[1])


def _operand(product: str, w: Tensor, v: Interval, old: _Kept) -> tuple[Tensor, Tensor, Tensor]:
    """What multiplies sigma': centre, its size in sign-split sums, radius (eq-partial_crown-entry)."""
    if product == "neuron":
        mid = 0.5 * (v[0] + v[1])
        return mid, mid.abs(), 0.5 * (v[1] - v[0])
    return old.centre @ w.T, old.centre.abs() @ w.abs().T, old.radius @ w.abs().T


def _curvature(
    s2: Interval, s2_band: Band, v: Interval, v_band: Band
) -> tuple[Band, tuple[Tensor, Tensor, Tensor, Tensor]]:
    r"""Band of sigma'' v^2 with v^2 in 2 m v - m^2 + [0, r^2], and its record for the joint pass."""
    mid, half = 0.5 * (s2[0] + s2[1]), 0.5 * (s2[1] - s2[0])
    m, r = 0.5 * (v[0] + v[1]), 0.5 * (v[1] - v[0])
    low, high = square_range(v)
    w_mid, w_half = 0.5 * (low + high), 0.5 * (high - low)
    slope = 2 * mid * m
    constant = mid * (0.5 * r * r - m * m - w_mid)
    slack = mid.abs() * 0.5 * r * r + half * w_half
    band = v_band.times(slope).plus(s2_band.times(w_mid)).shifted(constant, slack)
    return band, (w_mid, slope, constant, slack)


def _curvature_entry(w: Tensor, s2: Interval, s2_band: Band, old: _Kept, box: Box) -> Band:
    """Band of sum_n M_jn d_n, M_jn = W_jn sigma''_j e_j, with one product an entry: the paper's recursion."""
    e_band = old.band.through(w)
    e = meet(e_band.interval(box), _linear(w, old.range, None, old.size @ w.abs().T))
    mid, half = 0.5 * (s2[0] + s2[1]), 0.5 * (s2[1] - s2[0])
    m, r = 0.5 * (e[0] + e[1]), 0.5 * (e[1] - e[0])
    q_band = e_band.times(mid).plus(s2_band.times(m)).shifted(-mid * m, half * r)
    q = meet(q_band.interval(box), product_range(s2, e))
    q_mid, q_half = 0.5 * (q[0] + q[1]), 0.5 * (q[1] - q[0])
    centre, size, radius = _operand("entry", w, q, old)
    part = Band(centre[..., None] * q_band.mid, size[..., None] * q_band.rad)
    return e_band.times(q_mid).plus(part).shifted(-q_mid * centre, q_half * radius)


def _linear(w: Tensor, x: Interval, bias: Tensor | None, terms: Tensor) -> Interval:
    """Interval of ``w @ x + bias``; `terms` is the sum of the absolute terms, for the margin."""
    centre, radius = 0.5 * (x[0] + x[1]), 0.5 * (x[1] - x[0])
    mid = centre @ w.T
    if bias is not None:
        mid = mid + bias
    spread = radius @ w.abs().T + PAD * terms
    return mid - spread, mid + spread


def _widened(x: Interval, by: Tensor) -> Interval:
    return x[0] - by, x[1] + by


def _padded(lines: Lines, by: Tensor) -> Lines:
    return lines[0], lines[1] - by, lines[2], lines[3] + by


def _interval_sum(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _size(x: Interval) -> Tensor:
    return torch.maximum(x[0].abs(), x[1].abs())
