r"""A closed triangle mesh as a manifold: projection instead of `exp`, spectra instead of `log`.

A point is three numbers on a face. There is no logarithm in closed form; bridges use the
spectral direction of eq-riemannian_mixture-spectral instead, built from the eigenfunctions kept here.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from .manifolds import Manifold, dot
from .mesh_operators import ClosestFace, check_mesh, laplacian_eigenpairs

__all__ = ["Mesh", "SmoothNormalMesh", "points_on_faces"]


class Mesh(Manifold):
    r"""Closed connected triangle mesh in :math:`\mathbb R^3`.

    Parameters
    ----------
    vertices : array or Tensor, shape (V, 3), floating
    faces : array or Tensor, shape (F, 3), integer
        Corners of each face as row numbers of `vertices`.
    n_eig : int, default 200
        Eigenpairs of the Laplacian kept, the constant one not counted; at most ``V - 1``.

    Attributes
    ----------
    eigenvalues : Tensor, shape (n_eig,), float64
    eigenvectors : Tensor, shape (V, n_eig), float64
        Orthonormal in the lumped mass matrix.
    areas, normals : Tensor, shapes (F,) and (F, 3), float64

    Raises
    ------
    ValueError
        Open or disconnected mesh, face without area, index out of range, `n_eig` out of range.

    Notes
    -----
    `exp` is "step in the face plane, then closest point": a retraction, equal to the true
    exponential map only to first order. All queries find a point's face by an exact search.
    """

    dim, ambient_dim, noise_dim = 2, 3, 3

    def __init__(self, vertices: Any, faces: Any, n_eig: int = 200) -> None:
        v, f = _array(vertices).astype(np.float64), _array(faces)
        if not np.issubdtype(f.dtype, np.integer):
            raise ValueError(f"faces must be integers, got {f.dtype}")
        f = f.astype(np.int64)
        check_mesh(v, f)
        self.n_eig = _check_n_eig(n_eig, len(v))
        lam, phi = laplacian_eigenpairs(v, f, self.n_eig)
        self._search = search = ClosestFace(v, f)
        cross = np.cross(search.e1, search.e2)
        doubled = np.linalg.norm(cross, axis=1)
        as_tensor = torch.from_numpy
        self.vertices, self.faces = as_tensor(v), as_tensor(f)
        self.eigenvalues, self.eigenvectors = as_tensor(lam.copy()), as_tensor(np.ascontiguousarray(phi))
        self.areas, self.normals = as_tensor(doubled / 2), as_tensor(cross / doubled[:, None])
        self._first = as_tensor(search.corner[:, 0].copy())
        self._g = as_tensor(np.stack((-search.g1 - search.g2, search.g1, search.g2), axis=1))  # (F, 3, 3)
        self._cast: dict[tuple[str, torch.dtype], Tensor] = {}
        self._last: list[tuple[Tensor, Tensor, Tensor]] = []

    @property
    def log_volume(self) -> float:
        """Logarithm of the total area."""
        return math.log(float(self.areas.sum()))

    def closest_point(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Closest points of the mesh, (n, 3), and the faces they lie on, (n,) int64; no gradient.

        A point on an edge belongs to the face with the lowest index. The last query and its answer are
        remembered by value: one step of a walk asks for the faces of the same points several times,
        and in float64 starts where the step before ended. (In float32 rounding moves that point off
        its edge, so it is searched anew: an answer never depends on what was asked before.)
        """
        for asked, point_t, face_t in self._last:
            if asked.shape == p.shape and asked.dtype == p.dtype and torch.equal(asked, p.detach()):
                return point_t.clone(), face_t.clone()
        q = p.detach().cpu().double().numpy()
        point, face = self._search(q.reshape(-1, 3))
        point_t = torch.from_numpy(point).reshape(p.shape).to(p.dtype)
        face_t = torch.from_numpy(face).reshape(p.shape[:-1])
        answer = point_t.clone(), face_t.clone()
        self._last = [(p.detach().clone(), *answer)]
        if p.dtype == torch.float64:
            self._last.append((answer[0], *answer))
        return point_t, face_t

    def eig_fn(self, x: Tensor) -> Tensor:
        """Eigenfunctions at `x` by barycentric interpolation, (n, 3) to (n, n_eig); differentiable in `x`."""
        point, face = self.closest_point(x)
        return self.eigenfunctions_at(x + (point - x).detach(), face)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Step in the face plane, then the closest point."""
        return self.project(x + self.to_tangent(x, v))

    def log(self, x: Tensor, y: Tensor) -> NoReturn:
        """Not available: raises NotImplementedError."""
        raise NotImplementedError(
            'a mesh has no logarithm in closed form; use the spectral bridge: spectral_direction or kind="spectral"'
        )

    def dist(self, x: Tensor, y: Tensor) -> NoReturn:
        """Not available: raises NotImplementedError."""
        raise NotImplementedError(
            "a mesh has no geodesic distance in closed form; spectral_sqdist gives the spectral one"
        )

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Remove the component along the normal of the face of `x`."""
        return self.in_plane(v, self.closest_point(x)[1])

    def project(self, x: Tensor) -> Tensor:
        """Closest point."""
        return self.closest_point(x)[0]

    def smooth_project(self, x: Tensor) -> Tensor:
        """Closest point with the derivative of the projection onto the face's plane."""
        point, face = self.closest_point(x)
        move = x - x.detach()
        return point + self.in_plane(move, face)

    def tidy(self, x: Tensor) -> Tensor:
        """`x` itself: `exp` ends with a projection."""
        return x

    def random_uniform(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Draw `n` points uniformly by area; (n, 3)."""
        del device  # a mesh lives on the CPU, where its search tree is
        points = points_on_faces(self, self.areas, n, generator=generator)
        return points.to(dtype or torch.get_default_dtype())

    def in_plane(self, v: Tensor, face: Tensor) -> Tensor:
        """Component of `v` in the planes of the given faces."""
        normal = self._as("normals", v.dtype)[face]
        return v - dot(v, normal, keepdim=True) * normal

    def barycentric(self, x: Tensor, face: Tensor) -> Tensor:
        """Barycentric coordinates of points on the given faces, (n, 3); linear in `x`."""
        gradient = self._as("_g", x.dtype)[face]  # (n, 3, 3): one vector a corner
        bary = (gradient @ (x - self._as("_first", x.dtype)[face]).unsqueeze(-1)).squeeze(-1)
        return torch.cat((bary[..., :1] + 1, bary[..., 1:]), dim=-1)

    def eigenfunctions_at(self, x: Tensor, face: Tensor) -> Tensor:
        """Eigenfunctions at points whose faces are known; (n, n_eig)."""
        bary = self.barycentric(x, face)
        return (bary.unsqueeze(-2) @ self._as("eigenvectors", x.dtype)[self.faces[face]]).squeeze(-2)

    def gradient_of(self, coefficients: Tensor, face: Tensor) -> Tensor:
        r"""Gradient of :math:`\sum_i c_i\varphi_i` on the given faces, (n, n_eig) to (n, 3); constant in a face."""
        corners = self._as("eigenvectors", coefficients.dtype)[self.faces[face]]  # (n, 3, K)
        values = corners @ coefficients.unsqueeze(-1)  # (n, 3, 1): the function at the three corners
        return (self._as("_g", coefficients.dtype)[face] * values).sum(-2)

    def _as(self, name: str, dtype: torch.dtype) -> Tensor:
        if (name, dtype) not in self._cast:
            self._cast[name, dtype] = getattr(self, name).to(dtype)
        return self._cast[name, dtype]

    def __repr__(self) -> str:
        return f"Mesh({len(self.vertices)} vertices, {len(self.faces)} faces, n_eig={self.n_eig})"


def _array(rows: Any) -> np.ndarray:
    return rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)


def _check_n_eig(n_eig: int, n_vertices: int) -> int:
    whole = isinstance(n_eig, SupportsIndex) and not isinstance(n_eig, bool)
    if not whole or not 1 <= operator.index(n_eig) <= n_vertices - 1:
        raise ValueError(
            f"n_eig must be an integer in [1, V - 1] = [1, {n_vertices - 1}], got {n_eig!r}: a mesh of "
            f"{n_vertices} vertices has no more eigenpairs; pass n_eig={n_vertices - 1} or fewer"
        )
    return operator.index(n_eig)


class SmoothNormalMesh(Mesh):
    r"""A mesh whose tangent spaces turn gradually: vertex normals interpolated over each face.

    The tangent projection then varies inside a face, and a divergence sees part of the curvature
    that sits on the edges of a plain `Mesh`. For the comparison of the chapter; not exact either.
    """

    def __init__(self, vertices: Any, faces: Any, n_eig: int = 200) -> None:
        super().__init__(vertices, faces, n_eig)
        weighted = (self.normals * self.areas.unsqueeze(-1)).repeat_interleave(3, dim=0)
        total = torch.zeros_like(self.vertices).index_add_(0, self.faces.reshape(-1), weighted)
        self.vertex_normals = torch.nn.functional.normalize(total, dim=-1)

    def to_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Remove the component along the interpolated normal; differentiable in `x`."""
        face = self.closest_point(x)[1]
        corners = self._as("vertex_normals", x.dtype)[self.faces[face]]
        normal = torch.nn.functional.normalize(
            (self.barycentric(x, face).unsqueeze(-2) @ corners).squeeze(-2), dim=-1
        )
        return v - dot(v, normal, keepdim=True) * normal


def points_on_faces(
    mesh: Mesh, weight: Tensor, n: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""Draw faces with the given weights, then a uniform point in each.

    Parameters
    ----------
    mesh : Mesh
    weight : Tensor, shape (F,)
        Probability mass of each face up to a factor (a density times the area, for a density).
    n : int
        Zero gives no rows.
    generator : torch.Generator, optional

    Returns
    -------
    Tensor, shape (n, 3), float64
        Barycentric coordinates :math:`(1-\sqrt u,\ \sqrt u(1-v),\ \sqrt u\,v)`.
    """
    if n == 0:  # multinomial refuses to draw nothing
        return mesh.vertices.new_empty(0, 3)
    face = torch.multinomial(weight.double(), n, replacement=True, generator=generator)
    u, v = torch.rand(2, n, generator=generator, dtype=torch.float64)
    root = u.sqrt()
    bary = torch.stack((1 - root, root * (1 - v), root * v), dim=-1)
    return (bary.unsqueeze(-2) @ mesh.vertices[mesh.faces[face]]).squeeze(-2)
