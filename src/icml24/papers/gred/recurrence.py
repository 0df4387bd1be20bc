r"""The diagonal complex recurrence over hops: its eigenvalues, and four ways to run it.

With :math:`\lambda \in \mathbb C^V` inside the unit disk and inputs :math:`u_0, \dots, u_K`, hop 0 first,

.. math:: c_K = u_K, \quad c_k = \lambda \circ c_{k+1} + u_k, \qquad c_0 = \sum_k \lambda^k \circ u_k

(eq-gred-recurrence, eq-gred-unrolled). `linear_recurrence` has three of the ways; `hop_recurrence`
is the fourth, the one that the layer uses: Horner's scheme with its own backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from icml24.common.checks import WrongType, finite, floating, number, positive, same_shape

__all__ = [
    "hop_recurrence",
    "init_lru_from_uniform",
    "linear_recurrence",
    "lru_eigenvalues",
    "scan_operator",
    "suffix_states",
]

METHODS = ("sum", "sequential", "scan")


def init_lru_from_uniform(
    u_mag: Tensor, u_phase: Tensor, *, r_min: float = 0.0, r_max: float = 1.0, max_phase: float = 6.28
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Logarithms that start the eigenvalues uniformly on a ring (eq-gred-ring, eq-gred-normalisation).

    .. math::

        \nu &= -\tfrac12 \log\bigl(u\,(r_{\max}^2 - r_{\min}^2) + r_{\min}^2\bigr), \qquad
        \theta = u' \theta_{\max} \\
        \gamma &= \sqrt{1 - |\lambda|^2} = \sqrt{1 - e^{-2\nu}}

    Parameters
    ----------
    u_mag, u_phase : Tensor, shape (V,), floating
        Uniform draws :math:`u, u'` in [0, 1).
    r_min, r_max : float
        Radii of the ring, ``0 <= r_min < r_max <= 1``.
    max_phase : float, default 6.28
        Largest angle in radians (the authors' 6.28 is not quite a full turn).

    Returns
    -------
    nu_log, theta_log, gamma_log : Tensor, shape (V,)
        Natural logarithms of :math:`\nu, \theta, \gamma`; dtype and device of the input.
        Finite also at the ends: a magnitude or an angle of zero is raised to the smallest normal number.

    Raises
    ------
    ValueError
        Radii out of order, draws outside [0, 1), shapes that differ.
    """
    r_min, r_max = ring_radii(r_min, r_max)
    max_phase = positive("max_phase", max_phase)
    for name, u in (("u_mag", u_mag), ("u_phase", u_phase)):
        if bool(((finite(name, u) < 0) | (u >= 1)).any()):
            raise ValueError(f"{name} must hold uniform draws in [0, 1)")
    same_shape("u_mag", u_mag, "u_phase", u_phase)
    info = torch.finfo(u_mag.dtype)
    square = (u_mag * (r_max**2 - r_min**2) + r_min**2).clamp(info.tiny, 1 - info.eps)
    nu = -0.5 * square.log()
    theta_log = (u_phase * max_phase).clamp_min(info.tiny).log()
    # expm1, not 1 - |lambda|^2: near the unit circle the difference would cancel
    return nu.log(), theta_log, 0.5 * torch.log(-torch.expm1(-2 * nu))


def lru_eigenvalues(nu_log: Tensor, theta_log: Tensor) -> Tensor:
    r"""Eigenvalues :math:`\lambda = \exp(-e^{\nu_{\log}} + i e^{\theta_{\log}})` (eq-gred-eigenvalues).

    Parameters
    ----------
    nu_log, theta_log : Tensor, one shape, floating

    Returns
    -------
    Tensor, same shape, complex64 or complex128
        Inside the unit disk for every finite input: :math:`|\lambda| = e^{-\nu} < 1`, up to rounding.
    """
    same_shape("nu_log", floating("nu_log", nu_log), "theta_log", floating("theta_log", theta_log))
    return torch.polar(torch.exp(-nu_log.exp()), theta_log.exp())


def linear_recurrence(lam: Tensor, u: Tensor, *, method: str = "sequential") -> Tensor:
    r"""Last state :math:`c_0 = \sum_k \lambda^k \circ u_k` of the recurrence that runs from far to near.

    Parameters
    ----------
    lam : Tensor, shape (V,), complex
        Eigenvalues.
    u : Tensor, shape (K+1, ..., V), complex
        Inputs, hop 0 first. Real tensors are read as complex ones, and where the precisions of the two
        differ the finer one holds.
    method : {"sequential", "sum", "scan"}
        Horner from the far hop inwards, O(K V) and no powers; the weighted sum with the powers of
        :math:`\lambda`; or the doubling scan, which does O(K log K) work in O(log K) steps.

    Returns
    -------
    Tensor, shape (..., V), complex

    Raises
    ------
    ValueError
        Unknown `method`, shapes that do not fit, no hop at all.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; expected one of {', '.join(METHODS)}")
    lam, u = _as_complex(lam, u)
    if method == "scan":
        return suffix_states(lam, u)[0]
    if method == "sum":
        return torch.einsum("kv,k...v->...v", _powers(lam, len(u)), u)
    state = u[-1]
    for k in range(len(u) - 2, -1, -1):
        state = torch.addcmul(u[k], lam, state)
    return state.clone() if len(u) == 1 else state


def scan_operator(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    r"""Composition of two affine maps :math:`c \mapsto a c + b`, `first` applied first (eq-gred-scan).

    .. math:: (a_1, b_1) \ast (a_2, b_2) = (a_2 a_1,\; a_2 b_1 + b_2)

    Associative, with identity (1, 0), which is what lets a scan regroup the hops.
    """
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


def suffix_states(lam: Tensor, u: Tensor) -> Tensor:
    r"""All states :math:`c_0, \dots, c_K` by recursive doubling.

    After round j, entry k holds the composition of the maps of hops k to :math:`k + 2^j - 1`.

    Parameters
    ----------
    lam, u : Tensor
        As in `linear_recurrence`.

    Returns
    -------
    Tensor, shape (K+1, ..., V), complex
        Entry 0 is the state that the layer reads.
    """
    a, b = lam, u = _as_complex(
        lam, u
    )  # every span but those cut off at the far end multiplies by the same power
    width = 1
    while width < len(u):
        joined, sums = scan_operator((a, b[width:]), (a, b[:-width]))
        b = torch.cat([sums, b[-width:]])
        a = joined
        width *= 2
    return b


def hop_recurrence(lam: Tensor, u: Tensor, *, dim: int = 0) -> Tensor:
    r"""Horner's scheme along axis `dim`, with a backward pass that holds one state a hop.

    Values are those of ``linear_recurrence(lam, u)``. With :math:`g_0` the gradient of :math:`c_0`,
    the backward pass is the same recurrence outwards, :math:`g_{k+1} = \bar\lambda \circ g_k`
    (eq-gred-gradient); it can be differentiated once only.

    Parameters
    ----------
    lam : Tensor, shape (V,), complex
    u : Tensor, shape (..., V), complex
        Hops along `dim`, hop 0 first.

    Returns
    -------
    Tensor
        Shape of `u` without `dim`.
    """
    return _Horner.apply(lam, u, dim)


class _Horner(torch.autograd.Function):
    """One complex multiply-add a hop; states are kept for the gradient of lambda alone."""

    @staticmethod
    def forward(ctx: Any, lam: Tensor, u: Tensor, dim: int) -> Tensor:
        hops = u.unbind(dim)
        ctx.dim, ctx.shape = dim, u.shape
        if not any(ctx.needs_input_grad):
            state = hops[-1].clone()
            for hop in reversed(hops[:-1]):
                state.mul_(lam).add_(hop)
            return state
        states = [hops[-1].clone()]
        for hop in reversed(hops[:-1]):
            states.append(torch.addcmul(hop, lam, states[-1]))
        ctx.save_for_backward(lam, *states[:-1])
        return states[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        lam, *far = ctx.saved_tensors  # c_K first, c_1 last
        conjugate = lam.conj().resolve_conj()
        rows = tuple(range(grad.ndim - 1))
        grad_u, grad_lam = grad.new_empty(ctx.shape), torch.zeros_like(lam)
        slots = grad_u.unbind(ctx.dim)  # the layout of u: what follows is a product, without a copy
        slots[0].copy_(grad)
        for near, here, state in zip(slots[:-1], slots[1:], reversed(far), strict=True):
            product = state.conj() * near
            grad_lam += product.sum(rows) if rows else product
            torch.mul(near, conjugate, out=here)
        return grad_lam, grad_u, None


def _powers(lam: Tensor, count: int) -> Tensor:
    """1, lam, lam^2, ... by repeated products: complex pow is slow, and loses the gradient at power 0."""
    powers = [torch.ones_like(lam)]
    for _ in range(count - 1):
        powers.append(powers[-1] * lam)
    return torch.stack(powers)


def ring_radii(r_min: float, r_max: float) -> tuple[float, float]:
    """The two radii, after their check."""
    low, high = number("r_min", r_min), number("r_max", r_max)
    if not 0 <= low < high <= 1:
        raise ValueError(f"expected 0 <= r_min < r_max <= 1; got r_min {low} and r_max {high}")
    return low, high


def _as_complex(lam: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one complex dtype, after the checks: a real result would lose the imaginary part."""
    for name, x in (("lam", lam), ("u", u)):
        if not isinstance(x, Tensor) or not (x.is_complex() or x.is_floating_point()):
            raise WrongType(f"{name} must be a complex tensor; convert it, as in {name}.to(torch.complex128)")
    if lam.ndim != 1 or u.ndim < 2 or u.shape[-1] != len(lam):
        raise ValueError(
            f"expected lam (V,) and u (K+1, ..., V); got {tuple(lam.shape)} and {tuple(u.shape)}"
        )
    if len(u) == 0:
        raise ValueError("u must hold at least hop 0; got shape " + str(tuple(u.shape)))
    dtype = torch.promote_types(torch.promote_types(lam.dtype, u.dtype), torch.complex64)
    return lam.to(dtype), u.to(dtype)
