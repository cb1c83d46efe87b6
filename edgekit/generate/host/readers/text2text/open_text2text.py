"""A text-to-text model from a folder of transformers: ``config.json``, safetensors and the tokenizer's files.

Names and rules are those of transformers' ``modeling_t5.py``, ``modeling_bart.py`` and
``modeling_marian.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.model.hugging_face_folder import read_json
from edgekit.errors import ModelError, UsageError
from edgekit.generate.device.token_rules import TextRules
from edgekit.generate.host.readers.encoder_decoder.config import (
    EMBEDDING,
    GATE,
    HEAD,
    LOGITS_BIAS,
    POSITIONS,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    ModelForm,
    check_sizes,
)
from edgekit.generate.host.readers.encoder_decoder.generation_settings import (
    generation_settings,
    text_rules,
    token_of,
)
from edgekit.generate.host.readers.folder_fields import (
    activation,
    known_activation,
    number,
    real,
    refuse_different,
    text,
)
from edgekit.generate.host.readers.language.activations import GELU_TANH
from edgekit.generate.host.readers.language.hugging_face import (
    check_weights,
    folder_digest,
    is_hugging_face,
    tensor_files,
    title_of,
)
from edgekit.generate.host.readers.language.hugging_face_config import text2text_family
from edgekit.generate.host.readers.language.safetensors_file import SafetensorsFile
from edgekit.generate.host.readers.text2text.tokenizer_files import read_tokenizers
from edgekit.tensor_spec import Array, Json

TEXT_TOKENS = 128
"""Default of ``--context``: the encoder always computes so many positions."""
CONTEXT_TOKENS = (64, 4096)
"""Least context, and the greatest of a model with relative positions."""
EQUAL = (
    ("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim"),
    ("vocab_size", "decoder_vocab_size"),
)  # fmt: skip
"""Sizes that encoder and decoder share."""
LEARNED_OFFSET = 2
"""Row of BART's learned positions that belongs to the first token."""
_T5_BLOCKS = {
    "self_attn": ("layer.0.", "SelfAttention."), "encoder_attn": ("layer.1.", "EncDecAttention."),
}  # fmt: skip


class _FolderForm(NamedTuple):
    """Sizes and form of a folder, and how its weights are read.

    Attributes:
        config: Sizes and form.
        place: Name of a weight -> its name in the files.
        first_row: First row of the tables of positions.
    """

    config: EncoderDecoderConfig
    place: Callable[[str], str]
    first_row: int = 0

    def stored_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the names and shapes of weights in the files."""
        for name, shape in shapes.items():
            first = self.first_row if name.endswith(POSITIONS) else 0
            before = (1,) if name == LOGITS_BIAS else ()
            yield self.place(name), (*before, shape[0] + first, *shape[1:])


def is_text2text_model(path: Path) -> bool:
    """Return whether a path is a folder with a T5, BART or Marian model, by its content. Never raises."""
    return bool(text2text_family(path)) and is_hugging_face(path)


def open_text2text_model(folder: Path, context: int | None = None) -> Text2TextModel:
    """Open a folder for which ``is_text2text_model`` is true.

    Args:
        context: Maximum number of tokens of a text, and of the text written from it; None: TEXT_TOKENS.

    Raises:
        ModelError: something is damaged, missing, or of a form that EdgeKit does not run.
        UsageError: the model does not support the context.
    """
    table = read_json(folder / "config.json")
    family, files = text2text_family(folder), tensor_files(folder)
    tokens = _context(table, family, context, folder)
    source = (_t5 if family == "T5" else _bart)(table, files, family, tokens, folder)
    config = source.config
    check_sizes(config, f"{folder}: config.json")
    settings = generation_settings(table, folder)
    rules = text_rules(settings, config.vocabulary, folder)
    start, pad = (
        token_of(settings, key, config.vocabulary, folder)
        for key in ("decoder_start_token_id", "pad_token_id")
    )
    tokenizers = read_tokenizers(folder, config.vocabulary, {start, pad, *rules.ends})
    computed = {} if family != "Marian" else _sinusoids(config)

    def read(name: str) -> Array:
        if name in computed:
            return computed[name]
        values = files[source.place(name)].read(source.place(name))
        if name.endswith(POSITIONS):
            return values[source.first_row : source.first_row + tokens]
        return values.reshape(-1) if name == LOGITS_BIAS else values

    stored = {name: shape for name, shape in config.weight_shapes().items() if name not in computed}
    check_weights(dict(source.stored_shapes(stored)), files, folder, family, longer=POSITIONS)
    return Text2TextModel(
        title_of(table, folder, family), config, rules, tokenizers.target, "Hugging Face",
        folder_digest(folder, files, tokenizers.files), read, family, start, tokenizers.special,
        tokenizers.spelling, source_tokenizer=tokenizers.source, pad=pad,
    )  # fmt: skip


def _context(table: Mapping[str, Json], family: str, context: int | None, folder: Path) -> int:
    smallest, largest = CONTEXT_TOKENS
    if family != "T5":
        largest = number(table, "max_position_embeddings", folder)
    if context is None:
        return min(TEXT_TOKENS, largest)
    if not smallest <= context <= largest:
        raise UsageError(f"--context is {context}; {folder.name} supports {smallest} to {largest} tokens")
    return context


def _t5(
    table: Mapping[str, Json], files: Mapping[str, SafetensorsFile], family: str, tokens: int, folder: Path
) -> _FolderForm:
    kind = text(table, "feed_forward_proj", folder, "relu")
    gate, _, name = kind.rpartition("-")
    if gate not in ("", "gated"):
        raise ModelError(f"{folder}: config.json: feed_forward_proj {kind[:40]!r} is not supported")
    is_scaled = table.get("tie_word_embeddings", True) is not False
    tied = is_scaled or HEAD not in files
    width, layers = number(table, "d_model", folder), number(table, "num_layers", folder)
    form = ModelForm(
        head_size=number(table, "d_kv", folder), rms=True,
        norm_eps=real(table, "layer_norm_epsilon", folder, 1e-6),
        activation=GELU_TANH if kind == "gated-gelu" else known_activation(name, folder),
        gated=("encoder", "decoder") if gate else (),
        biases=False, mlp_biases=False, buckets=number(table, "relative_attention_num_buckets", folder, 32),
        bucket_distance=number(table, "relative_attention_max_distance", folder, 128), attention_scale=1.0,
        logits_scale=width**-0.5 if is_scaled and width > 0 else 1.0, tied=tied,
    )  # fmt: skip
    config = EncoderDecoderConfig(
        width, number(table, "num_heads", folder), number(table, "d_ff", folder), layers,
        number(table, "num_decoder_layers", folder, layers), 0, tokens, tokens,
        number(table, "vocab_size", folder), form,
    )  # fmt: skip
    shared = "shared.weight" if "shared.weight" in files else EMBEDDING
    return _FolderForm(config, lambda weight: shared if weight == EMBEDDING else _t5_name(weight, bool(gate)))


def _t5_name(name: str, gated: bool) -> str:
    part, *rest = name.split(".")
    if rest[0] == "relative_bias":
        return f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    if rest[0] == "layer_norm":
        return f"{part}.final_layer_norm.weight"
    if rest[0] != "layers":
        return name
    block, place = f"{part}.block.{rest[1]}.", rest[2]
    if place in _T5_BLOCKS:
        layer, attention = _T5_BLOCKS[place]
        return f"{block}{layer}{attention}{rest[3][0]}.weight"
    last = f"{block}layer.{2 if part == 'decoder' else 1}."
    if place == "final_layer_norm":
        return f"{last}layer_norm.weight"
    if place.endswith("_layer_norm"):
        return f"{block}{_T5_BLOCKS[place.removesuffix('_layer_norm')][0]}layer_norm.weight"
    products = {"fc1": "wi_0" if gated else "wi", GATE: "wi_1", "fc2": "wo"}
    return f"{last}DenseReluDense.{products[place]}.weight"


def _bart(
    table: Mapping[str, Json], files: Mapping[str, SafetensorsFile], family: str, tokens: int, folder: Path
) -> _FolderForm:
    refuse_different(table, EQUAL, folder)
    if table.get("share_encoder_decoder_embeddings") is False:
        raise ModelError(
            f"{folder}: config.json: encoder and decoder have embeddings of their own "
            "(share_encoder_decoder_embeddings), which is not supported"
        )
    for key in ("normalize_before", "add_final_layer_norm", "extra_pos_embeddings"):
        if table.get(key) not in (None, False, LEARNED_OFFSET):
            raise ModelError(f"{folder}: config.json: {key} is not supported")
    width = number(table, "d_model", folder)
    prefix = "model." if any(name.startswith("model.") for name in files) else ""
    tied = table.get("tie_word_embeddings", True) is not False or HEAD not in files
    form = ModelForm(
        norms_after=True, embedding_norm=family == "BART", key_bias=True,
        activation=activation(table, "activation_function", folder, "gelu"),
        embedding_scale=math.sqrt(max(width, 0)) if table.get("scale_embedding") else 1.0, tied=tied,
        logits_bias=LOGITS_BIAS in files,
    )  # fmt: skip
    config = EncoderDecoderConfig(
        width, number(table, "encoder_attention_heads", folder), number(table, "encoder_ffn_dim", folder),
        number(table, "encoder_layers", folder), number(table, "decoder_layers", folder), 0, tokens, tokens,
        number(table, "vocab_size", folder), form,
    )  # fmt: skip
    shared = f"{prefix}shared.weight" if f"{prefix}shared.weight" in files else f"{prefix}{EMBEDDING}"

    def place(name: str) -> str:
        if name == EMBEDDING:
            return shared
        return name if name in (LOGITS_BIAS, HEAD) else prefix + name

    return _FolderForm(config, place, LEARNED_OFFSET)


def _sinusoids(config: EncoderDecoderConfig) -> dict[str, Array]:
    """Return Marian's tables of positions: sines in the first half of a row, cosines in the second."""
    frequencies = 10_000.0 ** -(np.arange(0, config.width, 2, dtype=np.float64) / max(config.width, 1))
    angles = np.outer(np.arange(config.positions, dtype=np.float64), frequencies)
    cosines = np.cos(angles)[:, : config.width // 2]
    rows = np.concatenate([np.sin(angles), cosines], axis=1).astype(np.float32)
    return {f"{part}.{POSITIONS}": rows for part in ("encoder", "decoder")}


@dataclass(frozen=True, eq=False)
class Text2TextModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        source_tokenizer: Content of the ``tokenizer.json`` that splits texts; often the same as
            ``tokenizer``.
        pad: Token that a source is padded with.
    """

    rules: TextRules
    source_tokenizer: bytes = field(repr=False, kw_only=True)
    pad: int = field(kw_only=True)
