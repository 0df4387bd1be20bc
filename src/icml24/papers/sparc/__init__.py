r"""Sparse fine-grained contrastive alignment of words and patches (Bica et al., ICML 2024).

Losses (`token_patch_similarity` ... `gloria_local_loss`) take tensors of any float dtype and
boolean masks; metrics (`retrieval_recall` ... `mean_iou`) also take arrays and lists. Scenes,
encoders and training draw from the generator given, never from global state.
"""

from .alignment import alignment_weights, language_grouped, minmax_normalize, token_patch_similarity
from .baselines import filip_loss, filip_similarity, gloria_local_loss, pacl_loss
from .data import CLASSES, COLOURS, SceneConfig, Scenes, Vocabulary, render_scenes
from .encoders import DualEncoder, EncoderConfig
from .evaluation import evaluate
from .losses import global_contrastive_loss, sequence_contrastive_loss, sparc_loss
from .measures import k_precision, mean_iou, retrieval_recall, segment
from .training import fit

__all__ = [
    "CLASSES",
    "COLOURS",
    "DualEncoder",
    "EncoderConfig",
    "SceneConfig",
    "Scenes",
    "Vocabulary",
    "alignment_weights",
    "evaluate",
    "filip_loss",
    "filip_similarity",
    "fit",
    "global_contrastive_loss",
    "gloria_local_loss",
    "k_precision",
    "language_grouped",
    "mean_iou",
    "minmax_normalize",
    "pacl_loss",
    "render_scenes",
    "retrieval_recall",
    "segment",
    "sequence_contrastive_loss",
    "sparc_loss",
    "token_patch_similarity",
]
