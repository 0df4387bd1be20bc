r"""Attribute extraction in words against trained probes, on the authors' relations (full profile)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .data import RELATIONS, Record, one_per_subject, relation_rows
from .experiments import Config, changed_by_strict
from .models import ResidualLM
from .probes import folds_by_subject, folds_within_subject, probe_hits
from .sweeps import NothingKnown, attribute_sweep, subject_states

__all__ = ["Relation", "measure_relations"]


@dataclass(frozen=True)
class Relation:
    """One relation's scores by source layer.

    Attributes
    ----------
    name : str
    layers : tuple of int
        Source layers, length S.
    kept, total : int
        Records whose attribute the unpatched model states, and all.
    majority : float
        Share of the most frequent object among the kept records: what blind guessing would reach.
    accuracy : Tensor (target layers, S)
    mean_over_targets, oracle : Tensor (S,)
        Oracle: some target layer succeeds, record by record.
    held_out_pair : float
        Best (source, target) pair on every second record, judged on the others.
    probe_unseen, probe_seen : Tensor (S,)
        Accuracy of a linear probe on prompts of the kept subjects, for subjects it never saw, and
        for subjects that it saw in other contexts.
    strict_changes, patched_texts : int
        Hits that vanish under the word-boundary rule for short objects, and texts in all.
    """

    name: str
    layers: tuple[int, ...]
    kept: int
    total: int
    majority: float
    accuracy: Tensor
    mean_over_targets: Tensor
    oracle: Tensor
    held_out_pair: float
    probe_unseen: Tensor
    probe_seen: Tensor
    strict_changes: int
    patched_texts: int

    @property
    def best(self) -> Tensor:
        """Accuracy at the best single target layer of each source layer, (S,)."""
        return self.accuracy.max(0).values


def measure_relations(
    model: ResidualLM, tokenizer: Any, config: Config, *, suffix: str = " is"
) -> list[Relation]:
    """Sweep and probes on every relation of which the model knows at least four attributes."""
    out = []
    for name in RELATIONS:
        rows = relation_rows(name)
        records = one_per_subject(rows, config.relation_subjects)
        try:
            sweep = attribute_sweep(
                model,
                tokenizer,
                records,
                source_layers=config.relation_sources,
                target_layers=config.relation_targets,
                max_new_tokens=config.relation_tokens,
                suffix=suffix,
            )
        except NothingKnown:
            continue
        if len(sweep["kept"]) >= 4:
            out.append(_relation(name, model, tokenizer, records, sweep, rows, config))
    return out


def _relation(
    name: str,
    model: ResidualLM,
    tokenizer: Any,
    records: list[Record],
    sweep: dict[str, Any],
    rows: tuple[Record, ...],
    config: Config,
) -> Relation:
    kept = [records[j] for j in sweep["kept"]]
    objects = [record["object"] for record in kept]
    hits = sweep["hits"].flatten(0, 1).double()  # (pairs, records)
    best = int(hits[:, 0::2].mean(1).argmax())
    samples = _prompts(rows, {record["subject"] for record in records}, config.relation_prompts)
    states = subject_states(model, tokenizer, samples)[:, list(config.relation_sources)]
    subjects, answers = [s["subject"] for s in samples], [s["object"] for s in samples]
    judged = torch.tensor([s in {record["subject"] for record in kept} for s in subjects])
    probes = [
        torch.tensor(
            [
                float(
                    probe_hits(states[:, k], answers, folds(subjects, config.probe_folds))[judged]
                    .double()
                    .mean()
                )
                for k in range(len(config.relation_sources))
            ]
        )
        for folds in (folds_by_subject, folds_within_subject)
    ]
    return Relation(
        name=name,
        layers=config.relation_sources,
        kept=len(kept),
        total=len(records),
        majority=max(objects.count(o) for o in objects) / len(objects),
        accuracy=sweep["accuracy"],
        mean_over_targets=sweep["mean_over_targets"],
        oracle=sweep["oracle_over_targets"],
        held_out_pair=float(hits[best, 1::2].mean()),
        probe_unseen=probes[0],
        probe_seen=probes[1],
        strict_changes=changed_by_strict(sweep, [record["object"] for record in records]),
        patched_texts=sweep["hits"].numel(),
    )


def _prompts(rows: tuple[Record, ...], subjects: set[str], most: int) -> list[Record]:
    count: dict[str, int] = {}
    out = []
    for row in rows:
        subject = row["subject"]
        usable = subject in subjects and subject in row["prompt_source"] and "\n" not in row["prompt_source"]
        if usable and count.get(subject, 0) < most:
            count[subject] = count.get(subject, 0) + 1
            out.append(row)
    return out
