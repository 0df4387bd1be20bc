"""The exposure mapping and the product with A + I."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from icml24.papers.networked_interference import exposure
from icml24.papers.networked_interference.graphs import Neighbourhoods


@pytest.mark.equation("eq-networked_interference-exposure")
def test_exposure_counts_neighbours(network):
    """E8: a count by hand; in [0, 1]; relabelling; one flip moves it by 1/degree."""
    adjacency, _, t = network(30)
    z = exposure(adjacency, t)
    for i in range(30):
        neighbours = [j for j in range(30) if adjacency[i, j]]
        assert float(z[i]) == pytest.approx(sum(float(t[j]) for j in neighbours) / len(neighbours), abs=1e-15)
    assert z.min() >= 0
    assert z.max() <= 1
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(exposure(adjacency[order][:, order], t[order]), z[order], rtol=0, atol=1e-15)
    flipped = t.clone()
    flipped[4] = 1 - t[4]
    change = (exposure(adjacency, flipped) - z).abs()
    torch.testing.assert_close(change, adjacency[:, 4] / adjacency.sum(dim=1), rtol=0, atol=1e-15)


def test_every_kind_of_matrix_gives_the_same(network):
    dense, x, t = network(20)
    kinds = [
        dense,
        dense.T.contiguous().T,  # not contiguous
        dense.to_sparse_coo(),
        dense.to_sparse_csr(),
        dense.numpy(),
        dense.bool(),
        dense.long(),
        sp.csr_matrix(dense.numpy()),
        sp.coo_array(dense.numpy()),
        dense.tolist(),
        np.flip(np.flip(dense.numpy()).copy()),  # strides below zero
    ]
    for kind in kinds:
        torch.testing.assert_close(exposure(kind, t), exposure(dense, t), rtol=0, atol=0)
        graph = Neighbourhoods.of(kind, x)
        torch.testing.assert_close(graph.propagate(x), (dense + torch.eye(20)) @ x, rtol=1e-13, atol=1e-13)


def test_dtypes(network):
    adjacency, _, t = network()
    assert exposure(adjacency, t).dtype == torch.float64
    assert exposure(adjacency, t.float()).dtype == torch.float32
    assert exposure(adjacency, t.bool()).dtype == torch.float64
    assert exposure(adjacency.long(), t.long()).dtype == torch.float32
    assert exposure(adjacency, t.tolist()).shape == t.shape
    assert exposure(adjacency, np.asarray(t)).dtype == torch.float64


def test_arrays_that_torch_cannot_share(network, recwarn):
    adjacency, _, t = network()
    fixed = t.numpy().copy()
    fixed.flags.writeable = False
    torch.testing.assert_close(exposure(adjacency, fixed), exposure(adjacency, t), rtol=0, atol=0)
    backwards = np.ascontiguousarray(t.numpy()[::-1])[::-1]
    torch.testing.assert_close(exposure(adjacency, backwards), exposure(adjacency, t), rtol=0, atol=0)
    assert not recwarn.list


def test_repeated_entries_are_added():
    row, col = np.array([0, 1, 1, 2, 0]), np.array([1, 0, 2, 1, 1])
    matrix = sp.coo_matrix((np.ones(5), (row, col)), (3, 3))
    assert exposure(matrix, torch.tensor([0.0, 1.0, 0.0])).tolist() == [1.0, 0.0, 1.0]
    weighted = torch.tensor([[0.0, 3.0, 1.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert float(exposure(weighted, torch.tensor([0.0, 1.0, 0.0]))[0]) == 0.75


def test_gradient_of_the_product_is_the_transpose(network):
    adjacency, x, _ = network()
    adjacency = torch.triu(adjacency)  # directed, so that a transpose matters
    graph = Neighbourhoods.of(adjacency, x)
    x.requires_grad_(True)
    assert torch.autograd.gradcheck(graph.propagate, (x,))
    assert torch.autograd.gradgradcheck(graph.propagate, (x,))


@pytest.mark.parametrize(
    ("adjacency", "t", "message"),
    [
        (torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]), [1.0, 0, 0], "isolated"),
        (torch.zeros(1, 1), [1.0], "isolated"),
        (torch.zeros(2, 3), [1.0, 0.0], "square"),
        (torch.zeros(0, 0), [], "square"),
        (torch.ones(2), [1.0, 0.0], "square"),
        (torch.ones(2, 2), [1.0, 0.0], "diagonal"),
        (torch.tensor([[0.0, -1], [-1, 0]]), [1.0, 0.0], "negative"),
        (torch.tensor([[0.0, float("nan")], [1, 0]]), [1.0, 0.0], "finite"),
        (torch.tensor([[0.0, 1], [1, 0]]), [0.5, 0.0], "binary"),
        (torch.tensor([[0.0, 1], [1, 0]]), [1.0, 0.0, 0.0], "one entry a unit"),
        (torch.tensor([[0.0, 1], [1, 0]]), [float("nan"), 0.0], "finite"),
        (torch.tensor([[0.0, 1], [1, 0]]), [[1.0], [0.0]], "vector"),
    ],
)
def test_bad_input(adjacency, t, message):
    with pytest.raises(ValueError, match=message):
        exposure(adjacency, torch.tensor(t))


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="adjacency must be"):
        exposure("a graph", torch.ones(2))
