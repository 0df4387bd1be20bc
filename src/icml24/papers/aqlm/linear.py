"""A linear layer in additive code, in place of ``nn.Linear``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from . import _validate
from .formats import QuantizedWeight, blocks, matrix
from .lookup import arrange, code_dtype, lookup

__all__ = ["QuantizedLinear"]

KERNELS = ("dequantize", "lut")


class QuantizedLinear(nn.Module):
    r""":math:`y = \hat W x + \text{bias}` with :math:`\hat W` in additive code.

    Parameters
    ----------
    quantized_weight : QuantizedWeight
    bias : Tensor, shape (out_features,), optional
    kernel : {"dequantize", "lut"}
        Build the weight and multiply, or look up (`lut_matvec`; one input at a time pays).

    Attributes
    ----------
    codebooks, scales, bias : nn.Parameter
        Trained by `finetune_block` and `distill`; `bias` may be None.
    codes : Tensor, shape (O, I, M)
        A buffer, uint8 when there are at most 256 words, else int16 or int32.

    Raises
    ------
    ValueError
        Unknown kernel, a bias of another shape, look-up with ``out_group_size != 1``.
    """

    def __init__(
        self, quantized_weight: QuantizedWeight, bias: Tensor | None = None, *, kernel: str = "dequantize"
    ) -> None:
        super().__init__()
        codes, books = quantized_weight.codes, quantized_weight.codebooks
        if kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {KERNELS}; got {kernel!r}")
        if kernel == "lut" and books.shape[2] != 1:
            raise ValueError(f"look-up works for out_group_size = 1 only; got {books.shape[2]}")
        self.kernel = kernel
        self.out_features, self.in_features = codes.shape[0] * books.shape[2], codes.shape[1] * books.shape[3]
        if bias is not None and tuple(bias.shape) != (self.out_features,):
            raise ValueError(f"bias must be {(self.out_features,)}; got {tuple(bias.shape)}")
        self.register_buffer("codes", codes.to(code_dtype(books.shape[1])))
        self._arranged: tuple[tuple[int, int], Tensor] | None = None
        self.codebooks = nn.Parameter(books.detach().clone())
        self.scales = nn.Parameter(quantized_weight.scales.detach().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    @property
    def quantized_weight(self) -> QuantizedWeight:
        """Codes, codebooks and scales as they are now, without history."""
        return QuantizedWeight(self.codes.long(), self.codebooks.detach(), self.scales.detach())

    def dequantize(self) -> Tensor:
        """The weight matrix; differentiable in codebooks and scales."""
        return matrix(blocks(self.codes.long(), self.codebooks, self.scales))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs for inputs (..., in_features)."""
        if self.kernel == "dequantize":
            return F.linear(x, self.dequantize(), self.bias)
        _validate.inputs(x, self.in_features)
        y = lookup(x, self.codes, self.codebooks, self.scales, self._in_order())
        return y if self.bias is None else y + self.bias

    def _in_order(self) -> Tensor:
        """The codes as the kernel reads them, made anew when they have changed (by loading a state)."""
        now = (self.codes.data_ptr(), self.codes._version)
        if self._arranged is None or self._arranged[0] != now:
            self._arranged = now, arrange(self.codes, self.codebooks.shape[1])
        return self._arranged[1]

    def extra_repr(self) -> str:
        """Sizes, for printing a model."""
        books, words, _, group = self.codebooks.shape
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, codebooks={books} x {words}, "
            f"in_group_size={group}, kernel={self.kernel}"
        )
