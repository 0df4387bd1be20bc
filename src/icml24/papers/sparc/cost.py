r"""What a fine-grained loss costs as the batch grows: flops counted, time and memory measured.

Equation eq-sparc-cost. Memory is the size of what autograd keeps for the backward pass, counted
exactly by hooks; time is processor time, which a busy machine disturbs less than a clock on the wall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.random import generator

from .alignment import language_grouped
from .baselines import filip_loss, gloria_local_loss, pacl_loss
from .losses import global_contrastive_loss, sequence_contrastive_loss

__all__ = ["LOSSES", "exponent", "loss_flops", "measure", "random_batch", "saved_bytes", "speedup"]

#: Sizes of a batch's captions, images and embeddings in every measurement.
LENGTH, PATCHES, WIDTH = 13, 25, 64


def random_batch(
    size: int, *, length: int = LENGTH, patches: int = PATCHES, width: int = WIDTH
) -> dict[str, Tensor]:
    """Random embeddings that ask for gradients, and a full mask."""
    g = generator(0, "sparc", "cost", size)
    return {
        "patches": torch.randn(size, patches, width, generator=g).requires_grad_(True),
        "tokens": torch.randn(size, length, width, generator=g).requires_grad_(True),
        "image": torch.randn(size, width, generator=g).requires_grad_(True),
        "text": torch.randn(size, width, generator=g).requires_grad_(True),
        "mask": torch.ones(size, length, dtype=torch.bool),
    }


#: Each loss of a batch, by name; "sparc (local)" is the fine-grained term alone.
LOSSES: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
    "clip": lambda b: global_contrastive_loss(b["image"], b["text"], 14.3),
    "sparc (local)": lambda b: sequence_contrastive_loss(
        language_grouped(b["tokens"], b["patches"]), b["tokens"], b["mask"], 14.3
    ),
    "pacl": lambda b: pacl_loss(b["patches"], b["text"], 14.3),
    "filip": lambda b: filip_loss(b["patches"], b["tokens"], b["mask"], 14.3),
    "gloria (local)": lambda b: gloria_local_loss(b["patches"], b["tokens"], b["mask"], 14.3),
}


def loss_flops(name: str, size: int, length: int, patches: int, width: int) -> int:
    r"""Flops of the matrix products in one forward pass.

    SPARC's local loss: :math:`4BLPd + 2BL^2d`. FILIP: :math:`2B^2LPd`. GLoRIA as written here,
    with the patches' Gram matrix: :math:`2B^2LPd + 2B^2LP^2 + 2BP^2d`; forming its vectors would
    cost :math:`4B^2LPd`.

    Raises
    ------
    ValueError
        A name other than those three.
    """
    b, n, p, d = size, length, patches, width
    if name == "sparc (local)":
        return 4 * b * n * p * d + 2 * b * n * n * d
    if name == "filip":
        return 2 * b * b * n * p * d
    if name == "gloria (local)":
        return 2 * b * b * n * p * (d + p) + 2 * b * p * p * d
    raise ValueError(f"no count for {name!r}; expected 'sparc (local)', 'filip' or 'gloria (local)'")


def saved_bytes(call: Callable[[], Tensor]) -> int:
    """Bytes that autograd keeps alive between the forward and the backward pass of `call`."""
    kept: dict[int, tuple[Tensor, int]] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = (x, storage.nbytes())  # the tensor itself, so that no address is reused
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call()
    return sum(size for _, size in kept.values())


def measure(name: str, sizes: Sequence[int], *, repeats: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Processor seconds (least of `repeats`) of forward and backward, and bytes saved, by batch size."""
    seconds, sizes_kept = [], []
    for size in sizes:
        batch = random_batch(size)
        loss = LOSSES[name]
        sizes_kept.append(saved_bytes(lambda loss=loss, batch=batch: loss(batch)))
        times = []
        for _ in range(repeats):
            start = time.process_time()
            loss(batch).backward()
            times.append(time.process_time() - start)
        seconds.append(min(times))
    return np.array(seconds), np.array(sizes_kept, dtype=float)


def exponent(sizes: Sequence[int], values: np.ndarray) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(np.asarray(sizes, dtype=float)), np.log(values), 1)[0])


def speedup(size: int = 64, *, repeats: int = 3) -> float:
    """Processor time of the loop over samples, over that of the batched local loss; forward and backward."""
    batch = random_batch(size)
    calls: list[Callable[[], Tensor]] = [
        lambda: _sample_by_sample(batch),
        lambda: LOSSES["sparc (local)"](batch),
    ]
    least = []
    for call in calls:
        times = []
        for _ in range(repeats + 1):  # the first warms up
            start = time.process_time()
            call().backward()
            times.append(time.process_time() - start)
        least.append(min(times[1:]))
    return least[0] / least[1]


def _sample_by_sample(batch: dict[str, Tensor]) -> Tensor:
    """The local loss by a loop over captions without padding, the words of one together."""
    losses = []
    for v, t, real in zip(batch["patches"], batch["tokens"], batch["mask"], strict=True):
        words = t[real]
        s = words @ v.T
        low, high = s.amin(1, keepdim=True), s.amax(1, keepdim=True)
        s = (s - low) / (high - low)
        s = s.masked_fill(s < 1 / len(v), 0.0)
        grouped = (s / s.sum(1, keepdim=True)) @ v
        logits = 14.3 * F.normalize(grouped, dim=1) @ F.normalize(words, dim=1).T
        own = torch.arange(len(words))
        losses.append((F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2)
    return torch.stack(losses).mean()
