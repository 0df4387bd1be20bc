"""The networks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from icml24.common.random import numpy_generator
from icml24.papers.networked_interference import load_network
from icml24.papers.networked_interference.data import geometric_graph, induced_part, simulated_parts


def check_graph(adjacency, features, part):
    n = len(features)
    assert isinstance(adjacency, sp.csr_matrix)
    assert adjacency.shape == (n, n)
    assert (adjacency != adjacency.T).nnz == 0
    assert adjacency.diagonal().sum() == 0
    assert set(adjacency.data) == {1.0}
    assert features.dtype == np.float64
    assert np.isfinite(features).all()
    assert set(part.tolist()) == {0, 1, 2}


def test_geometric_default():
    adjacency, features, part = load_network("geometric")
    check_graph(adjacency, features, part)
    np.testing.assert_allclose(features.sum(axis=1), 4)
    assert (features.min() >= 0, features.max() <= 1) == (True, True)
    across = adjacency.tocoo()
    assert (part[across.row] == part[across.col]).all()
    again = load_network("geometric")
    assert (again[0] != adjacency).nnz == 0
    np.testing.assert_array_equal(again[1], features)


def test_neighbours_are_the_nearest():
    adjacency, features = geometric_graph(40, 2, 3, numpy_generator(0, "test"))
    distance = np.linalg.norm(features[:, None, :2] - features[None, :, :2], axis=2)
    asked = [set(np.argsort(row)[1:4].tolist()) for row in distance]
    for i in range(40):
        expected = asked[i] | {j for j in range(40) if i in asked[j]}
        assert set(adjacency[i].indices.tolist()) == expected
    for bad in (0, 40):
        with pytest.raises(ValueError, match="neighbours"):
            geometric_graph(40, 2, bad, numpy_generator(0, "test"))


def test_isolated_units_are_removed_until_none_is_left():
    # path 0 - 1 - 2 in part 0; 4 hangs on 3, which is in part 1
    edges = np.array([[0, 1], [1, 2], [3, 4]])
    adjacency = sp.coo_matrix((np.ones(3), edges.T), (5, 5)).tocsr()
    adjacency = adjacency + adjacency.T
    inner, x = induced_part(adjacency, np.arange(10.0).reshape(5, 2), np.array([0, 0, 0, 1, 0]), 0)
    assert inner.shape == (3, 3)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_simulated_parts_share_weights_and_are_seeded():
    train, test = simulated_parts("geometric", 3)
    again, _ = simulated_parts("geometric", 3)
    assert train.x.dtype == torch.float32
    assert len(train.x) == len(test.x) == 800
    assert torch.equal(train.y, again.y)
    assert not torch.equal(train.y, test.y)
    assert float((train.truth(1.0, 0.0) - train.truth(0.0, 0.0) - 1).abs().max()) < 1e-12
    # the same weights make the confounder: close to one function of the features in both parts
    assert not torch.equal(simulated_parts("geometric", 4)[0].t, train.t)


def test_unknown_and_missing(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown data set 'flickr'; expected one of"):
        load_network("flickr")
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path))
    monkeypatch.delenv("ICML24_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"ICML24_DATA/networked_interference"):
        load_network("cora")
    with pytest.raises(FileNotFoundError, match=r"citeseer\.npz.*icml24 data"):
        load_network("citeseer", tmp_path)


def test_file_format_is_read(tmp_path):
    arrays = {
        "edges": np.array([[0, 1, 2], [1, 2, 3]], np.int16),
        "lda10": np.full((4, 10), 0.1, np.float32),
        "part": np.array([0, 0, 1, 2], np.int8),
    }
    np.savez(tmp_path / "cora.npz", **arrays)
    for path in (tmp_path, tmp_path / "cora.npz", str(tmp_path)):
        adjacency, features, part = load_network("cora", path)
        check_graph(adjacency, features, part)
        assert adjacency.sum() == 6


@pytest.mark.parametrize(("name", "sizes"), [("cora", (828, 825, 821)), ("citeseer", (705, 704, 707))])
def test_citation_graphs(citation_files, name, sizes):
    network = load_network(name)
    check_graph(*network)
    assert network[1].shape[1] == 10
    assert tuple(len(induced_part(*network, which)[1]) for which in range(3)) == sizes
