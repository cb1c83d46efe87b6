"""Workarounds for errors in OpenVINO's ONNX reader or kernels; forms without a workaround are rejected.

Found by the conformance grid on OpenVINO 2026.4: it ignores ``antialias``, ``exclude_outside`` and
``keep_aspect_ratio_policy`` of a Resize, has neither ``tf_crop_and_resize`` nor ``half_pixel_symmetric``,
fills a Pad with zeros if the model computes the value, does not wrap, drops the peepholes of an LSTM,
shifts the bits of an integer in float32,
its NonMaxSuppression removes a box whose overlap equals the threshold, and its ReduceMax over nothing but
-inf is the lowest float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    input_of,
    insert_before,
    int_of,
    new_node,
    nodes_of,
    replace_node,
    scalar_of,
    text_of,
)
from edgekit.compiler.passes.write_out_pad import write_out_pad
from edgekit.compiler.passes.write_out_resize import write_out_resize
from edgekit.diagnostics import Finding

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "IsInf", "Less", "LessOrEqual")


def with_reader_workarounds(model: ir.Model) -> ir.Model:
    """Return ``model`` itself, or a copy with those nodes written out."""
    wrong = (_resized_wrongly, _padded_wrongly, _greatest_is_compared, _suppresses_at_threshold)
    if not any(is_wrong(node) for node in model.graph.all_nodes() for is_wrong in wrong):
        return model
    copy = model.clone()
    write_out_resize(copy, _resized_wrongly)
    write_out_pad(copy, _padded_wrongly)
    for _, node in nodes_of(copy, "ReduceMax"):
        if _greatest_is_compared(node):
            _keep_infinity(copy, node)
    for _, node in nodes_of(copy, "NonMaxSuppression"):
        if _suppresses_at_threshold(node):
            _raise_threshold(copy, node)
    return copy


def shapes_lost(model: ir.Model, read: Any, target: str) -> list[Finding]:
    """Return a finding for each Loop with outputs whose shape OpenVINO does not know.

    Its carried values are then empty. ``read`` is OpenVINO's own model.
    """
    if not any(port.partial_shape.is_dynamic for port in read.outputs):
        return []
    reason = "OpenVINO cannot infer the shape of its carried value, and returns it empty"
    return [
        Finding("EK1002", "error", target, node.name or "", "Loop", reason, "build it for ort")
        for node in model.graph
        if node.op_type == "Loop" and not node.domain
    ]


def computed_wrongly(model: ir.Model, target: str) -> list[Finding]:
    """Return a finding for each node that OpenVINO computes wrongly and that has no workaround."""
    findings = []
    for node in model.graph.all_nodes():
        text = ""
        if node.op_type == "LSTM" and not node.domain and len(node.inputs) > 7 and node.inputs[7] is not None:
            text = "OpenVINO drops the peepholes (input P) of an LSTM"
        if node.op_type == "NonMaxSuppression" and not node.domain and _threshold(node) is None:
            text = "OpenVINO also drops boxes exactly at the threshold, and the model computes this threshold"
        if node.op_type == "BitShift" and not node.domain:
            text = "OpenVINO's reader shifts by a division of float32, which rounds numbers over 2^24"
        if text:
            findings.append(
                Finding("EK1002", "error", target, node.name or "", node.op_type, text, "build it for ort")
            )
    return findings


def _resized_wrongly(node: ir.Node) -> bool:
    if node.op_type != "Resize" or node.domain:
        return False

    policy = text_of(node, "keep_aspect_ratio_policy", "")
    mode = text_of(node, "coordinate_transformation_mode", "")
    return bool(
        int_of(node, "antialias", 0)
        or int_of(node, "exclude_outside", 0)
        or policy in ("not_larger", "not_smaller")
        or mode in ("tf_crop_and_resize", "half_pixel_symmetric")
    )


def _greatest_is_compared(node: ir.Node) -> bool:
    """Check whether a ReduceMax is compared: only then does -inf differ from the lowest float32."""
    if node.op_type != "ReduceMax" or node.domain:
        return False
    return any(user.op_type in COMPARISONS for user, _ in node.outputs[0].uses())


def _keep_infinity(model: ir.Model, node: ir.Node) -> None:
    """Rewrite ReduceMax(x)  =>  Where(ReduceMax(x > -inf), ReduceMax(x), -inf)."""
    x, output = node.inputs[0], node.outputs[0]
    if x is None or x.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return
    lowest = add_constant(model, np.array(-np.inf, x.dtype.numpy()), f"{output.name}/lowest")

    def put(
        op: str, name: str, inputs: list[ir.Value | None], dtype: ir.DataType, shape: ir.Shape | None
    ) -> ir.Value:
        value = insert_before(
            model, node, new_node(node, op, inputs, name=f"{node.name}/{name}"), f"{output.name}/{name}"
        )
        value.type, value.shape = ir.TensorType(dtype), shape
        return value

    above = put("Greater", "above", [x, lowest], ir.DataType.BOOL, x.shape)
    number = put("CastLike", "number", [above, x], x.dtype, x.shape)
    both = []
    for name, source in (("any", number), ("greatest", x)):
        twin = ir.node(
            "ReduceMax", [source, *node.inputs[1:]], attributes=node.attributes, name=f"{node.name}/{name}"
        )
        both.append(insert_before(model, node, twin, f"{output.name}/{name}", like=output))
    half = add_constant(model, np.array(0.5, x.dtype.numpy()), f"{output.name}/half")
    has_value = put("Greater", "seen", [both[0], half], ir.DataType.BOOL, output.shape)
    replace_node(node, new_node(node, "Where", [has_value, both[1], lowest]))


def _threshold(node: ir.Node) -> float | None:
    """Return the overlap above which ONNX's NonMaxSuppression removes a box. None means that the model
    computes it."""
    value = input_of(node, 3)
    return 0.0 if value is None else scalar_of(value)


def _suppresses_at_threshold(node: ir.Node) -> bool:
    return node.op_type == "NonMaxSuppression" and not node.domain and _threshold(node) is not None


def _raise_threshold(model: ir.Model, node: ir.Node) -> None:
    """Raise a threshold to the next float32, so ">=" acts as ">"; 0 to the least that is not flushed to 0."""
    lowest = np.finfo(np.float32).tiny
    raised = max(np.nextafter(np.float32(_threshold(node) or 0.0), np.float32(np.inf)), lowest)
    inputs = [*node.inputs, *[None] * 5][:5]
    inputs[3] = add_constant(model, np.array(raised, np.float32), f"{node.outputs[0].name}/threshold")
    while inputs[-1] is None:
        inputs.pop()
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def _padded_wrongly(node: ir.Node) -> bool:
    if node.op_type != "Pad" or node.domain:
        return False
    wraps = "mode" in node.attributes and node.attributes["mode"].as_string() == "wrap"
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return wraps or (value is not None and value.const_value is None)
