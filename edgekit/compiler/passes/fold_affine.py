"""Folds per-channel scales and shifts into adjacent weights.

    Conv(W, b) -> BatchNormalization(g, h, m, v)   =>   Conv(W * s, (b - m) * s + h)   s = g / sqrt(v +
    epsilon) Conv(W, b) -> Mul(s) | Div(1 / s)              =>   Conv(W * s, b * s)
    Conv(W, b) -> Add(t) | Sub(-t)                 =>   Conv(W, b + t)
    Mul(s) -> Conv(W, b)                           =>   Conv(W * s, b)
    Add(t) -> Conv<pads=0>(W, b)                   =>   Conv(W, b + sum of W * t)

For Conv, ConvTranspose and Gemm. s and t are constants with one number, or one for each channel. Computed in
float64 and rounded once. Only if intermediate values have no other consumers, and the weight is float: a
quantized weight (from a DequantizeLinear) would have to be rounded again.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    float_of,
    inner,
    input_of,
    int_of,
    ints_of,
    node_pass,
    remove_unread,
    replace_node,
    text_of,
)
from edgekit.tensor_spec import Array

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm")


@node_pass("BatchNormalization", "Mul", "Div", "Add", "Sub", "Conv")
def fold_affine(model: ir.Model, node: ir.Node) -> bool:
    """Fold in the graph's order, so that a chain of Conv, Mul, Add, BatchNormalization becomes one Conv."""
    return _fold_before(model, node) if node.op_type == "Conv" else _fold_after(model, node)


def _fold_after(model: ir.Model, node: ir.Node) -> bool:
    weighted, constant = _weighted(node, 0), 1
    if weighted is None and node.op_type in ("Mul", "Add"):
        weighted, constant = _weighted(node, 1), 0
    if weighted is None:
        return False
    weight = array_of(weighted.inputs[1])
    bias_value = input_of(weighted, 2)
    bias = array_of(bias_value)
    if weight is None or weight.dtype.kind != "f" or (bias_value is not None and bias is None):
        return False
    channels = _channels(weighted, weight)
    affine = _affine(node, constant, weighted, channels)
    if (
        channels is None
        or affine is None
        or (bias is not None and bias.shape not in ((channels,), (1, channels)))
    ):
        return False
    scale, shift = affine
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return False
    if weighted.op_type == "Gemm" and (
        float_of(weighted, "alpha", 1) != 1 or float_of(weighted, "beta", 1) != 1
    ):
        return False
    scaled = weight.astype(np.float64) * _along_outputs(weighted, weight, scale)
    shifted = (0.0 if bias is None else bias.astype(np.float64).reshape(-1)) * scale + shift
    inputs = [weighted.inputs[0], weighted.inputs[1], bias_value]
    stem = weighted.name or weighted.op_type
    with np.errstate(over="ignore"):
        new_weight, new_bias = scaled.astype(weight.dtype), np.asarray(shifted).astype(weight.dtype)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return False  # outside the range of float16
    if (scale != 1).any():
        inputs[1] = add_constant(model, new_weight, f"{stem}/weight")
    if bias is not None or shift.any():
        inputs[2] = add_constant(model, np.broadcast_to(new_bias, (channels,)).copy(), f"{stem}/bias")
    fused = ir.node(weighted.op_type, inputs, name=weighted.name)
    for name, attribute in weighted.attributes.items():
        fused.attributes[name] = attribute
    replace_node(node, fused)
    return True


def _weighted(node: ir.Node, index: int) -> ir.Node | None:
    layer = inner(node.inputs[index], node, *_WEIGHTED)
    return layer if layer is not None and dims_of(layer.outputs[0]) == dims_of(node.outputs[0]) else None


def _channels(weighted: ir.Node, weight: Array) -> int | None:
    if weighted.op_type == "Conv":
        return int(weight.shape[0])
    if weighted.op_type == "Gemm":
        return int(weight.shape[0] if int_of(weighted, "transB", 0) else weight.shape[1])
    return int(weight.shape[1]) * int_of(weighted, "group", 1)


def _along_outputs(weighted: ir.Node, weight: Array, scale: Array) -> Array:
    """Reshape ``scale`` [C] to multiply the weight's output channels."""
    if weighted.op_type == "Conv":
        return scale.reshape(-1, *[1] * (weight.ndim - 1))
    if weighted.op_type == "Gemm":
        return scale.reshape(-1, 1) if int_of(weighted, "transB", 0) else scale.reshape(1, -1)
    # ConvTranspose: [in channels, out channels of a group, ...], the groups one after the other along the
    # inputs.
    group = int_of(weighted, "group", 1)
    rows = np.repeat(scale.reshape(group, -1), weight.shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def _affine(
    node: ir.Node, constant: int, weighted: ir.Node, channels: int | None
) -> tuple[Array, Array] | None:
    """Return (scale, shift), each [channels] in float64."""
    if channels is None:
        return None
    ones, zeros = np.ones(channels), np.zeros(channels)
    if node.op_type == "BatchNormalization":
        parts = [array_of(value) for value in node.inputs[1:5]]
        if int_of(node, "training_mode", 0) or any(part is None for part in parts):
            return None
        gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
        scale = gamma / np.sqrt(variance + float_of(node, "epsilon", 1e-5))
        return scale, beta - mean * scale
    if node.op_type == "Div" and constant == 0:
        return None
    numbers = _per_channel(node.inputs[constant], weighted, channels)
    if numbers is None:
        return None
    match node.op_type:
        case "Mul":
            return numbers, zeros
        case "Div":
            return (1 / numbers, zeros) if numbers.all() else None
        case "Add":
            return ones, numbers
        case _:
            return ones, -numbers


def _per_channel(value: ir.Value | None, weighted: ir.Node, channels: int) -> Array | None:
    """Return a constant that broadcasts along the channels only, as [channels], or None."""
    array = array_of(value)
    if array is None or array.dtype.kind != "f":
        return None
    if array.size == 1:
        return np.full(channels, array.reshape(()), np.float64)
    rank = len(dims_of(weighted.outputs[0]) or ())
    axis = rank - 1 if weighted.op_type == "Gemm" else 1
    shape = (1,) * (rank - array.ndim) + array.shape
    expected = tuple(channels if k == axis else 1 for k in range(rank))
    return array.astype(np.float64).reshape(-1) if shape == expected else None


def _fold_before(model: ir.Model, conv: ir.Node) -> bool:
    """Fold into the next Conv. Padding stays zero under a scale, so it is exact at borders; shifts aren't."""
    changed = False
    while (
        before := inner(conv.inputs[0], conv, "Mul", "Div", "Add", "Sub", "BatchNormalization")
    ) is not None:
        if not _fold_one_before(model, conv, before):
            break
        changed = True
    return changed


def _fold_one_before(model: ir.Model, conv: ir.Node, before: ir.Node) -> bool:
    weight, bias_value = array_of(conv.inputs[1]), input_of(conv, 2)
    bias, dims = array_of(bias_value), dims_of(before.outputs[0])
    if (
        weight is None
        or weight.dtype.kind != "f"
        or dims is None
        or (bias_value is not None and bias is None)
    ):
        return False
    swapped = before.op_type in ("Mul", "Add") and array_of(before.inputs[0]) is not None
    source = before.inputs[1 if swapped else 0]
    affine = _affine(before, 0 if swapped else 1, before, dims[1])
    padded = any(ints_of(conv, "pads")) or text_of(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if affine is None or dims_of(source) != dims or (padded and affine[1].any()):
        return False
    scale, shift = (_along_inputs(conv, weight, part) for part in affine)
    wide = weight.astype(np.float64)
    total = (wide * shift).reshape(len(weight), -1).sum(axis=1) + (
        0 if bias is None else bias.astype(np.float64)
    )
    with np.errstate(over="ignore"):
        new_weight, new_bias = (wide * scale).astype(weight.dtype), total.astype(weight.dtype)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return False
    bias_needed = bias is not None or bool(affine[1].any())
    conv.resize_inputs(3 if bias_needed else 2)
    conv.replace_input_with(0, source)
    if (affine[0] != 1).any():
        conv.replace_input_with(1, add_constant(model, new_weight, f"{conv.name}/weight"))
    if affine[1].any():
        conv.replace_input_with(2, add_constant(model, new_bias, f"{conv.name}/bias"))
    remove_unread(before)
    return True


def _along_inputs(conv: ir.Node, weight: Array, numbers: Array) -> Array:
    """Reshape numbers [input channels] to multiply the weight's input channels, group by group."""
    group = int_of(conv, "group", 1)
    rows = np.repeat(numbers.reshape(group, -1), weight.shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))
