"""Value ranges of a model's inputs, derived from its graph: rows of tables, depths, limits.

Token ids index a table; random ones have to lie within it. An input is followed through ops that keep its
values or change them by constants, until it is used as an index or compared with a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.input_range import InputRange
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import node_name
from edgekit.tensor_spec import Array

STEPS_LIMIT = 5000
"""Most uses followed for one input; BERT's attention mask has 40."""
OFFSETS_LIMIT = 1 << 16
"""Most elements of a constant that is added: tables of several features share one by offsets."""

# The first input's values come out, possibly fewer or repeated.
_KEPT = frozenset({
    "Cast", "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "ReduceMax", "ReduceMin", "Relu", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
_COMPARED = frozenset(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])


class _AffineValue(NamedTuple):
    """Value equal to ``scale * input + offset``, with offsets from ``least`` to ``most``."""

    value: ir.Value
    scale: float = 1.0
    least: float = 0.0
    most: float = 0.0


def input_ranges(model: ir.Model) -> dict[str, InputRange]:
    """Return the ranges of the inputs that the graph bounds, by name.

    Args:
        model: Canonical graph with static shapes; constants are initializers.

    Returns:
        An index stays within the smallest table that it indexes. A number that is only compared with
        constants ranges from 0 to one beyond the greatest, so that both outcomes occur. Other inputs are
        left out.
    """
    ranges = {}
    for value in model.graph.inputs:
        if value.dtype is not None and value.dtype != ir.DataType.BOOL and (bounds := _range(value)):
            ranges[value.name or ""] = bounds
    return ranges


def _range(value: ir.Value) -> InputRange | None:
    bounds, thresholds = [], []
    for line, node, index in _uses(value):
        length = _index_length(node, index)
        if length is not None and line.scale:
            ends = ((0 - line.least) / line.scale, (length - 1 - line.most) / line.scale)
            bounds.append((math.ceil(min(ends)), math.floor(max(ends)), node))
        elif (constants := _compared_with(node, index)) is not None and line.scale:
            thresholds += [((constant - line.least) / line.scale, node) for constant in constants]
    if bounds:
        low = max(low for low, _, _ in bounds)
        high, node = min(((high, node) for _, high, node in bounds), key=lambda bound: bound[0])
        if low > high:
            return None
        return InputRange(low, high, f"node {node_name(node)} uses it as an index  ({node.op_type})")
    if thresholds and value.dtype is not None and value.dtype.is_integer():
        highest, node = max(thresholds, key=lambda threshold: threshold[0])
        lowest = min(threshold for threshold, _ in thresholds)
        low, high = math.floor(lowest) - 1 if lowest < 0 else 0, max(1, math.ceil(highest) + 1)
        return InputRange(low, high, f"node {node_name(node)} ({node.op_type}) compares it")
    return None


def _uses(value: ir.Value) -> Iterator[tuple[_AffineValue, ir.Node, int]]:
    waiting, visited, steps = [_AffineValue(value)], set(), 0
    while waiting:
        line = waiting.pop()
        if line in visited:
            continue
        visited.add(line)
        for node, index in line.value.uses():
            steps += 1
            if steps > STEPS_LIMIT:
                return
            yield line, node, index
            if not node.domain and (follows := _followed(line, node, index)) is not None:
                waiting += [follows._replace(value=output) for output in node.outputs]


def _followed(line: _AffineValue, node: ir.Node, index: int) -> _AffineValue | None:
    """Return the line after a node, or None if the node's output is not a linear function of the input."""
    if node.op_type in _KEPT and (index == 0 or node.op_type == "Concat"):
        return line
    if node.op_type == "Where":  # x < 0 ? x + n : x, as exporters write an index; x + n is no plain use
        return line if index > 0 and line[1:] == (1.0, 0.0, 0.0) else None
    if node.op_type not in ("Add", "Sub", "Mul", "Neg"):
        return None
    if node.op_type == "Neg":
        return line._replace(scale=-line.scale, least=-line.most, most=-line.least)
    other = _constant(node.inputs[1 - index])
    if other is None or not other.size or not np.isfinite(other).all():
        return None
    low, high = float(other.min()), float(other.max())
    if node.op_type == "Add":
        return line._replace(least=line.least + low, most=line.most + high)
    if node.op_type == "Sub" and index == 0:
        return line._replace(least=line.least - high, most=line.most - low)
    if node.op_type == "Sub":
        return line._replace(scale=-line.scale, least=low - line.most, most=high - line.least)
    ends = sorted((line.least * low, line.most * low))
    return line._replace(scale=line.scale * low, least=ends[0], most=ends[1]) if low == high else None


def _index_length(node: ir.Node, index: int) -> int | None:
    """Return the number of values that an index may take, or None if the input is not an index."""
    if node.domain or not node.inputs:
        return None
    dims = static_dims(node.inputs[0]) if node.inputs[0] is not None else None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    if node.op_type == "OneHot" and index == 0:
        depth = _constant(node.inputs[1])
        return int(depth.reshape(-1)[0]) if depth is not None and depth.size == 1 else None
    if index != 1 or dims is None:
        return None
    if node.op_type in ("Gather", "GatherElements", "ScatterElements", "Scatter"):
        return dims[axis] if -len(dims) <= axis < len(dims) else None
    if node.op_type in ("GatherND", "ScatterND"):
        indices = static_dims(node.inputs[1]) if node.inputs[1] is not None else None
        first = node.attributes["batch_dims"].as_int() if "batch_dims" in node.attributes else 0
        reached = dims[first : first + indices[-1]] if indices else ()
        return min(reached) if reached else None
    return None


def _compared_with(node: ir.Node, index: int) -> list[float] | None:
    if node.domain:
        return None
    if node.op_type in _COMPARED:
        others = [node.inputs[1 - index]]
    elif node.op_type in ("Clip", "Min", "Max") and (index == 0 or node.op_type != "Clip"):
        others = [value for position, value in enumerate(node.inputs) if position != index]
    else:
        return None
    arrays = [array for value in others if (array := _constant(value)) is not None]
    numbers = [float(number) for array in arrays if array.size == 1 for number in array.reshape(-1)]
    return [number for number in numbers if abs(number) < 2**31] or None


def _constant(value: ir.Value | None) -> Array | None:
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    if value.const_value.size > OFFSETS_LIMIT or value.const_value.dtype == ir.DataType.STRING:
        return None
    return value.const_value.numpy()
