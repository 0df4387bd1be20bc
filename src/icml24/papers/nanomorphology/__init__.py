r"""Nanomaterial morphology: what predicts the shape of a particle, and what only seems to.

The protocol of *Unveiling the Potential of AI for Nanomaterial Morphology Prediction* (ICML 2024):
targets from a table of syntheses, forests under repeated hold-out with a break-even threshold,
few-shot prompts and their scores, and a variational autoencoder linked to text.
"""

from icml24.papers.nanomorphology.clients import (
    ChatClient,
    NearestExampleClient,
    OpenAIChatClient,
    build_messages,
)
from icml24.papers.nanomorphology.data import load_dataset
from icml24.papers.nanomorphology.holdout import HoldoutResult, repeated_holdout
from icml24.papers.nanomorphology.images import LinkingNetwork, MorphologyVAE, vae_loss
from icml24.papers.nanomorphology.procedures import render_procedure
from icml24.papers.nanomorphology.replies import parse_reply, score_replies
from icml24.papers.nanomorphology.shots import copy_majority, select_examples
from icml24.papers.nanomorphology.targets import (
    SHAPES,
    SIZE_BOUNDS,
    feature_columns,
    feature_matrix,
    make_targets,
)
from icml24.papers.nanomorphology.thresholds import break_even_threshold, evaluate_at_threshold

__all__ = [
    "SHAPES",
    "SIZE_BOUNDS",
    "ChatClient",
    "HoldoutResult",
    "LinkingNetwork",
    "MorphologyVAE",
    "NearestExampleClient",
    "OpenAIChatClient",
    "break_even_threshold",
    "build_messages",
    "copy_majority",
    "evaluate_at_threshold",
    "feature_columns",
    "feature_matrix",
    "load_dataset",
    "make_targets",
    "parse_reply",
    "render_procedure",
    "repeated_holdout",
    "score_replies",
    "select_examples",
    "vae_loss",
]
