r"""One small GPT: pre-norm blocks, rotary positions, tied embedding; the language chapters share it.

.. math::

    x_0 &= E[\mathrm{ids}], \\
    y &= x_\ell + O\,\mathrm{Attn}(\mathrm{LN}_1 x_\ell), \\
    x_{\ell+1} &= y + W_2\,\mathrm{gelu}(W_1\,\mathrm{LN}_2 y), \\
    \mathrm{logits} &= \mathrm{LN}_f(x_L)\,E^\top .

Queries and keys are turned by their position (`icml24.common.rotary`). Every matrix is an
``nn.Linear`` that is *called*, so a chapter may replace one (a low-rank update, a quantised
layer) or hang a hook on it. `Block.extend` runs new positions against stored keys and values;
`Block.forward` is the same block without a past.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common.rotary import apply_rotary, rotary_tables

__all__ = [
    "Block",
    "GPTConfig",
    "KeyValues",
    "RotaryGPT",
    "apply_rotary",
    "load_gpt",
    "rotary_tables",
    "save_gpt",
]

INIT_STD = 0.02  # as GPT-2


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a `RotaryGPT`.

    Parameters
    ----------
    vocab_size : int
        Number of token ids; the output has as many columns.
    n_layer, n_head, d_model : int
        Blocks, heads and width; the head width ``d_model / n_head`` must be an even integer.
    rope_base : float, default 10000.0
        Base of the rotary frequencies.
    ln_eps : float, default 1e-5
        Added to the variance in every layer norm.

    Raises
    ------
    ValueError
        A size below 1, `d_model` not divisible by `n_head`, an odd head width, a base or
        an epsilon that is not positive.
    """

    vocab_size: int
    n_layer: int = 2
    n_head: int = 4
    d_model: int = 96
    rope_base: float = 10000.0
    ln_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_layer", "n_head", "d_model"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.d_model % self.n_head:
            raise ValueError(f"d_model = {self.d_model} is not divisible by n_head = {self.n_head}")
        if self.head_dim % 2:
            raise ValueError(
                f"rotary positions turn pairs: the head width d_model / n_head must be even; got {self.head_dim}"
            )
        if not self.rope_base > 0 or not self.ln_eps > 0:
            raise ValueError(f"rope_base and ln_eps must be positive; got {self.rope_base}, {self.ln_eps}")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head


class KeyValues(NamedTuple):
    """Keys (already rotated) and values of past positions, each (B, n_head, length, head_dim)."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        """Number of stored positions."""
        return self.keys.shape[-2]

    def expand(self, batch: int) -> KeyValues:
        """The same past for `batch` rows, without copying (from one row)."""
        return KeyValues(*(part.expand(batch, -1, -1, -1) for part in self))

    def prefix(self, length: int) -> KeyValues:
        """The first `length` positions."""
        return KeyValues(*(part[:, :, :length] for part in self))


class Attention(nn.Module):
    """Causal self-attention with rotary positions; four square matrices with bias."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_head = config.n_head
        self.q, self.k, self.v, self.o = (_linear(d, d) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend within the rows of `x`, (B, T, D), each position to itself and the past."""
        return self._attend(*self._project(x, cos, sin), causal=True)

    def extend(self, x: Tensor, cos: Tensor, sin: Tensor, past: KeyValues) -> tuple[Tensor, KeyValues]:
        """Attend from the new positions in `x`, (B, T, D), to the past and among themselves."""
        q, k, v = self._project(x, cos, sin)
        if past.keys.shape[0] != x.shape[0]:
            past = past.expand(x.shape[0])
        known = KeyValues(torch.cat((past.keys, k), dim=-2), torch.cat((past.values, v), dim=-2))
        return self._attend(q, known.keys, known.values, causal=x.shape[1] > 1), known

    def _project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (f(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        new, known = q.shape[-2], k.shape[-2]
        if causal and new != known:  # is_causal aligns the first query with the first key; the past shifts it
            mask = torch.ones(new, known, dtype=torch.bool, device=q.device).tril(known - new)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.o(out.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """One pre-norm block: attention, then an MLP four times as wide, each added to the stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        d = config.d_model
        self.ln1, self.ln2 = (nn.LayerNorm(d, eps=config.ln_eps) for _ in range(2))
        self.attn = Attention(config)
        self.fc, self.proj = _linear(d, 4 * d), _linear(4 * d, d)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Residual stream before the block to the one after it, (B, T, D).

        `cos` and `sin` are the rotary rows of the positions of `h`, from `RotaryGPT.rotary`.
        """
        return self._mlp(h + self.attn(self.ln1(h), cos, sin))

    def extend(
        self, h: Tensor, cos: Tensor, sin: Tensor, past: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Run new positions only, given the keys and values of the past.

        Parameters
        ----------
        h : Tensor, shape (B, T, D)
            Stream of the new positions (``T = 1`` is one decoding step).
        cos, sin : Tensor, shape (T, head_dim // 2)
            Rotary rows of the *new* positions.
        past : KeyValues, optional
            What earlier calls returned; a past of one row serves every row of `h`.

        Returns
        -------
        (Tensor (B, T, D), KeyValues)
            Stream after the block, and the past with the new positions appended (the given
            past is left as it is).
        """
        if past is None:
            empty = h.new_empty(h.shape[0], self.attn.n_head, 0, h.shape[-1] // self.attn.n_head)
            past = KeyValues(empty, empty)
        out, known = self.attn.extend(self.ln1(h), cos, sin, past)
        return self._mlp(h + out), known

    def _mlp(self, h: Tensor) -> Tensor:
        return h + self.proj(F.gelu(self.fc(self.ln2(h)), approximate="tanh"))


class RotaryGPT(nn.Module):
    r"""GPT-2 with rotary positions instead of learned ones, and the output tied to the embedding.

    Parameters
    ----------
    config : GPTConfig
    generator : torch.Generator, optional
        Draws the weights: matrices :math:`N(0, 0.02^2)`; the two that write into the stream
        (attention output, second of the MLP) :math:`N(0, 0.02^2/(2L))`; biases 0.

    Attributes
    ----------
    config : GPTConfig
    wte : nn.Embedding
        Token embedding; its ``weight`` is the output matrix too.
    blocks : nn.ModuleList of Block

    Notes
    -----
    State-dict keys: ``wte.weight``; ``blocks.{i}.ln1|ln2``, ``blocks.{i}.attn.q|k|v|o``,
    ``blocks.{i}.fc|proj`` and ``ln_f``, each with ``.weight`` and ``.bias``.
    """

    def __init__(self, config: GPTConfig, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.utils.skip_init(nn.Embedding, config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.d_model, eps=config.ln_eps)
        self._tables: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        writing = INIT_STD / (2 * config.n_layer) ** 0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    std = writing if name.endswith(("attn.o.weight", "proj.weight")) else INIT_STD
                    parameter.normal_(0.0, std, generator=generator)
                elif ".ln" not in name and not name.startswith("ln"):
                    parameter.zero_()

    def rotary(self, length: int, *, like: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Rotary rows of positions ``start .. start + length - 1``, in dtype and device of `like`."""
        key, stop = (like.dtype, like.device), start + length
        if key not in self._tables or self._tables[key][0].shape[0] < stop:
            size = max(64, 1 << (stop - 1).bit_length())
            self._tables[key] = rotary_tables(
                size, self.config.head_dim, self.config.rope_base, dtype=like.dtype, device=like.device
            )
        cos, sin = self._tables[key]
        return cos[start:stop], sin[start:stop]

    def embed(self, ids: Tensor | None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Entry of the stream, (B, T, D): `inputs_embeds` if given, else the rows of `wte`.

        Raises
        ------
        TypeError
            `ids` is not an integer tensor.
        ValueError
            `ids` is not (B, T) with T >= 1, or `inputs_embeds` is not (B, T, D).
        IndexError
            An id outside the vocabulary.
        """
        if inputs_embeds is None:
            if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
                raise TypeError(f"ids must be a tensor of token ids (int64 or int32); got {_kind(ids)}")
            if ids.dim() != 2 or ids.shape[1] == 0:
                raise ValueError(
                    f"ids must be (batch, length) with at least one position; got {tuple(ids.shape)}"
                )
            return self.wte(ids)
        expected = "(batch, length, d_model)" if ids is None else str((*ids.shape, self.config.d_model))
        fits = inputs_embeds.dim() == 3 and inputs_embeds.shape[-1] == self.config.d_model
        if (
            not fits
            or inputs_embeds.shape[1] == 0
            or (ids is not None and ids.shape != inputs_embeds.shape[:2])
        ):
            raise ValueError(f"inputs_embeds must be {expected}; got {tuple(inputs_embeds.shape)}")
        return inputs_embeds

    def unembed(self, h: Tensor) -> Tensor:
        """Final norm and output matrix, (..., D) to (..., V)."""
        return F.linear(self.ln_f(h), self.wte.weight)

    def hidden_states(self, ids: Tensor | None, *, inputs_embeds: Tensor | None = None) -> list[Tensor]:
        """Residual stream at every depth.

        Parameters
        ----------
        ids : Tensor, shape (B, T), int64 or int32
            May be None when `inputs_embeds` is given.
        inputs_embeds : Tensor, shape (B, T, D), optional
            Enters the first block instead of the rows of `wte`.

        Returns
        -------
        list of Tensor, each (B, T, D)
            ``n_layer + 1`` of them: the embedding, then the output of each block, all *before*
            the final norm.

        Raises
        ------
        TypeError, ValueError, IndexError
            As `embed`.
        """
        states = [self.embed(ids, inputs_embeds)]
        cos, sin = self.rotary(states[0].shape[1], like=states[0])
        for block in self.blocks:
            states.append(block(states[-1], cos, sin))
        return states

    def forward(self, ids: Tensor | None, *, inputs_embeds: Tensor | None = None) -> Tensor:
        """Logits of the next token at every position, (B, T, V); inputs as `hidden_states`."""
        return self.unembed(self.hidden_states(ids, inputs_embeds=inputs_embeds)[-1])

    def extend(
        self, ids: Tensor, past: list[KeyValues] | None = None, *, inputs_embeds: Tensor | None = None
    ) -> tuple[Tensor, list[KeyValues]]:
        """Logits (B, T, V) of new tokens after a stored past, and the longer past (one a block).

        Appending tokens one by one gives the numbers of `forward` on the whole sequence.
        """
        h = self.embed(ids, inputs_embeds)
        cos, sin = self.rotary(h.shape[1], like=h, start=0 if past is None else past[0].length)
        grown = []
        for index, block in enumerate(self.blocks):
            earlier = None if past is None else past[index]
            h, known = block.extend(h, cos, sin, earlier)  # type: ignore[operator]
            grown.append(known)
        return self.unembed(h), grown

    @torch.no_grad()
    def generate(self, ids: Tensor, max_new_tokens: int, *, eos_id: int | None = None) -> Tensor:
        """Greedy continuation, (B, max_new_tokens) int64; after `eos_id` a row repeats it.

        Ties go to the lowest id. All rows must have the same length (there is no padding mask).
        """
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must not be negative; got {max_new_tokens}")
        new = torch.empty(ids.shape[0], max_new_tokens, dtype=torch.int64, device=ids.device)
        done = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
        past: list[KeyValues] | None = None
        for step in range(max_new_tokens):
            logits, past = self.extend(ids, past)
            token = logits[:, -1].argmax(-1)
            if eos_id is not None:
                token = token.masked_fill(done, eos_id)
                done |= token == eos_id
            new[:, step] = token
            ids = token[:, None]
        return new


def save_gpt(model: RotaryGPT, path: str | Path) -> Path:
    """Write weights and sizes into one safetensors file; returns its path.

    Tensors keep their dtype; the configuration travels as JSON in the file's metadata.
    """
    from safetensors.torch import save_file

    path = Path(path)
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, path, metadata={"config": json.dumps(asdict(model.config))})
    return path


def load_gpt(path: str | Path, *, dtype: torch.dtype | None = None) -> RotaryGPT:
    """Read a file of `save_gpt`; nothing in it is executed.

    Parameters
    ----------
    path : str or Path
    dtype : torch.dtype, optional
        Converts the weights (for instance float16 on disk, float32 in use).

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        The file carries no `GPTConfig`.
    """
    from safetensors import safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}; write one with save_gpt")
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if "config" not in metadata:
            raise ValueError(f"{path.name} carries no GPT configuration; expected a file of save_gpt")
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    model = RotaryGPT(GPTConfig(**json.loads(metadata["config"])), generator=torch.Generator())
    model.load_state_dict(state)
    return model.to(dtype or state["wte.weight"].dtype)


def _linear(n_in: int, n_out: int) -> nn.Linear:
    """Linear layer whose weights are drawn later (the usual constructor draws from the global stream)."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
    return layer


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
