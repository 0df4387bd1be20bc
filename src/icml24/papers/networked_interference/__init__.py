r"""Doubly robust effects under networked interference by targeted learning (Chen et al., ICML 2024).

A unit's outcome may depend on its own treatment and on the share of its treated neighbours
(`exposure`). `TNet` learns outcome and propensity together with a spline that targets the
effects; `fit_perturbation` is the same step in closed form, for nuisances fitted elsewhere.
Randomness comes from the generators given, never from global state.
"""

from .data import load_network
from .effects import average_error, individual_error
from .graphs import exposure
from .network import TNet, TNetConfig, TNetOutput, nuisance_losses, targeted_loss
from .simulation import NetworkData, simulate_network_data
from .splines import default_knots, grid_density, truncated_power_basis
from .targeting import fit_perturbation, influence_values, targeted_mean
from .training import FittedTNet, TrainConfig, fit_tnet

__all__ = [
    "FittedTNet",
    "NetworkData",
    "TNet",
    "TNetConfig",
    "TNetOutput",
    "TrainConfig",
    "average_error",
    "default_knots",
    "exposure",
    "fit_perturbation",
    "fit_tnet",
    "grid_density",
    "individual_error",
    "influence_values",
    "load_network",
    "nuisance_losses",
    "simulate_network_data",
    "targeted_loss",
    "targeted_mean",
    "truncated_power_basis",
]
