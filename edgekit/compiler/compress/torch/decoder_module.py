"""Decoder in PyTorch, for training: llama's form with the differences of qwen2 and qwen3.

Formulas are those of ``edgekit/compiler/model/language/reference_decoder.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.compiler.model.language.language_model import DecoderConfig

EMBEDDING, HEAD, LAST_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
Weights = Mapping[str, Tensor]
"""By the names of ``DecoderConfig.weight_shapes``."""
Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [texts, kv_heads, tokens, head_size]; empty before the first call."""


def hidden(config: DecoderConfig, weights: Weights, tokens: Tensor, cache: Cache | None = None) -> Tensor:
    """Compute the output of the last norm for every token.

    Args:
        config: Configuration of the decoder.
        weights: Weights, float32.
        tokens: int64 [texts, tokens], all of one length.
        cache: Cache of the preceding tokens, which is extended; then one token at a time, after the first
            call. None if the texts begin here.

    Returns:
        float32 [texts, tokens, width].
    """
    x = weights[EMBEDDING][tokens] * config.embedding_scale
    start = cache[0][0].shape[2] if cache else 0
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        y = _norm(config, x, weights[f"{prefix}input_layernorm.weight"])
        y = _attention(config, weights, layer, y, start, cache)
        x = x + y @ weights[f"{prefix}self_attn.o_proj.weight"].T
        y = _norm(config, x, weights[f"{prefix}post_attention_layernorm.weight"])
        gate = silu(y @ weights[f"{prefix}mlp.gate_proj.weight"].T)
        up_proj = y @ weights[f"{prefix}mlp.up_proj.weight"].T
        x = x + (gate * up_proj) @ weights[f"{prefix}mlp.down_proj.weight"].T
    return _norm(config, x, weights[LAST_NORM])


def logits(config: DecoderConfig, weights: Weights, rows: Tensor) -> Tensor:
    """Compute the logits of rows of ``hidden``, float32 [..., vocabulary]."""
    return rows @ weights[EMBEDDING if config.tied_embedding else HEAD].T


def _attention(
    config: DecoderConfig, weights: Weights, layer: int, x: Tensor, start: int, cache: Cache | None
) -> Tensor:
    texts, count, _ = x.shape
    parts = {}
    for name in "qkv":
        prefix = f"model.layers.{layer}.self_attn.{name}"
        y = x @ weights[f"{prefix}_proj.weight"].T
        if config.qkv_bias:
            y = y + weights[f"{prefix}_proj.bias"]
        y = y.reshape(texts, count, -1, config.head_size)
        if config.qk_norm and name != "v":
            y = _norm(config, y, weights[f"{prefix}_norm.weight"])
        parts[name] = y.transpose(1, 2)
    q, k = (_rotated(config, parts[name], start) for name in "qk")
    v = parts["v"]
    if cache is not None:
        if len(cache) > layer:
            k, v = torch.cat([cache[layer][0], k], 2), torch.cat([cache[layer][1], v], 2)
            cache[layer] = k, v
        else:
            cache.append((k, v))
    shared = config.heads // config.kv_heads
    attended = scaled_dot_product_attention(
        q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1), is_causal=start == 0,
        scale=config.attention_scale,
    )  # fmt: skip
    return attended.transpose(1, 2).reshape(texts, count, -1)


def _rotated(config: DecoderConfig, heads: Tensor, start: int) -> Tensor:
    """Rotate heads [texts, heads, tokens, head_size] by their positions."""
    positions = torch.arange(start, start + heads.shape[2], dtype=torch.float64)
    angles = positions[:, None] * torch.from_numpy(config.inverse_frequencies())
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _norm(config: DecoderConfig, x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.norm_eps) * weight
