"""Metrics by hand."""

import math

import numpy as np
import pytest
import torch

from icml24.papers import pepflow as pf
from icml24.papers.pepflow.metrics import kabsch

F64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_recovery():
    assert pf.aar(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 5, 5])) == 0.5
    assert pf.aar([0, 1], np.array([0, 2]), mask=[True, False]) == 1.0
    for bad in (([0], [0, 1], None), ([], [], None), ([0], [0], [False]), ([0], [0], [True, True])):
        with pytest.raises(ValueError, match=r"shape|no residue"):
            pf.aar(bad[0], bad[1], mask=bad[2])


@pytest.mark.equation("eq-pepflow-kabsch")
def test_superposition_never_mirrors():
    """E12: moved copies coincide, mirrored ones do not, and the rotation beats 2,000 random ones."""
    x = torch.randn(9, 3, generator=gen(), dtype=F64)
    Q = pf.random_so3((), generator=gen(1), dtype=F64)
    y = x @ Q.T + torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    assert pf.ca_rmsd(y, x) > 1
    assert pf.ca_rmsd(y, x, superpose=True) < 1e-9
    mirrored = x * torch.tensor([1.0, 1.0, -1.0], dtype=F64)
    best = pf.ca_rmsd(mirrored, x, superpose=True)
    assert best > 0.3
    R, _ = kabsch(mirrored, x)
    assert torch.linalg.det(R) == pytest.approx(1.0)
    a, b = mirrored - mirrored.mean(0), x - x.mean(0)
    others = pf.random_so3((2000,), generator=gen(2), dtype=F64)
    rmsd = (a @ others.mT - b).square().sum(-1).mean(-1).sqrt()
    assert best <= rmsd.min()


def test_rmsd_edges():
    assert pf.ca_rmsd(torch.zeros(2, 3), torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])) == pytest.approx(
        math.sqrt(12.5)
    )
    assert pf.ca_rmsd(torch.ones(1, 3), torch.zeros(1, 3), superpose=True) < 1e-12
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        pf.ca_rmsd(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="one shape"):
        pf.ca_rmsd(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="finite"):
        pf.ca_rmsd(torch.full((2, 3), float("nan")), torch.zeros(2, 3), superpose=True)


def test_binding_site():
    receptor = torch.tensor([[0.0, 0, 0], [10, 0, 0], [30, 0, 0], [0, 25, 0]])
    native = torch.tensor([[0.0, 0, 0], [20, 0, 0]])  # touches the first three
    assert pf.binding_site_ratio(native, native, receptor) == 1.0
    assert pf.binding_site_ratio([[0.0, 0, 0]], native, receptor) == pytest.approx(2 / 3)
    assert pf.binding_site_ratio([[0.0, 25, 0]], native, receptor) == 0.0
    with pytest.raises(ValueError, match="no receptor residue"):
        pf.binding_site_ratio(native, native + 100, receptor)
    with pytest.raises(ValueError, match="cutoff"):
        pf.binding_site_ratio(native, native, receptor, cutoff=0.0)


def test_secondary_structure():
    assert pf.secondary_structure_ratio("HHEC", "HHCC") == 0.75
    with pytest.raises(ValueError, match="one length"):
        pf.secondary_structure_ratio("HH", "HHC")
    with pytest.raises(ValueError, match="one length"):
        pf.secondary_structure_ratio("", "")
    with pytest.raises(TypeError, match="strings"):
        pf.secondary_structure_ratio(["H"], "H")


def test_chi_errors():
    aa = torch.tensor([pf.AA3.index(n) for n in ("PHE", "LEU", "GLY")])
    native = torch.zeros(3, 5, dtype=F64)
    pred = torch.deg2rad(torch.tensor([[7.0, 350, 170, 99, 99]], dtype=F64)).expand(3, 5)
    degrees, mask = pf.chi_errors(pred, native, aa)
    assert mask.tolist() == [[True, True, False, False]] * 2 + [[False] * 4]
    assert degrees[0].tolist() == pytest.approx([10, 10, 0, 0])  # half a turn of the ring is none
    assert degrees[1].tolist() == pytest.approx([10, 170, 0, 0])
    assert pf.chi_errors(pred[None].float(), native[None].float(), aa[None])[0].shape == (1, 3, 4)
    with pytest.raises(ValueError, match="5"):
        pf.chi_errors(pred[:, :4], native[:, :4], aa)
