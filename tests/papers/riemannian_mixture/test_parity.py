"""Against numbers stored from the authors' released code, at the tolerances set beforehand."""

from __future__ import annotations

import pytest
import torch

from icml24.common.rotations import so3_log
from icml24.papers.riemannian_mixture import (
    DriftMLP,
    LinearSchedule,
    Mesh,
    Sphere,
    Torus,
    bridge_drift,
    bridge_matching_loss,
    log_likelihood,
    pf_ode_drift,
    spectral_direction,
    sphere_log_heat_kernel,
    two_way_sample,
)
from icml24.papers.riemannian_mixture.bridges import spectral_sqdist
from icml24.papers.riemannian_mixture.likelihoods import flow_log_likelihood

NAMES = ["sphere", "torus", "hyperboloid", "so3"]


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_geometry(parity, manifolds, name):
    g, m = parity("geometry"), manifolds[name]
    x, y = g[f"{name}_x"], g[f"{name}_y"]
    noise = m.tangent_noise(x, g[f"{name}_eps"])
    close(noise, g[f"{name}_noise"], 1e-8)
    close(m.exp(x, noise), g[f"{name}_exp"], 1e-8)
    close(m.log(x, y), g[f"{name}_log"], 1e-6)
    close(m.dist(x, y), g[f"{name}_dist"], 1e-8)
    close(m.to_tangent(x, g[f"{name}_w"]), g[f"{name}_tangent"], 1e-8)
    if name != "hyperboloid":
        assert m.log_volume == pytest.approx(float(g[f"{name}_log_volume"]), abs=1e-12)


def test_rotation_vectors_and_projection(parity, manifolds):
    g = parity("geometry")
    relative = g["so3_x"].unflatten(-1, (3, 3)).mT @ g["so3_y"].unflatten(-1, (3, 3))
    close(so3_log(relative), g["so3_rotvec"], 1e-8)
    close(manifolds["so3"].project(g["so3_x"] + 0.1 * g["so3_w"]), g["so3_project"], 1e-8)


@pytest.mark.parametrize("i", range(3))
def test_schedule(parity, i):
    s = {key[3:]: value for key, value in parity("schedule").items() if key.startswith(f"s{i}_")}
    schedule = LinearSchedule(float(s["beta0"]), float(s["betaf"]))
    close(schedule.beta(s["t"]), s["beta"], 1e-9)
    close(schedule.integral(s["s"], s["t"]), s["integral"], 1e-9)
    torch.testing.assert_close(schedule.rate(s["t"]), s["rate"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(schedule.reverse().rate(s["t"]), s["rate_rev"], rtol=1e-9, atol=1e-9)
    if "Z" in s:
        close(schedule.importance_time(s["u"], 1e-3), s["imp_t"], 1e-9)
        assert schedule.inv_beta_integral(1e-3, 1 - 1e-3) == pytest.approx(float(s["Z"]), rel=1e-9)


@pytest.mark.parametrize(("name", "tolerance"), [*((n, 1e-7) for n in NAMES[:3]), ("so3", 2e-4)])
def test_two_way_bridges(parity, manifolds, name, tolerance):
    b, m = parity("bridge"), manifolds[name]
    schedule = LinearSchedule(float(b["beta0"]), float(b["betaf"]))
    x0, x1, t, xt = (b[f"{name}_{key}"] for key in ("x0", "x1", "t", "xt"))
    close(two_way_sample(m, x0, x1, t, schedule, noise=b[f"{name}_noise"], grid="linspace"), xt, tolerance)
    close(bridge_drift(m, xt, x1, t, schedule), b[f"{name}_drift_f"], tolerance)
    close(bridge_drift(m, xt, x0, 1 - t, schedule.reverse()), b[f"{name}_drift_b"], tolerance)


def test_mesh(parity):
    h = parity("mesh")
    mesh = Mesh(h["vertices"], h["faces"], n_eig=60)
    close(mesh.closest_point(h["p"])[0], h["closest"], 1e-6)
    assert float(mesh.areas.sum()) == pytest.approx(float(h["areas_sum"]), rel=1e-6)
    torch.testing.assert_close(mesh.eigenvalues[:40], h["eigenvalues"], rtol=1e-6, atol=0)
    for weight in ("biharmonic", "diffusion"):
        d = spectral_sqdist(mesh, h["x"], h["y"], weight=weight)
        torch.testing.assert_close(d, h[f"{weight}_sqdist"], rtol=1e-6, atol=0)
    s = spectral_direction(mesh, h["x"], h["y"])
    torch.testing.assert_close(s, h["biharmonic_direction"], rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def released(parity):
    k = parity("network")
    nets = []
    for side in "fb":
        net = DriftMLP(Sphere(2), 24, 2).double()
        for i, linear in enumerate(net.linears):
            linear.weight.data, linear.bias.data = k[f"{side}_w{i}"], k[f"{side}_b{i}"]
        nets.append(net.requires_grad_(False))
    schedule = LinearSchedule(float(k["beta0"]), float(k["betaf"]))
    return k, nets[0], nets[1], schedule


@pytest.mark.parametrize(
    ("weighting", "key"), [("inverse", "loss_default"), ("importance", "loss_importance")]
)
def test_losses(released, weighting, key):
    k, f, b, schedule = released
    u = k["u"]
    t = u * (1 - 2e-3) + 1e-3 if weighting == "inverse" else schedule.importance_time(u, 1e-3)
    xt = two_way_sample(Sphere(2), k["x0"], k["x1"], t, schedule, noise=k["noise"], grid="linspace")
    losses = bridge_matching_loss(f, b, Sphere(2), schedule, k["x0"], k["x1"], t, xt, weighting=weighting)
    close(torch.stack(losses), k[key], 1e-6)


def test_network_and_likelihood(released):
    k, f, b, schedule = released
    close(f(k["x1"], k["t"]), k["fwd"], 1e-9)
    close(log_likelihood(f, b, Sphere(2), schedule, k["x1"]), k["logp"], 2e-4)
    end = flow_log_likelihood(pf_ode_drift(f, b), Sphere(2), k["x1"], span=(0.0, 1 - 1e-3))[1]
    close(end, k["ode_z"], 2e-4)


def test_heat_kernel(parity):
    k = parity("network")
    close(sphere_log_heat_kernel(k["hk_x"], k["hk_y"], k["hk_t"]), k["hk_log"], 1e-6)


def test_left_grid_is_the_default_and_differs(parity):
    b, m = parity("bridge"), Torus(3)
    schedule = LinearSchedule(float(b["beta0"]), float(b["betaf"]))
    args = (m, b["torus_x0"], b["torus_x1"], b["torus_t"], schedule)
    left = two_way_sample(*args, noise=b["torus_noise"])
    assert torch.equal(left, two_way_sample(*args, noise=b["torus_noise"], grid="left"))
    assert m.dist(left, b["torus_xt"]).max() > 1e-3
