"""Trials of input shapes: whether a graph takes them, and if not, how far off they are.

A node that refuses its input often says which size it needs: a Gemm behind a Flatten has a weight of so many
rows, a table of positions has so many vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from edgekit.compiler.model.node_checks import Dims, InvalidNodeError, static_dims
from edgekit.compiler.model.rewriting import array_of, int_of
from edgekit.compiler.model.shape_inference import constant_tensor, infer_shapes

_OF_FIRST = ("Slice", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Tile", "Pad", "Trilu")
"""Ops whose result holds only values of their first input; the others are sizes."""
_OF_NONE = ("Shape", "Size", "ConstantOfShape", "Range", "RandomNormalLike", "EyeLike")
_BROADCASTING = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Where",
    "Max",
    "Min",
    "Pow",
    "Greater",
    "Less",
    "Equal",
    "And",
    "Or",
)


class Attempt(NamedTuple):
    """Result of a trial.

    Attributes:
        outputs: Shapes of the model's outputs, -1 if unknown, None for an unknown rank; None if the shapes
            do not fit the graph.
        nodes: Number of nodes that were inferred, in order, until one did not fit.
        ratio: Elements that this node needs, divided by those that it gets; 0 if unknown.
    """

    outputs: Sequence[tuple[int, ...] | None] | None
    nodes: int
    ratio: float = 0.0


Trial = Callable[[Mapping[str, tuple[int, ...]]], Attempt]
"""Shapes of the dynamic inputs by name -> whether they fit."""


def try_shapes(model: ir.Model) -> Attempt:
    """Infer the shapes of a model whose input shapes are static; its values' shapes change."""
    try:
        infer_shapes(model)
    except InvalidNodeError as problem:
        order = {node: number for number, node in enumerate(model.graph)}
        return Attempt(None, order.get(problem.node, 0) + 1, _ratio(problem.node))
    return Attempt([_dims(value) for value in model.graph.outputs], len(model.graph))


def _dims(value: ir.Value) -> tuple[int, ...] | None:
    return None if value.shape is None else tuple(d if isinstance(d, int) else -1 for d in value.shape)


def _ratio(node: ir.Node) -> float:
    """Return the elements that a node needs, divided by those that it gets; 0 if its inputs do not tell."""
    shapes = [static_dims(value) for value in node.inputs]
    if not shapes or shapes[0] is None:
        return 0.0
    if node.op_type in ("MatMul", "Gemm") and shapes[1]:
        return _inner_ratio(node, shapes[0], shapes[1])
    if node.op_type == "Reshape":
        target = _constant(node.inputs[1])
        needed = math.prod(abs(size) for size in target or () if size)
        return needed / math.prod(shapes[0]) if target and math.prod(shapes[0]) else 0.0
    if node.op_type in _BROADCASTING:
        return _broadcast_ratio(node, shapes)
    return 0.0


def _inner_ratio(node: ir.Node, a: Dims, b: Dims) -> float:
    if not a or _reads_data(node.inputs[1]):
        return 0.0
    inner_a = a[0] if int_of(node, "transA", 0) else a[-1]
    inner_b = b[-1] if int_of(node, "transB", 0) or len(b) == 1 else b[-2]
    return inner_b / inner_a if inner_a else 0.0


def _broadcast_ratio(node: ir.Node, shapes: Sequence[Dims | None]) -> float:
    """Return the ratio of the axis on which a constant, e.g. a table of positions, has another size."""
    reads = [_reads_data(value) for value in node.inputs]
    constant = [dims for dims, data in zip(shapes, reads, strict=True) if dims and not data]
    data = [dims for dims, data in zip(shapes, reads, strict=True) if dims and data]
    for constant_dims in constant:
        for data_dims in data:
            for want, have in zip(reversed(constant_dims), reversed(data_dims), strict=False):
                if want != have and min(want, have) > 1:
                    return want / have
    return 0.0


def _reads_data(value: ir.Value | None) -> bool:
    """Return whether a value depends on the values of the model's inputs, not only on their sizes."""
    waiting, visited = [value], set[ir.Value]()
    while waiting:
        current = waiting.pop()
        if current is None or current in visited:
            continue
        visited.add(current)
        node = current.producer()
        if current.is_graph_input() and not current.is_initializer():
            return True
        if node is not None and node.op_type not in _OF_NONE:
            waiting += node.inputs[:1] if node.op_type in _OF_FIRST else node.inputs
    return False


def _constant(value: ir.Value | None) -> list[int] | None:
    array = array_of(value)
    if array is None and value is not None and (node := value.producer()) is not None:
        tensor = constant_tensor(node) if node.op_type == "Constant" else None
        array = None if tensor is None else tensor.numpy()
    return None if array is None else [int(size) for size in array.reshape(-1)]
