r"""From text to particles: a small variational autoencoder and the network that links text to it.

The autoencoder is trained on crops alone (eq-nanomorphology-elbo); the linking network learns to
predict, from an embedding of the procedure, the encoder's output *before* the mean and
log-variance heads, as in the public code. Both are scaled down here: 32x32 pixels, 32 latents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["LinkingNetwork", "MorphologyVAE", "effective_beta", "psnr", "vae_loss"]

#: Output probabilities stay this far from 0 and 1, so that "strictly between" holds in float32.
MARGIN = 1e-6

#: Channels of the encoder's output map.
CODE_CHANNELS = 8


class MorphologyVAE(nn.Module):
    """Convolutional variational autoencoder of grey crops.

    Parameters
    ----------
    size : int, default 32
        Side of the square crops in pixels; a multiple of 4.
    latent_dim : int, default 32
    width : int, default 32
        Channels of the hidden maps.
    generator : torch.Generator, optional
        Draws the initial weights; without one, a fixed stream (seed 0), so that construction
        neither reads nor changes the global random state.

    Attributes
    ----------
    code_dim : int
        Length of the encoder's output before the two heads, ``8 * (size / 4) ** 2``.
    """

    def __init__(
        self,
        size: int = 32,
        latent_dim: int = 32,
        width: int = 32,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        if size < 4 or size % 4:
            raise ValueError(f"size must be a positive multiple of 4; got {size}")
        if latent_dim < 1 or width < 1:
            raise ValueError(f"latent_dim and width must be positive; got {latent_dim} and {width}")
        super().__init__()
        self.size, self.latent_dim = size, latent_dim
        side = size // 4
        self.code_dim = CODE_CHANNELS * side**2
        with torch.random.fork_rng(devices=[]):
            self.encoder = nn.Sequential(
                nn.Conv2d(1, width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, CODE_CHANNELS, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.mean_head = nn.Linear(self.code_dim, latent_dim)
            self.logvar_head = nn.Linear(self.code_dim, latent_dim)
            self.decoder = nn.Sequential(
                nn.Linear(latent_dim, self.code_dim),
                nn.ReLU(),
                nn.Unflatten(1, (CODE_CHANNELS, side, side)),
                nn.Conv2d(CODE_CHANNELS, width, 3, padding=1),
                nn.ReLU(),
                nn.Upsample(scale_factor=2),
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Upsample(scale_factor=2),
                nn.Conv2d(width, 1, 3, padding=1),
            )
        draw_weights(self, generator)

    def code(self, x: Tensor) -> Tensor:
        """Encoder output before the heads, shape (batch, code_dim); the linking network's target."""
        if x.ndim != 4 or x.shape[1:] != (1, self.size, self.size):
            raise ValueError(
                f"expected crops of shape (batch, 1, {self.size}, {self.size}); got {tuple(x.shape)}"
            )
        return self.encoder(x)

    def heads(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance from an encoder output (or a linked text), shape (batch, latent_dim) each."""
        return self.mean_head(code), self.logvar_head(code)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent, from crops of shape (batch, 1, size, size) in [0, 1]."""
        return self.heads(self.code(x))

    def decode(self, z: Tensor) -> Tensor:
        """Crops strictly between 0 and 1, shape (batch, 1, size, size)."""
        return MARGIN + (1 - 2 * MARGIN) * torch.sigmoid(self.decoder(z))

    def forward(
        self, x: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction, mean and log-variance.

        The latent is drawn with `generator`; without one it is the mean, nothing is drawn.
        """
        mu, logvar = self.encode(x)
        return self.decode(sample_latent(mu, logvar, generator)), mu, logvar


class LinkingNetwork(nn.Module):
    """Perceptron from a text embedding to the encoder's output.

    Parameters
    ----------
    text_dim, code_dim : int
        Lengths of input and output.
    hidden : sequence of int, default (256, 512)
        Widths of the hidden layers, ReLU after each; the output is linear.
    generator : torch.Generator, optional
        As for `MorphologyVAE`.
    """

    def __init__(
        self,
        text_dim: int,
        code_dim: int,
        hidden: Sequence[int] = (256, 512),
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        if min(text_dim, code_dim, *hidden, 1) < 1:
            raise ValueError(f"widths must be positive; got {text_dim}, {tuple(hidden)}, {code_dim}")
        super().__init__()
        widths = [text_dim, *hidden, code_dim]
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            for before, after in pairwise(widths):
                layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        draw_weights(self, generator)

    def forward(self, text: Tensor) -> Tensor:
        """Predicted encoder output, shape (batch, code_dim)."""
        return self.layers(text)


def sample_latent(mu: Tensor, logvar: Tensor, generator: torch.Generator | None) -> Tensor:
    """Reparametrised draw from the diagonal Gaussian, or its mean without a generator."""
    if generator is None:
        return mu
    noise = torch.randn(mu.shape, generator=generator, dtype=mu.dtype, device=mu.device)
    return mu + torch.exp(logvar / 2) * noise


def vae_loss(
    recon: Tensor, x: Tensor, mu: Tensor, logvar: Tensor, *, kl_weight: float = 0.01
) -> dict[str, Tensor]:
    r"""Mean binary cross-entropy plus weighted mean divergence.

    .. math:: \mathcal L = \frac1{BD}\sum \mathrm{BCE}(x, \hat x)
        + \frac{c}{Bd} \sum \tfrac12\bigl(\mu^2 + e^{\ell} - 1 - \ell\bigr)

    Parameters
    ----------
    recon, x : Tensor, same shape
        Values in [0, 1].
    mu, logvar : Tensor, same shape
    kl_weight : float, default 0.01
        :math:`c`, non-negative.

    Returns
    -------
    dict
        ``"loss"``, ``"bce"`` and ``"kl"``; the last two are means over *every* entry, batch,
        pixels and latents included, which makes the weight against the usual sum
        `effective_beta`.

    Raises
    ------
    ValueError
        Shapes that differ, or a negative weight.
    """
    if recon.shape != x.shape or mu.shape != logvar.shape:
        raise ValueError(
            "expected equal shapes of recon and x, and of mu and logvar; got "
            f"{tuple(recon.shape)}, {tuple(x.shape)}, {tuple(mu.shape)}, {tuple(logvar.shape)}"
        )
    if kl_weight < 0:
        raise ValueError(f"kl_weight must be non-negative; got {kl_weight}")
    bce = F.binary_cross_entropy(recon, x)
    kl = gaussian_kl(mu, logvar).mean()
    return {"loss": bce + kl_weight * kl, "bce": bce, "kl": kl}


def gaussian_kl(mu: Tensor, logvar: Tensor) -> Tensor:
    r"""Divergence of :math:`\mathcal N(\mu, e^{\ell})` from the standard normal, entry by entry.

    .. math:: \tfrac12\bigl(\mu^2 + e^{\ell} - 1 - \ell\bigr)

    See eq-nanomorphology-kl; ``expm1`` keeps it exact near zero.
    """
    return (mu.square() + torch.expm1(logvar) - logvar) / 2


def effective_beta(kl_weight: float, pixels: int, latents: int) -> float:
    r"""Weight :math:`\beta = c\,D/d` of the divergence against a summed reconstruction (eq-nanomorphology-beta)."""
    if pixels < 1 or latents < 1:
        raise ValueError(f"pixels and latents must be positive; got {pixels} and {latents}")
    return kl_weight * pixels / latents


def psnr(x: Tensor, y: Tensor) -> Tensor:
    r"""Peak signal-to-noise ratio of each image in dB, for values in [0, 1].

    .. math:: \mathrm{PSNR} = -10 \log_{10} \tfrac1D \lVert x - y \rVert^2

    Parameters
    ----------
    x, y : Tensor, shape (batch, ...)
        Broadcast against one another.

    Returns
    -------
    Tensor, shape (batch,)
        Infinite where the images agree exactly.
    """
    error = (x - y).square().flatten(1).mean(dim=1)
    return -10 * torch.log10(error)


def draw_weights(module: nn.Module, generator: torch.Generator | None) -> None:
    """Uniform weights in ``±1/sqrt(fan in)``, layer by layer, from the given generator only."""
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                bound = 1 / math.sqrt(layer.weight[0].numel())
                for parameter in (layer.weight, layer.bias):
                    parameter.uniform_(-bound, bound, generator=generator)
