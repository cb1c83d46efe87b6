"""The float reference of a speech model: numpy, float32. It shares no code with the graphs of the targets.

Formulas: layer normalization before each block (Ba et al. 2016), attention (Vaswani et al. 2017), GELU by the
error function (Hendrycks and Gimpel 2016), as Radford et al. 2022 combine them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from edgekit.compiler.model.speech.speech_model import EMBEDDING, NORM_EPS, POSITIONS, SpeechModel
from edgekit.target.token_rules import repeated_tail
from edgekit.tensor_spec import Array

_NEVER = np.float32(-np.inf)
KeysValues = tuple[Array, Array]
"""Keys and values of a layer, float32 [heads, positions, head_size] each."""


class ReferenceSpeech:
    """A model's encoder and decoder. All weights are kept.

    Args:
        model: The model.
    """

    def __init__(self, model: SpeechModel) -> None:
        self._model, self._config = model, model.config
        self._weight = cache(model.weight)

    def encode(self, features: Array) -> list[KeysValues]:
        """Compute the keys and values that the decoder's layers attend to.

        Args:
            features: float32 [mels, frames].

        Returns:
            For each layer of the decoder, [heads, positions, head_size] each.
        """
        x = _gelu(self._convolution(features, "encoder.conv1", 1))
        x = _gelu(self._convolution(x, "encoder.conv2", 2)).T + self._weight(f"encoder.{POSITIONS}")
        for layer in range(self._config.encoder_layers):
            x = self._layer(f"encoder.layers.{layer}.", x, None, None)
        x = self._norm(x, "encoder.layer_norm")
        names = [f"decoder.layers.{layer}.encoder_attn." for layer in range(self._config.decoder_layers)]
        return [(self._heads(x, f"{name}k_proj"), self._heads(x, f"{name}v_proj")) for name in names]

    def logits(self, encoded: Sequence[KeysValues], tokens: Sequence[int], caches: list[KeysValues]) -> Array:
        """Compute the logits after each of some tokens.

        Args:
            encoded: Result of ``encode``.
            tokens: Tokens that follow those in the caches.
            caches: Keys and values of the tokens so far, for each layer; extended in place. [] at first.

        Returns:
            float32 [tokens, vocabulary].
        """
        before = caches[0][0].shape[1] if caches else 0
        rows = slice(before, before + len(tokens))
        x = self._weight(EMBEDDING)[list(tokens)] + self._weight(f"decoder.{POSITIONS}")[rows]
        for layer in range(self._config.decoder_layers):
            x = self._layer(f"decoder.layers.{layer}.", x, encoded[layer], caches)
        output: Array = self._norm(x, "decoder.layer_norm") @ self._weight(EMBEDDING).T
        return output

    def transcribe(self, encoded: Sequence[KeysValues], prompt: Sequence[int], limit: int) -> list[int]:
        """Generate tokens greedily, by the model's rules, as the runner of a variant does.

        Args:
            encoded: Result of ``encode``.
            prompt: First tokens.
            limit: Maximum number of new tokens.
        """
        rules, caches = self._model.rules, list[KeysValues]()
        timed, generated = rules.no_timestamps not in prompt, list[int]()
        row = self.logits(encoded, prompt, caches)[-1]
        while len(generated) < min(limit, self._config.context - len(prompt)):
            token = int(rules.allowed(row, generated, timed).argmax())
            if token == rules.end:
                break
            generated.append(token)
            if repeated_tail([previous for previous in generated if previous < rules.timestamp_first]):
                break
            row = self.logits(encoded, [token], caches)[-1]
        return generated

    def _layer(
        self, prefix: str, x: Array, encoded: KeysValues | None, caches: list[KeysValues] | None
    ) -> Array:
        y = self._norm(x, f"{prefix}self_attn_layer_norm")
        q, k, v = (self._heads(y, f"{prefix}self_attn.{letter}_proj") for letter in "qkv")
        mask = None
        if caches is not None:
            layer = int(prefix.split(".")[2])
            if layer < len(caches):
                k, v = (np.concatenate(pair, axis=1) for pair in zip(caches[layer], (k, v), strict=True))
                caches[layer] = k, v
            else:
                caches.append((k, v))
            mask = np.arange(k.shape[1]) <= np.arange(k.shape[1] - len(x), k.shape[1])[:, None]
        x = x + self._linear(_attended(q, k, v, mask), f"{prefix}self_attn.out_proj")
        if encoded is not None:
            q = self._heads(self._norm(x, f"{prefix}encoder_attn_layer_norm"), f"{prefix}encoder_attn.q_proj")
            x = x + self._linear(_attended(q, *encoded, None), f"{prefix}encoder_attn.out_proj")
        y = _gelu(self._linear(self._norm(x, f"{prefix}final_layer_norm"), f"{prefix}fc1"))
        result: Array = x + self._linear(y, f"{prefix}fc2")
        return result

    def _convolution(self, x: Array, name: str, stride: int) -> Array:
        """Convolve [channels, frames] with kernels of three frames, padded by one at both ends."""
        weight = self._weight(f"{name}.weight")
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1))), 3, axis=1)[
            :, ::stride
        ]
        columns = windows.transpose(1, 0, 2).reshape(windows.shape[1], -1)
        y: Array = (columns @ weight.reshape(len(weight), -1).T).T + self._weight(f"{name}.bias")[:, None]
        return y

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = x @ self._weight(f"{name}.weight").T
        return product if name.endswith("k_proj") else product + self._weight(f"{name}.bias")

    def _heads(self, x: Array, name: str) -> Array:
        whole = self._linear(x, name).reshape(len(x), self._config.heads, -1)
        return whole.transpose(1, 0, 2)

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        root = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(NORM_EPS))
        normed: Array = centred / root * self._weight(f"{name}.weight") + self._weight(f"{name}.bias")
        return normed


def _attended(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Return [rows, heads * head_size], from [heads, ., head_size] each; ``mask`` is [rows, positions]."""
    scores = q @ k.transpose(0, 2, 1) * np.float32(q.shape[-1] ** -0.5)
    if mask is not None:
        scores = np.where(mask, scores, _NEVER)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    answer: Array = (scores @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)
    return answer


def _gelu(x: Array) -> Array:
    activated: Array = np.float32(0.5) * x * (1 + _error_function(x * np.float32(math.sqrt(0.5))))
    return activated


def _error_function(x: Array) -> Array:
    """Compute erf to 1.2e-7 (Numerical Recipes 6.2.2, Chebyshev fit of erfc), which numpy lacks."""
    z = np.abs(x).astype(np.float64)
    t = 1 / (1 + 0.5 * z)
    terms = (
        -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
        -0.82215223, 0.17087277,
    )  # fmt: skip
    series = np.zeros_like(t)
    for term in reversed(terms):
        series = series * t + term
    tail = t * np.exp(-z * z + series)
    erf: Array = np.where(x >= 0, 1 - tail, tail - 1).astype(np.float32)
    return erf
