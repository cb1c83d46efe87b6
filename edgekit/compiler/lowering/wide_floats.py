"""Warning about float64 values for targets whose engine supports float32 only."""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding

COMPUTED_NARROWER = "EK1108"


def narrowed_floats(model: ir.Model, target: str) -> list[Finding]:
    """Return a warning that names the first float64 input or node and counts the others, if there is one."""
    wide = [(str(value.name), "") for value in model.graph.inputs if value.dtype == ir.DataType.DOUBLE]
    for node in model.graph:
        if any(value.dtype == ir.DataType.DOUBLE for value in node.outputs):
            wide.append((node_name(node), node.op_type))
    if not wide:
        return []
    more = f"; so are {len(wide) - 1} more" if len(wide) > 1 else ""
    reason = f"it is float64, but computed in float32{more}"
    return [Finding(COMPUTED_NARROWER, "warning", target, *wide[0], reason, "export the model in float32")]
