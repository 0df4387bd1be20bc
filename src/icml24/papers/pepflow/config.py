r"""Sizes of the network and constants of the flows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from icml24.common.checks import whole

__all__ = ["PepFlowConfig"]


@dataclass(frozen=True)
class PepFlowConfig:
    r"""Configuration of `PepFlow`; defaults are the official ones.

    Attributes
    ----------
    c_s, c_z, c_hidden : int
        Widths of residue features (even), pair features (divisible by 4) and attention heads.
    no_heads, no_qk_points, no_v_points : int
        Invariant point attention.
    seq_tfmr_num_heads, seq_tfmr_num_layers : int
        The transformer between attention blocks; `c_s` is divisible by its heads.
    num_blocks : int
    simplex_value : float
        Level `k` of the logits.
    sigma : float
        Standard deviation of the positions' prior, angstrom.
    min_t : float
        Times are drawn from ``[min_t, 1 - min_t]``; sampling starts at `min_t`.
    t_clip : float
        Where loss weights stop growing.
    rot_rate : float
        Rate of the exponential schedule of rotations in sampling.

    Raises
    ------
    ValueError
        `c_s` odd or not divisible by the transformer's heads, `c_z` not divisible by 4, a size below
        one, a constant out of range.
    """

    c_s: int = 128
    c_z: int = 64
    c_hidden: int = 128
    no_heads: int = 8
    no_qk_points: int = 8
    no_v_points: int = 12
    seq_tfmr_num_heads: int = 4
    seq_tfmr_num_layers: int = 2
    num_blocks: int = 6
    simplex_value: float = 5.0
    sigma: float = 1.0
    min_t: float = 1e-2
    t_clip: float = 0.9
    rot_rate: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self)[:9]:
            whole(field.name, getattr(self, field.name), 1)
        if self.c_s % 2:
            raise ValueError(f"c_s must be even (half sines, half cosines encode the time); got {self.c_s}")
        if self.c_s % self.seq_tfmr_num_heads:
            raise ValueError(
                f"c_s must be divisible by the transformer's heads; got {self.c_s} and {self.seq_tfmr_num_heads}"
            )
        if self.c_z % 4:
            raise ValueError(f"c_z must be divisible by 4; got {self.c_z}")
        for name in ("simplex_value", "sigma", "rot_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}")
        if not (0 < self.min_t < 0.5 and 0 <= self.t_clip < 1):
            raise ValueError(
                f"min_t must lie in (0, 0.5) and t_clip in [0, 1); got {self.min_t}, {self.t_clip}"
            )
