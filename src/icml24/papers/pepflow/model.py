r"""PepFlow: encode the pocket once, then denoise frames, torsions and types together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icml24.common.rotations import random_so3

from .attention import draw_cut_normal
from .batches import validate
from .config import PepFlowConfig
from .embedders import EdgeEmbedder, NodeEmbedder
from .encoder import GAEncoder
from .flows import INTEGRATORS, State, euler_step, interpolate, merge
from .frames import backbone_frames, full_atom_reconstruction
from .losses import flow_losses
from .residues import TORSION_MASK, UNK
from .simplex import draw_types, sequence_to_logits

__all__ = ["PepFlow", "initialise"]

Batch = dict[str, Tensor]

#: The official sizes.
OFFICIAL = PepFlowConfig()


class PepFlow(nn.Module):
    r"""The model.

    A batch is a dict: ``aa``, ``res_nb``, ``chain_nb`` (B, L) long; ``pos`` (B, L, 15, 3) in angstrom;
    ``atom_mask`` (B, L, 15), ``gen_mask``, ``res_mask`` (B, L) bool; ``torsion`` (B, L, 5) in radians.
    Rows that pad have type 21 and masks False. Floating inputs are cast to the parameters' dtype.
    Positions are relative to the centre of the pocket, in training the peptide's mean CA: the prior
    of the positions sits at the origin.

    Parameters
    ----------
    cfg : PepFlowConfig
    generator : torch.Generator, optional
        Source of the initial weights; without one torch's global generator is used, as every module does.

    Raises
    ------
    KeyError, ValueError
        Of all methods that take a batch: a key is missing or has the wrong shape (the message names
        it), no residue is generated or there is no receptor, a generated residue lacks N, CA or C.
    """

    def __init__(self, cfg: PepFlowConfig = OFFICIAL, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.cfg = cfg
        with torch.random.fork_rng(devices=[], enabled=generator is not None):
            self.node_embedder = NodeEmbedder(cfg.c_s)
            self.edge_embedder = EdgeEmbedder(cfg.c_z)
            self.ga_encoder = GAEncoder(cfg)
        if generator is not None:
            initialise(self, generator)

    def clean(self, batch: Batch) -> State:
        r"""Return the data as a `State`: frames and CA positions, torsions, logits at :math:`\pm k`.

        Rows without N, CA and C get the identity as their orientation.
        """
        return self._clean(validate(batch, self._dtype()))

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Features of residues (B, L, c_s) and pairs (B, L, L, c_z); nothing of the peptide is read."""
        return self._encode(validate(batch, self._dtype()))

    def prior(self, x1: State, gen_mask: Tensor, generator: torch.Generator | None = None) -> State:
        r"""Draw noise for the generated rows; all others keep their clean values.

        Positions are normal with standard deviation sigma, then shifted so that the peptide's mean is
        zero (eq-pepflow-prior); orientations Haar; angles uniform, all five of them; logits normal
        with standard deviation `k`.
        """
        like = {"dtype": x1.trans.dtype, "device": x1.trans.device}
        B, L = x1.trans.shape[:2]
        if gen_mask.dtype != torch.bool or gen_mask.shape != (B, L):
            raise ValueError(
                f"gen_mask must be a bool tensor of shape ({B}, {L}); got {tuple(gen_mask.shape)}"
            )
        if not bool(gen_mask.any(1).all()):
            raise ValueError("gen_mask selects no residue in some complex; there is nothing to draw")
        rotmats = random_so3((B, L), generator=generator, **like)
        x = self.cfg.sigma * torch.randn(B, L, 3, generator=generator, **like)
        gen = gen_mask.to(x).unsqueeze(-1)
        x = x - (x * gen).sum(1, keepdim=True) / gen.sum(1, keepdim=True).clamp_min(1.0)
        angles = 2 * torch.pi * torch.rand(B, L, 5, generator=generator, **like)
        logits = self.cfg.simplex_value * torch.randn(B, L, 20, generator=generator, **like)
        return merge(gen_mask, State(rotmats, x, angles, logits), x1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Six losses at one random time a complex (see `flow_losses`); weight them by `LOSS_WEIGHTS`."""
        batch = validate(batch, self._dtype())
        return self.flow_loss(batch, batch["gen_mask"], batch["gen_mask"], batch["gen_mask"], generator)

    def flow_loss(
        self,
        batch: Batch,
        free_bb: Tensor,
        free_ang: Tensor,
        free_seq: Tensor,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """Losses when only the rows `free_*` of each modality are noised (the ablation fixes some)."""
        gen, seq = batch["gen_mask"], batch["aa"]
        x1 = self._clean(batch)
        node, edge = self._encode(batch)
        span = 1 - 2 * self.cfg.min_t
        t = self.cfg.min_t + span * torch.rand(len(seq), generator=generator, dtype=x1.trans.dtype)
        t = t.to(x1.trans.device)
        xt = interpolate(x1, self.prior(x1, gen, generator), t, gen)
        xt = _fix(xt, x1, free_bb, free_ang, free_seq)
        current = torch.where(free_seq, draw_types(xt.logits, generator=generator), seq)
        R, x, a, logits = self.ga_encoder(t, *xt[:3], current, node, edge, batch["res_mask"])
        mask = TORSION_MASK.to(seq.device)[draw_types(logits, generator=generator)]
        return flow_losses(R, x, a, logits, x1, xt, seq, t, gen, mask, t_clip=self.cfg.t_clip)

    @torch.no_grad()
    def sample(
        self,
        batch: Batch,
        n_steps: int = 100,
        *,
        sample_bb: bool = True,
        sample_ang: bool = True,
        sample_seq: bool = True,
        generator: torch.Generator | None = None,
        integrator: str = "geodesic",
    ) -> Batch:
        r"""Design the generated residues, or the modalities of them that are not held fixed.

        Parameters
        ----------
        batch : dict
            Fixed modalities of the peptide are read from it; free ones are not.
        n_steps : int, default 100
            Times ``linspace(min_t, 1, n_steps)``, one network call at each.
        sample_bb, sample_ang, sample_seq : bool
            What is free: backbone frames, torsions, types.
        generator : torch.Generator, optional
            One generator gives one sample.
        integrator : {"geodesic", "released"}
            See `euler_step`.

        Returns
        -------
        dict
            ``rotmats``, ``trans``, ``angles``, ``seq`` and ``pos14`` (B, L, 14, 3). Receptor rows and
            fixed modalities are the batch's. The answer is the last *prediction*, not the integrated
            state.

        Raises
        ------
        ValueError
            ``n_steps < 2``, an unknown integrator, or nothing to sample.
        """
        if isinstance(n_steps, bool) or int(n_steps) != n_steps or n_steps < 2:
            raise ValueError(f"n_steps must be an integer of at least 2 (first and last time); got {n_steps}")
        if integrator not in INTEGRATORS:
            raise ValueError(f"unknown integrator {integrator!r}; expected one of {INTEGRATORS}")
        if not (sample_bb or sample_ang or sample_seq):
            raise ValueError("nothing to sample: set at least one of sample_bb, sample_ang, sample_seq")
        batch = validate(batch, self._dtype())
        gen, seq = batch["gen_mask"], batch["aa"]
        free = [gen & flag for flag in (sample_bb, sample_ang, sample_seq)]
        has = TORSION_MASK.to(seq.device)
        x1 = self._clean(batch)
        node, edge = self._encode(batch)
        x0 = xt = _fix(self.prior(x1, gen, generator), x1, *free)
        current = torch.where(free[2], draw_types(xt.logits, generator=generator), seq)
        times = torch.linspace(self.cfg.min_t, 1.0, int(n_steps), dtype=torch.float64).tolist()
        for t, after in zip(times, [*times[1:], None], strict=True):
            now = torch.full((len(seq),), t, dtype=x1.trans.dtype, device=seq.device)
            R, x, a, logits = self.ga_encoder(now, *xt[:3], current, node, edge, batch["res_mask"])
            drawn = torch.where(free[2], draw_types(logits, generator=generator), seq)
            a = a * has[drawn.clamp_max(UNK)]
            clean = sequence_to_logits(drawn, self.cfg.simplex_value, dtype=x.dtype)
            pred = _fix(State(R, x, a, clean), x1, *free)
            if after is None:
                break
            xt = euler_step(
                *(xt, pred, t, after - t), x0=x0, rot_rate=self.cfg.rot_rate, integrator=integrator
            )
            xt = _fix(xt, x1, *free)
            current = torch.where(free[2], draw_types(xt.logits, generator=generator), seq)
            kept = xt.angles * has[current.clamp_max(UNK)]
            xt = xt._replace(angles=torch.where(free[1].unsqueeze(-1), kept, xt.angles))
        return {
            "rotmats": pred.rotmats,
            "trans": pred.trans,
            "angles": pred.angles,
            "seq": drawn,
            "pos14": full_atom_reconstruction(*pred[:3], drawn),
        }

    def _dtype(self) -> torch.dtype:
        return self.node_embedder.aatype_embed.weight.dtype

    def _clean(self, batch: Batch) -> State:
        pos = batch["pos"]
        R, x = backbone_frames(pos[..., 0, :], pos[..., 1, :], pos[..., 2, :])
        complete = batch["atom_mask"][..., :3].all(-1)[..., None, None]
        R = torch.where(complete, R, torch.eye(3, dtype=R.dtype, device=R.device))
        logits = sequence_to_logits(batch["aa"], self.cfg.simplex_value, dtype=x.dtype)
        return State(R, x, batch["torsion"], logits)

    def _encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        known = batch["atom_mask"][..., 1] & ~batch["gen_mask"]
        inputs = [batch[key] for key in ("aa", "res_nb", "chain_nb", "pos", "atom_mask")]
        return self.node_embedder(*inputs, known), self.edge_embedder(*inputs, known)


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew from one generator, each layer from its own law, in the order of modules."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and hasattr(module, "gain"):
                if module.gain > 0:
                    draw_cut_normal(module, generator)
            elif isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                for parameter in (module.weight, module.bias):
                    parameter.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, nn.Embedding):
                if module.embedding_dim != 225:  # the distance coefficients stay at zero
                    module.weight.normal_(generator=generator)
            elif isinstance(module, nn.MultiheadAttention):
                bound = (6 / (4 * module.embed_dim)) ** 0.5
                module.in_proj_weight.uniform_(-bound, bound, generator=generator)


def _fix(state: State, x1: State, bb: Tensor, ang: Tensor, seq: Tensor) -> State:
    """Clean values wherever a modality is not free."""
    return State(
        torch.where(bb[..., None, None], state.rotmats, x1.rotmats),
        torch.where(bb.unsqueeze(-1), state.trans, x1.trans),
        torch.where(ang.unsqueeze(-1), state.angles, x1.angles),
        torch.where(seq.unsqueeze(-1), state.logits, x1.logits),
    )
