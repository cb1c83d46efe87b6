"""A language model out of a GGUF file: the keys and tensor names of each architecture.

Names and rules: ``gguf-py/gguf/constants.py`` and ``tensor_mapping.py``, ``convert_hf_to_gguf.py`` and
``src/llama-model.cpp`` of ggml-org/llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgekit.compiler.model.model_bytes import file_digest
from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.activations import GELU_TANH, SILU
from edgekit.generate.host.readers.language.gguf_blocks import read_packed, read_values
from edgekit.generate.host.readers.language.gguf_file import GgufFile, open_gguf
from edgekit.generate.host.readers.language.gguf_tokenizer import special_ids, tokenizer_json
from edgekit.generate.host.readers.language.hugging_face_config import EXPERT_WIDTHS, NO_ROPE_INTERVAL
from edgekit.generate.host.readers.language.language_model import (
    DecoderConfig,
    LanguageModel,
    PackedWeight,
    check_sizes,
    fused_rows,
)
from edgekit.tensor_spec import Array

ARCHITECTURES = (
    "gemma2", "gemma3", "llama", "olmoe", "phi3", "qwen2", "qwen3", "qwen3moe", "smollm3",
)  # fmt: skip
_NAMES: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NAMES_WITH_OUTPUT_NORMS: Mapping[str, str] = {
    **_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_FUSED = {"qkv": "attn_qkv", "gate_up": "ffn_up"}
_GEMMA3_SLIDING_THETA = 10_000.0
"""Of Gemma 3's sliding layers, where the file does not say it (``rope_freq_base_train_swa``)."""
EMBEDDING_TENSOR, OUTPUT_TENSOR = "token_embd.weight", "output.weight"
TIED_ROW_DB = 15.0
"""Lowest SNR of a row if two stored matrices are one that was rounded twice. Measured, worst of 151,936 rows:
24.3 dB (Qwen2.5-Coder-0.5B, Q5_0 and Q8_0), 20.8 dB (1.5B, Q4_K and Q6_K)."""
TIED_PART_ROWS = 2048
"""Rows that are compared at one time: their floats are in memory."""
_PATTERNS = {"gemma2": 2, "gemma3": 6}
"""The last of so many layers does not slide (``set_swa_pattern``)."""


def open_gguf_model(path: Path) -> LanguageModel:
    """Open a GGUF file as a language model.

    Raises:
        ModelError: it is damaged, of another architecture, or lacks something.
    """
    file = open_gguf(path)
    tied = _tied_tensor(file)
    config = _config(file, bool(tied))
    places = _places(file, config, tied)
    bos_id, stop_ids = special_ids(file, config.vocabulary)
    name = file.get("general.name", str) or path.stem

    def read(weight: str) -> Array:
        tensor_name, rows = places[weight]
        kind, shape = file.tensors[tensor_name].kind, config.weight_shapes()[weight]
        return half_rotation(read_values(kind, file.read(tensor_name, rows), shape), weight, config)

    def packed(weight: str) -> PackedWeight | None:
        tensor_name, rows = places[weight]
        kind, shape = file.tensors[tensor_name].kind, config.weight_shapes()[weight]
        if kind.unpack is None or len(shape) != 2:
            return None
        packed_weight = read_packed(kind, file.read(tensor_name, rows), shape)
        return packed_weight._replace(
            integers=half_rotation(packed_weight.integers, weight, config),
            scales=half_rotation(packed_weight.scales, weight, config),
            minima=half_rotation(packed_weight.minima, weight, config),
        )

    return LanguageModel(
        name, config, tokenizer_json(file, config.vocabulary),
        file.get("tokenizer.chat_template", str) or "", stop_ids, bos_id, "GGUF",
        file.get("general.license", str) or "", file_digest(path), read, packed,
        f"{EMBEDDING_TENSOR} and {OUTPUT_TENSOR} are one matrix: {tied} is used for both"
        if tied and OUTPUT_TENSOR in file.tensors
        else "",
    )  # fmt: skip


def _tied_tensor(file: GgufFile) -> str:
    """Return the tensor that is both the embedding and the output matrix. "" means that they differ.

    Files with a tied matrix often store it twice, in two element types. Both come from the same floats, so
    the one with more bits is nearer to them.
    """
    tensors = [file.tensors.get(name) for name in (EMBEDDING_TENSOR, OUTPUT_TENSOR)]
    if tensors[0] is None or tensors[1] is None:
        return EMBEDDING_TENSOR if tensors[1] is None else ""
    first, second = tensors[0], tensors[1]
    if first.shape != second.shape or len(first.shape) != 2:
        return ""
    for start in range(0, first.shape[0], TIED_PART_ROWS):
        rows = slice(start, min(start + TIED_PART_ROWS, first.shape[0]))
        shape = rows.stop - rows.start, first.shape[1]
        one, other = (
            read_values(tensor.kind, file.read(name, rows), shape)
            for name, tensor in ((EMBEDDING_TENSOR, first), (OUTPUT_TENSOR, second))
        )
        with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite differ
            limit = 10 ** (-TIED_ROW_DB / 10) * (other**2).sum(axis=1)
            if not (((one - other) ** 2).sum(axis=1) <= limit).all():
                return ""
    return EMBEDDING_TENSOR if first.size_bytes > second.size_bytes else OUTPUT_TENSOR


def _config(file: GgufFile, tied: bool) -> DecoderConfig:
    architecture = file.need("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"{file.path}: has architecture {architecture[:40]}, which is not supported; supported: "
            f"{', '.join(ARCHITECTURES)}"
        )

    def number(key: str) -> int:
        return file.need(f"{architecture}.{key}", int)

    def real(key: str, default: float) -> float:
        value = file.get(f"{architecture}.{key}", float)
        return default if value is None else value

    width, heads = number("embedding_length"), number("attention.head_count")
    embedding = file.tensors.get(EMBEDDING_TENSOR)
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path}: has no token embedding ({EMBEDDING_TENSOR}); download it again")
    head_size = file.get(f"{architecture}.attention.key_length", int) or width // max(heads, 1)
    context_length = number("context_length")
    sliding_window = file.get(f"{architecture}.attention.sliding_window", int) or 0
    if architecture == "phi3" and sliding_window:  # equal up to the window; all of its layers slide
        context_length, sliding_window = min(context_length, sliding_window), 0
    layers, is_gemma = number("block_count"), architecture.startswith("gemma")
    width_key = "expert_feed_forward_length" if architecture == "qwen3moe" else "feed_forward_length"
    routed = architecture in EXPERT_WIDTHS
    _refuse_unread(file, architecture, head_size)
    config = DecoderConfig(
        architecture=architecture,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=file.get(f"{architecture}.attention.head_count_kv", int) or heads,
        head_size=head_size,
        mlp_width=number(width_key),
        vocabulary=embedding.shape[0],
        context_length=context_length,
        norm_eps=file.need(f"{architecture}.attention.layer_norm_rms_epsilon", float),
        tied_embedding=tied,
        rope_theta=real("rope.freq_base", 10_000.0),
        activation=GELU_TANH if is_gemma else SILU,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        whole_qk_norm=architecture == "olmoe",
        experts=number("expert_count") if routed else 0,
        picked_experts=number("expert_used_count") if routed else 0,
        normalized_routing=architecture == "qwen3moe",
        output_norms=is_gemma,
        embedding_scale=math.sqrt(width) if is_gemma else 1.0,
        attention_softcap=real("attn_logit_softcapping", 0.0) if architecture == "gemma2" else 0.0,
        logit_softcap=real("final_logit_softcapping", 0.0) if is_gemma else 0.0,
        sliding_window=sliding_window if is_gemma else 0,
        sliding_layers=_sliding(architecture, layers) if is_gemma and sliding_window else (),
        sliding_rope_theta=real("rope.freq_base_swa", _GEMMA3_SLIDING_THETA)
        if architecture == "gemma3"
        else 0.0,
        rope_divisors=_divisors(file, architecture, head_size),
        unrotated_layers=tuple((layer + 1) % NO_ROPE_INTERVAL == 0 for layer in range(min(layers, 4096)))
        if architecture == "smollm3"
        else (),
    )
    check_sizes(config, str(file.path))
    return config


def _sliding(architecture: str, layers: int) -> tuple[bool, ...]:
    pattern = _PATTERNS[architecture]
    return tuple(layer % pattern < pattern - 1 for layer in range(min(layers, 4096)))


def _refuse_unread(file: GgufFile, architecture: str, head_size: int) -> None:
    """Reject settings that would change the output without notice."""
    values = file.get(f"{architecture}.attention.value_length", int)
    rotated = file.get(f"{architecture}.rope.dimension_count", int)
    scaling = file.get(f"{architecture}.rope.scaling.type", str)
    experts = file.get(f"{architecture}.expert_count", int)
    for is_other, setting in (
        (values not in (None, head_size), f"values of {values} and keys of {head_size} elements"),
        (rotated not in (None, head_size), f"a rotary embedding on {rotated} of {head_size} elements"),
        (scaling not in (None, "none", "linear"), f"a rotary embedding scaled by {scaling!s:.20}"),
        (architecture not in EXPERT_WIDTHS and bool(experts), f"a mixture of {experts} experts"),
        ("rope_factors_long.weight" in file.tensors, "a rotary embedding scaled by longrope"),
    ):
        if is_other:
            raise ModelError(f"{file.path}: has {setting}, which is not supported")


def _divisors(file: GgufFile, architecture: str, head_size: int) -> tuple[float, ...]:
    """Return the divisors of the rotary frequencies: a tensor for Llama 3, a factor for linear scaling."""
    tensor = file.tensors.get("rope_freqs.weight")
    if tensor is not None:
        if tensor.shape != (head_size // 2,) or tensor.kind.name != "F32":
            raise ModelError(f"{file.path}: its rope_freqs.weight is not float32 [{head_size // 2}]")
        values = read_values(tensor.kind, file.read("rope_freqs.weight"), tensor.shape)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ModelError(f"{file.path}: its rope_freqs.weight holds values that are not above 0")
        return tuple(float(value) for value in values)
    factor = file.get(f"{architecture}.rope.scaling.factor", float)
    if file.get(f"{architecture}.rope.scaling.type", str) == "linear" and factor not in (None, 1.0):
        assert factor is not None
        if not (math.isfinite(factor) and factor > 0):
            raise ModelError(f"{file.path}: its {architecture}.rope.scaling.factor is {factor}, not above 0")
        return (factor,) * min(head_size // 2, 4096)
    return ()


def _places(file: GgufFile, config: DecoderConfig, tied: str) -> dict[str, tuple[str, slice]]:
    """Return the tensor and rows of every weight. Check that all are present and have the right shapes.

    Args:
        tied: Tensor of a tied matrix; "" if there is none.
    """
    places: dict[str, tuple[str, slice]] = {}
    for name, shape in config.weight_shapes().items():
        place, rows, count = _place(name, config)
        place = tied if tied and place == EMBEDDING_TENSOR else place
        whole = (count, *shape) if ".experts." in name else (count or shape[0], *shape[1:])
        tensor = file.tensors.get(place)
        if tensor is None:
            raise ModelError(f"{file.path}: has no tensor {place}, which {config.architecture} models need")
        if tensor.shape != whole:
            raise ModelError(
                f"{file.path}: tensor {place} is {list(tensor.shape)}; its metadata says {list(whole)}"
            )
        places[name] = place, rows
    return places


def _place(name: str, config: DecoderConfig) -> tuple[str, slice, int]:
    """Return tensor and rows of a weight, and the number of all rows of a fused one; 0: it is not fused.
    Matrices of experts are fused along a dimension of their own."""
    stem, _, ending = name.rpartition(".")
    names = _NAMES_WITH_OUTPUT_NORMS if config.output_norms else _NAMES
    if stem in names:
        return f"{names[stem]}.{ending}", slice(None), 0
    _, _, layer, part = stem.split(".", 3)
    if part.startswith("mlp.experts."):
        expert, matrix = part.removeprefix("mlp.experts.").split(".")
        rows = slice(int(expert), int(expert) + 1)
        return f"blk.{layer}.{names[f'mlp.{matrix}']}_exps.{ending}", rows, config.experts
    fused, rows, count = fused_rows(config, part.rpartition(".")[2])
    return f"blk.{layer}.{_FUSED[fused] if fused else names[part]}.{ending}", rows, count


def adapter_tensor(name: str, config: DecoderConfig) -> str:
    """Return the tensor of a weight, to which an adapter's ``.lora_a`` and ``.lora_b`` refer. "": a part of a
    fused one, which is not adapted."""
    tensor, _, fused = _place(name, config)
    return "" if fused else tensor


def half_rotation(values: Array, weight: str, config: DecoderConfig) -> Array:
    """Undo ``LlamaModel.permute``: llama-type files have the rows of q and k in the order of an interleaved
    rotation, pairs (2 i, 2 i + 1); ours are (i, i + head_size / 2)."""
    if config.architecture not in ("llama", "smollm3") or not any(
        name in weight for name in (".q_proj.", ".k_proj.")
    ):
        return values
    pairs = values.reshape(-1, config.head_size // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
