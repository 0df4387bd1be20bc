r"""Training: Adam on the weighted sum of the six losses, a fixed number of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.common.schedules import warmup_decay

from .batches import collate, repeat, validate
from .config import PepFlowConfig
from .losses import LOSS_WEIGHTS
from .model import PepFlow

__all__ = ["MODALITIES", "SMALL", "TINY", "Trained", "Training", "overfit", "train"]

#: Overfits one complex in seconds.
TINY = PepFlowConfig(
    c_s=12, c_z=16, c_hidden=16, no_heads=4, no_qk_points=4, no_v_points=8, seq_tfmr_num_heads=4,
    seq_tfmr_num_layers=1, num_blocks=2,
)  # fmt: skip
#: Learns from fragments in minutes.
SMALL = PepFlowConfig(
    c_s=64, c_z=24, c_hidden=16, no_heads=4, no_qk_points=4, no_v_points=4, seq_tfmr_num_heads=4,
    seq_tfmr_num_layers=1, num_blocks=2,
)  # fmt: skip

#: Losses of each modality, for the ablation.
MODALITIES = {"bb": ("trans", "rot", "bb_atom"), "seq": ("seq",), "ang": ("angle", "torsion")}


@dataclass(frozen=True)
class Training:
    """How to train.

    Attributes
    ----------
    steps, batch : int
    lr : float
        Adam's rate after warm-up.
    warmup : int
        Steps of linear warm-up; then a cosine to zero.
    clip : float
        Largest norm of the gradient.
    network : PepFlowConfig
    modalities : tuple of str
        Keys of `MODALITIES`. A modality left out is neither noised nor scored: the network sees the
        peptide's native values of it.
    """

    steps: int
    batch: int = 8
    lr: float = 1e-3
    warmup: int = 50
    clip: float = 10.0
    network: PepFlowConfig = field(default=SMALL)
    modalities: tuple[str, ...] = ("bb", "seq", "ang")


@dataclass(frozen=True)
class Trained:
    """A trained model and its losses: name to values, one a step."""

    model: PepFlow
    losses: dict[str, list[float]]


def train(rows: Sequence[dict[str, Tensor]], training: Training, seed: int) -> Trained:
    """Train on complexes, each epoch in a new order.

    Parameters
    ----------
    rows : sequence of dict
    training : Training
    seed : int

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        No rows, or an unknown modality.
    FloatingPointError
        A loss is not finite.
    """
    if not rows:
        raise ValueError("no complexes to train on")
    order = stream(seed, "pepflow", "order")
    queue: list[int] = []

    def batches(_: int) -> dict[str, Tensor]:
        while len(queue) < training.batch:
            queue.extend(torch.randperm(len(rows), generator=order).tolist())
        picked, queue[: training.batch] = queue[: training.batch], []
        return collate([rows[i] for i in picked])

    return _fit(batches, training, seed, cosine=True)


def overfit(row: dict[str, Tensor], training: Training, seed: int) -> Trained:
    """Train on one complex, `training.batch` copies with their own noise a step, at a constant rate."""
    batch = repeat(collate([row]), training.batch)
    return _fit(lambda _: batch, training, seed, cosine=False)


def _fit(batches, training: Training, seed: int, *, cosine: bool) -> Trained:
    unknown = set(training.modalities) - set(MODALITIES)
    if unknown or not training.modalities:
        raise ValueError(f"modalities must be some of {sorted(MODALITIES)}; got {training.modalities}")
    names = [name for key in training.modalities for name in MODALITIES[key]]
    model = PepFlow(training.network, generator=stream(seed, "pepflow", "weights"))
    noise = stream(seed, "pepflow", "noise")
    optimiser = torch.optim.Adam(model.parameters(), lr=training.lr)
    losses: dict[str, list[float]] = {name: [] for name in LOSS_WEIGHTS}
    for step in range(training.steps):
        for group in optimiser.param_groups:
            group["lr"] = training.lr * (
                warmup_decay(step, training.steps, warmup=training.warmup, floor=0.0) if cosine else 1.0
            )
        batch = validate(batches(step), torch.float32)
        gen = batch["gen_mask"]
        free = [gen & (key in training.modalities) for key in ("bb", "ang", "seq")]
        parts = model.flow_loss(batch, *free, noise)
        total = sum(LOSS_WEIGHTS[name] * parts[name] for name in names)
        optimiser.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        if not math.isfinite(float(norm)):
            raise FloatingPointError(f"the gradient is not finite at step {step}")
        optimiser.step()
        for name in LOSS_WEIGHTS:
            losses[name].append(parts[name].item())
    return Trained(model.eval(), losses)
