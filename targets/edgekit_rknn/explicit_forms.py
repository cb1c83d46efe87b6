"""Rewrites of forms that rknn-toolkit2 computes wrongly or rejects into equivalent ones.

    ConvTranspose<output_shape, auto_pad>      =>   ConvTranspose<pads, output_padding>
    AveragePool<ceil_mode>, <count_include_pad> with more pads at an end
                                               =>   Conv<group = C>, weights 1 / window size [-> Mul]

Measured with 2.5.0 on the conformance cases of these operators: it ignores output_shape, fails on SAME and on
ceil_mode, and uses a wrong divisor if the pads at an end are the larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from edgekit.compiler.lowering.average_by_conv import average_by_conv
from edgekit.compiler.lowering.op_arguments import arguments_of
from edgekit.compiler.model.rewriting import (
    dims_of,
    int_of,
    ints_of,
    node_name,
    nodes_of,
    producer_of,
    text_of,
)
from edgekit.compiler.model.sliding_windows import TransposedWindow
from edgekit.diagnostics import Finding


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
