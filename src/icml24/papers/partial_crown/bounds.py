r"""Certified bounds of a network and of its derivatives on boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from icml24.common.checks import WrongType

from ._checks import as_boxes, as_double, choice, coordinates
from .enclosures import Band, DerivativeEnclosures, Interval, meet
from .joint import combined_band, summed_band
from .networks import TanhMLP
from .propagation import Sweep, interval_sweep, sweep

__all__ = ["METHODS", "PRODUCTS", "Certified", "bound_network"]

METHODS = ("crown", "ibp")
PRODUCTS = ("neuron", "entry")


@torch.no_grad()
def bound_network(
    net: TanhMLP,
    boxes: Any,
    *,
    first: Sequence[int] = (0, 1),
    second: Sequence[int] = (1,),
    method: str = "crown",
    product: str = "neuron",
) -> DerivativeEnclosures:
    r"""Enclose u, first derivatives and diagonal second derivatives on every box.

    Parameters
    ----------
    net : TanhMLP
        Any float dtype; its parameters are read as exact float64 numbers.
    boxes : array_like, shape (B, 2, d)
        ``boxes[:, 0]`` lower corner, ``boxes[:, 1]`` upper corner, physical coordinates. Degenerate axes are
        allowed.
    first, second : sequences of int, default (0, 1) and (1,)
        Coordinates to differentiate in, once and twice.
    method : {"crown", "ibp"}
        Linear relaxations, or interval arithmetic alone (slopes zero).
    product : {"neuron", "entry"}
        One product a neuron, or the paper's one a matrix entry. Ignored by "ibp".

    Returns
    -------
    DerivativeEnclosures
        Of physical quantities, float64, whatever the dtype of the inputs.

    Raises
    ------
    ValueError
        Shapes, corners in the wrong order, NaN or infinity in boxes or weights, unknown options.

    Notes
    -----
    Source: the theorem of the chapter (eq-partial_crown-crown, eq-partial_crown-chain, eq-partial_crown-curvature).
    Sound for the network in exact arithmetic, with margins for the rounding of a float64 evaluation.
    """
    certified = Certified.of(net, boxes, first=first, second=second, method=method, product=product)
    kept = {
        key: band.enclosure(certified.sweep.box, certified.sweep.intervals[key])
        for key, band in certified.sweep.bands.items()
    }
    asked = coordinates("first", first, net.dimension)
    return DerivativeEnclosures(
        u=kept[0, 0],
        du={i: kept[1, i] for i in asked},
        d2u={i: kept[2, i] for i in coordinates("second", second, net.dimension)},
    )


class Certified:
    """A sweep over boxes, and bounds of combinations of what it holds."""

    def __init__(self, sweep: Sweep, method: str, product: str) -> None:
        self.sweep, self.method, self.product = sweep, method, product

    @classmethod
    def of(
        cls,
        net: TanhMLP,
        boxes: Any,
        *,
        first: Sequence[int],
        second: Sequence[int],
        method: str = "crown",
        product: str = "neuron",
    ) -> Certified:
        """Check the arguments and sweep (see `bound_network`)."""
        if not isinstance(net, TanhMLP):
            raise WrongType(
                f"net must be a TanhMLP (other activations are not bounded); got {type(net).__name__}"
            )
        choice("method", method, METHODS)
        choice("product", product, PRODUCTS)
        two = coordinates("second", second, net.dimension)
        one = tuple(dict.fromkeys((*coordinates("first", first, net.dimension), *two)))
        checked = as_boxes(boxes, net.dimension)
        for k, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
            as_double(f"weights[{k}] of the network", w)
            as_double(f"biases[{k}] of the network", b)
        for name in ("lower", "upper"):
            as_double(f"{name} corner of the network", getattr(net, name))
        found = (
            interval_sweep(net, checked, one, two)
            if method == "ibp"
            else sweep(net, checked, one, two, product)
        )
        return cls(found, method, product)

    def interval(self, order: int = 0, coordinate: int = 0, output: int = 0) -> Interval:
        """Certified interval (B,) of an output (order 0) or of its derivative."""
        low, high = self.sweep.intervals[order, coordinate]
        return low[:, output], high[:, output]

    def combination(
        self, coefficients: Mapping[tuple[int, int, int], Tensor | float], *extra: Band
    ) -> Interval:
        r"""Certified interval (B,) of a linear combination plus `extra` bands.

        `coefficients` maps (order, coordinate, output) to a number or a tensor (B,). The interval is that of the
        summed affine bounds, of the jointly back-substituted ones (product "neuron"), and of interval
        arithmetic, intersected. `extra` are bands (B, 1, d + 1) of other functions of the input.
        """
        box = self.sweep.box
        options = [self._plain(coefficients, extra)]
        if self.method == "crown":
            matrix = self._matrices(coefficients)
            bands = [summed_band(self.sweep, matrix)]
            if self.product == "neuron":
                bands.append(combined_band(self.sweep, matrix))
            for band in bands:
                low, high = band.plus(*extra).interval(box)
                options.append((low[:, 0], high[:, 0]))
        return meet(*options)

    def plain(self, coefficients: Mapping[tuple[int, int, int], Tensor | float], extra: Interval) -> Interval:
        """Interval arithmetic for the combination plus a quantity known by its interval `extra`."""
        low, high = self._plain(coefficients, ())
        size = 1e-14 * (extra[0].abs().maximum(extra[1].abs()) + low.abs().maximum(high.abs()))
        return low + extra[0] - size, high + extra[1] + size

    def _matrices(
        self, coefficients: Mapping[tuple[int, int, int], Tensor | float]
    ) -> dict[tuple[int, int], Tensor]:
        batch = len(self.sweep.box.centre)
        outputs = self.sweep.parameters.weights[-1].shape[0]
        out: dict[tuple[int, int], Tensor] = {}
        for (order, coordinate, output), value in coefficients.items():
            matrix = out.setdefault((order, coordinate), torch.zeros(batch, 1, outputs, dtype=torch.float64))
            matrix[:, 0, output] += value
        return out

    def _plain(
        self, coefficients: Mapping[tuple[int, int, int], Tensor | float], extra: Sequence[Band]
    ) -> Interval:
        low, high = torch.zeros(2, len(self.sweep.box.centre), dtype=torch.float64)
        size = torch.zeros_like(low)
        parts = [(self.interval(*key), value) for key, value in coefficients.items()]
        parts += [(tuple(end[:, 0] for end in band.interval(self.sweep.box)), 1.0) for band in extra]
        for (a, b), value in parts:
            ends = (a * value, b * value)
            low, high = low + torch.minimum(*ends), high + torch.maximum(*ends)
            size = size + torch.maximum(ends[0].abs(), ends[1].abs())
        return low - 1e-14 * size, high + 1e-14 * size
