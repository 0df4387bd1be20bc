r"""One training loop for every objective: same encoders, data, steps and temperature."""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.common.schedules import warmup_decay

from .baselines import filip_loss, gloria_local_loss, pacl_loss
from .data import Scenes
from .encoders import DualEncoder
from .losses import global_contrastive_loss, sparc_loss

__all__ = ["OBJECTIVES", "fit", "objective_terms"]

#: Names of the objectives; "local" is SPARC without the global term.
OBJECTIVES = ("clip", "sparc", "softmax", "dense", "local", "filip", "pacl", "gloria")
_MODES = {"sparc": "sparse", "local": "sparse", "softmax": "softmax", "dense": "dense"}


def objective_terms(objective: str, out: dict[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """Loss of an objective and its parts ("loss"; "global" and "local" where there are such).

    Parameters
    ----------
    objective : str
        One of `OBJECTIVES`.
    out : dict of Tensors
        As `DualEncoder` returns it.
    mask : Tensor of bool, shape (B, L)
    """
    scale = out["inverse_temperature"]
    if objective in _MODES:
        return sparc_loss(
            *(out["image"], out["text"], out["patches"], out["tokens"], mask, scale),
            global_weight=0.0 if objective == "local" else 0.5,
            mode=_MODES[objective],
        )
    if objective == "filip":
        return {"loss": filip_loss(out["patches"], out["tokens"], mask, scale)}
    if objective == "pacl":
        return {"loss": pacl_loss(out["patches"], out["text"], scale)}
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; expected one of {OBJECTIVES}")
    whole = global_contrastive_loss(out["image"], out["text"], scale)
    if objective == "clip":
        return {"loss": whole, "global": whole}
    local = gloria_local_loss(out["patches"], out["tokens"], mask, scale)
    return {"loss": whole + local, "global": whole, "local": local}


def fit(
    model: DualEncoder,
    scenes: Scenes,
    objective: str,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    generator: torch.Generator | None = None,
) -> list[dict[str, float]]:
    """Train in place by AdamW on batches without repetition inside an epoch.

    Parameters
    ----------
    model : DualEncoder
    scenes : Scenes
    objective : {"clip", "sparc", "softmax", "dense", "local", "filip", "pacl", "gloria"}
    steps : int
        Optimiser steps; warm-up over the first 100 (at most a fifth of all), then a cosine to zero.
    batch_size : int
        Between 1 and the number of scenes.
    lr : float
        Peak learning rate.
    generator : torch.Generator, optional
        Order of the scenes; default a fixed stream.

    Returns
    -------
    list of dict
        One record a step: "step" (from 1), "loss", "inverse_temperature", and "global" and "local"
        for objectives that have them.

    Raises
    ------
    ValueError
        Unknown objective, sizes out of range.
    FloatingPointError
        At the first loss that is not finite; the message names the step.

    Notes
    -----
    Betas 0.9 and 0.98, weight decay 0.1 on matrices alone, gradient norm clipped at 1.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; expected one of {OBJECTIVES}")
    if steps < 0 or not lr > 0:
        raise ValueError(f"expected steps >= 0 and lr > 0; got {steps} and {lr}")
    if not 1 <= batch_size <= len(scenes):
        raise ValueError(f"batch_size must lie between 1 and {len(scenes)} scenes; got {batch_size}")
    g = stream(0, "sparc", "order") if generator is None else generator
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)
    warmup = min(100, steps // 5)
    order = torch.empty(0, dtype=torch.int64)
    history = []
    model.train()
    for step in range(steps):
        if len(order) < batch_size:
            order = torch.randperm(len(scenes), generator=g)
        batch, order = order[:batch_size], order[batch_size:]
        for group in optimiser.param_groups:
            group["lr"] = lr * warmup_decay(step, steps, warmup=warmup, floor=0.0)
        mask = scenes.mask[batch]
        out = model(scenes.images[batch], scenes.tokens[batch], mask)
        terms = objective_terms(objective, out, mask)
        record = {"step": step + 1.0, **{name: float(value.detach()) for name, value in terms.items()}}
        if not torch.isfinite(terms["loss"]):
            raise FloatingPointError(
                f"the loss of {objective!r} is {record['loss']} at step {step + 1}; try a lower lr than {lr}"
            )
        record["inverse_temperature"] = float(out["inverse_temperature"].detach())
        optimiser.zero_grad(set_to_none=True)
        terms["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        history.append(record)
    model.eval()
    return history
