"""Language models as ONNX Runtime is fastest with them: com.microsoft's GroupQueryAttention on one buffer for
the cache, which it extends in place, and MatMulNBits for weights that are stored as integers.

Weights lie in a file of their own, which ONNX Runtime maps; protobuf's limit of 2 GB does not apply to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.generate.device.adapter import OPTION as ADAPTERS
from edgekit.generate.device.decoder import OPTION
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.decoder_writer import (
    EMBEDDING,
    HEAD,
    DecoderWriter,
    rotation_tables,
)
from edgekit.generate.host.graphs.language.graph_writer import CONTRIB
from edgekit.generate.host.readers.language import LanguageModel
from edgekit.system.scratch_file import mapped
from edgekit.target import Artifact
from edgekit.tensor_spec import Array, Content, Json
from edgekit_ort.decoder import DATA_FILE, SPARE, WINDOW
from edgekit_ort.run import MODEL_FILE

PRECISIONS = ("fp32", "fp16", "int8", "int4")
EXPERT_PRECISIONS = ("fp32", "fp16", "int8")
"""QMoE has integer zero points only, and int4's blocks have minima."""
TAKES_ADAPTERS = True
INT8_COMPUTE = 4
"""MatMulNBits' ``accuracy_level``: inputs are rounded to int8, block by block. Level 1 (floats) took 1.5
times as long at 4 bits and 20 times at 8."""
ANY_ROWS_BLOCK = 32
"""Largest block with which MatMulNBits 1.32 computes one row like several, bit for bit, on AVX-512 VNNI."""


def compile_decoder(
    model: LanguageModel,
    precision: str,
    weights: Mapping[str, BlockWeights],
    context: int,
    adapted: Collection[str] = (),
    equal_rows: bool = False,
) -> Artifact:
    """``model.onnx`` and ``model.data``; arguments and errors as ``DecoderCompiler.compile_decoder``."""
    if precision not in PRECISIONS:
        raise UsageError(f"ort supports {', '.join(PRECISIONS)} for language models, not {precision}")
    writer = _OrtDecoder(model, weights, context, precision == "fp16", adapted)
    writer.equal_rows = equal_rows and precision != "int8"
    graph = writer.write()
    proto = graph.model(DATA_FILE)
    options: dict[str, Json] = {"precision": precision, OPTION: writer.shape().as_json()}
    if writer.sites:
        options[ADAPTERS] = writer.sites
    if model.config.sliding_window and any(model.config.sliding_layers):
        options[WINDOW] = model.config.sliding_window
    facts = {"nodes": len(proto.graph.node)}
    with tempfile.TemporaryFile() as file:
        graph.write_data(file)
        data = mapped(file)
    files: dict[str, Content] = {
        MODEL_FILE: proto.SerializeToString(deterministic=True),
        DATA_FILE: data,
    }
    tensors = {DATA_FILE: [(offset, size) for _, offset, size in graph.places()]}
    return Artifact(files, options, facts, tensors)


class _OrtDecoder(DecoderWriter):
    """Decoder of ONNX Runtime.

    Attributes:
        equal_rows: Whether logits are independent of the number of tokens in a step. Attention of one token
            has its own kernel, and so has the last of an odd number of rows in products with large blocks.
            So these get an even number: the last row is computed twice. int8 would multiply all of its
            weights so, which costs a quarter of a single step and more than a draft brings.
    """

    accuracy_level = INT8_COMPUTE
    equal_rows = False

    def begin(self) -> str:
        g = self.graph
        g.input("tokens", "int64", ["texts", "tokens"])
        g.input("from_row", "int64", [1])
        g.input("last_position", "int32", ["texts"])
        g.input("total", "int32", [])
        self._even: dict[bool, tuple[str, str]] = {}
        self._ends = ["last_position", "total"]
        return "tokens"

    def _padded(self, values: list[str], head: bool = False) -> tuple[list[str], str]:
        """Repeat the last row of [texts, T, n] if T is odd. Return the padded values, and T.

        Args:
            head: Whether they have the rows of the logits, and not one for each token.
        """
        g = self.graph
        if head not in self._even:
            count = g.op("Shape", values[0], start=1, end=2)
            odd = g.op("Mod", count, g.ints(2))
            self._even[head] = g.op("Concat", g.ints(0, 0, 0, 0), odd, g.ints(0), axis=0), count
            if not head:
                more = g.op("Cast", odd, to=6)
                self._ends = [
                    g.op("Add", "last_position", more), g.op("Add", "total", g.op("Squeeze", more))
                ]  # fmt: skip
        pads, count = self._even[head]
        return [value and g.op("Pad", value, pads, mode="edge") for value in values], count

    def _cut(self, x: str, count: str, out: str = "") -> str:
        """Drop the row that ``_padded`` added."""
        g = self.graph
        return g.op("Slice", x, g.ints(0), count, g.ints(1), out=out)

    def product(self, x: str, weights: BlockWeights, name: str, out: str = "") -> str:
        if not self.equal_rows or weights.block <= ANY_ROWS_BLOCK:
            return super().product(x, weights, name, out)
        (padded,), count = self._padded([x], name in (EMBEDDING, HEAD))
        return self._cut(super().product(padded, weights, name), count, out)

    def norm(self, x: str, name: str) -> str:
        weight = self.graph.constant(self.model.weight(name), name)
        epsilon = self.config.norm_eps
        return self.graph.op(
            "SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=epsilon, stash_type=1
        )

    def queries_keys_values(self, layer: int, x: str) -> list[str]:
        if not self.config.qkv_bias and not self.config.qk_norm:
            names = [f"model.layers.{layer}.self_attn.{kind}_proj.weight" for kind in "qkv"]
            whole = self.whole(x, names)
            if whole is not None:
                return [whole, "", ""]
        return super().queries_keys_values(layer, x)

    def attention(self, layer: int, qkv: list[str]) -> str:
        g, c = self.graph, self.config
        tables = rotation_tables(c.inverse_frequencies(layer), self.context + SPARE)
        slides = bool(c.sliding_window and c.sliding_layers and c.sliding_layers[layer])
        size: list[int | str] = ["texts", c.kv_heads, "capacity", c.head_size]
        for name in (f"key{layer}", f"value{layer}"):
            g.input(name, "float32", size)
            g.output(f"{name}/out", "float32", size)
        count = ""
        if self.equal_rows:
            qkv, count = self._padded(qkv)
        attended, *_ = g.ops(
            "GroupQueryAttention",
            [
                *qkv,
                f"key{layer}",
                f"value{layer}",
                *self._ends,
                *(g.constant(table) for table in tables),
            ],
            3,
            [f"attended{layer}", f"key{layer}/out", f"value{layer}/out"],
            CONTRIB,
            num_heads=c.heads,
            kv_num_heads=c.kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
            scale=c.attention_scale,
            softcap=c.attention_softcap,
            local_window_size=c.sliding_window if slides else -1,
        )
        return self._cut(attended, count) if count else attended

    def experts(self, prefix: str, x: str) -> str:
        """Write the experts as one node, which multiplies each expert's rows only: QMoE, of floats MoE."""
        g, c = self.graph, self.config
        _, logits, shares = self.routing(prefix, x)
        parts = [self.expert_weights(prefix, part) for part in ("gate", "up", "down")]
        stem = f"{prefix}mlp.experts."
        settings: dict[str, Any] = {
            "k": c.picked_experts, "activation_type": "swiglu", "activation_alpha": 1.0,
            "activation_beta": 0.0, "swiglu_fusion": 1,
            "normalize_routing_weights": int(c.normalized_routing), "domain": CONTRIB,
        }  # fmt: skip
        if not all(len(packed) == c.experts for _, packed in parts):
            floats = [np.stack([self.model.weight(name) for name in names]) for names, _ in parts]
            first = self._float(_interleaved(*floats[:2]), f"{stem}gate_up")
            second = self._float(floats[2], f"{stem}down")
            return g.op("MoE", x, logits, first, "", second, **settings)
        block = min(weights.block for _, packed in parts for weights in packed)
        inputs = [x, logits]
        stored = [np.stack([w.packed().reshape(w.outputs, -1) for w in packed]) for _, packed in parts]
        scales = [np.stack([np.repeat(w.scales, w.block // block, 1) for w in packed]) for _, packed in parts]
        for part, both in (
            ("gate_up", (_interleaved(*stored[:2]), _interleaved(*scales[:2]))),
            ("down", (stored[2], scales[2])),
        ):
            names = f"{stem}{part}/stored", f"{stem}{part}/scales"
            inputs += [*map(g.constant, both, names), ""]
        settings |= {"expert_weight_bits": 8, "block_size": block}
        return g.op("QMoE", *inputs, *[""] * 6, shares, **settings)

    def end(self) -> None:
        self.graph.output("logits", "float32", ["texts", "rows", self.config.vocabulary])


def _interleaved(gates: Array, ups: Array) -> Array:
    """Put the rows of two stacks [experts, outputs, n] in turns: [experts, 2 * outputs, n]."""
    pairs: Array = np.stack([gates, ups], axis=2)
    return pairs.reshape(len(gates), -1, gates.shape[2])
