r"""Tanh networks and their exact derivatives, layer by layer (eq-partial_crown-first, eq-partial_crown-second).

The recursions that the certifier bounds are the ones that training differentiates: one closed form for
both, no nested automatic differentiation. Inputs are physical; the fixed normalisation to [-1, 1] is part
of the network, and derivatives are with respect to the physical coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from icml24.common.checks import WrongType, floating, whole
from icml24.common.random import generator as named_generator

from ._checks import as_double

__all__ = ["TanhMLP", "network_derivatives", "streams"]


class TanhMLP(nn.Module):
    r"""Fully connected tanh network on a box, with the normalisation :math:`z = 2(x - l)/(u - l) - 1` inside.

    Parameters
    ----------
    widths : sequence of int
        Inputs, hidden widths, outputs, as in ``[2, 20, 20, 1]``; at least two entries, each positive.
    lower, upper : array_like, shape (d,)
        The box that is mapped to :math:`[-1, 1]^d`; ``lower < upper``.
    generator : torch.Generator, optional
        Draws the Xavier-normal weights; None is a fixed stream of its own. Biases start at zero.
    dtype : torch.dtype, default torch.float64
        Of parameters and buffers.

    Attributes
    ----------
    weights, biases : ParameterList
        ``weights[k]`` has shape (n_{k+1}, n_k).
    lower, upper : Tensor, shape (d,)
        Buffers.

    Raises
    ------
    ValueError
        Bad widths or corners.
    """

    def __init__(
        self,
        widths: Sequence[int],
        lower: Any,
        upper: Any,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        sizes = [whole("widths", w, 1) for w in widths]
        if len(sizes) < 2:
            raise ValueError(
                f"widths must name inputs and outputs at least, as in [2, 20, 1]; got {widths!r}"
            )
        low, high = as_double("lower", lower), as_double("upper", upper)
        if low.shape != (sizes[0],) or high.shape != (sizes[0],):
            raise ValueError(
                f"lower and upper must have shape ({sizes[0]},); got {tuple(low.shape)} and {tuple(high.shape)}"
            )
        if bool((low >= high).any()):
            raise ValueError("lower must be below upper in every coordinate of the network's box")
        if not dtype.is_floating_point:
            raise WrongType(f"dtype must be a floating dtype; got {dtype}")
        draws = named_generator(0, "TanhMLP") if generator is None else generator
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in itertools.pairwise(sizes):
            scale = (2.0 / (fan_in + fan_out)) ** 0.5
            self.weights.append(
                nn.Parameter(scale * torch.randn(fan_out, fan_in, generator=draws, dtype=dtype))
            )
            self.biases.append(nn.Parameter(torch.zeros(fan_out, dtype=dtype)))
        self.register_buffer("lower", low.to(dtype))
        self.register_buffer("upper", high.to(dtype))

    @classmethod
    def from_arrays(cls, weights: Sequence[Any], biases: Sequence[Any], lower: Any, upper: Any) -> TanhMLP:
        """Network with given parameters.

        Parameters
        ----------
        weights, biases : sequences of array_like
            ``weights[k]`` of shape (n_{k+1}, n_k), ``biases[k]`` of shape (n_{k+1},). float32 arrays give a
            float32 network; lists and everything else float64.
        lower, upper : array_like, shape (d,)

        Raises
        ------
        ValueError
            Shapes that do not chain (the hidden activation is always tanh: no other kind of layer can be
            described), or NaN and infinity.
        """
        if len(weights) == 0 or len(weights) != len(biases):
            raise ValueError(
                f"expected as many biases as weights, at least one; got {len(weights)}, {len(biases)}"
            )
        single = all(_is_single(a) for a in (*weights, *biases))
        ws = [as_double(f"weights[{k}]", w) for k, w in enumerate(weights)]
        bs = [as_double(f"biases[{k}]", b) for k, b in enumerate(biases)]
        for k, (w, b) in enumerate(zip(ws, bs, strict=True)):
            if w.ndim != 2 or b.shape != w.shape[:1] or (k and w.shape[1] != ws[k - 1].shape[0]):
                raise ValueError(
                    f"layer {k} does not fit a tanh network: weights {tuple(w.shape)}, biases {tuple(b.shape)}"
                    + (f", after a layer of {ws[k - 1].shape[0]} outputs" if k else "")
                )
        widths = [ws[0].shape[1], *(w.shape[0] for w in ws)]
        net = cls(widths, lower, upper, dtype=torch.float32 if single else torch.float64)
        with torch.no_grad():
            for target, value in zip((*net.weights, *net.biases), (*ws, *bs), strict=True):
                target.copy_(value)
        return net

    @property
    def dimension(self) -> int:
        """Number of inputs."""
        return self.weights[0].shape[1]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.weights[-1].shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Values (N, out) at physical points `x` (N, d), in the wider of the two dtypes."""
        return streams(self, x, first=(), second=())[0]


def network_derivatives(net: TanhMLP, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Values, gradients and diagonal second derivatives in closed form.

    .. math:: d^k = \sigma'(y^k) \circ W^k d^{k-1}, \qquad
       h^k = \sigma''(y^k) \circ (W^k d^{k-1})^2 + \sigma'(y^k) \circ W^k h^{k-1}

    Parameters
    ----------
    net : TanhMLP
    x : Tensor, shape (N, d), floating
        Physical coordinates, order (t, x).

    Returns
    -------
    u : Tensor, shape (N, out)
    du : Tensor, shape (N, out, d)
    d2u : Tensor, shape (N, out, d)
        Second derivative twice in the same coordinate. All in the wider of the dtypes of `net` and `x`,
        and differentiable in parameters and `x`.

    Raises
    ------
    TypeError
        `x` is no floating tensor.
    ValueError
        `x` is not (N, d).

    Notes
    -----
    Source: eq-partial_crown-first and eq-partial_crown-second. Evaluate in float64 to compare with a bound.
    """
    every = tuple(range(net.dimension))
    u, du, d2u = streams(net, x, first=every, second=every)
    return u, torch.stack([du[i] for i in every], -1), torch.stack([d2u[i] for i in every], -1)


def streams(
    net: TanhMLP, x: Tensor, *, first: Sequence[int], second: Sequence[int]
) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
    """Values and the derivatives asked for, by coordinate; `second` must be among `first`."""
    floating("x", x)
    if x.ndim != 2 or x.shape[1] != net.dimension:
        raise ValueError(f"x must have shape (N, {net.dimension}); got {tuple(x.shape)}")
    dtype = torch.promote_types(x.dtype, net.weights[0].dtype)
    lower, upper = net.lower.to(dtype), net.upper.to(dtype)
    scale = 2 / (upper - lower)
    z = (x.to(dtype) - lower) * scale - 1
    d: dict[int, Tensor] = {}
    h: dict[int, Tensor] = {}
    last = len(net.weights) - 1
    for k, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        w = weight.to(dtype)
        y = z @ w.T + bias.to(dtype)
        v = {i: d[i] @ w.T if k else (scale[i] * w[:, i]).expand_as(y) for i in first}
        g = {i: h[i] @ w.T if k else torch.zeros_like(y) for i in second}
        if k == last:
            return y, v, g
        z = torch.tanh(y)
        s1 = 1 - z * z
        d = {i: s1 * v[i] for i in first}
        if second:
            s2 = -2 * z * s1
            h = {i: s2 * v[i] ** 2 + s1 * g[i] for i in second}
    raise AssertionError("a network has at least one layer")


def _is_single(array: Any) -> bool:
    return getattr(array, "dtype", None) in (torch.float32, np.dtype(np.float32))
