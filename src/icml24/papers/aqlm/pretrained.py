r"""A real pretrained model: the last blocks of SmolLM2-135M, quantised by all three methods.

The stream that enters those blocks is computed once, for calibration and for test text; everything
after it is a short tail of the model. Its weights are 4-bit values already (`load_smollm2`), so
only 3 bits and fewer are of interest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common.checkpoints import load_smollm2
from icml24.common.random import generator
from icml24.common.texts import kjv_text

from .blocks import BlockCall, ModelReport, Quantizer, Result, first_inputs, quantize_blocks, run_block
from .layers import AQLMConfig, quantize_layer
from .uniform import gptq_quantize, rtn_quantize, uniform_bits_per_parameter

__all__ = ["PretrainedRow", "smollm2"]

LENGTH, CALIBRATION, TEST = 128, 40, 24  # tokens a sequence, sequences
#: Weights that share a grid at two bits: divides 576 and 1536, and costs no less than AQLM's codebooks.
GROUP = 96
TUNING_STEPS, TUNING_LR, TUNING_BATCH = 24, 3e-4, 4
LAYER = AQLMConfig(
    num_codebooks=2, nbits_per_codebook=8, kmeans_max_iter=12, adam_steps=25, lr=1e-3, max_rounds=3
)


@dataclass(frozen=True)
class PretrainedRow:
    """A method on the quantised blocks: bits a weight, perplexity a token, mean error over signal of a layer."""

    method: str
    bits: float
    perplexity: float
    error: float


def smollm2(blocks: int, seed: int) -> list[PretrainedRow]:
    """Original, RTN and GPTQ at 2 and 3 bits, AQLM at about 2.1 without and with block tuning.

    Parameters
    ----------
    blocks : int
        Last blocks of 30 to quantise, at least 1.
    seed : int

    Returns
    -------
    list of PretrainedRow
        Perplexity on text of which nothing served to calibrate.
    """
    model, tokenizer = load_smollm2()
    model.requires_grad_(False)
    ids = _token_rows(tokenizer)
    with torch.no_grad():
        hidden, args, kwargs = first_inputs(model, ids)
        layers = model.model.layers
        for block in layers[:-blocks]:
            hidden = run_block(BlockCall(block, args, kwargs), hidden)
    calibration, test = hidden[:CALIBRATION], hidden[CALIBRATION:]

    def evaluate(tail: nn.ModuleList) -> float:
        stream = test
        for block in tail:
            stream = run_block(BlockCall(block, args, kwargs), stream)
        return _perplexity(model, stream, ids[CALIBRATION:])

    def row(name: str, quantizer: Quantizer, steps: int = 0) -> PretrainedRow:
        tail, report = copy.deepcopy(layers[-blocks:]), ModelReport()
        quantize_blocks(
            *(tail, calibration, args, kwargs, quantizer, report),
            steps=steps,
            lr=TUNING_LR,
            batch_size=TUNING_BATCH,
            generator=generator(seed, "aqlm", "smollm2", "tuning"),
        )
        error = sum(one.mse / one.signal for one in report.layers) / len(report.layers)
        return PretrainedRow(name, report.bits_per_parameter, evaluate(tail.requires_grad_(False)), error)

    out = [PretrainedRow("original", 5.0, evaluate(layers[-blocks:]), 0.0)]
    for bits, group in ((2, GROUP), (3, None)):
        out.append(row(f"RTN, {bits} bits", _uniform(bits, group, corrected=False)))
        out.append(row(f"GPTQ, {bits} bits", _uniform(bits, group, corrected=True)))
    # both from one stream: the first block is quantised alike, and tuning is what differs
    plain, tuned = (generator(seed, "aqlm", "smollm2", "quantiser") for _ in range(2))
    out.append(row("AQLM, 2 x 8 bits", _additive(plain)))
    out.append(row("AQLM, block tuning", _additive(tuned), TUNING_STEPS))
    return out


def _uniform(bits: int, group: int | None, *, corrected: bool) -> Quantizer:
    def run(weight: Tensor, gram: Tensor) -> Result:
        rate = uniform_bits_per_parameter(weight.shape[1], bits, group_size=group)
        if corrected:
            return gptq_quantize(weight, gram, bits, group_size=group, act_order=True), rate
        return rtn_quantize(weight, bits, group_size=group), rate

    return run


def _additive(g: torch.Generator) -> Callable[[Tensor, Tensor], Result]:
    return lambda weight, gram: quantize_layer(weight, gram.to(weight.dtype), LAYER, generator=g)


def _token_rows(tokenizer: object) -> Tensor:
    """Calibration sequences from the first nine tenths of the text, test sequences from its last twentieth."""
    text = kjv_text()
    reach, start = len(text) * 9 // 10, len(text) * 19 // 20
    stride, rows = reach // CALIBRATION, []
    for low in [
        *range(0, CALIBRATION * stride, stride),
        *range(start, len(text), (len(text) - start) // TEST),
    ]:
        if len(rows) < CALIBRATION + TEST:
            found = tokenizer(text[low : low + 8 * LENGTH])["input_ids"]  # type: ignore[operator]
            rows.append(found[:LENGTH])
    return torch.tensor(rows)


def _perplexity(model: nn.Module, stream: Tensor, ids: Tensor) -> float:
    total = 0.0
    with torch.no_grad():
        for h, row in zip(stream, ids, strict=True):
            logits = model.lm_head(model.model.norm(h[:-1]))
            total += float(F.cross_entropy(logits, row[1:], reduction="sum"))
    return math.exp(total / (ids.shape[0] * (ids.shape[1] - 1)))
