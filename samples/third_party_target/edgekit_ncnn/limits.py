"""What ncnn can hold: float32 values of up to four axes, beside the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.compiler.model.node_checks import static_dims, times
from edgekit.compiler.model.rewriting import array_of, int_of, ints_of, node_name
from edgekit.diagnostics import Finding

if TYPE_CHECKING:
    import onnx_ir as ir

MOST_AXES = 5


def beyond_limits(model: ir.Model, target: str) -> list[Finding]:
    """A finding for each node that computes or reads what ncnn can't hold."""
    found = []
    for value in model.graph.outputs:
        if value.producer() is None:
            why = "the output is a constant, which ncnn does not store"
            found.append(Finding("EK1002", "error", target, str(value.name), "", why))
    for node in model.graph:
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        values = [value for value in node.inputs if value is not None and array_of(value) is None]
        faults = filter(None, map(_fault, [*values, *(value for value in node.outputs if value.name)]))
        wrong = _converted_wrongly(node)
        for code, fault in [*faults, *([("EK1002", wrong)] if wrong else [])][:1]:
            found.append(Finding(code, "error", target, node_name(node), op, fault))
    return found


def _fault(value: ir.Value) -> tuple[str, str] | None:
    dims = static_dims(value)
    if dims is None:
        return "EK1003", f"the shape of {value.name} is not static"
    if value.dtype is None or value.dtype.numpy().name != "float32":
        kind = "of unknown type" if value.dtype is None else value.dtype.numpy().name
        return "EK1004", f"{value.name} is {kind}; ncnn computes float32"
    if len(dims) > MOST_AXES or 0 in dims:
        return "EK1002", f"{value.name} is {times(dims)}; ncnn has 1 to 4 axes beside the batch"
    return None


def _converted_wrongly(node: ir.Node) -> str:
    """Why pnnx's layer for a node answers otherwise; the conformance cases showed these."""
    pads, axis = ints_of(node, "pads"), int_of(node, "axis", -1)
    half = len(pads) // 2
    if node.op_type in ("MaxPool", "ConvTranspose") and pads[:half] != pads[half:]:
        return "its pads differ at begin and end, and pnnx takes the first ones for both"
    if node.op_type == "MaxPool" and any(step != 1 for step in ints_of(node, "dilations")):
        return "it is dilated, which ncnn's pooling is not"
    if (
        node.op_type == "AveragePool"
        and int_of(node, "ceil_mode", 0)
        and int_of(node, "count_include_pad", 0)
    ):
        return "ncnn counts other pads than ONNX where the size is rounded up"
    if node.op_type == "RMSNormalization" and node.inputs[0] is not None:
        axes = len(static_dims(node.inputs[0]) or ())
        if axes and axis % axes != axes - 1:
            return "it is over more than the last axis, and pnnx takes the last one only"
    return ""
