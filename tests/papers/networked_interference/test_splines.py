"""Spline basis and grid density."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from icml24.papers.networked_interference import default_knots, grid_density, truncated_power_basis
from icml24.papers.networked_interference.splines import grid_integral


def test_basis_parity(stored):
    data = stored("spline_basis")
    for k in range(int(data["n"])):
        ours = truncated_power_basis(data[f"z{k}"], data[f"knots{k}"].tolist(), int(data[f"deg{k}"]))
        torch.testing.assert_close(ours, data[f"out{k}"], rtol=0, atol=1e-12)


def test_density_parity(stored):
    data = stored("grid_density")
    for k in range(int(data["n"])):
        ours = grid_density(data[f"logits{k}"], data[f"z{k}"])
        torch.testing.assert_close(ours, data[f"out{k}"], rtol=0, atol=1e-12)


@pytest.mark.equation("eq-networked_interference-basis")
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_basis_spans_the_splines(degree):
    """E6: SciPy's B-splines with the same knots lie in the span, and the dimensions agree."""
    knots = [0.2, 0.5, 0.9]
    z = torch.linspace(0, 1, 60, dtype=torch.float64)
    ours = truncated_power_basis(z, knots, degree).numpy()
    padded = np.r_[[0.0] * (degree + 1), knots, [1.0] * (degree + 1)]
    theirs = BSpline.design_matrix(np.clip(z.numpy(), 0, 1 - 1e-14), padded, degree).toarray()
    assert ours.shape[1] == theirs.shape[1] == degree + 1 + len(knots)
    fit, *_ = np.linalg.lstsq(ours, theirs, rcond=None)
    np.testing.assert_allclose(ours @ fit, theirs, atol=1e-9)
    assert np.linalg.matrix_rank(ours) == ours.shape[1]


def test_hinge_is_fitted_exactly_and_is_smooth_at_its_knot():
    z = torch.linspace(0, 1, 41, dtype=torch.float64)
    basis = truncated_power_basis(z, [0.3])
    target = (z - 0.3).clamp(min=0) ** 2
    weights = torch.linalg.lstsq(basis, target[:, None]).solution
    assert float((basis @ weights - target[:, None]).abs().max()) < 1e-12
    h = 1e-6
    points = torch.tensor([0.3 - 2 * h, 0.3 - h, 0.3, 0.3 + h, 0.3 + 2 * h], dtype=torch.float64)
    slopes = truncated_power_basis(points, [0.3])[:, -1].diff() / h
    assert float(slopes.abs().max()) < 1e-5  # the first derivative goes through 0 without a jump


def test_basis_keeps_dtype_shape_and_gradient():
    z = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    assert truncated_power_basis(z, [0.5]).dtype == torch.float32
    assert truncated_power_basis(z, []).shape == (3, 4, 3)
    torch.testing.assert_close(truncated_power_basis(z.T, [0.5])[:, 1], truncated_power_basis(z[1], [0.5]))
    assert truncated_power_basis([0, 1], (0.5,)).shape == (2, 4)
    assert truncated_power_basis(np.array([0.2]), torch.tensor([0.5])).dtype == torch.float64
    z = z.double().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda v: truncated_power_basis(v, [0.55]), (z,))


def test_default_knots():
    assert default_knots(0.1) == np.arange(0.1, 1, 0.1).tolist()
    assert default_knots(0.25) == [0.25, 0.5, 0.75]
    assert default_knots(1.0) == []
    assert all(0 < knot < 1 for s in np.linspace(0.013, 1.2, 400) for knot in default_knots(s))
    for bad in (0, -0.1, float("nan"), float("inf"), "wide"):
        with pytest.raises(ValueError, match="spacing"):
            default_knots(bad)


@pytest.mark.equation("eq-networked_interference-density")
def test_density_is_linear_between_grid_points():
    """E7: numpy.interp through the softmax masses; the grid points themselves; both ends safe."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 8, generator=g, dtype=torch.float64)
    z = torch.rand(200, generator=g, dtype=torch.float64)
    z[:8] = torch.arange(8) / 7
    mass = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=1, keepdims=True)
    expected = [np.interp(at, np.arange(8) / 7, row) for at, row in zip(z.numpy(), mass, strict=True)]
    np.testing.assert_allclose(grid_density(logits, z).numpy(), expected, atol=1e-13)


@pytest.mark.equation("eq-networked_interference-integral")
@pytest.mark.parametrize("cells", [1, 5, 20])
def test_integral_of_the_density(cells):
    """E7: quadrature on a grid that holds the kinks equals the trapezoid formula."""
    g = torch.Generator().manual_seed(cells)
    logits = torch.randn(1, cells + 1, generator=g, dtype=torch.float64)
    points, weights = np.polynomial.legendre.leggauss(3)
    nodes = torch.tensor(((np.arange(cells)[:, None] + (points + 1) / 2) / cells).ravel())
    values = grid_density(logits.expand(len(nodes), -1), nodes).numpy()
    quadrature = values @ np.tile(weights / (2 * cells), cells)
    integral = float(grid_integral(torch.softmax(logits, dim=1)))
    assert integral == pytest.approx(quadrature, abs=1e-12)
    mass = torch.softmax(logits, dim=1)[0]
    assert integral == pytest.approx(float(1 - (mass[0] + mass[-1]) / 2) / cells, abs=1e-12)


def test_density_in_float32_near_a_grid_point():
    logits = torch.randn(50, 21, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = torch.full((50,), 0.7)
    assert grid_density(logits.float(), z).dtype == torch.float32
    torch.testing.assert_close(
        grid_density(logits.float(), z).double(), grid_density(logits, z.double()), rtol=0, atol=1e-6
    )
    exposures = torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: grid_density(v, exposures), (logits.requires_grad_(True),))


@pytest.mark.parametrize("z", [[-0.1], [1.1], [float("nan")]])
def test_exposures_outside_are_refused(z):
    z = torch.tensor(z)
    with pytest.raises(ValueError, match="z must"):
        grid_density(torch.zeros(1, 3), z)
    with pytest.raises(ValueError, match="z must"):
        truncated_power_basis(z, [0.5])


def test_bad_input():
    z = torch.tensor([0.5])
    for degree in (0, -1, 1.5, "two"):
        with pytest.raises(ValueError, match="degree"):
            truncated_power_basis(z, [0.5], degree)
    for knots in ([0.0], [1.0], [0.5, 1.2], [-0.1], [float("nan")], 0.5, ["a"]):
        with pytest.raises(ValueError, match="knots"):
            truncated_power_basis(z, knots)
    for logits in (torch.zeros(3), torch.zeros(1, 1), torch.zeros(0, 3), torch.full((1, 3), float("nan"))):
        with pytest.raises(ValueError, match="logits"):
            grid_density(logits, z)
    with pytest.raises(ValueError, match="one entry a unit"):
        grid_density(torch.zeros(2, 3), z)
