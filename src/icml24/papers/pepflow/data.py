r"""Complexes from structure files: real peptides on MHC receptors, and fragments carved from chains.

Sources and licences
--------------------
All files come with the package ``MDAnalysisTests`` (found, never imported); their coordinates are
wwPDB entries (CC0).

- ``data/mmcif/1BD2, 3KPR, 3PWP`` (PDB): class I MHC with peptides of nine residues, chain C against
  chains A and B (the T-cell receptor is left out).
- ``data/dssp``: 50 crystal structures of single chains. A *carved fragment* is a window of 5 to 10
  residues; its receptor is the same chain without the window and two residues on either side.

A row is a dict of tensors without a batch dimension (see `batches.KEYS`): receptor first, peptide
last, positions in angstrom relative to the peptide's mean CA, float32.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icml24.common.packages import package_folder
from icml24.common.random import generator as stream
from icml24.common.structures import Residue, read_residues

from .frames import torsion_angles
from .residues import AA3, ATOM_NAMES

__all__ = [
    "PEPTIDES",
    "Split",
    "carve_fragments",
    "chain_files",
    "fragments",
    "peptide_complexes",
    "read_complex",
]

#: PDB entries of the real peptides and their sequences.
PEPTIDES = {"1BD2": "LLFGYPVYV", "3KPR": "EEYLKAWTF", "3PWP": "LGYGFVNYI"}

#: Longest C-N distance of a peptide bond that counts as unbroken, angstrom.
BOND = 2.0
#: Jump of the residue number at a break of the chain.
BREAK = 100
#: Receptor residues farther than this from every peptide CA are no pocket, angstrom.
POCKET_RADIUS = 10.0

Row = dict[str, Tensor]


class Split(NamedTuple):
    """Training rows, held-out rows, and the names of the held-out chains."""

    train: list[Row]
    test: list[Row]
    test_chains: tuple[str, ...]


def read_complex(
    path: Path | str, peptide_chain: str, receptor_chains: Sequence[str], max_pocket: int = 28
) -> Row:
    r"""One complex from a gzipped PDB file.

    Parameters
    ----------
    path : Path or str
    peptide_chain : str
        Letter of the peptide's chain.
    receptor_chains : sequence of str
        Letters of the receptor's chains.
    max_pocket : int, default 28
        Receptor residues kept: those nearest to the peptide (CA to CA, at most 10 angstrom).

    Returns
    -------
    dict of Tensor
        A row; peptide chain number 0, receptor chains 1, 2, ... in the given order.

    Raises
    ------
    ValueError
        A chain is empty, or no receptor residue is near.

    Warns
    -----
    UserWarning
        Residues of unknown type were skipped; the message counts them.
    """
    residues = _standard(read_residues(Path(path), hetero=("MSE",)), Path(path).name)
    chains = [[r for r in residues if r.chain == letter] for letter in (*receptor_chains, peptide_chain)]
    for letter, chain in zip((*receptor_chains, peptide_chain), chains, strict=True):
        if not chain:
            found = sorted({r.chain for r in residues})
            raise ValueError(
                f"{Path(path).name} has no usable residue in chain {letter}; it has chains {found}"
            )
    receptor = [r for chain in chains[:-1] for r in chain]
    numbers = [n for chain in chains[:-1] for n in _numbers(chain)]
    letters = [k for k, chain in enumerate(chains[:-1], start=1) for _ in chain]
    peptide = chains[-1]
    return _row(receptor, numbers, letters, peptide, _numbers(peptide), max_pocket)


def carve_fragments(
    path: Path | str,
    *,
    stride: int = 4,
    lengths: tuple[int, int] = (5, 10),
    margin: int = 2,
    max_pocket: int = 24,
    generator: torch.Generator | None = None,
) -> list[Row]:
    r"""Peptide-like windows of the first chain of a file, each with the rest of the chain as receptor.

    Parameters
    ----------
    path : Path or str
    stride : int, default 4
        Residues between the starts of two windows.
    lengths : (int, int), default (5, 10)
        Smallest and largest length, drawn uniformly.
    margin : int, default 2
        Residues left out on either side of a window.
    max_pocket : int, default 24
    generator : torch.Generator, optional
        Draws the lengths; without one torch's global generator does.

    Returns
    -------
    list of dict
        Windows that cross no break, have all their heavy atoms and at least one residue near.

    Raises
    ------
    ValueError
        ``stride < 1``, impossible lengths or a negative margin.
    """
    low, high = lengths
    if stride < 1 or margin < 0 or not 1 <= low <= high:
        raise ValueError(
            f"need stride >= 1, margin >= 0 and 1 <= low <= high; got {stride}, {margin}, {lengths}"
        )
    chain, numbers = _chain(Path(path))
    rows = []
    for start in range(0, len(chain), stride):
        length = int(torch.randint(low, high + 1, (), generator=generator))
        stop = start + length
        if stop > len(chain) or numbers[stop - 1] - numbers[start] != length - 1:
            continue
        window = chain[start:stop]
        if not all(set(ATOM_NAMES[r.name]) <= r.atoms.keys() for r in window):
            continue
        keep = [i for i in range(len(chain)) if i < start - margin or i >= stop + margin]
        try:
            rows.append(
                _row(
                    [chain[i] for i in keep],
                    [numbers[i] for i in keep],
                    [1] * len(keep),
                    window,
                    numbers[start:stop],
                    max_pocket,
                )
            )
        except ValueError:  # nothing within the radius: a window that hangs in solution
            continue
    return rows


def chain_files() -> list[Path]:
    """Files of the single chains in the package, by name; two deliberately broken ones left out."""
    folder = package_folder("MDAnalysisTests") / "data" / "dssp"
    return [p for p in sorted(folder.glob("*.pdb.gz")) if "wrong" not in p.name and "failing" not in p.name]


def fragments(
    seed: int, *, max_pocket: int = 24, held_out: int = 5, chains: int | None = None, test_stride: int = 12
) -> Split:
    r"""Carved fragments, split by chain: the last `held_out` files of a shuffled list are for testing.

    The order is that of ``random.Random(0)``, the same for every `seed`; `seed` draws the lengths.
    Chains are different proteins by name, not by homology.

    Parameters
    ----------
    seed : int
    max_pocket : int, default 24
    held_out : int, default 5
        Test chains, cut every `test_stride` residues.
    chains : int, optional
        Training chains to use; None takes all.
    test_stride : int, default 12

    Returns
    -------
    Split
    """
    files = chain_files()
    random.Random(0).shuffle(files)
    train_files, test_files = files[:-held_out], files[-held_out:]
    g = stream(seed, "pepflow", "fragment lengths")
    train = [
        row
        for path in train_files[:chains]
        for row in carve_fragments(path, max_pocket=max_pocket, generator=g)
    ]
    h = stream(seed, "pepflow", "test lengths")
    test = [
        row
        for path in test_files
        for row in carve_fragments(path, stride=test_stride, max_pocket=max_pocket, generator=h)
    ]
    return Split(train, test, tuple(path.name[:5] for path in test_files))


def peptide_complexes(max_pocket: int = 28) -> dict[str, Row]:
    """Return the three real peptides on their MHC receptors, by PDB entry."""
    folder = package_folder("MDAnalysisTests") / "data" / "mmcif"
    return {name: read_complex(folder / f"{name}.pdb.gz", "C", "AB", max_pocket) for name in PEPTIDES}


def _standard(residues: list[Residue], name: str) -> list[Residue]:
    """Residues of the twenty types with N, CA and C; selenomethionine as methionine."""
    out, unknown = [], 0
    for r in residues:
        if r.name == "MSE":
            r = r._replace(name="MET", atoms={("SD" if a == "SE" else a): x for a, x in r.atoms.items()})
        if r.name not in AA3:
            unknown += 1
        elif {"N", "CA", "C"} <= r.atoms.keys():
            out.append(r)
    if unknown:
        warnings.warn(f"{name}: {unknown} residues of unknown type were skipped", stacklevel=3)
    return out


@lru_cache(maxsize=128)
def _chain(path: Path) -> tuple[list[Residue], list[int]]:
    residues = _standard(read_residues(path, hetero=("MSE",)), path.name)
    chain = [r for r in residues if r.chain == residues[0].chain]
    return chain, _numbers(chain)


def _numbers(chain: list[Residue]) -> list[int]:
    """Consecutive numbers along peptide bonds, a jump at every break."""
    numbers = [1]
    for before, here in pairwise(chain):
        bonded = np.linalg.norm(before.atoms["C"] - here.atoms["N"]) < BOND
        numbers.append(numbers[-1] + (1 if bonded else BREAK))
    return numbers


def _row(
    receptor: list[Residue],
    numbers: list[int],
    letters: list[int],
    peptide: list[Residue],
    peptide_numbers: list[int],
    max_pocket: int,
) -> Row:
    if max_pocket < 1:
        raise ValueError(f"max_pocket must be at least 1; got {max_pocket}")
    if not receptor:
        raise ValueError("no receptor residue is left")
    ca = lambda rs: np.array([r.atoms["CA"] for r in rs])  # noqa: E731
    distance = np.linalg.norm(ca(receptor)[:, None] - ca(peptide)[None], axis=-1).min(1)
    near = [i for i in np.argsort(distance, kind="stable")[:max_pocket] if distance[i] <= POCKET_RADIUS]
    if not near:
        raise ValueError(f"no receptor residue lies within {POCKET_RADIUS:g} angstrom of the peptide")
    near.sort()
    rows = [receptor[i] for i in near] + peptide
    centre = ca(peptide).mean(0)
    L, n = len(rows), len(peptide)
    pos, mask = np.zeros((L, 15, 3)), np.zeros((L, 15), dtype=bool)
    for i, r in enumerate(rows):
        slots = [*ATOM_NAMES[r.name], *[""] * (14 - len(ATOM_NAMES[r.name])), "OXT"]
        for k, atom in enumerate(slots):
            if atom in r.atoms:
                pos[i, k], mask[i, k] = r.atoms[atom] - centre, True
    aa = torch.tensor([AA3.index(r.name) for r in rows])
    atom_mask = torch.from_numpy(mask)
    # a torsion with an absent atom counts as absent
    with_gaps = torch.from_numpy(pos).masked_fill(~atom_mask.unsqueeze(-1), float("nan"))
    torsion, _ = torsion_angles(with_gaps, aa)
    return {
        "aa": aa,
        "res_nb": torch.tensor([numbers[i] for i in near] + list(peptide_numbers)),
        "chain_nb": torch.tensor([letters[i] for i in near] + [0] * n),
        "pos": torch.from_numpy(pos).float(),
        "atom_mask": atom_mask,
        "gen_mask": torch.arange(L) >= L - n,
        "res_mask": torch.ones(L, dtype=torch.bool),
        "torsion": torsion.float(),
    }
