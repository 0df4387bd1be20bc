r"""How the two stored models were trained; ``python -m icml24.papers.aqlm.training`` makes them anew.

AdamW at 3e-3 with warm-up and cosine decay, batches of 16 windows of 128 characters, a fixed
number of steps. A model far from trained shows no damage when it is quantised (its blocks carry
nothing yet), so these go on well past the level of character pairs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from icml24.common.gpt import RotaryGPT
from icml24.common.random import generator
from icml24.common.schedules import warmup_decay

from .data import MODELS, draw_windows

__all__ = ["STEPS", "store", "train"]

#: Optimiser steps of a stored model.
STEPS = {"large": 1100, "small": 900}
BATCH, LR, WARMUP, SEED = 16, 3e-3, 50, 0


def train(name: str, steps: int | None = None) -> tuple[RotaryGPT, list[float]]:
    """Train a model of `data.MODELS` from its seed.

    Parameters
    ----------
    name : {"small", "large"}
    steps : int, optional
        Stop after so many steps of the whole schedule (which is `STEPS` long).

    Returns
    -------
    (RotaryGPT, list of float)
        The model and the training loss of every step, nats a character.
    """
    model = RotaryGPT(MODELS[name], generator=generator(SEED, "aqlm", "weights", name))
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    windows = generator(SEED, "aqlm", "batches", name)
    losses = []
    for step in range(STEPS[name] if steps is None else steps):
        for group in optimiser.param_groups:
            group["lr"] = LR * warmup_decay(step, STEPS[name], warmup=WARMUP)
        ids = draw_windows(BATCH, generator=windows)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return model.eval(), losses


def store(name: str, folder: Path) -> Path:
    """Train a model and write it to ``folder/name.npz`` in bfloat16; returns the file.

    The two bytes of the numbers lie in two rows, since the upper one compresses and the lower does not.
    """
    model, losses = train(name)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().bfloat16()
    path = folder / f"{name}.npz"
    np.savez_compressed(
        path, losses=np.float32(losses), weights=weights.view(torch.uint8).view(-1, 2).T.numpy()
    )
    return path


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in STEPS:
        store(each, Path(__file__).parent)
