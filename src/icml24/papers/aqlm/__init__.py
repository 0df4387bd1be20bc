r"""Two bits a weight by additive quantisation, AQLM (Egiazarian et al., ICML 2024).

A weight matrix is cut into groups of eight; every group is a sum of words, one from each
codebook, times the scale of its row (`dequantize`). `quantize_layer` finds codebooks and codes for
one matrix and the inputs it sees, `quantize_model` does so block by block and tunes every block,
`distill` tunes the whole. `rtn_quantize` and `gptq_quantize` are the baselines; `lut_matvec`
multiplies by a quantised matrix without building it.
"""

from icml24.common.checkpoints import load_causal_lm

from .beam import beam_search_codes, beam_search_codes_l2
from .blocks import finetune_block, quantize_model
from .clusters import kmeans, residual_kmeans
from .codebooks import least_squares_codebooks, update_codebooks
from .evaluation import distill, perplexity
from .formats import QuantizedWeight, bits_per_parameter, dequantize
from .layers import AQLMConfig, quantize_layer
from .linear import QuantizedLinear
from .lookup import lut_matvec
from .objective import GramAccumulator, activation_gram, layer_mse
from .uniform import gptq_quantize, rtn_quantize, uniform_bits_per_parameter

__all__ = [
    "AQLMConfig",
    "GramAccumulator",
    "QuantizedLinear",
    "QuantizedWeight",
    "activation_gram",
    "beam_search_codes",
    "beam_search_codes_l2",
    "bits_per_parameter",
    "dequantize",
    "distill",
    "finetune_block",
    "gptq_quantize",
    "kmeans",
    "layer_mse",
    "least_squares_codebooks",
    "load_causal_lm",
    "lut_matvec",
    "perplexity",
    "quantize_layer",
    "quantize_model",
    "residual_kmeans",
    "rtn_quantize",
    "uniform_bits_per_parameter",
    "update_codebooks",
]
