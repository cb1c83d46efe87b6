"""Bytes as quantized numbers: TFLM's CAST takes no uint8, its QUANTIZE and DEQUANTIZE do.

    x, uint8 -> Cast -> float      =>      x -> DequantizeLinear(scale 1, zero point 0) -> float

The same numbers. A QuantizeLinear after it becomes one QUANTIZE from uint8 to int8.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import add_constant, new_node, replace_node


def with_quantized_bytes(model: ir.Model) -> ir.Model:
    """Return a copy of the model with these forms, or the model itself if it has no such Cast."""
    if not any(map(_widens, model.graph)):
        return model
    copy = model.clone()
    scale = add_constant(copy, np.array(1, np.float32), "bytes/scale")
    zero_point = add_constant(copy, np.array(0, np.uint8), "bytes/zero_point")
    for node in filter(_widens, list(copy.graph)):
        replace_node(node, new_node(node, "DequantizeLinear", [node.inputs[0], scale, zero_point]))
    return copy


def _widens(node: ir.Node) -> bool:
    if node.op_type != "Cast" or node.domain or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype == ir.DataType.UINT8 and node.outputs[0].dtype == ir.DataType.FLOAT
