r"""Networks to certify: two checkpoints carried by the package, the authors' network, and random ones.

There is no data set: the objects under study are trained networks. `small_pinns` were trained by this book
(`train_small`, repeated by the full profile) and are stored with their provenance. The authors' Burgers
network is read from ``ICML24_DATA`` or the download cache and is never part of the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icml24 import datasets
from icml24.common.random import generator

from .equations import Burgers
from .networks import TanhMLP
from .training import PINNConfig, train_pinn

__all__ = [
    "SMALL",
    "SMALL_STEPS",
    "official_pinn",
    "provenance",
    "random_network",
    "released_bounds",
    "released_unsound",
    "small_pinns",
    "store_small",
    "train_small",
]

#: Iterations after which the small network is kept.
SMALL_STEPS = (250, 1500)
#: The equation of the small networks: ten times the paper's viscosity.
SMALL = Burgers(0.1 / math.pi)
_FOLDER = "icml24.papers.partial_crown"
_STORED = "small_pinns.npz"


def train_small(seed: int = 0) -> dict[int, TanhMLP]:
    """Train the 2-16-16-16-1 network of `SMALL` and keep it after each of `SMALL_STEPS` iterations."""
    kept: dict[int, TanhMLP] = {}

    def keep(done: int, net: TanhMLP, _: float) -> None:
        if done in SMALL_STEPS:
            kept[done] = _copy(net)

    train_pinn(
        SMALL,
        PINNConfig(max_iter=SMALL_STEPS[-1]),
        generator=generator(seed, "partial_crown", "small"),
        on_step=keep,
        chunk=SMALL_STEPS[0],
    )
    return kept


def store_small(path: Path, seed: int = 0) -> None:
    """Train and write the file that `small_pinns` reads, with its provenance."""
    arrays: dict[str, np.ndarray] = {}
    for steps, net in train_small(seed).items():
        for k, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
            arrays[f"{steps}/W{k}"], arrays[f"{steps}/b{k}"] = w.detach().numpy(), b.detach().numpy()
    record = {
        "made by": "icml24.papers.partial_crown.data.store_small",
        "equation": "Burgers, viscosity 0.1 / pi, t in [0, 1], x in [-1, 1]",
        "widths": list(PINNConfig().widths),
        "optimiser": "L-BFGS, strong Wolfe, history 50, full batch, 2000 + 100 + 2 x 100 Sobol points",
        "iterations": list(SMALL_STEPS),
        "seed": seed,
        "torch": torch.__version__,
        "dtype": "float64",
    }
    np.savez_compressed(path, provenance=json.dumps(record), **arrays)


def small_pinns() -> dict[int, TanhMLP]:
    """The stored small networks by the number of training iterations."""
    with _stored(_STORED) as stored:
        return {
            steps: TanhMLP.from_arrays(
                [stored[f"{steps}/W{k}"] for k in range(len(PINNConfig().widths) - 1)],
                [stored[f"{steps}/b{k}"] for k in range(len(PINNConfig().widths) - 1)],
                *SMALL.domain,
            ).requires_grad_(False)
            for steps in SMALL_STEPS
        }


def provenance() -> dict[str, object]:
    """How the stored networks were made."""
    with _stored(_STORED) as stored:
        return json.loads(str(stored["provenance"]))


def released_bounds() -> dict[str, np.ndarray]:
    """Bounds of the authors' code for their network on 24 boxes (float32), and sampled ranges there.

    Keys ``boxes (24, 2, 2)``, ``official_<q>`` and ``sample_<q>`` (24, 2) for q in u, ut, ux, uxx, r. Made by
    running the released code once, with its missing imports stubbed.
    """
    with _stored("released_bounds.npz") as stored:
        return {name: stored[name] for name in stored.files}


def released_unsound() -> list[dict[str, object]]:
    """Three narrow networks on which the released bound of u_xx misses a value that the network takes.

    Each has ``net``, ``box (2, 2)``, ``official (2,)``, ``witness (2,)`` and ``value``.
    """
    cases = []
    with _stored("released_unsound.npz") as stored:
        for name in sorted({key.split("/")[0] for key in stored.files}, key=lambda s: int(s[4:])):
            depth = sum(key.startswith(f"{name}/W") for key in stored.files)
            part = {
                k: stored[f"{name}/{k}"]
                for k in ("lb", "ub", "box", "official_uxx", "witness_x", "witness_uxx")
            }
            net = TanhMLP.from_arrays(
                [stored[f"{name}/W{k}"] for k in range(depth)],
                [stored[f"{name}/b{k}"] for k in range(depth)],
                part["lb"],
                part["ub"],
            )
            cases.append(
                {
                    "name": "-".join(str(n) for n in (2, *(len(b) for b in net.biases))),
                    "net": net.requires_grad_(False),
                    "box": torch.from_numpy(part["box"]),
                    "official": part["official_uxx"],
                    "witness": torch.from_numpy(part["witness_x"]),
                    "value": float(part["witness_uxx"]),
                }
            )
    return cases


def official_pinn() -> TanhMLP:
    """The Burgers network that the authors published: nine tanh layers of 20, float32 weights.

    Read from an ONNX file (`icml24.datasets`, set ``partial_crown``); needs the optional package onnx.

    Raises
    ------
    icml24.datasets.MissingData
        The file is not here.
    ModuleNotFoundError
        onnx is not installed; the message says how to install it.
    """
    path = datasets.locate("partial_crown", "burgers_tanh_lbfgs.onnx")
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "reading the authors' network needs the package onnx; run `pip install 'icml24[originals]'`"
        ) from None
    graph = onnx.load(str(path)).graph
    arrays = {init.name: numpy_helper.to_array(init) for init in graph.initializer}
    weights, biases = [], []
    for node in graph.node:
        if node.op_type == "Gemm":
            w, b = (arrays[name] for name in node.input[1:3])
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            weights.append(w if transposed else w.T)
            biases.append(b)
    return TanhMLP.from_arrays(weights, biases, *Burgers().domain).double().requires_grad_(False)


def random_network(
    widths: Sequence[int],
    seed: int,
    *,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    domain: Tensor | None = None,
) -> TanhMLP:
    """Network with normal weights and biases, wilder than a trained one; on [0, 1] x [-1, 1] by default."""
    draws = generator(seed, "partial_crown", "random", "-".join(map(str, widths)))
    net = TanhMLP(widths, *(SMALL.domain if domain is None else domain), generator=draws, dtype=dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=draws, dtype=torch.float64))
    return net.requires_grad_(False)


def _copy(net: TanhMLP) -> TanhMLP:
    return TanhMLP.from_arrays(
        [w.detach().clone() for w in net.weights],
        [b.detach().clone() for b in net.biases],
        net.lower,
        net.upper,
    ).requires_grad_(False)


class _stored:
    """An npz file of the package, opened for a with-block."""

    def __init__(self, name: str) -> None:
        self._context = as_file(files(_FOLDER) / name)

    def __enter__(self) -> np.lib.npyio.NpzFile:
        self._file = np.load(self._context.__enter__())
        return self._file

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._context.__exit__(*error)
