"""Hugging Face folders: the same model as the GGUF file that they are made of, and folders that are wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.hugging_face import is_hugging_face, open_hugging_face
from edgekit.generate.host.readers.language.hugging_face_config import decoder_config
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.tensor_spec import Array
from tests.fixtures.gguf_architectures import write_architecture
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hugging_face_files import safetensors_bytes, write_folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return open_gguf_model(write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_is_the_model_that_it_was_made_of(
    original: LanguageModel, tmp_path: Path, shards: int
) -> None:
    folder = write_folder(tmp_path / "tiny", original, shards)
    assert is_hugging_face(folder)
    model = open_hugging_face(folder)
    assert model.config == original.config
    assert model.weight_names == original.weight_names
    for name in model.weight_names:
        assert np.array_equal(model.weight(name), original.weight(name))
    assert (model.stop_ids, model.bos_id, model.name) == (original.stop_ids, original.bos_id, "tiny")
    assert model.chat_template == original.chat_template
    assert model.tokenizer == original.tokenizer
    assert model.packed(model.weight_names[0]) is None


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("olmoe", {"model_type": "olmoe", "num_experts": 8}),
        (
            "qwen3moe",
            {
                "model_type": "qwen3_moe", "num_local_experts": 8, "norm_topk_prob": True, "head_dim": 16,
                "intermediate_size": 999, "moe_intermediate_size": 96,
            },
        ),
    ],
)  # fmt: skip
def test_experts_are_read_from_both_formats(
    tmp_path: Path, architecture: str, keys: dict[str, object]
) -> None:
    original = open_gguf_model(write_architecture(tmp_path / "tiny.gguf", architecture))
    folder = write_folder(tmp_path / "tiny", original)
    config(folder, num_experts_per_tok=3, **keys)
    model = open_hugging_face(folder)
    assert model.config == original.config
    for name in model.weight_names:
        assert np.array_equal(model.weight(name), original.weight(name))


@pytest.mark.parametrize(("dtype", "close"), [("F16", 2e-3), ("BF16", 0.02)])
def test_weights_of_half_the_bits(original: LanguageModel, tmp_path: Path, dtype: str, close: float) -> None:
    model = open_hugging_face(write_folder(tmp_path / "tiny", original, dtype=dtype))
    name = "model.layers.1.mlp.up_proj.weight"
    assert 0 < np.abs(model.weight(name) - original.weight(name)).max() < close


def test_a_template_of_the_tokenizers_settings_is_read(original: LanguageModel, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", original)
    (folder / "chat_template.jinja").unlink()
    settings: dict[str, Any] = {
        "chat_template": [{"name": "default", "template": "{{ x }}"}],
        "eos_token": "<|im_start|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = open_hugging_face(folder)
    assert model.chat_template == "{{ x }}"
    assert model.stop_ids == (1, 2)


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def config(folder: Path, **changed: object) -> None:
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**table, **changed}))


def weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + bytes(64)


CASES: dict[str, tuple[Any, str]] = {
    'is not a tokenizer.json: it has no "model"': (
        lambda f: without(f, "tokenizer.json"),
        "has no tokenizer.json, which a language model needs",
    ),
    "a tokenizer that is none": (
        lambda f: (f / "tokenizer.json").write_text("[1]"),
        'is not a tokenizer.json: it has no "model"',
    ),
    "a config that is none": (
        lambda f: (f / "config.json").write_text("{"),
        "config.json: character 1 is not JSON",
    ),
    "another model": (
        lambda f: config(f, model_type="mamba"),
        "has model_type mamba, which is not supported; supported:",
    ),
    "an encoder": (
        lambda f: config(f, model_type="bert"),
        ". If it does not write text, load it with transformers and pass the module: edgekit.build(model, "
        'example_inputs=tokenizer("a text", return_tensors="pt"), targets=[...]); or export it to ONNX '
        "in this folder (optimum-cli export onnx), and pass the folder",
    ),
    "an encoder-decoder": (
        lambda f: config(f, model_type="pegasus", is_encoder_decoder=True),
        "has model_type pegasus: it is an encoder-decoder; EdgeKit builds whisper, moonshine, t5, mt5, bart, "
        "marian from folders (save_pretrained); to build its encoder, pass that module from "
        "Python: edgekit.build(model.get_encoder(), "
        "example_inputs=..., targets=[...])",
    ),
    "quantized": (
        lambda f: config(f, quantization_config={"bits": 4}),
        "has already quantized weights; use the original float model",
    ),
    "biases": (
        lambda f: config(f, attention_bias=True),
        "has biases in attention, which is not supported",
    ),
    "limited queries": (
        lambda f: config(f, model_type="olmoe", clip_qkv=8.0),
        "has a limit of q, k and v (clip_qkv), which is not supported",
    ),
    "a layer without experts": (
        lambda f: config(f, model_type="qwen3_moe", mlp_only_layers=[0], moe_intermediate_size=96),
        "has layers without experts between those that have them, which is not supported",
    ),
    "too many experts picked": (
        lambda f: config(f, model_type="olmoe", num_experts=4, num_experts_per_tok=5),
        "a token picks 5 of 4 experts in each of 2 layers, which is not possible",
    ),
    "a billion experts": (
        lambda f: config(f, model_type="olmoe", num_experts=10**9, num_experts_per_tok=5),
        "a token picks 5 of 1000000000 experts in each of 2 layers, which is not possible",
    ),
    "no experts": (
        lambda f: config(f, model_type="olmoe", num_experts=4, num_experts_per_tok=2),
        "has no weight model.layers.0.self_attn.q_norm.weight, which olmoe models of its config.json need",
    ),
    "experts with GELU": (
        lambda f: config(f, model_type="olmoe", hidden_act="gelu_pytorch_tanh"),
        "its activation is gelu_pytorch_tanh, which is not supported",
    ),
    "yarn": (
        lambda f: config(f, rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        "its rotary embedding has yarn scaling, which is not supported",
    ),
    "a million layers": (
        lambda f: config(f, num_hidden_layers=10**6),
        "its layers is 1000000; it must be 1 to 512",
    ),
    "a text for a size": (
        lambda f: config(f, hidden_size="64"),
        "config.json: hidden_size is 64; it must be a whole number",
    ),
    "another width": (lambda f: config(f, hidden_size=32, head_dim=16), "config.json requires [309, 32]"),
    "no weights": (lambda f: weights(f, header("{}")), "has no weight model.embed_tokens.weight"),
    "a header of nothing": (lambda f: weights(f, b""), "cannot be read"),
    "a huge header": (lambda f: weights(f, b"\xff" * 64), "is not a safetensors file, or is truncated:"),
    "a header that cannot be written as JSON": (lambda f: weights(f, header("{{")), "is not JSON"),
    "a header that is a list": (
        lambda f: weights(f, header("[]")),
        ": its header is not a JSON object; download it again",
    ),
    "a tensor beyond the end": (
        lambda f: weights(f, header('{"a": {"dtype": "F32", "shape": [999], "data_offsets": [0, 3996]}}')),
        "tensor a is at bytes [0, 3996], beyond the",
    ),
    "a tensor of another size": (
        lambda f: weights(f, header('{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 4]}}')),
        "tensor a is F32 [2, 3] in 4 bytes",
    ),
    "a tensor of a negative size": (
        lambda f: weights(f, header('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}')),
        "tensor a has no dtype, shape and data_offsets",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_folder_gives_one_clear_error(original: LanguageModel, tmp_path: Path, case: str) -> None:
    damage, message = CASES[case]
    folder = write_folder(tmp_path / "tiny", original)
    damage(folder)
    with pytest.raises(ModelError) as raised:
        open_hugging_face(folder)
    assert str(raised.value).startswith(str(folder))
    assert message in str(raised.value)


def test_a_shard_outside_of_the_folder_is_refused(original: LanguageModel, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", original, 2)
    index = {"weight_map": {"model.norm.weight": "../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"names '../secret.safetensors', which is not a file in its folder"):
        open_hugging_face(folder)


def test_a_folder_of_very_many_shards_is_refused(original: LanguageModel, tmp_path: Path) -> None:
    """Each one would be opened, and stay open."""
    folder = write_folder(tmp_path / "tiny", original, 2)
    index = {"weight_map": {f"w{number}": f"{number}.safetensors" for number in range(257)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index.json: names 257 files; at most 256 are supported"):
        open_hugging_face(folder)


def test_an_element_type_that_is_not_read_is_refused_with_its_name(
    original: LanguageModel, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "tiny", original)
    tensors: dict[str, tuple[str, Array]] = {
        name: ("F32", original.weight(name)) for name in original.weight_names
    }
    tensors["model.norm.weight"] = ("F8_E4M3", np.zeros(64, np.uint8))
    weights(folder, safetensors_bytes(tensors))
    with pytest.raises(
        ModelError,
        match=r"tensor model.norm.weight has type F8_E4M3; EdgeKit reads F32, F16, BF16: use the original",
    ):
        open_hugging_face(folder).weight("model.norm.weight")


LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def test_llama_3s_frequencies(tmp_path: Path) -> None:
    """High ones stay, low ones are divided by the factor, between them the divisor rises, as in transformers'
    ``_compute_llama3_parameters``."""
    scaling = {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = decoder_config({**LLAMA, "rope_scaling": scaling}, tmp_path, False)
    divisors = np.array(config.rope_divisors)
    assert divisors.shape == (32,)
    assert np.all(divisors[:15] == 1)
    assert np.allclose(divisors[18:], 32)
    assert np.all(np.diff(divisors) >= 0)
    plain = decoder_config(LLAMA, tmp_path, False).inverse_frequencies()
    wave = 2 * np.pi / plain[16]
    smooth = (8192 / wave - 1) / 3
    assert np.isclose(config.inverse_frequencies()[16], (1 - smooth) * plain[16] / 32 + smooth * plain[16])


def test_gemma_3s_layers_slide_but_for_each_sixth(tmp_path: Path) -> None:
    table = {
        **LLAMA,
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "head_dim": 256,
        "sliding_window": 512,
        "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": 10000.0,
    }
    config = decoder_config(table, tmp_path, False)
    assert [not slides for slides in config.sliding_layers] == [layer % 6 == 5 for layer in range(12)]
    assert (config.attention_scale, config.embedding_scale) == (1 / 16, 2048**0.5)
    assert config.inverse_frequencies(0)[1] == pytest.approx(10000.0 ** (-2 / 256))
    assert config.inverse_frequencies(5)[1] == pytest.approx(500000.0 ** (-2 / 256))
    assert config.qk_norm
    assert config.output_norms


@pytest.mark.parametrize(
    ("changes", "unrotated"),
    [
        ({}, (3, 7)),
        ({"no_rope_layer_interval": 2}, (1, 3, 5, 7)),
        ({"no_rope_layers": [1, 0] + [1] * 6}, (1,)),
    ],
)
def test_layers_of_smollm3_without_a_rotary_embedding(
    tmp_path: Path, changes: dict[str, Any], unrotated: tuple[int, ...]
) -> None:
    table = {**LLAMA, "model_type": "smollm3", "num_hidden_layers": 8}
    config = decoder_config({**table, **changes}, tmp_path, False)
    assert (
        tuple(np.flatnonzero([not config.inverse_frequencies(layer).any() for layer in range(8)]))
        == unrotated
    )
    with pytest.raises(ModelError, match="no_rope_layers must have 0 or 1 for each of the 8 layers"):
        decoder_config({**table, "no_rope_layers": [1]}, tmp_path, False)
