"""The graph of a speech model's encoder, with the keys and values of the decoder's cross-attention.

    features [1, mels, frames] -> 2 convolutions -> layers -> norm -> for each layer of the decoder
        cross_key [heads, head_size, positions], cross_value [heads, positions, head_size]

The decoder multiplies by them at every token, and they are the same for a whole recording.
"""

from __future__ import annotations

from edgekit.compiler.lowering.language.graph_writer import GraphWriter
from edgekit.compiler.lowering.speech.speech_writer import SpeechWriter
from edgekit.compiler.model.speech.speech_model import POSITIONS


class EncoderWriter(SpeechWriter):
    """Writes the encoder."""

    def write(self) -> GraphWriter:
        """Write the whole graph."""
        g, c = self.graph, self.config
        x = g.input("features", "float32", [1, c.mels, c.frames])
        for number in (1, 2):
            names = (f"encoder.conv{number}.weight", f"encoder.conv{number}.bias")
            kernel, bias = (g.constant(self.model.weight(name), name) for name in names)
            x = self.gelu(g.op("Conv", x, kernel, bias, pads=[1, 1], kernel_shape=[3], strides=[number]))
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), g.ints(c.positions, c.width))
        name = f"encoder.{POSITIONS}"
        x = g.op("Add", x, g.constant(self.model.weight(name), name))
        for layer in range(c.encoder_layers):
            x = self._layer(x, f"encoder.layers.{layer}.")
        x = self.norm(x, "encoder.layer_norm")
        for layer in range(c.decoder_layers):
            prefix = f"decoder.layers.{layer}.encoder_attn."
            for kind, swapped in (("key", True), ("value", False)):
                y = self.heads(self.linear(x, f"{prefix}{kind[0]}_proj"), c.positions, transposed=swapped)
                size = [c.heads, c.head_size, c.positions] if swapped else [c.heads, c.positions, c.head_size]
                g.output(g.op("Identity", y, out=f"cross_{kind}{layer}"), "float32", size)
        return g

    def _layer(self, x: str, prefix: str) -> str:
        g, c, attn = self.graph, self.config, f"{prefix}self_attn."
        y = self.norm(x, f"{prefix}self_attn_layer_norm")
        names = [f"{attn}{letter}_proj" for letter in "qkv"]
        q, k, v = self.split(self.linear(y, *names, scale=c.head_size**-0.5), 3)
        scores = g.op("MatMul", self.heads(q, c.positions), self.heads(k, c.positions, transposed=True))
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), self.heads(v, c.positions))
        x = g.op("Add", x, self.linear(self.joined(y, c.positions), f"{attn}out_proj"))
        return self.mlp(x, prefix)
