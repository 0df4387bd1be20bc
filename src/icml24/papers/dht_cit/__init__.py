r"""Causal relations from two slices of a subsampled time series (Wu et al., ICML 2024).

Arrays are NumPy float64; lists, integer arrays and torch tensors are converted, and no input is
changed in place. An adjacency is an integer array whose rows are causes: ``a[i, j] == 1`` reads
"i causes j". Randomness comes from the generator given, never from global state.
"""

from .data import load_pm_cmr
from .descendants import candidate_graph, descendant_pvalues, layer_order, topological_layers
from .discovery import DHTResult, dht_cit
from .kernels import kci_pvalue, kci_row
from .metrics import (
    ancestors_to_descendants,
    edge_scores,
    order_violations,
    structural_hamming_distance,
    structural_intervention_distance,
)
from .pruning import gam_prune
from .slices import SubsampledConfig, random_dag, sample_noise, simulate_slices
from .stein import score_order, stein_hessian_diagonal

__all__ = [
    "DHTResult",
    "SubsampledConfig",
    "ancestors_to_descendants",
    "candidate_graph",
    "descendant_pvalues",
    "dht_cit",
    "edge_scores",
    "gam_prune",
    "kci_pvalue",
    "kci_row",
    "layer_order",
    "load_pm_cmr",
    "order_violations",
    "random_dag",
    "sample_noise",
    "score_order",
    "simulate_slices",
    "stein_hessian_diagonal",
    "structural_hamming_distance",
    "structural_intervention_distance",
    "topological_layers",
]
