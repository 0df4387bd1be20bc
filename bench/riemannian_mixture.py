r"""Exponential and logarithm maps against geoopt, geomstats and flow-matching.

Float64 points, one thread, 1e5 rows unless a row says otherwise; the peer of a row is named in it.
"""

from __future__ import annotations

import numpy as np

np.trapz = np.trapezoid  # noqa: NPY201 - geomstats 2.8 imports the old name

import geoopt  # noqa: E402
import torch  # noqa: E402
from flow_matching.utils.manifolds import Sphere as PeerSphere  # noqa: E402
from geomstats.geometry.hyperboloid import Hyperboloid as PeerHyperboloid  # noqa: E402
from geomstats.geometry.hypersphere import Hypersphere  # noqa: E402
from geomstats.geometry.special_orthogonal import SpecialOrthogonal  # noqa: E402
from harness import compare, write  # noqa: E402

from icml24.papers.riemannian_mixture import SO3, Hyperboloid, Sphere  # noqa: E402
from icml24.papers.riemannian_mixture.hyperboloid import wrapped_normal  # noqa: E402

N = 100_000


def both(exp, log, x, y):
    """One logarithm and one exponential along it."""
    return lambda: exp(x, log(x, y))


def rows() -> list[dict[str, object]]:
    """Measure every pair."""
    g = torch.Generator().manual_seed(0)
    out = []
    sphere = Sphere(2)
    x, y = (sphere.random_uniform(N, generator=g, dtype=torch.float64) for _ in range(2))
    ours = both(sphere.exp, sphere.log, x, y)
    peer = geoopt.Sphere()
    out.append(
        compare(
            "sphere, exp + log, 1e5 points (geoopt)", ours, both(peer.expmap, peer.logmap, x, y), unit="ms"
        )
    )
    metric, a, b = Hypersphere(2).metric, x.numpy(), y.numpy()
    theirs = lambda: metric.exp(metric.log(b, a), a)  # noqa: E731
    out.append(compare("sphere, exp + log, 1e5 points (geomstats)", ours, theirs, unit="ms"))
    other = PeerSphere()
    theirs = both(other.expmap, other.logmap, x, y)
    out.append(compare("sphere, exp + log, 1e5 points (flow-matching)", ours, theirs, unit="ms"))

    plane = Hyperboloid(2)
    x, y = (wrapped_normal(plane, N, generator=g, dtype=torch.float64) for _ in range(2))
    ours = both(plane.exp, plane.log, x, y)
    lorentz = geoopt.Lorentz()
    out.append(
        compare(
            "hyperbolic plane, exp + log, 1e5 points (geoopt)",
            ours,
            both(lorentz.expmap, lorentz.logmap, x, y),
            unit="ms",
        )
    )
    metric2, a, b = PeerHyperboloid(2).metric, x.numpy(), y.numpy()
    theirs = lambda: metric2.exp(metric2.log(b, a), a)  # noqa: E731
    out.append(compare("hyperbolic plane, exp + log, 1e5 points (geomstats)", ours, theirs, unit="ms"))

    so3, group = SO3(), SpecialOrthogonal(n=3)
    x, y = (so3.random_uniform(2000, generator=g, dtype=torch.float64) for _ in range(2))
    c, d = (z.unflatten(-1, (3, 3)).numpy() for z in (x, y))
    theirs = lambda: group.exp(group.log(d, c), c)  # noqa: E731
    ours = both(so3.exp, so3.log, x, y)
    out.append(compare("rotations, exp + log, 2e3 points (geomstats)", ours, theirs, repeats=5, unit="ms"))
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(
        "riemannian_mixture",
        "Exponential and logarithm maps",
        "geoopt, geomstats, flow-matching",
        rows(),
        ["torch", "geoopt", "geomstats", "flow-matching", "numpy"],
    )
