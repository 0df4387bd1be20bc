"""Stored numbers of the released code, and the manifolds that laws are tested on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.riemannian_mixture import SO3, Euclidean, Hyperboloid, Mesh, Sphere, Torus
from icml24.papers.riemannian_mixture.hyperboloid import wrapped_normal
from icml24.papers.riemannian_mixture.mesh_operators import bumpy_icosphere

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def parity():
    def load(name):
        with np.load(DATA / f"{name}.npz") as file:
            return {key: torch.from_numpy(np.array(value)) for key, value in file.items()}

    return load


@pytest.fixture(scope="session")
def manifolds():
    return {
        "euclidean": Euclidean(3),
        "circle": Sphere(1),
        "sphere": Sphere(2),
        "sphere4": Sphere(4),
        "torus1": Torus(1),
        "torus": Torus(3),
        "hyperboloid": Hyperboloid(2),
        "hyperboloid4": Hyperboloid(4),
        "so3": SO3(),
    }


@pytest.fixture(scope="session")
def points(manifolds):
    """Function (name, n, seed, dtype) -> n points of that manifold."""

    def draw(name, n, seed=0, dtype=torch.float64):
        manifold, g = manifolds[name], torch.Generator().manual_seed(seed)
        if isinstance(manifold, Euclidean):
            return torch.randn(n, manifold.dim, generator=g, dtype=dtype)
        if isinstance(manifold, Hyperboloid):
            return wrapped_normal(manifold, n, std=0.4, generator=g, dtype=dtype)
        return manifold.random_uniform(n, generator=g, dtype=dtype)

    return draw


@pytest.fixture(scope="session")
def bumpy():
    return Mesh(*bumpy_icosphere(2), n_eig=60)


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
