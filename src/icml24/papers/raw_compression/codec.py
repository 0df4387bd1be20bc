r"""The codec: a mean-scale hyperprior on variance-stabilised planes, several rates in one model.

Section "The codec, piece by piece": eq-raw_compression-gdn and eq-raw_compression-gains. The
layout is the field's standard (Balle et al., 2018; Minnen et al., 2018; gain units after Cui et
al., 2021) and this book's choice: the authors' network is not public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from icml24.common.random import generator as stream

from . import bitstream
from ._checks import finite, floating, number, whole
from .entropy import COUNTS, RangeReader, RangeWriter, gaussian_bits, symbol_bound

__all__ = ["CodecConfig", "CodecOutput", "RawCodec"]

#: Packed planes are padded to a multiple of this: four halvings, three of g_a and one of h_a.
MULTIPLE = 16
#: Least standard deviations of the two priors: a narrower bin would cost nothing and train badly.
LEAST_SCALE, LEAST_PRIOR_SCALE = 0.11, 0.1
#: Greatest gain at the start, as a logarithm: levels begin ordered from coarse to fine.
LARGEST_LOG_GAIN = 1.5


@dataclass(frozen=True)
class CodecConfig:
    r"""Sizes of a codec.

    Parameters
    ----------
    channels : int, default 32
        Width N of the hidden layers.
    latent_channels : int, default 96
        Channels M of the latent. One latent position covers 16 x 16 photosites, so
        ``latent_channels = 256`` could hold every sample; 48 cannot carry noise.
    n_levels : int, default 4
        Rates of the one model.
    input_scale, input_offset : float
        The networks see ``input_scale * t + input_offset``.

    Raises
    ------
    ValueError, TypeError
        A size below 1 or above what a stream's header can name, a scale that is not positive.
    """

    channels: int = 32
    latent_channels: int = 96
    n_levels: int = 4
    input_scale: float = 1.0
    input_offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("channels", "latent_channels", "n_levels"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1))
        if self.n_levels > 256:
            raise ValueError(f"n_levels must be at most 256, one byte of the header; got {self.n_levels}")
        # plain numbers, so that equal configurations have equal fingerprints
        scale = number("input_scale", self.input_scale, least=0.0, strict=True)
        object.__setattr__(self, "input_scale", scale)
        object.__setattr__(self, "input_offset", number("input_offset", self.input_offset))


class CodecOutput(NamedTuple):
    r"""What a pass through the codec gives.

    Parameters
    ----------
    x_hat : Tensor, shape (B, 4, h, w)
        Reconstruction, in the units of the input.
    bits : Tensor, shape (B,)
        Estimated bits of every picture: in evaluation those of the whole stream, header included; in
        training those of hyper-latents and latents.
    """

    x_hat: Tensor
    bits: Tensor


class Latents(NamedTuple):
    """Whole numbers of one pass in evaluation, with their models."""

    z: Tensor
    residual: Tensor
    mean: Tensor
    scale: Tensor


class GDN(nn.Module):
    r"""Divisive normalisation, or its inverse, which multiplies.

    .. math:: y_i = x_i \bigl(\beta_i + \textstyle\sum_j |\gamma_{ij}|\, x_j^2\bigr)^{\mp 1/2}

    Source: eq-raw_compression-gdn. Starts at ``beta = 1`` and ``gamma = 0.1 I``.
    """

    def __init__(self, channels: int, inverse: bool = False) -> None:
        super().__init__()
        self.inverse = inverse
        self.beta = nn.Parameter(torch.ones(channels))
        self.gamma = nn.Parameter(0.1 * torch.eye(channels))

    def forward(self, x: Tensor) -> Tensor:
        energy = F.conv2d(x * x, self.gamma.abs()[:, :, None, None], self.beta.abs() + 1e-6)
        return x * (energy.sqrt() if self.inverse else energy.rsqrt())


class RawCodec(nn.Module):
    r"""Compress packed, variance-stabilised raw planes at one of several rates.

    Parameters
    ----------
    config : CodecConfig

    Notes
    -----
    Initial weights are those of one fixed stream; `reset_parameters` draws others, from the
    distributions of PyTorch's layers. In training, `forward` adds dither from a generator of the
    codec's own (`reset_dither`): no call touches the global random state.
    Evaluation is deterministic on one machine with one thread count. Sender and receiver must use
    the same weights; a stream names them by a checksum and carries a checksum of its latents, so a
    receiver whose arithmetic differs refuses instead of showing a wrong picture.
    """

    def __init__(self, config: CodecConfig = CodecConfig()) -> None:
        super().__init__()
        self.config = config
        n, m = config.channels, config.latent_channels
        self.analysis = nn.Sequential(_conv(4, n), GDN(n), _conv(n, n), GDN(n), _conv(n, m))
        self.synthesis = nn.Sequential(
            _deconv(m, n), GDN(n, inverse=True), _deconv(n, n), GDN(n, inverse=True), _deconv(n, 4)
        )
        self.hyper_analysis = nn.Sequential(_conv(m, n, 3, 1), nn.LeakyReLU(), _conv(n, n))
        self.hyper_synthesis = nn.Sequential(_deconv(n, n), nn.LeakyReLU(), _conv(n, 2 * m, 3, 1))
        self.log_gain = nn.Parameter(torch.empty(config.n_levels, m))
        self.prior_mean = nn.Parameter(torch.empty(n))
        self.prior_scale = nn.Parameter(torch.empty(n))
        self.reset_parameters(stream(0, "raw_compression", "weights"))
        self.reset_dither(0)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights anew from `generator`; gains, priors and normalisations start as documented."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                    bound = 1 / math.sqrt(module.weight[0].numel())
                    module.weight.uniform_(-bound, bound, generator=generator)
                    module.bias.uniform_(-bound, bound, generator=generator)
                elif isinstance(module, GDN):
                    module.beta.fill_(1.0)
                    module.gamma.copy_(0.1 * torch.eye(len(module.gamma)))
            steps = torch.linspace(0.0, LARGEST_LOG_GAIN, self.config.n_levels)
            self.log_gain.copy_(steps[:, None].expand_as(self.log_gain))
            self.prior_mean.zero_()
            self.prior_scale.zero_()

    def reset_dither(self, seed: int) -> None:
        """Start the dither that training adds to latents from the stream of `seed`."""
        self._dither = stream(seed, "raw_compression", "dither")

    def forward(self, t: Tensor, level: Tensor) -> CodecOutput:
        r"""Reconstruction and estimated bits.

        In training mode the rate sees latents with uniform dither in place of rounding
        (eq-raw_compression-dither) and the distortion sees rounded ones with a straight-through
        gradient; in evaluation mode both see rounded ones, and the result is what a stream holds: bits
        are those of `compress`, but for rounding of probabilities and the last word.

        Parameters
        ----------
        t : Tensor, shape (B, 4, h, w)
            Stabilised planes, in the dtype of the weights.
        level : LongTensor, shape (B,)
            Rate of every picture, ``0 <= level < n_levels``; higher spends more.

        Returns
        -------
        CodecOutput

        Raises
        ------
        TypeError
            `t` has another dtype than the weights, or `level` is not an integer tensor.
        ValueError
            Wrong shape, NaN or infinities, level out of range.
        """
        self._check_planes(t)
        self._check_levels(t, level)
        gain = self.log_gain[level].exp()[:, :, None, None]
        y = self._analyse(t, gain)
        z = self.hyper_analysis(y)
        prior = self._prior()
        if not self.training:
            latents = self._round(y, z)
            bits = gaussian_bits(latents.z, *prior, floor=COUNTS).sum(dim=(1, 2, 3))
            residual_bits = gaussian_bits(latents.residual, 0.0, latents.scale, floor=COUNTS)
            bits = bits + residual_bits.sum(dim=(1, 2, 3)) + 8 * bitstream.HEADER_BYTES
            return CodecOutput(self._synthesise(latents, gain, t.shape[-2:]), bits)
        bits = gaussian_bits(self._dithered(z), *prior).sum(dim=(1, 2, 3))
        mean, scale = self._moments(_straight_through(z))
        residual = y - mean
        bits = bits + gaussian_bits(self._dithered(residual), 0.0, scale).sum(dim=(1, 2, 3))
        rounded = Latents(z, _straight_through(residual), mean, scale)
        return CodecOutput(self._synthesise(rounded, gain, t.shape[-2:]), bits)

    def compress(self, t: Tensor, level: int) -> bytes:
        """Write one picture to a stream that `decompress` reads, in evaluation arithmetic.

        Parameters
        ----------
        t : Tensor, shape (1, 4, h, w)
            Stabilised planes, in the dtype of the weights, each side at most 65535.
        level : int
            ``0 <= level < n_levels``.

        Returns
        -------
        bytes
            Header and range-coded payload; see `bitstream`.

        Raises
        ------
        TypeError
            `t` has another dtype than the weights, `level` is no integer.
        ValueError
            Wrong shape, more than one picture, NaN or infinities, level out of range.
        """
        return self.encode(t, level, gain=0.0, read_std=0.0)

    def decompress(self, data: bytes) -> Tensor:
        """Reconstruct the planes of a stream: ``forward(...).x_hat`` of evaluation mode, bit for bit.

        Parameters
        ----------
        data : bytes
            From `compress` or `compress_raw`, made with the same weights.

        Returns
        -------
        Tensor, shape (1, 4, h, w)
            In the dtype of the weights.

        Raises
        ------
        TypeError
            `data` is not bytes.
        ValueError
            Truncated, altered or foreign stream, or one made with other weights.
        """
        return self.decode(data)[0]

    @torch.no_grad()
    def encode(self, t: Tensor, level: int, *, gain: float, read_std: float) -> bytes:
        """`compress`, with the sensor's parameters in the header (a gain of 0 says that there are none)."""
        self._check_planes(t)
        if len(t) != 1:
            raise ValueError(f"compress takes one picture, shape (1, 4, h, w); got {tuple(t.shape)}")
        level = whole("level", level)
        if level >= self.config.n_levels:
            raise ValueError(f"level must lie in 0 ... {self.config.n_levels - 1}; got {level}")
        y = self._analyse(t, self.log_gain[[level]].exp()[:, :, None, None])
        latents = self._round(y, self.hyper_analysis(y))
        bounds = symbol_bound(latents.z), symbol_bound(latents.residual)
        writer = RangeWriter()
        mean, scale = self._prior()
        writer.write(latents.z, mean.expand_as(latents.z), scale, bounds[0])
        writer.write(latents.residual, 0.0, latents.scale, bounds[1])
        header = bitstream.Header(
            level=int(level),
            size=tuple(t.shape[-2:]),
            hyper_size=tuple(latents.z.shape[-2:]),
            bounds=bounds,
            gain=gain,
            read_std=read_std,
            weights=bitstream.fingerprint(self),
            symbols=bitstream.checksum(latents.z, latents.residual),
        )
        return bitstream.pack(header, writer.bytes())

    @torch.no_grad()
    def decode(self, data: bytes) -> tuple[Tensor, bitstream.Header]:
        """`decompress`, with the header."""
        header, payload = bitstream.parse(data)
        if header.weights != bitstream.fingerprint(self):
            raise ValueError(
                "the stream was made with other weights (their checksums differ): load the codec "
                "that wrote it"
            )
        rows, columns = (-(-side // MULTIPLE) for side in header.size)
        if header.level >= self.config.n_levels or header.hyper_size != (rows, columns):
            raise ValueError(f"the stream's header is not consistent: {header}")
        reader = RangeReader(payload)
        mean, scale = self._prior()
        shape = (1, self.config.channels, rows, columns)
        z = reader.read(mean.expand(shape), scale.expand(shape), header.bounds[0])
        y_mean, y_scale = self._moments(z)
        residual = reader.read(0.0, y_scale, header.bounds[1])
        if bitstream.checksum(z, residual) != header.symbols:
            raise ValueError(
                "the decoded latents are not those that were written: this machine's arithmetic differs "
                "from the sender's (versions, thread count); decode where the stream was made"
            )
        gain = self.log_gain[[header.level]].exp()[:, :, None, None]
        return self._synthesise(Latents(z, residual, y_mean, y_scale), gain, header.size), header

    def hyper_bits(self, t: Tensor, level: Tensor) -> Tensor:
        """Estimated bits of the hyper-latents alone, in evaluation arithmetic, shape (B,)."""
        y = self._analyse(t, self.log_gain[level].exp()[:, :, None, None])
        z = self.hyper_analysis(y).round()
        return gaussian_bits(z, *self._prior(), floor=COUNTS).sum(dim=(1, 2, 3))

    def _analyse(self, t: Tensor, gain: Tensor) -> Tensor:
        h, w = t.shape[-2:]
        padded = F.pad(t.contiguous(), (0, -w % MULTIPLE, 0, -h % MULTIPLE), mode="replicate")
        return self.analysis(self.config.input_scale * padded + self.config.input_offset) * gain

    def _round(self, y: Tensor, z: Tensor) -> Latents:
        # A convolution may take another path for another memory format, and round otherwise; a decoder
        # starts from contiguous latents, so this side does too.
        z = z.round().contiguous()
        mean, scale = self._moments(z)
        return Latents(z, (y - mean).round().contiguous(), mean, scale)

    def _synthesise(self, latents: Latents, gain: Tensor, size: tuple[int, int]) -> Tensor:
        x = self.synthesis((latents.residual + latents.mean) / gain)[..., : size[0], : size[1]]
        return (x - self.config.input_offset) / self.config.input_scale

    def _moments(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.hyper_synthesis(z).chunk(2, dim=1)
        return mean, F.softplus(raw) + LEAST_SCALE

    def _prior(self) -> tuple[Tensor, Tensor]:
        scale = F.softplus(self.prior_scale) + LEAST_PRIOR_SCALE
        return self.prior_mean[None, :, None, None], scale[None, :, None, None]

    def _dithered(self, x: Tensor) -> Tensor:
        return x + (torch.rand(x.shape, generator=self._dither, dtype=x.dtype) - 0.5).to(x.device)

    def _check_planes(self, t: Tensor) -> None:
        floating("t", t)
        if t.dim() != 4 or t.shape[1] != 4 or 0 in t.shape:
            raise ValueError(f"t must have shape (B, 4, h, w); got {tuple(t.shape)}: see pack_bayer")
        if t.dtype != self.log_gain.dtype:
            raise TypeError(f"t must have the weights' dtype {self.log_gain.dtype}; got {t.dtype}")
        finite("t", t)

    def _check_levels(self, t: Tensor, level: Tensor) -> None:
        if not isinstance(level, Tensor) or level.dtype != torch.long:
            raise TypeError("level must be a LongTensor, one rate a picture, such as torch.tensor([0])")
        if level.shape != t.shape[:1]:
            raise ValueError(f"level must have shape ({len(t)},); got {tuple(level.shape)}")
        low, high = int(level.min()), int(level.max())
        if low < 0 or high >= self.config.n_levels:
            raise ValueError(f"levels must lie in 0 ... {self.config.n_levels - 1}; got {low} to {high}")


def _conv(inputs: int, outputs: int, kernel: int = 5, stride: int = 2) -> nn.Module:
    return skip_init(nn.Conv2d, inputs, outputs, kernel, stride=stride, padding=kernel // 2)


def _deconv(inputs: int, outputs: int) -> nn.Module:
    return skip_init(nn.ConvTranspose2d, inputs, outputs, 5, stride=2, padding=2, output_padding=1)


def _straight_through(x: Tensor) -> Tensor:
    return x + (x.round() - x).detach()
