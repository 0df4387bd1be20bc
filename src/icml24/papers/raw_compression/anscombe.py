r"""Variance stabilisation: a scale on which sensor noise has variance one.

Section "A scale with unit noise": eq-raw_compression-anscombe and eq-raw_compression-inverse
(Anscombe 1948 for counts; generalised to gain and read noise, with the closed-form
approximation of the exact unbiased inverse of Makitalo and Foi, 2013).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ._checks import floating, number, positive

__all__ = ["expected_anscombe", "generalized_anscombe", "inverse_generalized_anscombe"]


def generalized_anscombe(y: Tensor, gain: float, read_std: float) -> Tensor:
    r"""Map a noisy signal to a scale of unit noise variance.

    .. math:: t = \frac2K \sqrt{\max\bigl(K y + \tfrac38 K^2 + \sigma_r^2,\ 0\bigr)}

    Parameters
    ----------
    y : Tensor, any shape, floating
        Signal in DN, black level and fixed pattern subtracted; may be negative.
    gain, read_std : float
        DN per electron, positive; read noise in DN, zero or positive.

    Returns
    -------
    Tensor
        In units of one noise standard deviation; shape and dtype of `y`. At a read noise of 1.25
        electrons the noise variance is within 1 % of one above about 10 electrons, and up to 13 %
        above one in the dark.

    Raises
    ------
    TypeError
        `y` is not a floating tensor.
    ValueError
        ``gain <= 0`` or ``read_std < 0``.

    Notes
    -----
    Source: eq-raw_compression-anscombe. Differentiable; the gradient is 0 where the root is cut off.
    """
    floating("y", y)
    gain, read_std = positive("gain", gain), number("read_std", read_std, least=0.0)
    inside = gain * y + (3 / 8 * gain**2 + read_std**2)
    alive = ~(inside <= 0)  # a NaN stays a NaN
    return torch.where(alive, (2 / gain) * torch.where(alive, inside, 1.0).sqrt(), 0.0)


def inverse_generalized_anscombe(t: Tensor, gain: float, read_std: float) -> Tensor:
    r"""Map an *average* on the stabilised scale back to a signal, without bias.

    With :math:`s = \sigma_r / K` and :math:`q = \max(t, 2\sqrt{3/8 + s^2})`,

    .. math:: x = K \max\Bigl(\tfrac{q^2}{4} + \tfrac{\sqrt{3/2}}{4 q} - \tfrac{11}{8 q^2} +
        \tfrac{5\sqrt{3/2}}{8 q^3} - \tfrac18 - s^2,\ 0\Bigr).

    Parameters
    ----------
    t : Tensor, any shape, floating
        Estimates of the expected stabilised value, such as a decoder's output.
    gain, read_std : float
        As given to `generalized_anscombe`.

    Returns
    -------
    Tensor
        DN above black, never negative; shape and dtype of `t`.

    Raises
    ------
    TypeError
        `t` is not a floating tensor.
    ValueError
        ``gain <= 0`` or ``read_std < 0``.

    Notes
    -----
    Source: eq-raw_compression-inverse. The clamp on `q` is vital: near 0 the cubic term explodes.
    It also means that the darkest value this function can return is not 0 but about 0.22 electrons
    for a read noise of 1.25 electrons.
    """
    floating("t", t)
    gain, read_std = positive("gain", gain), number("read_std", read_std, least=0.0)
    s2 = (read_std / gain) ** 2
    q = t.clamp(min=2 * math.sqrt(3 / 8 + s2))
    r = 1 / q
    root = math.sqrt(3 / 2)
    electrons = q * q / 4 + r * (root / 4 + r * (-11 / 8 + r * (5 * root / 8))) - (1 / 8 + s2)
    return gain * electrons.clamp(min=0)


def expected_anscombe(x: Tensor, gain: float, read_std: float) -> Tensor:
    r"""Stabilised value that `inverse_generalized_anscombe` maps to the clean signal `x`.

    Approximates :math:`E[t \mid x]`, the regression target of a codec that is trained on clean
    signals; solved by interpolation in a fine table. Not part of the method: the oracle's target.

    Parameters
    ----------
    x : Tensor, any shape, floating
        Clean signal in DN, zero or positive.
    gain, read_std : float

    Returns
    -------
    Tensor
        Shape and dtype of `x`; signals below the inverse's darkest value map to the clamp.
    """
    floating("x", x)
    low = 2 * math.sqrt(3 / 8 + (read_std / gain) ** 2)
    high = float(generalized_anscombe(x.max(), gain, read_std)) + 1
    table = torch.linspace(low, max(high, low + 1), 20_000, dtype=torch.float64)
    signal = inverse_generalized_anscombe(table, gain, read_std)
    found = np.interp(x.detach().double().numpy(), signal.numpy(), table.numpy())
    return torch.from_numpy(np.asarray(found)).to(x.dtype)
