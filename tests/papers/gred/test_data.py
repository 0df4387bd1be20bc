"""Molecules, digits, rings and batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rdkit import Chem

from icml24.papers.gred import hop_masks, shortest_path_distances
from icml24.papers.gred.data import batches_of, cluster_batches, molecules, ring_batch, superpixel_digits


def test_molecules_are_graphs_of_their_smiles():
    chosen, vocabulary = molecules(150)
    assert len(chosen) > 100
    assert max(int(m.tokens.max()) for m in chosen) == vocabulary - 1
    for molecule in chosen[::20]:
        mol = Chem.MolFromSmiles(molecule.smiles)
        assert np.array_equal(molecule.bonds >= 0, Chem.GetAdjacencyMatrix(mol) == 1)
        assert np.array_equal(molecule.bonds, molecule.bonds.T)
        found = shortest_path_distances(torch.from_numpy(molecule.bonds >= 0))
        assert np.array_equal(found.numpy(), Chem.GetDistanceMatrix(mol))
        assert np.isfinite(molecule.target)
        assert 4 <= len(molecule.tokens) <= 38


def test_batches_keep_every_molecule():
    chosen, _ = molecules(150)
    batches = batches_of(chosen, 32, 4, mean=1.0, std=2.0)
    targets = torch.cat([b.target for b in batches]).flatten() * 2 + 1
    np.testing.assert_allclose(np.sort(targets), np.sort([m.target for m in chosen]), rtol=1e-5, atol=1e-5)
    for batch in batches:
        assert batch.masks.shape[1] == 4
        assert int(batch.edge.min()) >= 0
        assert torch.equal(batch.masks[:, 1].sum(dim=2) > 0, batch.node_mask)  # nobody real is alone
        assert not batch.x[~batch.node_mask].any()


def test_digits_are_cut_into_patches():
    features, adj, labels = superpixel_digits()
    assert features.shape == (1797, 16, 3)
    assert adj.shape == (1797, 16, 16)
    assert np.array_equal(adj, adj.transpose(0, 2, 1))
    assert not adj[:, range(16), range(16)].any()
    assert (adj.sum(axis=-1) >= 4).all()
    assert features.min() >= 0
    assert features.max() <= 1
    assert np.bincount(labels).min() > 150


@pytest.mark.parametrize(("n", "distance", "where"), [(10, None, 5), (10, 1, 1), (4, None, 2)])
def test_ring_carries_the_label_where_it_says(n, distance, where):
    batch = ring_batch(n, distance)
    dist = shortest_path_distances(batch.masks[0, 1])
    for x, label in zip(batch.x, batch.target.tolist(), strict=True):
        assert int(x[0]) == 1
        assert x.nonzero().flatten().tolist() == [0, where]
        assert int(x[where]) == label + 2
        assert int(dist[0, where]) == where
    assert torch.equal(batch.masks[2].bool(), hop_masks(dist))


@pytest.mark.parametrize(("n", "distance"), [(5, None), (2, None), (10, 6), (10, 0)])
def test_bad_rings(n, distance):
    with pytest.raises(ValueError, match=r"even|distance"):
        ring_batch(n, distance)


def test_cluster_batches_are_padded():
    batches = cluster_batches(5, 2, 3, torch.Generator().manual_seed(0))
    assert [len(b.x) for b in batches] == [2, 2, 1]
    for batch in batches:
        assert batch.masks.shape[1:] == (3, batch.x.shape[1], batch.x.shape[1])
        assert torch.equal(
            batch.masks[:, 0].sum(dim=(1, 2)).long(), torch.full((len(batch.x),), batch.x.shape[1])
        )
        assert not batch.masks[:, 1][~batch.node_mask].any()
