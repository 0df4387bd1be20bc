r"""Knowledge storage and extraction in language models (Allen-Zhu and Li, ICML 2024).

Synthetic people (`sample_people`), their biographies under augmentations of the text
(`build_corpus`), a small GPT (`RotaryGPT`), three ways to train it (`pretrain`, also mixed, and
`finetune_qa`, also by low-rank updates), and ways to ask what it knows (`evaluate_bio`,
`evaluate_qa`, `p_probe`, `q_probe`). Randomness comes from generators and seeds that are given.
"""

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.common.rotary import apply_rotary, rotary_tables
from icml24.common.schedules import warmup_decay

from .adapters import LoRALinear, LowRankEmbedding, apply_lora
from .biographies import first_value_positions, render_biography
from .corpora import BioConfig, Corpus, build_corpus
from .data import load_pools
from .evaluation import evaluate_bio, evaluate_qa, exact_match, first_token_accuracy
from .people import Person, sample_people
from .probes import p_probe, q_probe
from .sentences import ATTRIBUTES
from .tokens import WordTokenizer, split_words
from .training import TrainConfig, finetune_qa, pretrain

__all__ = [
    "ATTRIBUTES",
    "BioConfig",
    "Corpus",
    "GPTConfig",
    "LoRALinear",
    "LowRankEmbedding",
    "Person",
    "RotaryGPT",
    "TrainConfig",
    "WordTokenizer",
    "apply_lora",
    "apply_rotary",
    "build_corpus",
    "evaluate_bio",
    "evaluate_qa",
    "exact_match",
    "finetune_qa",
    "first_token_accuracy",
    "first_value_positions",
    "load_pools",
    "p_probe",
    "pretrain",
    "q_probe",
    "render_biography",
    "rotary_tables",
    "sample_people",
    "split_words",
    "warmup_decay",
]
