"""Merge neighbouring axes that an op treats alike, for engines whose tensors have fewer axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of
from edgekit.compiler.passes.decompositions.tape import Tape

MOST_AXES = 5
"""What every engine's tensors have."""
Shape = tuple[int, ...]


def fewer_axes(node: ir.Node) -> onnx.GraphProto | None:
    """Reshape an op with more than five axes to fewer. Return None if the axes do not merge."""
    write = _FORMS.get(node.op_type)
    values = [value for value in (*node.inputs, node.outputs[0]) if value is not None]
    shapes = [dims_of(value) for value in values]
    if write is None or any(shape is None or 0 in shape for shape in shapes):
        return None
    if max(len(shape) for shape in shapes if shape is not None) <= MOST_AXES:
        return None
    return write(node, Tape(node))


def _attributes(node: ir.Node, **others: int) -> dict[str, int | float | str | Sequence[int]]:
    return {name: a.value for name, a in node.attributes.items()} | others


def _shape(node: ir.Node, index: int) -> Shape:
    return dims_of(node.inputs[index]) or ()


def _back(node: ir.Node, tape: Tape, result: str) -> onnx.GraphProto:
    return tape.body(tape.reshape(result, dims_of(node.outputs[0]) or ()))


def _groups(count: int, is_alike: Callable[[int, int], bool]) -> list[list[int]]:
    groups: list[list[int]] = []
    for axis in range(count):
        if groups and is_alike(groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _broadcast_groups(shapes: Sequence[Shape]) -> list[list[int]]:
    kinds = [[size == 1 for size in sizes] for sizes in zip(*shapes, strict=True)]
    return _groups(len(kinds), lambda one, other: kinds[one] == kinds[other])


def _each_element(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    """Merge neighbouring axes that broadcast alike."""
    out = dims_of(node.outputs[0]) or ()
    shapes = [(1,) * (len(out) - len(_shape(node, k))) + _shape(node, k) for k in range(len(node.inputs))]
    groups = _broadcast_groups(shapes)
    if len(groups) > MOST_AXES:
        return None
    merged = [
        tape.reshape(f"i{k}", [prod(shape[a] for a in group) for group in groups])
        for k, shape in enumerate(shapes)
    ]
    return _back(node, tape, tape(node.op_type, *merged, **_attributes(node)))


def _one_axis(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    """Merge the axes before the op's axis, and those after it."""
    x = _shape(node, 0)
    axis = int_of(node, "axis", -1) % len(x)
    flat = tape.reshape("i0", (prod(x[:axis]), x[axis], prod(x[axis + 1 :])))
    return _back(node, tape, tape(node.op_type, flat, **_attributes(node, axis=1)))


def _channels(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    """Merge the axes after the channels'."""
    x = _shape(node, 0)
    flat = tape.reshape("i0", (*x[:2], prod(x[2:])))
    rest = [f"i{k}" for k in range(1, len(node.inputs))]
    return _back(node, tape, tape(node.op_type, flat, *rest, **_attributes(node)))


def _arg(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x = _shape(node, 0)
    axis = int_of(node, "axis", 0) % len(x)
    flat = tape.reshape("i0", (prod(x[:axis]), x[axis], prod(x[axis + 1 :])))
    return _back(node, tape, tape(node.op_type, flat, **_attributes(node, axis=1, keepdims=0)))


def _gather(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x, indices = _shape(node, 0), _shape(node, 1)
    axis = int_of(node, "axis", 0) % len(x)
    flat = tape.reshape("i0", (prod(x[:axis]), x[axis], prod(x[axis + 1 :])))
    return _back(node, tape, tape("Gather", flat, tape.reshape("i1", (prod(indices),)), axis=1))


def _gather_elements(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x, indices = _shape(node, 0), _shape(node, 1)
    axis = int_of(node, "axis", 0) % len(x)
    if any(x[a] != indices[a] for a in range(len(x)) if a != axis):
        return None
    flat = [
        tape.reshape(f"i{k}", (prod(s[:axis]), s[axis], prod(s[axis + 1 :])))
        for k, s in enumerate((x, indices))
    ]
    return _back(node, tape, tape("GatherElements", *flat, axis=1))


def _reduction(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x, axes = _shape(node, 0), array_of(input_of(node, 1))
    if axes is None and input_of(node, 1) is not None:
        return None
    if axes is None and int_of(node, "noop_with_empty_axes", 0):
        return None
    gone = {int(a) % len(x) for a in axes} if axes is not None and axes.size else set(range(len(x)))
    groups = _groups(len(x), lambda one, other: (one in gone) == (other in gone))
    if len(groups) > MOST_AXES:
        return _in_turn(node, tape, x, [group for group in groups if group[0] in gone])
    flat = tape.reshape("i0", [prod(x[a] for a in group) for group in groups])
    reduced = np.array([k for k, group in enumerate(groups) if group[0] in gone], np.int64)
    return _back(node, tape, tape(node.op_type, flat, reduced, keepdims=0))


def _in_turn(
    node: ir.Node, tape: Tape, dims: Shape, groups: Sequence[Sequence[int]]
) -> onnx.GraphProto | None:
    """Reduce one group of axes after the other, the last first."""
    if node.op_type not in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"):
        return None
    name = "i0"
    for group in reversed(groups):
        before, after = dims[: group[0]], dims[group[-1] + 1 :]
        flat = tape.reshape(name, (prod(before), prod(dims[a] for a in group), prod(after)))
        name, dims = tape(node.op_type, flat, np.array([1]), keepdims=0), (*before, *after)
    return _back(node, tape, name)


def _concat(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    axis = int_of(node, "axis", 0) % len(_shape(node, 0))
    parts = []
    for k in range(len(node.inputs)):
        x = _shape(node, k)
        parts.append(tape.reshape(f"i{k}", (prod(x[:axis]), x[axis], prod(x[axis + 1 :]))))
    return _back(node, tape, tape("Concat", *parts, axis=1))


def _mat_mul(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    a, b, out = _shape(node, 0), _shape(node, 1), dims_of(node.outputs[0]) or ()
    if min(len(a), len(b)) < 2:
        return None
    if len(b) == 2:
        rows = tape.reshape("i0", (prod(a[:-1]), a[-1]))
        return _back(node, tape, tape("MatMul", rows, "i1"))
    batches = [(1,) * (len(out) - len(shape)) + shape[:-2] for shape in (a, b)]
    groups = _broadcast_groups(batches)
    if len(groups) > MOST_AXES - 2:
        return None
    merged = [
        tape.reshape(f"i{k}", [*(prod(batch[g] for g in group) for group in groups), *shape[-2:]])
        for k, (batch, shape) in enumerate(zip(batches, (a, b), strict=True))
    ]
    return _back(node, tape, tape("MatMul", *merged))


def _normalization(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x = _shape(node, 0)
    axis = int_of(node, "axis", -1) % len(x)
    weights = range(1, len(node.inputs))
    unused = not any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
    if not unused or any(_shape(node, k) != x[axis:] for k in weights if node.inputs[k] is not None):
        return None
    size = prod(x[axis:])
    operands = [None if input_of(node, k) is None else tape.reshape(f"i{k}", (size,)) for k in weights]
    flat = tape.reshape("i0", (prod(x[:axis]), size))
    return _back(node, tape, tape(node.op_type, flat, *operands, **_attributes(node, axis=1)))


def _pad(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    x, pads = _shape(node, 0), array_of(input_of(node, 1))
    if pads is None or input_of(node, 3) is not None:
        return None
    begins, ends = pads[: len(x)].tolist(), pads[len(x) :].tolist()
    padded = [bool(begin or end) for begin, end in zip(begins, ends, strict=True)]
    groups = _groups(len(x), lambda one, other: not padded[one] and not padded[other])
    if len(groups) > MOST_AXES:
        return None
    flat = tape.reshape("i0", [prod(x[a] for a in group) for group in groups])
    merged = [side[group[0]] for side in (begins, ends) for group in groups]
    value = ["i2"] if input_of(node, 2) is not None else []
    return _back(node, tape, tape("Pad", flat, np.array(merged, np.int64), *value, **_attributes(node)))


_FORMS: dict[str, Callable[[ir.Node, Tape], onnx.GraphProto | None]] = {
    **dict.fromkeys(
        (
            *("Abs", "Add", "And", "Cast", "Ceil", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater"),
            *("GreaterOrEqual", "HardSigmoid", "HardSwish", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max"),
            *("Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid"),
            *("Elu", "Gelu", "Identity", "Selu", "Sign", "Softsign"),
            *("Sin", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
        ),
        _each_element,
    ),
    **dict.fromkeys(("LogSoftmax", "LpNormalization", "Softmax"), _one_axis),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduction),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), _reduction),
    "ReduceSumSquare": _reduction,
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), _channels),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalization),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "MatMul": _mat_mul,
    "Pad": _pad,
}
