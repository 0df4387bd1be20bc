r"""A whole model, block by block: the paper's algorithm 1.

A block sees inputs that have passed through the blocks quantised before it. Its targets are the
outputs of the *original* block on those inputs, so it may repair what the earlier ones broke no
further than its own part. Gram matrices of all its linear layers come from one pass of the
original block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common import checks

from . import _validate
from .codebooks import check_betas
from .evaluation import batches, descend, evaluating, token_rows, trainable
from .formats import QuantizedWeight
from .layers import AQLMConfig, quantize_layer
from .linear import QuantizedLinear
from .objective import GramAccumulator, layer_mse
from .uniform import gptq_quantize, rtn_quantize, uniform_bits_per_parameter

__all__ = ["LayerReport", "ModelReport", "finetune_block", "quantize_model"]

METHODS = ("aqlm", "gptq", "rtn")
TUNING_BATCH = 16  # sequences a step of block tuning
CHUNK = 16  # sequences a pass outside of tuning
#: What a block's arguments must not carry from call to call: the stream, and a cache that would grow.
CALL_STATE = ("hidden_states", "cache", "past_key_values", "use_cache")

#: A layer's additive code, or its weight on a uniform grid and the bits that costs.
Result = QuantizedWeight | tuple[Tensor, float]
#: From the weight and the Gram matrix of a layer to its quantised form.
Quantizer = Callable[[Tensor, Tensor], Result]
#: Which parameters block tuning trains: called with the parameter's name.
Chooser = Callable[[str], bool]


@dataclass(frozen=True)
class LayerReport:
    """One quantised matrix: its size, bits a weight, and error per output unit beside the signal's energy."""

    name: str
    parameters: int
    bits: float
    mse: float
    signal: float
    history: tuple[float, ...] = ()


@dataclass
class ModelReport:
    """What `quantize_model` did.

    Attributes
    ----------
    layers : list of LayerReport
        In the order of the work.
    tuning : list of list of float
        Losses of the tuning of each block.
    """

    layers: list[LayerReport] = field(default_factory=list)
    tuning: list[list[float]] = field(default_factory=list)

    @property
    def bits_per_parameter(self) -> float:
        """Mean over the quantised weights, codebooks and scales included."""
        return sum(one.bits * one.parameters for one in self.layers) / self.parameters

    @property
    def parameters(self) -> int:
        """Number of quantised weights."""
        return sum(one.parameters for one in self.layers)

    @property
    def bytes(self) -> float:
        """Size of the quantised weights."""
        return self.bits_per_parameter * self.parameters / 8


class BlockCall(nn.Module):
    """A block together with the further arguments its model calls it with."""

    def __init__(
        self, block: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.block, self.args, self.kwargs = block, args, kwargs or {}

    def forward(self, hidden: Tensor) -> Tensor:
        """The block's output for a stream (batch, length, width)."""
        out = self.block(hidden, *self.args, **self.kwargs)
        return out if isinstance(out, Tensor) else out[0]


class _Reached(Exception):
    """The first block was called."""


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """The blocks of a `RotaryGPT` (``blocks``) or of a transformers model (``model.layers``).

    Raises
    ------
    TypeError
        Neither is there.
    """
    for path in ("blocks", "model.layers", "transformer.h"):
        place: Any = model
        for name in path.split("."):
            place = getattr(place, name, None)
        if isinstance(place, nn.ModuleList) and len(place):
            return place
    raise TypeError(
        f"no list of blocks in {type(model).__name__}; expected model.blocks or model.model.layers"
    )


def first_inputs(model: nn.Module, tokens: Tensor) -> tuple[Tensor, tuple[Any, ...], dict[str, Any]]:
    """What the first block is called with: the stream for all tokens, and the other arguments for one sequence."""
    caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def catch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        caught.append((args, kwargs))
        raise _Reached

    streams = []
    handle = find_blocks(model)[0].register_forward_pre_hook(catch, with_kwargs=True)
    try:
        with evaluating(model):
            for ids in (tokens[:1], *tokens.split(CHUNK)):
                try:
                    model(ids)
                except _Reached:
                    streams.append(caught[-1][0][0] if caught[-1][0] else caught[-1][1]["hidden_states"])
    finally:
        handle.remove()
    args, kwargs = caught[0]
    others = {k: v for k, v in kwargs.items() if k not in CALL_STATE}
    return torch.cat(streams[1:]), args[1:], others


def run_block(call: nn.Module, hidden: Tensor) -> Tensor:
    """A block's outputs for all sequences, in chunks, without gradients."""
    with evaluating(call):
        return torch.cat([call(part) for part in hidden.split(CHUNK)])


def finetune_block(
    block: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    steps: int,
    lr: float,
    batch_size: int,
    betas: tuple[float, float] = (0.9, 0.95),
    generator: torch.Generator | None = None,
) -> list[float]:
    """Adam on a block's mean squared error, with its codes fixed.

    Parameters
    ----------
    block : nn.Module
        Called with a batch of inputs alone. Trained in place: its parameters that require
        gradients (codebooks, scales, norms, biases).
    inputs, targets : Tensor, shapes (sequences, ...)
        Inputs from the quantised model so far, targets from the original block.
    steps : int
    lr : float
    batch_size : int
        Sequences a step, drawn without replacement within a pass.
    betas : (float, float), default (0.9, 0.95)
    generator : torch.Generator, optional

    Returns
    -------
    list of float, length `steps`
        The loss before each step.

    Raises
    ------
    ValueError
        ``steps`` or ``batch_size`` below 1, ``lr <= 0``, inputs and targets of different length,
        nothing to train.
    FloatingPointError
        The loss is not finite.

    Notes
    -----
    Source: eq-aqlm-block; the last step of a block in the paper's algorithm 1.
    """
    checks.whole("steps", steps, 1)
    checks.whole("batch_size", batch_size, 1)
    checks.positive("lr", lr)
    check_betas(betas)
    _validate.floating("inputs", inputs)
    _validate.floating("targets", targets)
    if len(inputs) != len(targets):
        raise ValueError(f"inputs and targets differ in length: {len(inputs)} and {len(targets)}")
    adam = torch.optim.Adam(trainable(block), lr=lr, betas=betas)
    losses: list[float] = []
    for pick in batches(len(inputs), batch_size, steps, generator):
        out = block(inputs[pick])
        loss = F.mse_loss(out if isinstance(out, Tensor) else out[0], targets[pick])
        descend(adam, loss, losses)
    return losses


def quantize_model(
    model: nn.Module,
    calibration_tokens: Tensor,
    config: AQLMConfig,
    *,
    finetune_steps: int = 0,
    finetune_lr: float = 1e-3,
    method: str = "aqlm",
    generator: torch.Generator | None = None,
) -> ModelReport:
    """Quantise every linear layer inside a model's blocks, in place.

    Parameters
    ----------
    model : nn.Module
        A `RotaryGPT` or a transformers causal language model. Embedding, output and norms stay.
    calibration_tokens : Tensor, shape (sequences, length), integer
    config : AQLMConfig
        For the uniform methods only ``nbits_per_codebook`` counts: the bits of the grid, one grid a row.
    finetune_steps : int, default 0
        Steps of `finetune_block` after each block.
    finetune_lr : float, default 1e-3
    method : {"aqlm", "gptq", "rtn"}
        GPTQ runs in falling order of the Gram diagonal.
    generator : torch.Generator, optional

    Returns
    -------
    ModelReport
        Its layers, ``bits_per_parameter``, ``bytes`` and tuning losses.

    Raises
    ------
    TypeError
        No list of blocks in `model`; calibration tokens that are not integers.
    ValueError
        Unknown method, negative `finetune_steps`, group sizes that do not divide a layer, more words
        than a layer has groups; the model is then as it was.

    Notes
    -----
    Source: the paper's algorithm 1. Afterwards codebooks, scales and whatever was not quantised
    require gradients, ready for `distill`; weights on a uniform grid do not.
    """
    rows = token_rows("calibration_tokens", calibration_tokens)
    checks.whole("finetune_steps", finetune_steps, 0)
    quantizer = quantizer_of(method, config, generator)
    blocks = find_blocks(model)
    if method == "aqlm":
        _fits(blocks, config)
    prefix = next(name for name, module in model.named_modules() if module is blocks)
    hidden, args, kwargs = first_inputs(model, rows)
    report = ModelReport()
    quantize_blocks(
        *(blocks, hidden, args, kwargs, quantizer, report),
        steps=finetune_steps,
        lr=finetune_lr,
        prefix=prefix,
        generator=generator,
    )
    return report


def _fits(blocks: nn.ModuleList, config: AQLMConfig) -> None:
    """Every layer can be cut into groups, and has enough of them: said before the first is replaced."""
    g_in, g_out, words = config.in_group_size, config.out_group_size, 2**config.nbits_per_codebook
    for name, module in blocks.named_modules():
        if isinstance(module, nn.Linear):
            _validate.divides("in_group_size", g_in, module.in_features, f"the inputs of {name}")
            _validate.divides("out_group_size", g_out, module.out_features, f"the outputs of {name}")
            groups = module.weight.numel() // (g_in * g_out)
            if words > groups:
                raise ValueError(f"{words} words exceed the {groups} groups of {name}; use fewer bits a code")


def quantizer_of(method: str, config: AQLMConfig, generator: torch.Generator | None) -> Quantizer:
    """The method as a function of one layer."""
    bits = config.nbits_per_codebook

    def additive(weight: Tensor, gram: Tensor) -> Result:
        return quantize_layer(weight, gram.to(weight.dtype), config, generator=generator)

    def corrected(weight: Tensor, gram: Tensor) -> Result:
        dense = gptq_quantize(weight, gram, bits, act_order=True)
        return dense, uniform_bits_per_parameter(weight.shape[1], bits)

    def nearest(weight: Tensor, gram: Tensor) -> Result:
        return rtn_quantize(weight, bits), uniform_bits_per_parameter(weight.shape[1], bits)

    known: dict[str, Quantizer] = {"aqlm": additive, "gptq": corrected, "rtn": nearest}
    if method not in known:
        raise ValueError(f"method must be one of {METHODS}; got {method!r}")
    return known[method]


def quantize_blocks(
    blocks: Sequence[nn.Module],
    hidden: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    quantizer: Quantizer,
    report: ModelReport,
    *,
    steps: int = 0,
    lr: float = 1e-3,
    batch_size: int = TUNING_BATCH,
    chosen: Chooser = lambda name: True,
    prefix: str = "blocks",
    generator: torch.Generator | None = None,
    first: tuple[dict[str, Tensor], Tensor] | None = None,
) -> Tensor:
    """Algorithm 1 on a run of blocks, from the stream that enters the first; returns the stream that leaves.

    `first` is what `observe` says of the first block, where it is known already: all methods meet it alike.
    """
    for index, block in enumerate(blocks):
        call = BlockCall(block, args, kwargs)
        grams, targets = observe(call, hidden) if index or first is None else first
        for name, gram in grams.items():
            linear = block.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            result = quantizer(linear.weight.detach(), gram)
            report.layers.append(_replace(block, name, linear, result, gram, f"{prefix}.{index}.{name}"))
        for name, parameter in block.named_parameters():
            frozen = name.endswith(".weight") and name.removesuffix(".weight") in grams
            parameter.requires_grad_(not frozen)
        if steps:
            held = [p for name, p in block.named_parameters() if p.requires_grad and not chosen(name)]
            for parameter in held:
                parameter.requires_grad_(False)
            report.tuning.append(
                finetune_block(
                    *(call, hidden, targets), steps=steps, lr=lr, batch_size=batch_size, generator=generator
                )
            )
            for parameter in held:
                parameter.requires_grad_(True)
        hidden = run_block(call, hidden)
    return hidden


def observe(call: BlockCall, hidden: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Gram matrix of every linear layer of the original block, and the block's outputs."""
    linear = {n: m for n, m in call.block.named_modules() if isinstance(m, nn.Linear)}
    grams = {name: GramAccumulator(module.in_features) for name, module in linear.items()}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: grams[name].update(inputs[0])

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in linear.items()]
    try:
        targets = run_block(call, hidden)
    finally:
        for handle in handles:
            handle.remove()
    return {name: gram.value for name, gram in grams.items()}, targets


def _replace(
    block: nn.Module, name: str, linear: nn.Linear, result: Result, gram: Tensor, full_name: str
) -> LayerReport:
    """Put the quantised form in a layer's place; what it cost and what it lost."""
    weight, history = linear.weight.detach().double(), ()
    if isinstance(result, QuantizedWeight):
        dense, bits, history = result.dequantize(), result.bits_per_parameter, tuple(result.history)
        parent, _, leaf = name.rpartition(".")
        setattr(block.get_submodule(parent), leaf, QuantizedLinear(result, linear.bias))
    else:
        dense, bits = result
        linear.weight = nn.Parameter(dense, requires_grad=False)
    mse, signal = (
        float(layer_mse(weight, other, gram)) for other in (dense.double(), torch.zeros_like(weight))
    )
    return LayerReport(full_name, weight.numel(), bits, mse, signal, history)
