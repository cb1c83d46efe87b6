"""Relabel a model with an older opset if it has the same meaning, for engines that optimize by opset.

The schemas of onnx 1.23.2 at 19, 20 and 23 were compared by program (attributes, inputs, texts). The opsets
between add operators, attributes and element types, and change the definition of four operators:

    20  GridSample: its modes are called linear and cubic, not bilinear and bicubic
    20  DFT: its axis is an input
    21  GroupNormalization: one scale per channel
    22  pooling with ceil_mode: windows that would start in the padding at the end are left out; earlier
        opsets do not define the divisor of an average over part of a window
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

IR_VERSIONS: Mapping[int, int] = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10}
"""Opset -> its IR version: https://github.com/onnx/onnx/blob/main/docs/Versioning.md"""
MEANINGS: Mapping[str, int] = {"GridSample": 20, "DFT": 20, "GroupNormalization": 21}
"""Op -> the opset that changed its meaning (the list above)."""
POOLINGS = ("AveragePool", "LpPool", "MaxPool")


def with_opset(model: ir.Model, opset: int) -> ir.Model | None:
    """Return a copy of the canonical model with ``opset``, 18 to 22; None if a node differs in it."""
    if model.functions or nodes_changed_since(model, opset):
        return None
    older = model.clone()
    older.opset_imports[""] = opset
    older.ir_version = min(model.ir_version, IR_VERSIONS[opset])
    for node in older.graph.all_nodes():
        for name in _newer_defaults(node, opset):
            node.attributes.pop(name)
    return older


def nodes_changed_since(model: ir.Model, opset: int) -> list[ir.Node]:
    """Return the nodes, including subgraphs, that this opset lacks or defines differently."""
    return [node for node in model.graph.all_nodes() if not _same(node, opset)]


def _same(node: ir.Node, opset: int) -> bool:
    from onnx import defs

    if node.domain not in ("", "ai.onnx"):
        return True  # versioned apart
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        return False
    if opset < MEANINGS.get(node.op_type, 0):
        return False
    if opset < 22 and node.op_type in POOLINGS and _drops_a_window(node):
        return False
    newer = set(node.attributes) - set(schema.attributes)
    if newer - set(_newer_defaults(node, opset)):
        return False
    return _fits(node.inputs, schema.inputs) and _fits(node.outputs, schema.outputs)


def _newer_defaults(node: ir.Node, opset: int) -> list[str]:
    from onnx import defs, helper

    try:
        now = defs.get_schema(node.op_type, 23, node.domain)
        then = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return []
    defaults = []
    for name in set(node.attributes) - set(then.attributes):
        default = now.attributes[name].default_value if name in now.attributes else None
        if (
            default is not None
            and default.name
            and helper.get_attribute_value(default) == (node.attributes[name].value)
        ):
            defaults.append(name)
    return sorted(defaults)


def _drops_a_window(node: ir.Node) -> bool:
    """Return whether a pooling with ceil_mode may have a window that starts in the padding at the end."""
    ceil = node.attributes.get("ceil_mode")
    if ceil is None or not ceil.as_int():
        return False
    source, output = node.inputs[0], node.outputs[0]
    assert source is not None
    if node.op_type != "MaxPool" or "auto_pad" in node.attributes:
        return True
    if source.shape is None or output.shape is None:
        return True
    sizes, counts = source.shape.numpy()[2:], output.shape.numpy()[2:]
    pads = node.attributes["pads"].as_ints() if "pads" in node.attributes else [0] * 2 * len(sizes)
    strides = node.attributes["strides"].as_ints() if "strides" in node.attributes else [1] * len(sizes)
    # The older opsets' count, which rounds up, equals that of 22 if no window is dropped.
    kernel = node.attributes["kernel_shape"].as_ints()
    steps = node.attributes["dilations"].as_ints() if "dilations" in node.attributes else [1] * len(sizes)
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        padded = size + pads[axis] + pads[axis + len(sizes)]
        span = padded - (kernel[axis] - 1) * steps[axis] - 1
        if -(-span // strides[axis]) + 1 != count:
            return True
    return False


def _fits(values: Sequence[ir.Value | None], formals: Sequence[Any]) -> bool:
    for index, value in enumerate(values):
        if value is None or value.dtype is None:
            continue
        types = formals[min(index, len(formals) - 1)].types if formals else ()
        if f"tensor({value.dtype.name.lower()})" not in types:
            return False
    return True
