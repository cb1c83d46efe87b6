"""Rules that propagate channel labels through each operator, from its inputs to its outputs.

An operator without a rule closes the channels of its inputs: they are not removed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_labels import ChannelLabels, Labels
from edgekit.compiler.compress.moved_axes import after_reduction, after_reshape
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
    weights, given = array_of(input_of(node, 1)), _labels(node, 0, labels, axis=1)
    if weights is None:
        return False
    groups, outputs = int_of(node, "group", 1), weights.shape[0]
    if groups == 1:
        if given is None:
            labels.close(input_of(node, 0))
        else:
            labels.use(node, 1, 1, given.ids, "input")
        ids = labels.new(outputs)
        labels.use(node, 1, 0, ids, "output")
    else:
        if given is None:
            return False
        of_groups = labels.tie_blocks(given.ids.reshape(groups, -1))
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
    given = _labels(node, 0, labels, axis=1)
    if given is None:
        labels.close(input_of(node, 0))
    else:
        labels.use(node, 1, 1 if by_row else 0, given.ids, "input")
    ids = labels.new(weights.shape[0 if by_row else 1])
    labels.use(node, 1, 0 if by_row else 1, ids, "output")
    return _bias(node, 2, ids, labels) and _set(node, 1, ids, labels)


def matmul(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label a product by constant weights [K, M], or of two values with labelled batch axes (heads)."""
    a, b = node.inputs[:2]
    weights, dims = array_of(b), static_dims(node.outputs[0])
    if dims is None or a is None:
        return False
    given = labels.labels.get(a)
    rank = len(static_dims(a) or ())
    if weights is not None and weights.ndim == 2 and rank >= 2:
        if given is not None and given.axis == rank - 1:
            labels.use(node, 1, 0, given.ids, "input")
        else:
            labels.close(a)
        ids = labels.new(weights.shape[1])
        labels.use(node, 1, 1, ids, "output")
        return _set(node, rank - 1, ids, labels)
    other = labels.labels.get(b) if b is not None else None
    if given is None or other is None or rank != len(static_dims(b) or ()):
        return False
    if given.axis != other.axis or given.axis >= rank - 2 or len(given.ids) != len(other.ids):
        return False
    labels.tie(given.ids, other.ids)
    return _set(node, given.axis, given.ids, labels)


def attention(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label Attention of four axes, [N, heads, L, D]: heads are removed."""
    given = [_labels(node, index, labels, axis=1) for index in range(3)]
    if len(node.inputs) > 3 or len(node.outputs) > 1 or any(one is None for one in given):
        return False
    q, k, v = (one.ids for one in given if one is not None)
    if not len(q) == len(k) == len(v):
        return False
    labels.tie(q, k)
    labels.tie(q, v)
    return _set(node, 1, q, labels)


def unary(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through f(x), element by element."""
    given = _labels(node, 0, labels)
    constant = all(array_of(value) is not None for value in node.inputs[1:] if value is not None)
    return given is not None and constant and _set(node, given.axis, given.ids, labels)


def by_channel(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through pools and Resize: each channel separately, along the spatial axes."""
    given, dims = _labels(node, 0, labels, axis=1), static_dims(node.outputs[0])
    others = [value for value in node.inputs[1:] if value is not None]
    if given is None or dims is None or len(node.outputs) > 1 or any(array_of(v) is None for v in others):
        return False
    return dims[1] == len(given.ids) and _set(node, 1, given.ids, labels)


def pad(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through Pad, if it does not pad the labelled axis."""
    given, before, after = _labels(node, 0, labels), static_dims(node.inputs[0]), static_dims(node.outputs[0])
    axes = input_of(node, 3)
    if given is None or before is None or after is None or array_of(input_of(node, 1)) is None or axes:
        return False
    return before[given.axis] == after[given.axis] and _set(node, given.axis, given.ids, labels)


def binary(node: ir.Node, labels: ChannelLabels) -> bool:
    """Tie the channels of all operands of an elementwise operator with broadcasting."""
    rank = len(static_dims(node.outputs[0]) or ())
    size, found = 0, []
    for value in node.inputs:
        given = labels.labels.get(value) if value is not None else None
        if value is not None and given is not None:
            found.append(Labels(given.axis + rank - len(static_dims(value) or ()), given.ids))
            size = max(size, len(given.ids))
    if not found or any(one.axis != found[0].axis or len(one.ids) != size for one in found):
        return False
    axis, along = found[0].axis, []
    for index, value in enumerate(node.inputs):
        dims = static_dims(value)
        if value is None or dims is None:
            return False
        own = axis - (rank - len(dims))
        if value not in labels.labels and own >= 0 and dims[own] != 1:
            if array_of(value) is None:
                return False
            along.append((index, own))
    for one in found[1:]:
        labels.tie(found[0].ids, one.ids)
    for index, own in along:
        labels.use(node, index, own, found[0].ids, "along")
    return _set(node, axis, found[0].ids, labels)


def concat(node: ir.Node, labels: ChannelLabels) -> bool:
    """Concatenate the labels along the labelled axis; along another axis, tie the inputs' channels."""
    dims = static_dims(node.outputs[0])
    given = [labels.labels.get(value) if value is not None else None for value in node.inputs]
    known = [one for one in given if one is not None]
    if dims is None or not known or any(one.axis != known[0].axis for one in known):
        return False
    axis = known[0].axis
    if int_of(node, "axis", 0) % len(dims) != axis:
        if len(known) < len(given):
            return False
        for other in known[1:]:
            labels.tie(known[0].ids, other.ids)
        return _set(node, axis, known[0].ids, labels)
    parts = []
    for value, one in zip(node.inputs, given, strict=True):
        if one is None:
            own = static_dims(value)
            if own is None:
                return False
            ids = labels.new(own[axis])
            labels.closed.update(ids.tolist())
        parts.append(ids if one is None else one.ids)
    return _set(node, axis, np.concatenate(parts), labels)


def split(node: ir.Node, labels: ChannelLabels) -> bool:
    """Split the labels, or propagate them to each part if another axis is split."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if given is None or source is None:
        return False
    along = int_of(node, "axis", 0) % len(source) == given.axis
    begin = 0
    for output in node.outputs:
        dims = static_dims(output)
        if dims is None:
            return False
        end = begin + dims[given.axis] if along else len(given.ids)
        labels.labels[output] = Labels(given.axis, given.ids[begin:end])
        begin = end if along else 0
    return True


def slice_(node: ir.Node, labels: ChannelLabels) -> bool:
    """Slice the labels, or propagate them all if another axis is sliced."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    constants = [array_of(input_of(node, index)) for index in range(1, 5)]
    starts, ends, axes, steps = constants
    if given is None or source is None or starts is None or ends is None:
        return False
    if any(input_of(node, index) is not None and constants[index - 1] is None for index in (3, 4)):
        return False
    named = [int(a) % len(source) for a in (axes if axes is not None else range(len(starts)))]
    if given.axis not in named:
        return _set(node, given.axis, given.ids, labels)
    index = named.index(given.axis)
    if steps is not None and int(steps[index]) != 1:
        return False
    chosen = slice(int(starts[index]), int(ends[index]))
    return _set(node, given.axis, given.ids[chosen], labels)


def transpose(node: ir.Node, labels: ChannelLabels) -> bool:
    """Move the labelled axis."""
    given, dims = _labels(node, 0, labels), static_dims(node.inputs[0])
    if given is None or dims is None:
        return False
    perm = ints_of(node, "perm", range(len(dims) - 1, -1, -1))
    return _set(node, perm.index(given.axis), given.ids, labels)


def reshape(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label Reshape, Flatten, Squeeze, Unsqueeze: the axis stays, merges with others or splits into heads."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    dims = static_dims(node.outputs[0])
    if given is None or source is None or dims is None:
        return False
    found = after_reshape(given, source, dims, labels)
    return found is not None and _set(node, found.axis, found.ids, labels)


def reduction(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through a reduction over other axes."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if given is None or source is None:
        return False
    axes = array_of(input_of(node, 1))
    axis = after_reduction(given.axis, axes, len(source), bool(int_of(node, "keepdims", 1)))
    return axis is not None and _set(node, axis, given.ids, labels)


def along_one_axis(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through Softmax and LogSoftmax over another axis."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if given is None or source is None or int_of(node, "axis", -1) % len(source) == given.axis:
        return False
    return _set(node, given.axis, given.ids, labels)


def from_axis_on(node: ir.Node, labels: ChannelLabels) -> bool:
    """Propagate labels through LayerNormalization and RMSNormalization over axes after the labelled one."""
    given, source = _labels(node, 0, labels), static_dims(node.inputs[0])
    if given is None or source is None or len(node.outputs) > 1:
        return False
    first = int_of(node, "axis", -1) % len(source)
    return given.axis < first and _set(node, given.axis, given.ids, labels)


def normalization(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label InstanceNormalization and BatchNormalization: each channel has its own parameters."""
    given, constants = _labels(node, 0, labels, axis=1), range(1, len(node.inputs))
    if given is None or any(array_of(input_of(node, index)) is None for index in constants):
        return False
    for index in constants:
        labels.use(node, index, 0, given.ids, "along")
    return _set(node, 1, given.ids, labels)


def depth_to_space(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label DepthToSpace (PixelShuffle): tie the b * b channels that one output channel is made of."""
    given, block = _labels(node, 0, labels, axis=1), int_of(node, "blocksize", 1) ** 2
    if given is None:
        return False
    by_block = text_of(node, "mode", "DCR") == "DCR"
    blocks = given.ids.reshape(block, -1).T if by_block else given.ids.reshape(-1, block)
    return _set(node, 1, labels.tie_blocks(blocks), labels)


def space_to_depth(node: ir.Node, labels: ChannelLabels) -> bool:
    """Label SpaceToDepth: each channel becomes b * b."""
    given = _labels(node, 0, labels, axis=1)
    if given is None:
        return False
    return _set(node, 1, np.tile(given.ids, int_of(node, "blocksize", 1) ** 2), labels)


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
    """Return the labels of an input; None if it has none, or not along ``axis``."""
    value = input_of(node, index)
    found = labels.labels.get(value) if value is not None else None
    return found if found is not None and axis in (None, found.axis) else None


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
