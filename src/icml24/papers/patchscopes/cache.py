r"""The fast path: run the target prompt once, then one token per patch (eq-patchscopes-causality).

A patch at position i* changes nothing before i*. So keys and values of the earlier positions
are computed once and serve every patch, and a patch costs one token through the blocks above
it instead of a whole prompt through all blocks (eq-patchscopes-cost).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .models import ResidualLM, check_layer, check_position, check_prompt
from .patching import check_vectors, patched_logits

__all__ = ["PrefixCache", "patched_generate"]

Pair = tuple[Tensor, Tensor]


class PrefixCache:
    r"""Keys and values of a target prompt whose last position will be patched, many times.

    Parameters
    ----------
    model : ResidualLM
        With ``block_step`` for the fast path; without it every call recomputes the prompt, with
        the same result.
    target_ids : LongTensor, shape (T,), (1, T) or (B, T)
        The prompt up to and including the position to patch. With B prompts every call takes
        B vectors, one for each.

    Raises
    ------
    ValueError
        Empty prompt.
    """

    def __init__(self, model: ResidualLM, target_ids: Tensor) -> None:
        self.model = model
        self.ids = check_prompt(target_ids, "target_ids")
        self._last = self.ids.shape[1] - 1
        self._pairs: list[Pair] = []
        with torch.no_grad():
            h = model.embed(self.ids)
            self._dtype = h.dtype
            if hasattr(model, "block_step"):
                for index in range(model.n_layers):
                    h, pair = model.block_step(index, h, None, 0)
                    self._pairs.append(tuple(pair))

    def logits(self, vectors: Tensor, *, target_layer: int) -> Tensor:
        """Logits at the last position with its state at `target_layer` overwritten.

        Parameters
        ----------
        vectors : Tensor, shape (B, d)
        target_layer : int
            0..L.

        Returns
        -------
        Tensor, shape (B, V)
            As ``patched_logits(...)[:, -1]``, up to rounding.
        """
        layer = self._check(vectors, target_layer)
        if not self._pairs:
            return patched_logits(self.model, self.ids, vectors, target_layer=layer)[:, -1]
        h = vectors[:, None]
        for index in range(layer, self.model.n_layers):
            h, _ = self.model.block_step(index, h, self._before(index), self._last)
        return self.model.unembed(h[:, 0])

    @torch.no_grad()
    def generate(
        self,
        vectors: Tensor,
        *,
        target_layer: int,
        max_new_tokens: int,
        forced: Tensor | None = None,
        eos_id: int | None = None,
    ) -> Tensor:
        """Patch the last position, feed the `forced` tokens, then decode greedily.

        Parameters
        ----------
        vectors : Tensor, shape (B, d)
        target_layer : int
        max_new_tokens : int
        forced : LongTensor, shape (F,), (1, F) or (B, F), optional
            Tokens that follow the patched one whatever the model says (a suffix of the prompt).
        eos_id : int, optional
            Ends a row.

        Returns
        -------
        LongTensor, shape (B, max_new_tokens)

        Notes
        -----
        Only the first pass is patched. Later tokens read the patched position through its keys
        and values: those of blocks above the patch come from the new state, those of blocks
        below it from the token that stands there.
        """
        layer = self._check(vectors, target_layer)
        rows = len(vectors)
        ids = self.ids.expand(rows, -1)
        if forced is not None and forced.numel():
            ids = torch.cat([ids, check_prompt(forced, "forced").expand(rows, -1)], dim=1)
        if not self._pairs:
            return _reference_generate(
                self.model,
                ids,
                vectors,
                target_layer=layer,
                target_position=self._last,
                max_new_tokens=max_new_tokens,
                eos_id=eos_id,
            )
        h, pairs = vectors[:, None], list(self._pairs)
        for index in range(layer, self.model.n_layers):
            h, pair = self.model.block_step(index, h, self._before(index), self._last)
            pairs[index] = tuple(pair)
        for end in range(self._last + 2, ids.shape[1] + 1):
            h = self._step(ids[:, :end], pairs)
        finished = torch.zeros(rows, dtype=torch.bool, device=ids.device)
        new: list[Tensor] = []
        while len(new) < max_new_tokens:
            token, finished = _next_token(self.model.unembed(h[:, 0]), finished, eos_id)
            new.append(token)
            if len(new) == max_new_tokens or finished.all():
                break
            ids = torch.cat([ids, token[:, None]], dim=1)
            h = self._step(ids, pairs)
        return _filled(new, rows, max_new_tokens, eos_id, ids)

    def _step(self, ids: Tensor, pairs: list[Pair]) -> Tensor:
        # embed() counts positions from 0, so the new token is embedded at the end of all before it
        h, position = self.model.embed(ids)[:, -1:], ids.shape[1] - 1
        for index in range(self.model.n_layers):
            h, pair = self.model.block_step(index, h, pairs[index], position)
            pairs[index] = tuple(pair)
        return h

    def _before(self, index: int) -> Pair | None:
        if self._last == 0:
            return None
        keys, values = self._pairs[index]
        return keys[:, :, : self._last], values[:, :, : self._last]

    def _check(self, vectors: Tensor, target_layer: int) -> int:
        check_vectors(self.model, vectors, self._dtype, prompts=len(self.ids))
        return check_layer(self.model, target_layer, "target_layer")


@torch.no_grad()
def patched_generate(
    model: ResidualLM,
    target_ids: Tensor,
    vectors: Tensor,
    *,
    target_layer: int,
    target_position: int = -1,
    max_new_tokens: int,
    eos_id: int | None = None,
) -> Tensor:
    r"""Greedy text of the target model while one position holds a foreign state.

    Parameters
    ----------
    model : ResidualLM
        With ``block_step`` the cost is one token a step; without it the sequence is recomputed
        at every step, with the same tokens.
    target_ids : LongTensor, shape (T,), (1, T) or (B, T)
    vectors : Tensor, shape (B, d)
    target_layer : int
        0..L.
    target_position : int, default -1
        In the prompt; it stays where it is while the text grows.
    max_new_tokens : int
        At least 0.
    eos_id : int, optional
        A row that has produced it is filled with it.

    Returns
    -------
    LongTensor, shape (B, max_new_tokens)

    Raises
    ------
    ValueError, IndexError, TypeError
        As `patched_logits`; ValueError for a negative `max_new_tokens`.
    """
    ids = check_prompt(target_ids, "target_ids")
    position = check_position(target_position, ids.shape[1], "target_position")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0; got {max_new_tokens}")
    # what stands after the patch belongs to the prompt, so it is fed, not chosen
    return PrefixCache(model, ids[:, : position + 1]).generate(
        vectors,
        target_layer=target_layer,
        max_new_tokens=max_new_tokens,
        forced=ids[:, position + 1 :],
        eos_id=eos_id,
    )


def greedy(model: ResidualLM, ids: Tensor, max_new_tokens: int, *, eos_id: int | None = None) -> Tensor:
    """Unpatched greedy continuation of prompts of one length, (B, T) to (B, max_new_tokens).

    Overwriting the embedding of the last token with itself changes nothing (eq-patchscopes-noop),
    so this is a patched generation too.
    """
    ids = check_prompt(ids)
    with torch.no_grad():
        own = model.embed(ids)[:, -1]
    return PrefixCache(model, ids).generate(own, target_layer=0, max_new_tokens=max_new_tokens, eos_id=eos_id)


def cost_ratio(
    prompt_tokens: int, target_layer: int, layers: int, block_parameters: int, output_parameters: int
) -> float:
    r"""Multiply-adds of a whole patched prompt over those of one cached patch (eq-patchscopes-cost).

    .. math:: \frac{|T|\, L\, P_b + V d}{(L - \ell^*)\, P_b + V d}

    Parameters
    ----------
    prompt_tokens, target_layer, layers : int
        \|T|, l* and L.
    block_parameters, output_parameters : int
        :math:`P_b`, the weights of a block, and :math:`V d`; the output matrix is applied at the
        last position only. Attention over the prompt is left out: it is small at these lengths.
    """
    whole = prompt_tokens * layers * block_parameters + output_parameters
    return whole / ((layers - target_layer) * block_parameters + output_parameters)


@torch.no_grad()
def _reference_generate(
    model: ResidualLM,
    ids: Tensor,
    vectors: Tensor,
    *,
    target_layer: int,
    target_position: int,
    max_new_tokens: int,
    eos_id: int | None = None,
) -> Tensor:
    """The plain form: the whole sequence again at every step, patched at every step."""
    ids = ids.expand(len(vectors), -1)
    position = check_position(target_position, ids.shape[1], "target_position")
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    new: list[Tensor] = []
    while len(new) < max_new_tokens and not finished.all():
        logits = patched_logits(model, ids, vectors, target_layer=target_layer, target_position=position)
        token, finished = _next_token(logits[:, -1], finished, eos_id)
        new.append(token)
        ids = torch.cat([ids, token[:, None]], dim=1)
    return _filled(new, len(ids), max_new_tokens, eos_id, ids)


def _next_token(logits: Tensor, finished: Tensor, eos_id: int | None) -> tuple[Tensor, Tensor]:
    token = logits.argmax(dim=-1)
    if eos_id is None:
        return token, finished
    token = torch.where(finished, eos_id, token)
    return token, token == eos_id


def _filled(new: list[Tensor], rows: int, length: int, eos_id: int | None, ids: Tensor) -> Tensor:
    out = ids.new_full((rows, length), -1 if eos_id is None else eos_id)
    for column, token in enumerate(new):
        out[:, column] = token
    return out
