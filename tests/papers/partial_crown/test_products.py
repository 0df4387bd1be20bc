"""E5: planes around a product; parity with the released function."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.partial_crown import mccormick
from icml24.papers.partial_crown.products import product_range, square_range


def rectangles(draw, n, seed):
    ends = [draw(2, n, seed=seed + k, low=-3.0, high=3.0).sort(0).values for k in range(2)]
    return (*ends[0], *ends[1])


@pytest.mark.equation("eq-partial_crown-mccormick")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_planes_enclose_the_product(alpha, draw):
    xl, xu, yl, yu = rectangles(draw, 1000, 20)
    lower, upper = mccormick(xl, xu, yl, yu, alpha_lower=alpha, alpha_upper=1 - alpha)
    x = xl + (xu - xl) * draw(100, 1000, seed=22)
    y = yl + (yu - yl) * draw(100, 1000, seed=23)
    planes = [cx * x + cy * y + c for cx, cy, c in (lower, upper)]
    assert float((planes[0] - x * y).max()) < 1e-12
    assert float((x * y - planes[1]).max()) < 1e-12


@pytest.mark.equation("eq-partial_crown-mccormick")
def test_planes_touch_two_corners(draw):
    xl, xu, yl, yu = rectangles(draw, 50, 24)
    (cx, cy, c), (dx, dy, d) = mccormick(xl, xu, yl, yu, alpha_lower=1.0, alpha_upper=1.0)
    for x, y in ((xl, yl), (xl, yu), (xu, yl)):
        torch.testing.assert_close(cx * x + cy * y + c, x * y, atol=1e-12, rtol=0)
    for x, y in ((xu, yl), (xu, yu), (xl, yl)):
        torch.testing.assert_close(dx * x + dy * y + d, x * y, atol=1e-12, rtol=0)


@pytest.mark.equation("eq-partial_crown-centred")
def test_half_is_the_centred_product(draw):
    """At one half both planes have one gradient, and lie radius times radius away: a quarter of the area."""
    xl, xu, yl, yu = rectangles(draw, 200, 26)
    lower, upper = mccormick(xl, xu, yl, yu)
    torch.testing.assert_close(lower[:2], upper[:2])
    gap = (upper[2] - lower[2]) / 2
    torch.testing.assert_close(gap, (xu - xl) * (yu - yl) / 4)
    mx, my = (xl + xu) / 2, (yl + yu) / 2
    torch.testing.assert_close(torch.stack(lower[:2]), torch.stack((my, mx)))
    torch.testing.assert_close((upper[2] + lower[2]) / 2, -mx * my)


def test_parity(stored):
    p = stored("mccormick")
    for case in ("half", "lo", "hi", "mix"):
        low, high = (
            round(a, 6) for a in p[f"{case}_alpha"].tolist()
        )  # stored in float32, used as 0.3 and 0.8
        ours = mccormick(p["x_lo"], p["x_hi"], p["y_lo"], p["y_hi"], alpha_lower=low, alpha_upper=high)
        for side, name in zip(ours, ("lower", "upper"), strict=True):
            torch.testing.assert_close(torch.stack(side, 1), p[f"{case}_{name}"], rtol=1e-12, atol=1e-12)


def test_ranges_are_exact(draw):
    xl, xu, yl, yu = rectangles(draw, 300, 28)
    t = torch.linspace(0, 1, 41, dtype=torch.float64)
    grid = (xl + (xu - xl) * t[:, None])[:, None] * (yl + (yu - yl) * t[:, None])[None]
    for ours, sampled in zip(
        product_range((xl, xu), (yl, yu)), (grid.amin((0, 1)), grid.amax((0, 1))), strict=True
    ):
        torch.testing.assert_close(ours, sampled, rtol=1e-12, atol=1e-12)
    low, high = square_range((xl, xu))
    squares = (xl + (xu - xl) * t[:, None]) ** 2
    assert bool((low <= squares.amin(0)).all())
    torch.testing.assert_close(high, squares.amax(0), rtol=1e-12, atol=1e-12)
    assert bool((low[(xl < 0) & (xu > 0)] == 0).all())


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0], [0.0], [0.0], [1.0]), {}, "x_lo exceeds"),
        (([0.0], [1.0], [2.0], [1.0]), {}, "y_lo exceeds"),
        (([0.0], [1.0], [0.0], [1.0]), {"alpha_lower": 1.2}, "alpha_lower"),
        (([0.0], [1.0], [0.0], [1.0]), {"alpha_upper": -0.1}, "alpha_upper"),
        (([0.0], [float("nan")], [0.0], [1.0]), {}, "finite"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        mccormick(*arguments, **options)
