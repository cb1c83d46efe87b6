"""float16 arithmetic, the type that the Neural Engine computes floats in.

All nodes compute in float16 except for those with a constant that float16 can't hold: beyond 65504, or a
quantization scale below 2^-14, where it has fewer digits. Inputs and outputs keep their types.

Source: https://developer.apple.com/documentation/coreml/mlcomputeunits
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.fp16_types import set_types
from edgekit.compiler.model.rewriting import array_of

LARGEST, SMALLEST_NORMAL = 65504.0, 2.0**-14
PAIR = ("QuantizeLinear", "DequantizeLinear")


def with_float16(model: ir.Model) -> ir.Model:
    """Return a copy of the model that computes in float16."""
    typed = model.clone()
    wide = set(float32_nodes(typed))
    set_types(typed, {node for node in typed.graph if node not in wide})
    return typed


def float32_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the nodes that stay in float32."""
    return [node for node in model.graph if not _fits(node)]


def _fits(node: ir.Node) -> bool:
    for index, value in enumerate(node.inputs):
        array = array_of(value)
        if array is None or array.dtype != np.float32 or not array.size:
            continue
        sizes = np.abs(array[np.isfinite(array)])
        if sizes.max(initial=0.0) > LARGEST:
            return False
        if node.op_type in PAIR and index == 1 and sizes.min(initial=1.0) < SMALLEST_NORMAL:
            return False
    return True
