r"""Overestimation, overfitting and plasticity in actor-critic (Nauman et al., ICML 2024).

Soft actor-critic with one technique from each of three families of regularisers, many agents
trained side by side as stacked tensors, and the statistics that say which family matters.
Randomness comes from generators given or named, never from global state.
"""

from .agents import CRITIC, NETWORK, PLASTICITY, AgentSpec, full_grid
from .aggregation import (
    bootstrap_iqm,
    first_order_effects,
    iqm,
    probability_of_improvement,
    second_order_effects,
    shapley_contributions,
    spearman,
)
from .bandit import OptimismBandit
from .grid import run_grid
from .losses import (
    actor_loss,
    critic_loss,
    gpl_loss,
    pessimistic_value,
    soft_target,
    soft_update,
    squash_log_std,
    tanh_normal_log_prob,
    temperature_loss,
)
from .metrics import discounted_returns, overestimation, overfitting_ratio
from .networks import crelu, mlp_forward, spectral_normalize
from .plasticity import dormant_mask, dormant_ratio, effective_rank, recycle_dormant
from .sac import Batch, BatchedSAC, SACConfig
from .training import RunRecord, train

__all__ = [
    "CRITIC",
    "NETWORK",
    "PLASTICITY",
    "AgentSpec",
    "Batch",
    "BatchedSAC",
    "OptimismBandit",
    "RunRecord",
    "SACConfig",
    "actor_loss",
    "bootstrap_iqm",
    "crelu",
    "critic_loss",
    "discounted_returns",
    "dormant_mask",
    "dormant_ratio",
    "effective_rank",
    "first_order_effects",
    "full_grid",
    "gpl_loss",
    "iqm",
    "mlp_forward",
    "overestimation",
    "overfitting_ratio",
    "pessimistic_value",
    "probability_of_improvement",
    "recycle_dormant",
    "run_grid",
    "second_order_effects",
    "shapley_contributions",
    "soft_target",
    "soft_update",
    "spearman",
    "spectral_normalize",
    "squash_log_std",
    "tanh_normal_log_prob",
    "temperature_loss",
    "train",
]
