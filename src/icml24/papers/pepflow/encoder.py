r"""The denoiser: attention, transformer and frame updates in turn (eq-pepflow-update)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from icml24.common.rotations import quaternion_rotation

from .attention import InvariantPointAttention, lecun_linear, zero_linear
from .config import PepFlowConfig
from .embedders import TYPES, AngularEncoding, mlp
from .torus import positive

__all__ = ["GAEncoder", "time_embedding"]

#: Times are stretched by this factor before they are encoded.
MAX_POSITIONS = 2056


def time_embedding(t: Tensor, dim: int) -> Tensor:
    r"""Sines and cosines of :math:`2056\,t\,e^{-i\ln 2056/(c/2-1)}`; (B,) to (B, dim), `dim` even."""
    half = dim // 2
    i = torch.arange(half, dtype=t.dtype, device=t.device)
    phase = MAX_POSITIONS * t.unsqueeze(-1) * torch.exp(-math.log(MAX_POSITIONS) / max(half - 1, 1) * i)
    return torch.cat((phase.sin(), phase.cos()), dim=-1)


class GAEncoder(nn.Module):
    r"""From a noisy state and the context to predicted clean values.

    Parameters
    ----------
    cfg : PepFlowConfig
    """

    def __init__(self, cfg: PepFlowConfig) -> None:
        super().__init__()
        self.cfg = cfg
        c = cfg.c_s
        self.angles_embedder = AngularEncoding(12)
        self.angle_net = mlp(c, c, c, 5)
        self.seq_net = mlp(c, c, c, 20)
        self.current_seq_embedder = nn.Embedding(TYPES, c)
        self.res_feat_mixer = mlp(3 * c + 245, c, c)
        self.trunk = nn.ModuleDict()
        for b in range(cfg.num_blocks):
            self.trunk[f"ipa_{b}"] = InvariantPointAttention(
                c, cfg.c_z, cfg.c_hidden, cfg.no_heads, cfg.no_qk_points, cfg.no_v_points
            )
            self.trunk[f"ipa_ln_{b}"] = nn.LayerNorm(c)
            layer = nn.TransformerEncoderLayer(
                c, cfg.seq_tfmr_num_heads, dim_feedforward=c, dropout=0.0, batch_first=True
            )
            self.trunk[f"seq_tfmr_{b}"] = nn.TransformerEncoder(
                layer, cfg.seq_tfmr_num_layers, enable_nested_tensor=False
            )
            self.trunk[f"post_tfmr_{b}"] = zero_linear(c, c)
            self.trunk[f"node_transition_{b}"] = NodeTransition(c)
            self.trunk[f"bb_update_{b}"] = FrameUpdate(c)
            if b < cfg.num_blocks - 1:
                self.trunk[f"edge_transition_{b}"] = EdgeTransition(c, cfg.c_z)

    def forward(
        self,
        t: Tensor,
        R: Tensor,
        x: Tensor,
        angles: Tensor,
        seq: Tensor,
        node: Tensor,
        edge: Tensor,
        res_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Predict.

        Parameters
        ----------
        t : Tensor, shape (B,) or (B, 1)
        R, x, angles : Tensor, shapes (B, L, 3, 3), (B, L, 3), (B, L, 5)
            Noisy orientations, positions (angstrom), angles (radians).
        seq : LongTensor, shape (B, L)
            Current types, 0 to 21.
        node, edge : Tensor, shapes (B, L, c_s) and (B, L, L, c_z)
            Context from the embedders.
        res_mask : BoolTensor, shape (B, L)
            Rows that exist.

        Returns
        -------
        R, x, angles, logits : Tensor, shapes (B, L, 3, 3), (B, L, 3), (B, L, 5), (B, L, 20)
            All rows are predicted; only generated ones mean anything. Angles in :math:`[0, 2\pi)`.

        Raises
        ------
        ValueError
            A shape that does not fit, such as `angles` without five columns.
        """
        if seq.ndim != 2:
            raise ValueError(f"seq must have shape (B, L); got {tuple(seq.shape)}")
        B, L = seq.shape
        c, z = self.cfg.c_s, self.cfg.c_z
        for name, value, tail in (
            ("R", R, (L, 3, 3)), ("x", x, (L, 3)), ("angles", angles, (L, 5)), ("node", node, (L, c)),
            ("edge", edge, (L, L, z)), ("res_mask", res_mask, (L,)),
        ):  # fmt: skip
            if value.shape != (B, *tail):
                raise ValueError(f"{name} must have shape {(B, *tail)}; got {tuple(value.shape)}")
        if t.numel() != B:
            raise ValueError(f"t must hold one time a complex, shape ({B},); got {tuple(t.shape)}")
        time = time_embedding(t.reshape(B).to(x), self.cfg.c_s).unsqueeze(1).expand(B, L, -1)
        coded = self.angles_embedder(angles).flatten(-2)
        mask, exists = res_mask.to(x).unsqueeze(-1), res_mask.bool()
        s = self.res_feat_mixer(torch.cat((node, self.current_seq_embedder(seq), time, coded), dim=-1)) * mask
        z, pair_mask = edge, (exists.unsqueeze(1) & exists.unsqueeze(2)).unsqueeze(-1)
        for b in range(self.cfg.num_blocks):
            block = {name.rsplit("_", 1)[0]: m for name, m in self.trunk.items() if name.endswith(f"_{b}")}
            s = block["ipa_ln"](s + block["ipa"](s, z, R, x, exists) * mask)
            s = s + block["post_tfmr"](block["seq_tfmr"](s, src_key_padding_mask=~exists))
            s = block["node_transition"](s) * mask
            R, x = block["bb_update"](s, R, x, mask)
            if b < self.cfg.num_blocks - 1:
                z = block["edge_transition"](s, z) * pair_mask
        return R, x, positive(self.angle_net(s)), self.seq_net(s)


class NodeTransition(nn.Module):
    """Three-layer residual network with a layer norm at its end."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.linear_1, self.linear_2 = lecun_linear(c, c, gain=2.0), lecun_linear(c, c, gain=2.0)
        self.linear_3, self.ln = zero_linear(c, c), nn.LayerNorm(c)

    def forward(self, s: Tensor) -> Tensor:
        return self.ln(s + self.linear_3(self.linear_2(self.linear_1(s).relu()).relu()))


class EdgeTransition(nn.Module):
    """Pair features updated from both residues' features."""

    def __init__(self, c_s: int, c_z: int) -> None:
        super().__init__()
        wide = c_z + 2 * (c_s // 2)
        self.initial_embed = lecun_linear(c_s, c_s // 2, gain=2.0)
        self.trunk = nn.Sequential(
            lecun_linear(wide, wide, gain=2.0), nn.ReLU(), lecun_linear(wide, wide, gain=2.0), nn.ReLU()
        )
        self.final_layer = zero_linear(wide, c_z)
        self.layer_norm = nn.LayerNorm(c_z)

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        e = self.initial_embed(s)
        first, *rest = self.trunk
        hidden = _on_pairs(first, z, e)
        for layer in rest:
            hidden = layer(hidden)
        final = self.final_layer
        return self.layer_norm(nn.functional.linear(hidden, final.weight) + _on_pairs(final, z, e))


def _on_pairs(layer: nn.Linear, z: Tensor, e: Tensor) -> Tensor:
    """Apply a layer to [z_ij, e_i, e_j] without building it: what depends on one residue is done once."""
    on_pair, on_row, on_column = layer.weight.split((z.shape[-1], e.shape[-1], e.shape[-1]), dim=1)
    linear = nn.functional.linear
    single = linear(e, on_row, layer.bias).unsqueeze(2) + linear(e, on_column).unsqueeze(1)
    return linear(z, on_pair) + single


class FrameUpdate(nn.Module):
    r"""Six numbers a residue: a small rotation and a shift, both in the residue's own frame."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.linear = zero_linear(c, 6)

    def forward(self, s: Tensor, R: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Compose; masked rows keep their frames."""
        q, v = (self.linear(s) * mask).split(3, dim=-1)
        return R @ _rotation_of(q), x + (R @ v.unsqueeze(-1)).squeeze(-1)


def _rotation_of(q: Tensor) -> Tensor:
    """Rotation of the normalised quaternion (1, q); (..., 3) to (..., 3, 3)."""
    w = (1 + q.square().sum(-1, keepdim=True)).rsqrt()
    return quaternion_rotation(torch.cat((w, q * w), dim=-1))
