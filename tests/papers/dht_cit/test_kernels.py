"""The kernel test: identities, moments, the peer's numbers, invariances, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import gamma

from icml24.papers.dht_cit import kci_pvalue, kci_row, kernels


def sample(n=120, p=3, seed=0):
    r = np.random.default_rng(seed)
    z = r.standard_normal((n, p))
    x = np.sin(z[:, 0]) + 0.5 * r.standard_normal(n)
    y = z[:, -1] ** 2 + 0.3 * x + 0.5 * r.standard_normal(n)
    return x, y, z


def root(matrix):
    """Factor F with F F' = matrix, by eigendecomposition (another route than the package's)."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(values.clip(0))


def plain_test(x, y, z, width=0.4, epsilon=1e-3):
    """The definition line by line from full matrices: (p-value, statistic)."""
    x, y, z = ((v - v.mean(0)) / v.std(0, ddof=1) for v in (x[:, None], y[:, None], z))
    centre = np.eye(len(z)) - 1 / len(z)

    def gram(points):
        squares = ((points[:, None] - points[None]) ** 2).sum(-1)
        return centre @ np.exp(-squares / (2 * width**2 * z.shape[1])) @ centre

    residual = epsilon * np.linalg.inv(gram(z) + epsilon * np.eye(len(z)))
    product = (residual @ gram(np.hstack([x, z / 2])) @ residual) * (residual @ gram(y) @ residual)
    mean, variance = product.trace(), 2 * (product**2).sum()
    return gamma.sf(product.sum(), mean**2 / variance, scale=variance / mean), product.sum()


@pytest.mark.equation("eq-dht_cit-residual")
@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
def test_residual_operator(epsilon):
    _, _, z = sample()
    gram = kernels.centred_gram(z, 0.4)
    smoother = gram @ np.linalg.inv(gram + epsilon * np.eye(len(gram)))
    ours = kernels.residual_operator(gram, epsilon)
    np.testing.assert_allclose(ours, np.eye(len(gram)) - smoother, atol=1e-9)
    # what ridge regression leaves of a target, by minimising the penalised squares in feature space
    features, target = root(gram), np.random.default_rng(1).standard_normal(len(gram))
    stacked = np.vstack([features, np.sqrt(epsilon) * np.eye(features.shape[1])])
    weights = np.linalg.lstsq(stacked, np.concatenate([target, np.zeros(features.shape[1])]), rcond=None)[0]
    np.testing.assert_allclose(ours @ target, target - features @ weights, atol=1e-8)


@pytest.mark.equation("eq-dht_cit-statistic")
def test_statistic_from_residual_features():
    """S is the squared norm of the cross product of the two residual feature maps."""
    x, y, z = sample()
    zs, xs, ys = ((v - v.mean(0)) / v.std(0, ddof=1) for v in (z, x[:, None], y[:, None]))
    theta = 1 / (1.2**2 * 3)
    H = np.eye(120) - 1 / 120

    def centred(points):
        squares = ((points[:, None] - points[None]) ** 2).sum(-1)
        return H @ np.exp(-theta * squares / 2) @ H

    R = np.eye(120) - (K := centred(zs)) @ np.linalg.inv(K + 1e-3 * np.eye(120))
    left, right = R @ root(centred(np.hstack([xs, zs / 2]))), R @ root(centred(ys))
    _, statistic = kci_pvalue(x, y, z)
    np.testing.assert_allclose(statistic, np.linalg.norm(left.T @ right) ** 2, rtol=1e-8)


@pytest.mark.equation("eq-dht_cit-facesplit")
def test_face_splitting_product():
    r = np.random.default_rng(0)
    V, W = r.standard_normal((40, 5)), r.standard_normal((40, 7))
    U = np.stack([np.outer(v, w).ravel() for v, w in zip(V, W, strict=True)])
    product = (V @ V.T) * (W @ W.T)
    np.testing.assert_allclose(U @ U.T, product, atol=1e-12)
    # the package's p-value uses only the product: its two moments are those of the long matrix
    x, y, z = sample(60, 2)
    row = kernels.Row(x[:, None], z, 1e-3)
    factor = kernels.thin_factor(y[:, None], row.theta)
    left, right = root(row.left), row.operator @ factor
    long = np.stack([np.outer(a, b).ravel() for a, b in zip(left, right, strict=True)])
    small = long.T @ long if long.shape[1] < 60 else long @ long.T
    mean, variance = small.trace(), 2 * (small**2).sum()
    p, statistic = row.test(factor)
    assert p == pytest.approx(gamma.sf(statistic, mean**2 / variance, scale=variance / mean), rel=1e-7)


@pytest.mark.equation("eq-dht_cit-gamma")
def test_gamma_moments_and_tail():
    x, y, z = sample(80, 2)
    row = kernels.Row(x[:, None], z, 1e-3)
    factor = kernels.thin_factor(y[:, None], row.theta)
    right = row.operator @ factor
    weights = np.linalg.eigvalsh(row.left * (right @ right.T)).clip(0)
    draws = np.random.default_rng(0).chisquare(1, (40_000, len(weights))) @ weights
    mean, variance = weights.sum(), 2 * (weights**2).sum()
    assert abs(draws.mean() - mean) < 4 * draws.std() / len(draws) ** 0.5
    assert draws.var() == pytest.approx(variance, rel=0.03)
    quantile = np.quantile(draws, 0.95)
    assert gamma.ppf(0.95, mean**2 / variance, scale=variance / mean) == pytest.approx(quantile, rel=0.03)
    assert kernels._gamma_tail(quantile, mean, variance) == pytest.approx(0.05, abs=0.012)
    # the package's p-value is the tail of the gamma law with the moments of the weighted sum
    p, statistic = row.test(factor)
    tail = gamma.sf(statistic, mean**2 / variance, scale=variance / mean)
    assert p == pytest.approx(tail, rel=1e-7)
    assert p == pytest.approx((draws > statistic).mean(), abs=0.02)


def test_parity_with_causal_learn(parity):
    for case in parity("kci"):
        p, statistic = kci_pvalue(case["x"], case["y"], case["z"])
        assert p == pytest.approx(case["out"][0], abs=2e-4)  # theirs truncates eigenvalues at 1e-5
        assert statistic == pytest.approx(case["out"][1], rel=2e-3)
    for case in parity("kci_unconditional"):
        p, statistic = kci_pvalue(case["x"], case["y"])
        assert p == pytest.approx(case["out"][0], abs=1e-6)
        assert statistic == pytest.approx(case["out"][1], rel=1e-9)


@pytest.mark.parametrize(("n", "p"), [(40, 1), (250, 5), (1210, 2)])
def test_against_the_installed_peer(n, p):
    """All three widths; the peer of today, not only the stored one."""
    from causallearn.utils.KCI.KCI import KCI_CInd

    x, y, z = sample(n, p, seed=n)
    if n > 1200:
        reference = plain_test(x, y, z)  # the peer needs gigabytes here
        assert kci_pvalue(x, y, z) == pytest.approx(reference, rel=1e-6, abs=1e-12)
        return
    peer_p, peer_s = KCI_CInd().compute_pvalue(x[:, None].copy(), y[:, None].copy(), z.copy())
    p, s = kci_pvalue(x, y, z)
    assert p == pytest.approx(float(peer_p), abs=2e-4)
    assert s == pytest.approx(float(peer_s), rel=1e-6)


def test_thin_factor_is_the_kernel_and_thin():
    x, _, _ = sample(200)
    factor = kernels.thin_factor(x[:, None], 0.4)
    scaled = kernels.standardise(x[:, None])
    np.testing.assert_allclose(factor @ factor.T, kernels.centred_gram(scaled, 0.4), atol=1e-10)
    assert factor.shape[1] < 30


@pytest.mark.parametrize("columns", [1, 3])
def test_row_is_a_loop(columns):
    x, y, z = sample(100, columns)
    ys = np.column_stack([y, np.cos(x), z[:, 0]])
    np.testing.assert_allclose(
        kci_row(x, ys, z), [kci_pvalue(x, column, z)[0] for column in ys.T], atol=1e-12
    )
    np.testing.assert_allclose(kci_row(x, ys, None), [kci_pvalue(x, c)[0] for c in ys.T], atol=1e-12)
    assert kci_row(x, y, z).shape == (1,)


def test_invariances():
    x, y, z = sample(150)
    p = kci_pvalue(x, y, z)[0]
    order = np.random.default_rng(3).permutation(150)
    assert kci_pvalue(x[order], y[order], z[order])[0] == pytest.approx(p, abs=1e-8)
    assert kci_pvalue(2 - 30 * x, 1e-3 * y + 7, z * [1, 50, -2] + 3)[0] == pytest.approx(p, abs=1e-8)


def test_detects_and_does_not():
    r = np.random.default_rng(0)
    z = r.standard_normal((300, 2))
    x = z[:, 0] + 0.5 * r.standard_normal(300)
    y = z[:, 0] ** 2 + 0.5 * r.standard_normal(300)
    assert kci_pvalue(x, y, z)[0] > 0.05
    assert kci_pvalue(x, y + 0.5 * x**2, z)[0] < 1e-3
    assert kci_pvalue(x, y)[0] < 1e-6  # dependent until z is known


def test_why_the_level_is_lost():
    """Independent columns throughout: with nine of z, R almost interpolates and S outgrows tr U."""
    r = np.random.default_rng(0)
    ratio, kept = {1: [], 9: []}, {1: [], 9: []}
    for p in ratio:
        for _ in range(25):
            q = r.standard_normal((300, p + 2))
            row = kernels.Row(q[:, :1], q[:, 2:], 1e-3)
            right = row.operator @ kernels.thin_factor(q[:, 1:2], row.theta)
            product = row.left * (right @ right.T)
            ratio[p].append(product.sum() / product.trace())
            kept[p].append(row.operator.trace() / 300)
    assert np.mean(ratio[1]) < 1.3
    assert np.mean(ratio[9]) > 1.8
    assert np.mean(kept[1]) > 0.9
    assert np.mean(kept[9]) < 0.05


def test_several_columns_and_containers():
    x, y, z = sample(60)
    wide = kci_pvalue(np.column_stack([x, x**2]), np.column_stack([y, -y]), z)
    assert 0 <= wide[0] <= 1
    assert all(type(v) is float for v in wide)
    tensor = torch.from_numpy(x).requires_grad_(True)
    assert kci_pvalue(tensor, y.tolist(), np.asfortranarray(z)) == kci_pvalue(x, y, z)
    assert kci_pvalue(x, y, np.zeros((60, 0))) == kci_pvalue(x, y, None) == kci_pvalue(x, y)


def test_constants():
    x, y, z = sample(50)
    assert kci_pvalue(np.ones(50), y, z) == (1.0, 0.0)
    assert kci_pvalue(x, np.full(50, 0.1), z) == (1.0, 0.0)
    assert kci_pvalue(x, np.full(50, 0.1)) == (1.0, 0.0)
    assert 0 <= kci_pvalue(x, y, np.full((50, 1), 0.3))[0] <= 1


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ((np.zeros(7), np.zeros(7), np.zeros(7)), "at least 8"),
        ((np.zeros(7), np.zeros(7)), "at least 8"),
        ((np.zeros(9), np.zeros(8), np.zeros(9)), "rows"),
        ((np.zeros(9), np.zeros(9), np.zeros((8, 2))), "rows"),
        ((np.r_[np.zeros(8), np.nan], np.zeros(9), np.zeros(9)), "finite"),
        ((np.zeros(9), np.r_[np.zeros(8), np.inf], np.zeros(9)), "finite"),
        ((np.zeros((9, 1, 1)), np.zeros(9)), "shape"),
    ],
)
def test_rejects(args, match):
    with pytest.raises(ValueError, match=match):
        kci_pvalue(*args)
    with pytest.raises(ValueError, match=match):
        kci_row(*args if len(args) == 3 else (*args, None))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan])
def test_rejects_epsilon(epsilon):
    x, y, z = sample(20)
    with pytest.raises(ValueError, match="epsilon"):
        kci_pvalue(x, y, z, epsilon=epsilon)
