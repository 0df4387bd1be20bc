r"""One model reads another: a small GPT's states, mapped affinely into a larger GPT (full profile).

Both are trained here, character by character, on the first half of the King James text; the maps
are fitted and judged on windows of the second half.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.common.random import generator
from icml24.common.schedules import warmup_decay
from icml24.common.texts import kjv_text

from .affine import fit_affine, relative_ridge
from .cache import PrefixCache
from .experiments import Config
from .models import RotaryGPTLM, residual_stream
from .readouts import precision_at_1

__all__ = ["CrossModel", "cross_model", "train_character_gpt"]

CONTEXT, BATCH, LEARNING_RATE = 64, 16, 3e-3
SMALL = {"n_layer": 2, "n_head": 4, "d_model": 96}
LARGE = {"n_layer": 4, "n_head": 4, "d_model": 160}
ALIGNED_WINDOWS, JUDGED_WINDOWS, JUDGED_POSITIONS = 300, 60, 8
#: Placeholder of the target prompt: one blank, nothing before it.
PLACEHOLDER = " "


@dataclass(frozen=True)
class CrossModel:
    """Precision at 1 against the small model's own next token.

    Attributes
    ----------
    precision : Tensor (source layers, target layers)
        Small model's state, mapped, in the large model's placeholder.
    logit_lens, own_affine : Tensor (source layers,)
        The small model's own read-out of the same states, raw and through an affine map to its last layer.
    losses : tuple of float
        Nats a character of the small and the large model on the judged windows.
    prompts : int
    """

    precision: Tensor
    logit_lens: Tensor
    own_affine: Tensor
    losses: tuple[float, float]
    prompts: int

    def best_target(self) -> tuple[int, float]:
        """The best single target layer, by mean precision over source layers below the last; its lead over the lens."""
        below = slice(0, len(self.precision) - 1)
        means = self.precision[below].mean(0)
        best = int(means.argmax())
        return best, float(means[best] - self.logit_lens[below].mean())


def cross_model(config: Config) -> CrossModel:
    """Train both models, fit every map, decode the judged positions."""
    text = kjv_text()
    alphabet = sorted(set(text))
    index = {c: k for k, c in enumerate(alphabet)}
    ids = torch.tensor([index[c] for c in text])
    train, rest = ids.tensor_split(2)
    small, large = (
        train_character_gpt(train, len(alphabet), sizes, config.gpt_steps, config.seed)
        for sizes in (SMALL, LARGE)
    )
    g = generator(config.seed, "patchscopes", "cross-model windows")
    starts = torch.randint(len(rest) - CONTEXT, (ALIGNED_WINDOWS + JUDGED_WINDOWS, 1), generator=g)
    windows = rest[starts + torch.arange(CONTEXT)]
    aligned, judged = windows[:ALIGNED_WINDOWS], windows[ALIGNED_WINDOWS:]
    with torch.no_grad():
        return _measure(RotaryGPTLM(small), RotaryGPTLM(large), aligned, judged, index[PLACEHOLDER], g)


def train_character_gpt(
    ids: Tensor, vocabulary: int, sizes: dict[str, int], steps: int, seed: int
) -> RotaryGPT:
    """A `RotaryGPT` after a fixed number of AdamW steps on random windows."""
    g = generator(seed, "patchscopes", "character GPT", sizes["d_model"])
    model = RotaryGPT(GPTConfig(vocabulary, **sizes), generator=g)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * warmup_decay(step, steps, warmup=40)
        starts = torch.randint(len(ids) - CONTEXT - 1, (BATCH, 1), generator=g)
        window = ids[starts + torch.arange(CONTEXT + 1)]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval().requires_grad_(False)


def _measure(
    small: RotaryGPTLM,
    large: RotaryGPTLM,
    aligned: Tensor,
    judged: Tensor,
    blank: int,
    g: torch.Generator,
    *,
    positions: int = JUDGED_POSITIONS,
) -> CrossModel:
    X, Y = (residual_stream(model, aligned)[:, :, 1:].flatten(1, 2) for model in (small, large))
    ridges = [relative_ridge(x, 1e-6) for x in X]  # 19,000 vectors for 96 columns: only a guard
    streams = residual_stream(small, judged)
    rows = torch.arange(len(judged))[:, None]
    at = torch.randint(8, judged.shape[1], (len(judged), positions), generator=g)
    states = streams[:, rows, at].flatten(1, 2)  # (layers, prompts, d)
    truth = small.unembed(states[-1])
    cache = PrefixCache(large, torch.tensor([blank]))
    precision = torch.zeros(len(X), len(Y))
    for source in range(len(X)):
        for target in range(len(Y)):
            mapping = fit_affine(X[source], Y[target], ridge=ridges[source])
            read = cache.logits(mapping(states[source]), target_layer=target)
            precision[source, target] = precision_at_1(truth, read).mean()
    own = [
        precision_at_1(truth, small.unembed(fit_affine(x, X[-1], ridge=r)(h))).mean()
        for x, r, h in zip(X, ridges, states, strict=True)
    ]
    lens = [precision_at_1(truth, small.unembed(h)).mean() for h in states]
    losses = tuple(
        float(F.cross_entropy(m.model(judged[:, :-1]).flatten(0, 1), judged[:, 1:].flatten()))
        for m in (small, large)
    )
    return CrossModel(precision, torch.stack(lens), torch.stack(own), losses, states.shape[1])
