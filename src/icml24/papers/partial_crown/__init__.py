r"""Certified errors of physics-informed networks by linear relaxation (Eiras et al., ICML 2024).

Every bound is a proof: for each box, `bound_network` encloses a tanh network and its first and second
derivatives between affine functions of the input, the equations turn these into bounds of residuals and
conditions, and branching into a certificate for the whole domain. Coordinates are physical, in the order
(t, x); computations are in float64.
"""

from .activations import activation_range, relax_activation
from .bounds import bound_network
from .branching import BranchResult, greedy_branching, monte_carlo_extrema, uniform_branching
from .enclosures import DerivativeEnclosures, LinearEnclosure
from .equations import PDE, AllenCahn, Burgers
from .networks import TanhMLP, network_derivatives
from .products import mccormick
from .systems import DiffusionSorption, Schrodinger
from .training import PINNConfig, train_pinn

__all__ = [
    "PDE",
    "AllenCahn",
    "BranchResult",
    "Burgers",
    "DerivativeEnclosures",
    "DiffusionSorption",
    "LinearEnclosure",
    "PINNConfig",
    "Schrodinger",
    "TanhMLP",
    "activation_range",
    "bound_network",
    "greedy_branching",
    "mccormick",
    "monte_carlo_extrema",
    "network_derivatives",
    "relax_activation",
    "train_pinn",
    "uniform_branching",
]
