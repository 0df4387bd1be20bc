r"""Patchscopes: asking a language model what its own states mean (Ghandeharioun et al., ICML 2024).

A model is anything with the small protocol `ResidualLM`; adapters serve the book's `RotaryGPT`
and causal models of `transformers`. Layers count residual states: 0 is the embedding, L the
last output before the final norm.
"""

from .affine import AffineMap, fit_affine
from .cache import PrefixCache, patched_generate
from .models import (
    HFResidualLM,
    ResidualLM,
    RotaryGPTLM,
    load_hf,
    load_smollm2,
    residual_stream,
    run_layers,
)
from .patching import PatchSpec, patched_logits, patchscope
from .readouts import (
    attribute_hit,
    logit_lens,
    oracle_accuracy,
    precision_at_1,
    rouge_l,
    surprisal,
)
from .sweeps import attribute_sweep, next_token_sweep

__all__ = [
    "AffineMap",
    "HFResidualLM",
    "PatchSpec",
    "PrefixCache",
    "ResidualLM",
    "RotaryGPTLM",
    "attribute_hit",
    "attribute_sweep",
    "fit_affine",
    "load_hf",
    "load_smollm2",
    "logit_lens",
    "next_token_sweep",
    "oracle_accuracy",
    "patched_generate",
    "patched_logits",
    "patchscope",
    "precision_at_1",
    "residual_stream",
    "rouge_l",
    "run_layers",
    "surprisal",
]
