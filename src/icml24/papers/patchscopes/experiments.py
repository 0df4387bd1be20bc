r"""What the chapter runs on SmolLM2: two instances of one configuration, and functions to results.

Nothing here plots or prints; every random stream is named by the seed and its purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.common.profiles import choose
from icml24.common.random import generator, numpy_generator
from icml24.common.statistics import bootstrap_interval

from .affine import AffineMap, fit_affine, r_squared, relative_ridge
from .cache import PrefixCache
from .data import DESCRIPTION_PROMPT, IDENTITY_PROMPT, capitals, random_positions, snippets
from .facts import ENTITIES, Entity
from .models import ResidualLM, RotaryGPTLM, residual_stream
from .patching import PatchSpec, patchscope, states_at
from .readouts import attribute_hit, logit_lens, rouge_l, strict_hit
from .sweeps import ROWS, attribute_sweep, encode, next_token_sweep

__all__ = [
    "FULL",
    "QUICK",
    "Config",
    "Descriptions",
    "NextToken",
    "capital_sweep",
    "configure",
    "describe",
    "describe_entities",
    "fit_maps",
    "identities",
    "next_token",
]

METHODS = ("logit_lens", "affine", "patchscope")
#: Layers on which the bar of the token-identity Patchscope is judged.
BAR_LAYERS = (16, 20, 24, 28)


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    train_snippets, validation_snippets : int
        Texts to fit affine maps on, and to decode next tokens in (for each seed of positions).
    position_seeds : int
        Independent draws of validation snippets and positions.
    layers : tuple of int
        Layers of the next-token comparison.
    capital_sources, capital_targets : tuple of int
    capital_countries, capital_tokens : int
        Layers, most countries, and tokens of the capital-city sweeps.
    entity_layers : tuple of int
    entity_tokens : int
        Layers (source = target) and tokens of the descriptions.
    relation_sources, relation_targets : tuple of int
    relation_tokens, relation_subjects, relation_prompts, probe_folds : int
        Attribute extraction: layers, tokens, most subjects a relation, most prompts a subject.
    hop_layers : tuple of int
    hop_tokens : int
        Grid of the two-hop questions.
    gpt_steps : int
        Training steps of the two small models of the cross-model comparison.
    """

    seed: int = 0
    train_snippets: int = 100
    validation_snippets: int = 104
    position_seeds: int = 1
    layers: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 30)
    capital_sources: tuple[int, ...] = (2, 5, 8, 11, 14, 20, 29)
    capital_targets: tuple[int, ...] = (1, 5, 9)
    capital_countries: int = 24
    capital_tokens: int = 4
    entity_layers: tuple[int, ...] = (1, 9, 12, 15)
    entity_tokens: int = 7
    relation_sources: tuple[int, ...] = (2, 5, 8, 11, 14, 20, 26)
    relation_targets: tuple[int, ...] = (1, 5, 9)
    relation_tokens: int = 5
    relation_subjects: int = 30
    relation_prompts: int = 3
    probe_folds: int = 3
    hop_layers: tuple[int, ...] = (3, 6, 9, 12, 18, 24)
    hop_tokens: int = 8
    gpt_steps: int = 300


QUICK = Config()
FULL = Config(
    train_snippets=300,
    validation_snippets=104,
    position_seeds=3,
    layers=tuple(range(31)),
    capital_sources=(2, 5, 8, 11, 14, 17, 20, 23, 26, 29),
    capital_targets=(1, 5, 9, 13),
    capital_countries=60,
    capital_tokens=5,
    entity_layers=(1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 14, 16),
    entity_tokens=8,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


def identities(seed: int) -> dict[str, float]:
    """Largest deviations from three identities, on a random `RotaryGPT` in float64.

    Keys: ``no-op``, ``logit lens``, ``prefix cache``; each a largest absolute difference of logits
    over all layers (and positions, where they matter).
    """
    g = generator(seed, "patchscopes", "identities")
    model = (
        RotaryGPT(GPTConfig(50, n_layer=4, n_head=2, d_model=32), generator=g).double().requires_grad_(False)
    )
    lm, L = RotaryGPTLM(model), 4
    source, target = torch.randint(50, (2, 9), generator=g)
    plain, stream = model(source[None]), residual_stream(lm, source)
    cache = PrefixCache(lm, target)
    gaps: dict[str, list[Tensor]] = {"no-op": [], "logit lens": [], "prefix cache": []}
    for layer in range(L + 1):
        for i in range(9):
            same = patchscope(lm, source, lm, source, PatchSpec(layer, layer, i, i))
            gaps["no-op"].append((same - plain).abs().max())
            top = patchscope(lm, source, lm, source, PatchSpec(layer, L, i, i))[:, i]
            gaps["logit lens"].append((top - logit_lens(lm, stream[layer, :, i])).abs().max())
        whole = patchscope(lm, source, lm, target, PatchSpec(layer, layer))[:, -1]
        fast = cache.logits(stream[layer][:, -1], target_layer=layer)
        gaps["prefix cache"].append((fast - whole).abs().max())
    return {name: float(torch.stack(values).max()) for name, values in gaps.items()}


# --- next tokens ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maps:
    """Affine maps to layer L, and the share of variance they explain on their own and on other text.

    Attributes
    ----------
    maps : dict of layer to AffineMap
    vectors : int
        States each map was fitted on.
    train_r2, validation_r2 : dict of layer to float
    """

    maps: dict[int, AffineMap]
    vectors: int
    train_r2: dict[int, float] = field(default_factory=dict)
    validation_r2: dict[int, float] = field(default_factory=dict)


def fit_maps(model: ResidualLM, tokenizer: Any, config: Config) -> Maps:
    """Ridge maps from each of the configuration's layers to layer L, on all positions but the first.

    Position 0 is left out: its state is an attention sink, a hundred times longer than any other,
    and would decide the least-squares fit alone. A tenth of the snippets is kept for validation R2.
    """
    texts = snippets(config.train_snippets, config.seed, "train")
    split = len(texts) - max(1, len(texts) // 10)
    X = _all_states(model, tokenizer, texts[:split], config.layers)
    V = _all_states(model, tokenizer, texts[split:], config.layers)
    last = model.n_layers
    out = Maps({}, len(X[last]))
    for layer in config.layers:
        mapping = fit_affine(X[layer], X[last], ridge=relative_ridge(X[layer]))
        out.maps[layer] = mapping
        out.train_r2[layer] = r_squared(mapping, X[layer], X[last])
        out.validation_r2[layer] = r_squared(mapping, V[layer], V[last])
    return out


def _all_states(
    model: ResidualLM, tokenizer: Any, texts: Sequence[str], layers: Sequence[int]
) -> dict[int, Tensor]:
    parts: dict[int, list[Tensor]] = {layer: [] for layer in {*layers, model.n_layers}}
    # texts of similar length together: less padding; least squares does not care for the order
    encoded = sorted((encode(tokenizer, text) for text in texts), key=len)
    for start in range(0, len(encoded), 32):
        batch = encoded[start : start + 32]
        ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        real = torch.arange(ids.shape[1])[None] < torch.tensor([len(row) for row in batch])[:, None]
        real[:, 0] = False
        with torch.no_grad():
            h = model.embed(ids)
            for layer in range(model.n_layers + 1):
                if layer:
                    h = model.block(layer - 1, h)
                if layer in parts:
                    parts[layer].append(h[real])
    return {layer: torch.cat(pieces) for layer, pieces in parts.items()}


@dataclass(frozen=True)
class NextToken:
    """Precision and surprisal by method, layer and prompt.

    Attributes
    ----------
    layers : tuple of int
    precision, surprisal : dict of method to Tensor (K, n)
    floor : Tensor (n,)
        Smallest surprisal of each prompt.
    maps : Maps
    """

    layers: tuple[int, ...]
    precision: dict[str, Tensor]
    surprisal: dict[str, Tensor]
    floor: Tensor
    maps: Maps

    def rows(self, layers: Sequence[int]) -> list[int]:
        """Indices of those of `layers` that were measured."""
        return [k for k, layer in enumerate(self.layers) if layer in layers]

    def mean(self, method: str, layers: Sequence[int]) -> float:
        """Mean precision over the given layers and all prompts."""
        return float(self.precision[method][self.rows(layers)].mean())

    def gap(self, method: str, other: str, layers: Sequence[int]) -> tuple[float, float, float]:
        """Mean precision of `method` minus `other`, with a 95 % bootstrap interval over prompts."""
        rows = self.rows(layers)
        paired = (self.precision[method][rows] - self.precision[other][rows]).mean(0).double().numpy()
        low, high = bootstrap_interval(paired, generator=numpy_generator(0, "patchscopes", method, other))
        return float(paired.mean()), low, high

    def crossing(self) -> int | None:
        """First layer from which the Patchscope's precision stays above the affine map's (below layer L)."""
        below = len(self.layers) - 1
        ahead = (self.precision["patchscope"] - self.precision["affine"]).mean(1)[:below] > 0
        if below == 0 or not ahead[-1]:
            return None
        behind = (~ahead).nonzero()
        return self.layers[int(behind[-1]) + 1 if len(behind) else 0]

    def band(self, quantity: str, method: str) -> tuple[Tensor, Tensor, Tensor]:
        """Mean over prompts at each layer, and the ends of its 95 % bootstrap interval."""
        values = getattr(self, quantity)[method].double()
        ends = [
            bootstrap_interval(row.numpy(), draws=500, generator=numpy_generator(0, "patchscopes", k))
            for k, row in enumerate(values)
        ]
        low, high = torch.tensor(ends).T
        return values.mean(1), low, high


def next_token(model: ResidualLM, tokenizer: Any, config: Config) -> NextToken:
    """Decode next tokens from the states of unseen snippets: Patchscope, logit lens, affine map."""
    maps = fit_maps(model, tokenizer, config)
    target = encode(tokenizer, IDENTITY_PROMPT)
    runs = []
    for k in range(config.position_seeds):
        texts = snippets(config.validation_snippets, config.seed + k, "validation")
        sources = [encode(tokenizer, text) for text in texts]
        positions = random_positions(sources, config.seed + k)
        runs.append(next_token_sweep(model, sources, positions, target, layers=config.layers, maps=maps.maps))
    pooled = {name: torch.cat([run[name] for run in runs], dim=-1) for name in runs[0] if name != "layers"}
    return NextToken(
        config.layers,
        {method: pooled[f"{method}_precision"] for method in METHODS},
        {method: pooled[f"{method}_surprisal"] for method in METHODS},
        pooled["floor"],
        maps,
    )


# --- attributes and descriptions -----------------------------------------------------------------


def capital_sweep(model: ResidualLM, tokenizer: Any, config: Config, *, suffix: str) -> dict[str, Any]:
    """Attribute sweep of the relation "capital city" (see `attribute_sweep`)."""
    return attribute_sweep(
        model,
        tokenizer,
        capitals()[: config.capital_countries],
        source_layers=config.capital_sources,
        target_layers=config.capital_targets,
        max_new_tokens=config.capital_tokens,
        suffix=suffix,
    )


def describe(
    model: ResidualLM, tokenizer: Any, names: Sequence[str], layers: Sequence[int], tokens: int
) -> list[list[str]]:
    """What the few-shot description prompt says of each name's last state, texts[layer][name].

    Source and target layer are equal. A text ends at its first comma or line break.
    """
    ids = [encode(tokenizer, name) for name in names]
    states = states_at(model, ids, torch.tensor([len(row) - 1 for row in ids]))
    cache = PrefixCache(model, encode(tokenizer, DESCRIPTION_PROMPT))
    out = []
    for layer in layers:
        texts: list[str] = []
        for part in states[:, layer].split(ROWS):
            new = cache.generate(
                part, target_layer=layer, max_new_tokens=tokens, eos_id=tokenizer.eos_token_id
            )
            texts += [_first_item(tokenizer.decode(row)) for row in new]
        out.append(texts)
    return out


def _first_item(text: str) -> str:
    return text.split(",")[0].split("\n")[0].strip(" :")


@dataclass(frozen=True)
class Descriptions:
    """Descriptions of the entities by layer, and their scores.

    Attributes
    ----------
    layers : tuple of int
    entities : tuple of Entity
    texts : list of lists
        texts[layer][entity].
    hits : BoolTensor (K, n)
        Whether the text holds one of the entity's category words.
    rouge : Tensor (K, n)
        RougeL-F against the one-line description, on lower-case words.
    """

    layers: tuple[int, ...]
    entities: tuple[Entity, ...]
    texts: list[list[str]]
    hits: Tensor
    rouge: Tensor

    def rise(self, low: int = 9, high: int = 16) -> float:
        """Hit rate at the best layer in `low`..`high`, minus the rate at layer 1."""
        rate = self.hits.double().mean(1)
        middle = [k for k, layer in enumerate(self.layers) if low <= layer <= high]
        return float(rate[middle].max() - rate[self.layers.index(1)])

    def held_out_rise(self, low: int = 9, high: int = 16) -> float:
        """The same, with the layer chosen on every second entity and judged on the others."""
        middle = [k for k, layer in enumerate(self.layers) if low <= layer <= high]
        rate = self.hits.double()
        best = middle[int(rate[middle][:, 0::2].mean(1).argmax())]
        return float(rate[best, 1::2].mean() - rate[self.layers.index(1), 1::2].mean())


def describe_entities(model: ResidualLM, tokenizer: Any, config: Config) -> Descriptions:
    """Descriptions of the forty names at the configuration's layers."""
    texts = describe(model, tokenizer, [e.name for e in ENTITIES], config.entity_layers, config.entity_tokens)
    hits = [[_names_category(t, e) for t, e in zip(row, ENTITIES, strict=True)] for row in texts]
    rouge = [
        [rouge_l(_words(t), _words(e.description)) for t, e in zip(row, ENTITIES, strict=True)]
        for row in texts
    ]
    return Descriptions(
        config.entity_layers, ENTITIES, texts, torch.tensor(hits), torch.tensor(rouge, dtype=torch.float64)
    )


def _names_category(text: str, entity: Entity) -> bool:
    return any(word in entity.category for word in _words(text))


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


def changed_by_strict(sweep: dict[str, Any], objects: Sequence[str]) -> int:
    """Hits of a sweep that vanish when an object of under four letters must stand as a word."""
    kept = [objects[j] for j in sweep["kept"]]
    return sum(
        attribute_hit(text, obj) and not strict_hit(text, obj)
        for grid in sweep["generations"]
        for row in grid
        for text, obj in zip(row, kept, strict=True)
    )
