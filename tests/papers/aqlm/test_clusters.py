"""k-means and residual k-means."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import kmeans, residual_kmeans


def points(n=200, d=3, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_parity_from_given_centres(core):
    for b in range(3):
        data, init, centres, labels = (core[f"beam{b}_km_{n}"] for n in ("data", "init", "centres", "labels"))
        got, found = kmeans(data, len(init), init=init, max_iter=25)
        torch.testing.assert_close(got, centres, rtol=0, atol=1e-10)
        assert torch.equal(found, labels.long())


@pytest.mark.equation("eq-aqlm-residual")
def test_residual_energy_falls_by_the_energy_of_the_centres():
    """E8: at a fixed point, |r_{m+1}|^2 = |r_m|^2 - sum n_k |C_k|^2, codebook by codebook."""
    rest = points()
    books, codes = residual_kmeans(rest, 3, 8, max_iter=500, generator=torch.Generator().manual_seed(0))
    for m in range(3):
        counts = torch.bincount(codes[:, m], minlength=8)
        fall = (counts * books[m].square().sum(1)).sum()
        left = rest - books[m][codes[:, m]]
        assert abs(float(rest.square().sum() - fall - left.square().sum())) < 1e-8
        assert fall > 0
        rest = left


def test_centres_are_means_and_labels_nearest():
    data = points()
    centres, labels = kmeans(data, 6, max_iter=300, generator=torch.Generator().manual_seed(3))
    for k in range(6):
        torch.testing.assert_close(centres[k], data[labels == k].mean(0), rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.cdist(data, centres).argmin(1), labels)
    assert labels.dtype == torch.int64


def test_a_centre_without_points_stays():
    data = torch.zeros(5, 2, dtype=torch.float64)
    init = torch.tensor([[0.0, 0.0], [9.0, 9.0]], dtype=torch.float64)
    centres, labels = kmeans(data, 2, init=init)
    assert torch.equal(centres, init)
    assert labels.tolist() == [0] * 5


def test_ties_go_to_the_lowest_index():
    init = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    assert kmeans(torch.zeros(3, 1, dtype=torch.float64), 3, init=init, max_iter=1)[1].tolist() == [0, 0, 0]


def test_as_many_clusters_as_points_is_exact():
    data = points(12)
    books, codes = residual_kmeans(data, 1, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(books[0][codes[:, 0]], data)


def test_same_generator_same_centres_and_no_global_state(global_random_state):
    before = global_random_state()
    runs = [kmeans(points(), 5, generator=torch.Generator().manual_seed(1))[0] for _ in range(2)]
    assert torch.equal(*runs)
    assert global_random_state() == before


def test_without_a_generator_the_same_again_and_no_global_state(global_random_state):
    before = global_random_state()
    first, again = (residual_kmeans(points().requires_grad_(True), 2, 5) for _ in "ab")
    assert global_random_state() == before
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not first[0].requires_grad
    assert not kmeans(points(), 5, init=points()[:5].requires_grad_(True))[0].requires_grad


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_clusters": 201}, "exceeds the number of points"),
        ({"num_clusters": 0}, "num_clusters"),
        ({"max_iter": 0}, "max_iter"),
        ({"init": torch.zeros(3, 3)}, "init must be"),
        ({"data": torch.full((4, 2), float("nan"))}, "finite"),
    ],
)
def test_bad_input(change, match):
    with pytest.raises(ValueError, match=match):
        kmeans(**({"data": points(), "num_clusters": 2} | change))
    with pytest.raises(ValueError, match="num_codebooks"):
        residual_kmeans(points(), 0, 2)
