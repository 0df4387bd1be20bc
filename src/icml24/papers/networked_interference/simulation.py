r"""Semi-synthetic data on a given network, with the truth known.

Treatments are confounded through the units' and their neighbours' features
(eq-networked_interference-treatment), outcomes respond to the own treatment, to the share of
treated neighbours and to a confounder made the same way (eq-networked_interference-outcome).
`naive_parts` splits what a naive contrast of means measures (eq-networked_interference-naive).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import _validate as check
from .graphs import Neighbourhoods

__all__ = ["NetworkData", "naive_parts", "simulate_network_data"]


@dataclass(frozen=True)
class NetworkData:
    """Observed data on a network, and the noise-free surface when it is known.

    Attributes
    ----------
    adjacency : Tensor (dense or sparse), ndarray or SciPy sparse matrix, shape (n, n)
        Without self loops or isolated units.
    x : Tensor, shape (n, f)
        Features.
    t, z, y : Tensor, shape (n,)
        Treatment 0 or 1, exposure in [0, 1], outcome.
    truth : callable, optional
        ``truth(t, z)``: noise-free outcome of every unit, shape (n,), at a treatment and an exposure,
        each a number or a vector.
    """

    adjacency: Any
    x: Tensor
    t: Tensor
    z: Tensor
    y: Tensor
    truth: Callable[[float, float], Tensor] | None = None


def simulate_network_data(
    adjacency: Any,
    x: Any,
    *,
    w_treatment: Any,
    w_outcome: Any,
    heterogeneous: bool = False,
    confounding: float = 2.0,
    noise_std: float = 0.1,
    generator: torch.Generator,
) -> NetworkData:
    r"""Draw treatments and outcomes on a network.

    With :math:`p_i = \sigma(w_1 \cdot x_i)`, :math:`q_i = \sigma(w_2 \cdot x_i)`, bars for means over
    neighbours, and :math:`s`, :math:`c` standardised over the units:
    :math:`s_i \propto \tfrac12 p_i + \tfrac12 \bar p_i`, :math:`T_i \sim \mathrm{Bernoulli}(\sigma(\gamma s_i))`,
    :math:`c_i \propto q_i + \tfrac12 \bar q_i` and
    :math:`y_i = t + z + c_i + \tfrac12 h\,(t + z)\, c_i + e_i`.

    Parameters
    ----------
    adjacency : as for `exposure`, shape (n, n)
    x : Tensor or array_like, shape (n, f)
        Features; their dtype is the dtype of everything drawn.
    w_treatment, w_outcome : Tensor or array_like, shape (f,)
        `w1` and `w2`.
    heterogeneous : bool, default False
        Whether effects vary with `c` (`h` = 1); average effects stay 1, 0.5 and 2.
    confounding : float, default 2.0
        `gamma`; 0 randomises the treatment.
    noise_std : float, default 0.1
        Standard deviation of `e`, zero or positive; `truth` is without `e`.
    generator : torch.Generator
        The only source of randomness.

    Returns
    -------
    NetworkData

    Raises
    ------
    ValueError
        Shapes that differ, isolated units, values that are not finite, or a negative `noise_std`.
    TypeError
        `generator` is not a torch.Generator.

    Notes
    -----
    Source: the companion's substitute; the authors' generator is not public. A score without any
    spread over the units (constant features) counts as zero.
    """
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator; got {type(generator).__name__}")
    x = check.tensor("x", x)
    if x.ndim != 2:
        raise ValueError(f"x must have shape (n, f); got {tuple(x.shape)}")
    graph = Neighbourhoods.of(adjacency, x)
    if len(x) != graph.size:
        raise ValueError(f"x must have one row a unit, {graph.size}; got {len(x)}")
    w1, w2 = (
        check.vector(name, w, x.shape[1], x).to(x)
        for name, w in (("w_treatment", w_treatment), ("w_outcome", w_outcome))
    )
    std = check.number("noise_std", noise_std)
    if std < 0:
        raise ValueError(f"noise_std must be zero or positive; got {noise_std!r}")
    p, q = torch.sigmoid(x @ w1), torch.sigmoid(x @ w2)
    s = _standardised((p + graph.mean(p)) / 2)
    chance = torch.sigmoid(check.number("confounding", confounding) * s)
    t = (torch.rand(graph.size, generator=generator, dtype=x.dtype) < chance).to(x.dtype)
    z = graph.mean(t)
    c = _standardised(q + graph.mean(q) / 2)
    slope = 1 + 0.5 * c if heterogeneous else torch.ones_like(c)

    def truth(treatment: float | Tensor, share: float | Tensor) -> Tensor:
        return slope * (treatment + share) + c

    noise = std * torch.randn(graph.size, generator=generator, dtype=x.dtype)
    return NetworkData(adjacency, x, t, z, truth(t, z) + noise, truth)


def naive_parts(data: NetworkData) -> dict[str, Tensor]:
    r"""What the difference of mean outcomes between treated and untreated units is made of.

    Parameters
    ----------
    data : NetworkData
        With `truth`.

    Returns
    -------
    dict of str to Tensor, shape ()
        ``"naive"``, the difference itself, and its parts, which add up to it: ``"main"`` (own
        treatment), ``"spillover"`` (different exposures), ``"confounding"`` (different units),
        ``"noise"``.

    Raises
    ------
    ValueError
        No truth, or an arm without units.

    Notes
    -----
    Source: eq-networked_interference-naive.
    """
    if data.truth is None:
        raise ValueError("the parts need the noise-free surface: data.truth is None")
    treated, control = data.t == 1, data.t == 0
    if not (bool(treated.any()) and bool(control.any())):
        raise ValueError("both arms need units; no units in one of them")
    base, exposed, whole = data.truth(0.0, 0.0), data.truth(0.0, data.z), data.truth(data.t, data.z)

    def contrast(values: Tensor) -> Tensor:
        return values[treated].mean() - values[control].mean()

    return {
        "naive": contrast(data.y),
        "main": contrast(whole - exposed),
        "spillover": contrast(exposed - base),
        "confounding": contrast(base),
        "noise": contrast(data.y - whole),
    }


def _standardised(values: Tensor) -> Tensor:
    centred = values - values.mean()
    std = centred.square().mean().sqrt()
    flat = std <= 8 * torch.finfo(values.dtype).eps * values.abs().max()
    return torch.zeros_like(values) if bool(flat) else centred / std
