r"""Batches of complexes: what a batch must hold, and how rows of different lengths become one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .residues import AA3, PADDING

__all__ = ["KEYS", "collate", "repeat", "validate"]

#: Keys of a batch: trailing shape, kind of number, value of rows that pad.
KEYS: dict[str, tuple[tuple[int, ...], str, int]] = {
    "aa": ((), "long", PADDING),
    "res_nb": ((), "long", 0),
    "chain_nb": ((), "long", -1),
    "pos": ((15, 3), "floating", 0),
    "atom_mask": ((15,), "bool", 0),
    "gen_mask": ((), "bool", 0),
    "res_mask": ((), "bool", 0),
    "torsion": ((5,), "floating", 0),
}


def collate(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    r"""One batch from complexes of different lengths, padded to the longest.

    Parameters
    ----------
    rows : sequence of dict
        Complexes without a batch dimension, as `data.read_complex` returns them.

    Returns
    -------
    dict
        Padding rows have type 21, chain -1, zero coordinates, and masks False.

    Raises
    ------
    ValueError
        No rows.
    KeyError
        A row lacks a key.
    """
    if not rows:
        raise ValueError("no complexes to collate; expected at least one")
    longest = max(len(row["aa"]) for row in rows)
    batch = {}
    for key, (tail, _, fill) in KEYS.items():
        out = torch.full((len(rows), longest, *tail), fill, dtype=rows[0][key].dtype)
        for k, row in enumerate(rows):
            out[k, : len(row[key])] = row[key]
        batch[key] = out
    return batch


def repeat(batch: dict[str, Tensor], times: int) -> dict[str, Tensor]:
    """Each complex `times` times in a row: one batch for several samples of each."""
    return {key: value.repeat_interleave(times, dim=0) for key, value in batch.items()}


def validate(batch: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    r"""Check a batch and cast its floating entries; absent atoms are put at the origin.

    Raises
    ------
    KeyError
        A key is missing.
    ValueError
        A wrong shape or kind of number, coordinates of present atoms that are not finite, no generated
        residue or no receptor in some complex, a generated residue without N, CA or C.
    """
    for key in KEYS:
        if key not in batch:
            raise KeyError(f"the batch lacks {key!r}; expected the keys {list(KEYS)}")
    if not isinstance(batch["aa"], Tensor) or batch["aa"].ndim != 2:
        raise ValueError("aa must be a tensor of shape (B, L); collate single complexes first")
    B, L = batch["aa"].shape
    out = {}
    for key, (tail, kind, _) in KEYS.items():
        value = batch[key]
        if not isinstance(value, Tensor) or value.shape != (B, L, *tail):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{key} must be a tensor of shape {(B, L, *tail)}, as aa is {(B, L)}; got {got}")
        if kind == "floating":
            if not value.is_floating_point():
                raise ValueError(f"{key} must be floating; got {value.dtype}")
            out[key] = value.to(dtype)
        elif kind == "bool":
            if value.dtype != torch.bool:
                raise ValueError(f"{key} must be a bool mask; got {value.dtype}")
            out[key] = value
        else:
            if value.is_floating_point() or value.dtype == torch.bool:
                raise ValueError(f"{key} must be of integer type; got {value.dtype}")
            out[key] = value.long()
    aa = out["aa"]
    if bool(((aa < 0) | (aa > PADDING)).any()):
        raise ValueError(f"aa must lie in 0 .. {PADDING} (20 unknown, 21 padding)")
    out["gen_mask"] = out["gen_mask"] & out["res_mask"]
    gen, atoms = out["gen_mask"], out["atom_mask"]
    if not bool(gen.any(1).all()):
        raise ValueError("gen_mask selects no residue in some complex; mark the peptide's rows")
    if not bool((out["res_mask"] & ~gen).any(1).all()):
        raise ValueError("some complex has no receptor: every existing row is in gen_mask")
    broken = (gen & ~atoms[..., :3].all(-1)).nonzero()
    if len(broken):
        b, i = broken[0].tolist()
        kind = AA3[int(aa[b, i])] if int(aa[b, i]) < len(AA3) else "unknown"
        raise ValueError(
            f"the generated residue {int(out['res_nb'][b, i])} ({kind}, complex {b}, row {i}) lacks N, CA or C; "
            "complete it or drop the complex"
        )
    pos = torch.where(atoms.unsqueeze(-1), out["pos"], torch.zeros_like(out["pos"]))
    if not bool(pos.isfinite().all() and out["torsion"].isfinite().all()):
        raise ValueError("pos of present atoms and torsion must be finite")
    out["pos"] = pos
    return out
