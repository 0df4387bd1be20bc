r"""Patchscopes over many layers and many prompts: next tokens, and attributes in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .cache import PrefixCache, greedy
from .models import ResidualLM, check_layer, check_position, check_prompt
from .patching import states_at
from .readouts import attribute_hit

__all__ = ["NothingKnown", "attribute_sweep", "next_token_sweep"]

ROWS = 64  # patched rows a batch: large enough for full speed, small enough for memory
BASELINE_TOKENS = 10


class NothingKnown(ValueError):
    """The unpatched model states the attribute of no record, so there is nothing to read."""


@torch.no_grad()
def next_token_sweep(
    model: ResidualLM,
    sources: Sequence[Tensor],
    positions: Sequence[int] | Tensor,
    target_ids: Tensor,
    *,
    layers: Iterable[int] | None = None,
    maps: Mapping[int, Callable[[Tensor], Tensor]] | None = None,
) -> dict[str, Tensor]:
    r"""Decode the next token from every layer, by Patchscope, logit lens and affine map.

    For each source and layer l: the state at its position is (i) written into the last position
    of the target prompt at the same layer l, (ii) read by the output matrix, (iii) mapped to
    layer L, then read.

    Parameters
    ----------
    model : ResidualLM
    sources : sequence of n LongTensor, shapes (T_j,)
    positions : sequence of n int
        Where the state is read, and the next token predicted; negative from the end.
    target_ids : LongTensor, shape (T,)
        Prompt of the Patchscope, for instance a few-shot copy prompt.
    layers : iterable of int, optional
        All L + 1 by default.
    maps : mapping of layer to callable, optional
        f: states of that layer to states of layer L. Needed for every layer in `layers`.

    Returns
    -------
    dict of str to Tensor
        ``layers`` (K,); ``floor`` (n,), the smallest surprisal there is for each source; and for
        each method m of ``patchscope``, ``logit_lens`` and, with maps, ``affine``: ``m_precision``
        and ``m_surprisal``, (K, n), and ``m_token``, (K, n), the decoded token ids.
        ``source_token``, (n,): what the unpatched model predicts.

    Raises
    ------
    ValueError
        No source, several prompts in one source, different numbers of sources and positions, a
        layer outside 0..L or without map.
    IndexError
        A position outside its source.
    """
    rows = [check_prompt(ids, f"sources[{j}]") for j, ids in enumerate(sources)]
    several = [j for j, ids in enumerate(rows) if len(ids) > 1]
    if several:
        raise ValueError(f"sources {several} hold several prompts; give each as a source of its own, (T,)")
    prompts = [ids[0] for ids in rows]
    if not prompts or len(prompts) != len(positions):
        raise ValueError(
            f"expected one position a source; got {len(prompts)} sources, {len(positions)} positions"
        )
    at = torch.tensor(
        [
            check_position(p, len(ids), f"positions[{j}]")
            for j, (ids, p) in enumerate(zip(prompts, positions, strict=True))
        ]
    )
    chosen = range(model.n_layers + 1) if layers is None else layers
    chosen = [check_layer(model, layer, "layers") for layer in chosen]
    missing = [layer for layer in chosen if maps is not None and layer not in maps]
    if missing:
        raise ValueError(f"no map for layers {missing}; give one for each layer of the sweep")
    target = check_prompt(target_ids, "target_ids")
    if len(target) > 1:
        raise ValueError(f"one target prompt serves a sweep; got {len(target)}")
    cache = PrefixCache(model, target)
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(prompts), ROWS):
        states = states_at(model, prompts[start : start + ROWS], at[start : start + ROWS])
        parts.append(_decode(model, cache, states, chosen, maps))
    merged = {name: torch.cat([part[name] for part in parts], dim=-1) for name in parts[0]}
    return {"layers": torch.tensor(chosen), **merged}


def _decode(
    model: ResidualLM,
    cache: PrefixCache,
    states: Tensor,
    layers: Sequence[int],
    maps: Mapping[int, Callable[[Tensor], Tensor]] | None,
) -> dict[str, Tensor]:
    # the source's distribution serves every layer and method: one log-softmax instead of K times three
    logits = model.unembed(states[:, -1])
    logp = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    truth = logp.argmax(-1)
    rows: dict[str, list[Tensor]] = {}
    for layer in layers:
        h = states[:, layer]
        decoded = {"patchscope": cache.logits(h, target_layer=layer), "logit_lens": model.unembed(h)}
        if maps is not None:
            decoded["affine"] = model.unembed(maps[layer](h))
        for method, logits in decoded.items():
            token = logits.argmax(-1)
            rows.setdefault(f"{method}_precision", []).append((token == truth).to(logp.dtype))
            rows.setdefault(f"{method}_surprisal", []).append(-logp.gather(-1, token[:, None])[:, 0])
            rows.setdefault(f"{method}_token", []).append(token)
    out = {name: torch.stack(values) for name, values in rows.items()}
    return out | {"floor": -logp.amax(-1), "source_token": truth}


@torch.no_grad()
def attribute_sweep(
    model: ResidualLM,
    tokenizer: Any,
    records: Sequence[Mapping[str, str]],
    *,
    source_layers: Sequence[int],
    target_layers: Sequence[int],
    max_new_tokens: int = 10,
    suffix: str = "",
) -> dict[str, Any]:
    r"""Read an attribute of a subject out of its states, in words, without training anything.

    Parameters
    ----------
    model : ResidualLM
    tokenizer : callable
        ``tokenizer(text, add_special_tokens=...)["input_ids"]`` and ``tokenizer.decode(ids)``.
    records : sequence of mappings
        With the columns of the authors' files: ``prompt_source`` (a text that contains the
        subject; it is cut right after its first occurrence), ``subject``, ``object``,
        ``prompt_target`` (the relation in words and a placeholder, the last token; the same for
        all records) and ``target_baseline`` (the same with the real subject).
    source_layers, target_layers : sequence of int
    max_new_tokens : int, default 10
    suffix : str, default ""
        Text after the placeholder, fed as it is; the paper has none.

    Returns
    -------
    dict
        ``hits``, BoolTensor (target layers, source layers, kept); ``accuracy``, its mean over
        records; ``mean_over_targets`` and ``oracle_over_targets``, (source layers,): the mean,
        and the share of records for which some target layer succeeds; ``kept``, indices of the
        records whose attribute the unpatched model states; ``total``; ``generations``, nested
        lists [target][source][record]; ``baselines``, one text a record; ``source_layers``,
        ``target_layers``.

    Raises
    ------
    ValueError
        No record, a subject that is not in its prompt, more than one target prompt, a layer
        outside 0..L, or no record left after the filter (`NothingKnown`).
    """
    if not records:
        raise ValueError("no records; expected at least one")
    sources = [check_layer(model, layer, "source_layers") for layer in source_layers]
    targets = [check_layer(model, layer, "target_layers") for layer in target_layers]
    prompts = {record["prompt_target"] for record in records}
    if len(prompts) > 1:
        raise ValueError(f"one target prompt serves a sweep; got {sorted(prompts)}")
    eos = getattr(tokenizer, "eos_token_id", None)
    baselines = baseline_texts(model, tokenizer, records, suffix=suffix)
    kept = [j for j, text in enumerate(baselines) if attribute_hit(text, records[j]["object"])]
    if not kept:
        raise NothingKnown(
            f"the unpatched model states the attribute of none of {len(records)} records; "
            "nothing can be read that it does not know"
        )
    states = subject_states(model, tokenizer, [records[j] for j in kept])  # (n, L + 1, d)
    vectors = states[:, sources].transpose(0, 1).flatten(0, 1)  # source layer outside, record inside
    cache = PrefixCache(model, encode(tokenizer, prompts.pop()))
    forced = encode(tokenizer, suffix, special=False) if suffix else None
    generations = []
    for layer in targets:
        texts: list[str] = []
        for part in vectors.split(ROWS):
            new = cache.generate(
                part, target_layer=layer, max_new_tokens=max_new_tokens, forced=forced, eos_id=eos
            )
            texts += [tokenizer.decode(row) for row in new]
        generations.append([texts[k : k + len(kept)] for k in range(0, len(texts), len(kept))])
    hits = torch.tensor(
        [
            [
                [attribute_hit(text, records[j]["object"]) for text, j in zip(row, kept, strict=True)]
                for row in grid
            ]
            for grid in generations
        ]
    )
    return {
        "hits": hits,
        "accuracy": hits.double().mean(-1),
        "mean_over_targets": hits.double().mean((0, 2)),
        "oracle_over_targets": hits.any(0).double().mean(-1),
        "kept": kept,
        "total": len(records),
        "generations": generations,
        "baselines": baselines,
        "source_layers": sources,
        "target_layers": targets,
    }


def encode(tokenizer: Any, text: str, *, special: bool = True) -> Tensor:
    """Token ids of a text, shape (T,); without the tokenizer's own additions when `special` is false."""
    ids = tokenizer(text, add_special_tokens=special)["input_ids"]
    if not len(ids):
        raise ValueError(f"the text {text!r} has no tokens")
    return torch.tensor(ids)


def cut_after_subject(record: Mapping[str, str]) -> str:
    """`prompt_source` up to the end of the first occurrence of the subject, without outer white space."""
    text, subject = record["prompt_source"], record["subject"]
    start = text.find(subject)
    if start < 0:
        raise ValueError(f"the subject {subject!r} does not occur in its prompt {text!r}")
    return text[: start + len(subject)].strip()


def subject_states(model: ResidualLM, tokenizer: Any, records: Sequence[Mapping[str, str]]) -> Tensor:
    """States of all layers at the last token of each record's subject, (n, L + 1, d)."""
    sources = [encode(tokenizer, cut_after_subject(record)) for record in records]
    return states_at(model, sources, torch.tensor([len(ids) - 1 for ids in sources]))


def baseline_texts(
    model: ResidualLM, tokenizer: Any, records: Sequence[Mapping[str, str]], *, suffix: str = ""
) -> list[str]:
    """What the unpatched model says after ``target_baseline + suffix``, ten tokens greedily."""
    return continuations(
        model, tokenizer, [record["target_baseline"] + suffix for record in records], BASELINE_TOKENS
    )


def continuations(model: ResidualLM, tokenizer: Any, texts: Sequence[str], tokens: int) -> list[str]:
    """Greedy continuations, prompts of one length at a time."""
    eos = getattr(tokenizer, "eos_token_id", None)
    ids = [encode(tokenizer, text) for text in texts]
    by_length: dict[int, list[int]] = {}
    for j, prompt in enumerate(ids):
        by_length.setdefault(len(prompt), []).append(j)
    out = [""] * len(texts)
    for same in by_length.values():
        for start in range(0, len(same), ROWS):
            part = same[start : start + ROWS]
            new = greedy(model, torch.stack([ids[j] for j in part]), tokens, eos_id=eos)
            for j, row in zip(part, new, strict=True):
                out[j] = tokenizer.decode(row)
    return out
