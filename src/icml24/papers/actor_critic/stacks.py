r"""Parameters of many equal networks as one flat tensor, and Adam on its rows.

A row holds one network: weights, biases and layer-norm gains one after another. Splitting the
row gives views, so a forward pass copies nothing and its backward pass is one concatenation;
Adam is a handful of operations on whole tensors, whatever the number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .networks import _forward, _spectral, split_off
from .plasticity import GUARD

__all__ = ["Adam", "Stack"]

HIDDEN_GAIN = math.sqrt(2)


class Stack:
    """`m` networks of equal shape in a tensor `flat` of shape (m, D).

    Parameters
    ----------
    sizes : sequence of int
        Inputs, hidden widths, outputs.
    generators : sequence of torch.Generator, length m
        Source of each network's weights; one generator may stand more than once.
    normed, spectral : range
        The networks with layer norm before activations, and those whose hidden-to-hidden matrices
        are divided by their spectral norm.
    doubled : bool
        CReLU in all of them, which doubles the inputs of every layer but the first.
    affine : bool
        Learn a gain and a bias after each layer norm.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        generators: Sequence[torch.Generator],
        *,
        normed: range = range(0),
        spectral: range = range(0),
        doubled: bool = False,
        affine: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.normed, self.spectral, self.doubled = normed, spectral, doubled
        self.affine = affine and bool(normed)
        self.generators, self.dtype = list(generators), dtype
        fan_in = [sizes[0], *((2 if doubled else 1) * width for width in sizes[1:-1])]
        self.layers = list(zip(fan_in, sizes[1:], strict=True))
        self.lengths: list[int] = []
        for k, (inputs, outputs) in enumerate(self.layers):
            gains = 2 if self.affine and k < len(self.layers) - 1 else 0
            self.lengths += [inputs * outputs, outputs] + [outputs] * gains
        every = torch.arange(len(self.generators))
        self.flat = self.fresh(every).requires_grad_()
        self.u = [self._directions(spectral, outputs) for _, outputs in self._hidden()] if spectral else []

    def parts(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor], list[tuple[Any, Any]] | None]:
        """Views of `flat`: weights (m, in, out), biases (m, out), layer-norm pairs or None."""
        pieces = iter(flat.split(self.lengths, 1))
        weights, biases, norms = [], [], []
        for k, (inputs, outputs) in enumerate(self.layers):
            weights.append(next(pieces).view(-1, inputs, outputs))
            biases.append(next(pieces))
            if self.normed and k < len(self.layers) - 1:
                norms.append((next(pieces), next(pieces)) if self.affine else (None, None))
        return weights, biases, norms if self.normed else None

    def __call__(
        self,
        flat: Tensor,
        x: Tensor,
        *,
        iterate: bool = False,
        keep: list[Tensor] | None = None,
        dropped: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Outputs (m, B, out) of the networks `flat` on x (m, B, in).

        `iterate` lets power iteration advance its directions; without it they are only used.
        """
        weights, biases, norms = self.parts(flat)
        if self.spectral:
            for j in range(len(self.u)):
                before, matrices, after = split_off(weights[j + 1], self.spectral)
                divided, u = _spectral(matrices, self.u[j], 1)
                weights[j + 1] = torch.cat([before, divided, after])
                if iterate:
                    self.u[j] = u
        return _forward(
            weights, biases, x, norms, self.doubled, keep=keep, dropped=dropped, normed=self.normed
        )

    def fresh(self, rows: Tensor) -> Tensor:
        """New parameters for some rows: orthogonal weights, zero biases, unit gains (0 where unused)."""
        used = torch.tensor([int(row) in self.normed for row in rows], dtype=self.dtype).unsqueeze(1)
        pieces = []
        for k in range(len(self.layers)):
            pieces += [self.fresh_weight(rows, k).flatten(1)]
            outputs = self.layers[k][1]
            zero = torch.zeros(len(rows), outputs, dtype=self.dtype)
            pieces += [zero]
            if self.affine and k < len(self.layers) - 1:
                pieces += [used.expand_as(zero), zero]
        return torch.cat(pieces, 1)

    def fresh_weight(self, rows: Tensor, k: int) -> Tensor:
        """Orthogonal matrices (rows, in, out) of layer `k`, each from its own generator."""
        inputs, outputs = self.layers[k]
        tall = max(inputs, outputs), min(inputs, outputs)
        draws = [torch.randn(tall, generator=self.generators[i], dtype=self.dtype) for i in rows.tolist()]
        q, r = torch.linalg.qr(torch.stack(draws))
        q = q * torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)  # uniform over orthogonal matrices
        gain = HIDDEN_GAIN if k < len(self.layers) - 1 else 1.0
        return gain * (q if inputs >= outputs else q.mT)

    def reset(self, rows: Tensor) -> None:
        """Draw some rows anew, power-iteration directions included."""
        with torch.no_grad():
            self.flat[rows] = self.fresh(rows)
            chosen = [row for row in rows.tolist() if row in self.spectral]
            for u, (_, outputs) in zip(self.u, self._hidden() if self.u else [], strict=True):
                if chosen:
                    u[[self.spectral.index(row) for row in chosen]] = self._directions(chosen, outputs)

    def recycle(
        self,
        rows: Tensor,
        activations: Sequence[Tensor],
        tau: float,
        *others: Tensor,
        moments: Sequence[Tensor],
    ) -> Tensor:
        """ReDo on some rows: recycle units with score at most `tau`; the number of units, by row.

        `activations` are the rows' hidden activations, (rows, B, width) a layer; `others` (targets)
        copy the new entries, `moments` become 0 there.
        """
        count = torch.zeros(len(rows))
        touched = torch.zeros(len(rows), self.flat.shape[1], dtype=torch.bool)
        fresh = self.flat.detach()[rows].clone()
        new, marks = self.parts(fresh), self.parts(touched)
        sleepers = []
        for k, active in enumerate(activations):
            size = active.detach().abs().mean(1)
            asleep = size / (size.mean(1, keepdim=True) + GUARD) <= tau  # (rows, width)
            sleepers.append(asleep)
            count += asleep.sum(1)
            new[0][k].copy_(torch.where(asleep[:, None], self.fresh_weight(rows, k), new[0][k]))
            new[1][k].masked_fill_(asleep, 0.0)
            marks[0][k].logical_or_(asleep[:, None])
            marks[1][k].logical_or_(asleep)
            if self.affine:
                used = torch.tensor([int(row) in self.normed for row in rows]).unsqueeze(1) & asleep
                for j, value in enumerate((1.0, 0.0)):
                    new[2][k][j].masked_fill_(used, value)
                    marks[2][k][j].logical_or_(used)
        for k, asleep in enumerate(sleepers):  # last: new rows above must not undo it
            new[0][k + 1].masked_fill_(asleep[:, :, None], 0.0)
            marks[0][k + 1].logical_or_(asleep[:, :, None])
        with torch.no_grad():
            self.flat[rows] = fresh
            for other in others:
                other[rows] = torch.where(touched, fresh, other[rows])
            for moment in moments:
                moment[rows] = moment[rows].masked_fill(touched, 0.0)
        return count

    def weight_factor(self, shrink: Tensor) -> Tensor:
        """Factors (m, D): ``1 - shrink`` (m,) on weights, 1 on biases and gains."""
        factor = torch.ones_like(self.flat, requires_grad=False)
        for weight in self.parts(factor)[0]:
            weight.mul_((1 - shrink).to(self.dtype)[:, None, None])
        return factor

    def _hidden(self) -> list[tuple[int, int]]:
        """Hidden-to-hidden layers: neither the first nor the last."""
        return self.layers[1:-1]

    def _directions(self, rows: Sequence[int], outputs: int) -> Tensor:
        draws = [torch.randn(outputs, generator=self.generators[i], dtype=self.dtype) for i in rows]
        return torch.nn.functional.normalize(torch.stack(draws), dim=1)


class Adam:
    """Adam on the rows of a tensor (m, D), each with its own count of steps.

    Parameters
    ----------
    like : Tensor, shape (m, D)
    lr : float
    beta1, beta2, eps : float
    """

    def __init__(
        self, like: Tensor, lr: float, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        self.first, self.second = (torch.zeros_like(like, requires_grad=False) for _ in range(2))
        self.steps = torch.zeros(len(like), 1, dtype=torch.float64)
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps

    @torch.no_grad()
    def step(
        self, value: Tensor, gradient: Tensor, *, alive: Tensor | None = None, factor: Tensor | None = None
    ) -> None:
        """One step in place. Rows that are not `alive` stay; `factor` is decoupled decay."""
        if alive is not None:
            gradient = torch.where(alive, gradient, 0.0)
        if factor is not None:
            value.mul_(factor if alive is None else torch.where(alive, factor, 1.0))
        self.steps += 1
        grown1, grown2 = 1 - self.beta1**self.steps, (1 - self.beta2**self.steps).sqrt()
        self.first.lerp_(gradient, 1 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        scale = (self.lr * grown2 / grown1).to(value.dtype)
        if alive is not None:
            scale = scale * alive
        ratio = self.second.sqrt().add_((self.eps * grown2).to(value.dtype))
        value.addcmul_(torch.div(self.first, ratio, out=ratio), scale, value=-1)

    def reset(self, rows: Tensor) -> None:
        """Forget the moments and the count of some rows."""
        self.first[rows] = 0.0
        self.second[rows] = 0.0
        self.steps[rows] = 0.0
