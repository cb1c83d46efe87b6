"""Parts of the graphs of an encoder and a decoder: products, norms, attention heads, layers.

Arrays of several positions are [positions, width] or [heads, positions, head_size]: engines that store
pictures channels last would transpose arrays of four axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.compiler.lowering.language import BlockWeights
from edgekit.compiler.lowering.language.graph_writer import GraphWriter
from edgekit.compiler.model.encoder_decoder.config import (
    EMBEDDING_NORM,
    GATE,
    GELU,
    GELU_TANH,
    POSITIONS,
    RELATIVE_BIAS,
    RELU,
    EncoderDecoderModel,
    relative_buckets,
)
from edgekit.target.encoder_decoder import EMBEDDED, SOURCE_MASK
from edgekit.tensor_spec import Array

MIDDLE = 128
"""Stored integer of ``BlockWeights`` that stands for 0."""


def signed_integers(weights: BlockWeights) -> Array:
    """Return the integers of a matrix, int8 [outputs, inputs]."""
    signed: Array = (weights.stored.astype(np.int16) - MIDDLE).astype(np.int8)
    return signed


class PartWriter:
    """Writes a graph.

    Args:
        model: The model.
        weights: Name -> integers with one scale per output, of the matrices that are stored so; the others
            are floats.
        rows: Whether a target stores a product's matrix as [outputs, inputs], so that it can share it with
            the embedding.
        by_row: Whether inputs of products with integers are rounded by one scale for all rows. Each row is
            then brought to the same range: with one scale for an encoder's 1,500 rows of Whisper tiny.en,
            ONNX Runtime's keys and values had 14 to 17 dB.
    """

    def __init__(
        self,
        model: EncoderDecoderModel,
        weights: Mapping[str, BlockWeights],
        *,
        rows: bool = False,
        by_row: bool = False,
    ) -> None:
        self.model, self.config, self.weights = model, model.config, weights
        self.rows, self.by_row = rows, by_row
        self.shapes = self.config.weight_shapes()
        self.graph = GraphWriter()

    def linear(self, x: str, *names: str, scale: float = 1.0) -> str:
        """Multiply x by the transposed matrices, beside each other, and add their biases.

        Args:
            x: [rows, inputs].
            names: Names of layers, e.g. ``encoder.layers.0.fc1``.
            scale: Factor of the first layer's result.
        """
        g, name = self.graph, "+".join(names)
        factors = [scale, *[1.0] * (len(names) - 1)]
        biases = np.concatenate(
            [self._bias(item) * np.float32(f) for item, f in zip(names, factors, strict=True)]
        )
        matrices = [f"{item}.weight" for item in names]
        packed = [self.weights[item] for item in matrices if item in self.weights]
        largest = None
        if len(packed) == len(matrices):
            stored = np.concatenate([signed_integers(item) for item in packed]).T
            scales = [item.scales[:, 0] * np.float32(f) for item, f in zip(packed, factors, strict=True)]
            matrix = self.dequantized(stored, np.concatenate(scales), name)
            if self.by_row:
                largest = g.op("ReduceMax", g.op("Abs", x), g.ints(-1), keepdims=1)
                largest = g.op("Max", largest, g.number(1e-12))
                x = g.op("Div", x, largest)
        else:
            floats = [self.model.weight(m) * np.float32(f) for m, f in zip(matrices, factors, strict=True)]
            matrix = g.constant(np.concatenate(floats).T, f"{name}/transposed")
        product = g.op("MatMul", x, matrix)
        if largest is not None:
            product = g.op("Mul", product, largest)
        return g.op("Add", product, g.constant(biases, f"{name}.bias")) if biases.any() else product

    def dequantized(self, stored: Array, scales: Array, name: str) -> str:
        """Store a matrix [inputs, outputs] of integers with one scale per output."""
        g = self.graph
        inputs = g.constant(stored, f"{name}/stored"), g.constant(scales, f"{name}/scales")
        return g.op("DequantizeLinear", *inputs, axis=1)

    def _bias(self, name: str) -> Array:
        if f"{name}.bias" in self.shapes:
            return self.model.weight(f"{name}.bias")
        return np.zeros(self.shapes[f"{name}.weight"][0], np.float32)

    def table(self, name: str) -> str:
        """Store a weight as it is."""
        return self.graph.constant(self.model.weight(name), name)

    def norm(self, x: str, name: str) -> str:
        g, epsilon = self.graph, self.config.form.norm_eps
        if not self.config.form.rms:
            weight, bias = (self.table(f"{name}.{kind}") for kind in ("weight", "bias"))
            return g.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)
        mean = g.op("ReduceMean", g.op("Mul", x, x), g.ints(-1), keepdims=1)
        root = g.op("Sqrt", g.op("Add", mean, g.number(epsilon)))
        return g.op("Mul", g.op("Div", x, root), self.table(f"{name}.weight"))

    def residual(self, x: str, norm: str, block: Callable[[str], str]) -> str:
        """Add a block's result to its input, with the norm before the block or after the sum."""
        if self.config.form.norms_after:
            return self.norm(self.graph.op("Add", x, block(x)), norm)
        return self.graph.op("Add", x, block(self.norm(x, norm)))

    def last_norm(self, x: str, part: str) -> str:
        """Normalize the result of a part, where its layers normalize their inputs."""
        return x if self.config.form.norms_after else self.norm(x, f"{part}.layer_norm")

    def embedded(self, x: str, part: str, position: str = "") -> str:
        """Scale embeddings [rows, width], and add their positions and the first norm where the model has
        them.

        Args:
            x: The embeddings.
            part: ``encoder`` or ``decoder``.
            position: The position of a single row, int64 [1]; "": all positions.
        """
        g, form = self.graph, self.config.form
        if form.embedding_scale != 1.0:
            x = g.op("Mul", x, g.number(form.embedding_scale))
        if not form.buckets:
            places = self.table(f"{part}.{POSITIONS}")
            x = g.op("Add", x, g.op("Gather", places, position, axis=0) if position else places)
        return self.norm(x, f"{part}.{EMBEDDING_NORM}") if form.embedding_norm else x

    def activation(self, x: str) -> str:
        g, kind = self.graph, self.config.form.activation
        if kind == RELU:
            return g.op("Relu", x)
        if kind == GELU:
            curve = g.op("Erf", g.op("Mul", x, g.number(math.sqrt(0.5))))
        elif kind == GELU_TANH:
            cube = g.op("Mul", x, g.op("Mul", x, x))
            inner = g.op("Add", x, g.op("Mul", cube, g.number(0.044715)))
            curve = g.op("Tanh", g.op("Mul", inner, g.number(math.sqrt(2 / math.pi))))
        else:
            return g.op("Mul", x, g.op("Sigmoid", x))
        return g.op("Mul", g.op("Mul", x, g.number(0.5)), g.op("Add", curve, g.number(1.0)))

    def mlp(self, x: str, prefix: str) -> str:
        def block(y: str) -> str:
            if not self.config.form.gated:
                return self.linear(self.activation(self.linear(y, f"{prefix}fc1")), f"{prefix}fc2")
            parts = self.linear(y, f"{prefix}fc1", f"{prefix}{GATE}")
            sizes = self.graph.ints(*[self.config.mlp_width] * 2)
            hidden, gate = self.graph.ops("Split", [parts, sizes], 2, axis=-1)
            return self.linear(self.graph.op("Mul", self.activation(hidden), gate), f"{prefix}fc2")

        return self.residual(x, f"{prefix}final_layer_norm", block)

    def split(self, x: str, count: int) -> Sequence[str]:
        """Split the last axis into equal parts of all heads."""
        return self.graph.ops("Split", [x, self.graph.ints(*[self.config.inner] * count)], count, axis=-1)

    def heads(self, x: str, rows: int, *, transposed: bool = False) -> str:
        """Split heads: [rows, inner] -> [heads, rows, head_size], or [heads, head_size, rows]."""
        g, c = self.graph, self.config
        apart = g.op("Reshape", x, g.ints(rows, c.heads, c.head_size))
        return g.op("Transpose", apart, perm=[1, 2, 0] if transposed else [1, 0, 2])

    def joined(self, x: str, rows: int) -> str:
        """Join heads: [heads, rows, head_size] -> [rows, inner]."""
        g = self.graph
        return g.op("Reshape", g.op("Transpose", x, perm=[1, 0, 2]), g.ints(rows, self.config.inner))


# The graph of an encoder, with the keys and values of the decoder's cross-attention.
#
#     features [1, mels, frames] -> 2 convolutions -> layers -> norm -> for each layer of the decoder
#         cross_key [heads, head_size, positions], cross_value [heads, positions, head_size]
#
# A text comes as embedded [positions, width], and source_mask [1, 1, positions]: 0, or a large negative
# number at padding. The decoder multiplies by the keys and values at every token, and they are the same for a
# whole source.


class EncoderWriter(PartWriter):
    """Writes the encoder."""

    def write(self) -> GraphWriter:
        """Write the whole graph."""
        g, c = self.graph, self.config
        x, bias = self._features() if c.mels else self._text()
        for layer in range(c.encoder_layers):
            x = self._layer(x, f"encoder.layers.{layer}.", bias)
        x = self.last_norm(x, "encoder")
        for layer in range(c.decoder_layers):
            prefix = f"decoder.layers.{layer}.encoder_attn."
            for kind, swapped in (("key", True), ("value", False)):
                y = self.heads(self.linear(x, f"{prefix}{kind[0]}_proj"), c.positions, transposed=swapped)
                size = [c.heads, c.head_size, c.positions] if swapped else [c.heads, c.positions, c.head_size]
                g.output(g.op("Identity", y, out=f"cross_{kind}{layer}"), "float32", size)
        return g

    def _features(self) -> tuple[str, str]:
        """Return the values of each position, and "": nothing is added to the scores."""
        g, c = self.graph, self.config
        x = g.input("features", "float32", [1, c.mels, c.frames])
        for number in (1, 2):
            kernel, bias = (self.table(f"encoder.conv{number}.{kind}") for kind in ("weight", "bias"))
            convolved = g.op("Conv", x, kernel, bias, pads=[1, 1], kernel_shape=[3], strides=[number])
            x = self.activation(convolved)
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), g.ints(c.positions, c.width))
        return self.embedded(x, "encoder"), ""

    def _text(self) -> tuple[str, str]:
        """Return the values of each position, and what is added to the scores."""
        g, c = self.graph, self.config
        x = self.embedded(g.input(EMBEDDED, "float32", [c.positions, c.width]), "encoder")
        mask = g.input(SOURCE_MASK, "float32", [1, 1, c.positions])
        if not c.form.buckets:
            return x, mask
        places = np.arange(c.positions)
        distances = places[None, :] - places[:, None]
        numbers = relative_buckets(distances, c.form.buckets, c.form.bucket_distance, both_ways=True)
        rows = self.model.weight(f"encoder.{RELATIVE_BIAS}")[numbers]
        return x, g.op("Add", g.constant(rows.transpose(2, 0, 1), f"encoder.{RELATIVE_BIAS}"), mask)

    def _layer(self, x: str, prefix: str, bias: str) -> str:
        g, c, attn = self.graph, self.config, f"{prefix}self_attn."

        def attention(y: str) -> str:
            names = [f"{attn}{letter}_proj" for letter in "qkv"]
            q, k, v = self.split(self.linear(y, *names, scale=c.attention_scale), 3)
            scores = g.op("MatMul", self.heads(q, c.positions), self.heads(k, c.positions, transposed=True))
            if bias:
                scores = g.op("Add", scores, bias)
            weighted = g.op("MatMul", g.op("Softmax", scores, axis=-1), self.heads(v, c.positions))
            return self.linear(self.joined(weighted, c.positions), f"{attn}out_proj")

        return self.mlp(self.residual(x, f"{prefix}self_attn_layer_norm", attention), prefix)
