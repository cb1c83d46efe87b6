"""Every op in its opset-23 form, whatever opset the file is written in.

    Upsample(scales) [9]           =>  Resize(roi none, scales), asymmetric, floor
    Clip<min=0, max=6> [6]         =>  Clip(min, max)
        likewise Pad, Slice, Squeeze, Unsqueeze, Reduce*, Split, TopK, DFT: an attribute becomes an input
    Softmax<axis=1> [11] of BxCxHxW  =>  Reshape(B, CHW) -> Softmax<axis=-1> -> Reshape(BxCxHxW)
    Swish [24]                     =>  Sigmoid, Mul

ONNX's own converter is not used: it renames values, copies all weights through its C++ form and lacks several
of these; onnxscript's starts at opset 18. Every breaking change in the change logs of ONNX's operators
(docs/Changelog.md of onnx/onnx) is a row of the table here; other version bumps only add element types or
inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx.defs
import onnx_ir as ir

from edgekit.compiler.model.node_checks import node_label
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    float_of,
    input_of,
    insert_before,
    int_of,
    ints_of,
    new_node,
    text_of,
)
from edgekit.compiler.model.shape_inference import constant_tensor
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

CANONICAL_OPSET = 23
CANONICAL_IR = 11
"""The IR version of opset 23 (ONNX 1.18)."""

KEPT = {"BitCast": 26, "CausalConvWithState": 27, "LinearAttention": 27}
"""Newer ops that opset 23 cannot express, or only in many nodes, for which an engine may have a kernel: a
model with one has their opset."""

Upgrade = Callable[[ir.Model, ir.Node], str | None]


def canonical_opset(model: ir.Model) -> bool:
    """Rewrite the model, with its subgraphs, to opset 23, or to the later opset of an op that is kept.

    Shapes must be inferred.

    Raises:
        ModelError: a node has no exact form there.
    """
    version = model.graph.opset_imports.get("", CANONICAL_OPSET)
    for graph in [model.graph, *model.graph.subgraphs()]:
        for node in list(graph):
            if node.domain:
                continue
            for since, upgrade in _UPGRADES.get(node.op_type, ()):
                if version < since or since > CANONICAL_OPSET:
                    problem = upgrade(model, node)
                    if problem is not None:
                        raise ModelError(f"{node_label(node, version)}: {problem}")
            if version > CANONICAL_OPSET and node.graph is not None:
                _check_attributes(node, version)
    return settle_opset(model) != version


def settle_opset(model: ir.Model) -> int:
    """Label a model of canonical forms with opset 23, or the newest of an op that is kept. Return it."""
    # Later opsets add operators, attributes and element types, and do not change the meaning.
    needed = max([CANONICAL_OPSET, *(KEPT.get(node.op_type, 0) for node in model.graph.all_nodes())])
    model.graph.opset_imports[""] = needed
    model.ir_version = CANONICAL_IR
    return needed


def _check_attributes(node: ir.Node, version: int) -> None:
    try:
        schema = onnx.defs.get_schema(node.op_type, CANONICAL_OPSET)
    except onnx.defs.SchemaError:
        return  # an op that came later: no target has it, and each says so
    newer = [name for name in node.attributes if name not in schema.attributes]
    if newer or len(node.inputs) > schema.max_input:
        argument = f"attribute {newer[0]}" if newer else f"input {schema.max_input}"
        raise ModelError(
            f"{node_label(node, version)}: {argument} is newer than opset {CANONICAL_OPSET}, which EdgeKit "
            f"uses; export the model with opset {CANONICAL_OPSET}"
        )


def constant_of(value: ir.Value | None) -> Array | None:
    """Return the array of a weight, or of a Constant node (before folding)."""
    array = array_of(value)
    producer = value.producer() if value is not None else None
    if array is None and producer is not None and producer.op_type == "Constant":
        tensor = constant_tensor(producer)
        return None if tensor is None else tensor.numpy()
    return array


def _float_constant(model: ir.Model, node: ir.Node, number: float, name: str) -> ir.Value:
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    array = np.array(number, (dtype or ir.DataType.FLOAT).numpy())
    return add_constant(model, array, f"{node.outputs[0].name}/{name}")


def _ints_constant(model: ir.Model, node: ir.Node, numbers: list[int], name: str) -> ir.Value:
    return add_constant(model, np.array(numbers, np.int64), f"{node.outputs[0].name}/{name}")


def _set_inputs(node: ir.Node, inputs: list[ir.Value | None]) -> None:
    while inputs and inputs[-1] is None:
        inputs.pop()
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def _set(node: ir.Node, **attributes: int | float | str) -> None:
    for name, value in attributes.items():
        node.attributes[name] = ir.convenience.convert_attribute(name, value)


def _ints_to_input(name: str) -> Upgrade:

    def upgrade(model: ir.Model, node: ir.Node) -> None:
        if name in node.attributes:
            attribute = node.attributes.pop(name)
            numbers = (
                [attribute.as_int()] if attribute.type == ir.AttributeType.INT else list(attribute.as_ints())
            )
            _set_inputs(node, [node.inputs[0], _ints_constant(model, node, numbers, name)])

    return upgrade


def _clip(model: ir.Model, node: ir.Node) -> None:
    low = _float_constant(model, node, float_of(node, "min", 0), "min") if "min" in node.attributes else None
    high = _float_constant(model, node, float_of(node, "max", 0), "max") if "max" in node.attributes else None
    node.attributes.pop("min", None)
    node.attributes.pop("max", None)
    _set_inputs(node, [node.inputs[0], low, high])


def _pad(model: ir.Model, node: ir.Node) -> None:
    fill = float_of(node, "value", 0.0)
    pads = _ints_constant(model, node, ints_of(node, "pads"), "pads")
    value = _float_constant(model, node, fill, "value") if fill else None
    node.attributes.pop("pads", None)
    node.attributes.pop("value", None)
    _set_inputs(node, [node.inputs[0], pads, value])


def _slice(model: ir.Model, node: ir.Node) -> None:
    starts, ends = ints_of(node, "starts"), ints_of(node, "ends")
    axes = ints_of(node, "axes", range(len(starts)))
    parts = {"starts": starts, "ends": ends, "axes": axes}
    _set_inputs(node, [node.inputs[0], *(_ints_constant(model, node, v, k) for k, v in parts.items())])
    for name in parts:
        node.attributes.pop(name, None)


def _upsample(model: ir.Model, node: ir.Node) -> str | None:
    if "scales" in node.attributes:
        scales: Array = np.array(node.attributes.pop("scales").as_floats(), np.float32)
        _set_inputs(node, [node.inputs[0], add_constant(model, scales, f"{node.outputs[0].name}/scales")])
    node.op_type = "Resize"
    return _resize_10(model, node)


def _resize_10(model: ir.Model, node: ir.Node) -> str | None:
    """Convert a Resize of opset 10, which specifies only "nearest" and "linear". Its only implementation,
    ONNX Runtime, maps output x to x / scale, and rounds down, or up if the axis becomes smaller."""
    nearest = "floor"
    scales = constant_of(node.inputs[1])
    if text_of(node, "mode", "nearest") == "nearest":
        if scales is None:
            return "its scales are not constant"
        if scales.min() < 1:
            if scales.max() > 1:
                return (
                    "enlarges one axis and shrinks another with nearest neighbour, which later opsets "
                    "do not support"
                )
            nearest = "ceil"
    _set(node, coordinate_transformation_mode="asymmetric", nearest_mode=nearest)
    _set_inputs(node, [node.inputs[0], None, node.inputs[1]])
    return None


def _resize_11(model: ir.Model, node: ir.Node) -> str | None:
    mode = text_of(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        # floor((x + 0.5) / scale) = round_prefer_ceil((x + 0.5) / scale - 0.5)
        if text_of(node, "nearest_mode", "round_prefer_floor") != "floor":
            return "tf_half_pixel_for_nn was removed in opset 13; only its floor form has an equivalent"
        _set(node, coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")
    return None


def _resize_inputs(model: ir.Model, node: ir.Node) -> None:
    """Omit optional inputs given as empty tensors, from before they could be omitted."""
    inputs = list(node.inputs)
    for index, value in enumerate(inputs[1:], 1):
        array = constant_of(value)
        unused_roi = (
            index == 1 and text_of(node, "coordinate_transformation_mode", "") != "tf_crop_and_resize"
        )
        if unused_roi or (array is not None and array.size == 0):
            inputs[index] = None
    if inputs != list(node.inputs):
        _set_inputs(node, inputs)


def _softmax(model: ir.Model, node: ir.Node) -> str | None:
    dims = dims_of(node.inputs[0])
    if dims is None:
        return "its input has no static shape, which its form before opset 13 needs"
    axis = int_of(node, "axis", 1)
    axis += len(dims) if axis < 0 else 0
    wide = [k for k in range(axis, len(dims)) if dims[k] != 1]
    if len(wide) <= 1:
        chosen = wide[0] if wide else len(dims) - 1
        _set(node, axis=-1 if chosen == len(dims) - 1 else chosen)
        return None
    flat = [math.prod(dims[:axis]), math.prod(dims[axis:])]
    name, output = node.name or node.op_type, node.outputs[0]
    source = new_node(
        node, "Reshape", [node.inputs[0], _ints_constant(model, node, flat, "flat")], name=f"{name}/flat"
    )
    flattened = insert_before(model, node, source, f"{output.name}/flat")
    flattened.type, flattened.shape = output.type, ir.Shape(flat)
    middle = new_node(node, node.op_type, [flattened], {"axis": -1})
    value_2d = insert_before(model, node, middle, f"{output.name}/2d", like=flattened)
    node.op_type = "Reshape"
    node.attributes.pop("axis", None)
    node.name = f"{name}/unflat"
    _set_inputs(node, [value_2d, _ints_constant(model, node, list(dims), "dims")])
    return None


def _batch_norm(model: ir.Model, node: ir.Node) -> str | None:
    if not int_of(node, "spatial", 1):
        return "spatial=0 was removed in opset 9"
    node.attributes.pop("spatial", None)
    if any(extra.uses() or extra.is_graph_output() for extra in node.outputs[1:]):
        return "its training outputs are used; export the model for inference"
    node.resize_outputs(1)
    return None


def _dropout(model: ir.Model, node: ir.Node) -> None:
    node.attributes.pop("ratio", None)


def _split(model: ir.Model, node: ir.Node) -> None:
    if input_of(node, 1) is None:
        _set(node, num_outputs=len(node.outputs))


def _scan(model: ir.Model, node: ir.Node) -> str:
    return (
        "Scan of opset 8 has a batch axis that later ones do not have, and this one is too long to be"
        " unrolled or has sequence_lens; export with opset 9 or later"
    )


def _scatter(model: ir.Model, node: ir.Node) -> None:
    node.op_type = "ScatterElements"


def _roi_align(model: ir.Model, node: ir.Node) -> None:
    _set(node, coordinate_transformation_mode="output_half_pixel")


def _grid_sample(model: ir.Model, node: ir.Node) -> None:
    mode = text_of(node, "mode", "bilinear")
    _set(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _group_norm(model: ir.Model, node: ir.Node) -> str | None:
    dims, groups = dims_of(node.inputs[0]), int_of(node, "num_groups", 1)
    for index, name in ((1, "scale"), (2, "bias")):
        array = constant_of(node.inputs[index])
        if dims is None or array is None or array.size != groups:
            return f"its {name} is not a constant with one number for each of {groups} groups"
        per_channel = np.repeat(array, dims[1] // groups)
        node.replace_input_with(index, add_constant(model, per_channel, f"{node.outputs[0].name}/{name}"))
    return None


def _dft(model: ir.Model, node: ir.Node) -> None:
    axis = np.array(int_of(node, "axis", 1), np.int64)
    node.attributes.pop("axis", None)
    value = add_constant(model, axis, f"{node.outputs[0].name}/axis")
    _set_inputs(node, [node.inputs[0], input_of(node, 1), value])


def _swish(model: ir.Model, node: ir.Node) -> None:
    """Swish(x) = x * Sigmoid(alpha * x), ONNX Swish-24."""
    x, output = node.inputs[0], node.outputs[0]
    assert x is not None
    alpha, inner = float_of(node, "alpha", 1.0), x
    name = node.name or "Swish"
    if alpha != 1.0:
        scale = _float_constant(model, node, alpha, "alpha")
        scaled = new_node(node, "Mul", [x, scale], name=f"{name}/alpha")
        inner = insert_before(model, node, scaled, f"{output.name}/ax", like=x)
    sigmoid = new_node(node, "Sigmoid", [inner], name=f"{name}/sigmoid")
    gate = insert_before(model, node, sigmoid, f"{output.name}/sigmoid", like=x)
    node.op_type = "Mul"
    node.attributes.pop("alpha", None)
    _set_inputs(node, [x, gate])


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_ALWAYS = CANONICAL_OPSET + 1

# Op -> (the opset that changed it, how a node from before is written since), in order of the opsets. _ALWAYS:
# applied whatever the opset: forms that came after 23, and inputs that any opset may spell in two ways.
_UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
    "BatchNormalization": [(14, _batch_norm)],
    "Clip": [(11, _clip)],
    "DFT": [(20, _dft)],
    "Dropout": [(12, _dropout)],
    "GridSample": [(20, _grid_sample)],
    "GroupNormalization": [(21, _group_norm)],
    "Hardmax": [(13, _softmax)],
    "LogSoftmax": [(13, _softmax)],
    "Pad": [(11, _pad)],
    "Resize": [(11, _resize_10), (13, _resize_11), (_ALWAYS, _resize_inputs)],
    "ReduceSum": [(13, _ints_to_input("axes"))],
    **{f"Reduce{name}": [(18, _ints_to_input("axes"))] for name in _REDUCTIONS},
    "RoiAlign": [(16, _roi_align)],
    "Scan": [(9, _scan)],
    "Scatter": [(11, _scatter)],
    "Slice": [(10, _slice)],
    "Softmax": [(13, _softmax)],
    "Split": [(13, _ints_to_input("split")), (18, _split)],
    "Squeeze": [(13, _ints_to_input("axes"))],
    "Swish": [(_ALWAYS, _swish)],
    "TopK": [(10, _ints_to_input("k"))],
    "Unsqueeze": [(13, _ints_to_input("axes"))],
    "Upsample": [(10, _upsample)],
}
