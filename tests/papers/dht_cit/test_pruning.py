"""The nested F-test: its level, a textbook fit, stored numbers, degenerate predictors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f as f_law
from scipy.stats import kstest

from icml24.papers.dht_cit import gam_prune
from icml24.papers.dht_cit.pruning import spline_columns

PAIR = np.array([[0, 1], [0, 0]])


@pytest.mark.equation("eq-dht_cit-ftest")
def test_level_is_exact_under_gaussian_noise():
    """E10: p-values of a cause that does nothing are uniform."""
    r = np.random.default_rng(0)
    pvalues = [gam_prune(PAIR, r.standard_normal((120, 2)), return_pvalues=True)[1][0, 1] for _ in range(400)]
    assert kstest(pvalues, "uniform").pvalue > 0.01


@pytest.mark.equation("eq-dht_cit-ftest")
def test_ratio_by_projections():
    """The same F from explicit projections onto the full and the reduced span."""
    r = np.random.default_rng(1)
    x = r.standard_normal((200, 3))
    x[:, 2] += np.sin(2 * x[:, 0])
    graph = np.zeros((3, 3), dtype=int)
    graph[:2, 2] = 1
    _, pvalues = gam_prune(graph, x, n_basis=6, return_pvalues=True)
    one = np.ones((200, 1))
    spans = [np.hstack([one, *(spline_columns(x[:, k], 6) for k in kept)]) for kept in ((0, 1), (1,), (0,))]
    residual = [float(np.sum((x[:, 2] - s @ np.linalg.pinv(s) @ x[:, 2]) ** 2)) for s in spans]
    for cause, without in ((0, residual[1]), (1, residual[2])):
        ratio = (without - residual[0]) / 5 / (residual[0] / (200 - 1 - 10))
        assert pvalues[cause, 2] == pytest.approx(f_law.sf(ratio, 5, 189), rel=1e-8)
    assert np.isnan(pvalues[graph == 0]).all()


def test_parity_with_statsmodels(parity):
    for case in parity("gam_prune"):
        kept, pvalues = gam_prune(case["cand"], case["x"], n_basis=int(case["K"]), return_pvalues=True)
        chosen = case["cand"] == 1
        np.testing.assert_allclose(pvalues[chosen], case["pval"][chosen], rtol=1e-6)
        np.testing.assert_array_equal(kept, case["kept"])


def test_basis_spans_cubics():
    """Centred splines with the constant span every cubic; K - 1 columns; mean zero."""
    x = np.random.default_rng(0).standard_normal(80)
    columns = spline_columns(x, 10)
    assert columns.shape == (80, 9)
    np.testing.assert_allclose(columns.mean(axis=0), 0, atol=1e-14)
    design = np.column_stack([np.ones(80), columns])
    for power in (1, 2, 3):
        fit = design @ np.linalg.lstsq(design, x**power, rcond=None)[0]
        np.testing.assert_allclose(fit, x**power, atol=1e-8)


def test_keeps_the_cause_and_drops_the_rest():
    r = np.random.default_rng(2)
    x = r.standard_normal((400, 4))
    x[:, 3] = np.cos(x[:, 1]) + 0.3 * r.standard_normal(400)
    graph = np.zeros((4, 4), dtype=int)
    graph[:3, 3] = 1
    kept = gam_prune(graph, x)
    assert np.argwhere(kept).tolist() == [[1, 3]]
    assert np.issubdtype(kept.dtype, np.integer)
    np.testing.assert_array_equal(gam_prune(graph, x * [1, 5, 1, 0.1] + 3), kept)


def test_constant_copied_and_tied_predictors():
    r = np.random.default_rng(3)
    x = r.standard_normal((200, 4))
    x[:, 0] = 1.0
    x[:, 2] = x[:, 1]
    graph = np.zeros((4, 4), dtype=int)
    graph[:3, 3] = 1
    _, pvalues = gam_prune(graph, x, return_pvalues=True)
    assert (pvalues[:3, 3] == 1).all()
    x[:, 1] = np.arange(200) % 3  # three distinct values: knots merge
    x[:, 3] = x[:, 1] + 0.1 * x[:, 3]
    graph[0, 3] = graph[2, 3] = 0
    assert gam_prune(graph, x)[1, 3] == 1


def test_no_candidates():
    kept, pvalues = gam_prune(np.zeros((2, 2)), np.zeros((2, 2)), return_pvalues=True)
    assert kept.sum() == 0
    assert np.isnan(pvalues).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: gam_prune(np.zeros((3, 3)), np.zeros((20, 2))), "shape"),
        (lambda: gam_prune(PAIR * 2, np.zeros((20, 2))), "0 and 1"),
        (lambda: gam_prune(PAIR, np.zeros((3, 2))), "too few"),
        (lambda: gam_prune(PAIR, np.full((20, 2), np.nan)), "finite"),
        (lambda: gam_prune(PAIR, np.zeros((20, 2)), cutoff=0.0), "cutoff"),
        (lambda: gam_prune(PAIR, np.zeros((20, 2)), n_basis=3), "n_basis"),
        (lambda: gam_prune(PAIR, np.zeros(20)), "shape"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
