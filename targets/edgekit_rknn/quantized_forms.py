"""Rewrites for rknn-toolkit2: Q/DQ pairs as it reads them, so that the NPU has the integers that were chosen,
and equivalent forms of what it computes wrongly or rejects.

The toolkit takes a range from each pair, and where the zero point is 0 makes it symmetric about zero: int8's
-128 s .. 127 s becomes -128 s .. 128 s in 127 steps to a side. So a scale s is read as s 128/127, and weights
stored as q are rounded again, to round(q 127/128): an error of up to half a step in most of them, a sawtooth
over q. Pairs with any other zero point are read as they are. Both were measured by networks of one Conv on
the simulator of 2.5.0. So 0 is written as -1, which is the same numbers:

    weights     k - 1 with zero point -1: k is -127 .. 127, so that it fits
    activations zero point -1: their range ends at 128 s and begins at -127 s

An average over an image is rounded to the scale of its input, which the average of many values does not
need. As a depthwise Conv with equal weights it has a scale of its own, and the same integers as ONNX Runtime.

Forms that it computes wrongly or rejects:

    ConvTranspose<output_shape, auto_pad>      =>   ConvTranspose<pads, output_padding>
    AveragePool<ceil_mode>, <count_include_pad> with more pads at an end
                                               =>   Conv<group = C>, weights 1 / window size [-> Mul]

Measured with 2.5.0 on the conformance cases of these operators: it ignores output_shape, fails on SAME and on
ceil_mode, and uses a wrong divisor if the pads at an end are the larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.average_by_conv import average_by_conv
from edgekit.compiler.lowering.op_arguments import arguments_of
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    int_of,
    ints_of,
    node_name,
    nodes_of,
    producer_of,
    text_of,
)
from edgekit.compiler.model.sliding_windows import TransposedWindow
from edgekit.diagnostics import Finding
from edgekit.tensor_spec import Array

ZERO = -1
"""Any but 0."""
EIGHT_BITS = (ir.DataType.INT8, ir.DataType.UINT8)
AVERAGE = 127
"""Each weight of an average, in steps."""


def write_pairs(model: ir.Model) -> None:
    """Rewrite pairs of the main graph, in place."""
    for _, node in nodes_of(model, "GlobalAveragePool"):
        _average_as_conv(model, node)
    for _, node in nodes_of(model, "QuantizeLinear", "DequantizeLinear"):
        zero = _zero_point(model, node)
        if zero is None or zero.dtype != np.int8 or zero.any():
            continue
        stored, name = array_of(node.inputs[0]), str(node.outputs[0].name)
        if stored is not None and node.op_type == "DequantizeLinear":
            lower = np.maximum(stored, -127) + np.int8(ZERO)
            node.replace_input_with(0, add_constant(model, lower, f"{name}/stored"))
        node.replace_input_with(2, add_constant(model, np.full_like(zero, ZERO), f"{name}/zero"))
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del model.graph.initializers[name]


def _zero_point(model: ir.Model, node: ir.Node) -> Array | None:
    """Return the constant zero point. If there is none, write one, because the toolkit fails without it."""
    scale, stored = array_of(input_of(node, 1)), (*node.inputs[:1], *node.outputs)
    if input_of(node, 2) is None and scale is not None:
        kinds = [value.dtype.numpy() for value in stored if value is not None and value.dtype in EIGHT_BITS]
        if kinds:
            zeros = np.zeros(scale.shape, kinds[0])
            node.resize_inputs(3)
            node.replace_input_with(2, add_constant(model, zeros, f"{node.outputs[0].name}/zeros"))
    return array_of(input_of(node, 2))


def _average_as_conv(model: ir.Model, node: ir.Node) -> None:
    """DequantizeLinear -> GlobalAveragePool  =>  DequantizeLinear -> Conv [C, 1, H, W], group C"""
    source, output = node.inputs[0], node.outputs[0]
    producer = None if source is None else source.producer()
    if producer is None or producer.op_type != "DequantizeLinear" or source is None or source.shape is None:
        return
    shape = [int(str(size)) for size in source.shape]
    if len(shape) != 4:
        return
    channels, window = shape[1], shape[2:]
    names = [f"{output.name}/average{part}" for part in ("", "/scale", "/zero", "/weight")]
    stored = add_constant(model, np.full([channels, 1, *window], AVERAGE, np.int8), names[0])
    steps = np.full(channels, 1 / (AVERAGE * window[0] * window[1]), np.float32)
    scale = add_constant(model, steps, names[1])
    zero = add_constant(model, np.zeros(channels, np.int8), names[2])
    weight = ir.node("DequantizeLinear", [stored, scale, zero], {"axis": 0}, name=names[3], num_outputs=1)
    weight.outputs[0].name, weight.outputs[0].dtype = names[3], ir.DataType.FLOAT
    weight.outputs[0].shape = ir.Shape([channels, 1, *window])
    conv = ir.node(
        "Conv", [source, weight.outputs[0]], {"kernel_shape": window, "group": channels}, name=node.name
    )
    conv.outputs[0].type, conv.outputs[0].shape = output.type, output.shape
    model.graph.insert_before(node, [weight, conv])
    name = output.name
    output.replace_all_uses_with(conv.outputs[0], replace_graph_outputs=True)
    model.graph.remove(node, safe=True)
    conv.outputs[0].name = name


def write_forms(model: ir.Model) -> None:
    """Rewrite these nodes of the main graph, in place."""
    for _, node in nodes_of(model, "ConvTranspose"):
        if "output_shape" in node.attributes or text_of(node, "auto_pad", "NOTSET") != "NOTSET":
            _state_pads(node)
    for _, node in nodes_of(model, "AveragePool"):
        if len(dims_of(node.inputs[0]) or ()) == 4 and _is_uneven(node):
            average_by_conv(model, node)


def refused_forms(model: ir.Model, target: str) -> Iterator[Finding]:
    """Yield a finding for each node that is computed wrongly, or never finishes compiling, in this form.

    An average over three axes with pads gives wrong numbers or ends the compiler's process; it is written
    with fewer axes then (edgekit.compiler.passes.decompositions.axes). For a Gemm on integers with several
    rows the compiler moves a Reshape back and forth endlessly; with one row it finishes.
    """
    for _, node in nodes_of(model, "AveragePool", "Gemm"):
        dims = dims_of(node.inputs[0]) or ()
        reason = ""
        if node.op_type == "AveragePool" and len(dims) == 5 and any(ints_of(node, "pads")):
            reason = "an average over three axes with pads is computed wrongly by this compiler"
        elif producer_of(node.inputs[0], "DequantizeLinear") and dims[:1] != (1,):
            reason = "the compiler never ends with more than one row on integers"
        if reason:
            yield Finding("EK1002", "error", target, node_name(node), node.op_type, reason)


def _state_pads(node: ir.Node) -> None:
    if None in (dims_of(value) for value in (node.inputs[0], node.inputs[1], node.outputs[0])):
        return
    frame: TransposedWindow = arguments_of(node)["frame"]
    if min(frame.begin) < 0:
        return
    for name in ("output_shape", "auto_pad"):
        node.attributes.pop(name, None)
    ends = [max(end, 0) for end in frame.end]
    node.attributes["pads"] = ir.AttrInt64s("pads", [*frame.begin, *ends])
    beyond = [max(-end, 0) for end in frame.end]
    node.attributes["output_padding"] = ir.AttrInt64s("output_padding", beyond)


def _is_uneven(node: ir.Node) -> bool:
    pads = ints_of(node, "pads") or [0, 0, 0, 0]
    more_at_ends = any(end > begin for begin, end in zip(pads[:2], pads[2:], strict=True))
    return int_of(node, "ceil_mode", 0) == 1 or (int_of(node, "count_include_pad", 0) == 1 and more_at_ends)
