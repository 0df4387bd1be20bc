r"""The file format: what a stream says about itself, and how damage is found.

=========  =====  ========================================================
offset     bytes  field (little-endian)
=========  =====  ========================================================
0          4      magic, ``RCS1``
4          1      version of the format, 1
5          1      level
6          4      height and width of a plane
10         4      height and width of the hyper-latent
14         4      greatest magnitude of hyper-latents and of residuals
18         8      gain and read noise (float32); gain 0: bare planes
26         4      length of the payload
30         4      checksum of the codec's weights
34         4      checksum of the latents
38         4      checksum of everything else, header and payload
42         ...    payload: range-coded hyper-latents, then residuals
=========  =====  ========================================================

Damage is found before anything is decoded: the file's checksum covers every other byte. The
weights' checksum finds the wrong codec, the latents' checksum a machine whose arithmetic differs.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["HEADER_BYTES", "Header", "checksum", "fingerprint", "pack", "parse"]

MAGIC, VERSION = b"RCS1", 1
_FIELDS = struct.Struct("<4sBBHHHHHHffIII")
HEADER_BYTES = _FIELDS.size + 4
_SIDE = 65535


@dataclass(frozen=True)
class Header:
    """Fields of a stream, but for lengths and the file's own checksum."""

    level: int
    size: tuple[int, int]
    hyper_size: tuple[int, int]
    bounds: tuple[int, int]
    gain: float
    read_std: float
    weights: int
    symbols: int


def pack(header: Header, payload: bytes) -> bytes:
    """Header, checksum and payload as one stream."""
    if max(header.size) > _SIDE:
        raise ValueError(f"a plane may be at most {_SIDE} on a side; got {header.size}: compress tiles")
    fields = _FIELDS.pack(
        *(MAGIC, VERSION, header.level, *header.size, *header.hyper_size, *header.bounds),
        *(header.gain, header.read_std, len(payload), header.weights, header.symbols),
    )
    return fields + struct.pack("<I", zlib.crc32(payload, zlib.crc32(fields))) + payload


def parse(data: bytes) -> tuple[Header, bytes]:
    """Header and payload of a stream, after every check that needs no codec.

    Raises
    ------
    TypeError
        `data` is not bytes.
    ValueError
        Not such a stream, another version, truncated, too long, altered, or impossible fields.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a stream must be bytes; got {type(data).__name__}")
    data = bytes(data)
    if data[:4] != MAGIC[: len(data)] or not data:
        raise ValueError(f"not a stream of this codec: it starts with {data[:4]!r}, expected {MAGIC!r}")
    if len(data) < HEADER_BYTES:
        raise ValueError(f"truncated: {len(data)} bytes, the header alone has {HEADER_BYTES}")
    magic_version = data[4]
    if magic_version != VERSION:
        raise ValueError(f"the stream has format version {magic_version}; this reader knows {VERSION}")
    _, _, level, h, w, zh, zw, zb, vb, gain, read, length, weights, symbols = _FIELDS.unpack_from(data)
    payload = data[HEADER_BYTES:]
    if len(payload) != length:
        state = "truncated" if len(payload) < length else "followed by foreign bytes"
        raise ValueError(f"the stream is {state}: {len(payload)} bytes of payload, {length} were written")
    (stored,) = struct.unpack_from("<I", data, _FIELDS.size)
    if zlib.crc32(payload, zlib.crc32(data[: _FIELDS.size])) != stored:
        raise ValueError("the stream was altered: its checksum does not match its content")
    if 0 in (h, w, zh, zw, zb, vb) or not (0 <= gain < math.inf and 0 <= read < math.inf):
        raise ValueError("the stream's header holds impossible values")
    return Header(level, (h, w), (zh, zw), (zb, vb), gain, read, weights, symbols), payload


def fingerprint(codec: nn.Module) -> int:
    """Checksum of a codec's weights and configuration: names, shapes, dtypes and bytes."""
    value = zlib.crc32(repr(getattr(codec, "config", None)).encode())
    for name, weight in codec.state_dict().items():
        value = zlib.crc32(f"{name}{tuple(weight.shape)}{weight.dtype}".encode(), value)
        value = zlib.crc32(weight.detach().cpu().contiguous().numpy().tobytes(), value)
    return value


def checksum(*symbols: Tensor) -> int:
    """Checksum of latents, as 32-bit whole numbers."""
    value = 0
    for part in symbols:
        value = zlib.crc32(part.to(torch.int32).contiguous().numpy().astype(np.dtype("<i4")).tobytes(), value)
    return value
