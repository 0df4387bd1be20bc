r"""A linear combination of a network's outputs and derivatives, bounded in one back-substitution.

Bounding u_t, u_x and u_xx apart and adding the bounds forgets that the same neurons drive all three. Here the
combination goes back through the recursions of h, d and z together; in every layer the coefficients of
sigma' that come from different derivatives are added *before* a line replaces it, so what cancels in the
residual cancels in the bound (eq-partial_crown-joint).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .enclosures import Band
from .propagation import Sweep

__all__ = ["combined_band", "summed_band"]

Coefficients = Mapping[tuple[int, int], Tensor]


def summed_band(sweep: Sweep, coefficients: Coefficients) -> Band:
    r"""Band of :math:`\sum_q c_q q` from the bands of its terms: added first, concretised once.

    Parameters
    ----------
    sweep : Sweep
    coefficients : mapping of (order, coordinate) to Tensor (B, m, out)
        (0, 0) is the value, (1, i) and (2, i) the derivatives; m combinations of all outputs.

    Returns
    -------
    Band
        (B, m, d + 1).
    """
    parts = [sweep.bands[key].through(c) for key, c in coefficients.items()]
    return parts[0].plus(*parts[1:])


def combined_band(sweep: Sweep, coefficients: Coefficients) -> Band:
    """The same combination by joint back-substitution; needs a sweep with product="neuron"."""
    p = sweep.parameters
    first = {i for order, i in coefficients if order}
    w = p.weights[-1]
    start = next(iter(coefficients.values()))
    zero = torch.zeros_like(start) @ w
    z = coefficients[0, 0] @ w if (0, 0) in coefficients else zero
    constant = coefficients[0, 0] @ p.biases[-1] if (0, 0) in coefficients else zero.sum(-1) * 0
    d = {i: coefficients[1, i] @ w if (1, i) in coefficients else zero for i in first}
    h = {i: c @ w for (order, i), c in coefficients.items() if order == 2}
    rows = z.shape[1]
    z, constant = torch.cat((z, -z), 1), torch.cat((constant, -constant), 1)  # upper forms of both signs
    for k in range(len(sweep.layers) - 1, -1, -1):
        layer = sweep.layers[k]
        y = _replace(z, layer.lines["tanh"])
        constant = constant + y[1]
        slopes = y[0]
        if first:
            on_s1, shift, slack = _first_terms(layer.first, d)
            on_s2 = torch.zeros_like(on_s1)
            for i, coefficient in h.items():
                s1, s2, _, fixed, loose = (t[:, None] for t in layer.second[i])
                on_s1, on_s2 = on_s1 + coefficient * s1, on_s2 + coefficient * s2
                shift = shift + (coefficient * fixed).sum(-1)
                slack = slack + (coefficient.abs() * loose).sum(-1)
            constant = constant + torch.cat((shift + slack, slack - shift), 1)
            for name, on in (("dtanh", on_s1), ("d2tanh", on_s2)):
                if name in layer.lines:
                    more, cut = _replace(torch.cat((on, -on), 1), layer.lines[name])
                    slopes, constant = slopes + more, constant + cut
            weight, mid = p.weights[k], layer.slope[:, None]
            d = {
                i: (c * mid + (h[i] * layer.second[i][2][:, None] if i in h else 0)) @ weight
                for i, c in d.items()
            }
            h = {i: (c * mid) @ weight for i, c in h.items()}
        constant = constant + slopes @ p.biases[k]
        z = slopes @ p.weights[k]
    fixed = sum((d[i][..., i] * p.scale[i] for i in first), torch.zeros_like(constant[:, :rows]))
    constant = constant + torch.cat((fixed, -fixed), 1) + (z @ sweep.box.centre[..., None]).squeeze(-1)
    high = torch.cat((z, constant[..., None]), -1)
    return Band.between(high[:, :rows], -high[:, rows:])


def _first_terms(
    records: Mapping[int, tuple[Tensor, Tensor, Tensor]], d: Mapping[int, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    on_s1 = shift = slack = None
    for i, coefficient in d.items():
        s1, fixed, loose = (t[:, None] for t in records[i])
        parts = (coefficient * s1, (coefficient * fixed).sum(-1), (coefficient.abs() * loose).sum(-1))
        on_s1, shift, slack = (
            parts if on_s1 is None else (on_s1 + parts[0], shift + parts[1], slack + parts[2])
        )
    return on_s1, shift, slack


def _replace(coefficient: Tensor, lines: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Upper bound of ``coefficient * a(y)``: slopes in y (B, m, n) and the summed constants (B, m)."""
    slope_lo, cut_lo, slope_hi, cut_hi = (line[:, None] for line in lines)
    positive = coefficient.clamp(min=0)
    negative = coefficient - positive
    return positive * slope_hi + negative * slope_lo, (positive * cut_hi + negative * cut_lo).sum(-1)
