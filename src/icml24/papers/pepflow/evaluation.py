r"""Evaluation of a model on complexes, and the trivial answers it has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.common.random import numpy_generator
from icml24.common.statistics import bootstrap_interval

from .batches import collate, repeat
from .metrics import aar, binding_site_ratio, ca_rmsd, chi_errors
from .model import PepFlow
from .residues import CHI_PI, TORSION_MASK
from .torus import positive

__all__ = ["MODES", "Prior", "Scores", "baseline_scores", "design", "fit_prior", "score"]

#: What is free in each kind of design: arguments of `PepFlow.sample`.
MODES: dict[str, dict[str, bool]] = {
    "co-design": {"sample_bb": True, "sample_ang": True, "sample_seq": True},
    "sequence": {"sample_bb": False, "sample_ang": True, "sample_seq": True},
    "sequence, angles given": {"sample_bb": False, "sample_ang": False, "sample_seq": True},
    "packing": {"sample_bb": False, "sample_ang": True, "sample_seq": False},
}

Row = dict[str, Tensor]


@dataclass(frozen=True)
class Scores:
    """Scores by complex.

    Attributes
    ----------
    values : dict of str to ndarray, shape (complexes,)
        ``aar``, ``rmsd`` and ``superposed`` (angstrom), ``bsr``, ``step`` (distance of neighbouring
        CA, angstrom), ``chi1`` to ``chi4`` (mean error in degrees), ``correct`` (share of residues
        with all chi within 20 degrees), ``psi`` (mean error in degrees); means over samples. NaN where
        a peptide has no such angle.
    """

    values: dict[str, np.ndarray]

    def mean(self, name: str) -> float:
        """Mean over the complexes where the score exists."""
        return float(np.nanmean(self.values[name]))

    def interval(self, name: str) -> tuple[float, float, float]:
        """Mean and 95 % bootstrap interval over complexes."""
        x = self.values[name][np.isfinite(self.values[name])]
        return (float(x.mean()), *bootstrap_interval(x, generator=numpy_generator(0, "pepflow", name)))

    def ahead(self, name: str, other: Scores) -> tuple[float, float]:
        """Mean difference from other scores of the same complexes, and its standard error (paired)."""
        x = self.values[name] - other.values[name]
        x = x[np.isfinite(x)]
        return float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5)


def design(
    model: PepFlow,
    rows: Sequence[Row],
    mode: str | dict[str, bool],
    *,
    samples: int,
    n_steps: int,
    seed: int,
    integrator: str = "geodesic",
    chunk: int = 96,
) -> list[list[Row]]:
    """Sample each complex several times; generated rows only.

    `mode` is a key of `MODES` or the flags themselves.

    Returns
    -------
    list of list of dict
        For each complex its samples, each with ``trans`` (n, 3), ``angles`` (n, 5), ``seq`` (n,),
        ``rotmats`` (n, 3, 3) and ``pos14`` (n, 14, 3).
    """
    if isinstance(mode, str) and mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; expected one of {list(MODES)}")
    flags = MODES[mode] if isinstance(mode, str) else mode
    out: list[list[Row]] = []
    g = stream(seed, "pepflow", "design", *(int(flags[key]) for key in sorted(flags)))
    step = max(chunk // samples, 1)
    for start in range(0, len(rows), step):
        batch = repeat(collate(rows[start : start + step]), samples)
        drawn = model.sample(batch, n_steps, **flags, generator=g, integrator=integrator)
        singles = [
            {key: value[b][batch["gen_mask"][b]] for key, value in drawn.items()}
            for b in range(len(batch["aa"]))
        ]
        out += [singles[k : k + samples] for k in range(0, len(singles), samples)]
    return out


def score(rows: Sequence[Row], designs: Sequence[Sequence[Mapping[str, Tensor]]]) -> Scores:
    """Score designs against the native peptides."""
    names = ("aar", "rmsd", "superposed", "bsr", "step", "psi", "chi1", "chi2", "chi3", "chi4", "correct")
    table: dict[str, list[float]] = {name: [] for name in names}
    for row, samples in zip(rows, designs, strict=True):
        native, single = _native(row), {name: [] for name in names}
        for s in samples:
            for name, value in _score_one(native, s).items():
                single[name].append(value)
        for name in names:
            table[name].append(float(np.mean(single[name])))
    return Scores({name: np.array(values) for name, values in table.items()})


@dataclass(frozen=True)
class Prior:
    """What the training peptides alone tell.

    Attributes
    ----------
    frequency : Tensor, shape (20,)
        Shares of the types.
    rotamer : Tensor, shape (20, 5)
        Most common torsions of each type (modes of histograms with bins of ten degrees).
    """

    frequency: Tensor
    rotamer: Tensor


def fit_prior(rows: Sequence[Row]) -> Prior:
    """Count types and torsions of the generated residues."""
    aa = torch.cat([row["aa"][row["gen_mask"]] for row in rows])
    torsion = torch.cat([row["torsion"][row["gen_mask"]] for row in rows]).double()
    frequency = torch.bincount(aa, minlength=20).double()
    rotamer = torch.zeros(20, 5, dtype=torch.float64)
    for kind in range(20):
        for k in range(5):
            period = np.pi if k > 0 and bool(CHI_PI[kind, k - 1]) else 2 * np.pi
            values = (torsion[aa == kind, k] % period).numpy()
            if len(values) and bool(TORSION_MASK[kind, k]):
                count, edges = np.histogram(values, bins=round(period / (np.pi / 18)), range=(0, period))
                best = int((count + np.roll(count, 1) + np.roll(count, -1)).argmax())
                rotamer[kind, k] = 0.5 * (edges[best] + edges[best + 1])
    return Prior(frequency / frequency.sum(), positive(rotamer))


def baseline_scores(rows: Sequence[Row], prior: Prior, seed: int, samples: int = 20) -> dict[str, Scores]:
    """Scores of the trivial answers.

    ``common type`` (one type everywhere), ``background`` (types drawn by their shares), ``torsion
    count`` (the same among the types with as many torsions as the native one), ``rotamer`` (the most
    common torsions of the native type), ``random angles`` (uniform) and ``centroid`` (all CA at the
    peptide's centre).
    """
    g = stream(seed, "pepflow", "baselines")
    answers: dict[str, list[list[Row]]] = {
        name: []
        for name in ("common type", "background", "torsion count", "rotamer", "random angles", "centroid")
    }
    count = TORSION_MASK[:20].sum(-1)
    alike = prior.frequency * (count.unsqueeze(1) == count)  # (20, 20): types that share the count
    for row in rows:
        native = _native(row)
        n = len(native["seq"])
        common = torch.full((n,), int(prior.frequency.argmax()))
        answers["common type"].append([native | {"seq": common}])
        drawn = torch.multinomial(prior.frequency, n * samples, replacement=True, generator=g)
        answers["background"].append([native | {"seq": s} for s in drawn.reshape(samples, n)])
        told = torch.multinomial(alike[native["seq"]], samples, replacement=True, generator=g).T
        answers["torsion count"].append([native | {"seq": s} for s in told])
        answers["rotamer"].append([native | {"angles": prior.rotamer[native["seq"]].float()}])
        uniform = 2 * torch.pi * torch.rand(samples, n, 5, generator=g)
        answers["random angles"].append([native | {"angles": a} for a in uniform])
        answers["centroid"].append([native | {"trans": torch.zeros_like(native["trans"])}])
    return {name: score(rows, given) for name, given in answers.items()}


def _native(row: Row) -> Row:
    gen = row["gen_mask"]
    return {
        "seq": row["aa"][gen],
        "trans": row["pos"][gen][:, 1],
        "angles": row["torsion"][gen],
        "receptor": row["pos"][~gen & row["res_mask"]][:, 1],
    }


def _score_one(native: Row, s: Mapping[str, Tensor]) -> dict[str, float]:
    degrees, mask = chi_errors(s["angles"], native["angles"], native["seq"])
    with_chi = mask.any(-1)
    ok = ((degrees <= 20) | ~mask).all(-1)[with_chi]
    psi = torch.rad2deg((s["angles"] - native["angles"])[:, 0])
    out = {
        "aar": aar(s["seq"], native["seq"]),
        "rmsd": ca_rmsd(s["trans"], native["trans"]),
        "superposed": ca_rmsd(s["trans"], native["trans"], superpose=True),
        "bsr": binding_site_ratio(s["trans"], native["trans"], native["receptor"]),
        "step": float((s["trans"][1:] - s["trans"][:-1]).norm(dim=-1).mean()),
        "psi": float(((psi + 180) % 360 - 180).abs().mean()),
        "correct": float(ok.float().mean()) if len(ok) else float("nan"),
    }
    for k in range(4):
        has = mask[:, k]
        out[f"chi{k + 1}"] = float(degrees[has, k].mean()) if bool(has.any()) else float("nan")
    return out
