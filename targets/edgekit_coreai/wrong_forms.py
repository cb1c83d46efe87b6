"""Forms that Core AI's converter takes and its runtime answers wrongly, or not at all.

    shapes that depend on data   those of the package are static
    GridSample, nearest          another point: 6 to 13 dB; written out with Gather if that is known
    Cast between int8 and uint8  it saturates, where ONNX keeps the bits; so of 16, 32 and 64 bits
    scatters of no element       the runtime ends the process

Seen on coreai-core 1.0.0b3, Linux.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.op_table import open_shapes
from edgekit.compiler.model.rewriting import dims_of, node_name, text_of
from edgekit.compiler.passes.decompositions.sampling import grid_sample
from edgekit.diagnostics import Finding

ELSEWHERE = "build it for ort"
OTHER_SIGN = {
    ir.DataType.INT8: ir.DataType.UINT8,
    ir.DataType.INT16: ir.DataType.UINT16,
    ir.DataType.INT32: ir.DataType.UINT32,
    ir.DataType.INT64: ir.DataType.UINT64,
}
SCATTERS = ("ScatterElements", "ScatterND")


def wrong_forms(model: ir.Model, target: str) -> list[Finding]:
    """Return a finding for each input and node that must not be built, before any is written out."""
    wrong = open_shapes(model, target)
    for node in model.graph:
        reason = "" if node.domain else _reason(node)
        if reason:
            wrong.append(Finding("EK1002", "error", target, node_name(node), node.op_type, reason, ELSEWHERE))
    return wrong


def is_nearest_sample(node: ir.Node) -> bool:
    """Check for a GridSample that takes the nearest point."""
    nearest = node.op_type == "GridSample" and text_of(node, "mode", "linear") == "nearest"
    return nearest and not node.domain


def _reason(node: ir.Node) -> str:
    if is_nearest_sample(node) and grid_sample(node) is None:
        return "mode nearest: Core AI takes another point where two are equally near"
    if node.op_type == "Cast" and _changes_sign(node) and not _is_of_a_shift(node):
        source, target = (str(value and value.dtype).lower() for value in (node.inputs[0], node.outputs[0]))
        return f"Core AI saturates a cast of {source} to {target}, where ONNX keeps the bits"
    if node.op_type in SCATTERS and any(0 in (dims_of(value) or ()) for value in node.inputs[1:]):
        return "it scatters no element, which ends the process of Core AI's runtime"
    return ""


def _changes_sign(node: ir.Node) -> bool:
    """Check for a Cast between the signed and the unsigned integers of one width."""
    source, target = node.inputs[0], node.outputs[0].dtype
    if source is None or source.dtype is None or target is None:
        return False
    return OTHER_SIGN.get(source.dtype) == target or OTHER_SIGN.get(target) == source.dtype


def _is_of_a_shift(node: ir.Node) -> bool:
    """Check for a Cast next to a BitShift of signed integers, which is written with non-negative ones."""
    source = node.inputs[0]
    producer = source.producer() if source is not None else None
    users = [use.node.op_type for use in node.outputs[0].uses()]
    behind = producer is not None and producer.op_type == "BitShift"
    return behind or (bool(users) and set(users) == {"BitShift"})
