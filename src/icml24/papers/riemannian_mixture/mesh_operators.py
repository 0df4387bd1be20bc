r"""Discrete geometry of triangle meshes: cotangent Laplacian, closest points, small generators.

Arrays are NumPy float64: a mesh is prepared once, outside any gradient. The Laplacian and the
mixed Voronoi areas follow Meyer, Desbrun, Schroeder and Barr (2003).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree

__all__ = [
    "ClosestFace",
    "bumpy_icosphere",
    "check_mesh",
    "cotangent_laplacian",
    "icosphere",
    "laplacian_eigenpairs",
    "subdivide",
    "vertex_areas",
]

_DENSE_UP_TO = 400  # vertices; below it a dense solve is faster and has no start vector
_TIE = 1e-12  # of the size of the mesh: faces nearer to each other than this are equally near


def check_mesh(vertices: np.ndarray, faces: np.ndarray) -> None:
    """Raise a ValueError unless the arrays describe one closed surface without flat faces."""
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise ValueError(
            f"expected vertices of shape (V, 3) and faces of shape (F, 3), got {vertices.shape} and {faces.shape}"
        )
    if not np.isfinite(vertices).all():
        raise ValueError("vertices must be finite")
    if len(faces) == 0 or faces.min() < 0 or faces.max() >= len(vertices):
        raise ValueError(
            f"face indices must lie in [0, {len(vertices)}) and there must be a face; "
            f"got {len(faces)} faces with indices from {faces.min(initial=0)} to {faces.max(initial=-1)}"
        )
    corner = vertices[faces]
    doubled = np.linalg.norm(np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]), axis=1)
    longest = np.linalg.norm(corner - np.roll(corner, 1, axis=1), axis=2).max(1)
    if (flat := np.flatnonzero(doubled <= 1e-12 * np.maximum(longest, 1e-300) ** 2)).size:
        raise ValueError(f"{flat.size} degenerate faces (no area), the first is face {flat[0]}; remove them")
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    _, count = np.unique(edges, axis=0, return_counts=True)
    if (count != 2).any():
        raise ValueError(
            f"the mesh is not closed: {int((count != 2).sum())} edges do not belong to exactly two faces; "
            "close the holes first"
        )
    if (unused := len(vertices) - len(np.unique(faces))) > 0:
        raise ValueError(f"{unused} vertices belong to no face; drop them")
    graph = sp.coo_matrix((np.ones(len(edges)), edges.T), shape=(len(vertices),) * 2)
    parts, _ = connected_components(graph, directed=False)
    if parts > 1:
        raise ValueError(f"the mesh has {parts} separate parts; give each its own Mesh")


def cotangent_laplacian(vertices: np.ndarray, faces: np.ndarray) -> sp.csr_matrix:
    r"""Cotangent matrix of :math:`-\Delta`: positive semidefinite, row sums zero; (V, V).

    Entry of an edge: minus half the sum of the cotangents of the two angles that face it.
    """
    rows, cols, values = [], [], []
    for k in range(3):
        i, j, o = faces[:, (k + 1) % 3], faces[:, (k + 2) % 3], faces[:, k]
        u, w = vertices[i] - vertices[o], vertices[j] - vertices[o]
        half_cot = 0.5 * (u * w).sum(1) / np.linalg.norm(np.cross(u, w), axis=1)
        rows += [i, j, i, j]
        cols += [j, i, i, j]
        values += [-half_cot, -half_cot, half_cot, half_cot]
    size = (len(vertices),) * 2
    return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=size)


def vertex_areas(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Lumped mass of each vertex, (V,): mixed Voronoi areas, whose sum is the area of the mesh."""
    corner = vertices[faces]
    edge = np.roll(corner, -1, axis=1) - corner  # (F, 3, 3): corner k to k + 1
    square = (edge**2).sum(2)
    area = 0.5 * np.linalg.norm(np.cross(edge[:, 0], -edge[:, 2]), axis=1)
    dots = -(edge * np.roll(edge, 1, axis=1)).sum(2)  # at corner k: <next - k, previous - k>
    cot = dots / (2 * area[:, None])
    # Voronoi part of corner k: (|k k+1|^2 cot(k+2) + |k k+2|^2 cot(k+1)) / 8
    share = (square * np.roll(cot, -2, axis=1) + np.roll(square, 1, axis=1) * np.roll(cot, -1, axis=1)) / 8
    obtuse = dots < 0
    any_obtuse = obtuse.any(1, keepdims=True)
    share = np.where(any_obtuse, np.where(obtuse, area[:, None] / 2, area[:, None] / 4), share)
    return np.bincount(faces.ravel(), weights=share.ravel(), minlength=len(vertices))


def laplacian_eigenpairs(vertices: np.ndarray, faces: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    r"""First `k` eigenpairs of :math:`-\Delta` after the constant one.

    Returns
    -------
    eigenvalues : ndarray, shape (k,)
        Increasing, positive.
    eigenvectors : ndarray, shape (V, k)
        Orthonormal in the mass matrix; the entry of largest size is made positive.

    Notes
    -----
    Shift and invert at -1e-6: at zero the matrix is singular and a solver may refuse.
    """
    L, mass = cotangent_laplacian(vertices, faces), vertex_areas(vertices, faces)
    if len(vertices) <= _DENSE_UP_TO:
        lam, phi = scipy.linalg.eigh(L.toarray(), np.diag(mass), subset_by_index=(0, k))
    else:
        start = np.random.default_rng(0).standard_normal(len(vertices))
        lam, phi = eigsh(L.tocsc(), k + 1, sp.diags(mass).tocsc(), sigma=-1e-6, which="LM", v0=start)
        order = np.argsort(lam)
        lam, phi = lam[order], phi[:, order]
    lam, phi = lam[1:], phi[:, 1:]
    sign = np.sign(phi[np.abs(phi).argmax(0), np.arange(k)])
    return lam, phi * sign


class ClosestFace:
    r"""Exact closest points on a mesh: a k-d tree over cells, then exact triangle tests.

    A cell is a face, or a part of one that is large among its neighbours. If the `k`-th nearest cell
    centroid is at distance :math:`c_k` and no cell reaches farther than :math:`r` from its centroid,
    every cell left out is at least :math:`c_k - r` away. A point whose best candidate is nearer than
    that is settled; the others ask for four times as many.

    A point on an edge has several closest faces: the one with the lowest index is taken, so that the
    answer depends on the point alone and not on the order of the candidates.
    """

    def __init__(self, vertices: np.ndarray, faces: np.ndarray) -> None:
        self.corner = vertices[faces]  # (F, 3, 3)
        self.e1 = self.corner[:, 1] - self.corner[:, 0]
        self.e2 = self.corner[:, 2] - self.corner[:, 0]
        g11, g12, g22 = (self.e1**2).sum(1), (self.e1 * self.e2).sum(1), (self.e2**2).sum(1)
        det = g11 * g22 - g12**2
        #: gradients of the second and third barycentric coordinate, vectors in the face plane
        self.g1 = (g22[:, None] * self.e1 - g12[:, None] * self.e2) / det[:, None]
        self.g2 = (g11[:, None] * self.e2 - g12[:, None] * self.e1) / det[:, None]
        self.slack = _TIE * float(np.ptp(self.corner.reshape(-1, 3), axis=0).max())
        centroid, self.radii, self.owner = _cells(self.corner)
        self.radius = float(self.radii.max())
        self.tree = cKDTree(centroid)

    def __call__(self, p: np.ndarray, k: int = 6) -> tuple[np.ndarray, np.ndarray]:
        """Closest points, (n, 3), and their faces, (n,)."""
        n_cells = len(self.owner)
        k = min(k, n_cells)
        distance, cell = self.tree.query(p, k=range(1, k + 1))
        point, face, best = self._among(p, self.owner[cell], distance - self.radii[cell])
        if k < n_cells:
            open_ = np.flatnonzero(best + self.slack > distance[:, -1] - self.radius)
            if open_.size:
                point[open_], face[open_] = self(p[open_], 4 * k)
        return point, face

    def _among(
        self, p: np.ndarray, candidate: np.ndarray, at_least: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Closest point, face and distance among the candidates of each row, (n, k).

        `at_least` holds lower bounds of the distances to the cells that the candidates stand for.
        """
        a, e1, e2 = self.corner[candidate, 0], self.e1[candidate], self.e2[candidate]  # (n, k, 3)
        w = p[:, None] - a
        u = np.einsum("nkd,nkd->nk", w, self.g1[candidate])
        v = np.einsum("nkd,nkd->nk", w, self.g2[candidate])
        inside = (u >= 0) & (v >= 0) & (u + v <= 1)
        offset = u[..., None] * e1 + v[..., None] * e2
        gap = w - offset
        square = np.where(inside, np.einsum("nkd,nkd->nk", gap, gap), np.inf)
        worth = ~inside  # edges matter only where they could beat the best plane projection
        if at_least is not None:
            worth &= at_least <= np.sqrt(square.min(1, keepdims=True)) + self.slack
        edges = np.nonzero(worth)
        if edges[0].size:
            one, two = e1[edges], e2[edges]
            s, t = _on_edges(w[edges], one, two)
            offset[edges] = s[:, None] * one + t[:, None] * two
            square[edges] = ((w[edges] - offset[edges]) ** 2).sum(1)
        away = np.sqrt(square)
        tied = away <= away.min(1, keepdims=True) + self.slack
        pick = np.where(tied, candidate, len(self.corner)).argmin(1)
        rows = np.arange(len(p))
        return (a + offset)[rows, pick], candidate[rows, pick], away[rows, pick]


def icosphere(subdivisions: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit sphere from an icosahedron, each face cut into four `subdivisions` times: 20 * 4**s faces."""
    g = (1 + 5**0.5) / 2
    vertices = np.array(
        [(-1, g, 0), (1, g, 0), (-1, -g, 0), (1, -g, 0), (0, -1, g), (0, 1, g),
         (0, -1, -g), (0, 1, -g), (g, 0, -1), (g, 0, 1), (-g, 0, -1), (-g, 0, 1)]
    )  # fmt: skip
    faces = np.array(
        [(0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11), (1, 5, 9), (5, 11, 4),
         (11, 10, 2), (10, 7, 6), (7, 1, 8), (3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8),
         (3, 8, 9), (4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1)]
    )  # fmt: skip
    vertices = vertices / np.linalg.norm(vertices, axis=1, keepdims=True)
    for _ in range(subdivisions):
        vertices, faces = subdivide(vertices, faces)
        vertices = vertices / np.linalg.norm(vertices, axis=1, keepdims=True)
    return vertices, faces


def bumpy_icosphere(subdivisions: int = 2, bump: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    r"""Icosphere whose radius is :math:`1 + a\sin(3x)\cos(2y)`, `bump` = :math:`a`: the offline mesh."""
    vertices, faces = icosphere(subdivisions)
    return vertices * (1 + bump * np.sin(3 * vertices[:, :1]) * np.cos(2 * vertices[:, 1:2])), faces


def subdivide(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut each face into four at its edges' midpoints; the surface does not move."""
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    unique, index = np.unique(edges, axis=0, return_inverse=True)
    ab, bc, ca = len(vertices) + index.reshape(3, -1)
    a, b, c = faces.T
    new = [np.stack(corner, 1) for corner in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
    return np.concatenate([vertices, vertices[unique].mean(1)]), np.stack(new, 1).reshape(-1, 3)


def _cells(corner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut large triangles into quarters: centroids of the cells, (C, 3), their radii, and their faces, (C,).

    A few large faces would otherwise spoil the search's bound for all the small ones. At most three
    cuts, so that a mesh of very unequal faces stays a list of reasonable length.
    """
    face = np.arange(len(corner))
    for cuts in range(4):
        centroid = corner.mean(1)
        radius = np.linalg.norm(corner - centroid[:, None], axis=2).max(1)
        if cuts == 0:
            limit = 1.2 * np.median(radius)
        large = radius > limit
        if cuts == 3 or not large.any():
            break
        a, b, c = np.moveaxis(corner[large], 1, 0)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        quarters = [np.stack(part, 1) for part in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        corner = np.concatenate([corner[~large], *quarters])
        face = np.concatenate([face[~large], *[face[large]] * 4])
    return centroid, radius, face


def _on_edges(w: np.ndarray, e1: np.ndarray, e2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (u, v) of the point nearest to `w` on the three edges of a triangle at the origin."""

    def clamp(q: np.ndarray, e: np.ndarray) -> np.ndarray:
        return np.clip((q * e).sum(1) / (e * e).sum(1), 0.0, 1.0)

    s1, s2, s3 = clamp(w, e1), clamp(w, e2), clamp(w - e1, e2 - e1)
    zero = np.zeros_like(s1)
    u, v = np.stack((s1, zero, 1 - s3)), np.stack((zero, s2, s3))
    square = ((w - u[..., None] * e1 - v[..., None] * e2) ** 2).sum(2)
    pick, columns = square.argmin(0), np.arange(len(w))
    return u[pick, columns], v[pick, columns]
