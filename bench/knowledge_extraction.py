"""The chapter's GPT beside transformers' GPT-NeoX of the same sizes and weights, interleaved in one run.

``python bench/knowledge_extraction.py`` needs the extra ``bench``. Before anything is timed, both
sides must give the same logits and the same gradient of the embedding.
"""

from __future__ import annotations

import click
import harness
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from icml24.common.gpt import GPTConfig, RotaryGPT

BATCH, LENGTH = 25, 48
SIZES = GPTConfig(vocab_size=950)
OPTIMISER = {"lr": 1e-3, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1, "fused": True}


def peer_of(model: RotaryGPT, activation: str) -> GPTNeoXForCausalLM:
    """GPT-NeoX with sequential residual, full rotary width and tied embeddings, holding our weights."""
    c = model.config
    peer = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.d_model,
            num_hidden_layers=c.n_layer,
            num_attention_heads=c.n_head,
            intermediate_size=4 * c.d_model,
            hidden_act=activation,
            max_position_embeddings=256,
            use_parallel_residual=False,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base, "partial_rotary_factor": 1.0},
            tie_word_embeddings=True,
            attention_dropout=0.0,
            hidden_dropout=0.0,
        )
    )
    state = {"gpt_neox.embed_in.weight": model.wte.weight, "embed_out.weight": model.wte.weight}
    for kind in ("weight", "bias"):
        state[f"gpt_neox.final_layer_norm.{kind}"] = getattr(model.ln_f, kind)
        for i, block in enumerate(model.blocks):
            layer = f"gpt_neox.layers.{i}."
            parts = [getattr(getattr(block.attn, name), kind) for name in "qkv"]
            heads = torch.stack([part.unflatten(0, (c.n_head, -1)) for part in parts], 1)
            state[f"{layer}attention.query_key_value.{kind}"] = heads.flatten(0, 2)
            state[f"{layer}attention.dense.{kind}"] = getattr(block.attn.o, kind)
            state[f"{layer}input_layernorm.{kind}"] = getattr(block.ln1, kind)
            state[f"{layer}post_attention_layernorm.{kind}"] = getattr(block.ln2, kind)
            state[f"{layer}mlp.dense_h_to_4h.{kind}"] = getattr(block.fc, kind)
            state[f"{layer}mlp.dense_4h_to_h.{kind}"] = getattr(block.proj, kind)
    peer.load_state_dict({name: tensor.detach().clone() for name, tensor in state.items()}, strict=False)
    peer.tie_weights()
    return peer.train()


class Trainer:
    """Forward, loss, backward and AdamW on one fixed batch."""

    def __init__(self, model: torch.nn.Module, ids: torch.Tensor) -> None:
        self.model, self.ids = model, ids
        self.optimiser = torch.optim.AdamW(model.parameters(), **OPTIMISER)

    def loss(self) -> torch.Tensor:
        """Mean next-token loss."""
        out = (
            self.model(self.ids)
            if isinstance(self.model, RotaryGPT)
            else self.model(self.ids, use_cache=False).logits
        )
        return torch.nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), self.ids[:, 1:].flatten())

    def step(self) -> None:
        """One optimiser step."""
        self.optimiser.zero_grad()
        self.loss().backward()
        self.optimiser.step()

    @torch.no_grad()
    def forward(self) -> None:
        """One evaluation."""
        self.loss()


def check_same_answers(ours: RotaryGPT, peer: GPTNeoXForCausalLM, ids: torch.Tensor) -> None:
    """Same logits and same gradient in float64 (the peer's rotary angles are float32)."""
    a, b = Trainer(ours.double(), ids), Trainer(peer.double(), ids)
    torch.testing.assert_close(ours(ids), peer(ids).logits, rtol=0, atol=1e-5)
    for side in (a, b):
        side.loss().backward()
    torch.testing.assert_close(
        ours.wte.weight.grad, peer.get_input_embeddings().weight.grad, rtol=1e-4, atol=1e-7
    )
    for model in (ours.float(), peer.float()):
        model.zero_grad()


@click.command()
@click.option("--repeats", default=25, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time training steps and evaluations of both sides."""
    torch.set_num_threads(1)
    ids = torch.randint(SIZES.vocab_size, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    rows = []
    sizes = f"{BATCH} x {LENGTH} tokens, width {SIZES.d_model}, {SIZES.n_layer} layers"
    for activation, remark in (("gelu_new", "as configured"), ("gelu_pytorch_tanh", "with torch's own gelu")):
        model = RotaryGPT(SIZES, generator=torch.Generator().manual_seed(1))
        peer = peer_of(model, activation)
        check_same_answers(model, peer, ids)
        ours, theirs = Trainer(model, ids), Trainer(peer, ids)
        rows.append(
            harness.compare(
                f"training step, {sizes} (GPT-NeoX {remark})",
                *(ours.step, theirs.step),
                repeats=repeats,
                number=4,
                unit="ms",
            )
        )
    rows.append(
        harness.compare(
            f"evaluation of one batch, {sizes} (GPT-NeoX with torch's own gelu)",
            *(ours.forward, theirs.forward),
            repeats=repeats,
            number=4,
            unit="ms",
        )
    )
    harness.write(
        "knowledge_extraction",
        "A small GPT with rotary positions",
        "transformers (GPT-NeoX)",
        rows,
        ["torch", "transformers"],
    )


if __name__ == "__main__":
    main()
