r"""The twenty residue types: atoms, ideal geometry, torsions (eq-pepflow-groups).

Every residue is a small tree of rigid pieces. Group 0 is the backbone, 3 turns with psi (it holds
the carbonyl oxygen), 4 to 7 turn with chi1 to chi4; groups 1 and 2 hold no heavy atom. Inside its
group an atom never moves.

The positions are the ideal geometry of AlphaFold 2 (Jumper et al. 2021, supplementary table 2), in
angstrom, each in the coordinates of its own group.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "AA3",
    "ATOM_MASK",
    "ATOM_NAMES",
    "CHI_ATOMS",
    "CHI_PI",
    "GROUP",
    "GROUP_AXES",
    "GROUP_ORIGIN",
    "IDEAL",
    "PADDING",
    "QUADRUPLES",
    "TORSION_MASK",
    "UNK",
]

#: Index of an unknown residue type, and of a row that pads a batch.
UNK, PADDING = 20, 21

#: Lines "TYPE: atom group x y z; ...", atoms in the order of their slots.
_TABLE = """
ALA: N 0 -0.525 1.363 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.627 1.062 0; CB 0 -0.529 -0.774 -1.205
CYS: N 0 -0.522 1.362 0; CA 0 0 0 0; C 0 1.524 0 0; O 3 0.625 1.062 0; CB 0 -0.519 -0.773 -1.212;
     SG 4 0.728 1.653 0
ASP: N 0 -0.525 1.362 0; CA 0 0 0 0; C 0 1.527 0 0; O 3 0.626 1.062 0; CB 0 -0.526 -0.778 -1.208;
     CG 4 0.593 1.398 0; OD1 5 0.610 1.091 0; OD2 5 0.592 -1.101 -0.003
GLU: N 0 -0.528 1.361 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.626 1.062 0; CB 0 -0.526 -0.781 -1.207;
     CG 4 0.615 1.392 0; CD 5 0.600 1.397 0; OE1 6 0.607 1.095 0; OE2 6 0.589 -1.104 -0.001
PHE: N 0 -0.518 1.363 0; CA 0 0 0 0; C 0 1.524 0 0; O 3 0.626 1.062 0; CB 0 -0.525 -0.776 -1.212;
     CG 4 0.607 1.377 0; CD1 5 0.709 1.195 0; CD2 5 0.706 -1.196 0; CE1 5 2.102 1.198 0;
     CE2 5 2.098 -1.201 0; CZ 5 2.794 -0.003 -0.001
GLY: N 0 -0.572 1.337 0; CA 0 0 0 0; C 0 1.517 0 0; O 3 0.626 1.062 0
HIS: N 0 -0.527 1.360 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.625 1.063 0; CB 0 -0.525 -0.778 -1.208;
     CG 4 0.600 1.370 0; ND1 5 0.744 1.160 0; CD2 5 0.889 -1.021 0.003; CE1 5 2.030 0.851 0.002;
     NE2 5 2.145 -0.466 0.004
ILE: N 0 -0.493 1.373 0; CA 0 0 0 0; C 0 1.527 0 0; O 3 0.627 1.062 0; CB 0 -0.536 -0.793 -1.213;
     CG1 4 0.534 1.437 0; CG2 4 0.540 -0.785 -1.199; CD1 5 0.619 1.391 0
LYS: N 0 -0.526 1.362 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.626 1.062 0; CB 0 -0.524 -0.778 -1.208;
     CG 4 0.619 1.390 0; CD 5 0.559 1.417 0; CE 6 0.560 1.416 0; NZ 7 0.554 1.387 0
LEU: N 0 -0.520 1.363 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.625 1.063 0; CB 0 -0.522 -0.773 -1.214;
     CG 4 0.678 1.371 0; CD1 5 0.530 1.430 0; CD2 5 0.535 -0.774 1.200
MET: N 0 -0.521 1.364 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.625 1.062 0; CB 0 -0.523 -0.776 -1.210;
     CG 4 0.613 1.391 0; SD 5 0.703 1.695 0; CE 6 0.320 1.786 0
ASN: N 0 -0.536 1.357 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.625 1.062 0; CB 0 -0.531 -0.787 -1.200;
     CG 4 0.584 1.399 0; OD1 5 0.633 1.059 0; ND2 5 0.593 -1.188 0.001
PRO: N 0 -0.566 1.351 0; CA 0 0 0 0; C 0 1.527 0 0; O 3 0.621 1.066 0; CB 0 -0.546 -0.611 -1.293;
     CG 4 0.382 1.445 0; CD 5 0.477 1.424 0
GLN: N 0 -0.526 1.361 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.626 1.062 0; CB 0 -0.525 -0.779 -1.207;
     CG 4 0.615 1.393 0; CD 5 0.587 1.399 0; OE1 6 0.634 1.060 0; NE2 6 0.593 -1.189 -0.001
ARG: N 0 -0.524 1.362 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.626 1.062 0; CB 0 -0.524 -0.778 -1.209;
     CG 4 0.616 1.390 0; CD 5 0.564 1.414 0; NE 6 0.539 1.357 0; CZ 7 0.758 1.093 0;
     NH1 7 0.206 2.301 0; NH2 7 2.078 0.978 0
SER: N 0 -0.529 1.360 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.626 1.062 0; CB 0 -0.518 -0.777 -1.211;
     OG 4 0.503 1.325 0
THR: N 0 -0.517 1.364 0; CA 0 0 0 0; C 0 1.526 0 0; O 3 0.626 1.062 0; CB 0 -0.516 -0.793 -1.215;
     OG1 4 0.472 1.353 0; CG2 4 0.550 -0.718 -1.228
VAL: N 0 -0.494 1.373 0; CA 0 0 0 0; C 0 1.527 0 0; O 3 0.627 1.062 0; CB 0 -0.533 -0.795 -1.213;
     CG1 4 0.540 1.429 0; CG2 4 0.533 -0.776 1.203
TRP: N 0 -0.521 1.363 0; CA 0 0 0 0; C 0 1.525 0 0; O 3 0.627 1.062 0; CB 0 -0.523 -0.776 -1.212;
     CG 4 0.609 1.370 0; CD1 5 0.824 1.091 0; CD2 5 0.854 -1.148 -0.005; NE1 5 2.140 0.690 -0.004;
     CE2 5 2.186 -0.678 -0.007; CE3 5 0.622 -2.530 -0.007; CZ2 5 3.283 -1.543 -0.011;
     CZ3 5 1.715 -3.389 -0.011; CH2 5 3.028 -2.890 -0.013
TYR: N 0 -0.522 1.362 0; CA 0 0 0 0; C 0 1.524 0 0; O 3 0.627 1.062 0; CB 0 -0.522 -0.776 -1.213;
     CG 4 0.607 1.382 0; CD1 5 0.716 1.195 0; CD2 5 0.713 -1.194 -0.001; CE1 5 2.107 1.200 -0.002;
     CE2 5 2.104 -1.201 -0.003; CZ 5 2.791 -0.001 -0.003; OH 5 4.168 -0.002 -0.005
"""

_ATOMS: dict[str, list[tuple[str, int, tuple[float, ...]]]] = {}
for _line in _TABLE.replace("\n     ", " ").strip().splitlines():
    _name, _atoms = _line.split(": ")
    _ATOMS[_name] = [
        (atom, int(group), tuple(map(float, xyz)))
        for atom, group, *xyz in (entry.split() for entry in _atoms.split(";"))
    ]

#: Three-letter codes in the order of the type index, 0 to 19.
AA3: list[str] = list(_ATOMS)

#: Heavy-atom names of each type in the order of its slots (slot 14, not listed, is the terminal OXT).
ATOM_NAMES: dict[str, list[str]] = {name: [atom for atom, _, _ in _ATOMS[name]] for name in AA3}

#: Last atom of the quadruple of chi1 to chi4; the first three are the chain behind it.
_CHI_ENDS = {
    "CYS": "SG", "ASP": "CG OD1", "GLU": "CG CD OE1", "PHE": "CG CD1", "HIS": "CG ND1", "ILE": "CG1 CD1",
    "LYS": "CG CD CE NZ", "LEU": "CG CD1", "MET": "CG SD CE", "ASN": "CG OD1", "PRO": "CG CD",
    "GLN": "CG CD OE1", "ARG": "CG CD NE CZ", "SER": "OG", "THR": "OG1", "VAL": "CG1", "TRP": "CG CD1",
    "TYR": "CG CD1",
}  # fmt: skip


def _chi_atoms(name: str) -> list[list[str]]:
    chain = ["N", "CA", "CB", *_CHI_ENDS.get(name, "").split()]
    return [chain[k : k + 4] for k in range(len(chain) - 3)]


#: Atom quadruples of chi1 to chi4 of each type (IUPAC dihedrals).
CHI_ATOMS: dict[str, list[list[str]]] = {name: _chi_atoms(name) for name in AA3}

_HALF_TURNS = {"ASP": 1, "GLU": 2, "PHE": 1, "TYR": 1}


def _axes(ex: Tensor, ey: Tensor) -> Tensor:
    """Right-handed orthonormal columns: `ex`, then the part of `ey` normal to it, then their product."""
    ex = ex / ex.norm()
    ey = ey - (ey @ ex) * ex
    ey = ey / ey.norm()
    return torch.stack((ex, ey, torch.linalg.cross(ex, ey)), dim=1)


def _tables() -> tuple[Tensor, ...]:
    """Masks, groups, positions, group frames and torsion quadruples of all types, row 20 for UNK."""
    atom_mask = torch.zeros(21, 14, dtype=torch.bool)
    torsion_mask = torch.zeros(21, 5, dtype=torch.bool)
    chi_pi = torch.zeros(20, 4, dtype=torch.bool)
    group = torch.zeros(21, 14, dtype=torch.long)
    ideal = torch.zeros(21, 14, 3, dtype=torch.float64)
    axes = torch.eye(3, dtype=torch.float64).repeat(21, 5, 1, 1)
    origin = torch.zeros(21, 5, 3, dtype=torch.float64)
    quadruples = torch.zeros(21, 5, 4, dtype=torch.long)
    minus_x = torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64)
    for aa, name in enumerate(AA3):
        at = {}
        for slot, (atom, number, xyz) in enumerate(_ATOMS[name]):
            atom_mask[aa, slot] = True
            group[aa, slot] = number
            ideal[aa, slot] = torch.tensor(xyz, dtype=torch.float64)
            at[atom] = ideal[aa, slot]
        axes[aa, 0] = _axes(at["C"] - at["CA"], at["CA"] - at["N"])
        origin[aa, 0] = at["C"]
        torsion_mask[aa, 0] = True
        slots = ATOM_NAMES[name].index
        quadruples[aa, 0] = torch.tensor([slots(atom) for atom in ("N", "CA", "C", "O")])
        for k, names in enumerate(CHI_ATOMS[name], start=1):
            first = k == 1  # the later axes start in the coordinates of the group before
            axes[aa, k] = (
                _axes(at["CB"] - at["CA"], at["N"] - at["CA"]) if first else _axes(at[names[2]], minus_x)
            )
            origin[aa, k] = at[names[2]]
            torsion_mask[aa, k] = True
            quadruples[aa, k] = torch.tensor([slots(atom) for atom in names])
        if name in _HALF_TURNS:
            chi_pi[aa, _HALF_TURNS[name]] = True
    return atom_mask, torsion_mask, chi_pi, group, ideal, axes, origin, quadruples


ATOM_MASK: Tensor  #: (21, 14) bool: the slots a type fills
TORSION_MASK: Tensor  #: (21, 5) bool: the torsions psi, chi1 to chi4 a type has
CHI_PI: Tensor  #: (20, 4) bool: chi angles for which a half turn is no change
GROUP: Tensor  #: (21, 14) long: rigid group of a slot, 0 to 7
IDEAL: Tensor  #: (21, 14, 3) float64: position in the coordinates of the group, angstrom
GROUP_AXES: Tensor  #: (21, 5, 3, 3) float64: axes of the frames of psi, chi1 to chi4 at angle zero
GROUP_ORIGIN: Tensor  #: (21, 5, 3) float64: their origins, angstrom
QUADRUPLES: Tensor  #: (21, 5, 4) long: slots of the four atoms of a torsion
ATOM_MASK, TORSION_MASK, CHI_PI, GROUP, IDEAL, GROUP_AXES, GROUP_ORIGIN, QUADRUPLES = _tables()
