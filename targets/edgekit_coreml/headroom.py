"""Nodes of a fp16 program that compute in float32: float16's range or precision is known not to suffice.

float16 ends at 65504 and has 11 bits. These cases are known from the graph alone, without samples:

- a constant beyond its range that is not a mask: weights, a factor;
- operators whose result leaves the range for ordinary operands (FLOAT32_OPS).

Other overflows appear only at run time: the reference executor names the values that overflow.
A node in float32 runs on the CPU or the GPU, not on the Neural Engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit_coreml.values import HALF_LIMIT

FLOAT32_OPS: Mapping[str, str] = {
    "CumSum": "a running sum loses the digits of what is added late",
    "Cosh": "exp leaves float16's range at 11.1",
    "Exp": "exp leaves float16's range at 11.1",
    "Pow": "powers leave float16's range",
    "ReduceL2": "squares leave float16's range at 256",
    "ReduceProd": "products leave float16's range",
    "ReduceSumSquare": "squares leave float16's range at 256",
    "Sinh": "exp leaves float16's range at 11.1",
}
"""Operator -> why it computes in float32."""
MASKING_OPS = frozenset({"Add", "Where", "Max", "Min", "Sum", "Clip", "Attention", "Pad"})
"""What takes a constant beyond the range as "as far as can be": it is clamped there."""


def float32_nodes(model: ir.Model) -> dict[str, str]:
    """Return node name -> reason that it computes in float32 in a fp16 program."""
    reasons = {}
    for node in model.graph:
        if not any(o.dtype == ir.DataType.FLOAT for o in node.outputs):
            continue
        reason = FLOAT32_OPS.get(node.op_type) or _beyond(node)
        if reason:
            reasons[node_name(node)] = reason
    return reasons


def _beyond(node: ir.Node) -> str:
    if node.op_type in MASKING_OPS or node.op_type.endswith("QuantizeLinear"):
        return ""
    for value in node.inputs:
        if value is None or value.const_value is None or value.dtype != ir.DataType.FLOAT:
            continue
        array = value.const_value.numpy()
        largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
        if largest > HALF_LIMIT:
            return f"its constant {value.name} contains {largest:.4g}, but float16 ends at {HALF_LIMIT:g}"
    return ""
