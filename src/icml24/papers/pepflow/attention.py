r"""Invariant point attention, and the initialisation that AlphaFold-style layers share.

Queries and keys are vectors plus *points*: points are carried by each residue's frame into the
common space, where their distances do not depend on who looks (eq-pepflow-ipa).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

__all__ = ["InvariantPointAttention", "lecun_linear", "zero_linear"]

#: The softplus of this number is one.
UNIT_HEAD_WEIGHT = math.log(math.e - 1)

#: Standard deviation of a unit normal cut at two standard deviations.
_CUT_STD = 0.8796256610342398


class InvariantPointAttention(nn.Module):
    r"""Attention that does not change when the whole complex is moved.

    Parameters
    ----------
    c_s, c_z : int
        Widths of residue and pair features; `c_z` divisible by 4.
    c_hidden : int
        Width of a head's queries, keys and values.
    no_heads, no_qk_points, no_v_points : int
        Heads, and points a head compares and collects.

    Raises
    ------
    ValueError
        A size below one, or `c_z` not divisible by 4.
    """

    def __init__(
        self, c_s: int, c_z: int, c_hidden: int, no_heads: int, no_qk_points: int, no_v_points: int
    ) -> None:
        super().__init__()
        if min(c_s, c_z, c_hidden, no_heads, no_qk_points, no_v_points) < 1:
            raise ValueError("all sizes of invariant point attention must be at least 1")
        if c_z % 4:
            raise ValueError(f"c_z must be divisible by 4 (pair values have a quarter of it); got {c_z}")
        self.c_hidden, self.no_heads = c_hidden, no_heads
        self.no_qk_points, self.no_v_points = no_qk_points, no_v_points
        H, P = no_heads, no_qk_points + no_v_points
        self.head_weights = nn.Parameter(torch.full((H,), UNIT_HEAD_WEIGHT))
        self.linear_q = lecun_linear(c_s, H * c_hidden)
        self.linear_kv = lecun_linear(c_s, 2 * H * c_hidden)
        self.linear_q_points = lecun_linear(c_s, 3 * H * no_qk_points)
        self.linear_kv_points = lecun_linear(c_s, 3 * H * P)
        self.linear_b = lecun_linear(c_z, H)
        self.down_z = lecun_linear(c_z, c_z // 4)
        self.linear_out = zero_linear(H * (c_hidden + 4 * no_v_points + c_z // 4), c_s)

    def forward(self, s: Tensor, z: Tensor, R: Tensor, t: Tensor, mask: Tensor) -> Tensor:
        r"""Attend.

        Parameters
        ----------
        s : Tensor, shape (B, L, c_s)
        z : Tensor, shape (B, L, L, c_z)
        R, t : Tensor, shapes (B, L, 3, 3) and (B, L, 3)
            Frames.
        mask : Tensor, shape (B, L), bool or floating
            Rows that exist.

        Returns
        -------
        Tensor, shape (B, L, c_s)

        Raises
        ------
        ValueError
            Shapes that do not fit.

        Notes
        -----
        Since :math:`\lVert q - k\rVert^2 = \lVert q\rVert^2 + \lVert k\rVert^2 - 2\,q\cdot k`, points
        enter as further columns of one matrix product: memory O(L^2 H) instead of O(L^2 H P).
        Positions are centred first, against cancellation.
        """
        B, L = mask.shape
        for name, value, shape in (
            ("z", z, (B, L, L)),
            ("R", R, (B, L, 3)),
            ("t", t, (B, L)),
            ("s", s, (B, L)),
        ):
            if value.shape[:-1] != shape:
                raise ValueError(f"{name} must start with shape {shape}; got {tuple(value.shape)}")
        H, c, Pq, Pv = self.no_heads, self.c_hidden, self.no_qk_points, self.no_v_points
        mask = mask.to(s)
        count = mask.sum(-1).clamp_min(1.0)[:, None, None]
        t = t - (t * mask.unsqueeze(-1)).sum(1, keepdim=True) / count
        heads = lambda x: x.unflatten(-1, (H, -1)).transpose(1, 2)  # noqa: E731  (B, L, H w) -> (B, H, L, w)

        q = heads(self.linear_q(s))
        k, v = heads(self.linear_kv(s)).split(c, dim=-1)
        q_pts = _global_points(self.linear_q_points(s), R, t, H)  # (B, H, L, Pq, 3)
        k_pts, v_pts = _global_points(self.linear_kv_points(s), R, t, H).split((Pq, Pv), dim=-2)

        w = (softplus(self.head_weights) * math.sqrt(1 / (3 * (Pq * 9 / 2)))).reshape(1, H, 1, 1)
        left = torch.cat((q * math.sqrt(1 / (3 * c)), w * q_pts.flatten(-2)), dim=-1)
        right = torch.cat((k, k_pts.flatten(-2)), dim=-1)
        logits = left @ right.transpose(-1, -2)
        q_norm, k_norm = q_pts.square().sum((-1, -2)), k_pts.square().sum((-1, -2))
        logits = logits - 0.5 * w * (q_norm.unsqueeze(-1) + k_norm.unsqueeze(-2))
        logits = logits + math.sqrt(1 / 3) * self.linear_b(z).permute(0, 3, 1, 2)
        logits = logits + 1e5 * (mask[:, None, :, None] * mask[:, None, None, :] - 1)
        a = torch.softmax(logits, dim=-1)

        out = a @ torch.cat((v, v_pts.flatten(-2)), dim=-1)
        scalars = out[..., :c].transpose(1, 2).flatten(-2)
        points = out[..., c:].unflatten(-1, (Pv, 3)).transpose(1, 2).flatten(2, 3)  # (B, L, H Pv, 3)
        points = (points - t.unsqueeze(-2)) @ R  # rows times R: the inverse rotation
        norms = (points.square().sum(-1) + 1e-8).sqrt()
        pair = (a.transpose(1, 2) @ self.down_z(z)).flatten(-2)
        return self.linear_out(
            torch.cat((scalars, points.transpose(-1, -2).flatten(-2), norms, pair), dim=-1)
        )


def lecun_linear(n_in: int, n_out: int, *, gain: float = 1.0) -> nn.Linear:
    r"""Linear layer, weights from a cut normal of variance `gain` over fan-in, biases zero.

    The gain is kept on the layer, so that `initialise` can repeat the draw from a given generator.
    """
    layer = nn.Linear(n_in, n_out)
    layer.gain = gain
    draw_cut_normal(layer)
    return layer


def zero_linear(n_in: int, n_out: int) -> nn.Linear:
    """Linear layer that starts at zero: its residual branch is silent at first."""
    layer = nn.Linear(n_in, n_out)
    layer.gain = 0.0
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def draw_cut_normal(layer: nn.Linear, generator: torch.Generator | None = None) -> None:
    """Draw the weights of a layer made by `lecun_linear` anew."""
    std = math.sqrt(layer.gain / layer.in_features) / _CUT_STD
    with torch.no_grad():
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        nn.init.zeros_(layer.bias)


def _global_points(flat: Tensor, R: Tensor, t: Tensor, heads: int) -> Tensor:
    """Points of three blocks x, y, z, (B, L, 3 H P), in the common space: (B, H, L, P, 3)."""
    local = flat.unflatten(-1, (3, -1)).transpose(-1, -2)  # (B, L, H P, 3)
    points = local @ R.transpose(-1, -2) + t.unsqueeze(-2)
    return points.unflatten(2, (heads, -1)).transpose(1, 2)
