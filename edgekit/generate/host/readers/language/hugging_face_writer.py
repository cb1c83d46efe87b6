"""A language model written as a Hugging Face folder: ``config.json``, safetensors, ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.compiler.model.hugging_face_folder import WEIGHTS
from edgekit.errors import UsageError
from edgekit.generate.host.readers.language.activations import SILU
from edgekit.generate.host.readers.language.language_model import DecoderConfig, LanguageModel
from edgekit.system.atomic_files import write_atomically
from edgekit.tensor_spec import Array, Json

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Architectures that are written -> transformers' class."""
ALIGNMENT = 8
"""Of the header, as the safetensors library writes it."""


def check_writable(config: DecoderConfig, name: str) -> None:
    """Reject configurations that ``write_hugging_face`` can't express.

    Raises:
        UsageError: another architecture, or a rotary embedding with scaling that is not linear.
    """
    if config.architecture not in CLASSES or config.activation != SILU or config.output_norms:
        raise UsageError(
            f"{name} has architecture {config.architecture}; drafts can be trained for {', '.join(CLASSES)}"
        )
    if len(set(config.rope_divisors)) > 1:
        raise UsageError(
            f"{name} scales its rotary embedding by more than a factor, so a draft cannot be trained for it"
        )


def write_hugging_face(
    folder: Path, model: LanguageModel, layers: int, weights: Mapping[str, Array], name: str
) -> None:
    """Write a model with the architecture of another one and fewer layers.

    Args:
        folder: Output folder; it is created, and files in it are replaced.
        weights: Float32 weights, by the names of ``DecoderConfig.weight_shapes``.

    Raises:
        UsageError: ``check_writable`` rejects the configuration.
        OSError: a file can't be written.
    """
    check_writable(model.config, model.name)
    config = replace(model.config, layers=layers)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "tokenizer.json", [model.tokenizer])
    if model.chat_template:
        write_atomically(folder / "chat_template.jinja", [model.chat_template.encode()])
    parts = {key: np.ascontiguousarray(weights[key], "<f4") for key in config.weight_shapes()}
    write_atomically(folder / WEIGHTS, [_header(parts), *(part.tobytes() for part in parts.values())])
    table = json.dumps({**_table(config, model), "_name_or_path": name}, indent=2)
    write_atomically(folder / "config.json", [table.encode()])  # last: without it there is no model


def _header(parts: Mapping[str, Array]) -> bytes:
    header: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, part in parts.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(part.shape),
            "data_offsets": [offset, offset + part.nbytes],
        }
        offset += part.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _table(config: DecoderConfig, model: LanguageModel) -> dict[str, Json]:
    factor = config.rope_divisors[0] if config.rope_divisors else 1.0
    return {
        "architectures": [CLASSES[config.architecture]],
        "model_type": config.architecture,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "intermediate_size": config.mlp_width,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if factor == 1.0 else {"rope_type": "linear", "factor": factor},
        "tie_word_embeddings": config.tied_embedding,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "eos_token_id": list(model.stop_ids),
    }
