"""Reading of Q/DQ pairs in the ONNX graph: scales, constants, and the quantization by a value's consumer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.tensor_spec import Array
from edgekit_tflite.graph import TensorQuantization

PAIR = frozenset({"DequantizeLinear", "QuantizeLinear"})

MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax",
        "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""The output holds some of the input's own numbers, so it has the input's scale."""

MOVES_STORED = frozenset({"Flatten", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Those that models also have between a QuantizeLinear and its DequantizeLinear."""

CLAMPS = frozenset({"Clip", "Relu"})


def per_tensor(node: ir.Node) -> TensorQuantization | None:
    """Return a Q or DQ node's int8 scale and zero point; None unless constant, 8-bit and per tensor."""
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    scale = constant_array(node, 1)
    if stored is None or stored.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return None
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    shift = 128 if stored.dtype == ir.DataType.UINT8 else 0
    has_zero_point = len(node.inputs) > 2 and node.inputs[2] is not None
    zero_point = constant_array(node, 2) if has_zero_point else np.zeros((), np.int64)
    if zero_point is None:
        return None
    return TensorQuantization((float(scale.ravel()[0]),), (int(zero_point.ravel()[0]) - shift,))


def constant_array(node: ir.Node, index: int) -> Array | None:
    """Return the constant at one of the node's inputs, or None."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.const_value is None else value.const_value.numpy()


def is_constant(value: ir.Value) -> bool:
    """Check whether ``value`` is a constant, or one after a DequantizeLinear."""
    if value.const_value is not None:
        return True
    maker = value.producer()
    return (
        maker is not None
        and maker.op_type == "DequantizeLinear"
        and maker.inputs[0] is not None
        and maker.inputs[0].const_value is not None
    )


def following_quantization(value: ir.Value) -> TensorQuantization | None:
    """Return the quantization by the only reader of ``value``: that of the QuantizeLinear after it.

    Nodes between may clamp or move data, as storing before and after them is the same.
    """
    if value.is_graph_output() or len(value.uses()) != 1:
        return None
    ((reader, index),) = value.uses()
    if index != 0:
        return None
    clamps = reader.op_type in CLAMPS and all(is_constant(v) for v in reader.inputs[1:] if v)
    if clamps or (reader.op_type in MOVES and len(reader.outputs) == 1):
        return following_quantization(reader.outputs[0])
    return per_tensor(reader) if reader.op_type == "QuantizeLinear" else None


def clip_bounds(node: ir.Node) -> tuple[float | None, float | None] | None:
    """Return the least and greatest value of a Relu or Clip, None for no bound; None if not constant."""
    if node.op_type == "Relu":
        return 0.0, None
    bounds: list[float | None] = []
    for index in (1, 2):
        value = node.inputs[index] if index < len(node.inputs) else None
        array = constant_array(node, index)
        if value is not None and value.name and array is None:
            return None
        bounds.append(None if array is None else float(array.ravel()[0]))
    return bounds[0], bounds[1]


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def stored_number(number: float, quantization: TensorQuantization) -> int:
    """Return ``number`` as QuantizeLinear stores it in int8: rounded half to even, saturated."""
    with np.errstate(over="ignore"):
        steps = np.rint(np.float32(number) / np.float32(quantization.scale[0]))
    return int(np.clip(steps + quantization.zero_point[0], -128, 127))
