"""Language models as .tflite: one token a run, and a cache of fixed size that the runner writes into.

The cache is an input; the graph gives the token's own keys and values, which the runner puts into the inputs'
memory. So the graph has neither a scatter nor a copy of the cache, and all of it after the embedding is one
partition of XNNPACK:

    scores = [q . past keys + mask, q . own key] -> softmax -> past values, own value

One token, because a second graph for longer texts would have all weights packed a second time: LiteRT's
Python interface has no way to share them. So reading a prompt costs what writing it would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.errors import UsageError
from edgekit.lowering.language import BlockWeights
from edgekit.lowering.language.decoder_writer import EMBEDDING, HEAD, DecoderWriter, rotation_tables
from edgekit.lowering.language.graph_writer import GraphWriter
from edgekit.passes import run_passes
from edgekit.quantize.language.block_rounding import nearest8
from edgekit.quantize.language.rotated_model import RotatedModel, rotated_model
from edgekit.target import Artifact
from edgekit.target.decoder import OPTION
from edgekit.target.installed_profiles import find_profile
from edgekit.tensors import Array, Json
from edgekit_tflite.compile import compile_model
from edgekit_tflite.decoder import WINDOW

if TYPE_CHECKING:
    from edgekit.model.language import LanguageModel

PRECISIONS = ("fp32", "fp16", "int8")
FORMS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8-dynamic"}


def compile_decoder(
    model: LanguageModel, precision: str, weights: Mapping[str, BlockWeights], context: int
) -> Artifact:
    """``model.tflite``; arguments and errors as ``DecoderCompiler.compile_decoder``.

    XNNPACK multiplies int8 with one scale for each output, and rounds inputs with one for each token. So
    matrices in blocks are rounded anew, from floats, after a rotation that makes such rows of equal worth.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"tflite compiles language models as {', '.join(PRECISIONS)}, not {precision}")
    turned = rotated_model(model) if weights else RotatedModel(model, frozenset(), None, None)
    whole = {name: nearest8(turned.model.weight(name), 0) for name in weights}
    writer = _TfliteDecoder(turned, whole, context)
    canonical = _as_ir(writer.write())
    run_passes(canonical)
    made = compile_model(canonical, find_profile("tflite"), FORMS[precision])
    options: dict[str, Json] = {
        **made.options,
        "precision": precision,
        OPTION: writer.shape(fixed=True).as_json(),
    }
    if writer.slides:
        options[WINDOW] = model.config.sliding_window
    return Artifact(made.files, options, made.facts)


def _as_ir(graph: GraphWriter) -> ir.Model:
    """The graph with its shapes. Large constants are the writer's own arrays: copies would take gigabytes."""
    proto = graph.model(external="constants")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True))
    for name, value in model.graph.initializers.items():
        value.const_value = ir.tensor(graph.constants[name], name=name)
    return model


class _TfliteDecoder(DecoderWriter):
    slides = False

    def __init__(self, turned: RotatedModel, weights: Mapping[str, BlockWeights], context: int) -> None:
        super().__init__(turned.model, weights, context)
        self.turned = turned

    def begin(self) -> str:
        g, c = self.graph, self.config
        g.input("token", "int64", [1, 1])
        g.input("position", "int64", [1])
        g.input("mask", "float32", [1, 1, 1, self.context])
        self.slides = bool(c.sliding_window) and any(c.sliding_layers)
        if self.slides:
            g.input("sliding_mask", "float32", [1, 1, 1, self.context])
        self._angles: dict[bytes, tuple[str, str]] = {}
        return "token"

    def embedding(self, tokens: str) -> str:
        if EMBEDDING not in self.weights:
            return super().embedding(tokens)
        g, packed = self.graph, self.weights[EMBEDDING]
        stored = g.constant(_signed(packed), "embedding/stored")
        rows = g.op("Cast", g.op("Gather", stored, tokens, axis=0), to=1)
        scales = g.op("Gather", g.constant(packed.scales, "embedding/scales"), tokens, axis=0)
        return g.op("Mul", rows, scales)

    def last_rows(self, x: str) -> str:
        return x

    def norm(self, x: str, name: str) -> str:
        if name not in self.turned.folded:
            return super().norm(x, name)
        g = self.graph
        square = g.op("ReduceMean", g.op("Mul", x, x), g.ints(-1), keepdims=1)
        return g.op("Div", x, g.op("Sqrt", g.op("Add", square, g.number(self.config.norm_eps))))

    def linear(self, x: str, name: str, out: str = "") -> str:
        g, c, turned = self.graph, self.config, self.turned
        if name in (EMBEDDING, HEAD) and turned.before_head is not None:
            x = g.op("MatMul", x, g.constant(turned.before_head, "before_head"))
        if name.endswith("mlp.down_proj.weight") and turned.before_down is not None:
            block = len(turned.before_down)
            blocks = g.op("Reshape", x, g.ints(1, c.mlp_width // block, block))
            blocks = g.op("MatMul", blocks, g.constant(turned.before_down, "before_down"))
            x = g.op("Reshape", blocks, g.ints(1, 1, c.mlp_width))
        return super().linear(x, name, out)

    def product(self, x: str, weights: BlockWeights, name: str, out: str = "") -> str:
        g = self.graph
        stored = g.constant(_signed(weights).T, f"{name}/stored")
        scales = g.constant(weights.scales[:, 0], f"{name}/scales")
        return g.op("MatMul", x, g.op("DequantizeLinear", stored, scales, axis=1), out=out)

    def attention(self, layer: int, qkv: list[str]) -> str:
        g, c = self.graph, self.config
        slides = bool(c.sliding_window and c.sliding_layers and c.sliding_layers[layer])
        cos, sin = self._rotation(layer)
        # One token: the heads that share keys are the rows of one product.
        grouped = g.ints(1, c.kv_heads, c.heads // c.kv_heads, c.head_size)
        single = g.ints(1, c.kv_heads, 1, c.head_size)
        q = g.op("Mul", self.rotated(g.op("Reshape", qkv[0], grouped), cos, sin), g.number(c.attention_scale))
        k = self.rotated(g.op("Reshape", qkv[1], single), cos, sin)
        v = g.op("Reshape", qkv[2], single)
        for name, own in ((f"key{layer}", k), (f"value{layer}", v)):
            g.input(name, "float32", [1, c.kv_heads, self.context, c.head_size])
            g.op("Identity", own, out=f"{name}/own")
            g.output(f"{name}/own", "float32", [1, c.kv_heads, 1, c.head_size])
        past = g.op("MatMul", q, g.op("Transpose", f"key{layer}", perm=[0, 1, 3, 2]))
        own = g.op("ReduceSum", g.op("Mul", q, k), g.ints(-1), keepdims=1)
        if c.attention_softcap:
            past, own = (self.soft_cap(scores, c.attention_softcap) for scores in (past, own))
        past = g.op("Add", past, "sliding_mask" if slides else "mask")
        weights = g.op("Softmax", g.op("Concat", past, own, axis=-1), axis=-1)
        of_past, of_own = g.ops("Split", [weights, g.ints(self.context, 1)], 2, axis=-1)
        attended = g.op("Add", g.op("MatMul", of_past, f"value{layer}"), g.op("Mul", of_own, v))
        return g.op("Reshape", attended, g.ints(1, 1, c.heads * c.head_size))

    def _rotation(self, layer: int) -> tuple[str, str]:
        g, frequencies = self.graph, self.config.inverse_frequencies(layer)
        key = frequencies.tobytes()
        if key not in self._angles:
            cos, sin = rotation_tables(frequencies, self.context)
            both = (np.concatenate([cos, cos], axis=1), np.concatenate([-sin, sin], axis=1))
            of_token = [g.op("Gather", g.constant(table), "position", axis=0) for table in both]
            self._angles[key] = (of_token[0], of_token[1])
        return self._angles[key]

    def end(self) -> None:
        self.graph.output("logits", "float32", [1, 1, self.config.vocabulary])


def _signed(weights: BlockWeights) -> Array:
    signed: Array = (weights.stored.astype(np.int16) - 128).astype(np.int8)
    return signed
