"""Data: coordinates, offline carriers, synthetic laws with known density, registered files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24 import datasets
from icml24.papers.riemannian_mixture import SO3, Hyperboloid, Torus, data
from icml24.papers.riemannian_mixture.hyperboloid import wrapped_normal, wrapped_normal_log_prob
from icml24.papers.riemannian_mixture.mesh_operators import bumpy_icosphere


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_degrees_and_unit_rows_are_inverse():
    lat, lon = np.array([0.0, 90.0, -45.0, 10.0]), np.array([0.0, 0.0, 170.0, -120.0])
    x = data.on_sphere(lat, lon)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(4))
    back_lon, back_lat = data.lonlat(x)
    assert back_lat == pytest.approx(lat, abs=1e-3)
    assert back_lon[[0, 2, 3]] == pytest.approx(lon[[0, 2, 3]], abs=1e-3)  # at the pole there is no longitude
    assert x[0].tolist() == pytest.approx([-1, 0, 0], abs=1e-6)  # by hand: theta = pi/2, phi = pi


def test_offline_earthquakes_lie_in_south_east_asia():
    lon, lat = data.lonlat(data.earthquakes_offline())
    assert len(lon) == 596
    assert 110 < lon.min() < lon.max() < 140
    assert -10.1 < lat.min() < lat.max() < 10.1


def test_offline_torsions_look_like_proteins():
    angles = data.backbone_torsions()
    assert angles.shape[1] == 2
    assert 5000 < len(angles) < 10_000
    phi, psi = np.degrees(angles.numpy()).T
    helix = (np.abs(phi + 63) < 25) & (np.abs(psi + 43) < 25)
    assert 0.25 < helix.mean() < 0.6
    assert (phi < 0).mean() > 0.85  # L amino acids


def test_split_is_a_partition():
    a, b, c = data.split(torch.arange(100.0).unsqueeze(1), gen())
    assert (len(a), len(b), len(c)) == (80, 10, 10)
    assert sorted(torch.cat((a, b, c)).squeeze(1).tolist()) == list(range(100))


@pytest.mark.parametrize("dim", [1, 2])
def test_torus_law_integrates_to_one_and_matches_its_samples(dim):
    m, modes = Torus(dim), ((0.6, -1.0, 0.3), (0.4, 3.0, 0.5))
    x = m.random_uniform(100_000, generator=gen(1), dtype=torch.float64)
    share = (data.torus_normal_log_prob(m, x, modes) + m.log_volume).exp()
    assert abs(share.mean() - 1) < 4 * share.std() / 100_000**0.5
    drawn = data.torus_normal(m, 50_000, modes=modes, generator=gen(2))
    near = (m.to_angles(drawn)[:, 0] + 1).abs() < 1
    assert abs(near.float().mean() - 0.6) < 0.02


def test_hyperbolic_modes_have_the_density_they_claim():
    m = Hyperboloid(2)
    y = wrapped_normal(m, 200_000, std=1.2, generator=gen(3), dtype=torch.float64)
    ratio = (data.hyperboloid_modes_log_prob(m, y) - wrapped_normal_log_prob(m, y, std=1.2)).exp()
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / 200_000**0.5
    x = data.hyperboloid_modes(m, 20_000, gen(4)).double()
    right = m.to_ball(x)[:, 0] > 0.1
    weight = (ratio * (m.to_ball(y)[:, 0] > 0.1)).mean()
    assert abs(right.double().mean() - weight) < 0.02


def test_rotation_modes_sit_at_their_centres():
    m = SO3()
    x = data.so3_modes(m, 6000, gen(5))
    centres = data.so3_exp(torch.tensor(data.SO3_CENTRES)).flatten(-2)
    angle = m.dist(x.unsqueeze(1), centres.unsqueeze(0)).min(1)
    assert angle.values.square().mean().sqrt() == pytest.approx(data.SO3_STD * 3**0.5, rel=0.03)
    assert torch.bincount(angle.indices).float().std() < 120


def test_mesh_targets_are_masses_and_subdivide_consistently():
    v, f = bumpy_icosphere(1)
    mass = data.mesh_target(v, f, 6)[2]
    assert mass.sum() == pytest.approx(1)
    assert (mass >= 0).all()
    fine_v, fine_f, fine = data.mesh_target(v, f, 6, upsample=2)
    centre = fine_v[fine_f].mean(1).reshape(len(f), 16, 3).mean(1)
    assert np.abs(centre - v[f].mean(1)).max() < 1e-12  # children of a face are consecutive
    assert fine.sum() == pytest.approx(1)


def test_kernel_density_integrates_to_one():
    train = data.earthquakes_offline()[:40]
    x = torch.randn(200_000, 3, generator=gen(6))
    x = x / x.norm(dim=1, keepdim=True)
    kappa, nll = data.kernel_density(train, train[:5], x[:10], kappas=(20.0,))
    assert kappa == 20.0
    assert math.isfinite(nll)
    cosine = x.double() @ train.double().T
    density = (20 / (2 * math.pi * (1 - math.exp(-40))) * torch.exp(20 * (cosine - 1))).mean(1)
    share = density * 4 * math.pi
    assert abs(share.mean() - 1) < 4 * share.std() / 200_000**0.5
    by_hand = -float(density[:10].log().mean())
    assert nll == pytest.approx(by_hand, rel=1e-6)


def test_registered_files_and_their_absence():
    names = {entry.name for entry in datasets.REGISTRY["riemannian_mixture"].files}
    assert names == {"volerup.csv", "quakes_all.csv", "flood.csv", "fire.csv", "spot.obj", "bunny.obj"}
    with pytest.raises(ValueError, match="volcano"):
        data.earth("tornado")
    with pytest.raises(ValueError, match="spot"):
        data.obj("teapot")


def test_absent_files_are_reported_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML24_DATA", str(tmp_path))
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path / "cache"))
    with pytest.raises(datasets.MissingData, match="icml24 data fetch riemannian_mixture"):
        data.earth("flood")
