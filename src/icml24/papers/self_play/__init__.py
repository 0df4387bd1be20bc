r"""Self-play preference optimisation: learning from preferences without a reward model.

Swamy, Dann, Kidambi, Wu and Agarwal, *A Minimaximalist Approach to Reinforcement
Learning from Human Feedback*, ICML 2024. Preferences are antisymmetric numbers in
[-1, 1]; the solution sought is the Minimax Winner, found by one policy playing itself.
Experiments and figures: `icml24.papers.self_play.experiments` and ``.plots``.
"""

from icml24.papers.self_play.environments import PointMass
from icml24.papers.self_play.hedge import SelfPlayResult, hedge_self_play, hedge_two_player
from icml24.papers.self_play.preferences import (
    aggregate_preferences,
    bradley_terry_preference,
    constrained_preference,
    max_return_preference,
    preference_from_probability,
    sample_preference,
    validate_preference,
)
from icml24.papers.self_play.rewards import TrajectoryQueue, per_step_reward, win_rate_rewards
from icml24.papers.self_play.solutions import (
    borda_scores,
    condorcet_winner,
    copeland_scores,
    duality_gap,
    fit_bradley_terry,
    minimax_winner,
)
from icml24.papers.self_play.training import SPOConfig, TrainResult, train

__all__ = [
    "PointMass",
    "SPOConfig",
    "SelfPlayResult",
    "TrainResult",
    "TrajectoryQueue",
    "aggregate_preferences",
    "borda_scores",
    "bradley_terry_preference",
    "condorcet_winner",
    "constrained_preference",
    "copeland_scores",
    "duality_gap",
    "fit_bradley_terry",
    "hedge_self_play",
    "hedge_two_player",
    "max_return_preference",
    "minimax_winner",
    "per_step_reward",
    "preference_from_probability",
    "sample_preference",
    "train",
    "validate_preference",
    "win_rate_rewards",
]
