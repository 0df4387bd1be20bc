"""The raw codec: ours beside OpenJPEG (imagecodecs) and torch's own convolutions, interleaved in one run.

``python bench/raw_compression.py`` needs the extra ``bench``. Before anything is timed, both codecs
must give back what they wrote. The codec is untrained: time does not depend on what weights say.
"""

from __future__ import annotations

import click
import harness
import imagecodecs
import numpy as np
import torch
from torch import nn

from icml24.papers import raw_compression as rc

SIDE = 512  # packed planes: a mosaic of one megapixel
CONFIG = rc.CodecConfig(24, 96, input_scale=0.7, input_offset=-4.0)


def planes() -> torch.Tensor:
    """A smooth picture under unit noise on the stabilised scale."""
    ramp = torch.linspace(0, 6, SIDE)
    clean = 5 + 2 * torch.sin(ramp)[:, None] * torch.cos(1.7 * ramp)
    noise = torch.randn(4, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return (clean + noise)[None]


def multiply_adds(n: int, m: int) -> float:
    """Of analysis and synthesis convolutions, per packed pixel."""
    return 2 * (100 * n + 25 * n * n / 4 + 25 * n * m / 16) / 4


class Convolutions(nn.Module):
    """The bare convolutions of analysis and synthesis, as torch runs them: the floor for both passes."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        sizes = [(4, n), (n, n), (n, m)]
        down = [nn.Conv2d(a, b, 5, stride=2, padding=2) for a, b in sizes]
        up = [nn.ConvTranspose2d(b, a, 5, stride=2, padding=2, output_padding=1) for a, b in reversed(sizes)]
        self.stack = nn.Sequential(*down, *up)

    @torch.no_grad()
    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.stack(t)


@click.command()
@click.option("--repeats", default=11, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time the networks against bare convolutions, and encoding and decoding against JPEG 2000."""
    torch.set_num_threads(1)
    t, level = planes(), torch.tensor([1])
    codec, bare = rc.RawCodec(CONFIG).eval(), Convolutions(CONFIG.channels, CONFIG.latent_channels)
    stretched = (t[0].numpy() * 4000 + 8000).clip(0, 65535).astype(np.uint16)

    def passes() -> torch.Tensor:
        with torch.no_grad():
            return codec(t, level).x_hat

    def j2k_write() -> list[bytes]:
        return [imagecodecs.jpeg2k_encode(p, level=0, reversible=True, codecformat="j2k") for p in stretched]

    stream, files = codec.compress(t, 1), j2k_write()
    assert torch.equal(codec.decompress(stream), passes())
    assert all((imagecodecs.jpeg2k_decode(f) == p).all() for f, p in zip(files, stretched, strict=True))

    rows = [
        harness.compare(
            "both passes of the network, 1 megapixel, N = 24, M = 96 (bare convolutions)",
            *(passes, lambda: bare(t)),
            repeats=repeats,
            unit="ms",
        ),
        harness.compare(
            "compress a noisy raw of 1 megapixel (reversible JPEG 2000)",
            *(lambda: codec.compress(t, 1), j2k_write),
            repeats=repeats,
            unit="ms",
        ),
        harness.compare(
            "decompress it (reversible JPEG 2000)",
            *(lambda: codec.decompress(stream), lambda: [imagecodecs.jpeg2k_decode(f) for f in files]),
            repeats=repeats,
            unit="ms",
        ),
    ]
    work = 2 * multiply_adds(CONFIG.channels, CONFIG.latent_channels) * SIDE**2
    for row, name in ((rows[0]["ours"], "ours"), (rows[0]["peer"], "bare convolutions")):
        print(f"achieved by {name}: {work / float(row) / 1e6:.1f} GFLOP/s on {work / 1e9:.1f} GFLOP")
    harness.write(
        "raw_compression",
        "A neural raw codec and JPEG 2000",
        "torch convolutions; OpenJPEG through imagecodecs",
        rows,
        ["torch", "numpy", "constriction", "imagecodecs"],
    )


if __name__ == "__main__":
    main()
