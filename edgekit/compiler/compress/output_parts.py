"""Parts of one output with different units, e.g. the pixels and the scores of a detector.

    x, y, w, h   0 to 640  \
                            Concat(axis=1) -> output [1, 84, 8400]
    scores       0 to 1    /

One squared error over both is that of the pixels alone. So the loss of such an output has a term for
each part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.tensor_spec import Array

_MOVES = ("Identity", "Cast", "QuantizeLinear", "DequantizeLinear")
_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True)
class OutputSlice:
    """Slice of an output: ``[start:stop]`` along ``axis``; made by a node of type ``op_type``."""

    axis: int
    start: int
    stop: int
    op_type: str

    def select(self, array: Array) -> Array:
        """Return the part's values."""
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


def find_parts(graph: ir.Graph) -> dict[str, list[OutputSlice]]:
    """Return the parts of each output that a Concat of unlike values makes, by output name.

    Concats of like values, e.g. of a detector's levels, are not split: a few samples may have no detections
    of one level, which then could not be judged.
    """
    parts_by_output = {str(value.name): _parts(value) for value in graph.outputs}
    return {name: parts for name, parts in parts_by_output.items() if len(parts) > 1}


def _parts(value: ir.Value) -> list[OutputSlice]:
    node = value.producer()
    if node is None or not node.inputs or node.inputs[0] is None:
        return []
    inner = node.inputs[0]
    if node.op_type in _MOVES:
        return _parts(inner)
    if node.op_type == "Transpose":
        attribute = node.attributes.get("perm")
        rank = len(value.shape or ())
        perm = list(attribute.as_ints()) if attribute is not None else list(range(rank))[::-1]
        return [OutputSlice(perm.index(p.axis), p.start, p.stop, p.op_type) for p in _parts(inner)]
    if node.op_type in _RESHAPES:
        before, after = static_dims(inner), static_dims(value)
        parts = _parts(inner)
        if not parts or before is None or after is None:
            return []
        axis = _same_axis(before, after, parts[0].axis)
        return [] if axis is None else [OutputSlice(axis, p.start, p.stop, p.op_type) for p in parts]
    return _concatenated(node) if node.op_type == "Concat" else []


def _concatenated(node: ir.Node) -> list[OutputSlice]:
    joined = [value for value in node.inputs if value is not None]
    shapes = [static_dims(value) for value in joined]
    if not joined or any(shape is None for shape in shapes):
        return []
    axis = node.attributes["axis"].as_int() % len(shapes[0] or ())
    inner = [_parts(value) for value in joined]
    if inner[0] and inner[0][0].axis != axis and all(parts == inner[0] for parts in inner):
        return inner[0]  # levels, each with the same parts
    slices: list[OutputSlice] = []
    start = 0
    for value, shape in zip(joined, shapes, strict=True):
        assert shape is not None
        stop, op_type = start + shape[axis], _maker(value)
        if slices and slices[-1].op_type == op_type:
            slices[-1] = OutputSlice(axis, slices[-1].start, stop, op_type)
        else:
            slices.append(OutputSlice(axis, start, stop, op_type))
        start = stop
    return slices


def _maker(value: ir.Value) -> str:
    node = value.producer()
    while node is not None and node.op_type in (*_MOVES, *_RESHAPES, "Transpose", "Concat"):
        inner = node.inputs[0]
        node = inner.producer() if inner is not None else None
    return node.op_type if node is not None else ""


def _same_axis(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """Return the index of an axis after a reshape; None if it is split or merged."""
    behind = math.prod(before[axis + 1 :])
    for index, length in enumerate(after):
        if length == before[axis] and math.prod(after[index + 1 :]) == behind:
            return index
    return None
