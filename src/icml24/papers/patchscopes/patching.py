r"""The operation itself: read a state of one run, write it into another (eq-patchscopes-operation).

These functions recompute the whole target prompt, whatever the model; `cache` does the same
work once per prompt. They are the plain form that the fast one is checked against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .models import ResidualLM, check_layer, check_position, check_prompt, run_layers

__all__ = ["PatchSpec", "patched_logits", "patchscope"]


@dataclass(frozen=True)
class PatchSpec:
    r"""Where a state is read and where it is written: :math:`(\ell, i)` and :math:`(\ell^*, i^*)`.

    Attributes
    ----------
    source_layer, target_layer : int
        States, 0..L of the respective model; a target layer of L means: only norm and output
        matrix follow.
    source_position, target_position : int, default -1
        Token positions; negative ones count from the end of the prompt.
    """

    source_layer: int
    target_layer: int
    source_position: int = -1
    target_position: int = -1


def patched_logits(
    model: ResidualLM, target_ids: Tensor, vectors: Tensor, *, target_layer: int, target_position: int = -1
) -> Tensor:
    r"""Run the target prompt with the state at one place overwritten.

    .. math:: \bar h^{\ell^*}_{i^*} \leftarrow v, \quad\text{then blocks } \ell^*+1, \dots, L \text{ and the read-out.}

    Parameters
    ----------
    model : ResidualLM
    target_ids : LongTensor, shape (T,), (1, T) or (B, T)
        One prompt for all vectors, or one each.
    vectors : Tensor, shape (B, d)
        In the model's dtype. Left as they are; gradients flow to them.
    target_layer : int
        0..L.
    target_position : int, default -1

    Returns
    -------
    Tensor, shape (B, T, V)
        Logits at all positions.

    Raises
    ------
    ValueError
        Layer outside 0..L, vectors of another width or number than the prompts, empty prompt.
    IndexError
        Position outside the prompt.
    TypeError
        Vectors in another dtype than the model works in.
    """
    ids = check_prompt(target_ids, "target_ids")
    layer = check_layer(model, target_layer, "target_layer")
    position = check_position(target_position, ids.shape[1], "target_position")
    h = model.embed(ids)
    check_vectors(model, vectors, h.dtype, prompts=len(ids))
    h = run_layers(model, h, 0, layer)
    h = h.expand(len(vectors), -1, -1).clone()  # never write into what the model may keep
    h[:, position] = vectors
    return model.unembed(run_layers(model, h, layer, model.n_layers))


def patchscope(
    source_model: ResidualLM,
    source_ids: Tensor,
    target_model: ResidualLM,
    target_ids: Tensor,
    spec: PatchSpec,
    *,
    mapping: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""One Patchscope: :math:`(S, i, M, \ell) \to (T, i^*, f, M^*, \ell^*)`.

    Parameters
    ----------
    source_model, target_model : ResidualLM
        M and M*; the same object for all but cross-model inspection.
    source_ids, target_ids : LongTensor, shapes (T,) or (B, T)
        S and T. One target prompt may serve many sources.
    spec : PatchSpec
    mapping : callable, optional
        f, from (B, d) to (B, d*), for instance an `AffineMap`; the identity by default.

    Returns
    -------
    Tensor, shape (B, T, V)
        Logits of the target model at all positions of the target prompt.

    Raises
    ------
    ValueError
        A layer outside 0..L of its model, or a width that is not the target's.
    IndexError
        A position outside its prompt.
    """
    source = check_prompt(source_ids, "source_ids")
    layer = check_layer(source_model, spec.source_layer, "source_layer")
    check_layer(target_model, spec.target_layer, "target_layer")
    position = check_position(spec.source_position, source.shape[1], "source_position")
    target = check_prompt(target_ids, "target_ids")
    if len(source) == 1 and len(target) > 1:
        source = source.expand(len(target), -1)
    with torch.no_grad():
        state = run_layers(source_model, source_model.embed(source), 0, layer)[:, position].clone()
    if mapping is not None:
        state = mapping(state)
    if state.shape[-1] != target_model.d_model:
        raise ValueError(
            f"the state has width {state.shape[-1]} and the target model {target_model.d_model}; "
            "pass mapping=fit_affine(...) fitted from the source's states to the target's"
        )
    return patched_logits(
        target_model,
        target,
        state,
        target_layer=spec.target_layer,
        target_position=spec.target_position,
    )


def check_vectors(model: ResidualLM, vectors: Tensor, dtype: torch.dtype, *, prompts: int = 1) -> None:
    """Vectors must be (B, d) in the model's dtype, as many as there are prompts when there are several."""
    if not isinstance(vectors, Tensor):
        raise TypeError(f"vectors must be a tensor (B, {model.d_model}); got {type(vectors).__name__}")
    if vectors.dim() != 2 or vectors.shape[-1] != model.d_model:
        raise ValueError(
            f"vectors must have shape (B, {model.d_model}); got {tuple(vectors.shape)} "
            "(for states of another width pass mapping=fit_affine(...))"
        )
    if vectors.dtype != dtype:
        raise TypeError(f"vectors are {vectors.dtype}, the model works in {dtype}; convert them first")
    if prompts not in (1, len(vectors)):
        raise ValueError(
            f"{prompts} target prompts for {len(vectors)} vectors; expected one prompt, or one each"
        )


def states_at(model: ResidualLM, sources: list[Tensor], positions: Tensor, *, batch: int = 32) -> Tensor:
    """States of every layer at one position of each source, (n, L + 1, d).

    Sources are padded on the right to the longest of their batch; under a causal mask, padding
    changes nothing at earlier positions.
    """
    out = []
    for start in range(0, len(sources), batch):
        part = sources[start : start + batch]
        ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        at = (torch.arange(len(part)), positions[start : start + batch])
        with torch.no_grad():
            h = model.embed(ids)
            states = [h[at]]
            for index in range(model.n_layers):
                h = model.block(index, h)
                states.append(h[at])
        out.append(torch.stack(states, dim=1))
    return torch.cat(out)
