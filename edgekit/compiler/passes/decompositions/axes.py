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


def _each_element(node: ir.Node, tape: Tape) -> onnx.GraphProto | None:
    """Merge neighbouring axes that broadcast alike."""
    out = dims_of(node.outputs[0]) or ()
    shapes = [(1,) * (len(out) - len(_shape(node, k))) + _shape(node, k) for k in range(len(node.inputs))]
    groups: list[list[int]] = []
    for axis in range(len(out)):
        kind = [shape[axis] == 1 for shape in shapes]
        if groups and kind == [shape[groups[-1][-1]] == 1 for shape in shapes]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
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
    """Merge neighbouring axes that are all reduced, or all kept."""
    x, axes = _shape(node, 0), array_of(input_of(node, 1))
    if axes is None and input_of(node, 1) is not None:
        return None
    if axes is None and int_of(node, "noop_with_empty_axes", 0):
        return None
    gone = {int(a) % len(x) for a in axes} if axes is not None and axes.size else set(range(len(x)))
    groups: list[list[int]] = []
    for axis in range(len(x)):
        if groups and (axis in gone) == (groups[-1][-1] in gone):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) > MOST_AXES:
        return None
    flat = tape.reshape("i0", [prod(x[a] for a in group) for group in groups])
    reduced = np.array([k for k, group in enumerate(groups) if group[0] in gone], np.int64)
    return _back(node, tape, tape(node.op_type, flat, reduced, keepdims=0))


_FORMS: dict[str, Callable[[ir.Node, Tape], onnx.GraphProto | None]] = {
    **dict.fromkeys(
        (
            *("Abs", "Add", "And", "Cast", "Ceil", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater"),
            *("GreaterOrEqual", "HardSigmoid", "HardSwish", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max"),
            *(
                "Min",
                "Mod",
                "Mul",
                "Neg",
                "Not",
                "Or",
                "Pow",
                "Reciprocal",
                "Relu",
                "Round",
                "Sigmoid",
                "Sign",
            ),
            *("Sin", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
        ),
        _each_element,
    ),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _one_axis),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduction),
    "Gather": _gather,
    "GatherElements": _gather_elements,
}
