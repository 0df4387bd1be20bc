"""Affine least squares: normal equations, interpolation, ridge, composition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes.affine import r_squared, relative_ridge


@pytest.mark.equation("eq-patchscopes-affine")
def test_residual_is_orthogonal_to_the_inputs_and_to_one(normal):
    # E4: the projection theorem
    X, Y = normal(200, 7, seed=1) + 3, normal(200, 4, seed=2)
    mapping = ps.fit_affine(X, Y)
    residual = mapping(X) - Y
    padded = torch.cat([X, torch.ones(200, 1).double()], dim=1)
    assert (padded.T @ residual).norm() < 1e-8


@pytest.mark.equation("eq-patchscopes-affine")
def test_the_authors_padding_gives_the_same_map(normal):
    # numpy's least squares on inputs and outputs padded with ones, last output column dropped
    X, Y = normal(60, 5, seed=3), normal(60, 5, seed=4)
    pad = np.ones((60, 1))
    solution = np.linalg.lstsq(np.hstack([X, pad]), np.hstack([Y, pad]), rcond=None)[0][:, :-1]
    mapping = ps.fit_affine(X, Y)
    np.testing.assert_allclose(torch.cat([mapping.weight, mapping.bias[None]]), solution, atol=1e-10)


def test_ridge_is_a_stationary_point(normal):
    # the gradient of the penalised loss vanishes, by autograd; the bias is free
    X, Y, ridge = normal(30, 6, seed=5) - 2, normal(30, 3, seed=6), 4.0
    mapping = ps.fit_affine(X, Y, ridge=ridge)
    weight, bias = mapping.weight.clone().requires_grad_(), mapping.bias.clone().requires_grad_()
    loss = (X @ weight + bias - Y).square().sum() + ridge * weight.square().sum()
    for gradient in torch.autograd.grad(loss, (weight, bias)):
        assert gradient.abs().max() < 1e-9
    assert mapping.weight.norm() < ps.fit_affine(X, Y).weight.norm()


@pytest.mark.equation("eq-patchscopes-affine")
def test_too_few_rows_interpolate_and_predict_nothing(normal):
    X, Y = normal(13, 12, seed=7), normal(13, 3, seed=8)
    with pytest.warns(UserWarning, match="interpolating fit"):
        mapping = ps.fit_affine(X, Y)
    assert (mapping(X) - Y).norm() < 1e-8
    unseen, truth = normal(500, 12, seed=9), normal(500, 3, seed=10)
    assert r_squared(mapping, unseen, truth) < -0.5
    assert r_squared(mapping, X, Y) > 1 - 1e-8


@pytest.mark.equation("eq-patchscopes-composition")
def test_composition_is_affine(normal):
    # E9
    first = ps.AffineMap(normal(5, 7, seed=1), normal(7, seed=2))
    second = ps.AffineMap(normal(7, 3, seed=3), normal(3, seed=4))
    h = normal(4, 6, 5, seed=5)
    torch.testing.assert_close(first.then(second)(h), second(first(h)), rtol=0, atol=1e-12)
    assert sum(part.numel() for part in first) == (5 + 1) * 7
    with pytest.raises(ValueError, match="width 5"):
        second.then(first)


def test_recovers_a_known_map_and_keeps_dtype(normal):
    truth = ps.AffineMap(normal(4, 6, seed=1), normal(6, seed=2))
    X = normal(50, 4, seed=3)
    found = ps.fit_affine(X, truth(X))
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-10)
    single = ps.fit_affine(X.float(), truth(X).float())
    assert single.weight.dtype == single.bias.dtype == torch.float32
    grown = ps.fit_affine(X.clone().requires_grad_(), truth(X))
    assert not grown.weight.requires_grad
    assert relative_ridge(X, 0.5) == pytest.approx(0.5 * float((X - X.mean(0)).square().sum()) / 4)


@pytest.mark.parametrize(
    ("X", "Y", "ridge", "error", "match"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), 1.0, ValueError, "same rows"),
        (torch.full((3, 2), torch.nan), torch.zeros(3, 2), 1.0, ValueError, "not finite"),
        (torch.zeros(3, 2), torch.full((3, 2), torch.inf), 1.0, ValueError, "not finite"),
        (torch.zeros(3), torch.zeros(3, 2), 1.0, ValueError, "shape"),
        (torch.zeros(0, 2), torch.zeros(0, 2), 1.0, ValueError, "N >= 1"),
        (torch.zeros(3, 2), torch.zeros(3, 2), -1.0, ValueError, "ridge"),
        (torch.zeros(3, 2).long(), torch.zeros(3, 2), 1.0, TypeError, "floating"),
    ],
)
def test_rejects(X, Y, ridge, error, match):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error, match=match):
            ps.fit_affine(X, Y, ridge=ridge)
