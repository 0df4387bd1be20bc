"""Structure files to rows."""

import gzip

import numpy as np
import pytest
import torch

from icml24.common.packages import package_folder
from icml24.papers import pepflow as pf
from icml24.papers.pepflow import data
from icml24.papers.pepflow.batches import KEYS

LETTER = dict(
    zip(
        [*pf.AA3],
        "ACDEFGHIKLMNPQRSTVWY",
        strict=True,
    )
)


def test_real_peptides(complexes, parity):
    for name, row in complexes.items():
        assert "".join(LETTER[pf.AA3[i]] for i in row["aa"][row["gen_mask"]]) == data.PEPTIDES[name]
        assert set(row) == set(KEYS)
        ca = row["pos"][row["gen_mask"]][:, 1]
        assert ca.mean(0).abs().max() < 1e-5
        assert (row["pos"][~row["atom_mask"]] == 0).all()
        assert complete(row)
        assert row["gen_mask"].tolist() == sorted(row["gen_mask"].tolist())  # receptor first
    z, row = parity("structure"), complexes["1BD2"]
    for key in ("aa", "atom_mask", "gen_mask", "chain_nb"):
        assert torch.equal(row[key], z[key])
    torch.testing.assert_close(row["pos"].double(), z["pos"], rtol=0, atol=1e-5)
    torch.testing.assert_close(row["torsion"].double(), z["torsion"], rtol=0, atol=1e-4)


def test_pocket_is_near(complexes):
    row = complexes["3PWP"]
    ca, gen = row["pos"][:, 1], row["gen_mask"]
    assert torch.cdist(ca[~gen], ca[gen]).min(1).values.max() <= data.POCKET_RADIUS


@pytest.fixture(scope="module")
def carved():
    path = data.chain_files()[0]
    return data.carve_fragments(path, generator=torch.Generator().manual_seed(0)), path


def test_fragments(carved):
    rows, path = carved
    assert len(rows) > 20
    for row in rows:
        gen = row["gen_mask"]
        assert 5 <= int(gen.sum()) <= 10
        assert 1 <= int((~gen).sum()) <= 24
        number = row["res_nb"]
        assert (number[gen].diff() == 1).all()
        gap = (number[~gen].unsqueeze(1) - number[gen]).abs().min(1).values
        assert (gap > 2).all()  # two residues are left out on either side
        assert complete(row)
        step = (row["pos"][gen][1:, 1] - row["pos"][gen][:-1, 1]).norm(dim=-1)
        assert ((step > 2.7) & (step < 4.1)).all()  # neighbouring CA, cis or trans
    again = data.carve_fragments(path, generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(a["pos"], b["pos"]) for a, b in zip(rows, again, strict=True))


def test_chains_are_split():
    files = data.chain_files()
    assert len(files) == 50
    split = data.fragments(0, chains=2)
    assert len(set(split.test_chains)) == 5
    assert len(split.train) > 30
    assert len(split.test) > 30


@pytest.mark.parametrize("bad", [{"stride": 0}, {"lengths": (7, 5)}, {"lengths": (0, 5)}, {"margin": -1}])
def test_carving_rejects(carved, bad):
    with pytest.raises(ValueError, match="stride"):
        data.carve_fragments(carved[1], generator=torch.Generator(), **bad)


def complete(row):
    """Whether every generated residue has all the heavy atoms of its type."""
    gen = row["gen_mask"]
    return bool((row["atom_mask"][gen][:, :14] >= pf.ATOM_MASK[row["aa"][gen]]).all())


def pdb(tmp_path, residues):
    """Write residues (chain, number, name, record) with a straight backbone 3.8 angstrom apart."""
    row = "{:<6s}{:5d} {:<4s} {:3s} {:1s}{:>4d}    {:8.3f}{:8.3f}{:8.3f}  1.00  0.00\n"
    lines = []
    for chain, number, name, record in residues:
        x, y = 3.8 * number, 0.0 if chain == "P" else 5.0
        for atom, dx, dy in ((" N", -1.2, 0.8), (" CA", 0, 0), (" C", 1.3, 0.6), (" O", 1.4, 1.8)):
            lines.append(row.format(record, len(lines) + 1, atom, name, chain, number, x + dx, y + dy, 0.0))
    path = tmp_path / "toy.pdb.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def test_unknown_residues_are_counted_and_selenium_is_methionine(tmp_path):
    path = pdb(
        tmp_path,
        [
            ("P", 1, "GLY", "ATOM"),
            ("P", 2, "XYZ", "ATOM"),
            ("P", 3, "GLY", "ATOM"),
            ("R", 1, "MSE", "HETATM"),
            ("R", 2, "GLY", "ATOM"),
        ],
    )
    with pytest.warns(UserWarning, match="1 residues of unknown type"):
        row = data.read_complex(path, "P", "R", 5)
    assert [pf.AA3[i] for i in row["aa"]] == ["MET", "GLY", "GLY", "GLY"]
    assert row["res_nb"][2:].diff().item() == data.BREAK  # the unknown residue breaks the chain
    assert row["chain_nb"].tolist() == [1, 1, 0, 0]
    assert (row["torsion"][0, 1:] == 0).all()  # no side-chain atom, no chi
    np.testing.assert_array_equal(row["torsion"].isfinite().numpy(), True)


def test_helpers_as_the_contract_calls_them(complexes):
    """Exported, paths as text, lengths from the global generator when none is given."""
    folder = package_folder("MDAnalysisTests") / "data" / "mmcif"
    row = pf.read_complex(str(folder / "1BD2.pdb.gz"), "C", ["A", "B"], 28)
    assert all(torch.equal(value, complexes["1BD2"][key]) for key, value in row.items())
    with torch.random.fork_rng(devices=[]):
        rows = pf.carve_fragments(str(data.chain_files()[0]), stride=40)
    assert rows
    assert set(rows[0]) == set(KEYS)


def test_complexes_reject(tmp_path):
    path = pdb(tmp_path, [("P", 1, "GLY", "ATOM"), ("R", 40, "GLY", "ATOM")])
    with pytest.raises(ValueError, match="chain X"):
        data.read_complex(path, "X", "R", 5)
    with pytest.raises(ValueError, match="no receptor residue lies within"):
        data.read_complex(path, "P", "R", 5)
    with pytest.raises(ValueError, match="max_pocket"):
        data.read_complex(path, "P", "R", 0)
