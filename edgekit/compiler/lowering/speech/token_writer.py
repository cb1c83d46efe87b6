"""The graph of a speech model's decoder: one token a run, with a cache of fixed size as inputs.

    token, position [1, 1], mask [1, 1, context]: 0 for the tokens before, a large negative number elsewhere
    key [heads, head_size, context], value [heads, context, head_size], cross_key, cross_value  by layer
    -> logits [1, vocabulary], key/own [heads, head_size, 1], value/own [heads, 1, head_size]

It returns the keys and values of its own token, which the caller writes into the inputs' memory: the graph
neither scatters nor copies the cache.

    scores = [q . past keys + mask, q . own key] -> softmax -> past values, own value

The embedding is also the matrix of the logits. It is stored once, in the form that the target multiplies by:
its columns are gathered, or its rows.
"""

from __future__ import annotations

from edgekit.compiler.lowering.language.graph_writer import GraphWriter
from edgekit.compiler.lowering.speech.speech_writer import MIDDLE, SpeechWriter
from edgekit.compiler.model.speech.speech_model import EMBEDDING, POSITIONS


class TokenWriter(SpeechWriter):
    """Writes the decoder."""

    def write(self) -> GraphWriter:
        """Write the whole graph."""
        g, c = self.graph, self.config
        token, position = (g.input(name, "int64", [1]) for name in ("token", "position"))
        g.input("mask", "float32", [1, 1, c.context])
        matrix, embedded = self._embedding(token)
        name = f"decoder.{POSITIONS}"
        places = g.constant(self.model.weight(name), name)
        x = g.op("Add", embedded, g.op("Gather", places, position, axis=0))
        for layer in range(c.decoder_layers):
            x = self._layer(x, layer)
        g.op("MatMul", self.norm(x, "decoder.layer_norm"), matrix, out="logits")
        g.output("logits", "float32", [1, c.vocabulary])
        for layer in range(c.decoder_layers):
            g.output(f"key{layer}/own", "float32", [c.heads, c.head_size, 1])
            g.output(f"value{layer}/own", "float32", [c.heads, 1, c.head_size])
        return g

    def _embedding(self, token: str) -> tuple[str, str]:
        """Return the matrix of the logits [width, vocabulary], and the token's embedding [1, width]."""
        g, row, packed = self.graph, self.graph.ints(1, self.config.width), self.weights.get(EMBEDDING)
        axis = 0 if self.rows else 1
        if packed is None:
            stored = self.model.weight(EMBEDDING)
            matrix = g.constant(stored.T, EMBEDDING)
            source = g.constant(stored, f"{EMBEDDING}/rows") if self.rows else matrix
            return matrix, g.op("Reshape", g.op("Gather", source, token, axis=axis), row)
        integers = self.integers(packed)
        matrix = self.dequantized(integers.T, packed.scales[:, 0], EMBEDDING)
        source = g.constant(integers, f"{EMBEDDING}/rows") if self.rows else f"{EMBEDDING}/stored"
        gathered = g.op("Cast", g.op("Gather", source, token, axis=axis), to=1)
        if self.unsigned:
            gathered = g.op("Sub", gathered, g.number(MIDDLE))
        scale = g.op("Gather", f"{EMBEDDING}/scales", token, axis=0)
        return matrix, g.op("Mul", g.op("Reshape", gathered, row), scale)

    def _layer(self, x: str, layer: int) -> str:
        g, c, prefix = self.graph, self.config, f"decoder.layers.{layer}."
        attn, cross, scale = f"{prefix}self_attn.", f"{prefix}encoder_attn.", self.config.head_size**-0.5
        y = self.norm(x, f"{prefix}self_attn_layer_norm")
        parts = self.split(self.linear(y, *(f"{attn}{letter}_proj" for letter in "qkv"), scale=scale), 3)
        q, v = (g.op("Reshape", parts[index], g.ints(c.heads, 1, c.head_size)) for index in (0, 2))
        k = g.op("Reshape", parts[1], g.ints(c.heads, c.head_size, 1), out=f"key{layer}/own")
        g.op("Identity", v, out=f"value{layer}/own")
        y = g.op("Add", x, self.linear(self._over_past(layer, q, k, v), f"{attn}out_proj"))
        q = self.linear(self.norm(y, f"{prefix}encoder_attn_layer_norm"), f"{cross}q_proj", scale=scale)
        q = g.op("Reshape", q, g.ints(c.heads, 1, c.head_size))
        g.input(f"cross_key{layer}", "float32", [c.heads, c.head_size, c.positions])
        g.input(f"cross_value{layer}", "float32", [c.heads, c.positions, c.head_size])
        weights = g.op("Softmax", g.op("MatMul", q, f"cross_key{layer}"), axis=-1)
        attended = g.op("MatMul", weights, f"cross_value{layer}")
        attended = g.op("Reshape", attended, g.ints(1, c.width))
        return self.mlp(g.op("Add", y, self.linear(attended, f"{cross}out_proj")), prefix)

    def _over_past(self, layer: int, q: str, k: str, v: str) -> str:
        """Attend to the cache and to the token itself; return [1, width]."""
        g, c = self.graph, self.config
        g.input(f"key{layer}", "float32", [c.heads, c.head_size, c.context])
        g.input(f"value{layer}", "float32", [c.heads, c.context, c.head_size])
        past = g.op("Add", g.op("MatMul", q, f"key{layer}"), "mask")
        weights = g.op("Softmax", g.op("Concat", past, g.op("MatMul", q, k), axis=-1), axis=-1)
        of_past, of_own = g.ops("Split", [weights, g.ints(c.context, 1)], 2, axis=-1)
        attended = g.op("Add", g.op("MatMul", of_past, f"value{layer}"), g.op("Mul", of_own, v))
        return g.op("Reshape", attended, g.ints(1, c.width))
