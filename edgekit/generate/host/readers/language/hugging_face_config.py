"""Decoder configuration from ``config.json`` of a Hugging Face folder; unsupported features are rejected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.model.hugging_face_folder import config_of
from edgekit.compiler.model.model_kinds import encoder_decoder_advice
from edgekit.errors import ModelError
from edgekit.generate.host.readers.folder_fields import NUMBER_LIMIT, number, real, text
from edgekit.generate.host.readers.language.activations import ACTIVATIONS, GELU_TANH, SILU
from edgekit.generate.host.readers.language.language_model import DecoderConfig
from edgekit.tensor_spec import Json

MODEL_TYPES: Mapping[str, str] = {
    "gemma2": "gemma2", "gemma3_text": "gemma3", "llama": "llama", "mistral": "llama", "olmoe": "olmoe",
    "phi3": "phi3", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "smollm3": "smollm3",
}  # fmt: skip
"""``model_type`` -> architecture."""
EXPERT_WIDTHS = {"olmoe": "intermediate_size", "qwen3moe": "moe_intermediate_size"}
"""Architecture with experts -> key of the size of an expert's hidden layer."""
TEXT2TEXT_FAMILIES = {"t5": "T5", "mt5": "T5", "bart": "BART", "marian": "Marian"}
"""``model_type`` -> family, of encoder-decoders that are read from safetensors if they write texts."""
TEXT_WRITERS = ("ForConditionalGeneration", "MTModel", "WithLMHeadModel")
"""Ends of the names of transformers' classes that write texts."""
NO_ROPE_INTERVAL = 4
"""Each fourth layer of SmolLM3 has no rotary embedding, where a file does not say it (``SmolLM3Config``;
``n_no_rope_layer_step`` of llama.cpp)."""
LIMITS = (-NUMBER_LIMIT, NUMBER_LIMIT)
"""Limits of real numbers; ``check_sizes`` has narrower ones."""


def text2text_family(folder: Path) -> str:
    """Return ``T5``, ``BART`` or ``Marian`` where a folder's ``config.json`` is that of such a model that
    writes texts; "" for others. Never raises."""
    config = config_of(folder)
    classes: Any = config.get("architectures") or [TEXT_WRITERS[0]]
    writes = isinstance(classes, list) and any(str(name).endswith(TEXT_WRITERS) for name in classes)
    return TEXT2TEXT_FAMILIES.get(str(config.get("model_type")), "") if writes else ""


def decoder_config(table: Mapping[str, Json], folder: Path, has_head: bool) -> DecoderConfig:
    """Return the decoder configuration of a folder.

    Args:
        table: Content of its ``config.json``.
        has_head: Whether the model has a weight ``lm_head.weight``.

    Raises:
        ModelError: the architecture or a feature is not supported, or a key is missing or wrong.
    """
    architecture = MODEL_TYPES.get(str(table.get("model_type")))
    if architecture is None:
        name = str(table.get("model_type"))[:40]
        if table.get("is_encoder_decoder"):
            raise ModelError(f"{folder}: has model_type {name}: it {encoder_decoder_advice()}")
        raise ModelError(
            f"{folder}: has model_type {name}, which is not supported; supported: {', '.join(MODEL_TYPES)}. "
            "If it does not write text, load it with transformers and pass the module: edgekit.build(model, "
            'example_inputs=tokenizer("a text", return_tensors="pt"), targets=[...]); or export it to ONNX '
            "in this folder (optimum-cli export onnx), and pass the folder"
        )

    def size(key: str, default: int | None = None) -> int:
        return number(table, key, folder, default)

    def value(key: str, default: float) -> float:
        return real(table, key, folder, default, LIMITS)

    is_gemma, routed = architecture.startswith("gemma"), architecture in EXPERT_WIDTHS
    width, heads, layers = size("hidden_size"), size("num_attention_heads"), size("num_hidden_layers")
    head_size = size("head_dim", width // max(heads, 1))
    rope = table.get("rope_scaling") or table.get("rope_parameters") or {}
    if not isinstance(rope, dict) or "full_attention" in rope:
        raise ModelError(f"{folder}: its rope_parameters differ between layers, which is not supported")
    theta = real({**table, **rope}, "rope_theta", folder, 10_000.0, LIMITS)
    _refuse_unread(table, architecture, folder)
    context_length, sliding_window = size("max_position_embeddings"), 0
    if architecture == "phi3" and isinstance(table.get("sliding_window"), int):
        context_length = min(context_length, size("sliding_window"))  # equal up to the window
    if is_gemma:
        sliding_window = size("sliding_window", 0)
    act_key, default = ("hidden_activation", "gelu_pytorch_tanh") if is_gemma else ("hidden_act", "silu")
    activated = text(table, act_key, folder) or default
    if ACTIVATIONS.get(activated) not in ((SILU,) if routed else (SILU, GELU_TANH)):
        raise ModelError(f"{folder}: its activation is {activated[:40]}, which is not supported")
    return DecoderConfig(
        architecture=architecture,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        head_size=head_size,
        mlp_width=size(EXPERT_WIDTHS.get(architecture, "intermediate_size")),
        vocabulary=size("vocab_size"),
        context_length=context_length,
        norm_eps=value("rms_norm_eps", 1e-6),
        tied_embedding=not has_head
        if table.get("tie_word_embeddings") is None
        else bool(table["tie_word_embeddings"]),
        rope_theta=theta,
        rope_divisors=_divisors(rope, theta, head_size, folder),
        activation=ACTIVATIONS[activated],
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture in ("qwen3", "qwen3moe", "olmoe", "gemma3"),
        whole_qk_norm=architecture == "olmoe",
        output_norms=is_gemma,
        embedding_scale=math.sqrt(width) if is_gemma else 1.0,
        attention_scale=value("query_pre_attn_scalar", float(max(head_size, 1))) ** -0.5 if is_gemma else 0.0,
        attention_softcap=value("attn_logit_softcapping", 0.0) if architecture == "gemma2" else 0.0,
        logit_softcap=value("final_logit_softcapping", 0.0) if is_gemma else 0.0,
        sliding_window=sliding_window,
        sliding_layers=_sliding(table, architecture, min(layers, 4096), folder) if sliding_window else (),
        sliding_rope_theta=value("rope_local_base_freq", 10_000.0) if architecture == "gemma3" else 0.0,
        unrotated_layers=_unrotated(table, min(layers, 4096), folder) if architecture == "smollm3" else (),
        experts=size("num_local_experts", size("num_experts", 0)) if routed else 0,
        picked_experts=size("num_experts_per_tok") if routed else 0,
        normalized_routing=routed and bool(table.get("norm_topk_prob")),
    )


def _refuse_unread(table: Mapping[str, Json], architecture: str, folder: Path) -> None:
    slides = architecture in ("llama", "qwen2", "qwen3", "smollm3") and table.get("sliding_window")
    if architecture.startswith(("qwen", "smollm3")):
        slides = slides and table.get("use_sliding_window")
    for is_other, setting in (
        (table.get("quantization_config"), "already quantized weights; use the original float model"),
        (
            architecture != "qwen2" and table.get("attention_bias"),
            "biases in attention, which is not supported",
        ),
        (table.get("mlp_bias"), "biases in the MLP, which is not supported"),
        (slides, "a sliding window in all layers, which is not supported"),
        (
            table.get("partial_rotary_factor", 1) != 1,
            "a partial rotary embedding, which is not supported",
        ),
        (table.get("clip_qkv") is not None, "a limit of q, k and v (clip_qkv), which is not supported"),
        (
            table.get("mlp_only_layers") or table.get("decoder_sparse_step", 1) != 1,
            "layers without experts between those that have them, which is not supported",
        ),
        (table.get("use_bidirectional_attention"), "bidirectional attention, which is not supported"),
    ):
        if is_other:
            raise ModelError(f"{folder}: has {setting}")


def _sliding(table: Mapping[str, Json], architecture: str, layers: int, folder: Path) -> tuple[bool, ...]:
    kinds = table.get("layer_types")
    if isinstance(kinds, list):
        if len(kinds) != layers or not set(map(str, kinds)) <= {"sliding_attention", "full_attention"}:
            raise ModelError(
                f"{folder}: its layer_types must give each of the {layers} layers one of two kinds"
            )
        return tuple(kind == "sliding_attention" for kind in kinds)
    pattern = 2 if architecture == "gemma2" else number(table, "sliding_window_pattern", folder, 6)
    return tuple(layer % max(pattern, 1) < pattern - 1 for layer in range(layers))


def _unrotated(table: Mapping[str, Json], layers: int, folder: Path) -> tuple[bool, ...]:
    """Return which layers have no rotary embedding: those with 0 in ``no_rope_layers``."""
    rotates = table.get("no_rope_layers")
    if rotates is None:
        interval = max(number(table, "no_rope_layer_interval", folder, NO_ROPE_INTERVAL), 1)
        return tuple((layer + 1) % interval == 0 for layer in range(layers))
    if not isinstance(rotates, list) or len(rotates) != layers or not set(map(str, rotates)) <= {"0", "1"}:
        raise ModelError(f"{folder}: its no_rope_layers must have 0 or 1 for each of the {layers} layers")
    return tuple(not each for each in rotates)


def _divisors(rope: Mapping[str, Json], theta: float, head_size: int, folder: Path) -> tuple[float, ...]:
    """Return the divisors of the rotary frequencies (Llama 3: ``_compute_llama3_parameters``)."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default" or not 0 < head_size <= 4096 or theta <= 0:
        return ()

    def value(key: str) -> float:
        return real(rope, key, folder, None, LIMITS)

    if kind not in ("linear", "llama3"):
        raise ModelError(
            f"{folder}: its rotary embedding has {str(kind)[:20]} scaling, which is not supported"
        )
    factor = value("factor")
    if factor <= 0:
        raise ModelError(f"{folder}: its rope_scaling has factor {factor}; it must be above 0")
    if kind == "linear":
        return (factor,) * (head_size // 2)
    low, high, original = (
        value("low_freq_factor"),
        value("high_freq_factor"),
        value("original_max_position_embeddings"),
    )
    if not 0 < low < high or original <= 0:
        raise ModelError(
            f"{folder}: its rope_scaling has low_freq_factor {low} and high_freq_factor {high}; the "
            "second must be the larger one"
        )
    frequencies = theta ** -(np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    turns = original * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors = 1 / ((1 - smooth) / factor + smooth)
    return tuple(float(value) for value in divisors)
