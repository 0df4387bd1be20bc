"""Meshes: operators, closest points, eigenfunctions, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from icml24.papers.riemannian_mixture import Mesh
from icml24.papers.riemannian_mixture.mesh_operators import (
    ClosestFace,
    bumpy_icosphere,
    cotangent_laplacian,
    icosphere,
    laplacian_eigenpairs,
    subdivide,
    vertex_areas,
)
from icml24.papers.riemannian_mixture.meshes import points_on_faces

rng = np.random.default_rng


def brute_force_closest(p, vertices, faces):
    """Closest point by minimising over a fine barycentric grid and refining: slow and obvious."""
    best = np.full(len(p), np.inf)
    for a, b, c in vertices[faces]:
        for i in range(41):
            for j in range(41 - i):
                q = a + i / 40 * (b - a) + j / 40 * (c - a)
                best = np.minimum(best, np.linalg.norm(p - q, axis=1))
    return best


@pytest.mark.equation("eq-riemannian_mixture-spectral")
def test_laplacian_rows_sum_to_zero_and_mass_to_the_area():  # E12
    v, f = bumpy_icosphere(2)
    L, m = cotangent_laplacian(v, f), vertex_areas(v, f)
    assert np.abs(L.sum(1)).max() < 1e-12
    assert abs(L - L.T).max() < 1e-12
    assert np.linalg.eigvalsh(L.toarray()).min() > -1e-10
    e1, e2 = v[f[:, 1]] - v[f[:, 0]], v[f[:, 2]] - v[f[:, 0]]
    assert m.sum() == pytest.approx(0.5 * np.linalg.norm(np.cross(e1, e2), axis=1).sum(), rel=1e-12)
    assert (m > 0).all()


def test_mixed_areas_of_one_obtuse_triangle_by_hand():
    v = np.array([[0.0, 0, 0], [4, 0, 0], [1, 0.5, 0]])  # obtuse at the third corner, area 1
    assert vertex_areas(v, np.array([[0, 1, 2]])) == pytest.approx([0.25, 0.25, 0.5])
    v = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0]])  # right angle at the first: Voronoi 1, .5, .5
    assert vertex_areas(v, np.array([[0, 1, 2]])) == pytest.approx([1.0, 0.5, 0.5])


def test_the_laplacian_integrates_squared_gradients():
    v, f = bumpy_icosphere(1)
    mesh = Mesh(v, f, n_eig=10)
    u = rng(0).standard_normal(len(v))
    corner = torch.from_numpy(u[f]).unsqueeze(-1)
    gradient = (mesh._g * corner).sum(1)
    energy = float((mesh.areas * gradient.square().sum(1)).sum())
    assert u @ (cotangent_laplacian(v, f) @ u) == pytest.approx(energy, rel=1e-10)


@pytest.mark.parametrize("sub", [1, 3])
def test_eigenpairs_are_eigenpairs(sub):  # 42 vertices: dense; 642: Lanczos
    v, f = bumpy_icosphere(sub)
    lam, phi = laplacian_eigenpairs(v, f, 20)
    L, m = cotangent_laplacian(v, f), vertex_areas(v, f)
    assert np.abs(L @ phi - m[:, None] * phi * lam).max() < 1e-7
    assert np.abs(phi.T @ (m[:, None] * phi) - np.eye(20)).max() < 1e-8
    assert (np.diff(lam) >= -1e-9).all()
    assert lam[0] > 0.1
    assert sp.issparse(L)


def test_sphere_eigenvalues_approach_l_times_l_plus_one():
    lam = laplacian_eigenpairs(*icosphere(3), 15)[0]
    expected = np.repeat([2.0, 6.0, 12.0], [3, 5, 7])
    assert np.abs(lam / expected - 1).max() < 0.03


@pytest.mark.parametrize("scale", [0.3, 1.05, 3.0])
def test_closest_points_are_the_closest(scale):
    v, f = bumpy_icosphere(1)
    p = rng(1).standard_normal((20, 3)) * scale
    search = ClosestFace(v, f)
    point, face = search(p)
    distance = np.linalg.norm(point - p, axis=1)
    slow = brute_force_closest(p, v, f)
    assert (distance <= slow + 1e-9).all()
    assert (distance > slow - 0.02).all()  # the grid is that coarse
    every = search._among(p, np.tile(np.arange(len(f)), (len(p), 1)))
    assert np.abs(every[2] - distance).max() < 1e-12  # the tree left nothing out
    assert np.abs(search._among(point, face[:, None])[2]).max() < 1e-9


def test_barycentric_interpolation_is_exact_at_vertices_and_differentiable(bumpy):
    at_vertices = bumpy.eig_fn(bumpy.vertices)
    torch.testing.assert_close(at_vertices, bumpy.eigenvectors, atol=1e-9, rtol=0)
    x = bumpy.random_uniform(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u = bumpy.random_normal_tangent(x, generator=torch.Generator().manual_seed(2))
    h = 1e-7
    slope = (bumpy.eig_fn(x + h * u) - bumpy.eig_fn(x - h * u)) / (2 * h)
    y = x.clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(bumpy.eig_fn(y)[:, 5].sum(), y)
    torch.testing.assert_close((grad * u).sum(1), slope[:, 5], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_shapes_and_projection(bumpy, dtype):
    x = bumpy.random_uniform(16, generator=torch.Generator().manual_seed(3), dtype=dtype)
    assert x.dtype == bumpy.eig_fn(x).dtype == bumpy.project(x).dtype == bumpy.to_tangent(x, x).dtype == dtype
    assert bumpy.eig_fn(x).shape == (16, 60)
    assert (bumpy.project(x) - x).abs().max() < 1e-6
    point, face = bumpy.closest_point(x + 0.1)
    assert point.shape == (16, 3)
    assert face.dtype == torch.int64
    v = bumpy.to_tangent(x, torch.ones_like(x))
    assert (v * bumpy.normals.to(dtype)[bumpy.closest_point(x)[1]]).sum(1).abs().max() < 1e-6
    assert bumpy.exp(x, 0.01 * v).dtype == dtype
    assert bumpy.log_volume == pytest.approx(math.log(float(bumpy.areas.sum())))


def test_points_on_faces_follow_the_weights(bumpy):
    weight = torch.zeros(len(bumpy.faces), dtype=torch.float64)
    weight[3], weight[7] = 1.0, 3.0
    x = points_on_faces(bumpy, weight, 4000, generator=torch.Generator().manual_seed(4))
    face = bumpy.closest_point(x)[1]
    share = (face == 7).double().mean()
    assert abs(share - 0.75) < 4 * (0.75 * 0.25 / 4000) ** 0.5
    corner = bumpy.vertices[bumpy.faces[7]]
    torch.testing.assert_close(x[face == 7].mean(0), corner.mean(0), atol=0.01, rtol=0)


def test_subdivision_moves_nothing():
    v, f = bumpy_icosphere(1)
    w, g = subdivide(v, f)
    assert len(g) == 4 * len(f)
    assert vertex_areas(w, g).sum() == pytest.approx(vertex_areas(v, f).sum(), rel=1e-12)


V, F = icosphere(0)
DEGENERATE = np.concatenate([F[:-1], [[0, 0, 1]]])


@pytest.mark.parametrize(
    ("vertices", "faces", "n_eig", "match"),
    [
        (V, F[:-1], 5, "not closed"),
        (V, DEGENERATE, 5, "degenerate"),
        (V, np.where(F == 3, 99, F), 5, "face indices"),
        (V, np.where(F == 3, -1, F), 5, "face indices"),
        (V[:, :2], F, 5, "shape"),
        (V * np.nan, F, 5, "finite"),
        (np.concatenate([V, V[:1]]), F, 5, "no face"),
        (np.concatenate([V, V + 5]), np.concatenate([F, F + 12]), 5, "separate parts"),
        (V, F, 12, "n_eig"),
        (V, F, 0, "n_eig"),
        (V, F.astype(float), 5, "integers"),
    ],
)
def test_rejects(vertices, faces, n_eig, match):
    with pytest.raises(ValueError, match=match):
        Mesh(vertices, faces, n_eig=n_eig)


def test_has_no_logarithm_and_says_what_to_use(bumpy):
    x = bumpy.vertices[:2]
    with pytest.raises(NotImplementedError, match="spectral bridge"):
        bumpy.log(x, x)
    with pytest.raises(NotImplementedError, match="spectral_sqdist"):
        bumpy.dist(x, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_point_on_an_edge_belongs_to_the_face_with_the_lowest_index(bumpy, dtype):
    v, f = bumpy.vertices, bumpy.faces
    corner = v[f]  # a point on the edge from corner 0 to corner 1 of every face, lifted off the surface too
    on_edge = 0.3 * corner[:, 0] + 0.7 * corner[:, 1]
    shared = [set(edge) for edge in f[:, :2].tolist()]
    lowest = torch.tensor(
        [min(k for k, face in enumerate(f.tolist()) if edge <= set(face)) for edge in shared]
    )
    if dtype == torch.float64:
        assert torch.equal(bumpy.closest_point(on_edge)[1], lowest)
        at_vertices = bumpy.closest_point(v)[1]  # five or six faces meet there
        expected = [min(k for k, face in enumerate(f.tolist()) if i in face) for i in range(len(v))]
        assert at_vertices.tolist() == expected
    # the face of a point does not depend on what was asked before
    p = (on_edge + 0.2 * bumpy.normals).to(dtype)
    point, _ = bumpy.closest_point(p)
    right_after = bumpy.to_tangent(point, p)
    bumpy.closest_point(torch.zeros(1, 3, dtype=dtype))  # forgets
    assert torch.equal(bumpy.to_tangent(point, p), right_after)


def test_faces_of_very_unequal_size_are_searched_exactly():
    v, f = icosphere(2)
    v = v * [1.0, 1.0, 12.0]  # slivers along the sides, small faces at the poles
    mesh = Mesh(v, f, n_eig=5)
    p = rng(3).standard_normal((300, 3)) * [1.5, 1.5, 12.0]
    point, face = mesh._search(p)
    every = mesh._search._among(p, np.tile(np.arange(len(f)), (len(p), 1)))
    assert np.abs(np.linalg.norm(point - p, axis=1) - every[2]).max() < 1e-10
    assert (face == every[1]).all()
    assert len(mesh._search.owner) > len(f)  # large faces were cut into cells


def test_vertices_and_faces_may_be_lists_views_or_numpy_numbers():
    a = Mesh(V, F, n_eig=np.int64(5))
    for vertices, faces in (
        (V.tolist(), F.tolist()),
        (V, F[::-1, ::-1][::-1]),
        (torch.from_numpy(V), F.T.copy().T),
    ):
        b = Mesh(vertices, faces, n_eig=5)
        assert torch.equal(b.vertices, a.vertices)  # to the last digit
        torch.testing.assert_close(b.eigenvalues, a.eigenvalues)
    a.vertices[0] += 1.0
    assert V[0, 0] != float(a.vertices[0, 0])  # the caller's array is not ours


@pytest.mark.parametrize("n_eig", [200, 12, 2.5, True])
def test_a_small_mesh_names_the_remedy(n_eig):
    with pytest.raises(ValueError, match=r"pass n_eig=11 or fewer"):
        Mesh(V, F, n_eig=n_eig)
    with pytest.raises(ValueError, match=r"pass n_eig=11 or fewer"):
        Mesh(V, F)


def test_no_points_and_one_point(bumpy):
    none = bumpy.random_uniform(0, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert none.shape == (0, 3)
    assert bumpy.project(none).shape == (0, 3)
    assert bumpy.eig_fn(none).shape == (0, 60)
    assert bumpy.random_uniform(1, generator=torch.Generator().manual_seed(0)).shape == (1, 3)


def test_tensors_and_arrays_make_one_mesh():
    a, b = Mesh(V, F, n_eig=5), Mesh(torch.from_numpy(V).float(), torch.from_numpy(F).int(), n_eig=5)
    torch.testing.assert_close(a.eigenvalues, b.eigenvalues, rtol=1e-5, atol=0)


def test_answers_belong_to_the_caller_and_follow_the_values_asked():
    mesh = Mesh(*icosphere(1), n_eig=10)
    array = np.random.default_rng(0).normal(size=(5, 3))
    p = torch.from_numpy(array)
    first, _ = mesh.closest_point(p)
    kept = first.clone()
    first += 1.0  # the caller's own tensor
    assert torch.equal(mesh.closest_point(p)[0], kept)
    array *= -1.0  # p shares this memory, and its version counter does not know
    assert torch.equal(mesh.closest_point(p)[0], Mesh(*icosphere(1), n_eig=10).closest_point(p.clone())[0])
    with torch.inference_mode():
        assert torch.equal(mesh.closest_point(torch.from_numpy(array))[0], mesh.closest_point(p)[0])
