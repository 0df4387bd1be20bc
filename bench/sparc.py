"""SPARC's fine-grained loss beside a loop over captions, and beside the losses it competes with.

``python bench/sparc.py`` needs nothing beyond the book. No maintained package of the method is
known; the loop below is what one would write from the paper without batching. Before anything is
timed, both must give the same loss and the same gradients. Every row is forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import harness
import torch
import torch.nn.functional as F

from icml24.papers import sparc

LENGTH, PATCHES, WIDTH, SCALE = 13, 25, 64, 14.3


def batch(size: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Random embeddings with captions of 1 to 13 words."""
    g = torch.Generator().manual_seed(size)
    real = torch.randint(1, LENGTH + 1, (size, 1), generator=g)
    shapes = {
        "patches": (size, PATCHES, WIDTH),
        "tokens": (size, LENGTH, WIDTH),
        "image": (size, WIDTH),
        "text": (size, WIDTH),
    }
    out = {
        name: torch.randn(shape, generator=g, dtype=dtype).requires_grad_(True)
        for name, shape in shapes.items()
    }
    return out | {"mask": torch.arange(LENGTH)[None] < real}


def ours(b: dict[str, torch.Tensor]) -> torch.Tensor:
    """The batched local loss."""
    grouped = sparc.language_grouped(b["tokens"], b["patches"])
    return sparc.sequence_contrastive_loss(grouped, b["tokens"], b["mask"], SCALE)


def per_sample(b: dict[str, torch.Tensor]) -> torch.Tensor:
    """The same, one caption at a time without its padding, words together."""
    losses = []
    for v, t, real in zip(b["patches"], b["tokens"], b["mask"], strict=True):
        words = t[real]
        s = words @ v.T
        low, high = s.min(1, keepdim=True).values, s.max(1, keepdim=True).values
        s = (s - low) / (high - low)
        s = torch.where(s < 1 / len(v), torch.zeros_like(s), s)
        grouped = (s / s.sum(1, keepdim=True)) @ v
        logits = SCALE * F.normalize(grouped, dim=1) @ F.normalize(words, dim=1).T
        own = torch.arange(len(words))
        losses.append((F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2)
    return torch.stack(losses).mean()


def filip(b: dict[str, torch.Tensor]) -> torch.Tensor:
    """FILIP of the same package."""
    return sparc.filip_loss(b["patches"], b["tokens"], b["mask"], SCALE)


def gloria(b: dict[str, torch.Tensor]) -> torch.Tensor:
    """GLoRIA's local term of the same package."""
    return sparc.gloria_local_loss(b["patches"], b["tokens"], b["mask"], SCALE)


def clip(b: dict[str, torch.Tensor]) -> torch.Tensor:
    """The global loss alone."""
    return sparc.global_contrastive_loss(b["image"], b["text"], SCALE)


def check_same_answers() -> None:
    """Loss and gradients of the batched and the looped form agree in double precision."""
    results = []
    for loss in (ours, per_sample):
        b = batch(16, torch.float64)
        value = loss(b)
        value.backward()
        results.append((value.detach(), b["patches"].grad, b["tokens"].grad))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-10)


def step(
    loss: Callable[[dict[str, torch.Tensor]], torch.Tensor], b: dict[str, torch.Tensor]
) -> Callable[[], None]:
    """One forward and backward pass."""

    def call() -> None:
        loss(b).backward()

    return call


@click.command()
@click.option("--repeats", default=20, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time the local loss against the loop, FILIP, GLoRIA and the global loss."""
    torch.set_num_threads(1)
    check_same_answers()
    sizes = f"{PATCHES} patches, {LENGTH} words, {WIDTH} dimensions"
    plan = [
        (64, "a loop over samples", per_sample, 5, 1),
        (64, "FILIP's loss", filip, 5, 1),
        (64, "GLoRIA's local loss", gloria, 5, 1),
        (64, "the global loss alone", clip, 5, 20),
        (256, "a loop over samples", per_sample, 2, 1),
        (256, "FILIP's loss", filip, 2, 1),
    ]
    rows = []
    for size, what, peer, number, peer_number in plan:
        b = batch(size)
        rows.append(
            harness.compare(
                f"local loss and gradients, batch {size}, {sizes} ({what})",
                *(step(ours, b), step(peer, b)),
                repeats=repeats if size < 256 else max(repeats // 3, 3),
                number=number,
                peer_number=peer_number,
                unit="ms",
            )
        )
    harness.write(
        "sparc",
        "The fine-grained loss of SPARC",
        "a loop over samples; FILIP, GLoRIA, CLIP",
        rows,
        ["torch", "numpy"],
    )


if __name__ == "__main__":
    main()
