r"""A small dual encoder: patches and words into one space.

Images are cut into patches and read by an MLP; a context (the mean of all patches, or one
transformer block) lets patches see each other; words come from a table, with a transformer block
on request. No absolute positions in the image by default: the encoder is equivariant under
permutations of patches, for a reason that the chapter derives (eq-sparc-shortcut).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icml24.common.random import generator as stream

from ._checks import shape
from .data import Vocabulary

__all__ = ["DualEncoder", "EncoderConfig"]

ENCODERS = ("context", "transformer")
POOLINGS = ("mean", "dense")
TEXTS = ("words", "transformer")


@dataclass(frozen=True)
class EncoderConfig:
    """Architecture of `DualEncoder`.

    Attributes
    ----------
    encoder : {"context", "transformer"}
        How patches see each other: through their mean, or by one pre-norm block.
    pooling : {"mean", "dense"}
        Pooled image: mean of the patch embeddings (the paper's listing), or a dense layer between
        mean and adaptor (its main text).
    text : {"words", "transformer"}
        A table of words, or the table followed by one block with learned positions.
    patch : int
        Pixels along one side of a patch.
    hidden, width, dim : int
        Hidden units of the patch MLP, width of the towers, width of the shared space.
    heads : int
        Attention heads of a block.
    image_positions : int
        Number of patches with a learned absolute position; 0 for none.
    max_length : int
        Longest caption of the text transformer.
    """

    encoder: str = "context"
    pooling: str = "mean"
    text: str = "words"
    patch: int = 8
    hidden: int = 128
    width: int = 64
    dim: int = 64
    heads: int = 4
    image_positions: int = 0
    max_length: int = 16

    def __post_init__(self) -> None:
        for name, allowed in (("encoder", ENCODERS), ("pooling", POOLINGS), ("text", TEXTS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; expected one of {allowed}")
        if min(self.patch, self.hidden, self.width, self.dim, self.heads, self.max_length) < 1:
            raise ValueError("all sizes must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} does not divide into {self.heads} heads")


class DualEncoder(nn.Module):
    """Two towers into one space, and one learned temperature.

    Parameters
    ----------
    config : EncoderConfig, optional
    generator : torch.Generator, optional
        Source of the initial weights; default a fixed stream.
    **changes
        Fields of `EncoderConfig` to replace, as in ``DualEncoder(pooling="dense")``.

    Raises
    ------
    TypeError, ValueError
        A field that does not exist, or a value it does not know.
    """

    def __init__(
        self,
        config: EncoderConfig | None = None,
        *,
        generator: torch.Generator | None = None,
        **changes: Any,
    ) -> None:
        super().__init__()
        config = EncoderConfig() if config is None else config
        if not isinstance(config, EncoderConfig):
            raise TypeError(f"config must be an EncoderConfig; got {type(config).__name__}")
        self.config = config = replace(config, **changes)
        with torch.random.fork_rng(devices=[]):  # layers draw weights from the global state when made
            self._build(config)
        _initialise(self, stream(0, "sparc", "weights") if generator is None else generator)

    def _build(self, config: EncoderConfig) -> None:
        w, d = config.width, config.dim
        self.patch = nn.Sequential(
            nn.Linear(3 * config.patch**2, config.hidden), nn.GELU(), nn.Linear(config.hidden, w)
        )
        self.context = Block(w, config.heads) if config.encoder == "transformer" else MeanContext(w)
        self.image_norm, self.text_norm = nn.LayerNorm(w), nn.LayerNorm(w)
        self.dense = nn.Sequential(nn.Linear(w, w), nn.GELU()) if config.pooling == "dense" else None
        self.image_adaptor, self.text_adaptor = nn.Linear(w, d, bias=False), nn.Linear(w, d, bias=False)
        self.words = nn.Embedding(len(Vocabulary.WORDS), w)
        self.reader = Block(w, config.heads) if config.text == "transformer" else None
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.image_places = _places(config.image_positions, w)
        self.text_places = _places(config.max_length if self.reader else 0, w)

    @property
    def inverse_temperature(self) -> Tensor:
        """One over the temperature: learned as a logarithm, at most 100 (as CLIP does)."""
        return self.log_scale.exp().clamp(max=100.0)

    def encode_image(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled image [B, d] and patch embeddings [B, P, d], row-major, of uint8 images [B, H, W, 3]."""
        x = self.patch(_cut(images, self.config.patch, self.log_scale.dtype))
        if self.image_places is not None:
            if x.shape[1] > len(self.image_places):
                raise ValueError(f"{x.shape[1]} patches for {len(self.image_places)} learned positions")
            x = x + self.image_places[: x.shape[1]]
        x = self.image_norm(self.context(x))
        patches = self.image_adaptor(x)
        if self.dense is None:
            return patches.mean(1), patches
        return self.image_adaptor(self.dense(x.mean(1))), patches

    def encode_text(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled caption [B, d] (mean of its real words) and word embeddings [B, L, d]."""
        if tokens.ndim != 2 or mask.shape != tokens.shape:
            raise ValueError(
                f"tokens and mask need one shape (batch, length); got {shape(tokens)} and {shape(mask)}"
            )
        x = self.words(tokens)
        if self.reader is not None and self.text_places is not None:
            if x.shape[1] > len(self.text_places):
                raise ValueError(f"captions of {x.shape[1]} words exceed max_length {len(self.text_places)}")
            x = self.reader(x + self.text_places[: x.shape[1]], mask)
        words = self.text_adaptor(self.text_norm(x))
        total = words.masked_fill(~mask[..., None], 0.0).sum(1)
        return total / mask.sum(1, keepdim=True).clamp_min(1), words

    def forward(self, images: Tensor, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Both towers.

        Parameters
        ----------
        images : Tensor of uint8 (or floating, 0 to 255), shape (B, H, W, 3)
        tokens : Tensor of int64, shape (B, L)
        mask : Tensor of bool, shape (B, L)

        Returns
        -------
        dict
            "image" and "text" [B, d], "patches" [B, P, d], "tokens" [B, L, d],
            "inverse_temperature" (0-d).
        """
        image, patches = self.encode_image(images)
        text, words = self.encode_text(tokens, mask)
        return {
            "image": image,
            "patches": patches,
            "text": text,
            "tokens": words,
            "inverse_temperature": self.inverse_temperature,
        }


class MeanContext(nn.Module):
    """Each patch plus a function of the mean patch: x + U mean GELU(W LayerNorm x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.look, self.tell = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, P, w] to [B, P, w]."""
        return x + self.tell(F.gelu(self.look(self.norm(x))).mean(1, keepdim=True))


class Block(nn.Module):
    """One pre-norm transformer block with an optional mask of real places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, n, w] to [B, n, w]; places where `mask` is false are seen by nobody."""
        batch, n, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = None if mask is None else mask[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, n, width))
        return x + self.mlp(self.norm_mlp(x))


def _places(count: int, width: int) -> nn.Parameter | None:
    return nn.Parameter(torch.empty(count, width)) if count else None


def _initialise(model: DualEncoder, g: torch.Generator) -> None:
    """Torch's own uniform fan-in rule for linear layers, drawn from `g`; tables get standard deviation 0.1."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                module.weight.uniform_(-bound, bound, generator=g)
                if module.bias is not None:
                    module.bias.uniform_(-bound, bound, generator=g)
        for table in (model.words.weight, model.image_places, model.text_places):
            if table is not None:
                table.normal_(0.0, 0.1, generator=g)


def _cut(images: Tensor, patch: int, dtype: torch.dtype) -> Tensor:
    """Images [B, H, W, 3] to standardised patches [B, P, 3 patch^2]."""
    if images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(f"images must have shape (batch, height, width, 3); got {shape(images)}")
    batch, height, width, _ = images.shape
    if height % patch or width % patch or not batch or not height or not width:
        raise ValueError(f"images of {height} x {width} do not divide into patches of {patch} x {patch}")
    x = (
        images.view(batch, height // patch, patch, width // patch, patch, 3)
        .transpose(2, 3)
        .reshape(batch, -1, 3 * patch**2)
    )
    return (x.to(dtype) / 255 - 0.35) / 0.27
