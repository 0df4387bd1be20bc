r"""Recorrupted pairs: one noisy picture split into an input and a target whose noises are unrelated.

Section "Training without clean pictures": eq-raw_compression-pair, eq-raw_compression-decoupled
and eq-raw_compression-linear (Pang et al., 2021, for Gaussian noise).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import floating, number, positive

__all__ = ["recorrupt", "recorrupt_poisson_gaussian"]


def recorrupt(t: Tensor, alpha: float, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    r"""Input and target with independent noises from one picture of unit-variance noise.

    .. math:: t_{\mathrm{in}} = t + \alpha z, \qquad t_{\mathrm{out}} = t - z / \alpha, \qquad z \sim N(0, I)

    Parameters
    ----------
    t : Tensor, any shape, floating
        Picture whose noise is standard normal, independent from value to value.
    alpha : float
        Positive; noise variances become ``1 + alpha**2`` and ``1 + 1 / alpha**2``.
    generator : torch.Generator, optional

    Returns
    -------
    (Tensor, Tensor)
        Input and target, shape and dtype of `t`.

    Raises
    ------
    TypeError
        `t` is not a floating tensor.
    ValueError
        ``alpha <= 0``.

    Notes
    -----
    Source: eq-raw_compression-pair. Exact for Gaussian noise of variance one.
    """
    floating("t", t)
    alpha = positive("alpha", alpha)
    z = torch.randn(t.shape, generator=generator, dtype=t.dtype, device=t.device)
    return t + alpha * z, t - z / alpha


def recorrupt_poisson_gaussian(
    y: Tensor,
    gain: float,
    read_std: float,
    alpha: float,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Input and target with uncorrelated noises, in the linear domain of the sensor.

    As `recorrupt`, with :math:`z \mid y \sim N(0, K y + \sigma_r^2)`: the noise variance at the
    *observed* value, which is right on average because it is linear in it.

    Parameters
    ----------
    y : Tensor, any shape, floating
        Noisy signal in DN, black level and fixed pattern subtracted.
    gain, read_std : float
        DN per electron, positive; read noise in DN, zero or positive.
    alpha : float
        Positive.
    generator : torch.Generator, optional

    Returns
    -------
    (Tensor, Tensor)
        Input and target, shape and dtype of `y`.

    Raises
    ------
    TypeError
        `y` is not a floating tensor.
    ValueError
        ``alpha <= 0``, ``gain <= 0`` or ``read_std < 0``.

    Notes
    -----
    Source: eq-raw_compression-linear. Uncorrelated exactly where :math:`K y + \sigma_r^2 \ge 0`
    always (below, the variance is cut at 0), never independent: a third-order term of size K remains.
    """
    floating("y", y)
    gain, alpha = positive("gain", gain), positive("alpha", alpha)
    read_std = number("read_std", read_std, least=0.0)
    std = (gain * y.detach() + read_std**2).clamp(min=0).sqrt()
    z = std * torch.randn(y.shape, generator=generator, dtype=y.dtype, device=y.device)
    return y + alpha * z, y - z / alpha
