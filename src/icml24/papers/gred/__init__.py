"""GRED: distance sets around every node, read from far to near by a diagonal complex recurrence."""

from .distances import hop_masks, shortest_path_distances
from .graphs import SBMGraph, csl_graph, sbm_cluster, sbm_pattern, wl_color_histogram
from .layer import LRU, GREDConfig, GREDLayer
from .model import GREDModel
from .recurrence import init_lru_from_uniform, linear_recurrence, lru_eigenvalues
from .reference import load_reference_params
from .training import balanced_accuracy, param_groups, warmup_cosine_lr, weighted_node_cross_entropy

__all__ = [
    "LRU",
    "GREDConfig",
    "GREDLayer",
    "GREDModel",
    "SBMGraph",
    "balanced_accuracy",
    "csl_graph",
    "hop_masks",
    "init_lru_from_uniform",
    "linear_recurrence",
    "load_reference_params",
    "lru_eigenvalues",
    "param_groups",
    "sbm_cluster",
    "sbm_pattern",
    "shortest_path_distances",
    "warmup_cosine_lr",
    "weighted_node_cross_entropy",
    "wl_color_histogram",
]
