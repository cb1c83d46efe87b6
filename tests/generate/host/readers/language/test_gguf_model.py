"""A language model out of a GGUF file."""

from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.tensor_spec import Array
from tests.fixtures.gguf_files import (
    F16,
    F32,
    Q4_1,
    Q8_0,
    as_tensors,
    gguf_bytes,
    tiny_metadata,
    tiny_weights,
    vocabulary,
    write_tiny,
)


def test_the_configuration_is_the_files(tmp_path: Path) -> None:
    model = open_gguf_model(write_tiny(tmp_path / "tiny.gguf"))
    config = model.config
    assert (config.layers, config.width, config.heads, config.kv_heads, config.head_size) == (2, 64, 4, 2, 16)
    assert (config.mlp_width, config.vocabulary, config.context_length) == (96, len(vocabulary()[0]), 128)
    assert config.tied_embedding
    assert config.attention_scale == pytest.approx(16**-0.5)
    assert (model.name, model.license, model.stop_ids, model.bos_id) == ("tiny", "apache-2.0", (2,), None)
    assert "<|im_start|>" in model.chat_template
    assert np.allclose(config.inverse_frequencies(), 10_000.0 ** -(np.arange(8) / 8))


def interleaved(values: Array, positions: Array) -> Array:
    """llama.cpp's rotation of a head of 16: pairs are (2 i, 2 i + 1)."""
    angles = positions[:, None] * 10_000.0 ** -(np.arange(8) / 8)
    even, odd = values[:, 0::2], values[:, 1::2]
    turned = np.empty_like(values)
    turned[:, 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[:, 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def halves(values: Array, positions: Array, frequencies: Array) -> Array:
    """Hugging Face's: pairs are (i, i + 8)."""
    angles = positions[:, None] * frequencies
    first, second = values[:, :8], values[:, 8:]
    turned = [
        first * np.cos(angles) - second * np.sin(angles),
        first * np.sin(angles) + second * np.cos(angles),
    ]
    return np.concatenate(turned, axis=1)


def test_rows_of_q_and_k_are_in_the_order_of_a_half_rotation(tmp_path: Path) -> None:
    """Products of rotated q and k are those of the file's order under the interleaved rotation."""
    model = open_gguf_model(write_tiny(tmp_path / "tiny.gguf"))
    weights, x = tiny_weights(), np.random.default_rng(1).standard_normal((5, 64))
    positions = np.arange(5)
    for head in range(4):
        rows, shared = slice(16 * head, 16 * head + 16), slice(16 * (head // 2), 16 * (head // 2) + 16)
        q = interleaved(x @ weights["blk.1.attn_q.weight"][rows].T, positions)
        k = interleaved(x @ weights["blk.1.attn_k.weight"][shared].T, positions)
        ours = [
            halves(x @ model.weight(f"model.layers.1.self_attn.{name}_proj.weight")[part].T, positions,
                   model.config.inverse_frequencies())
            for name, part in (("q", rows), ("k", shared))
        ]  # fmt: skip
        assert np.allclose(ours[0] @ ours[1].T, q @ k.T)


@pytest.mark.parametrize(("kind", "close"), [(F32, 0.0), (F16, 1e-3), (Q8_0, 0.02), (Q4_1, 0.2)])
def test_weights_are_read_in_every_form(tmp_path: Path, kind: int, close: float) -> None:
    model = open_gguf_model(write_tiny(tmp_path / "tiny.gguf", kind))
    weights = tiny_weights()
    for ours, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
        ("model.layers.1.post_attention_layernorm.weight", "blk.1.ffn_norm.weight"),
        ("model.norm.weight", "output_norm.weight"),
    ):
        assert np.abs(model.weight(ours) - weights[theirs]).max() <= close
    packed = model.packed("model.layers.0.self_attn.k_proj.weight")
    if kind in (F32, F16):
        assert packed is None
    else:
        assert packed is not None
        assert np.array_equal(packed.values(), model.weight("model.layers.0.self_attn.k_proj.weight"))


def test_every_weight_can_be_read(tmp_path: Path) -> None:
    metadata, weights = tiny_metadata(), tiny_weights(tied=False)
    (tmp_path / "untied.gguf").write_bytes(gguf_bytes(metadata, as_tensors(weights)))
    model = open_gguf_model(tmp_path / "untied.gguf")
    assert not model.config.tied_embedding
    assert len(model.weight_names) == len(weights)
    assert sum(model.weight(name).size for name in model.weight_names) == sum(
        w.size for w in weights.values()
    )


@pytest.mark.parametrize(("embedding", "output"), [(Q4_1, Q8_0), (Q8_0, Q4_1)])
def test_a_tied_matrix_that_is_stored_twice_is_read_once(tmp_path: Path, embedding: int, output: int) -> None:
    weights = tiny_weights()
    matrix = weights["token_embd.weight"]
    tensors = {
        **as_tensors(weights, Q8_0),
        **as_tensors({"token_embd.weight": matrix}, embedding),
        **as_tensors({"output.weight": matrix}, output),
    }
    (tmp_path / "twice.gguf").write_bytes(gguf_bytes(tiny_metadata(), tensors))
    model = open_gguf_model(tmp_path / "twice.gguf")
    assert model.config.tied_embedding
    assert "lm_head.weight" not in model.weight_names
    finer = "output.weight" if output == Q8_0 else "token_embd.weight"
    assert model.note == f"token_embd.weight and output.weight are one matrix: {finer} is used for both"
    assert np.abs(model.weight("model.embed_tokens.weight") - matrix).max() < 0.02
    packed = model.packed("model.embed_tokens.weight")
    assert packed is not None
    assert packed.bits == 8


def test_one_row_that_differs_makes_two_matrices(tmp_path: Path) -> None:
    weights = tiny_weights()
    other = weights["token_embd.weight"].copy()
    other[-1] = other[0]
    tensors = {**as_tensors(weights, Q8_0), **as_tensors({"output.weight": other}, Q8_0)}
    (tmp_path / "two.gguf").write_bytes(gguf_bytes(tiny_metadata(), tensors))
    model = open_gguf_model(tmp_path / "two.gguf")
    assert not model.config.tied_embedding
    assert model.note == ""
    assert np.abs(model.weight("lm_head.weight") - other).max() < 0.02


@pytest.mark.needs_tokenizers
def test_the_tokenizer_turns_texts_into_tokens_and_back(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    model = open_gguf_model(write_tiny(tmp_path / "tiny.gguf"))
    tokenizer = Tokenizer.from_buffer(model.tokenizer)
    text = "This is the one of 1234 \u00e9\u6f22 and\n that<|im_end|>"
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
    assert encoding.ids[-1] == 2
    assert {"\u0120the", "\u0120of", "1", "2"} <= set(encoding.tokens)


def test_a_value_that_is_not_finite_is_refused_when_it_is_read(tmp_path: Path) -> None:
    weights = tiny_weights()
    weights["blk.0.ffn_up.weight"][3, 4] = np.nan
    (tmp_path / "nan.gguf").write_bytes(gguf_bytes(tiny_metadata(), as_tensors(weights)))
    model = open_gguf_model(tmp_path / "nan.gguf")
    with pytest.raises(ModelError, match="not finite") as raised:
        model.weight("model.layers.0.mlp.up_proj.weight")
    assert str(raised.value) == (
        "tiny: weight model.layers.0.mlp.up_proj.weight holds a value that is not finite;"
        " download the file again"
    )
