"""The float reference of a language model: numpy, float32, layer by layer.

It shares no code with the targets. Each layer's weights are read once for all texts and then released, and
the embedding is on pages of a file, so that a model needs the memory of one matrix only. Formulas: RMSNorm
(Zhang and Sennrich 2019), the rotary embedding in halves (Su et al. 2021), grouped-query attention (Ainslie
et al. 2023), the gated MLP (Shazeer 2020), experts (Shazeer et al. 2017), and for Gemma 2 and 3 their
technical reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.generate.host.readers.language.activations import activated
from edgekit.generate.host.readers.language.language_model import (
    ROUTER,
    DecoderConfig,
    LanguageModel,
    expert_prefix,
)
from edgekit.system.progress import counted
from edgekit.system.scratch_file import ScratchFile
from edgekit.tensor_spec import Array

_NEVER = np.float32(-np.inf)


class ReferenceDecoder:
    """A model's logits. The embedding, which is needed at both ends, is kept; nothing else is."""

    def __init__(self, model: LanguageModel) -> None:
        self._model, self._config = model, model.config
        scratch, tied = ScratchFile(), model.config.tied_embedding
        self._embedding = scratch.keep(model.weight("model.embed_tokens.weight"))
        self._head = self._embedding if tied else scratch.keep(model.weight("lm_head.weight"))

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Array]:
        """Return the final norm's output for every token, float32 [tokens, width] for each text.

        Args:
            texts: Token ids of each text; every text starts from an empty cache.
        """
        config = self._config
        ends = np.cumsum([len(text) for text in texts])[:-1]
        x = self._embedding[np.concatenate([np.asarray(text, np.int64) for text in texts])]
        x = x * np.float32(config.embedding_scale)
        for layer in counted(range(config.layers), "layers", name="computed"):
            x = self._layer(layer, x, ends)
        return list(np.split(self._norm(x, "model.norm.weight"), ends))

    def logits(self, hidden: Array) -> Array:
        """Compute the logits of rows of ``hidden``, float32 [rows, vocabulary]."""
        return soft_capped(hidden @ self._head.T, self._config.logit_softcap)

    def _layer(self, layer: int, x: Array, ends: Array) -> Array:
        config, prefix = self._config, f"model.layers.{layer}."
        y = self._norm(x, f"{prefix}input_layernorm.weight")
        y = self._attention(layer, y, ends)
        if config.output_norms:
            y = self._norm(y, f"{prefix}post_attention_layernorm.weight")
        x = x + y
        before = "pre_feedforward_layernorm" if config.output_norms else "post_attention_layernorm"
        y = self._norm(x, f"{prefix}{before}.weight")
        y = self._routed(prefix, y) if config.experts else self._mlp(f"{prefix}mlp.", y)
        if config.output_norms:
            y = self._norm(y, f"{prefix}post_feedforward_layernorm.weight")
        return x + y

    def _mlp(self, prefix: str, x: Array) -> Array:
        gate = activated(x @ self._model.weight(f"{prefix}gate_proj.weight").T, self._config.activation)
        gate *= x @ self._model.weight(f"{prefix}up_proj.weight").T
        outputs: Array = gate @ self._model.weight(f"{prefix}down_proj.weight").T
        return outputs

    def _routed(self, prefix: str, x: Array) -> Array:
        """Add up the outputs of the experts that each row picks, times their probabilities."""
        config = self._config
        logits = x @ self._model.weight(prefix + ROUTER).T
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        left_out = np.argsort(-shares, axis=-1, kind="stable")[:, config.picked_experts :]
        np.put_along_axis(shares, left_out, np.float32(0), axis=-1)
        if config.normalized_routing:
            shares /= shares.sum(axis=-1, keepdims=True)
        outputs = np.zeros_like(x)
        for expert in np.flatnonzero(shares.any(axis=0)).tolist():
            rows = np.flatnonzero(shares[:, expert])
            outputs[rows] += shares[rows, expert, None] * self._mlp(prefix + expert_prefix(expert), x[rows])
        return outputs

    def _attention(self, layer: int, x: Array, ends: Array) -> Array:
        config, prefix = self._config, f"model.layers.{layer}.self_attn."
        parts = {}
        for name in "qkv":
            projected = x @ self._model.weight(f"{prefix}{name}_proj.weight").T
            if config.qkv_bias:
                projected += self._model.weight(f"{prefix}{name}_proj.bias")
            shape = (len(x), -1) if config.whole_qk_norm else (len(x), -1, config.head_size)
            heads = projected.reshape(shape)
            if config.qk_norm and name != "v":
                heads = self._norm(heads, f"{prefix}{name}_norm.weight")
            parts[name] = np.split(heads.reshape(len(x), -1, config.head_size), ends)
        answers = [attention(config, layer, *qkv) for qkv in zip(*parts.values(), strict=True)]
        return np.concatenate(answers) @ self._model.weight(f"{prefix}o_proj.weight").T

    def _norm(self, x: Array, name: str) -> Array:
        square = np.mean(x * x, axis=-1, keepdims=True) + np.float32(self._config.norm_eps)
        normed: Array = x / np.sqrt(square) * self._model.weight(name)
        return normed


def attention(config: DecoderConfig, layer: int, q: Array, k: Array, v: Array) -> Array:
    """Compute causal attention of one text from an empty cache.

    Args:
        q: [tokens, heads, head_size].
        k, v: [tokens, kv_heads, head_size].

    Returns:
        [tokens, heads * head_size].
    """
    tokens = len(q)
    q, k = rotated(config, layer, q), rotated(config, layer, k)
    # [kv_heads, heads that share them * tokens, head_size], so that one product serves a key-value head
    q = q.reshape(tokens, config.kv_heads, -1, config.head_size).transpose(1, 2, 0, 3)
    q = q.reshape(config.kv_heads, -1, config.head_size) * np.float32(config.attention_scale)
    scores = soft_capped(q @ k.transpose(1, 2, 0), config.attention_softcap)
    scores = scores.reshape(config.kv_heads, -1, tokens, tokens)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    slides = bool(config.sliding_layers) and config.sliding_layers[layer]
    scores[..., (distance < 0) | (slides & (distance >= config.sliding_window))] = _NEVER
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    output = scores.reshape(config.kv_heads, -1, tokens) @ v.transpose(1, 0, 2)
    output = output.reshape(config.heads, tokens, config.head_size).transpose(1, 0, 2)
    answer: Array = output.reshape(tokens, -1)
    return answer


def rotated(config: DecoderConfig, layer: int, heads: Array) -> Array:
    """Apply the rotary embedding to [tokens, heads, head_size] at positions 0, 1, ..."""
    angles = np.arange(len(heads))[:, None, None] * config.inverse_frequencies(layer)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def soft_capped(values: Array, cap: float) -> Array:
    """Return ``cap * tanh(values / cap)``, or the values if the cap is 0."""
    return np.tanh(values / np.float32(cap)) * np.float32(cap) if cap else values


def in_windows(tokens: Sequence[int], size: int, before: Sequence[int] = ()) -> Iterator[list[int]]:
    """Yield pieces of ``size`` tokens of a text, with ``before`` in front; the last piece may be shorter."""
    for start in range(0, len(tokens), size):
        yield [*before, *tokens[start : start + size]]
