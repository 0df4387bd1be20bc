r"""What the chapter runs: `QUICK` and `FULL` are two instances of one configuration.

Every random stream is named by the base seed and its purpose. Numbers of steps are fixed in the
configuration; nothing here plots or prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator as stream

from . import data
from .batches import collate, repeat, validate
from .evaluation import Prior, Scores, baseline_scores, design, fit_prior, score
from .flows import interpolate
from .frames import backbone_frames, dihedrals, full_atom_reconstruction
from .residues import ATOM_MASK
from .simplex import draw_types
from .training import TINY, Trained, Training, overfit, train

__all__ = [
    "ENGH_HUBER",
    "FULL",
    "QUICK",
    "Config",
    "Learnt",
    "ablation",
    "bond_errors",
    "burial",
    "configure",
    "evaluate",
    "learn",
    "learn_one",
    "oxygen_errors",
    "rebuild",
    "step_counts",
    "trust",
]

#: Bond lengths in small-molecule crystals, angstrom (Engh and Huber 1991): an outside opinion.
ENGH_HUBER = {("N", "CA"): 1.458, ("CA", "C"): 1.525, ("C", "O"): 1.231, ("CA", "CB"): 1.530}
_SLOT = {"N": 0, "CA": 1, "C": 2, "O": 3, "CB": 4}


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    one : Training
        Overfitting of one complex.
    fragments : Training
        The model that is evaluated.
    chains : int or None
        Training chains of the fragments; None takes all 45.
    test_stride : int
        Residues between the starts of two held-out fragments.
    max_pocket : int
        Receptor residues of a fragment.
    samples, n_steps : int
        Designs of a complex, and sampling steps of each.
    modes : tuple of str
        Kinds of design that are scored.
    step_counts : tuple of int
        Sampling steps that are compared, with both integrators.
    ablation_steps, ablation_seeds : int
        Length and number of the runs with fewer modalities; no seeds, no ablation.
    """

    seed: int = 0
    one: Training = field(
        default_factory=lambda: Training(steps=90, batch=4, lr=3e-3, network=TINY, clip=100.0)
    )
    fragments: Training = field(default_factory=lambda: Training(steps=80, batch=8))
    chains: int | None = 6
    test_stride: int = 24
    max_pocket: int = 24
    samples: int = 2
    n_steps: int = 10
    modes: tuple[str, ...] = ("co-design", "sequence", "packing")
    step_counts: tuple[int, ...] = (10,)
    ablation_steps: int = 0
    ablation_seeds: int = 0


QUICK = Config()
FULL = Config(
    fragments=Training(steps=10_000, batch=8),
    chains=None,
    test_stride=12,
    samples=8,
    n_steps=20,
    modes=("co-design", "sequence", "sequence, angles given", "packing"),
    step_counts=(10, 40, 100),
    ablation_steps=100,
    ablation_seeds=3,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


# -- real peptides, rebuilt --------------------------------------------------------------------


def rebuild(row: dict[str, Tensor], psi_offset: float) -> tuple[Tensor, Tensor, Tensor]:
    """Native and rebuilt atoms of a complex, (L, 14, 3) each, float64, and the mask of those present."""
    pos = row["pos"].double()
    R, t = backbone_frames(*pos[:, :3].unbind(1))
    atoms = full_atom_reconstruction(R, t, row["torsion"].double(), row["aa"], psi_offset=psi_offset)
    return pos[:, :14], atoms, row["atom_mask"][:, :14] & ATOM_MASK[row["aa"]]


def oxygen_errors(rows: Sequence[dict[str, Tensor]], psi_offset: float) -> Tensor:
    """Distance of each rebuilt carbonyl oxygen from the real one, all residues of all complexes; angstrom."""
    errors = []
    for row in rows:
        native, atoms, present = rebuild(row, psi_offset)
        errors.append((native - atoms).norm(dim=-1)[:, 3][present[:, 3]])
    return torch.cat(errors)


def bond_errors(designs: Sequence[Sequence[dict[str, Tensor]]]) -> tuple[float, float]:
    """Share of the designed residues' atoms that are placed, and the largest backbone bond error, angstrom.

    Bonds are compared with `ENGH_HUBER`, not with the table the atoms were built from.
    """
    placed, worst = [], 0.0
    for sample in (s for samples in designs for s in samples):
        atoms, mask = sample["pos14"], ATOM_MASK[sample["seq"]]
        placed.append(atoms.isfinite().all(-1)[mask])
        for (a, b), ideal in ENGH_HUBER.items():
            both = mask[:, _SLOT[a]] & mask[:, _SLOT[b]]
            length = (atoms[:, _SLOT[a]] - atoms[:, _SLOT[b]]).norm(dim=-1)[both]
            if len(length):
                worst = max(worst, float((length - ideal).abs().max()))
    return float(torch.cat(placed).double().mean()), worst


# -- one complex -------------------------------------------------------------------------------


def learn_one(config: Config) -> tuple[Trained, dict[str, Tensor], dict[str, float]]:
    """Overfit the complex 1BD2: the run, the complex, and each loss after training over before.

    Both are means over the same 64 draws of time and noise, which training did not see.
    """
    row = data.peptide_complexes()["1BD2"]
    trained = overfit(row, config.one, config.seed)
    fresh = overfit(row, replace(config.one, steps=0), config.seed)
    batch = repeat(collate([row]), 64)
    with torch.no_grad():
        before, after = (
            run.model.loss(batch, stream(config.seed, "pepflow", "one complex")) for run in (fresh, trained)
        )
    return trained, row, {name: float(after[name] / before[name]) for name in before}


# -- fragments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learnt:
    """A model, what it was trained and is tested on, and what the training peptides alone tell."""

    trained: Trained
    split: data.Split
    prior: Prior


def learn(config: Config) -> Learnt:
    """Train on carved fragments."""
    split = data.fragments(
        config.seed, max_pocket=config.max_pocket, chains=config.chains, test_stride=config.test_stride
    )
    return Learnt(train(split.train, config.fragments, config.seed), split, fit_prior(split.train))


@dataclass(frozen=True)
class Evaluation:
    """Designs by mode, their scores, and those of the trivial answers, on one set of complexes."""

    rows: Sequence[dict[str, Tensor]]
    designs: dict[str, list[list[dict[str, Tensor]]]]
    scores: dict[str, Scores]
    baselines: dict[str, Scores]


def evaluate(learnt: Learnt, rows: Sequence[dict[str, Tensor]], config: Config) -> Evaluation:
    """Design in every mode of the configuration and score."""
    designs = {
        mode: design(
            *(learnt.trained.model, rows, mode),
            samples=config.samples,
            n_steps=config.n_steps,
            seed=config.seed,
        )
        for mode in config.modes
    }
    scores = {mode: score(rows, given) for mode, given in designs.items()}
    return Evaluation(rows, designs, scores, baseline_scores(rows, learnt.prior, config.seed))


def step_counts(learnt: Learnt, config: Config) -> dict[tuple[str, int], Scores]:
    """Co-design of every third held-out fragment by integrator and number of steps, two samples each."""
    rows = learnt.split.test[::3]
    out = {}
    for integrator in ("geodesic", "released"):
        for n in config.step_counts:
            designs = design(
                *(learnt.trained.model, rows, "co-design"),
                samples=2,
                n_steps=n,
                seed=config.seed,
                integrator=integrator,
            )
            out[integrator, n] = score(rows, designs)
    return out


def ablation(config: Config, split: data.Split) -> dict[str, np.ndarray]:
    """Fewer modalities at equal steps: RMSD on every second held-out fragment (mean), one a seed.

    A modality left out keeps its native values, in training and in the test.
    """
    rows = split.test[::2]
    kinds = {"bb": ("bb",), "bb + seq": ("bb", "seq"), "bb + seq + ang": ("bb", "seq", "ang")}
    out = {}
    for name, modalities in kinds.items():
        training = replace(config.fragments, steps=config.ablation_steps, modalities=modalities)
        flags = {f"sample_{key}": key in modalities for key in ("bb", "seq", "ang")}
        rmsd = []
        for seed in range(config.seed, config.seed + config.ablation_seeds):
            trained = train(split.train, training, seed)
            designs = design(trained.model, rows, flags, samples=2, n_steps=config.n_steps, seed=seed)
            rmsd.append(score(rows, designs).mean("rmsd"))
        out[name] = np.array(rmsd)
    return out


@torch.no_grad()
def trust(learnt: Learnt, times: Sequence[float], seed: int) -> dict[str, list[float]]:
    """Probability of the native type from one network call, by the time the network is told.

    Types and angles are pure noise; the backbone is ``native``, or on its ``path`` at that time. Mean
    over the generated residues of the held-out fragments.
    """
    model = learnt.trained.model
    batch = validate(collate(learnt.split.test), torch.float32)
    gen, g = batch["gen_mask"], stream(seed, "pepflow", "trust")
    x1 = model.clean(batch)
    x0 = model.prior(x1, gen, g)
    current = torch.where(gen, draw_types(x0.logits, generator=g), batch["aa"])
    node, edge = model.encode(batch)
    out: dict[str, list[float]] = {"native": [], "path": []}
    for t in times:
        now = torch.full((len(gen),), float(t))
        on_path = interpolate(x1, x0, now, gen)
        for name, bb in (("native", x1), ("path", on_path)):
            logits = model.ga_encoder(
                now, bb.rotmats, bb.trans, x0.angles, current, node, edge, batch["res_mask"]
            )[3]
            p = torch.softmax(logits, -1).gather(-1, batch["aa"].clamp_max(19).unsqueeze(-1)).squeeze(-1)
            out[name].append(float(p[gen].mean()))
    return out


def backbone_angles(samples: Sequence[dict[str, Tensor]]) -> Tensor:
    """(phi, psi) of the inner residues of peptides, from N, CA and C; (n, 2), radians."""
    out = []
    for s in samples:
        n, ca, c = s["pos14"][:, :3].unbind(1)
        phi = dihedrals(c[:-2], n[1:-1], ca[1:-1], c[1:-1])
        psi = dihedrals(n[1:-1], ca[1:-1], c[1:-1], n[2:])
        out.append(torch.stack((phi, psi), dim=-1))
    return torch.cat(out)


def burial(evaluation: Evaluation, mode: str, radius: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Receptor CA within `radius` angstrom of each native residue's CA, and its recovery (mean over samples)."""
    near, recovered = [], []
    for row, samples in zip(evaluation.rows, evaluation.designs[mode], strict=True):
        gen, ca = row["gen_mask"], row["pos"][:, 1]
        near.append((torch.cdist(ca[gen], ca[~gen & row["res_mask"]]) <= radius).sum(1).numpy())
        recovered.append(np.mean([(s["seq"] == row["aa"][gen]).numpy() for s in samples], axis=0))
    return np.concatenate(near), np.concatenate(recovered)


def native_peptides(rows: Sequence[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The native peptides in the form of designs: ``pos14``, ``angles``, ``seq``, ``trans``."""
    return [
        {
            "pos14": row["pos"][row["gen_mask"]][:, :14],
            "angles": row["torsion"][row["gen_mask"]],
            "seq": row["aa"][row["gen_mask"]],
            "trans": row["pos"][row["gen_mask"]][:, 1],
        }
        for row in rows
    ]


def first_batch(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The complexes as one float64 batch, for checks of the network."""
    batch = collate(list(rows))
    return {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}
