"""What a target says of float64 where its engine has float32 only."""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding

COMPUTED_NARROWER = "EK1108"


def narrowed_floats(model: ir.Model, target: str) -> list[Finding]:
    """A warning that names the first node or input of float64, if there is one, and how many there are."""
    found = [(str(value.name), "") for value in model.graph.inputs if value.dtype == ir.DataType.DOUBLE]
    for node in model.graph:
        if any(value.dtype == ir.DataType.DOUBLE for value in node.outputs):
            found.append((node_name(node), node.op_type))
    if not found:
        return []
    more = f"; so are {len(found) - 1} more" if len(found) > 1 else ""
    why = f"it is float64, and computed in float32{more}"
    return [Finding(COMPUTED_NARROWER, "warning", target, *found[0], why, "export the model in float32")]
