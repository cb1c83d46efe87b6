"""An average over windows as a depthwise convolution, for engines that divide by others at the borders.

AveragePool(x)   =>   Conv<group = C>(x, 1 / window size) [-> Mul by window size / elements counted]
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.op_arguments import arguments_of
from edgekit.compiler.model.rewriting import (
    PART_OF,
    Attribute,
    add_constant,
    dims_of,
    insert_before,
    new_node,
    replace_node,
)
from edgekit.compiler.model.sliding_windows import Window, divisors


def average_by_conv(model: ir.Model, node: ir.Node) -> None:
    """Replace an AveragePool of floats, in place; one without static shapes stays."""
    source = dims_of(node.inputs[0])
    if source is None or dims_of(node.outputs[0]) is None:
        return
    arguments = arguments_of(node)
    frame: Window = arguments["frame"]
    size, name = math.prod(frame.kernel), str(node.outputs[0].name)
    equal = np.full((source[1], 1, *frame.kernel), 1 / size, np.float32)
    weights = add_constant(model, equal, f"{name}/weights")
    before, after = zip(*frame.pads, strict=True)
    attributes: dict[str, Attribute] = {
        "group": source[1],
        "kernel_shape": list(frame.kernel),
        "strides": list(frame.stride),
        "dilations": list(frame.dilation),
        "pads": [*before, *after],
    }
    factors = size / divisors(frame, arguments["count_include_pad"])
    inputs = [node.inputs[0], weights]
    if np.all(factors == 1):
        replace_node(node, new_node(node, "Conv", inputs, attributes))
        return
    conv = new_node(node, "Conv", inputs, attributes, f"{node.name}/sums")
    conv.metadata_props[PART_OF] = str(node.name)
    sums = insert_before(model, node, conv, f"{name}/sums", like=node.outputs[0])
    multiplier = add_constant(model, factors[None, None].astype(np.float32), f"{name}/factors")
    replace_node(node, new_node(node, "Mul", [sums, multiplier]))
