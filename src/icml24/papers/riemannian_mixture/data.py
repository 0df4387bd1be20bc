r"""Data on manifolds: earth events, backbone angles, meshes, and synthetic laws with known density.

Sources and licences
--------------------
- Earth and climate points (volcanic eruptions, earthquakes, floods, fires) and the meshes Spot and
  Bunny: files of the authors' repository, which carries no licence; read at run time through
  ``ICML24_DATA`` (registry entry ``riemannian_mixture``), never part of this one. Upstream: NOAA/NGDC,
  Dartmouth Flood Observatory, NASA FIRMS, K. Crane (Spot, CC0), Stanford (Bunny).
- Offline default for the earth: 596 earthquakes of South-East Asia from USGS, in the package
  ``hvsampledata`` (BSD-3-Clause).
- Offline default for torsions: backbone angles of the PDB chains in ``MDAnalysisTests``
  (``data/dssp``; the package is found, never imported).
- Offline default for meshes: `mesh_operators.bumpy_icosphere`.

Points on the earth are unit rows, shape (n, 3), float32; angles are radians.
"""

from __future__ import annotations

import csv
import math

import numpy as np
import torch
from torch import Tensor

from icml24 import datasets
from icml24.common.packages import package_folder
from icml24.common.rotations import so3_exp
from icml24.common.structures import Residue, dihedral, read_residues

from .hyperboloid import Hyperboloid, wrapped_normal, wrapped_normal_log_prob
from .manifolds import Manifold, Torus
from .mesh_operators import laplacian_eigenpairs, subdivide
from .rotation_manifold import SO3

__all__ = [
    "EARTH_FILES",
    "backbone_torsions",
    "earth",
    "earthquakes_offline",
    "hyperboloid_modes",
    "hyperboloid_modes_log_prob",
    "lonlat",
    "mesh_target",
    "obj",
    "on_sphere",
    "so3_modes",
    "split",
    "torus_normal",
    "torus_normal_log_prob",
]

#: Registered earth files: file name and header lines to skip.
EARTH_FILES = {
    "volcano": ("volerup.csv", 2),
    "earthquake": ("quakes_all.csv", 4),
    "flood": ("flood.csv", 2),
    "fire": ("fire.csv", 1),
}
REGISTERED = "riemannian_mixture"


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> Tensor:
    r"""Degrees to unit rows, as in the authors' files: :math:`\theta = \tfrac{\pi\,lat}{180} + \tfrac\pi2`,
    :math:`\varphi = \tfrac{\pi\,lon}{180} + \pi`, :math:`x = (\sin\theta\cos\varphi, \sin\theta\sin\varphi, \cos\theta)`.
    """
    theta = np.pi * np.asarray(latitude, dtype=np.float64) / 180 + np.pi / 2
    phi = np.pi * np.asarray(longitude, dtype=np.float64) / 180 + np.pi
    x = np.stack((np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)), axis=-1)
    return torch.from_numpy(x).float()


def lonlat(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Longitude in (-180, 180] and latitude in degrees of unit rows; the inverse of `on_sphere`."""
    a = x.double().numpy()
    lon = np.degrees(np.arctan2(a[..., 1], a[..., 0])) - 180
    return np.where(lon <= -180, lon + 360, lon), np.degrees(np.arccos(np.clip(a[..., 2], -1, 1))) - 90


def earth(name: str) -> Tensor:
    """Return one of the authors' earth sets; (n, 3).

    Parameters
    ----------
    name : {"volcano", "earthquake", "flood", "fire"}

    Raises
    ------
    ValueError
        Unknown name.
    icml24.datasets.MissingData
        The file is not on this machine; the message says how to get it.
    """
    if name not in EARTH_FILES:
        raise ValueError(f"unknown earth set {name!r}; expected one of {sorted(EARTH_FILES)}")
    file, skip = EARTH_FILES[name]
    rows = np.loadtxt(datasets.locate(REGISTERED, file), delimiter=",", skiprows=skip)
    return on_sphere(rows[:, 0], rows[:, 1])


def earthquakes_offline() -> Tensor:
    """Return the 596 earthquakes of South-East Asia in ``hvsampledata``; (596, 3)."""
    path = package_folder("hvsampledata") / "_data" / "earthquakes.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return on_sphere(np.array([float(r["lat"]) for r in rows]), np.array([float(r["lon"]) for r in rows]))


def backbone_torsions() -> Tensor:
    r"""Return (phi, psi) of every inner residue of the PDB chains in ``MDAnalysisTests``; (n, 2), radians.

    A residue counts when it and both neighbours have N, CA and C and the peptide bonds are
    shorter than 2 angstrom; first model and first alternative location of each file. Only the 50
    crystal chains with five-letter names are read: two more files hold deliberately broken structures.
    """
    folder = package_folder("MDAnalysisTests") / "data" / "dssp"
    angles = [
        pair for path in sorted(folder.glob("?????.pdb.gz")) for pair in _torsions_of(read_residues(path))
    ]
    return torch.tensor(angles, dtype=torch.float32)


def split(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Shuffle rows and cut them 80 : 10 : 10 into training, validation and test rows."""
    x = x[torch.randperm(len(x), generator=generator)]
    n_train, n_valid = int(0.8 * len(x)), int(0.1 * len(x))
    return x[:n_train], x[n_train : n_train + n_valid], x[n_train + n_valid :]


def torus_normal(
    manifold: Torus,
    n: int,
    *,
    modes: tuple[tuple[float, float, float], ...] = ((1.0, 0.0, 0.2),),
    generator: torch.Generator,
) -> Tensor:
    r"""Draw from a mixture of wrapped normals, all angles independent in a mode; (n, 2 d).

    Parameters
    ----------
    manifold : Torus
    n : int
    modes : tuple of (weight, angle, standard deviation)
        The same centre in every angle; default one mode of width 0.2 at zero.
    generator : torch.Generator
    """
    weight, centre, std = torch.tensor(modes).T
    pick = torch.multinomial(weight, n, replacement=True, generator=generator)
    noise = torch.randn(n, manifold.dim, generator=generator)
    return manifold.from_angles(centre[pick, None] + std[pick, None] * noise)


def torus_normal_log_prob(
    manifold: Torus, x: Tensor, modes: tuple[tuple[float, float, float], ...] = ((1.0, 0.0, 0.2),)
) -> Tensor:
    """Log density of `torus_normal`; (n,), nats."""
    angle = manifold.to_angles(x).unsqueeze(-1) + 2 * math.pi * torch.arange(-2, 3)
    parts = []
    for weight, centre, std in modes:
        one = torch.logsumexp(-((angle - centre) ** 2) / (2 * std**2), dim=-1)
        parts.append(math.log(weight) + one.sum(-1) - manifold.dim * math.log(std * math.sqrt(2 * math.pi)))
    return torch.logsumexp(torch.stack(parts), dim=0)


#: Ball centres and standard deviations of the four-mode target on H^2.
_H2_MODES = (
    ((0.4, 0.0), (0.15, 0.5)),
    ((-0.4, 0.0), (0.15, 0.5)),
    ((0.0, 0.4), (0.5, 0.15)),
    ((0.0, -0.4), (0.5, 0.15)),
)


def hyperboloid_modes(manifold: Hyperboloid, n: int, generator: torch.Generator) -> Tensor:
    """Draw from four equal wrapped normals on H^2, scaled in the tangent space at the origin; (n, 3)."""
    pick = torch.randint(0, len(_H2_MODES), (n,), generator=generator)
    out = torch.empty(n, 3)
    for k, (centre, std) in enumerate(_H2_MODES):
        rows = torch.nonzero(pick == k).squeeze(-1)
        out[rows] = wrapped_normal(
            manifold,
            len(rows),
            std=torch.tensor(std),
            center=manifold.from_ball(torch.tensor(centre)),
            generator=generator,
        )
    return out


def hyperboloid_modes_log_prob(manifold: Hyperboloid, x: Tensor) -> Tensor:
    """Log density of `hyperboloid_modes` with respect to the hyperbolic volume; (n,)."""
    parts = [
        wrapped_normal_log_prob(
            manifold, x, std=torch.tensor(std, dtype=x.dtype), center=manifold.from_ball(torch.tensor(centre))
        )
        for centre, std in _H2_MODES
    ]
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(len(parts))


#: Centres of the SO(3) target: Tait-Bryan angles (0,0,0), (0,0,pi), (pi,0,pi) as rotation vectors.
SO3_CENTRES = ((0.0, 0.0, 0.0), (0.0, 0.0, math.pi), (0.0, math.pi, 0.0))
SO3_STD = 0.2 / math.sqrt(2)  # 0.2 in the released code's Frobenius units, here in radians an axis


def so3_modes(manifold: SO3, n: int, generator: torch.Generator) -> Tensor:
    """Draw from three equal wrapped normals on SO(3); (n, 9)."""
    centres = so3_exp(torch.tensor(SO3_CENTRES)).flatten(-2)
    x = centres[torch.randint(0, len(centres), (n,), generator=generator)]
    return manifold.exp(x, SO3_STD * manifold.random_normal_tangent(x, generator=generator))


def mesh_target(
    vertices: np.ndarray, faces: np.ndarray, k: int, *, upsample: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Face masses from the `k`-th eigenfunction: clipped at zero, without area weights.

    Parameters
    ----------
    vertices, faces : ndarray
    k : int
        Counted from 1; the constant function does not count.
    upsample : int
        Midpoint subdivisions before the eigenfunction is computed.

    Returns
    -------
    (vertices, faces, mass) of the upsampled mesh; the masses sum to one.
    """
    for _ in range(upsample):
        vertices, faces = subdivide(vertices, faces)
    function = laplacian_eigenpairs(vertices, faces, k)[1][:, k - 1]
    mass = function[faces].mean(1).clip(0)
    return vertices, faces, mass / mass.sum()


def obj(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a registered mesh, ``"spot"`` or ``"bunny"`` (divided by 250)."""
    scale = {"spot": 1.0, "bunny": 250.0}
    if name not in scale:
        raise ValueError(f"unknown mesh {name!r}; expected one of {sorted(scale)}")
    vertices, faces = [], []
    with datasets.locate(REGISTERED, f"{name}.obj").open(encoding="utf-8") as stream:
        for line in stream:
            kind, *fields = line.split() or [""]
            if kind == "v":
                vertices.append([float(f) for f in fields[:3]])
            elif kind == "f":
                faces.append([int(f.split("/")[0]) - 1 for f in fields])
    return np.array(vertices) / scale[name], np.array(faces)


def drawer(rows: Tensor):
    """Return a function (n, generator) that draws rows with replacement."""

    def draw(n: int, generator: torch.Generator) -> Tensor:
        return rows[torch.randint(0, len(rows), (n,), generator=generator)]

    return draw


def uniform_drawer(manifold: Manifold):
    """Return a function (n, generator) that draws from the uniform law."""
    return lambda n, generator: manifold.random_uniform(n, generator=generator)


def kernel_density(
    train: Tensor,
    valid: Tensor,
    test: Tensor,
    kappas: tuple[float, ...] = (5, 20, 50, 100, 200, 500, 1000, 2000),
) -> tuple[float, float]:
    r"""Von Mises-Fisher kernel density on :math:`S^2`: (kappa chosen on validation rows, test NLL)."""

    def nll(rows: Tensor, kappa: float) -> float:
        cosine = rows.double() @ train.double().T
        log_c = math.log(kappa / (2 * math.pi)) - math.log1p(-math.exp(-2 * kappa))
        return -float((torch.logsumexp(kappa * (cosine - 1), dim=1) + log_c - math.log(len(train))).mean())

    best = min(kappas, key=lambda kappa: nll(valid, kappa))
    return best, nll(test, best)


def _torsions_of(chain: list[Residue]) -> list[tuple[float, float]]:
    out = []
    atoms = [residue.atoms for residue in chain]
    for before, here, after in zip(atoms, atoms[1:], atoms[2:], strict=False):
        if any(not {"N", "CA", "C"} <= residue.keys() for residue in (before, here, after)):
            continue
        bonds = (here["N"] - before["C"], after["N"] - here["C"])
        if max(np.linalg.norm(bond) for bond in bonds) >= 2.0:
            continue
        phi = dihedral(before["C"], here["N"], here["CA"], here["C"])
        psi = dihedral(here["N"], here["CA"], here["C"], after["N"])
        out.append((phi, psi))
    return out
