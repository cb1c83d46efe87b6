"""A Moonshine model from a folder of transformers: ``config.json``, safetensors, ``tokenizer.json``, and
where they exist ``generation_config.json`` and ``preprocessor_config.json``.

Names and rules are those of transformers' ``modeling_moonshine.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from edgekit.compiler.model.hugging_face_folder import read_json
from edgekit.errors import ModelError
from edgekit.generate.device.embedding_table import stem_sizes
from edgekit.generate.host.readers.encoder_decoder.config import (
    GATE,
    HEAD,
    EncoderDecoderConfig,
    ModelForm,
    check_sizes,
)
from edgekit.generate.host.readers.encoder_decoder.generation_settings import (
    generation_settings,
    text_rules,
    token_of,
)
from edgekit.generate.host.readers.folder_fields import activation, number, real, refuse_different, table_of
from edgekit.generate.host.readers.language.hugging_face import (
    check_weights,
    folder_digest,
    tensor_files,
    title_of,
)
from edgekit.generate.host.readers.speech.speech_model import LanguageTokens, SoundFormat, SpeechModel
from edgekit.generate.host.readers.text2text.tokenizer_files import read_tokenizers
from edgekit.tensor_spec import Array, Json

RATE_HZ = 16_000
WINDOWS_S = (4, 8, 16, 30)
"""Lengths in seconds that both parts are compiled at. Moonshine was trained on sounds of up to 30 s."""
TOKENS_A_SECOND = 6.5
"""Most tokens for a second of sound: longer texts are repetitions (the model's card)."""
SAME = (
    ("encoder_num_attention_heads", "decoder_num_attention_heads"),
    ("encoder_num_attention_heads", "encoder_num_key_value_heads"),
    ("decoder_num_attention_heads", "decoder_num_key_value_heads"),
)
ROTATED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")
_NORMS = {
    "encoder": {"self_attn_layer_norm": "input_layernorm", "final_layer_norm": "post_attention_layernorm"},
    "decoder": {
        "self_attn_layer_norm": "input_layernorm", "encoder_attn_layer_norm": "post_attention_layernorm",
        "final_layer_norm": "final_layernorm",
    },
}  # fmt: skip


def open_moonshine_folder(folder: Path) -> SpeechModel:
    """Open a folder whose ``model_type`` is ``moonshine``.

    Raises:
        ModelError: something is damaged, missing, or of a form that EdgeKit does not run.
    """
    table, files = read_json(folder / "config.json"), tensor_files(folder)
    config = _config(table, table.get("tie_word_embeddings", True) is not False, folder)
    check_weights(dict(_stored_shapes(config)), files, folder, "Moonshine")
    _check_sound(folder)
    settings = generation_settings(table, folder)
    rules = text_rules(settings, config.vocabulary, folder)
    start = token_of(settings, "decoder_start_token_id", config.vocabulary, folder)
    tokenizers = read_tokenizers(folder, config.vocabulary, {start, *rules.ends})

    def read(name: str) -> Array:
        values = files[_place(name)].read(_place(name))
        if _is_half(name):  # the second half is activated
            return values[: config.mlp_width] if GATE in name else values[config.mlp_width :]
        if name.endswith(ROTATED):
            by_head = values.reshape(config.heads, config.head_size, config.width)
            return by_head[:, _halves(config)].reshape(values.shape)
        return values

    return SpeechModel(
        title_of(table, folder, "moonshine"), config, rules, tokenizers.target, "Hugging Face",
        folder_digest(folder, files, tokenizers.files), read, "Moonshine", start, tokenizers.special,
        tokenizers.spelling, sound=SoundFormat(RATE_HZ), tokens=LanguageTokens(),
        further_windows=tuple(seconds * RATE_HZ for seconds in WINDOWS_S[:-1]),
        tokens_a_second=TOKENS_A_SECOND,
    )  # fmt: skip


def _config(table: Mapping[str, Json], tied: bool, folder: Path) -> EncoderDecoderConfig:
    refuse_different(table, SAME, folder)
    if table.get("attention_bias"):
        raise ModelError(f"{folder}: config.json: attention_bias is not supported")
    width, heads = number(table, "hidden_size", folder), number(table, "encoder_num_attention_heads", folder)
    if heads < 1 or width % heads or table.get("head_dim") not in (None, width // heads):
        raise ModelError(
            f"{folder}: config.json: a width of {width} is not that of {heads} heads of one size"
        )
    rope = {**table, **table_of(table, "rope_scaling", folder), **table_of(table, "rope_parameters", folder)}
    if rope.get("rope_type", "default") != "default":
        raise ModelError(f"{folder}: config.json: rope_type {str(rope['rope_type'])[:20]!r} is not supported")
    rotary = int(width // heads * real(rope, "partial_rotary_factor", folder, 0.9))
    if not rotary or rotary % 2:
        raise ModelError(f"{folder}: config.json: {rotary} rotated values of a head are not supported")
    window = WINDOWS_S[-1] * RATE_HZ
    form = ModelForm(
        norm_biases=False, biases=False, gated=("decoder",), tied=tied, rotary=rotary,
        rotary_base=real(rope, "rope_theta", folder, 10_000.0, (1, 1e9)),
        activation=activation(table, "encoder_hidden_act", folder, "gelu"),
        decoder_activation=activation(table, "decoder_hidden_act", folder, "silu"),
    )  # fmt: skip
    config = EncoderDecoderConfig(
        width, heads, number(table, "intermediate_size", folder),
        number(table, "encoder_num_hidden_layers", folder),
        number(table, "decoder_num_hidden_layers", folder), 0, stem_sizes(window)[-1],
        number(table, "max_position_embeddings", folder, 512),
        number(table, "vocab_size", folder), form, window,
    )  # fmt: skip
    check_sizes(config, f"{folder}: config.json")
    return config


def _check_sound(folder: Path) -> None:
    """Check that samples go in as they are."""
    table = read_json(folder / "preprocessor_config.json", needed=False)
    for key, expected in (("sampling_rate", RATE_HZ), ("do_normalize", False), ("feature_size", 1)):
        if table.get(key, expected) != expected:
            raise ModelError(
                f"{folder}: preprocessor_config.json: {key} is {str(table[key])[:20]}; Moonshine models have "
                f"{expected}"
            )


def _stored_shapes(config: EncoderDecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, (rows, *rest) in config.weight_shapes().items():
        yield _place(name), (2 * rows if _is_half(name) else rows, *rest)


def _is_half(name: str) -> bool:
    return name.startswith("decoder.") and name.split(".")[-2] in ("fc1", GATE)


def _halves(config: EncoderDecoderConfig) -> Array:
    """Return the order of a head's values in which pairs that are rotated lie in two halves. In the file,
    they are neighbours."""
    pairs = np.arange(config.form.rotary).reshape(-1, 2).T.ravel()
    return np.concatenate([pairs, np.arange(config.form.rotary, config.head_size)])


def _place(name: str) -> str:
    if name == HEAD:
        return "proj_out.weight"
    part, *rest = name.split(".")
    if rest[0] == "layers":
        layer, kind, *last = rest[1:]
        if kind in _NORMS[part]:
            kind = _NORMS[part][kind]
        elif kind.startswith("fc"):
            kind = f"mlp.{kind.removesuffix('_gate')}"
        last = ["o_proj" if word == "out_proj" else word for word in last]
        return ".".join(("model", part, "layers", layer, kind, *last))
    return (
        f"model.decoder.norm.{rest[1]}" if (part, rest[0]) == ("decoder", "layer_norm") else f"model.{name}"
    )
