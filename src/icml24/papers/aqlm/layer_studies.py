r"""Studies of one layer: convergence, rate and distortion, a Gaussian source, the time of a product."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from icml24.common.random import generator

from .beam import beam_search_codes_l2
from .clusters import kmeans, residual_kmeans
from .codebooks import least_squares_codebooks
from .data import load_model
from .experiments import Config, calibration_tokens, layer_config
from .formats import bits_per_parameter, dequantize
from .layers import AQLMConfig, alternate, initial_code, quantize_layer
from .lookup import arrange, lookup
from .objective import GramAccumulator, layer_mse
from .uniform import gptq_quantize, rtn_quantize, uniform_bits_per_parameter

__all__ = [
    "RatePoint",
    "against_released",
    "convergence",
    "gaussian_source",
    "lookup_times",
    "rate_distortion",
    "released_layer",
    "rounds_needed",
    "studied_layer",
]

#: Block of the larger model whose second MLP matrix is studied: 128 outputs, 512 inputs.
STUDIED = 1


@cache
def studied_layer(config: Config) -> tuple[Tensor, Tensor]:
    """Weight (128, 512) of a trained layer and the Gram matrix of its inputs, float32."""
    model = load_model("large")
    layer = model.blocks[STUDIED].proj
    gram = GramAccumulator(layer.in_features)
    handle = layer.register_forward_pre_hook(lambda _, inputs: gram.update(inputs[0]))
    with torch.no_grad():
        for ids in calibration_tokens(config, config.calibration).split(16):
            model(ids)
    handle.remove()
    return layer.weight.detach(), gram.value.float()


def convergence(config: Config) -> dict[str, list[float]]:
    """Error at the start of every round, over the energy of the outputs: three beams, and a random start.

    The random start draws codes uniformly and words from a normal distribution of the spread that
    the blocks have, and gets three times as many rounds.
    """
    weight, gram = studied_layer(config)
    energy = float(layer_mse(weight, torch.zeros_like(weight), gram))
    base = replace(
        layer_config(config, config.main),
        beam_size=1,
        max_rounds=config.study_rounds,
        relative_mse_tolerance=0.0,
    )
    out = {}
    for size in (1, 4, 8):
        g = generator(config.seed, "aqlm", "convergence")
        found = quantize_layer(weight, gram, replace(base, beam_size=size), generator=g)
        out[f"k-means, beam {size}"] = found.history
    g = generator(config.seed, "aqlm", "random start")
    codes, books, scales = initial_code(weight, gram, replace(base, kmeans_max_iter=1), g)
    books = torch.randn(books.shape, generator=g) * (1 / weight.shape[1] / base.num_codebooks) ** 0.5
    codes = torch.randint(books.shape[1], codes.shape, generator=g)
    long = replace(base, max_rounds=3 * config.study_rounds)
    out["random start, beam 1"] = alternate(weight, codes, books, scales, gram, long, g).history
    return {name: [value / energy for value in history] for name, history in out.items()}


def rounds_needed(history: list[float], target: float, budget: int) -> float:
    """Rounds until the error is at most `target`; one more than the budget if it never is."""
    return float(next((k for k, value in enumerate(history) if value <= target), budget + 1))


@dataclass(frozen=True)
class RatePoint:
    """A method on one layer: bits a weight with all storage, and error over the energy of the outputs."""

    method: str
    bits: float
    error: float


def rate_distortion(config: Config) -> list[RatePoint]:
    """RTN and GPTQ at 2, 3 and 4 bits, additive formats by Adam, and with codebooks made exact at the end."""
    weight, gram = studied_layer(config)
    energy = float(layer_mse(weight, torch.zeros_like(weight), gram))

    def point(method: str, bits: float, dense: Tensor) -> RatePoint:
        return RatePoint(method, bits, float(layer_mse(weight, dense, gram)) / energy)

    out = []
    for bits in (2, 3, 4):
        rate = uniform_bits_per_parameter(weight.shape[1], bits)
        out.append(point("RTN", rate, rtn_quantize(weight, bits)))
        out.append(point("GPTQ", rate, gptq_quantize(weight, gram, bits, act_order=True)))
    for form in config.study_formats:
        g = generator(config.seed, "aqlm", "rate", *form)
        found = quantize_layer(weight, gram, layer_config(config, form), generator=g)
        out.append(point("AQLM", found.bits_per_parameter, found.dequantize()))
        exact = least_squares_codebooks(weight, found.codes, found.codebooks, found.scales, gram)
        dense = dequantize(found.codes, exact, found.scales)
        out.append(point("AQLM, exact codebooks", found.bits_per_parameter, dense))
    return out


def released_layer() -> tuple[Tensor, Tensor, list[dict[str, object]]]:
    """A layer (64, 128) with its Gram matrix, and what the released code made of it: settings and errors by seed."""
    folder = files(__package__)
    with np.load(str(folder / "released_layer.npz")) as stored:
        weight, gram = (torch.from_numpy(stored[name]) for name in ("weight", "gram"))
    return weight, gram.double(), json.loads((folder / "released_layer.json").read_text())["runs"]


def against_released(seed: int) -> list[dict[str, float | str]]:
    """Ours beside the released code on one layer: error over the worst of its seeds, and the largest rise of a round."""
    weight, gram, runs = released_layer()
    out: list[dict[str, float | str]] = []
    for run in runs:
        names = ("num_codebooks", "nbits_per_codebook", "in_group_size", "beam_size", "lr", "adam_steps")
        config = AQLMConfig(**{n: run[n] for n in (*names, "max_rounds", "relative_mse_tolerance")})
        found = quantize_layer(weight, gram, config, generator=generator(seed, "aqlm", "released"))
        out.append(
            {
                "setting": f"{run['num_codebooks']} x {run['nbits_per_codebook']} bits, beam {run['beam_size']}",
                "bits": found.bits_per_parameter,
                "released, worst": max(run["official_mse"]),
                "here": found.history[-1],
                "ratio": found.history[-1] / max(run["official_mse"]),
                "largest rise": max(b / a - 1 for a, b in pairwise(found.history)),
            }
        )
    return out


def gaussian_source(seed: int, groups: int = 2**13) -> dict[str, float]:
    """Mean squared error at 2 bits a value for independent standard normal values, codebooks not counted.

    Parameters
    ----------
    seed : int
    groups : int
        Groups of eight values.

    Returns
    -------
    dict
        ``"RTN, rows of 512"``, ``"scalar k-means"``, ``"additive, 2 x 8 bits"`` and ``"bound"``.
    """
    g = generator(seed, "aqlm", "gaussian")
    x = torch.randn(groups, 8, generator=g, dtype=torch.float64)
    rows = x.reshape(-1, 512)
    centres, labels = kmeans(x.reshape(-1, 1), 4, max_iter=200, generator=g)
    books, codes = residual_kmeans(x, 2, 256, max_iter=20, generator=g)
    one = torch.ones(groups, 1, 1, 1, dtype=torch.float64)
    books = books[:, :, None]
    codes = beam_search_codes_l2(x, codes[:, None], books, one, beam_size=8)
    return {
        "RTN, rows of 512": float((rtn_quantize(rows, 2) - rows).square().mean()),
        "scalar k-means": float((centres[labels] - x.reshape(-1, 1)).square().mean()),
        "additive, 2 x 8 bits": float((dequantize(codes, books) - x).square().mean()),
        "bound": float(rate_bound(2.0)),
    }


def rate_bound(bits: float, variance: float = 1.0) -> float:
    r"""Least mean squared error of a Gaussian source at a rate, :math:`\sigma^2 2^{-2R}`."""
    return variance * 2.0 ** (-2.0 * bits)


#: Codebooks of 8 bits, and weights that share a code, of the paper's table 5: all 2 bits a weight.
SCHEMES = ((2, 8), (4, 16), (8, 32))


def lookup_times(config: Config, repeats: int = 9) -> list[dict[str, object]]:
    """Median milliseconds of one matrix times vector, one thread, random codes (their values cost nothing).

    The float32 product and the look-ups are timed in turn, so that a busy machine disturbs both.
    """
    g = generator(config.seed, "aqlm", "times")
    out: list[dict[str, object]] = []
    for rows, columns in config.shapes:
        x, dense = torch.randn(columns, generator=g), torch.full((rows, columns), 0.5)
        for books, group in SCHEMES:
            codes = torch.randint(256, (rows, columns // group, books), generator=g, dtype=torch.uint8)
            words = torch.randn(books, 256, 1, group, generator=g)
            scales = torch.ones(rows, 1, 1, 1)
            calls = partial(torch.mv, dense, x), partial(lookup, x, codes, words, scales, arrange(codes, 256))
            plain, looked = _interleaved(calls, repeats)
            out.append(
                {
                    "outputs": rows,
                    "inputs": columns,
                    "codebooks": f"{books} x 8 bits, groups of {group}",
                    "float32": plain,
                    "look-up": looked,
                    "speed-up": plain / looked,
                    "bytes read": (4 * rows * columns)
                    / (codes.numel() + 4 * (columns // group) * books * 256),
                    "bits": bits_per_parameter(
                        rows, columns, num_codebooks=books, nbits_per_codebook=8, in_group_size=group
                    ),
                }
            )
    return out


def _interleaved(calls: tuple[Callable[[], object], ...], repeats: int) -> list[float]:
    for call in calls:
        call()
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for times, call in zip(spent, calls, strict=True):
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
    return [float(np.median(times)) for times in spent]
