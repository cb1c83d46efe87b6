"""The float reference of an encoder-decoder: numpy, float32. Its forward pass shares no code with the graphs
of the targets.

Formulas: layer normalization (Ba et al. 2016), RMSNorm (Zhang and Sennrich 2019), attention (Vaswani et al.
2017) with relative positions (Raffel et al. 2020) or rotated ones (Su et al. 2021), group normalization (Wu
and He 2018), as Radford et al. 2022, Lewis et al. 2019 and Raffel et al. 2020 combine them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from edgekit.generate.device.embedding_table import STEM
from edgekit.generate.host.readers.encoder_decoder.config import (
    EMBEDDING,
    EMBEDDING_NORM,
    GATE,
    LOGITS_BIAS,
    POSITIONS,
    RELATIVE_BIAS,
    STEM_NORM,
    EncoderDecoderModel,
    relative_buckets,
    rotary_angles,
)
from edgekit.generate.host.readers.language.activations import GELU, activated
from edgekit.tensor_spec import Array

_NEVER = np.float32(-np.inf)
KeysValues = tuple[Array, Array]
"""Keys and values of a layer, float32 [heads, positions, head_size] each."""


class ReferenceModel:
    """A model's encoder and decoder. All weights are kept."""

    def __init__(self, model: EncoderDecoderModel) -> None:
        self._model, self._config = model, model.config
        self._shapes = model.config.weight_shapes()
        self._weight = cache(model.weight)

    def encode(self, source: Array) -> list[KeysValues]:
        """Compute the keys and values that the decoder's layers attend to.

        Args:
            source: Features, float32 [mels, frames]; samples of a sound, float32 [n], or a text's tokens,
                int64 [n], both without padding.

        Returns:
            For each layer of the decoder, [heads, positions, head_size] each.
        """
        if self._config.mels:
            x = activated(self._convolution(source, "encoder.conv1", 1), GELU)
            x = activated(self._convolution(x, "encoder.conv2", 2), GELU).T
        elif self._config.window:
            x = self._stem(source)
        else:
            x = self._weight(EMBEDDING)[source]
        x = self._begun(x, "encoder", 0)
        bias = self._bias("encoder", len(x), len(x))
        for layer in range(self._config.encoder_layers):
            x = self._layer(f"encoder.layers.{layer}.", x, None, None, bias)
        x = self._ended(x, "encoder")
        names = [f"decoder.layers.{layer}.encoder_attn." for layer in range(self._config.decoder_layers)]
        return [(self._heads(x, f"{name}k_proj"), self._heads(x, f"{name}v_proj")) for name in names]

    def logits(self, encoded: Sequence[KeysValues], tokens: Sequence[int], caches: list[KeysValues]) -> Array:
        """Compute the logits after each of some tokens.

        Args:
            tokens: Tokens that follow those in the caches.
            caches: Keys and values of the tokens so far, for each layer; extended in place. [] at first.

        Returns:
            float32 [tokens, vocabulary].
        """
        before, form = caches[0][0].shape[1] if caches else 0, self._config.form
        x = self._begun(self._weight(EMBEDDING)[list(tokens)], "decoder", before)
        bias = self._bias("decoder", len(tokens), before + len(tokens))
        for layer in range(self._config.decoder_layers):
            x = self._layer(f"decoder.layers.{layer}.", x, encoded[layer], caches, bias)
        x = self._ended(x, "decoder") * np.float32(form.logits_scale)
        output: Array = x @ self._weight(self._config.output_matrix).T
        return output + self._weight(LOGITS_BIAS) if form.logits_bias else output

    def generate(self, encoded: Sequence[KeysValues], prompt: Sequence[int], limit: int) -> list[int]:
        """Generate tokens greedily, by the model's rules, as the runner of a variant does."""
        rules, caches, generated = self._model.rules, list[KeysValues](), list[int]()
        allowed = rules.after(prompt)
        row = self.logits(encoded, prompt, caches)[-1]
        while len(generated) < min(limit, self._config.context - len(prompt)):
            token = int(allowed(row, generated).argmax())
            if rules.is_end(token):
                break
            generated.append(token)
            if (shorter := rules.without_loop(generated)) is not None:
                return shorter
            row = self.logits(encoded, [token], caches)[-1]
        return generated

    def _begun(self, x: Array, part: str, before: int) -> Array:
        form = self._config.form
        x = x * np.float32(form.embedding_scale)
        if form.adds_positions:
            x = x + self._weight(f"{part}.{POSITIONS}")[before : before + len(x)]
        return self._norm(x, f"{part}.{EMBEDDING_NORM}") if form.embedding_norm else x

    def _ended(self, x: Array, part: str) -> Array:
        return x if self._config.form.norms_after else self._norm(x, f"{part}.layer_norm")

    def _bias(self, part: str, rows: int, keys: int) -> Array | None:
        """Return the bias of relative positions, [heads, rows, keys], for the last rows."""
        form = self._config.form
        if not form.buckets:
            return None
        distances = np.arange(keys)[None, :] - np.arange(keys - rows, keys)[:, None]
        both_ways = part == "encoder"
        numbers = relative_buckets(distances, form.buckets, form.bucket_distance, both_ways=both_ways)
        bias: Array = self._weight(f"{part}.{RELATIVE_BIAS}")[numbers].transpose(2, 0, 1)
        return bias

    def _layer(
        self, prefix: str, x: Array, encoded: KeysValues | None, caches: list[KeysValues] | None,
        bias: Array | None,
    ) -> Array:  # fmt: skip
        after, scale = self._config.form.norms_after, np.float32(self._config.attention_scale)
        y = x if after else self._norm(x, f"{prefix}self_attn_layer_norm")
        q, k, v = (self._heads(y, f"{prefix}self_attn.{letter}_proj") for letter in "qkv")
        part, layer = prefix.split(".")[0], int(prefix.split(".")[2])
        before = caches[layer][0].shape[1] if caches is not None and layer < len(caches) else 0
        q, k = self._rotated(q, before), self._rotated(k, before)
        mask = None
        if caches is not None:
            if layer < len(caches):
                k, v = (np.concatenate(pair, axis=1) for pair in zip(caches[layer], (k, v), strict=True))
                caches[layer] = k, v
            else:
                caches.append((k, v))
            mask = np.arange(k.shape[1]) <= np.arange(k.shape[1] - len(x), k.shape[1])[:, None]
        y = _attended(q * scale, k, v, mask, bias)
        x = self._added(x, self._linear(y, f"{prefix}self_attn.out_proj"), f"{prefix}self_attn_layer_norm")
        if encoded is not None:
            norm = f"{prefix}encoder_attn_layer_norm"
            q = self._heads(x if after else self._norm(x, norm), f"{prefix}encoder_attn.q_proj")
            y = self._linear(_attended(q * scale, *encoded, None, None), f"{prefix}encoder_attn.out_proj")
            x = self._added(x, y, norm)
        y = x if after else self._norm(x, f"{prefix}final_layer_norm")
        hidden = activated(self._linear(y, f"{prefix}fc1"), self._config.form.activation_of(part))
        if part in self._config.form.gated:
            hidden = hidden * self._linear(y, f"{prefix}{GATE}")
        return self._added(x, self._linear(hidden, f"{prefix}fc2"), f"{prefix}final_layer_norm")

    def _added(self, x: Array, y: Array, norm: str) -> Array:
        total: Array = x + y
        return self._norm(total, norm) if self._config.form.norms_after else total

    def _rotated(self, x: Array, before: int) -> Array:
        """Rotate queries or keys [heads, rows, head_size] by their positions, from ``before`` on."""
        form = self._config.form
        if not form.rotary:
            return x
        angles = rotary_angles(np.arange(before, before + x.shape[1]), form)
        pairs = x[..., : form.rotary // 2] + 1j * x[..., form.rotary // 2 : form.rotary]
        rotated = (pairs * np.exp(1j * angles)).astype(np.complex64)
        return np.concatenate([rotated.real, rotated.imag, x[..., form.rotary :]], axis=-1)

    def _stem(self, samples: Array) -> Array:
        """Return the values of each position, [positions, width], from samples [n]."""
        strides = [stride for _, stride in STEM]
        x = np.tanh(self._convolution(samples[None], "encoder.conv1", strides[0], 0))
        x = (x - x.mean()) / np.sqrt(x.var() + np.float32(self._config.form.norm_eps))
        x = x * self._weight(f"{STEM_NORM}.weight")[:, None] + self._weight(f"{STEM_NORM}.bias")[:, None]
        for number in (2, 3):
            x = activated(self._convolution(x, f"encoder.conv{number}", strides[number - 1], 0), GELU)
        return x.T

    def _convolution(self, x: Array, name: str, stride: int, padding: int = 1) -> Array:
        """Convolve [channels, frames], padded by so many frames at both ends."""
        weight = self._weight(f"{name}.weight")
        outside, size = ((0, 0), (padding, padding)), weight.shape[2]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, outside), size, axis=1)[:, ::stride]
        columns = windows.transpose(1, 0, 2).reshape(windows.shape[1], -1)
        y: Array = (columns @ weight.reshape(len(weight), -1).T).T
        return y + self._weight(f"{name}.bias")[:, None] if f"{name}.bias" in self._shapes else y

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = x @ self._weight(f"{name}.weight").T
        return product + self._weight(f"{name}.bias") if f"{name}.bias" in self._shapes else product

    def _heads(self, x: Array, name: str) -> Array:
        whole = self._linear(x, name).reshape(len(x), self._config.heads, -1)
        return whole.transpose(1, 0, 2)

    def _norm(self, x: Array, name: str) -> Array:
        rms = self._config.form.rms
        centred = x if rms else x - x.mean(-1, keepdims=True)
        root = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self._config.form.norm_eps))
        normed: Array = centred / root * self._weight(f"{name}.weight")
        return normed + self._weight(f"{name}.bias") if f"{name}.bias" in self._shapes else normed


def _attended(q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None) -> Array:
    """Return [rows, heads * head_size], from [heads, ., head_size] each.

    Args:
        q: Queries, scaled.
        k, v: Keys and values.
        mask: Whether a row attends to a position, [rows, positions]; None: all do.
        bias: Values that are added to the scores, [heads, rows, positions].
    """
    scores = q @ k.transpose(0, 2, 1)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = np.where(mask, scores, _NEVER)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    answer: Array = (scores @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)
    return answer
