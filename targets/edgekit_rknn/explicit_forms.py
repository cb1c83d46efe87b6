"""Forms that rknn-toolkit2 computes wrongly or refuses, as others that mean the same.

    ConvTranspose<output_shape, auto_pad>      =>   ConvTranspose<pads, output_padding>
    AveragePool<ceil_mode>, <count_include_pad> with more pads at an end
                                               =>   Conv<group = C>, weights 1 / window size [-> Mul]

Measured with 2.5.0 on the conformance cases of these operators: it ignores output_shape, fails on SAME and on
ceil_mode, and divides by another number where the pads at an end are the larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from edgekit.findings import Finding
from edgekit.lowering.sliding_windows import divisors, transposed_window, window
from edgekit.model.rewriting import (
    Attribute,
    add_constant,
    dims_of,
    insert_before,
    int_of,
    ints_of,
    new_node,
    node_name,
    nodes_of,
    replace_node,
    text_of,
)


def write_forms(model: ir.Model) -> None:
    """Rewrite these nodes of the main graph, in place."""
    for _, node in nodes_of(model, "ConvTranspose"):
        if "output_shape" in node.attributes or text_of(node, "auto_pad", "NOTSET") != "NOTSET":
            _state_pads(node)
    for _, node in nodes_of(model, "AveragePool"):
        if len(dims_of(node.inputs[0]) or ()) == 4 and _is_uneven(node):
            _average_by_conv(model, node)


def refused_forms(model: ir.Model, target: str) -> Iterator[Finding]:
    """Averages over three axes with pads: it gives other numbers, or ends its process. They are written with
    fewer axes then (edgekit.passes.decompositions.axes)."""
    for _, node in nodes_of(model, "AveragePool"):
        if len(dims_of(node.inputs[0]) or ()) == 5 and any(ints_of(node, "pads")):
            what = "an average over three axes with pads is computed wrongly by this compiler"
            yield Finding("EK1002", "error", target, node_name(node), node.op_type, what)


def _state_pads(node: ir.Node) -> None:
    source, kernel, out = (dims_of(value) for value in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if source is None or kernel is None or out is None:
        return
    frame = transposed_window(
        source[2:],
        out[2:],
        kernel[2:],
        ints_of(node, "strides") or None,
        ints_of(node, "dilations") or None,
        text_of(node, "auto_pad", "NOTSET"),
        ints_of(node, "pads") or None,
        ints_of(node, "output_padding") or None,
        ints_of(node, "output_shape") or None,
    )
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


def _average_by_conv(model: ir.Model, node: ir.Node) -> None:
    source, out = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if source is None or out is None:
        return
    kernel = ints_of(node, "kernel_shape")
    frame = window(
        source[2:],
        out[2:],
        kernel,
        ints_of(node, "strides") or None,
        ints_of(node, "dilations") or None,
        text_of(node, "auto_pad", "NOTSET"),
        ints_of(node, "pads") or None,
    )
    size, name = math.prod(kernel), str(node.outputs[0].name)
    equal = np.full((source[1], 1, *kernel), 1 / size, np.float32)
    weights = add_constant(model, equal, f"{name}/weights")
    before, after = zip(*frame.pads, strict=True)
    attributes: dict[str, Attribute] = {
        "group": source[1],
        "kernel_shape": kernel,
        "strides": list(frame.stride),
        "dilations": list(frame.dilation),
        "pads": [*before, *after],
    }
    factors = size / divisors(frame, int_of(node, "count_include_pad", 0) == 1)
    conv = new_node(node, "Conv", [node.inputs[0], weights], attributes)
    if np.all(factors == 1):
        replace_node(node, conv)
        return
    sums = insert_before(model, node, conv, f"{name}/sums")
    sums.type, sums.shape = node.outputs[0].type, node.outputs[0].shape
    by = add_constant(model, factors[None, None].astype(np.float32), f"{name}/factors")
    replace_node(node, new_node(node, "Mul", [sums, by]))
