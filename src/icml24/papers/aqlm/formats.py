r"""The format: codes, codebooks and scales; what they mean and what they cost.

.. math:: \hat w_{i,j} = s_i \sum_{m=1}^{M} C_m[b_{i,j,m}]

Layouts, everywhere: codes ``[O, I, M]``, codebooks ``[M, K, g_out, g_in]``, scales
``[O, 1, 1, 1]``, with ``O = out_features / g_out`` and ``I = in_features / g_in``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from icml24.common import checks

from . import _validate

__all__ = ["QuantizedWeight", "bits_per_parameter", "dequantize"]


def dequantize(codes: Tensor, codebooks: Tensor, scales: Tensor | None = None) -> Tensor:
    """The weight matrix that codes, codebooks and scales stand for.

    Parameters
    ----------
    codes : Tensor, shape (O, I, M), any integer dtype
        Entries in ``[0, K)``.
    codebooks : Tensor, shape (M, K, g_out, g_in), floating
    scales : Tensor, shape (O, 1, 1, 1), optional
        One factor an output group; 1 by default.

    Returns
    -------
    Tensor, shape (O * g_out, I * g_in)
        Dtype of `codebooks`; differentiable in codebooks and scales.

    Raises
    ------
    TypeError
        Codes that are not integers, codebooks that are not floating.
    ValueError
        Shapes that do not fit, a code outside ``[0, K)``.

    Notes
    -----
    Source: eq-aqlm-format, the paper's equation (2) with the scales of its section 3.3.
    """
    _validate.code_words(codes, codebooks, scales)
    return matrix(blocks(codes.long(), codebooks, scales))


def blocks(codes: Tensor, codebooks: Tensor, scales: Tensor | None = None) -> Tensor:
    """Unchecked: the blocks (O, I, g_out, g_in) of int64 codes."""
    flat = codebooks.flatten(2)  # embedding: its gradient is far cheaper than that of an index
    total = F.embedding(codes[..., 0], flat[0])
    for m in range(1, len(flat)):
        total = total + F.embedding(codes[..., m], flat[m])
    total = total.unflatten(2, codebooks.shape[2:])
    return total if scales is None else total * scales.to(total.dtype)


def matrix(parts: Tensor) -> Tensor:
    """Blocks (..., O, I, g_out, g_in) laid out as a matrix (..., O g_out, I g_in)."""
    o, i, g_out, g_in = parts.shape[-4:]
    return parts.transpose(-3, -2).reshape(*parts.shape[:-4], o * g_out, i * g_in)


def partition(weight: Tensor, g_out: int, g_in: int) -> Tensor:
    """A matrix cut into blocks (O, I, g_out, g_in); the inverse of `matrix`."""
    return weight.reshape(weight.shape[0] // g_out, g_out, weight.shape[1] // g_in, g_in).transpose(1, 2)


def bits_per_parameter(
    out_features: int,
    in_features: int,
    *,
    num_codebooks: int,
    nbits_per_codebook: int,
    in_group_size: int,
    out_group_size: int = 1,
    codebook_value_bits: int = 16,
    scale_bits: int = 16,
) -> float:
    r"""Bits that a weight costs, with codebooks and scales.

    .. math:: \frac{16\,g\,M\,2^B + (d_{out} d_{in}/g)\,B M + 16\,d_{out}/g_{out}}{d_{out}\,d_{in}},
              \qquad g = g_{in} g_{out}

    Parameters
    ----------
    out_features, in_features : int
    num_codebooks, nbits_per_codebook : int
        :math:`M` and :math:`B`; a codebook holds :math:`2^B` words.
    in_group_size, out_group_size : int
    codebook_value_bits, scale_bits : int, default 16
        Storage of a codebook's number and of a scale.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        A size below 1, more than 16 bits a code, or group sizes that do not divide the features.

    Notes
    -----
    Source: eq-aqlm-size, the paper's equation (10).
    """
    for name, value in (
        *(("out_features", out_features), ("in_features", in_features)),
        *(("num_codebooks", num_codebooks), ("in_group_size", in_group_size)),
        *(("out_group_size", out_group_size), ("codebook_value_bits", codebook_value_bits)),
        ("scale_bits", scale_bits),
    ):
        checks.whole(name, value, 1)
    checks.whole("nbits_per_codebook", nbits_per_codebook, 1, 16)
    _validate.divides("in_group_size", in_group_size, in_features, "in_features")
    _validate.divides("out_group_size", out_group_size, out_features, "out_features")
    weights = out_features * in_features
    group = in_group_size * out_group_size
    books = codebook_value_bits * group * num_codebooks * 2**nbits_per_codebook
    codes = weights // group * nbits_per_codebook * num_codebooks
    return (books + codes + scale_bits * (out_features // out_group_size)) / weights


@dataclass
class QuantizedWeight:
    """A weight matrix in additive code.

    Attributes
    ----------
    codes : Tensor, shape (O, I, M), int64
    codebooks : Tensor, shape (M, K, g_out, g_in)
    scales : Tensor, shape (O, 1, 1, 1)
    history : list of float
        Layer error (`layer_mse`) at the start of every round, the one that ended the work included.
    """

    codes: Tensor
    codebooks: Tensor
    scales: Tensor
    history: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        _validate.code_words(self.codes, self.codebooks, self.scales)

    def dequantize(self) -> Tensor:
        """The weight matrix, shape (O * g_out, I * g_in)."""
        return dequantize(self.codes, self.codebooks, self.scales)

    @property
    def bits_per_parameter(self) -> float:
        """Bits a weight, codebooks and scales in 16 bits included."""
        (o, i, m), (_, k, g_out, g_in) = self.codes.shape, self.codebooks.shape
        return bits_per_parameter(
            o * g_out,
            i * g_in,
            num_codebooks=m,
            nbits_per_codebook=max(1, (k - 1).bit_length()),
            in_group_size=g_in,
            out_group_size=g_out,
        )

    def to_packed(self) -> dict[str, Tensor]:
        """Codes as uint8 (or int16 modulo 2**16 when there are more than 256 words), the rest as float16."""
        codes = self.codes.to(torch.uint8 if self.codebooks.shape[1] <= 256 else torch.int16)
        half = {"codebooks": self.codebooks.detach().half(), "scales": self.scales.detach().half()}
        for name, value in half.items():
            if not torch.isfinite(value).all():
                raise ValueError(f"{name} do not fit float16; rescale the weight before packing")
        return {"codes": codes, **half}

    @classmethod
    def from_packed(
        cls, packed: Mapping[str, Tensor], *, dtype: torch.dtype = torch.float32
    ) -> QuantizedWeight:
        """What `to_packed` wrote, numbers in `dtype`; the history is not stored."""
        missing = sorted({"codes", "codebooks", "scales"} - set(packed))
        if missing:
            raise ValueError(f"packed weight lacks {missing}; expected what to_packed returns")
        codes = packed["codes"].long() % 2**16  # int16 holds the upper half of its codes as negative numbers
        return cls(codes, packed["codebooks"].to(dtype), packed["scales"].to(dtype))
