r"""PepFlow: full-atom peptides by multi-modal flow matching (Li et al., ICML 2024).

A peptide is a list of residues, each a frame in SE(3), five angles on a torus and a type on a
simplex. `PepFlow` moves all of them from noise to data at once, next to a fixed receptor.
Positions are in angstrom, angles in radians, times run from 0 (noise) to 1 (data). Randomness
comes from the generator given.
"""

from icml24.common.rotations import random_so3, so3_exp, so3_geodesic, so3_log

from .attention import InvariantPointAttention
from .config import PepFlowConfig
from .data import carve_fragments, read_complex
from .encoder import GAEncoder
from .flows import State, euler_step, interpolate
from .frames import backbone_frames, full_atom_reconstruction, torsion_angles
from .losses import LOSS_WEIGHTS, flow_losses
from .metrics import aar, binding_site_ratio, ca_rmsd, chi_errors, secondary_structure_ratio
from .model import PepFlow
from .residues import AA3, ATOM_MASK, CHI_PI, TORSION_MASK, UNK
from .simplex import sequence_to_logits
from .torus import torus_geodesic, torus_log

__all__ = [
    "AA3",
    "ATOM_MASK",
    "CHI_PI",
    "LOSS_WEIGHTS",
    "TORSION_MASK",
    "UNK",
    "GAEncoder",
    "InvariantPointAttention",
    "PepFlow",
    "PepFlowConfig",
    "State",
    "aar",
    "backbone_frames",
    "binding_site_ratio",
    "ca_rmsd",
    "carve_fragments",
    "chi_errors",
    "euler_step",
    "flow_losses",
    "full_atom_reconstruction",
    "interpolate",
    "random_so3",
    "read_complex",
    "secondary_structure_ratio",
    "sequence_to_logits",
    "so3_exp",
    "so3_geodesic",
    "so3_log",
    "torsion_angles",
    "torus_geodesic",
    "torus_log",
]
