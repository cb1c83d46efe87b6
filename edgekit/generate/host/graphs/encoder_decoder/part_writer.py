"""Parts of the graphs of an encoder and a decoder: products, norms, attention heads, layers.

Arrays of several positions are [positions, width] or [heads, positions, head_size]: engines that store
pictures channels last would transpose arrays of four axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.graph_writer import GraphWriter
from edgekit.generate.host.readers.encoder_decoder.config import (
    EMBEDDING_NORM,
    GATE,
    POSITIONS,
    EncoderDecoderModel,
    rotary_angles,
)
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
            weight, bias = self.table(f"{name}.weight"), f"{name}.bias"
            zeros = np.zeros(self.config.width, np.float32)
            bias = self.table(bias) if bias in self.shapes else g.constant(zeros, "no_bias")
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
        """Scale embeddings [rows, width], and add their positions and the first norm where there are any.

        Args:
            part: ``encoder`` or ``decoder``.
            position: The position of a single row, int64 [1]; "": all positions.
        """
        g, form = self.graph, self.config.form
        if form.embedding_scale != 1.0:
            x = g.op("Mul", x, g.number(form.embedding_scale))
        if form.adds_positions:
            places = self.table(f"{part}.{POSITIONS}")
            x = g.op("Add", x, g.op("Gather", places, position, axis=0) if position else places)
        return self.norm(x, f"{part}.{EMBEDDING_NORM}") if form.embedding_norm else x

    def activation(self, x: str, part: str) -> str:
        return self.graph.activation(x, self.config.form.activation_of(part))

    def mlp(self, x: str, prefix: str) -> str:
        part = prefix.partition(".")[0]

        def block(y: str) -> str:
            if part not in self.config.form.gated:
                return self.linear(self.activation(self.linear(y, f"{prefix}fc1"), part), f"{prefix}fc2")
            parts = self.linear(y, f"{prefix}fc1", f"{prefix}{GATE}")
            sizes = self.graph.ints(*[self.config.mlp_width] * 2)
            hidden, gate = self.graph.ops("Split", [parts, sizes], 2, axis=-1)
            return self.linear(self.graph.op("Mul", self.activation(hidden, part), gate), f"{prefix}fc2")

        return self.residual(x, f"{prefix}final_layer_norm", block)

    def split(self, x: str, count: int) -> Sequence[str]:
        """Split the last axis into equal parts of all heads."""
        return self.graph.ops("Split", [x, self.graph.ints(*[self.config.inner] * count)], count, axis=-1)

    def turns(self, rows: int) -> Sequence[str]:
        """Store what ``rotated`` multiplies by, [rows, head_size] each; [] without rotation."""
        if not (form := self.config.form).rotary:
            return ()
        angles = rotary_angles(np.arange(rows), form)
        rest = (rows, self.config.head_size - form.rotary)
        cosines, sines = np.cos(angles), np.sin(angles)
        straight = np.concatenate([cosines, cosines, np.ones(rest, np.float32)], axis=1)
        crossed = np.concatenate([-sines, sines, np.zeros(rest, np.float32)], axis=1)
        return [
            self.graph.constant(straight, "turns/straight"),
            self.graph.constant(crossed, "turns/crossed"),
        ]

    def rotated(self, x: str, turns: Sequence[str]) -> str:
        """Rotate the first values of each head by its position, in two halves.

        Args:
            x: Queries or keys, [., ., head_size].
            turns: The position's rows of ``turns``; []: the same is returned.
        """
        if not turns:
            return x
        g, rotary = self.graph, self.config.form.rotary
        sizes = [size for size in (rotary // 2, rotary // 2, self.config.head_size - rotary) if size]
        first, second, *rest = g.ops("Split", [x, g.ints(*sizes)], len(sizes), axis=-1)
        swapped = g.op("Concat", second, first, *rest, axis=-1)
        return g.op("Add", g.op("Mul", x, turns[0]), g.op("Mul", swapped, turns[1]))

    def heads(self, x: str, rows: int, turns: Sequence[str] = (), *, transposed: bool = False) -> str:
        """Split heads: [rows, inner] -> [heads, rows, head_size], or [heads, head_size, rows]; rotate them by
        ``turns`` [rows, 1, head_size]."""
        g, c = self.graph, self.config
        apart = self.rotated(g.op("Reshape", x, g.ints(rows, c.heads, c.head_size)), turns)
        return g.op("Transpose", apart, perm=[1, 2, 0] if transposed else [1, 0, 2])

    def joined(self, x: str, rows: int) -> str:
        """Join heads: [heads, rows, head_size] -> [rows, inner]."""
        g = self.graph
        return g.op("Reshape", g.op("Transpose", x, perm=[1, 0, 2]), g.ints(rows, self.config.inner))
