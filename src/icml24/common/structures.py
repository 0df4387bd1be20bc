"""Protein structures: reading PDB files, dihedral angles."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["Residue", "dihedral", "read_residues"]


class Residue(NamedTuple):
    """One residue of a chain; `atoms` maps atom names to positions in angstrom, shape (3,), float64."""

    chain: str
    number: str  # residue number with insertion code, as in the file, blanks removed
    name: str
    atoms: dict[str, np.ndarray]


def read_residues(path: Path, *, hetero: Collection[str] = ()) -> list[Residue]:
    """Read the residues of the first model of a gzipped PDB file, in order of appearance.

    ``ATOM`` records, and ``HETATM`` records of the residue names in `hetero` (modified residues
    inside a chain, for instance ``"MSE"``); of an atom with several locations the first is taken.
    """
    residues: dict[tuple[str, str], Residue] = {}
    with gzip.open(path, "rt", encoding="ascii", errors="replace") as stream:
        for line in stream:
            if line.startswith("ENDMDL"):
                break
            modified = line.startswith("HETATM") and line[17:20].strip() in hetero
            if line.startswith("ATOM") or modified:
                chain, number = line[21], line[22:27].strip()
                residue = residues.setdefault(
                    (chain, number), Residue(chain, number, line[17:20].strip(), {})
                )
                residue.atoms.setdefault(
                    line[12:16].strip(), np.array([float(line[i : i + 8]) for i in (30, 38, 46)])
                )
    return list(residues.values())


def dihedral(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> float:
    """Dihedral angle a-b-c-d by the IUPAC convention, radians in (-pi, pi]."""
    axis = (c - b) / np.linalg.norm(c - b)
    u, w = (a - b) - ((a - b) @ axis) * axis, (d - c) - ((d - c) @ axis) * axis
    return math.atan2(float(np.cross(axis, u) @ w), float(u @ w))
