"""Patched runs on SmolLM2: one token per patch beside nnsight and plain hooks, interleaved in one run.

``python bench/patchscopes.py`` needs the extra ``bench`` and the wheel of SmolLM2. Before anything is
timed, all sides must give the same logits and the same generated tokens.
"""

from __future__ import annotations

import click
import harness
import numpy as np
import torch
from nnsight import LanguageModel

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes.data import IDENTITY_PROMPT
from icml24.papers.patchscopes.sweeps import encode

LAYER, NEW_TOKENS = 15, 8
SENTENCE = (
    "The delegation of the city arrived from Spain on the first train of the day and was met at the station"
)


class Peer:
    """The same patch by nnsight: the whole prompt, one edit at the output of a block."""

    def __init__(self, lm: ps.HFResidualLM, tokenizer: object, ids: torch.Tensor) -> None:
        self.model = LanguageModel(lm.model, tokenizer=tokenizer)
        self.ids = ids

    @torch.no_grad()
    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        """Logits of the last position, (B, V)."""
        model, ids = self.model, self.ids.expand(len(vectors), -1)
        with model.trace(ids, logits_to_keep=1):
            model.model.layers[LAYER - 1].output[:, -1] = vectors
            out = model.lm_head.output.save()
        return out[:, -1]

    @torch.no_grad()
    def generate(self, vectors: torch.Tensor) -> torch.Tensor:
        """Greedy tokens, (B, NEW_TOKENS); the prompt pass is edited, later ones are not."""
        model, ids = self.model, self.ids.expand(len(vectors), -1)
        with model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None):
            model.model.layers[LAYER - 1].output[:, -1] = vectors
            out = model.generator.output.save()
        return out[:, self.ids.shape[-1] :]


@torch.no_grad()
def hooked(lm: ps.HFResidualLM, ids: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """The same patch by a torch hook, as the authors' code does it: the whole prompt again."""

    def overwrite(module: object, args: object, out: torch.Tensor) -> torch.Tensor:
        out = out.clone()
        out[:, -1] = vectors
        return out

    handle = lm.model.model.layers[LAYER - 1].register_forward_hook(overwrite)
    try:
        return lm.model(ids.expand(len(vectors), -1), logits_to_keep=1).logits[:, -1]
    finally:
        handle.remove()


@click.command()
@click.option("--repeats", default=9, show_default=True, help="Interleaved pairs a row.")
@click.option("--rows", default=16, show_default=True, help="Patched states a batch.")
def main(repeats: int, rows: int) -> None:
    """Time one batch of patched next-token distributions and one of patched generations."""
    torch.set_num_threads(1)
    lm, tokenizer = ps.load_smollm2()
    ids = encode(tokenizer, IDENTITY_PROMPT)
    with torch.no_grad():
        stream = ps.residual_stream(lm, encode(tokenizer, SENTENCE))
    vectors = stream[LAYER, 0, 1 : rows + 1].clone()
    peer = Peer(lm, tokenizer, ids)

    @torch.no_grad()
    def ours() -> torch.Tensor:
        return ps.PrefixCache(lm, ids).logits(vectors, target_layer=LAYER)

    cache = ps.PrefixCache(lm, ids)

    @torch.no_grad()
    def ready() -> torch.Tensor:
        return cache.logits(vectors, target_layer=LAYER)

    def text() -> torch.Tensor:
        return ps.patched_generate(lm, ids, vectors, target_layer=LAYER, max_new_tokens=NEW_TOKENS)

    torch.testing.assert_close(ours(), peer.logits(vectors), rtol=0, atol=1e-3)
    torch.testing.assert_close(ours(), hooked(lm, ids, vectors), rtol=0, atol=1e-3)
    assert torch.equal(text(), peer.generate(vectors))

    size = f"{len(vectors)} states, prompt of {len(ids)} tokens, layer {LAYER}"
    results = [
        harness.compare(
            f"next token, {size}, cache built each time (nnsight)",
            *(ours, lambda: peer.logits(vectors)),
            repeats=repeats,
            unit="ms",
        ),
        harness.compare(
            f"next token, {size}, cache ready (forward hook)",
            *(ready, lambda: hooked(lm, ids, vectors)),
            repeats=repeats,
            unit="ms",
        ),
        harness.compare(
            f"{NEW_TOKENS} generated tokens, {size} (nnsight)",
            *(text, lambda: peer.generate(vectors)),
            repeats=max(repeats // 2, 3),
            unit="ms",
        ),
    ]
    harness.write(
        "patchscopes",
        "Patched runs of a pretrained model",
        "nnsight, forward hooks",
        results,
        ["torch", "transformers", "nnsight"],
    )
    assert np.isfinite([row["ratio"] for row in results]).all()


if __name__ == "__main__":
    main()
