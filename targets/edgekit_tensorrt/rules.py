"""Rules for forms that TensorRT rejects, computes wrongly or runs slowly: data, each row with its source.

The rules are checked on the graph as written to the file (``compile.emitted``), before NVIDIA's parser
reads it. "The parser of 2026" is that of tensorrt-rtx 1.7.1.116, checked with the files of
tests/targets/tensorrt/corpus.py; "the list" is operators.md of 10.1 (operators.json), which holds for the
floor, 10.3: the newer parser takes some forms that the list excludes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.plugin_functions import has_function
from edgekit.compiler.model.private_ops import is_plugin
from edgekit.compiler.model.rewriting import (
    array_of,
    dims_of,
    input_of,
    int_of,
    ints_of,
    node_name,
    producer_of,
    text_of,
)
from edgekit.diagnostics import Finding, Severity
from edgekit_tensorrt.operators import TYPES, operators
from edgekit_tensorrt.run import FLOOR

LIST = "https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md (10.1)"
PARSER = "the parser of tensorrt-rtx 1.7.1.116, tried"
QUANTIZED = "https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html"
TOP_K_LIMIT = 3840
WEIGHT_AXES = {"Conv": (0,), "Gemm": (0, 1), "MatMul": (-1,), "ConvTranspose": (0, 1)}
"""Axis of the output channels: Gemm's by transB; a ConvTranspose gets no int8 kernel by either (measured)."""
QDQ = ("QuantizeLinear", "DequantizeLinear")
VECTORLESS = ("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax")
POOLS = ("AveragePool", "MaxPool", "LpPool")
REDUCTIONS = tuple(
    f"Reduce{name}"
    for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)


@dataclass(frozen=True)
class FormRule:
    """Form of a node that TensorRT does not support well.

    Attributes:
        ops: Operators that the rule applies to; () for all.
        code: Code of the finding; EK10.. is an error, EK11.. a warning (edgekit.diagnostics).
    """

    name: str
    ops: tuple[str, ...]
    code: str
    breaks: Callable[[ir.Node], str | None]
    fix: str
    source: str


NOT_OF_A_RANGE = ("dynamic", "constant slice")
"""Rules that do not apply to a graph for a range, whose dimensions are bounded by a profile. Of the Slices in
it the parser needs constant axes only (LIST), which they have; the model's own were checked at each size."""


def broken_rules(model: ir.Model, target: str, *, ranged: bool = False) -> list[Finding]:
    """Return a finding for each node and rule that it breaks, in order; ``ranged`` omits NOT_OF_A_RANGE."""
    findings = []
    rules = [rule for rule in RULES if not ranged or rule.name not in NOT_OF_A_RANGE]
    for node in model.graph.all_nodes():
        for rule in rules:
            if rule.ops and node.op_type not in rule.ops:
                continue
            text = rule.breaks(node)
            if text is None:
                continue
            severity: Severity = "error" if rule.code.startswith("EK10") else "warning"
            op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            findings.append(Finding(rule.code, severity, target, node_name(node), op, text, rule.fix))
            if severity == "error":
                break  # what else is wrong with it is seen when this is mended
    return findings


def _unknown(node: ir.Node) -> str | None:
    supported = operators()
    if (node.domain == "" and node.op_type in supported.types) or has_function(node):
        return None
    if is_plugin(node):
        return "ONNX Runtime, with whose outputs TensorRT's are compared, does not have this plugin"
    if node.domain == "" and node.op_type in supported.newer:
        return f"only parsers newer than TensorRT {_floor()} support it"
    return f"TensorRT {_floor()} does not support it"


def _floor() -> str:
    return ".".join(map(str, FLOOR))


OWN_TYPES = ("Where", "Cast", "Shape", "Size", "If", "Loop", "Scan", "Range", "DequantizeLinear")
"""Operators whose first input is a condition, a number or anything; DequantizeLinear has rules of its own."""


def _type(node: ir.Node) -> str | None:
    takes = operators().types.get(node.op_type, frozenset())
    value = input_of(node, 0)
    if node.op_type in OWN_TYPES or value is None or value.dtype is None or is_plugin(node):
        return None
    if TYPES.get(value.dtype.name) in takes:
        return None
    return f"{value.dtype.name.lower()} is not supported; supported: {', '.join(sorted(takes))}"


def _no_type(node: ir.Node) -> str | None:
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.dtype is not None and value.dtype.name not in TYPES:
            return f"TensorRT has no type {value.dtype.name.lower()} ({value.name})"
    return None


def _narrow(node: ir.Node) -> str | None:
    if node.op_type in ("Cast", "Identity", "Reshape", *QDQ):
        return None
    for value in node.inputs:
        if value is not None and value.dtype == ir.DataType.UINT8:
            return f"uint8 is a type for inputs and outputs only ({value.name})"
    return None


def _open(node: ir.Node) -> str | None:
    for value in node.outputs:
        if value.shape is not None and any(not isinstance(dim, int) for dim in value.shape.dims):
            return f"{value.name} has a dynamic dimension"
    return None


def _not_constant(*indices: int, description: str) -> Callable[[ir.Node], str | None]:
    def breaks(node: ir.Node) -> str | None:
        values = [input_of(node, index) for index in indices]
        open_ones = [value for value in values if value is not None and array_of(value) is None]
        return f"its {description} not constant" if open_ones else None

    return breaks


def _attribute(name: str, default: int, description: str) -> Callable[[ir.Node], str | None]:
    def breaks(node: ir.Node) -> str | None:
        return None if int_of(node, name, default) == default else description

    return breaks


def _outputs(count: int) -> Callable[[ir.Node], str | None]:
    def breaks(node: ir.Node) -> str | None:
        read = [value for value in node.outputs[count:] if value.uses() or value.is_graph_output()]
        return f"its output {count + 1} is used, but TensorRT does not have it" if read else None

    return breaks


def _rank(*ranks: int) -> Callable[[ir.Node], str | None]:
    def breaks(node: ir.Node) -> str | None:
        dims = dims_of(node.inputs[0])
        return None if dims is None or len(dims) in ranks else f"its input has {len(dims)} dimensions"

    return breaks


def _dilated(node: ir.Node) -> str | None:
    return "dilated windows" if any(step != 1 for step in ints_of(node, "dilations")) else None


def _strided_and_dilated(node: ir.Node) -> str | None:
    both = all(any(step != 1 for step in ints_of(node, name)) for name in ("strides", "dilations"))
    return "both strides and dilations" if both else None


def _pool_norm(node: ir.Node) -> str | None:
    p = int_of(node, "p", 2)
    return None if p in (1, 2) else f"p {p}; there are 1 and 2"


def _vector(node: ir.Node) -> str | None:
    dims = dims_of(node.inputs[0])
    return "its input has 1 dimension; there must be 2" if dims is not None and len(dims) == 1 else None


def _vector_times_batches(node: ir.Node) -> str | None:
    left, right = (dims_of(value) for value in node.inputs[:2])
    if left is None or right is None or len(left) != 1 or math.prod(right[:-2]) == 1:
        return None
    return "a vector times a batch of matrices"


def _int32(node: ir.Node) -> str | None:
    value = input_of(node, 0)
    return "no form for int32" if value is not None and value.dtype == ir.DataType.INT32 else None


def _top_k(node: ir.Node) -> str | None:
    k = array_of(input_of(node, 1))
    if k is None:
        return "its k is not constant"
    if int(k.reshape(-1)[0]) >= TOP_K_LIMIT:
        return f"k is {int(k.reshape(-1)[0])} and must be less than {TOP_K_LIMIT}"
    return None if int_of(node, "sorted", 1) else "it returns unsorted results"


RESIZES = {
    "mode": ("nearest", ("nearest", "linear")),
    "coordinate_transformation_mode": (
        "half_pixel",
        ("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners"),
    ),
    "nearest_mode": (
        "round_prefer_floor",
        ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    ),
    "keep_aspect_ratio_policy": ("stretch", ("stretch",)),
}


def resize_without_layer(node: ir.Node) -> str | None:
    """Return the option of a Resize that TensorRT's resize layer lacks, or None."""
    for name, (default, takes) in RESIZES.items():
        value = text_of(node, name, default)
        if value not in takes:
            return f"{name} {value}; there are {', '.join(takes)}"
    return "antialias" if int_of(node, "antialias", 0) else None


def _reduction(node: ir.Node) -> str | None:
    reduction = text_of(node, "reduction", "none")
    return None if reduction == "none" else f"reduction {reduction}"


def _directions(node: ir.Node) -> str | None:
    attribute = node.attributes.get("activations")
    names = list(attribute.as_strings()) if attribute is not None else []
    half = len(names) // 2
    if text_of(node, "direction", "forward") == "bidirectional" and names[:half] != names[half:]:
        return "its two directions have different activations"
    return None


def _zero_point(node: ir.Node) -> str | None:
    zero = array_of(input_of(node, 2))
    if zero is not None and zero.any():
        return f"zero point {zero.reshape(-1)[int(np.argmax(zero != 0))]}"
    return None if zero is not None or input_of(node, 2) is None else "its zero point is not constant"


def _scale(node: ir.Node) -> str | None:
    scale = array_of(node.inputs[1])
    if scale is None:
        return "its scale is not constant"
    return None if bool((scale > 0).all()) else "a scale that is not positive"


def _stored(node: ir.Node) -> str | None:
    value = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    if value is None or value.dtype in (None, ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN):
        return None
    if value.dtype == ir.DataType.UINT8:
        return "uint8, which it takes for int8: 128 to 255 become 127"
    return f"stores {value.dtype.name.lower()}"


def _per_channel(node: ir.Node) -> str | None:
    scale = array_of(node.inputs[1])
    return "one scale for each channel of an activation" if scale is not None and scale.size > 1 else None


def _is_weight(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "DequantizeLinear" and array_of(node.inputs[0]) is not None


def _weight_axis(node: ir.Node) -> str | None:
    pair = producer_of(node.inputs[1], "DequantizeLinear")
    if pair is None or not _is_weight(pair):
        return None
    scale, dims = array_of(pair.inputs[1]), dims_of(pair.inputs[0])
    if scale is None or dims is None or scale.size == 1:
        return None
    axes = [axis % len(dims) for axis in WEIGHT_AXES[node.op_type]]
    if node.op_type == "Gemm":
        axes = [0 if int_of(node, "transB", 0) else 1]
    axis = int_of(pair, "axis", 1) % len(dims)
    return None if axis in axes else f"weight scales along axis {axis}, not {axes[0]}: it runs in float"


def _half_quantized(node: ir.Node) -> str | None:
    data, weight = (producer_of(value, "DequantizeLinear") for value in node.inputs[:2])
    if (data is None) == (weight is None):
        return None
    if array_of(node.inputs[1]) is None and not _is_weight(weight):
        return None  # of two activations, as in attention, either may be stored as integers alone
    operand = "weights" if data is None else "input"
    return f"only its {operand} are int8: it runs in float" if data is None else "only its input is int8"


RULES: tuple[FormRule, ...] = (
    FormRule("no form", (), "EK1001", _unknown, "", LIST),
    FormRule("type that does not exist", (), "EK1004", _no_type, "cast it in the model", PARSER),
    FormRule("stored type", QDQ, "EK1002", _stored, "quantize to int8 with zero point 0", PARSER),
    FormRule("zero point", QDQ, "EK1002", _zero_point, "quantize symmetrically, with zero point 0", PARSER),
    FormRule("scale", QDQ, "EK1002", _scale, "", f"{PARSER}: one that is not constant crashes it"),
    FormRule("type", (), "EK1004", _type, "cast it in the model", LIST),
    FormRule("uint8 inside", (), "EK1004", _narrow, "cast it in the model", LIST),
    FormRule("dynamic", (), "EK1003", _open, "cut the model before it, or build it for ort", PARSER),
    FormRule(
        "pool rank", ("AveragePool", "MaxPool"), "EK1002", _rank(3, 4, 5), "", f"{LIST}; {PARSER} for 1-D"
    ),
    FormRule("pool dilations", POOLS, "EK1002", _dilated, "", LIST),
    FormRule("pool indices", ("MaxPool",), "EK1002", _outputs(1), "", LIST),
    FormRule("one dimension", VECTORLESS, "EK1002", _vector, "put a dimension of 1 before it", PARSER),
    FormRule(
        "vector times batches",
        ("MatMul",),
        "EK1002",
        _vector_times_batches,
        "put a dimension of 1 before the vector's",
        PARSER,
    ),
    FormRule("strides and dilations", ("ConvTranspose",), "EK1002", _strided_and_dilated, "", PARSER),
    FormRule("pool norm", ("LpPool",), "EK1002", _pool_norm, "", PARSER),
    FormRule(
        "training",
        ("BatchNormalization",),
        "EK1002",
        _attribute("training_mode", 0, "training_mode 1"),
        "",
        PARSER,
    ),
    FormRule("int32 activation", ("Relu",), "EK1004", _int32, "cast it in the model", PARSER),
    FormRule("constant axis", ("CumSum",), "EK1002", _not_constant(1, description="axis is"), "", LIST),
    FormRule(
        "constant axes",
        (*REDUCTIONS, "Squeeze", "Unsqueeze"),
        "EK1002",
        _not_constant(1, description="axes are"),
        "",
        LIST,
    ),
    FormRule(
        "constant slice",
        ("Slice",),
        "EK1002",
        _not_constant(1, 2, 3, 4, description="starts, ends, axes or steps are"),
        "",
        LIST,
    ),
    FormRule(
        "constant pads", ("Pad",), "EK1002", _not_constant(1, 3, description="pads or axes are"), "", LIST
    ),
    FormRule("constant depth", ("OneHot",), "EK1002", _not_constant(1, description="depth is"), "", LIST),
    FormRule(
        "constant sizes",
        ("Reshape", "Expand", "Tile"),
        "EK1002",
        _not_constant(1, description="sizes are"),
        "",
        PARSER,
    ),
    FormRule("grid rank", ("GridSample",), "EK1002", _rank(4), "", LIST),
    FormRule("second output", ("LayerNormalization",), "EK1002", _outputs(1), "", LIST),
    FormRule("coupled gates", ("LSTM",), "EK1002", _attribute("input_forget", 0, "input_forget"), "", LIST),
    FormRule("batch first", ("LSTM", "GRU", "RNN"), "EK1002", _attribute("layout", 0, "layout 1"), "", LIST),
    FormRule("directions", ("LSTM", "GRU", "RNN"), "EK1002", _directions, "", LIST),
    FormRule("resize", ("Resize",), "EK1002", resize_without_layer, "", LIST),
    FormRule("scatter", ("ScatterND", "ScatterElements"), "EK1002", _reduction, "", f"{LIST}; {PARSER}"),
    FormRule("top k", ("TopK",), "EK1002", _top_k, "", f"{LIST}; {PARSER}"),
    FormRule("weight axis", tuple(WEIGHT_AXES), "EK1101", _weight_axis, "", f"{PARSER}: a float kernel"),
    FormRule(
        "half quantized", tuple(WEIGHT_AXES), "EK1101", _half_quantized, "", f"{PARSER}: a float kernel"
    ),
    FormRule("channel scales", ("QuantizeLinear",), "EK1101", _per_channel, "", f"{PARSER}: a float kernel"),
)
