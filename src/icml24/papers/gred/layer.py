r"""One layer: sums over distance sets, an MLP, and a recurrence that reads the hops from far to near.

.. math::

    s_{v,k} &= \sum_{u \in N_k(v)} h_u, \qquad x_{v,k} = s_{v,k} + \mathrm{MLP}(\mathrm{LN}(s_{v,k})) \\
    c_v &= \sum_{k=0}^K \lambda^k \circ \bigl(\mathrm{LN}'(x_{v,k})\, W_{\mathrm{in}}\bigr), \qquad
    y_v = \mathrm{gelu}\bigl(\mathrm{Re}(c_v W_{\mathrm{out}})\bigr) \\
    h'_v &= x_{v,0} + \mathrm{glu}(y_v)

(eq-gred-aggregation to eq-gred-layer). Details follow the authors' code: LayerNorm adds 1e-6, gelu is
the tanh form, hops that are empty are *not* masked out after the MLP, and the skip starts at
:math:`x_{v,0}`, not at the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icml24.common.checks import WrongType, positive, probability, whole

from .distances import _num_hops
from .recurrence import hop_recurrence, init_lru_from_uniform, lru_eigenvalues, ring_radii

__all__ = ["ACTIVATIONS", "LRU", "Dropout", "GREDConfig", "GREDLayer", "gelu", "linear"]

ACTIVATIONS = ("full-glu", "half-glu", "none")
#: Added to the variance by LayerNorm (Flax's default; torch's is ten times larger).
EPS = 1e-6
#: Standard deviation of a standard normal cut at two standard deviations.
CUT_STD = 0.87962566103423978


@dataclass(frozen=True)
class GREDConfig:
    r"""Sizes of a stack of layers.

    Attributes
    ----------
    dim_h, dim_v : int
        Channels of the nodes (real) and of the recurrence (complex).
    num_layers : int
        Layers, each with parameters of its own.
    num_hops : int or None
        :math:`K+1`, hop 0 included; None takes every hop of the masks.
    expand : int
        Width of the MLP in multiples of `dim_h`.
    r_min, r_max, max_phase : float
        Ring on which eigenvalues start (see `init_lru_from_uniform`).
    drop_rate : float
        Dropout after the recurrence, in [0, 1).
    act : {"full-glu", "half-glu", "none"}
        Gate of the recurrence's output.
    """

    dim_h: int
    dim_v: int
    num_layers: int
    num_hops: int | None = None
    expand: int = 1
    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 6.28
    drop_rate: float = 0.0
    act: str = "full-glu"

    def __post_init__(self) -> None:
        for name in ("dim_h", "dim_v", "num_layers", "expand"):
            whole(name, getattr(self, name), 1)
        if self.num_hops is not None:
            _num_hops(self.num_hops)
        check_recurrent_options(self.r_min, self.r_max, self.max_phase, self.drop_rate, self.act)


class LRU(nn.Module):
    r"""Linear recurrent unit over hops (eq-gred-eigenvalues to eq-gred-gate).

    Parameters
    ----------
    dim_h, dim_v : int
        Real channels outside, complex channels inside.
    r_min, r_max, max_phase : float
        Ring on which the eigenvalues start.
    drop_rate : float
        Dropout before and after the gate, while training.
    act : {"full-glu", "half-glu", "none"}
    generator : torch.Generator, optional
        Source of the initial values, and later of dropout; None is torch's global generator.
    dtype : torch.dtype, optional
        Of the parameters, float32 or float64; None is torch's default.

    Attributes
    ----------
    nu_log, theta_log, gamma_log : Parameter, shape (V,)
    B_re, B_im : Parameter, shape (H, V)
    C_re, C_im : Parameter, shape (V, H)
    """

    def __init__(
        self,
        dim_h: int,
        dim_v: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 6.28,
        drop_rate: float = 0.0,
        act: str = "full-glu",
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dim_h, dim_v = whole("dim_h", dim_h, 1), whole("dim_v", dim_v, 1)
        check_recurrent_options(r_min, r_max, max_phase, drop_rate, act)
        dtype = parameter_dtype(dtype)
        self.dim_h, self.dim_v, self.act = dim_h, dim_v, act
        self.norm = nn.LayerNorm(dim_h, eps=EPS, dtype=dtype)
        u_mag, u_phase = torch.rand(2, dim_v, generator=generator, dtype=torch.float64)
        logs = init_lru_from_uniform(u_mag, u_phase, r_min=r_min, r_max=r_max, max_phase=max_phase)
        self.nu_log, self.theta_log, self.gamma_log = (nn.Parameter(x.to(dtype)) for x in logs)
        self.B_re = nn.Parameter(cut_normal((dim_h, dim_v), 0.5 / dim_h, generator, dtype))
        self.B_im = nn.Parameter(cut_normal((dim_h, dim_v), 0.5 / dim_h, generator, dtype))
        self.C_re = nn.Parameter(cut_normal((dim_v, dim_h), 1 / dim_v, generator, dtype))
        self.C_im = nn.Parameter(cut_normal((dim_v, dim_h), 1 / dim_v, generator, dtype))
        self.value = linear(dim_h, dim_h, generator, dtype) if act == "full-glu" else None
        self.gate = linear(dim_h, dim_h, generator, dtype) if act != "none" else None
        self.dropout = Dropout(drop_rate, generator)

    def eigenvalues(self) -> Tensor:
        """Eigenvalues, shape (V,), complex (see `lru_eigenvalues`)."""
        return lru_eigenvalues(self.nu_log, self.theta_log)

    def forward(self, xs: Tensor) -> Tensor:
        """Hop 0 plus what is read from all hops (eq-gred-layer): (K+1, B, N, H), hop 0 first, to (B, N, H)."""
        if not isinstance(xs, Tensor) or xs.ndim < 2 or xs.shape[-1] != self.dim_h or len(xs) == 0:
            got = tuple(xs.shape) if isinstance(xs, Tensor) else type(xs).__name__
            raise ValueError(f"xs must be (K+1, B, N, H) with K+1 >= 1 and H = {self.dim_h}; got {got}")
        same_dtype("xs", xs, self.nu_log)
        return xs[0] + self.read(xs, 0)

    def read(self, xs: Tensor, dim: int) -> Tensor:
        """The gated vector g that is read from the hops along axis `dim`, without the skip."""
        state = hop_recurrence(self.eigenvalues(), self.project(xs), dim=dim)
        # Re(c W_out) = Re(c) C_re - Im(c) C_im, as one product of interleaved real and imaginary parts
        w_out = torch.stack([self.C_re, -self.C_im], dim=1).flatten(0, 1)
        y = self.dropout(gelu(torch.view_as_real(state).flatten(-2) @ w_out))
        if self.gate is not None:
            value = y if self.value is None else self.value(y)
            y = value * torch.sigmoid(self.gate(y))
        return self.dropout(y)

    def project(self, xs: Tensor) -> Tensor:
        """Inputs of the recurrence, LN'(x) W_in: (..., H) to (..., V), complex."""
        gamma = self.gamma_log.exp()
        w_in = torch.stack([self.B_re * gamma, self.B_im * gamma], dim=-1).flatten(1)
        return torch.view_as_complex((self.norm(xs) @ w_in).unflatten(-1, (self.dim_v, 2)))


class GREDLayer(nn.Module):
    r"""A layer from node features and hop masks to node features (eq-gred-layer).

    Parameters
    ----------
    dim_h, dim_v : int
    expand : int
        Width of the MLP in multiples of `dim_h`.
    r_min, r_max, max_phase, drop_rate, act, generator, dtype
        As in `LRU`; `drop_rate` acts there alone.
    mlp_drop_rate : float, default 0.0
        Dropout in the MLP. The authors' code has one that never acts.
    """

    def __init__(
        self,
        dim_h: int,
        dim_v: int,
        *,
        expand: int = 1,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 6.28,
        drop_rate: float = 0.0,
        act: str = "full-glu",
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        mlp_drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        dim_h, expand = whole("dim_h", dim_h, 1), whole("expand", expand, 1)
        dtype = parameter_dtype(dtype)
        self.dim_h = dim_h
        self.norm = nn.LayerNorm(dim_h, eps=EPS, dtype=dtype)
        self.inner = linear(dim_h, expand * dim_h, generator, dtype)
        self.outer = linear(expand * dim_h, dim_h, generator, dtype)
        self.dropout = Dropout(drop_fraction("mlp_drop_rate", mlp_drop_rate), generator)
        self.lru = LRU(
            dim_h,
            dim_v,
            r_min=r_min,
            r_max=r_max,
            max_phase=max_phase,
            drop_rate=drop_rate,
            act=act,
            generator=generator,
            dtype=dtype,
        )

    def forward(self, x: Tensor, masks: Tensor) -> Tensor:
        """Nodes (B, N, H) and masks (B, K+1, N, N), bool or floating, hop 0 first, to (B, N, H)."""
        check_nodes(x, masks, self.dim_h)
        same_dtype("x", x, self.norm.weight)
        hops = self.aggregate(x, masks)
        return hops[:, 0] + self.lru.read(hops, 1)

    def aggregate(self, x: Tensor, masks: Tensor) -> Tensor:
        """Hop vectors x_{v,k}: (B, K+1, N, H)."""
        batch, count, n, _ = masks.shape
        sums = (masks.to(x.dtype).reshape(batch, count * n, n) @ x).unflatten(1, (count, n))
        return sums + self.outer(self.dropout(gelu(self.inner(self.norm(sums)))))


class Dropout(nn.Module):
    """Inverted dropout that draws from its own generator (None: torch's global one)."""

    def __init__(self, rate: float, generator: torch.Generator | None) -> None:
        super().__init__()
        self.rate, self.generator = float(rate), generator

    def forward(self, x: Tensor) -> Tensor:
        """`x` with entries zeroed at the rate and the rest scaled up, while training."""
        if not self.training or self.rate == 0.0:
            return x
        keep = torch.rand(x.shape, generator=self.generator, dtype=x.dtype, device=x.device) >= self.rate
        return x * keep / (1 - self.rate)


def gelu(x: Tensor) -> Tensor:
    """Gaussian error linear unit in its tanh form."""
    return F.gelu(x, approximate="tanh")


def linear(inputs: int, outputs: int, generator: torch.Generator | None, dtype: torch.dtype) -> nn.Linear:
    """Affine map with the authors' start: cut normal of variance 1/inputs, biases zero."""
    out = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
    with torch.no_grad():
        out.weight.copy_(cut_normal((inputs, outputs), 1 / inputs, generator, dtype).T)
        out.bias.zero_()
    return out


def cut_normal(
    shape: tuple[int, ...], variance: float, generator: torch.Generator | None, dtype: torch.dtype
) -> Tensor:
    """Normal draws cut at two standard deviations of the normal, with this variance *after* the cut."""
    out = torch.empty(shape, dtype=torch.float64)
    nn.init.trunc_normal_(out, 0.0, 1.0, -2.0, 2.0, generator=generator)
    return (out * (variance**0.5 / CUT_STD)).to(dtype)


def check_recurrent_options(r_min: float, r_max: float, max_phase: float, drop_rate: float, act: str) -> None:
    """Raise for the first of a layer's options that is out of range."""
    ring_radii(r_min, r_max)
    positive("max_phase", max_phase)
    drop_fraction("drop_rate", drop_rate)
    if act not in ACTIVATIONS:
        raise ValueError(f"unknown act {act!r}; expected one of {', '.join(ACTIVATIONS)}")


def drop_fraction(name: str, value: float) -> float:
    """A rate of dropout, in [0, 1)."""
    rate = probability(name, value, closed=True)
    if rate == 1.0:
        raise ValueError(f"{name} must lie in [0, 1); got {value!r}, which would drop everything")
    return rate


def parameter_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """float32 or float64; None is torch's default."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64):
        raise WrongType(f"dtype must be torch.float32 or torch.float64; got {dtype}")
    return dtype


def same_dtype(name: str, x: Tensor, parameter: Tensor) -> None:
    """Raise unless an input has the dtype of the parameters."""
    if x.dtype != parameter.dtype:
        raise WrongType(
            f"{name} has dtype {x.dtype} and the parameters {parameter.dtype}; convert one of them"
        )


def check_nodes(x: Tensor, masks: Tensor, dim_h: int | None) -> None:
    """Raise unless x is (B, N, dim_h), or (B, N) for None, and masks (B, K+1, N, N)."""
    for name, value in (("x", x), ("masks", masks)):
        if not isinstance(value, Tensor):
            raise WrongType(f"{name} must be a torch.Tensor; got {type(value).__name__}")
    shapes = f"got x {tuple(x.shape)} and masks {tuple(masks.shape)}"
    ndim, wanted = (2, "(B,N)") if dim_h is None else (3, f"(B,N,{dim_h})")
    fits = x.ndim == ndim and masks.ndim == 4 and masks.shape[1] >= 1
    fits = fits and masks.shape[0] == x.shape[0] and masks.shape[2:] == (x.shape[1], x.shape[1])
    if not fits or (dim_h is not None and x.shape[2] != dim_h):
        raise ValueError(f"expected x {wanted} and masks (B,K+1,N,N) of one batch; {shapes}")
