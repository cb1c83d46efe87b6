"""The graph of a decoder: one token a run, with a cache of fixed size as inputs.

    token, position [1], mask [1, 1, context]: 0 for the tokens before, a large negative number elsewhere
    key [heads, head_size, context], value [heads, context, head_size], cross_key, cross_value  by layer
    -> logits [1, vocabulary], key/own [heads, head_size, 1], value/own [heads, 1, head_size]

It returns the keys and values of its own token, which the caller writes into the inputs' memory: the graph
neither scatters nor copies the cache.

    scores = [q . past keys + mask, q . own key] -> softmax -> past values, own value

With relative positions, a bias of the token's distance to each position is added to the mask; with rotary
ones, the query and the token's own key are rotated. Of a text and of samples, source_mask
[1, 1, positions] is added to the scores of the cross-attention.

The embedding is usually also the matrix of the logits. It is stored once, in the form that the target
multiplies by: its columns are gathered, or its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.generate.device.encoder_decoder import SOURCE_MASK
from edgekit.generate.host.graphs.encoder_decoder.part_writer import PartWriter, signed_integers
from edgekit.generate.host.graphs.language.graph_writer import GraphWriter
from edgekit.generate.host.readers.encoder_decoder.config import (
    EMBEDDING,
    LOGITS_BIAS,
    RELATIVE_BIAS,
    relative_buckets,
)


class TokenWriter(PartWriter):
    """Writes the decoder."""

    def write(self) -> GraphWriter:
        """Write the whole graph."""
        g, c = self.graph, self.config
        token, position = (g.input(name, "int64", [1]) for name in ("token", "position"))
        past, current = g.input("mask", "float32", [1, 1, c.context]), ""
        if c.form.buckets:
            past, current = self._biases(position)
        turns = [g.op("Gather", table, position, axis=0) for table in self.turns(c.context)]
        if not c.mels:
            g.input(SOURCE_MASK, "float32", [1, 1, c.positions])
        matrix = self._matrix(c.output_matrix)
        x = self.embedded(self._gathered(token, matrix), "decoder", position)
        for layer in range(c.decoder_layers):
            x = self._layer(x, layer, past, current, turns)
        x = self.last_norm(x, "decoder")
        if c.form.logits_scale != 1.0:
            x = g.op("Mul", x, g.number(c.form.logits_scale))
        if c.form.logits_bias:
            g.op("Add", g.op("MatMul", x, matrix), self.table(LOGITS_BIAS), out="logits")
        else:
            g.op("MatMul", x, matrix, out="logits")
        g.output("logits", "float32", [1, c.vocabulary])
        for layer in range(c.decoder_layers):
            g.output(f"key{layer}/own", "float32", [c.heads, c.head_size, 1])
            g.output(f"value{layer}/own", "float32", [c.heads, 1, c.head_size])
        return g

    def _matrix(self, name: str) -> str:
        packed = self.weights.get(name)
        if packed is None:
            return self.graph.constant(self.model.weight(name).T, name)
        return self.dequantized(signed_integers(packed).T, packed.scales[:, 0], name)

    def _gathered(self, token: str, matrix: str) -> str:
        """Return the token's embedding [1, width], from the logits' matrix where that is the embedding."""
        g, c, packed = self.graph, self.config, self.weights.get(EMBEDDING)
        by_rows, row = self.rows or not c.form.tied, self.graph.ints(1, self.config.width)
        axis = 0 if by_rows else 1
        if packed is None:
            source = g.constant(self.model.weight(EMBEDDING), f"{EMBEDDING}/rows") if by_rows else matrix
            return g.op("Reshape", g.op("Gather", source, token, axis=axis), row)
        source, scales = f"{EMBEDDING}/stored", f"{EMBEDDING}/scales"
        if by_rows:
            source = g.constant(signed_integers(packed), f"{EMBEDDING}/rows")
        if not c.form.tied:
            g.constant(packed.scales[:, 0], scales)
        gathered = g.op("Cast", g.op("Gather", source, token, axis=axis), to=1)
        return g.op("Mul", g.op("Reshape", gathered, row), g.op("Gather", scales, token, axis=0))

    def _biases(self, position: str) -> tuple[str, str]:
        """Return what is added to the scores of the cache [heads, 1, context], and of the token itself."""
        g, c, form = self.graph, self.config, self.config.form
        places = np.arange(c.context)
        distances = places[None, :] - places[:, None]
        numbers = relative_buckets(distances, form.buckets, form.bucket_distance, both_ways=False)
        table = self.model.weight(f"decoder.{RELATIVE_BIAS}")
        by_position = table[numbers].transpose(0, 2, 1).reshape(c.context, c.heads * c.context)
        rows = g.constant(by_position, f"decoder.{RELATIVE_BIAS}")
        bias = g.op("Reshape", g.op("Gather", rows, position, axis=0), g.ints(c.heads, 1, c.context))
        return g.op("Add", bias, "mask"), g.constant(table[0].reshape(c.heads, 1, 1))

    def _layer(self, x: str, layer: int, past: str, current: str, turns: Sequence[str]) -> str:
        prefix = f"decoder.layers.{layer}."

        def attention(y: str) -> str:
            attended = self._over_past(layer, y, past, current, turns)
            return self.linear(attended, f"{prefix}self_attn.out_proj")

        def cross_attention(y: str) -> str:
            return self.linear(self._over_source(layer, y), f"{prefix}encoder_attn.out_proj")

        x = self.residual(x, f"{prefix}self_attn_layer_norm", attention)
        return self.mlp(self.residual(x, f"{prefix}encoder_attn_layer_norm", cross_attention), prefix)

    def _over_source(self, layer: int, x: str) -> str:
        """Attend to the source; return [1, inner]."""
        g, c = self.graph, self.config
        q = self.linear(x, f"decoder.layers.{layer}.encoder_attn.q_proj", scale=c.attention_scale)
        q = g.op("Reshape", q, g.ints(c.heads, 1, c.head_size))
        g.input(f"cross_key{layer}", "float32", [c.heads, c.head_size, c.positions])
        g.input(f"cross_value{layer}", "float32", [c.heads, c.positions, c.head_size])
        scores = g.op("MatMul", q, f"cross_key{layer}")
        if not c.mels:
            scores = g.op("Add", scores, SOURCE_MASK)
        attended = g.op("MatMul", g.op("Softmax", scores, axis=-1), f"cross_value{layer}")
        return g.op("Reshape", attended, g.ints(1, c.inner))

    def _over_past(self, layer: int, x: str, past: str, current: str, turns: Sequence[str]) -> str:
        """Attend to the cache and to the token itself; return [1, inner]."""
        g, c = self.graph, self.config
        names = [f"decoder.layers.{layer}.self_attn.{letter}_proj" for letter in "qkv"]
        parts = self.split(self.linear(x, *names, scale=c.attention_scale), 3)
        q, k, v = (g.op("Reshape", part, g.ints(c.heads, 1, c.head_size)) for part in parts)
        q = self.rotated(q, turns)
        k = g.op("Reshape", self.rotated(k, turns), g.ints(c.heads, c.head_size, 1), out=f"key{layer}/own")
        g.op("Identity", v, out=f"value{layer}/own")
        g.input(f"key{layer}", "float32", [c.heads, c.head_size, c.context])
        g.input(f"value{layer}", "float32", [c.heads, c.context, c.head_size])
        of_cache, of_token = g.op("Add", g.op("MatMul", q, f"key{layer}"), past), g.op("MatMul", q, k)
        if current:
            of_token = g.op("Add", of_token, current)
        weights = g.op("Softmax", g.op("Concat", of_cache, of_token, axis=-1), axis=-1)
        of_past, of_current = g.ops("Split", [weights, g.ints(c.context, 1)], 2, axis=-1)
        attended = g.op("Add", g.op("MatMul", of_past, f"value{layer}"), g.op("Mul", of_current, v))
        return g.op("Reshape", attended, g.ints(1, c.inner))
