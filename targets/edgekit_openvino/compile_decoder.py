"""Language models in the form that is fastest on OpenVINO: the cache is state of the request. Attention is
ScaledDotProductAttention on the cache, which the CPU plugin fuses with the state into one kernel. Integers
are dequantized next to their product, so that the plugin multiplies them as stored.

The plugin takes the cache into the kernel (``StatefulSDPAFusion``) only in this form: the state starts as an
empty array, is gathered by ``beam_idx``, and each head of keys is repeated for its queries. Read from the
same graph without it, a token at 900 took 37 to 70 ms more than one at 40; with it 10.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.generate.device.adapter import OPTION as ADAPTERS
from edgekit.generate.device.decoder import OPTION
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.decoder_writer import DecoderWriter
from edgekit.generate.host.readers.language import LanguageModel
from edgekit.system.scratch_file import mapped
from edgekit.target import Artifact
from edgekit.tensor_spec import Content, Json
from edgekit_openvino.decoder import WINDOW, state_names
from edgekit_openvino.run import BIN_FILE, XML_FILE, openvino

PRECISIONS = ("fp32", "fp16", "int8", "int4")
EXPERT_PRECISIONS = ("fp32", "fp16", "int8")
TAKES_ADAPTERS = True
OURS = "edgekit"
"""Domain of the operators that ``_conversions`` turn into OpenVINO's; no file has it."""
MODEL, DATA = "decoder.onnx", "decoder.data"


def compile_decoder(
    model: LanguageModel,
    precision: str,
    weights: Mapping[str, BlockWeights],
    context: int,
    adapted: Collection[str] = (),
    equal_rows: bool = False,
) -> Artifact:
    """Compile ``model.xml`` and ``model.bin``; arguments, errors: see ``DecoderCompiler.compile_decoder``."""
    if precision not in PRECISIONS:
        raise UsageError(f"openvino supports {', '.join(PRECISIONS)} for language models, not {precision}")
    writer = _OpenvinoDecoder(model, weights, context, precision == "fp16", adapted)
    graph = writer.write()
    proto = graph.model(DATA)
    proto.opset_import.add(domain=OURS, version=1)
    package = openvino()
    # Windows keeps what is still mapped until the system's temporary folder is cleaned.
    with tempfile.TemporaryDirectory(prefix="edgekit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / DATA).open("wb") as file:
            graph.write_data(file)
        (folder / MODEL).write_bytes(proto.SerializeToString())
        core = package.Core()
        core.add_extension(_conversions())
        read = core.read_model(str(folder / MODEL))
        _keep_cache_as_state(package, read, writer)
        for number, node in enumerate(read.get_ordered_ops()):  # its own names count up in a process
            node.set_friendly_name(f"{node.get_type_name()}_{number}")
        package.save_model(read, str(folder / XML_FILE), compress_to_fp16=False)
        with (folder / BIN_FILE).open("rb") as weights_file:
            files: dict[str, Content] = {
                XML_FILE: (folder / XML_FILE).read_bytes(),
                BIN_FILE: mapped(weights_file),
            }
    options: dict[str, Json] = {"precision": precision, OPTION: writer.shape().as_json()}
    if writer.sites:
        options[ADAPTERS] = writer.sites
    if writer.slides:
        options[WINDOW] = model.config.sliding_window
    places = re.findall(rb' offset="(\d+)" size="(\d+)"', files[XML_FILE])
    tensors = {BIN_FILE: sorted({(int(offset), int(size)) for offset, size in places})}
    return Artifact(files, options, {"layers": len(read.get_ops())}, tensors)


class _OpenvinoDecoder(DecoderWriter):
    slides, sign = False, 1

    def begin(self) -> str:
        g, c = self.graph, self.config
        g.input("tokens", "int64", [1, "tokens"])
        g.input("from_row", "int64", [1])
        g.input("positions", "int64", ["tokens"])
        g.input("beam_idx", "int32", ["batch"])
        g.input("mask", "float32", [1, 1, "tokens", "total"])
        self.slides = bool(c.sliding_window) and any(c.sliding_layers)
        if self.slides:
            g.input("sliding_mask", "float32", [1, 1, "tokens", "total"])
        self.places = g.op("Unsqueeze", "positions", g.ints(0, 1))
        return "tokens"

    def rotated(self, x: str, cos: str, sin: str) -> str:
        """Write the rotation in the one form that the plugin computes as one kernel (``RoPEFusionGPTNEOX``):
        tables of rank 4, and a product with -1."""
        g, half = self.graph, self.config.head_size // 2
        first, second = g.ops("Split", [x, g.ints(half, half)], 2, axis=3)
        halves = g.op("Concat", g.op("Mul", second, g.number(-1.0)), first, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", halves, sin))

    def attention(self, layer: int, qkv: list[str]) -> str:
        g, c = self.graph, self.config
        slides = bool(c.sliding_window and c.sliding_layers and c.sliding_layers[layer])
        cos, sin = self.rotation(layer, self.places)
        q = self.rotated(self.split_heads(qkv[0], c.heads), cos, sin)
        k = self.rotated(self.split_heads(qkv[1], c.kv_heads), cos, sin)
        whole = []
        for name, new in ((f"key{layer}", k), (f"value{layer}", self.split_heads(qkv[2], c.kv_heads))):
            g.input(name, "float32", ["batch", c.kv_heads, "past", c.head_size])
            past = g.op("Gather", name, "beam_idx", axis=0)
            joined = g.op("Concat", past, new, out=f"{name}/out", axis=2)
            g.output(joined, "float32", ["batch", c.kv_heads, "total", c.head_size])
            unsqueezed = g.op("Unsqueeze", joined, g.ints(2))
            repeated = g.op("Expand", unsqueezed, g.ints(1, 1, c.heads // c.kv_heads, 1, 1))
            whole.append(g.op("Reshape", repeated, g.ints(0, c.heads, -1, c.head_size)))
        mask = "sliding_mask" if slides else "mask"
        if not c.attention_softcap:
            attended = g.op("Attention", q, *whole, mask, domain=OURS, scale=c.attention_scale)
            return self.join_heads(attended)
        scores = g.op("MatMul", q, g.op("Transpose", whole[0], perm=[0, 1, 3, 2]))
        scores = self.soft_cap(g.op("Mul", scores, g.number(c.attention_scale)), c.attention_softcap)
        weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
        return self.join_heads(g.op("MatMul", weights, whole[1]))

    def experts(self, prefix: str, x: str) -> str:
        """Write all experts, each times its share of every row. The plugin finds this form
        (``ConvertTiledMoeBlockTo3GatherMatmuls``), and computes the picked ones only (``GatherMatmul``)."""
        g, c = self.graph, self.config
        rows, _, shares = self.routing(prefix, x)
        values, picked = g.ops("TopK", [shares, g.ints(c.picked_experts)], 2, axis=-1)
        if c.normalized_routing:
            values = g.op("Div", values, g.op("ReduceSum", values, g.ints(-1), keepdims=1))
        none = g.op("Mul", shares, g.number(0.0))
        factors = g.op("Transpose", g.op("ScatterElements", none, picked, values, axis=1), perm=[1, 0])
        factors = g.op("Unsqueeze", g.op("Reshape", factors, g.ints(c.experts, 1, -1)), g.ints(-1))
        tiled = g.op("Reshape", g.op("Tile", rows, g.ints(c.experts, 1)), g.ints(c.experts, -1, c.width))
        gate, up = (self._by_expert(prefix, part, tiled) for part in ("gate", "up"))
        hidden = g.op("Mul", g.activation(gate, c.activation), up)
        outputs = g.op("Reshape", self._by_expert(prefix, "down", hidden), g.ints(c.experts, 1, -1, c.width))
        return g.op("ReduceSum", g.op("Mul", outputs, factors), g.ints(0), keepdims=0)

    def _by_expert(self, prefix: str, part: str, x: str) -> str:
        """Multiply x by a matrix of each expert: [experts, T, inputs] -> [experts, T, outputs]."""
        g, (names, packed) = self.graph, self.expert_weights(prefix, part)
        stem = f"{prefix}mlp.experts.{part}"
        if len(packed) < len(names):
            whole = self._float(np.stack([self.model.weight(name) for name in names]), stem)
        else:
            stored = g.constant(np.stack([w.packed() for w in packed]), f"{stem}/stored")
            scales = g.constant(np.stack([w.scales[..., None] for w in packed]), f"{stem}/scales")
            zero = g.constant(np.full((1, 1, 1, 1), 128, np.uint8))
            blocks = g.op("Sub", g.op("Cast", stored, to=1), g.op("Cast", zero, to=1))
            shape = g.ints(len(names), packed[0].outputs, packed[0].inputs)
            whole = g.op("Reshape", g.op("Mul", blocks, scales), shape)
        return g.op("MatMulTransposed", x, whole, domain=OURS)

    def end(self) -> None:
        self.graph.output("logits", "float32", [1, "rows", self.config.vocabulary])


def _conversions() -> Any:
    """Return the conversions of the operators in ``OURS`` for OpenVINO's ONNX reader."""
    import openvino.opset13 as ops
    from openvino.frontend.onnx import ConversionExtension

    def attention(node: Any) -> Any:
        q, k, v, mask = (node.get_input(index) for index in range(4))
        scale = ops.constant(np.float32(node.get_attribute("scale")))
        return ops.scaled_dot_product_attention(q, k, v, mask, scale, causal=False).outputs()

    def transposed(node: Any) -> Any:
        return ops.matmul(node.get_input(0), node.get_input(1), False, True).outputs()

    return [
        ConversionExtension("Attention", OURS, attention),
        ConversionExtension("MatMulTransposed", OURS, transposed),
    ]


def _keep_cache_as_state(package: Any, read: Any, writer: DecoderWriter) -> None:
    """Turn inputs and outputs of the cache into variables of the request, empty at first."""
    import openvino.opset13 as ops
    from openvino.op.util import Variable, VariableInfo

    c = writer.config
    inputs = {name: node for node in read.get_parameters() for name in node.output(0).get_names()}
    outputs = {name: node for node in read.get_results() for name in node.input_value(0).get_names()}
    for name in state_names(c.layers):
        info = VariableInfo()
        info.variable_id, info.data_type = name, package.Type.f32
        info.data_shape = package.PartialShape([-1, c.kv_heads, -1, c.head_size])
        variable = Variable(info)
        read.add_variables([variable])
        empty = ops.constant(np.zeros((1, c.kv_heads, 0, c.head_size), np.float32))
        inputs[name].output(0).replace(package.op.read_value(empty, variable).output(0))
        read.remove_parameter(inputs[name])
        source = outputs[f"{name}/out"].input_value(0)
        read.remove_result(outputs[f"{name}/out"])
        read.add_sinks([package.op.assign(source.get_node(), variable)])
    read.validate_nodes_and_infer_types()
