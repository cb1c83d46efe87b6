"""Decoder-only language model from any source: configuration, weights and tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.activations import SILU
from edgekit.tensor_spec import Array

STOP_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|eom_id|>")
"""Tokens that end an answer even where a model's files do not say so: those of ChatML, Llama 3, Phi 3 and
Gemma, as ``llama_vocab::impl::load`` of ggml-org/llama.cpp has them."""


@dataclass(frozen=True)
class DecoderConfig:
    """Architecture of a decoder. Flags mark where architectures differ; a target rejects what it lacks.

    Attributes:
        architecture: ``llama`` (SmolLM2 and Mistral too), ``qwen2``, ``qwen3``, ``qwen3moe``, ``olmoe``,
            ``gemma2``, ``gemma3``, ``phi3`` or ``smollm3``.
        layers, width, heads, kv_heads, head_size, mlp_width, vocabulary: Sizes; q has heads * head_size rows.
        context_length: Maximum context length in training, in tokens.
        norm_eps: Epsilon added to the mean square in RMSNorm.
        tied_embedding: Whether the output matrix is the embedding. The model then has no ``lm_head.weight``.
        rope_theta: Base of the rotary embedding.
        rope_divisors: Divisors of the rotary frequencies, float [head_size / 2]; empty: 1.
        activation: Activation of the gate: SILU or GELU_TANH.
        qkv_bias: Whether q, k and v have biases.
        qk_norm: Whether q and k of each head are normalized (RMSNorm) before the rotation.
        whole_qk_norm: Whether that norm is over all heads together (OLMoE).
        output_norms: Whether attention's and the MLP's outputs are normalized before they are added.
        embedding_scale: Factor that embeddings are multiplied by.
        attention_scale: Factor that products of q and k are multiplied by.
        attention_softcap, logit_softcap: Cap c: values become c * tanh(value / c). 0: no cap.
        sliding_window: Tokens a token attends to in a sliding layer, itself included; 0: no sliding layers.
        sliding_layers: Whether each layer uses the sliding window; empty: no layer does.
        sliding_rope_theta: ``rope_theta`` of the sliding layers, which have no divisors; 0: ``rope_theta``.
        unrotated_layers: Whether each layer has no rotary embedding (Yang et al. 2025, arXiv 2501.18795);
            empty: all have it.
        experts: Number of MLPs of a layer, of which each token uses some (Shazeer et al. 2017). 0: one MLP.
        picked_experts: Number of experts that a token uses: those to which the router gives most.
        normalized_routing: Whether the picked experts' probabilities are divided by their sum.
    """

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    mlp_width: int
    vocabulary: int
    context_length: int
    norm_eps: float
    tied_embedding: bool
    rope_theta: float
    rope_divisors: tuple[float, ...] = ()
    activation: str = SILU
    qkv_bias: bool = False
    qk_norm: bool = False
    output_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    sliding_window: int = 0
    sliding_layers: tuple[bool, ...] = ()
    sliding_rope_theta: float = 0.0
    unrotated_layers: tuple[bool, ...] = ()
    whole_qk_norm: bool = False
    experts: int = 0
    picked_experts: int = 0
    normalized_routing: bool = False

    def __post_init__(self) -> None:
        if not self.attention_scale and self.head_size > 0:
            object.__setattr__(self, "attention_scale", self.head_size**-0.5)

    def inverse_frequencies(self, layer: int = 0) -> Array:
        """Compute the rotation angle of one position, float64 [head_size / 2]: element i rotates the pair
        (i, i + head_size / 2) of a head. 0: no rotation."""
        if self.unrotated_layers and self.unrotated_layers[layer]:
            return np.zeros(self.head_size // 2)
        slides = bool(self.sliding_layers) and self.sliding_layers[layer]
        theta = self.sliding_rope_theta if slides and self.sliding_rope_theta else self.rope_theta
        frequencies = theta ** -(np.arange(0, self.head_size, 2, dtype=np.float64) / self.head_size)
        if self.rope_divisors and not (slides and self.sliding_rope_theta):
            frequencies = frequencies / np.array(self.rope_divisors, np.float64)
        return frequencies

    def weight_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape by name of every weight that the model must have; matrices are [out, in]."""
        return _shapes_by_name(self)


def fused_rows(config: DecoderConfig, part: str) -> tuple[str, slice, int]:
    """Return where a matrix lies in a fused one: Phi 3 has q, k and v in one, and gate and up in another.

    Args:
        part: Last name of the matrix, e.g. ``q_proj``.

    Returns:
        ``qkv`` or ``gate_up``, the rows, and the number of all rows; "" if the matrix is stored by itself.
    """
    queries, keys, mlp = config.heads * config.head_size, config.kv_heads * config.head_size, config.mlp_width
    parts = {
        "q_proj": ("qkv", slice(0, queries), queries + 2 * keys),
        "k_proj": ("qkv", slice(queries, queries + keys), queries + 2 * keys),
        "v_proj": ("qkv", slice(queries + keys, queries + 2 * keys), queries + 2 * keys),
        "gate_proj": ("gate_up", slice(0, mlp), 2 * mlp),
        "up_proj": ("gate_up", slice(mlp, 2 * mlp), 2 * mlp),
    }
    separate = "", slice(None), 0
    return parts.get(part, separate) if config.architecture == "phi3" else separate


class PackedWeight(NamedTuple):
    """A matrix on the grid of its file: value = integer * scale + minimum.

    Attributes:
        bits: 4, 5, 6 or 8.
        block: Columns that share a scale: 16 or 32.
        integers: uint8 [out, in], below 2 ** bits.
        scales, minima: float32 [out, in / block].
    """

    bits: int
    block: int
    integers: Array
    scales: Array
    minima: Array

    def values(self) -> Array:
        """Return the matrix, float32 [out, in]."""
        rows, columns = self.integers.shape
        matrix = self.integers.reshape(rows, columns // self.block, self.block).astype(np.float32)
        matrix *= self.scales[..., None]
        matrix += self.minima[..., None]
        return matrix.reshape(rows, columns)


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """Language model. Weights are read from the file on request.

    Attributes:
        name: Name in the file, else the file's name.
        tokenizer: A ``tokenizer.json`` of Hugging Face's tokenizers.
        chat_template: Chat template in Jinja; "" if there is none.
        stop_ids: Tokens that end an answer, sorted.
        bos_id: Begin-of-text token; None if there is none.
        source_format: ``GGUF`` or ``Hugging Face``.
        license: License named in the file; "" if none.
        note: What a user should know about how the file was read; "" if nothing.
    """

    name: str
    config: DecoderConfig
    tokenizer: bytes = field(repr=False)
    chat_template: str = field(repr=False)
    stop_ids: tuple[int, ...]
    bos_id: int | None
    source_format: str
    license: str
    sha256: str
    read: Callable[[str], Array] = field(repr=False)
    read_packed: Callable[[str], PackedWeight | None] = field(repr=False, default=lambda name: None)
    note: str = ""

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Return the names of all weights, in the order in which the model uses them."""
        return tuple(self.config.weight_shapes())

    def weight(self, name: str) -> Array:
        """Read a weight as float32, anew at every call: matrices [out, in], biases and norms [size]. Norms
        are the factors of the normalized values: Gemma's 1 is included.

        Raises:
            ModelError: the file has changed or can't be read, or a value is not finite.
        """
        shape = self.config.weight_shapes()[name]
        values = self.read(name)
        if values.shape != shape or values.dtype != np.float32:
            raise AssertionError(f"{name} was read as {values.dtype} {values.shape}, not {shape}")
        if not np.isfinite(values).all():
            raise ModelError(
                f"{self.name}: weight {name} holds a value that is not finite; download the file again"
            )
        return values

    def packed(self, name: str) -> PackedWeight | None:
        """Return a matrix as the file's integers and scales; None if the file stores floats."""
        return self.read_packed(name)


ROUTER = "mlp.gate.weight"
"""A layer's matrix that gives each expert its logit. It stays float: rounding would pick other experts."""


def expert_prefix(expert: int) -> str:
    """Return the beginning of the names of an expert's weights, after the layer's."""
    return f"mlp.experts.{expert}."


@lru_cache(maxsize=8)
def _shapes_by_name(config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
    return MappingProxyType(dict(_weight_shapes(config)))


def _weight_shapes(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, mlp = config.width, config.mlp_width
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    yield "model.embed_tokens.weight", (config.vocabulary, width)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        yield f"{prefix}input_layernorm.weight", (width,)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, width)
            if config.qkv_bias:
                yield f"{prefix}self_attn.{name}_proj.bias", (rows,)
        if config.qk_norm:
            sizes = (queries, keys) if config.whole_qk_norm else (config.head_size,) * 2
            yield f"{prefix}self_attn.q_norm.weight", sizes[:1]
            yield f"{prefix}self_attn.k_norm.weight", sizes[1:]
        yield f"{prefix}self_attn.o_proj.weight", (width, queries)
        yield f"{prefix}post_attention_layernorm.weight", (width,)
        if config.output_norms:
            yield f"{prefix}pre_feedforward_layernorm.weight", (width,)
        if config.experts:
            yield prefix + ROUTER, (config.experts, width)
        for part in [expert_prefix(each) for each in range(config.experts)] or ["mlp."]:
            yield f"{prefix}{part}gate_proj.weight", (mlp, width)
            yield f"{prefix}{part}up_proj.weight", (mlp, width)
            yield f"{prefix}{part}down_proj.weight", (width, mlp)
        if config.output_norms:
            yield f"{prefix}post_feedforward_layernorm.weight", (width,)
    yield "model.norm.weight", (width,)
    if not config.tied_embedding:
        yield "lm_head.weight", (config.vocabulary, width)


SIZE_LIMITS = {
    "layers": 512, "width": 65_536, "heads": 1024, "kv_heads": 1024, "head_size": 1024, "mlp_width": 524_288,
    "vocabulary": 1 << 20, "context_length": 1 << 27,
}  # fmt: skip
"""Far above the sizes of models with 4 billion parameters; low enough that products stay small numbers."""
EXPERTS_LIMIT = 65_536
"""Experts of all layers together. Qwen3-235B-A22B has 12,032."""


def check_sizes(config: DecoderConfig, location: str) -> None:
    """Reject impossible sizes.

    Raises:
        ModelError: a size is impossible; the error names the first one.
    """
    for name, limit in SIZE_LIMITS.items():
        size = getattr(config, name)
        if not 0 < size <= limit:
            raise ModelError(f"{location}: its {name} is {size}; it must be 1 to {limit}")
    if config.experts and not (0 < config.picked_experts <= config.experts <= EXPERTS_LIMIT // config.layers):
        raise ModelError(
            f"{location}: a token picks {config.picked_experts} of {config.experts} experts in each of "
            f"{config.layers} layers, which is not possible"
        )
    if config.heads % config.kv_heads:
        raise ModelError(
            f"{location}: its {config.heads} heads are not a multiple "
            f"of its {config.kv_heads} key-value heads"
        )
    if config.head_size % 2:
        raise ModelError(
            f"{location}: its head_size is {config.head_size}; the rotary embedding requires an even number"
        )
    for name in ("norm_eps", "rope_theta", "sliding_rope_theta", "attention_softcap", "logit_softcap"):
        value = getattr(config, name)
        if not (math.isfinite(value) and value >= 0) or (name == "rope_theta" and value < 1):
            raise ModelError(f"{location}: its {name} is {value}, which is not a valid value")
