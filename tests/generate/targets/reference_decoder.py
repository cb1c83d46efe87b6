"""Tiny models, and a decoder in numpy (float64, no cache) that every engine's logits are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.readers.language.language_model import DecoderConfig, LanguageModel
from edgekit.tensor_spec import Array


def tiny_config(**changes: Any) -> DecoderConfig:
    """Two layers, width 64, two queries for each key."""
    config: dict[str, Any] = {
        "architecture": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "head_size": 16,
        "mlp_width": 96, "vocabulary": 80, "context_length": 128, "norm_eps": 1e-5, "tied_embedding": True,
        "rope_theta": 1000.0,
    }  # fmt: skip
    return DecoderConfig(**config | changes)


def tiny_model(seed: int = 0, **changes: Any) -> LanguageModel:
    """A model with random weights; ``changes`` are of its configuration."""
    config, random = tiny_config(**changes), np.random.default_rng(seed)
    weights = {}
    for name, shape in config.weight_shapes().items():
        spread = 1.0 if len(shape) == 1 else 1.5 / np.sqrt(shape[1])
        array = random.standard_normal(shape) * spread
        weights[name] = (1 + 0.1 * array if name.endswith("norm.weight") else array).astype(np.float32)
    return LanguageModel(
        name="tiny", config=config, tokenizer=b"", chat_template="", stop_ids=(), bos_id=None,
        source_format="Hugging Face", license="", sha256="", read=weights.__getitem__,
    )  # fmt: skip


def with_integers(model: LanguageModel, weights: Mapping[str, BlockWeights]) -> LanguageModel:
    """The model with what its integers stand for."""

    def read(name: str) -> Array:
        return weights[name].floats() if name in weights else model.weight(name)

    return replace(model, read=read)


def reference_logits(model: LanguageModel, tokens: Sequence[int]) -> Array:
    """float64 [tokens, vocabulary]."""
    c = model.config

    def weight(name: str) -> Array:
        return model.weight(name).astype(np.float64)

    def norm(x: Array, name: str) -> Array:
        normed: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + c.norm_eps) * weight(name)
        return normed

    embedding = weight("model.embed_tokens.weight")
    x = embedding[np.array(tokens)] * c.embedding_scale
    for layer in range(c.layers):
        prefix = f"model.layers.{layer}."
        y = _attention(model, layer, norm(x, f"{prefix}input_layernorm.weight"), norm)
        y = y @ weight(f"{prefix}self_attn.o_proj.weight").T
        after = f"{prefix}post_attention_layernorm.weight"
        x = x + (norm(y, after) if c.output_norms else y)
        y = norm(x, f"{prefix}pre_feedforward_layernorm.weight" if c.output_norms else after)
        y = _picked(model, prefix, y, weight) if c.experts else _mlp(model, f"{prefix}mlp.", y, weight)
        x = x + (norm(y, f"{prefix}post_feedforward_layernorm.weight") if c.output_norms else y)
    x = norm(x, "model.norm.weight")
    logits: Array = x @ (embedding if c.tied_embedding else weight("lm_head.weight")).T
    return c.logit_softcap * np.tanh(logits / c.logit_softcap) if c.logit_softcap else logits


def _mlp(model: LanguageModel, prefix: str, y: Array, weight: Any) -> Array:
    gate, up = (y @ weight(f"{prefix}{each}_proj.weight").T for each in ("gate", "up"))
    if model.config.activation == "silu":
        gate = gate / (1 + np.exp(-gate))
    else:
        gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    found: Array = (gate * up) @ weight(f"{prefix}down_proj.weight").T
    return found


def _picked(model: LanguageModel, prefix: str, x: Array, weight: Any) -> Array:
    """The sum of each row's experts, row by row."""
    c, rows = model.config, []
    for row in x:
        shares = np.exp(weight(f"{prefix}mlp.gate.weight") @ row)
        shares /= shares.sum()
        best = np.argsort(-shares)[: c.picked_experts]
        whole = shares[best].sum() if c.normalized_routing else 1
        outputs = [_mlp(model, f"{prefix}mlp.experts.{each}.", row, weight) for each in best]
        rows.append(shares[best] / whole @ np.array(outputs))
    return np.array(rows)


def _attention(model: LanguageModel, layer: int, x: Array, norm: Any) -> Array:
    c, count, prefix = model.config, len(x), f"model.layers.{layer}.self_attn."
    parts = {}
    for each, heads in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads)):
        y = x @ model.weight(f"{prefix}{each}_proj.weight").astype(np.float64).T
        if c.qkv_bias:
            y = y + model.weight(f"{prefix}{each}_proj.bias")
        if c.whole_qk_norm and each != "v":
            y = norm(y, f"{prefix}{each}_norm.weight")
        parts[each] = y.reshape(count, heads, c.head_size).swapaxes(0, 1)
    angles = np.outer(np.arange(count), c.inverse_frequencies(layer))
    cos, sin, half = np.cos(angles), np.sin(angles), c.head_size // 2
    for each in "qk":
        by_head = c.qk_norm and not c.whole_qk_norm
        y = norm(parts[each], f"{prefix}{each}_norm.weight") if by_head else parts[each]
        a, b = y[..., :half], y[..., half:]
        parts[each] = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    k, v = (np.repeat(parts[each], c.heads // c.kv_heads, axis=0) for each in "kv")
    scores = parts["q"] @ k.swapaxes(1, 2) * c.attention_scale
    if c.attention_softcap:
        scores = c.attention_softcap * np.tanh(scores / c.attention_softcap)
    distance = np.arange(count)[:, None] - np.arange(count)
    seen = distance >= 0
    if c.sliding_window and c.sliding_layers and c.sliding_layers[layer]:
        seen &= distance < c.sliding_window
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    joined: Array = (weights @ v).swapaxes(0, 1).reshape(count, -1)
    return joined
