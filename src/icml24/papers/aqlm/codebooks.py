r"""The continuous half of a round: codebooks and scales for fixed codes, by Adam or exactly.

With :math:`D = \hat W - W` the loss :math:`\mathrm{tr}(D G D^\top)/d_{out}` has the gradient
:math:`2 D G / d_{out}` in :math:`\hat W`. A codebook word collects it, times the scale, from every
block that uses the word; a scale collects its inner product with the unscaled row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icml24.common import checks

from . import _validate
from .formats import blocks, matrix, partition

__all__ = ["CodebookAdam", "least_squares_codebooks", "update_codebooks"]


class CodebookAdam:
    """Codebooks and scales of one layer with their Adam state, which outlives changes of the codes."""

    def __init__(
        self,
        weight: Tensor,
        codebooks: Tensor,
        scales: Tensor,
        gram: Tensor,
        *,
        lr: float,
        betas: tuple[float, float],
        amsgrad: bool,
    ) -> None:
        self.weight, self.gram = weight.detach(), gram.detach()
        self.codebooks, self.scales = (part.detach().clone() for part in (codebooks, scales))
        self.steps = 0
        self._adam = torch.optim.Adam([self.codebooks, self.scales], lr=lr, betas=betas, amsgrad=amsgrad)

    def error(self, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss / out_features, the gradient in the dequantised weight, and the unscaled blocks."""
        plain = blocks(codes, self.codebooks)
        wide = torch.promote_types(self.weight.dtype, self.gram.dtype)
        rest = (matrix(plain * self.scales) - self.weight).to(wide)
        slope = rest @ self.gram.to(wide)
        loss = (slope * rest).sum() / len(rest)
        return loss, (slope * (2 / len(rest))).to(self.weight.dtype), plain

    def step(self, codes: Tensor) -> float:
        """One Adam step for int64 `codes`; returns the loss before it."""
        loss, slope, plain = self.error(codes)
        value = float(loss)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the layer error is {value} at step {self.steps}; lower lr, or check weight and gram"
            )
        books, words, g_out, g_in = self.codebooks.shape
        parts = partition(slope, g_out, g_in)
        self.scales.grad = (parts * plain).sum((1, 2, 3)).view_as(self.scales)
        pushed = (parts * self.scales).reshape(-1, g_out * g_in)
        grad = pushed.new_zeros(books * words, g_out * g_in)
        for m in range(books):
            grad.index_add_(0, (codes[..., m] + m * words).flatten(), pushed)
        self.codebooks.grad = grad.view_as(self.codebooks)
        self._adam.step()
        self.steps += 1
        return value


def update_codebooks(
    weight: Tensor,
    codes: Tensor,
    codebooks: Tensor,
    scales: Tensor,
    gram: Tensor,
    *,
    steps: int = 100,
    lr: float = 1e-4,
    betas: tuple[float, float] = (0.0, 0.95),
    amsgrad: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Full-batch Adam steps on codebooks and scales, with the codes fixed.

    Parameters
    ----------
    weight : Tensor, shape (out_features, in_features)
    codes : Tensor, shape (O, I, M), integer
    codebooks : Tensor, shape (M, K, g_out, g_in)
    scales : Tensor, shape (O, 1, 1, 1)
    gram : Tensor, shape (in_features, in_features)
    steps : int, default 100
    lr : float, default 1e-4
    betas : (float, float), default (0.0, 0.95)
        As the released code has them; the paper's appendix C names (0.9, 0.95).
    amsgrad : bool, default True

    Returns
    -------
    (Tensor, Tensor, Tensor)
        Codebooks, scales (new tensors), and the loss before each step, shape (steps,).

    Raises
    ------
    ValueError
        ``steps < 1``, ``lr <= 0``, betas outside [0, 1), shapes that do not fit.
    FloatingPointError
        The loss is not finite; the message names the step.
    """
    _validate.problem(weight, codes, codebooks, scales, gram)
    checks.whole("steps", steps, 1)
    checks.positive("lr", lr)
    check_betas(betas)
    state = CodebookAdam(weight, codebooks, scales, gram, lr=lr, betas=betas, amsgrad=amsgrad)
    codes = codes.long()
    losses = [state.step(codes) for _ in range(steps)]
    return state.codebooks, state.scales, torch.tensor(losses, dtype=codebooks.dtype)


def check_betas(betas: tuple[float, float]) -> None:
    """Two decay rates in [0, 1)."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1); got {betas}")


def least_squares_codebooks(
    weight: Tensor, codes: Tensor, codebooks: Tensor, scales: Tensor, gram: Tensor
) -> Tensor:
    r"""The codebooks of least layer error, for fixed codes and scales.

    Writing row `i` of :math:`\hat W` as :math:`B_i c`, the minimiser solves

    .. math:: \Bigl(\sum_i B_i^\top G B_i\Bigr) c = \sum_i B_i^\top G w_i .

    The matrix is singular (unused words; a vector may move from one codebook to another), so
    the solution nearest to `codebooks` is returned.

    Parameters
    ----------
    weight, codes, codebooks, scales, gram
        As `update_codebooks`.

    Returns
    -------
    Tensor, shape (M, K, g_out, g_in)
        Dtype of `codebooks`; the work is done in float64. Unused words do not move.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite.

    Notes
    -----
    Source: eq-aqlm-normal. Cost ``(M K g_in)**3``: for small layers. The output rows of a group
    share one matrix, so ``g_out`` only adds right-hand sides.
    """
    _validate.problem(weight, codes, codebooks, scales, gram)
    codes = codes.long()
    books, words, g_out, g_in = codebooks.shape
    c, s, w, g = (part.detach().double() for part in (codebooks, scales, weight, gram))
    groups_out, groups_in = codes.shape[:2]
    rest = w - matrix(blocks(codes, c, s))
    first = words * torch.arange(books, device=codes.device)
    places = (codes + first).flatten(1)  # [O, I M]: rows of the stacked codebooks
    size = books * words
    corner = g.view(groups_in, g_in, groups_in, g_in).repeat_interleave(books, 0)
    normal = g.new_zeros(size, g_in, size, g_in)
    for i in range(groups_out):
        half = g.new_zeros(size, g_in, groups_in, g_in).index_add_(0, places[i], corner)
        half = half.repeat_interleave(books, 2)
        normal.index_add_(2, places[i], half, alpha=float(s[i]) ** 2)
    pull = (partition(rest @ g, g_out, g_in) * s).repeat_interleave(books, 1)  # [O, I M, g_out, g_in]
    right = g.new_zeros(size, g_out, g_in).index_add_(0, places.flatten(), pull.flatten(0, 1))
    change = _smallest_solution(
        normal.view(size * g_in, -1), right.transpose(1, 2).reshape(size * g_in, g_out)
    )
    moved = change.view(books, words, g_in, g_out).transpose(2, 3)
    return (c + moved).to(codebooks.dtype)


def _smallest_solution(matrix_: Tensor, right: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((matrix_ + matrix_.T) / 2)
    keep = values > values[-1] * len(values) * torch.finfo(values.dtype).eps
    return vectors[:, keep] @ ((vectors[:, keep].T @ right) / values[keep, None])
