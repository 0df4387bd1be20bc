"""Additive quantisation: look-up against torch.mv and the released kernel, a layer against the released code.

``python bench/aqlm.py`` needs the extra ``bench``. Before anything is timed, both kernels must
give the same vectors. The released layer code is on no package index. Two things stand in for it:
the seconds on record with the stored layer (its fastest seed, on another and busy machine; the
record holds no matrix product to scale them by), and in the same run the released way of
working, rebuilt plainly: gradients by autograd, the whole weight built anew at every visit.
"""

from __future__ import annotations

import sys
import time
import types
from functools import partial
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location

import click
import harness
import numba
import numpy as np
import torch

from icml24.papers import aqlm
from icml24.papers.aqlm.layer_studies import SCHEMES, released_layer
from icml24.papers.aqlm.layers import initial_code
from icml24.papers.aqlm.lookup import arrange, lookup

SHAPES = ((4096, 1024), (11008, 4096), (28672, 8192))


def released_kernel() -> types.ModuleType:
    """The package's numba kernel, its file alone: the rest of the package wants a GPU compiler."""
    # by distribution: to the import system this very file is the module aqlm
    path = distribution("aqlm").locate_file("aqlm/inference_kernels/numba_kernel.py")
    spec = spec_from_file_location("aqlm_numba_kernel", str(path))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def problem(rows: int, columns: int, books: int, group: int) -> dict[str, torch.Tensor]:
    """Random codes of 8 bits, codebooks, scales and a vector."""
    g = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(columns, generator=g),
        "codes": torch.randint(256, (rows, columns // group, books), generator=g, dtype=torch.uint8),
        "codebooks": torch.randn(books, 256, 1, group, generator=g),
        "scales": torch.rand(rows, 1, 1, 1, generator=g) + 0.5,
    }


def peer_call(kernel: types.ModuleType, parts: dict[str, torch.Tensor]) -> object:
    """The released kernel on the same layer: codes transposed, as signed bytes."""
    codes = parts["codes"].transpose(0, 1).contiguous().view(torch.int8)
    return partial(kernel.numba_gemm_lut, parts["x"][None], codes, parts["codebooks"], parts["scales"], None)


def plain_search(
    weight: torch.Tensor, codes: torch.Tensor, books: torch.Tensor, scales: torch.Tensor, gram: torch.Tensor
) -> torch.Tensor:
    """A sweep of beam 1 that builds the whole weight anew at every visit, as the released routine does."""
    codes = codes.clone()
    group = books.shape[3]
    for j in range(codes.shape[1]):
        columns = slice(j * group, (j + 1) * group)
        corner = gram[columns, columns]
        for m in range(codes.shape[2]):
            rest = weight - aqlm.dequantize(codes, books, scales)
            old = books[m][codes[:, j, m]][:, 0]
            s = scales.view(-1, 1)
            pull = rest @ gram[:, columns] + (s * old) @ corner
            words = books[m][:, 0]
            score = (s * s) * ((words @ corner) * words).sum(1) - 2 * s * (pull @ words.T)
            codes[:, j, m] = score.argmin(1)
    return codes


def plain_layer(weight: torch.Tensor, gram: torch.Tensor, config: aqlm.AQLMConfig) -> float:
    """A whole layer, beam 1, in the released way; returns the last error."""
    g = torch.Generator().manual_seed(0)
    codes, books, scales = initial_code(weight, gram, config, g)
    books, scales = books.requires_grad_(True), scales.requires_grad_(True)
    adam = torch.optim.Adam([books, scales], lr=config.lr, betas=config.adam_betas, amsgrad=True)
    best = last = float("inf")
    for _ in range(config.max_rounds):
        for step in range(config.adam_steps):
            rest = (aqlm.dequantize(codes, books, scales) - weight).double()
            loss = ((rest @ gram) * rest).sum() / len(rest)
            if step == 0:
                last = float(loss.detach())
                if last / best > 1 - config.relative_mse_tolerance:
                    return last
                best = min(best, last)
            adam.zero_grad()
            loss.backward()
            adam.step()
        codes = plain_search(weight, codes, books.detach(), scales.detach(), gram.float())
    return last


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time the look-up against two peers, a sweep of the search, and a layer against the record."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)  # the released kernel runs in parallel; with several threads its sums may race
    kernel = released_kernel()
    rows = []
    for shape in SHAPES:
        dense = torch.full(shape, 0.5)
        for books, group in SCHEMES:
            parts = problem(*shape, books, group)
            ours = partial(lookup, **parts, arranged=arrange(parts["codes"], 256))
            peer = peer_call(kernel, parts)
            torch.testing.assert_close(ours(), torch.as_tensor(peer()).flatten(), rtol=1e-3, atol=1e-2)
            label = f"{shape[1]} -> {shape[0]}, {books} x 8 bits, groups of {group}"
            rows.append(
                harness.compare(
                    f"{label} (torch.mv, float32)",
                    ours,
                    partial(torch.mv, dense, parts["x"]),
                    repeats=repeats,
                    unit="ms",
                )
            )
            rows.append(harness.compare(f"{label} (aqlm, numba)", ours, peer, repeats=repeats, unit="ms"))
        del dense
    weight, gram, runs = released_layer()
    narrow = gram.float()
    config = aqlm.AQLMConfig(nbits_per_codebook=5, lr=1e-3, adam_steps=50, max_rounds=1)
    start = aqlm.quantize_layer(weight, gram, config, generator=torch.Generator().manual_seed(0))
    state = (weight, start.codes, start.codebooks, start.scales, narrow)
    assert torch.equal(aqlm.beam_search_codes(*state), plain_search(*state))
    rows.append(
        harness.compare(
            "a sweep of beam 1, 128 -> 64, 2 x 5 bits (weight built anew)",
            partial(aqlm.beam_search_codes, *state),
            partial(plain_search, *state),
            repeats=repeats,
            unit="ms",
        )
    )
    whole = aqlm.AQLMConfig(nbits_per_codebook=5, lr=1e-3, adam_steps=50, max_rounds=8)
    rows.append(
        harness.compare(
            "a layer, 128 -> 64, 2 x 5 bits, beam 1 (the released way, rebuilt)",
            lambda: aqlm.quantize_layer(weight, gram, whole, generator=torch.Generator().manual_seed(0)),
            lambda: plain_layer(weight, gram, whole),
            repeats=max(repeats // 3, 3),
        )
    )
    for run in runs:
        names = ("num_codebooks", "nbits_per_codebook", "in_group_size", "beam_size", "lr", "adam_steps")
        setting = aqlm.AQLMConfig(**{n: run[n] for n in (*names, "max_rounds", "relative_mse_tolerance")})
        rows.append(against_record(weight, gram, setting, min(run["official_seconds"]), max(repeats // 3, 3)))
    harness.write(
        "aqlm",
        "Additive quantisation of weights",
        "aqlm, torch.mv, the released code's record",
        rows,
        ["torch", "numpy", "numba", "aqlm"],
    )
    assert np.isfinite([row["ratio"] for row in rows]).all()


def against_record(
    weight: torch.Tensor, gram: torch.Tensor, setting: aqlm.AQLMConfig, recorded: float, repeats: int
) -> dict[str, object]:
    """Seconds of a whole layer here, beside the seconds on record for the released code's fastest seed."""
    spent = []
    for seed in range(repeats):
        start = time.perf_counter()
        aqlm.quantize_layer(weight, gram, setting, generator=torch.Generator().manual_seed(seed))
        spent.append(time.perf_counter() - start)
    ratios = recorded / np.array(spent)
    form = f"{setting.num_codebooks} x {setting.nbits_per_codebook} bits, beam {setting.beam_size}"
    what = f"a layer, 128 -> 64, {form} (released code, on record)"
    return {
        "what": what,
        "ours": float(np.median(spent)),
        "peer": recorded,
        "ratio": float(np.median(ratios)),
        "low": float(ratios.min()),
        "high": float(ratios.max()),
        "unit": "s",
    }


if __name__ == "__main__":
    main()
