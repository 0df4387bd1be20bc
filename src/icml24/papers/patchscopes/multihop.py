r"""Two-hop questions: the state that encodes the first answer takes the place of the second question's subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .cache import PrefixCache
from .data import TwoHop, two_hop_items
from .experiments import Config
from .facts import CONTEXTS
from .models import ResidualLM
from .patching import states_at
from .readouts import strict_hit
from .sweeps import ROWS, continuations, encode

__all__ = ["MultiHop", "multi_hop"]

SUFFIX = " is"
FIRST_TOKENS, ANSWER_TOKENS, THINKING_TOKENS = 8, 20, 40


@dataclass(frozen=True)
class MultiHop:
    """Results on the items of which the model answers each hop alone.

    Attributes
    ----------
    items : tuple of TwoHop
        The kept ones, n.
    total : int
        Items asked.
    layers : tuple of int
        Source and target layers of the grid, G.
    hits : BoolTensor (G, G, n)
        Source layer, target layer, item: the last state of the first hop's text.
    control : BoolTensor (G, G, n)
        The same with the state of the first answer itself, the last of a sentence that ends in it.
    vanilla, step_by_step : BoolTensor (n,)
        The whole question asked at once, plainly and with "Let's think step by step".
    """

    items: tuple[TwoHop, ...]
    total: int
    layers: tuple[int, ...]
    hits: Tensor
    control: Tensor
    vanilla: Tensor
    step_by_step: Tensor

    def held_out_pair(self) -> tuple[tuple[int, int], float, float]:
        """Best pair on every second item; its accuracy on the others; vanilla accuracy on those."""
        flat = self.hits.flatten(0, 1).double()
        best = int(flat[:, 0::2].mean(1).argmax())
        pair = (self.layers[best // len(self.layers)], self.layers[best % len(self.layers)])
        return pair, float(flat[best, 1::2].mean()), float(self.vanilla[1::2].double().mean())


def multi_hop(model: ResidualLM, tokenizer: Any, config: Config) -> MultiHop | int:
    """Patch the last state of the first hop into the placeholder of the second, over a grid of layers.

    Returns
    -------
    MultiHop, or int
        The number of items asked when none survives the filter.
    """
    asked = two_hop_items()
    items = _known(model, tokenizer, asked)
    if not items:
        return len(asked)
    composed = [item.composed for item in items]
    vanilla = continuations(model, tokenizer, [text + SUFFIX for text in composed], ANSWER_TOKENS)
    thinking = continuations(
        model, tokenizer, [f"{text} is what? Let's think step by step." for text in composed], THINKING_TOKENS
    )
    return MultiHop(
        tuple(items),
        len(asked),
        config.hop_layers,
        _grid(model, tokenizer, items, [item.first for item in items], config),
        _grid(model, tokenizer, items, [CONTEXTS[1].format(item.middle) for item in items], config),
        _hits(vanilla, items),
        _hits(thinking, items),
    )


def _known(model: ResidualLM, tokenizer: Any, asked: Sequence[TwoHop]) -> list[TwoHop]:
    first = continuations(model, tokenizer, [item.first for item in asked], FIRST_TOKENS)
    singles = [item.second.removesuffix("x") + item.middle + SUFFIX for item in asked]
    second = continuations(model, tokenizer, singles, ANSWER_TOKENS)
    return [
        item
        for item, one, two in zip(asked, first, second, strict=True)
        if strict_hit(one, item.middle) and strict_hit(two, item.answer)
    ]


def _grid(
    model: ResidualLM, tokenizer: Any, items: Sequence[TwoHop], texts_read: Sequence[str], config: Config
) -> Tensor:
    sources = [encode(tokenizer, text) for text in texts_read]
    states = states_at(model, sources, torch.tensor([len(ids) - 1 for ids in sources]))
    layers = list(config.hop_layers)
    hits = torch.zeros(len(layers), len(layers), len(items), dtype=torch.bool)
    forced = encode(tokenizer, SUFFIX, special=False)
    for prompt in sorted({item.second for item in items}):
        rows = [j for j, item in enumerate(items) if item.second == prompt]
        vectors = states[rows][:, layers].transpose(0, 1).flatten(0, 1)
        cache = PrefixCache(model, encode(tokenizer, prompt))
        for t, target in enumerate(layers):
            texts: list[str] = []
            for part in vectors.split(ROWS):
                new = cache.generate(
                    part,
                    target_layer=target,
                    max_new_tokens=config.hop_tokens,
                    forced=forced,
                    eos_id=tokenizer.eos_token_id,
                )
                texts += [tokenizer.decode(row) for row in new]
            wanted = [items[j] for j in rows] * len(layers)
            hits[:, t, rows] = _hits(texts, wanted).unflatten(0, (len(layers), len(rows)))
    return hits


def _hits(texts: Sequence[str], items: Sequence[TwoHop]) -> Tensor:
    return torch.tensor([strict_hit(text, item.answer) for text, item in zip(texts, items, strict=True)])
