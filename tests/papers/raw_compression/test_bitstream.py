"""Streams: what is written is read, in this process and in a fresh one; damage never passes in silence."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
import torch

from icml24.papers.raw_compression import (
    Calibration,
    CodecConfig,
    RawCodec,
    SensorModel,
    compress_raw,
    decompress_raw,
    inverse_generalized_anscombe,
    simulate_raw,
    unpack_bayer,
)
from icml24.papers.raw_compression.bitstream import HEADER_BYTES, parse
from icml24.papers.raw_compression.experiments import decode_elsewhere
from icml24.papers.raw_compression.files import stabilise

F64 = torch.float64
SMALL = CodecConfig(channels=6, latent_channels=8, input_scale=0.4, input_offset=-4.0)


@pytest.fixture(scope="module")
def codec():
    return RawCodec(SMALL).eval()


@pytest.fixture(scope="module")
def shot():
    g = torch.Generator().manual_seed(3)
    x = torch.linspace(0, 400, 46).expand(38, 46).contiguous()
    pattern = 3 * torch.randn(38, 46, generator=g)
    raw = simulate_raw(x, SensorModel(16.0, 20.0), fixed_pattern=pattern, generator=g)
    return raw, Calibration(16.1, 19.9, pattern, torch.zeros(2), torch.zeros(2))


@pytest.fixture(scope="module")
def stream(codec, shot):
    return compress_raw(*shot, codec, 2)


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (19, 23), (33, 64)])
@pytest.mark.parametrize("level", [0, 3])
def test_decoder_gives_what_evaluation_gave(codec, size, level):
    t = 6 + 3 * torch.randn(1, 4, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        out = codec(t, torch.tensor([level]))
    data = codec.compress(t, level)
    assert isinstance(data, bytes)
    assert torch.equal(codec.decompress(data), out.x_hat)
    assert abs(8 * len(data) - float(out.bits)) <= 0.03 * float(out.bits) + 64


def test_training_mode_and_gradients_do_not_matter(codec):
    t = torch.randn(1, 4, 20, 20, generator=torch.Generator().manual_seed(2)).requires_grad_()
    data = codec.compress(t, 1)
    codec.train()
    again = codec.compress(t.detach().contiguous(memory_format=torch.channels_last), 1)
    decoded = codec.decompress(data)
    codec.eval()
    assert len(again) > HEADER_BYTES
    assert codec.compress(t, 1) == data
    assert torch.equal(decoded, codec.decompress(data))
    assert not decoded.requires_grad


@pytest.mark.parametrize("latent_channels", [8, 96])
@pytest.mark.parametrize("size", [8, 16, 32, 96])
@pytest.mark.parametrize("level", [0, 3])
def test_estimate_is_the_size_of_the_file(latent_channels, size, level):
    """Untrained weights misjudge their latents: even then the coder spends what the estimate says."""
    codec = RawCodec(CodecConfig(16, latent_channels)).eval()
    t = 6 + torch.randn(1, 4, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        bits = float(codec(t, torch.tensor([level])).bits)
    assert abs(8 * len(codec.compress(t, level)) - bits) <= 0.01 * bits + 64


def strided(t, layout):
    if layout == "channels last":
        return t.contiguous(memory_format=torch.channels_last)
    order = {"columns first": (0, 1, 3, 2), "batch last": (3, 2, 1, 0)}[layout]
    return t.permute(order).contiguous().permute(order)


@pytest.mark.parametrize("layout", ["channels last", "columns first", "batch last"])
@pytest.mark.parametrize("size", [(32, 48), (21, 37)])
def test_memory_layout_does_not_matter(codec, layout, size):
    """A convolution may round otherwise on another layout; the decoder knows nothing of the sender's."""
    t = 6 + 3 * torch.randn(1, 4, *size, generator=torch.Generator().manual_seed(4))
    turned = strided(t, layout)
    assert torch.equal(turned, t)
    data = codec.compress(turned, 2)
    assert data == codec.compress(t, 2)
    with torch.no_grad():
        assert torch.equal(codec.decompress(data), codec(turned, torch.tensor([2])).x_hat)


def test_weights_in_another_memory_layout():
    codec = RawCodec(SMALL).eval().to(memory_format=torch.channels_last)
    t = torch.randn(1, 4, 32, 48, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        assert torch.equal(codec.decompress(codec.compress(t, 3)), codec(t, torch.tensor([3])).x_hat)


def test_numpy_numbers_name_the_same_codec(codec):
    config = CodecConfig(np.int64(6), np.int32(8), 4, np.float64(0.4), np.float32(-4.0))
    assert config == SMALL
    t = torch.ones(1, 4, 8, 8)
    data = RawCodec(config).eval().compress(t, np.int64(1))
    assert data == codec.compress(t, 1)


def test_float64_codec():
    codec = RawCodec(SMALL).double().eval()
    t = torch.randn(1, 4, 20, 20, generator=torch.Generator().manual_seed(2), dtype=F64)
    x = codec.decompress(codec.compress(t, 1))
    assert x.dtype == F64
    assert torch.equal(x, codec(t, torch.tensor([1])).x_hat)


def test_raw_files(codec, shot, stream):
    """3.10: subtract, pack, stabilise, code; decode, invert with the header's numbers, unpack."""
    raw, calibration = shot
    header, _ = parse(stream)
    assert header.gain == pytest.approx(16.1, rel=1e-6)
    assert header.size == (19, 23)
    shared = Calibration(header.gain, header.read_std, calibration.fixed_pattern, *[torch.zeros(2)] * 2)
    with torch.no_grad():
        out = codec(stabilise(raw, shared)[None], torch.tensor([2]))
    expected = unpack_bayer(inverse_generalized_anscombe(out.x_hat[0], header.gain, header.read_std))
    picture = decompress_raw(stream, codec)
    assert torch.equal(picture, expected)
    assert picture.shape == raw.shape
    assert (picture >= 0).all()
    assert torch.equal(codec.decompress(stream), out.x_hat)


def test_pattern_is_subtracted_and_not_transmitted(codec, shot, stream):
    raw, calibration = shot
    shifted = Calibration(16.1, 19.9, calibration.fixed_pattern + 50, torch.zeros(2), torch.zeros(2))
    assert compress_raw(raw + 50, shifted, codec, 2) == stream
    assert compress_raw(raw.double() + 50, shifted, codec, 2, black_level=512.0)[:4] == b"RCS1"


@pytest.mark.slow
def test_fresh_process_reads_the_same_picture(codec, stream):
    assert torch.equal(decode_elsewhere(codec, stream), decompress_raw(stream, codec))


def test_every_altered_byte_is_found(codec, stream):
    for place in range(len(stream)):
        for change in (1, 0x80):
            bad = bytearray(stream)
            bad[place] ^= change
            with pytest.raises(ValueError, match=r"stream|truncated"):
                decompress_raw(bytes(bad), codec)


def test_every_truncation_and_addition_is_found(codec, stream):
    for length in range(len(stream)):
        with pytest.raises(ValueError, match=r"stream|truncated"):
            decompress_raw(stream[:length], codec)
    with pytest.raises(ValueError, match="foreign bytes"):
        decompress_raw(stream + b"\0", codec)


@pytest.mark.parametrize("data", [b"", b"RCS1", b"\xff\xd8\xff\xe0" + bytes(200), b"RC"])
def test_foreign_files(codec, data):
    with pytest.raises(ValueError, match=r"stream|truncated"):
        codec.decompress(data)


def test_not_bytes(codec):
    with pytest.raises(TypeError, match="bytes"):
        codec.decompress("RCS1")


def forge(stream, offset, form, *values):
    """A stream with fields replaced and a right checksum: only what lies behind it can object."""
    fields = bytearray(stream[: HEADER_BYTES - 4])
    struct.pack_into(form, fields, offset, *values)
    payload = stream[HEADER_BYTES:]
    return bytes(fields) + struct.pack("<I", zlib.crc32(payload, zlib.crc32(fields))) + payload


@pytest.mark.parametrize(
    ("offset", "form", "values", "match"),
    [
        (4, "<B", (9,), "version 9"),
        (5, "<B", (7,), "not consistent"),
        (5, "<B", (1,), "latents|damaged"),  # another level has other gains: same latents, caught or equal
        (6, "<HH", (190, 23), "not consistent"),
        (10, "<HH", (3, 3), "not consistent"),
        (14, "<H", (0,), "impossible"),
        (16, "<H", (77,), "latents|damaged"),
        (18, "<f", (float("nan"),), "impossible"),
        (30, "<I", (1,), "other weights"),
        (34, "<I", (1,), "latents"),
    ],
)
def test_forged_headers(codec, stream, offset, form, values, match):
    forged = forge(stream, offset, form, *values)
    if (offset, form) == (5, "<B") and values == (1,):
        # a level is only a gain at the decoder: the checksum alone protects it, as the test above shows
        assert decompress_raw(forged, codec).shape == (38, 46)
        return
    with pytest.raises(ValueError, match=match):
        decompress_raw(forged, codec)


def test_scrambled_payload_with_right_checksum(codec, stream):
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        size = len(stream) - HEADER_BYTES
        noise = bytes(torch.randint(256, (size,), generator=g).tolist())
        with pytest.raises(ValueError, match=r"latents|damaged"):
            decompress_raw(forge(stream[:HEADER_BYTES] + noise, 4, "<B", 1), codec)


def test_other_weights(stream):
    other = RawCodec(SMALL).eval()
    other.reset_parameters(torch.Generator().manual_seed(9))
    with pytest.raises(ValueError, match="other weights"):
        decompress_raw(stream, other)


def test_bare_planes_are_no_raw_file(codec):
    with pytest.raises(ValueError, match=r"codec\.decompress"):
        decompress_raw(codec.compress(torch.ones(1, 4, 8, 8), 0), codec)


@pytest.mark.parametrize(
    ("t", "level", "error", "match"),
    [
        (torch.zeros(2, 4, 8, 8), 0, ValueError, "one picture"),
        (torch.zeros(4, 8, 8), 0, ValueError, "B, 4, h, w"),
        (torch.zeros(1, 4, 8, 8), 4, ValueError, "0 ... 3"),
        (torch.zeros(1, 4, 8, 8), -1, ValueError, "level must be a whole number"),
        (torch.zeros(1, 4, 8, 8), 1.0, TypeError, "level"),
        (torch.zeros(1, 4, 8, 8), True, TypeError, "level"),
        (torch.full((1, 4, 8, 8), float("inf")), 0, ValueError, "finite"),
        (torch.zeros(1, 4, 8, 8, dtype=F64), 0, TypeError, "dtype"),
    ],
)
def test_compress_rejects(codec, t, level, error, match):
    with pytest.raises(error, match=match):
        codec.compress(t, level)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"mosaic": torch.zeros(37, 46)}, ValueError, "even"),
        ({"mosaic": torch.zeros(1, 38, 46)}, ValueError, "H, W"),
        ({"mosaic": torch.full((38, 46), float("nan"))}, ValueError, "finite"),
        ({"mosaic": torch.zeros(38, 46).int()}, TypeError, "floating"),
        ({"mosaic": torch.zeros(36, 46)}, ValueError, "crop the pattern"),
        ({"gain": 0.0}, ValueError, "gain"),
        ({"gain": 1e-60}, ValueError, "header"),
        ({"read_std": -1.0}, ValueError, "read_std"),
        ({"level": 4}, ValueError, "0 ... 3"),
    ],
)
def test_compress_raw_rejects(codec, shot, change, error, match):
    raw, c = shot
    calibration = Calibration(
        change.get("gain", c.gain), change.get("read_std", c.read_std), c.fixed_pattern, c.mean, c.variance
    )
    with pytest.raises(error, match=match):
        compress_raw(change.get("mosaic", raw), calibration, codec, change.get("level", 2))
