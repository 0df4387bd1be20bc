r"""A linear scaling rule for private hyperparameter search (Panda et al., ICML 2024).

Accounting (`gdp_delta` ... `private_selection_rdp`) works in Python floats and float64
arrays; learning (`clip_per_sample`, `clipped_gradient_sum`, `dp_gd_linear`) in tensors of
any float dtype; the search (`adaptive_hpo`) in calls of a function that trains and scores.
Randomness comes from the generator given, never from global state.
"""

from .clipping import clip_per_sample, clipped_gradient_sum
from .descent import dp_gd_linear
from .gaussian import (
    calibrate_sigma,
    compose_mu,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    remaining_epsilon,
)
from .linear_rule import LinearRule, decompose_radius, fit_linear_rule, radius_candidates
from .privacy_loss import pld_epsilon
from .radius import contraction_factor, noisy_radius_bound
from .renyi import private_selection_rdp, rdp_subsampled_gaussian, rdp_to_epsilon
from .search import AdaptiveHPOConfig, HPOResult, Trial, adaptive_hpo

__all__ = [
    "AdaptiveHPOConfig",
    "HPOResult",
    "LinearRule",
    "Trial",
    "adaptive_hpo",
    "calibrate_sigma",
    "clip_per_sample",
    "clipped_gradient_sum",
    "compose_mu",
    "contraction_factor",
    "decompose_radius",
    "dp_gd_linear",
    "fit_linear_rule",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "noisy_radius_bound",
    "pld_epsilon",
    "private_selection_rdp",
    "radius_candidates",
    "rdp_subsampled_gaussian",
    "rdp_to_epsilon",
    "remaining_epsilon",
]
