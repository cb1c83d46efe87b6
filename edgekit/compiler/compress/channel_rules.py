"""Rules that propagate channel labels through each operator, from its inputs to its outputs.

An operator without a rule closes the channels of its inputs: they are not removed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_labels import ChannelLabels, Labels
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, input_of, int_of, ints_of, text_of
from edgekit.tensor_spec import Array

Rule = Callable[[ir.Node, ChannelLabels], bool]
"""Sets the labels of the node's outputs and adds its uses. False: it cannot, and nothing was changed."""

# f(0) may be anything: it is the readers' weights that are removed.
_UNARY = """
    Abs Ceil Celu Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg
    Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
"""
_POOLS = "AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool Resize"
_BINARY = "Add Sub Mul Div Pow Max Min PRelu"
_REDUCTIONS = "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceProd ReduceSumSquare"


def conv(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label a Conv of one group: it reads all channels and makes new ones. Of several, tie each group."""
    weights, incoming = array_of(input_of(node, 1)), _labels(node, 0, labels, axis=1)
    if weights is None:
        return False
    groups, outputs = int_of(node, "group", 1), weights.shape[0]
    if groups == 1:
        if incoming is None:
            labels.close(input_of(node, 0))
        else:
            labels.use(node, 1, 1, incoming.ids, "input")
        ids = labels.new(outputs)
        labels.use(node, 1, 0, ids, "output")
    else:
        if incoming is None:
            return False
        of_groups = labels.tie_blocks(incoming.ids.reshape(groups, -1))
        ids = np.repeat(of_groups, outputs // groups)
        labels.use(node, 1, 0, ids, "along")
    return _bias(node, 2, ids, labels) and _set(node, 1, ids, labels)


def conv_transpose(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label a ConvTranspose of one group. Its input channels stay: they have no least squares fit."""
    weights = array_of(input_of(node, 1))
    if weights is None or int_of(node, "group", 1) != 1:
        return False
    labels.close(input_of(node, 0))
    ids = labels.new(weights.shape[1])
    labels.use(node, 1, 1, ids, "output")
    return _bias(node, 2, ids, labels) and _set(node, 1, ids, labels)


def gemm(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label a Gemm: [N, K] by constant weights."""
    weights, bias = array_of(input_of(node, 1)), input_of(node, 2)
    if weights is None or int_of(node, "transA", 0) or (bias is not None and array_of(bias) is None):
        return False
    by_row = int_of(node, "transB", 0)
    incoming = _labels(node, 0, labels, axis=1)
    if incoming is None:
        labels.close(input_of(node, 0))
    else:
        labels.use(node, 1, 1 if by_row else 0, incoming.ids, "input")
    ids = labels.new(weights.shape[0 if by_row else 1])
    labels.use(node, 1, 0 if by_row else 1, ids, "output")
    return _bias(node, 2, ids, labels) and _set(node, 1, ids, labels)


def matmul(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label a product by constant weights [K, M], or of two values with labelled batch axes (heads)."""
    a, b = node.inputs[:2]
    weights, dims = array_of(b), static_dims(node.outputs[0])
    if dims is None or a is None:
        return False
    incoming = labels.labels.get(a)
    rank = len(static_dims(a) or ())
    if weights is not None and weights.ndim == 2 and rank >= 2:
        if incoming is not None and incoming.axis == rank - 1:
            labels.use(node, 1, 0, incoming.ids, "input")
        else:
            labels.close(a)
        ids = labels.new(weights.shape[1])
        labels.use(node, 1, 1, ids, "output")
        return _set(node, rank - 1, ids, labels)
    other = labels.labels.get(b) if b is not None else None
    if incoming is None or other is None or rank != len(static_dims(b) or ()):
        return False
    if incoming.axis != other.axis or incoming.axis >= rank - 2 or len(incoming.ids) != len(other.ids):
        return False
    labels.tie(incoming.ids, other.ids)
    return _set(node, incoming.axis, incoming.ids, labels)


def attention(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label Attention of four axes, [N, heads, L, D]: heads are removed."""
    incoming = [_labels(node, index, labels, axis=1) for index in range(3)]
    if len(node.inputs) > 3 or len(node.outputs) > 1 or any(one is None for one in incoming):
        return False
    q, k, v = (one.ids for one in incoming if one is not None)
    if not len(q) == len(k) == len(v):
        return False
    labels.tie(q, k)
    labels.tie(q, v)
    return _set(node, 1, q, labels)


def unary(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through f(x), element by element."""
    incoming = _labels(node, 0, labels)
    constant = all(array_of(value) is not None for value in node.inputs[1:] if value is not None)
    return incoming is not None and constant and _set(node, incoming.axis, incoming.ids, labels)


def by_channel(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through pools and Resize: each channel separately, along the spatial axes."""
    incoming, dims = _labels(node, 0, labels, axis=1), static_dims(node.outputs[0])
    others = [value for value in node.inputs[1:] if value is not None]
    if incoming is None or dims is None or len(node.outputs) > 1 or any(array_of(v) is None for v in others):
        return False
    return dims[1] == len(incoming.ids) and _set(node, 1, incoming.ids, labels)


def pad(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through Pad, if it does not pad the labelled axis."""
    label, before, after = _labels(node, 0, labels), static_dims(node.inputs[0]), static_dims(node.outputs[0])
    axes = input_of(node, 3)
    if label is None or before is None or after is None or array_of(input_of(node, 1)) is None or axes:
        return False
    return before[label.axis] == after[label.axis] and _set(node, label.axis, label.ids, labels)


def binary(node: ir.Node, labels: ChannelLabels) -> bool:
    """Tie the channels of all operands of an elementwise operator with broadcasting."""
    rank = len(static_dims(node.outputs[0]) or ())
    size, operands = 0, []
    for value in node.inputs:
        incoming = labels.labels.get(value) if value is not None else None
        if value is not None and incoming is not None:
            operands.append(Labels(incoming.axis + rank - len(static_dims(value) or ()), incoming.ids))
            size = max(size, len(incoming.ids))
    if not operands or any(one.axis != operands[0].axis or len(one.ids) != size for one in operands):
        return False
    axis, along = operands[0].axis, []
    for index, value in enumerate(node.inputs):
        dims = static_dims(value)
        if value is None or dims is None:
            return False
        value_axis = axis - (rank - len(dims))
        if value not in labels.labels and value_axis >= 0 and dims[value_axis] != 1:
            if array_of(value) is None:
                return False
            along.append((index, value_axis))
    for one in operands[1:]:
        labels.tie(operands[0].ids, one.ids)
    for index, value_axis in along:
        labels.use(node, index, value_axis, operands[0].ids, "along")
    return _set(node, axis, operands[0].ids, labels)


def concat(node: ir.Node, labels: ChannelLabels) -> bool:
    """Concatenate the labels along the labelled axis; along another axis, tie the inputs' channels."""
    dims = static_dims(node.outputs[0])
    incoming = [labels.labels.get(value) if value is not None else None for value in node.inputs]
    labelled = [one for one in incoming if one is not None]
    if dims is None or not labelled or any(one.axis != labelled[0].axis for one in labelled):
        return False
    axis = labelled[0].axis
    if int_of(node, "axis", 0) % len(dims) != axis:
        if len(labelled) < len(incoming):
            return False
        for other in labelled[1:]:
            labels.tie(labelled[0].ids, other.ids)
        return _set(node, axis, labelled[0].ids, labels)
    parts = []
    for value, one in zip(node.inputs, incoming, strict=True):
        if one is None:
            value_dims = static_dims(value)
            if value_dims is None:
                return False
            ids = labels.new(value_dims[axis])
            labels.closed.update(ids.tolist())
        parts.append(ids if one is None else one.ids)
    return _set(node, axis, np.concatenate(parts), labels)


def split(node: ir.Node, labels: ChannelLabels) -> bool:
    """Split the labels, or propagate them to each part if another axis is split."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if incoming is None or source is None:
        return False
    along = int_of(node, "axis", 0) % len(source) == incoming.axis
    begin = 0
    for output in node.outputs:
        dims = static_dims(output)
        if dims is None:
            return False
        end = begin + dims[incoming.axis] if along else len(incoming.ids)
        labels.labels[output] = Labels(incoming.axis, incoming.ids[begin:end])
        begin = end if along else 0
    return True


def slice_(node: ir.Node, labels: ChannelLabels) -> bool:
    """Slice the labels, or propagate them all if another axis is sliced."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    constants = [array_of(input_of(node, index)) for index in range(1, 5)]
    starts, ends, axes, steps = constants
    if incoming is None or source is None or starts is None or ends is None:
        return False
    if any(input_of(node, index) is not None and constants[index - 1] is None for index in (3, 4)):
        return False
    named = [int(a) % len(source) for a in (axes if axes is not None else range(len(starts)))]
    if incoming.axis not in named:
        return _set(node, incoming.axis, incoming.ids, labels)
    index = named.index(incoming.axis)
    if steps is not None and int(steps[index]) != 1:
        return False
    chosen = slice(int(starts[index]), int(ends[index]))
    return _set(node, incoming.axis, incoming.ids[chosen], labels)


def transpose(node: ir.Node, labels: ChannelLabels) -> bool:
    """Move the labelled axis."""
    incoming, dims = _labels(node, 0, labels), static_dims(node.inputs[0])
    if incoming is None or dims is None:
        return False
    perm = ints_of(node, "perm", range(len(dims) - 1, -1, -1))
    return _set(node, perm.index(incoming.axis), incoming.ids, labels)


def reshape(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label Reshape, Flatten, Squeeze, Unsqueeze: the axis stays, merges with others or splits into heads."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    dims = static_dims(node.outputs[0])
    if incoming is None or source is None or dims is None:
        return False
    outgoing = after_reshape(incoming, source, dims, labels)
    return outgoing is not None and _set(node, outgoing.axis, outgoing.ids, labels)


def reduction(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through a reduction over other axes."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if incoming is None or source is None:
        return False
    axes = array_of(input_of(node, 1))
    axis = after_reduction(incoming.axis, axes, len(source), bool(int_of(node, "keepdims", 1)))
    return axis is not None and _set(node, axis, incoming.ids, labels)


def along_one_axis(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through Softmax and LogSoftmax over another axis."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if incoming is None or source is None or int_of(node, "axis", -1) % len(source) == incoming.axis:
        return False
    return _set(node, incoming.axis, incoming.ids, labels)


def from_axis_on(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through LayerNormalization and RMSNormalization over axes after the labelled one."""
    incoming, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if incoming is None or source is None or len(node.outputs) > 1:
        return False
    first = int_of(node, "axis", -1) % len(source)
    return incoming.axis < first and _set(node, incoming.axis, incoming.ids, labels)


def normalization(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label InstanceNormalization and BatchNormalization: each channel has its own parameters."""
    incoming, constants = _labels(node, 0, labels, axis=1), range(1, len(node.inputs))
    if incoming is None or any(array_of(input_of(node, index)) is None for index in constants):
        return False
    for index in constants:
        labels.use(node, index, 0, incoming.ids, "along")
    return _set(node, 1, incoming.ids, labels)


def depth_to_space(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label DepthToSpace (PixelShuffle): tie the b * b channels that one output channel is made of."""
    incoming, block = _labels(node, 0, labels, axis=1), int_of(node, "blocksize", 1) ** 2
    if incoming is None:
        return False
    by_block = text_of(node, "mode", "DCR") == "DCR"
    blocks = incoming.ids.reshape(block, -1).T if by_block else incoming.ids.reshape(-1, block)
    return _set(node, 1, labels.tie_blocks(blocks), labels)


def space_to_depth(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label SpaceToDepth: each channel becomes b * b."""
    incoming = _labels(node, 0, labels, axis=1)
    if incoming is None:
        return False
    return _set(node, 1, np.tile(incoming.ids, int_of(node, "blocksize", 1) ** 2), labels)


RULES: dict[str, Rule] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "MatMul": matmul,
    "Attention": attention,
    "Pad": pad,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Transpose": transpose,
    "Softmax": along_one_axis,
    "LogSoftmax": along_one_axis,
    "LayerNormalization": from_axis_on,
    "RMSNormalization": from_axis_on,
    "BatchNormalization": normalization,
    "InstanceNormalization": normalization,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    **dict.fromkeys(_UNARY.split(), unary),
    **dict.fromkeys(_POOLS.split(), by_channel),
    **dict.fromkeys(_BINARY.split(), binary),
    **dict.fromkeys(_REDUCTIONS.split(), reduction),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshape),
}


def _labels(node: ir.Node, index: int, labels: ChannelLabels, axis: int | None = None) -> Labels | None:
    value = input_of(node, index)
    value_labels = labels.labels.get(value) if value is not None else None
    return value_labels if value_labels is not None and axis in (None, value_labels.axis) else None


def _set(node: ir.Node, axis: int, ids: Array, labels: ChannelLabels) -> bool:
    labels.labels[node.outputs[0]] = Labels(axis, ids)
    return True


def _bias(node: ir.Node, index: int, ids: Array, labels: ChannelLabels) -> bool:
    """Label a bias that has one number for each channel; a single number is not cut."""
    value = input_of(node, index)
    array = array_of(value)
    if value is not None and array is None:
        labels.closed.update(ids.tolist())
    elif array is not None and array.ndim and array.shape[-1] == len(ids):
        labels.use(node, index, array.ndim - 1, ids, "along")
    return True


def after_reshape(
    input_labels: Labels, source: tuple[int, ...], dims: tuple[int, ...], labels: ChannelLabels
) -> Labels | None:
    """Return the labels after a Reshape, or None if they have no axis of their own.

        [N, C, H, W] -> [N, C * H * W]    each label is repeated H * W times
        [N, L, H * D] -> [N, L, H, D]     the D channels of a head are tied

    Args:
        labels: Labels of the graph, in which the channels of a head are tied.
    """
    before, count = prod(source[: input_labels.axis]), len(input_labels.ids)
    after = prod(source[input_labels.axis + 1 :])
    for axis, size in enumerate(dims):
        if prod(dims[:axis]) != before or (size == 1 and count > 1):
            continue
        if size % count == 0 and size // count * prod(dims[axis + 1 :]) == after:
            return Labels(axis, np.repeat(input_labels.ids, size // count))
        if count % size == 0 and prod(dims[axis + 1 :]) == after * (count // size):
            return Labels(axis, labels.tie_blocks(input_labels.ids.reshape(size, -1)))
    return None


def after_reduction(axis: int, axes: Array | None, rank: int, keep: bool) -> int | None:
    """Return the labelled axis after a reduction over ``axes``, or None if it is reduced itself."""
    if axes is None:
        return None
    reduced = {int(one) % rank for one in axes.ravel()}
    if axis in reduced:
        return None
    return axis if keep else axis - sum(1 for one in reduced if one < axis)
