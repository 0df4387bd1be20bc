"""E2, E3, E4: roots, lines and areas of the relaxations; parity with the released lines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.partial_crown import activation_range, relax_activation
from icml24.papers.partial_crown.activations import KINDS, critical_points


def exact(kind, z):
    s = np.tanh(z)
    return {"tanh": s, "dtanh": 1 - s**2, "d2tanh": -2 * s * (1 - s**2)}[kind]


def slope_of(kind, z):
    s = np.tanh(z)
    return {"tanh": 1 - s**2, "dtanh": -2 * s * (1 - s**2), "d2tanh": (1 - s**2) * (6 * s**2 - 2)}[kind]


def intervals(n, seed):
    g = torch.Generator().manual_seed(seed)
    centre = 6 * torch.rand(n, generator=g, dtype=torch.float64) - 3
    width = 10 ** (5 * torch.rand(n, generator=g, dtype=torch.float64) - 4)
    return centre - width / 2, centre + width / 2


def samples(low, high, n=400):
    t = torch.linspace(0, 1, n, dtype=torch.float64)[:, None]
    return torch.minimum(torch.maximum(low + (high - low) * t, low), high)


@pytest.mark.equation("eq-partial_crown-roots")
@pytest.mark.parametrize("kind", KINDS)
def test_roots_solve_and_none_is_missing(kind):
    """E2: |f'(z) - a| < 1e-9, and as many roots as sign changes on a fine grid."""
    bounds = {"tanh": (0.01, 0.99), "dtanh": (-0.76, 0.76), "d2tanh": (-1.99, 0.66)}[kind]
    slopes = torch.linspace(*bounds, 41, dtype=torch.float64) + 1e-4
    z, s = critical_points(kind, slopes)
    real = torch.isfinite(z)
    np.testing.assert_allclose(s[real], np.tanh(z[real]), atol=1e-12)
    grid = np.linspace(-6, 6, 240_002)
    for k, a in enumerate(slopes.tolist()):
        found = z[:, k][real[:, k]].numpy()
        assert np.abs(slope_of(kind, found) - a).max() < 1e-9
        values = slope_of(kind, grid) - a
        assert len(np.unique(np.round(found, 9))) == int((np.sign(values[1:]) != np.sign(values[:-1])).sum())


@pytest.mark.equation("eq-partial_crown-line")
@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_sound(kind):
    """E3: 33,000 intervals a kind, widths 1e-4 to 10, 400 points each, no violation at all."""
    low, high = intervals(33_000, 11)
    a, b, c, d = relax_activation(kind, low, high)
    worst = -math.inf
    for part in torch.arange(len(low)).split(3000):
        z = samples(low[part], high[part])
        f = torch.from_numpy(exact(kind, z.numpy()))
        worst = max(worst, float((a[part] * z + b[part] - f).max()), float((f - c[part] * z - d[part]).max()))
    assert worst <= 0


@pytest.mark.equation("eq-partial_crown-area")
@pytest.mark.parametrize("kind", KINDS)
def test_no_sound_line_has_less_area(kind, draw):
    """E4: secant, tangents and 200 random slopes, each with its best intercept on a grid, never do better."""
    low, high = intervals(60, 12)
    a, b, c, d = relax_activation(kind, low, high)
    z = samples(low, high, 2001)
    f = torch.from_numpy(exact(kind, z.numpy()))
    m, width = 0.5 * (low + high), high - low
    secant = (f[-1] - f[0]) / width
    tangents = [torch.from_numpy(slope_of(kind, p.numpy())) for p in (low, m, high)]
    spread = tangents[1] + 2 * draw(200, 60, seed=13, low=-1.0) * width.clamp(max=1)
    for slope in (secant, *tangents, *spread):
        above = (f - slope * (z - m)).amax(0)  # height at the middle of the best line of this slope
        below = (f - slope * (z - m)).amin(0)
        # the grid misses part of an extreme, by less than f'' h^2 / 8 <= (width / 2000)^2 / 4
        slack = 1e-9 + (width / 2000) ** 2 + 1e-3 * (above - below)
        assert bool((c * m + d <= above + slack).all())
        assert bool((a * m + b >= below - slack).all())


@pytest.mark.parametrize("kind", KINDS)
def test_parity_with_released_lines(kind, stored):
    p = stored("relax")
    a, b, c, d = relax_activation(kind, p["lower"], p["upper"])
    m = 0.5 * (p["lower"] + p["upper"])
    area = ((c - a) * m + d - b) * (p["upper"] - p["lower"])
    assert bool((area <= 1.02 * p[f"{kind}_opt_area"] + 1e-9).all())
    theirs = p[f"{kind}_official"]
    official = ((theirs[:, 2] - theirs[:, 0]) * m + theirs[:, 3] - theirs[:, 1]) * (p["upper"] - p["lower"])
    assert float((official / area).median()) > 1.4
    low, high = activation_range(kind, p["lower"], p["upper"])
    assert bool((low <= p[f"{kind}_range"][:, 0]).all())
    assert bool((high >= p[f"{kind}_range"][:, 1]).all())
    assert float(((high - low) - (p[f"{kind}_range"][:, 1] - p[f"{kind}_range"][:, 0])).max()) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "ends", [(-800.0, 800.0), (5.0, 30.0), (-30.0, -5.0), (0.3, 0.3), (0.0, 0.0), (-1e8, 40.0)]
)
def test_extreme_intervals(kind, ends):
    low, high = (torch.tensor([e], dtype=torch.float64) for e in ends)
    a, b, c, d = relax_activation(kind, low, high)
    z = torch.cat(
        (samples(low, high, 20_001), torch.linspace(-3, 3, 601, dtype=torch.float64)[:, None])
    ).clamp(*ends)
    f = torch.from_numpy(exact(kind, z.numpy()))
    assert all(torch.isfinite(t).all() for t in (a, b, c, d))
    assert bool((a * z + b <= f).all())
    assert bool((f <= c * z + d).all())
    if ends[0] == ends[1]:
        assert float(c * low + d - a * low - b) < 1e-6


def test_inputs_of_other_kinds():
    for value in ([-1.0, 0.5], np.array([-1.0, 0.5], np.float32), torch.tensor([-1.0, 0.5])):
        lines = relax_activation("tanh", value, [1.0, 2.0])
        assert all(t.shape == (2,) and t.dtype == torch.float64 for t in lines)
    assert relax_activation("tanh", -1.0, 1.0)[0].shape == ()
    assert activation_range("dtanh", torch.zeros(0), torch.zeros(0))[0].shape == (0,)
    assert not relax_activation("tanh", torch.zeros(2, requires_grad=True), torch.ones(2))[0].requires_grad


@pytest.mark.parametrize("function", [relax_activation, activation_range])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("relu", [0.0], [1.0]), "unknown kind"),
        (("tanh", [1.0], [0.0]), "exceeds"),
        (("tanh", [math.nan], [0.0]), "finite"),
        (("tanh", [0.0], [math.inf]), "finite"),
        (("tanh", [0.0, 1.0], [1.0, 2.0, 3.0]), "shape"),
    ],
)
def test_bad_input(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
