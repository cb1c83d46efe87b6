"""The graph of an encoder, with the keys and values of the decoder's cross-attention.

    features [1, mels, frames] -> 2 convolutions -> layers -> norm -> for each layer of the decoder
        cross_key [heads, head_size, positions], cross_value [heads, positions, head_size]

Samples come as [1, window], with frame_weights [1, 1, frames]: 1 / n at the n frames of the sound. A text
comes as embedded [positions, width]. Both have source_mask [1, 1, positions]: 0, or a large negative number
at padding. The decoder multiplies by the keys and values at every token, and they are the same for a whole
source.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.generate.device.embedding_table import STEM, stem_sizes
from edgekit.generate.device.encoder_decoder import (
    EMBEDDED,
    FEATURES,
    FRAME_WEIGHTS,
    SAMPLES,
    SOURCE_MASK,
)
from edgekit.generate.host.graphs.encoder_decoder.part_writer import PartWriter
from edgekit.generate.host.graphs.language.graph_writer import GraphWriter
from edgekit.generate.host.readers.encoder_decoder.config import RELATIVE_BIAS, STEM_NORM, relative_buckets


class EncoderWriter(PartWriter):
    """Writes the encoder."""

    def write(self) -> GraphWriter:
        """Write the whole graph."""
        g, c = self.graph, self.config
        x, bias = self._features() if c.mels else self._samples() if c.window else self._text()
        turns = [
            g.op("Reshape", table, g.ints(c.positions, 1, c.head_size)) for table in self.turns(c.positions)
        ]
        for layer in range(c.encoder_layers):
            x = self._layer(x, f"encoder.layers.{layer}.", bias, turns)
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
        x = g.input(FEATURES, "float32", [1, c.mels, c.frames])
        for number in (1, 2):
            kernel, bias = (self.table(f"encoder.conv{number}.{kind}") for kind in ("weight", "bias"))
            convolved = g.op("Conv", x, kernel, bias, pads=[1, 1], kernel_shape=[3], strides=[number])
            x = self.activation(convolved, "encoder")
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), g.ints(c.positions, c.width))
        return self.embedded(x, "encoder"), ""

    def _samples(self) -> tuple[str, str]:
        """Return the values of each position, and what is added to the scores. The statistics of the norm
        leave out frames after the sound."""
        g, c = self.graph, self.config
        x = g.op("Reshape", g.input(SAMPLES, "float32", [1, c.window]), g.ints(1, 1, c.window))
        weights = g.input(FRAME_WEIGHTS, "float32", [1, 1, stem_sizes(c.window)[0]])

        def mean(y: str) -> str:
            by_frame = g.op("Mul", g.op("ReduceMean", y, g.ints(1), keepdims=1), weights)
            return g.op("ReduceSum", by_frame, g.ints(2), keepdims=1)

        for number, (size, stride) in enumerate(STEM, 1):
            names = [f"encoder.conv{number}.{kind}" for kind in ("weight", "bias")]
            tables = [self.table(name) for name in names if name in self.shapes]
            x = g.op("Conv", x, *tables, kernel_shape=[size], strides=[stride])
            if number > 1:
                x = self.activation(x, "encoder")
                continue
            x = g.op("Tanh", x)
            x = g.op("Sub", x, mean(x))
            root = g.op("Sqrt", g.op("Add", mean(g.op("Mul", x, x)), g.number(c.form.norm_eps)))
            for kind, table in (("Mul", "weight"), ("Add", "bias")):
                column = self.model.weight(f"{STEM_NORM}.{table}").reshape(1, -1, 1)
                x = g.op(
                    kind,
                    g.op("Div", x, root) if kind == "Mul" else x,
                    g.constant(column, f"{STEM_NORM}.{table}"),
                )
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), g.ints(c.positions, c.width))
        return x, g.input(SOURCE_MASK, "float32", [1, 1, c.positions])

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

    def _layer(self, x: str, prefix: str, bias: str, turns: Sequence[str]) -> str:
        g, c, attn = self.graph, self.config, f"{prefix}self_attn."

        def attention(y: str) -> str:
            names = [f"{attn}{letter}_proj" for letter in "qkv"]
            q, k, v = self.split(self.linear(y, *names, scale=c.attention_scale), 3)
            keys = self.heads(k, c.positions, turns, transposed=True)
            scores = g.op("MatMul", self.heads(q, c.positions, turns), keys)
            if bias:
                scores = g.op("Add", scores, bias)
            weighted = g.op("MatMul", g.op("Softmax", scores, axis=-1), self.heads(v, c.positions))
            return self.linear(self.joined(weighted, c.positions), f"{attn}out_proj")

        return self.mlp(self.residual(x, f"{prefix}self_attn_layer_norm", attention), prefix)
