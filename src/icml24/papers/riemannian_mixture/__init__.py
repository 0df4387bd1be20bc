r"""Generative modelling on manifolds by a mixture of Riemannian diffusion bridges.

Jo and Hwang, *Generative Modeling on Manifolds Through Mixture of Riemannian Diffusion
Processes*, ICML 2024. The face of the package is the list below; `data`, `experiments` and
`figures` serve the chapter.
"""

from .baselines import rfm_loss, rsgm_loss, sphere_log_heat_kernel
from .bridges import bridge_drift, spectral_direction, spectral_weights, two_way_sample
from .hyperboloid import Hyperboloid
from .likelihoods import divergence, log_likelihood, pf_ode_drift
from .losses import bridge_matching_loss
from .manifolds import Euclidean, Manifold, Sphere, Torus
from .meshes import Mesh
from .mixtures import gaussian_drifts, mixture_drift
from .networks import DriftMLP
from .rotation_manifold import SO3
from .sampling import sample
from .schedules import LinearSchedule

__all__ = [
    "SO3",
    "DriftMLP",
    "Euclidean",
    "Hyperboloid",
    "LinearSchedule",
    "Manifold",
    "Mesh",
    "Sphere",
    "Torus",
    "bridge_drift",
    "bridge_matching_loss",
    "divergence",
    "gaussian_drifts",
    "log_likelihood",
    "mixture_drift",
    "pf_ode_drift",
    "rfm_loss",
    "rsgm_loss",
    "sample",
    "spectral_direction",
    "spectral_weights",
    "sphere_log_heat_kernel",
    "two_way_sample",
]
