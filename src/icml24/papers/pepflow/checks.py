r"""Identities the chapter checks in front of the reader, as numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from icml24.common.random import generator as stream
from icml24.common.rotations import random_so3, so3_exp, so3_log

from .config import PepFlowConfig
from .flows import State, euler_step, interpolate
from .model import PepFlow
from .simplex import sequence_to_logits
from .torus import torus_geodesic, torus_log

__all__ = ["clean_type_curve", "drift", "equivariance", "euler_errors", "identities", "random_state"]

F64 = torch.float64


def random_state(B: int, L: int, generator: torch.Generator, dtype: torch.dtype = F64) -> State:
    """Frames, angles and logits from their priors, positions normal."""
    like = {"generator": generator, "dtype": dtype}
    return State(
        random_so3((B, L), **like),
        torch.randn(B, L, 3, **like),
        2 * math.pi * torch.rand(B, L, 5, **like),
        5 * torch.randn(B, L, 20, **like),
    )


def identities(seed: int) -> dict[str, float]:
    """Largest violations of the closed-form geometry: one number an identity."""
    g = stream(seed, "pepflow", "identities")
    x0, x1 = random_state(1, 500, g), random_state(1, 500, g)
    t = torch.tensor([0.35], dtype=F64)
    xt = interpolate(x1, x0, t, torch.ones(1, 500, dtype=torch.bool))
    v = so3_log(x0.rotmats.mT @ x1.rotmats)
    w = torch.nn.functional.normalize(torch.randn(500, 3, generator=g, dtype=F64), dim=-1)
    sizes = torch.tensor([1e-8, 1e-3, 1.0, 3.0, math.pi - 1e-6], dtype=F64)[:, None, None]
    loop = so3_log(so3_exp(sizes * w)) - sizes * w
    full = torus_geodesic(1.0, x1.angles, x0.angles)
    return {
        "log of exp": float(loop.abs().max()),
        "rotations keep their velocity": float((so3_log(xt.rotmats.mT @ x1.rotmats) - 0.65 * v).abs().max()),
        "angles arrive": float(torus_log(full, x1.angles).abs().max()),
        "angles take the short way": float(
            (torus_log(x0.angles, x1.angles).abs() - math.pi).clamp_min(0).max()
        ),
        "positions keep their velocity": float(
            ((x1.trans - xt.trans) / 0.65 - (x1.trans - x0.trans)).abs().max()
        ),
    }


def euler_errors(counts: tuple[int, ...], seed: int) -> dict[str, dict[int, dict[str, float]]]:
    """What is left of the initial error at time 1, with a constant target.

    Returns
    -------
    dict
        Integrator to number of times to modality (``positions``, ``angles``, ``logits``,
        ``rotations``) to the mean of |state - target| over |noise - target|. Rotations take the
        common fraction under "geodesic" and the exponential schedule under "released".
    """
    g = stream(seed, "pepflow", "euler")
    x0, x1 = random_state(1, 200, g), random_state(1, 200, g)
    distance = {
        "positions": lambda a: (a.trans - x1.trans).norm(dim=-1),
        "angles": lambda a: torus_log(a.angles, x1.angles).abs(),
        "logits": lambda a: (a.logits - x1.logits).norm(dim=-1),
        "rotations": lambda a: so3_log(a.rotmats.mT @ x1.rotmats).norm(dim=-1),
    }
    out: dict[str, dict[int, dict[str, float]]] = {}
    for integrator, rate in (("geodesic", None), ("released", 10.0)):
        out[integrator] = {}
        for n in counts:
            times = torch.linspace(0.01, 1.0, n, dtype=F64).tolist()
            xt = x0
            for a, b in pairwise(times):
                xt = euler_step(xt, x1, a, b - a, x0=x0, rot_rate=rate, integrator=integrator)
            out[integrator][n] = {name: float((d(xt) / d(x0)).mean()) for name, d in distance.items()}
    return out


def equivariance(batch: dict[str, Tensor], seed: int, dtype: torch.dtype) -> dict[str, float]:
    """Largest violations when a whole complex is moved: frames and positions co-move, the rest stays.

    A small network with random weights in every layer, so that no layer is silent.
    """
    net = _restless(seed, dtype)
    g = stream(seed, "pepflow", "motion")
    B, L = batch["aa"].shape
    state = random_state(B, L, g, dtype)
    Q = random_so3((), generator=g, dtype=dtype)
    shift = 10 * torch.randn(3, generator=g, dtype=dtype)
    pos = torch.where(batch["atom_mask"].unsqueeze(-1), batch["pos"].to(dtype) @ Q.T + shift, 0.0)
    there = state._replace(rotmats=Q @ state.rotmats, trans=state.trans @ Q.T + shift)
    t = torch.full((B,), 0.4, dtype=dtype)
    with torch.no_grad():
        outs = [
            net.ga_encoder(t, *x[:3], batch["aa"], *net.encode(b), batch["res_mask"])
            for b, x in ((batch, state), (batch | {"pos": pos}, there))
        ]
    (R, x, a, s), (R2, x2, a2, s2) = outs
    rows = batch["res_mask"]
    return {
        "frames": float((Q @ R - R2)[rows].abs().max()),
        "positions": float((x @ Q.T + shift - x2)[rows].abs().max()),
        "angles": float(torus_log(a, a2)[rows].abs().max()),
        "logits": float((s - s2)[rows].abs().max()),
    }


def drift(batch: dict[str, Tensor], seed: int) -> float:
    """Departure from orthonormality of the frames that `PepFlow.sample` returns after 200 steps, float32.

    The network's weights are random in every layer, so that its targets keep changing.
    """
    net = _restless(seed, torch.float32)
    R = net.sample(batch, 200, generator=stream(seed, "pepflow", "drift"))["rotmats"][batch["gen_mask"]]
    return float((R.mT @ R - torch.eye(3)).abs().max())


def clean_type_curve(times: Tensor, n: int, seed: int, k: float = 5.0) -> Tensor:
    """Mean probability of the true type along the path, by time; (len(times),)."""
    g = stream(seed, "pepflow", "simplex")
    noise = k * torch.randn(n, 20, generator=g, dtype=F64)
    clean = sequence_to_logits(torch.zeros(n, dtype=torch.long), k, dtype=F64)
    return torch.stack([torch.softmax((1 - t) * noise + t * clean, -1)[:, 0].mean() for t in times])


def _restless(seed: int, dtype: torch.dtype) -> PepFlow:
    """Small network with random weights in every layer, also those that start at zero."""
    cfg = PepFlowConfig(c_s=16, c_z=8, c_hidden=8, no_heads=2, num_blocks=2, seq_tfmr_num_layers=1)
    net = PepFlow(cfg, generator=stream(seed, "pepflow", "restless"))
    g = stream(seed, "pepflow", "restless, added")
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))
    return net.to(dtype).eval()
