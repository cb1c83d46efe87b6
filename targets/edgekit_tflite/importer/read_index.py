"""Look-ups by index: the inverse of ops_index.py."""

from __future__ import annotations

import numpy as np

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.read_shape import axis_of
from edgekit_tflite.importer.readers import reads


def _indices(g: OnnxGraph, i: int, dtype: str = "") -> str:
    actual = g.dtype(i)
    if dtype:
        return g.value(i) if actual == dtype else g.cast(g.value(i), dtype)
    return g.value(i) if actual in ("int32", "int64") else g.cast(g.value(i), "int32")


@reads("GATHER", inputs=2)
def gather(g: OnnxGraph, op: Op) -> None:
    """Gather; with leading axes in common, GatherND if they are all before the axis."""
    x, indices = op.inputs[:2]
    common = op.options["batch_dims"]
    axis = axis_of(g, op.options["axis"], len(g.shape(x)))
    common += len(g.shape(indices)) if common < 0 else 0
    if not common:
        g.set(op.outputs[0], g.node("Gather", [g.value(x), _indices(g, indices)], axis=axis))
        return
    if axis != common:
        raise UnreadableError(
            op, f"it has {common} axes in common and gathers along axis {axis}; one after is read"
        )
    tuples = g.reshape(_indices(g, indices, "int64"), (*g.shape(indices), 1))
    g.set(op.outputs[0], g.node("GatherND", [g.value(x), tuples], batch_dims=common))


@reads("EMBEDDING_LOOKUP", inputs=2)
def embedding_lookup(g: OnnxGraph, op: Op) -> None:
    """Gather of rows; the indices come first."""
    g.set(op.outputs[0], g.node("Gather", [g.value(op.inputs[1]), _indices(g, op.inputs[0])], axis=0))


@reads("GATHER_ND", inputs=2)
def gather_nd(g: OnnxGraph, op: Op) -> None:
    """GatherND."""
    g.set(op.outputs[0], g.node("GatherND", [g.value(op.inputs[0]), _indices(g, op.inputs[1], "int64")]))


@reads("SCATTER_ND", inputs=2)
def scatter_nd(g: OnnxGraph, op: Op) -> None:
    """ScatterND into zeros; what goes to one place is added."""
    indices, updates = op.inputs[:2]
    zeros = g.node("Expand", [g.number(0, updates), g.int64(list(g.shape(op.outputs[0])))])
    inputs = [zeros, _indices(g, indices, "int64"), g.value(updates)]
    g.set(op.outputs[0], g.node("ScatterND", inputs, reduction="add"))


@reads("ONE_HOT", inputs=4)
def one_hot(g: OnnxGraph, op: Op) -> None:
    """OneHot; the axis is of the result."""
    indices, depth, on, off = op.inputs[:4]
    values = [g.reshape(g.value(i), (1,)) for i in (off, on)]
    inputs = [_indices(g, indices, "int64"), g.int64([g.integer(depth)]), g.node("Concat", values, axis=0)]
    # A negative index is none to TFLite, and counts from the end to ONNX: it becomes one past the last.
    past = g.constant(np.array(g.integer(depth), np.int64))
    below = g.node("Less", [inputs[0], g.int64(0)])
    inputs[0] = g.node("Where", [below, past, inputs[0]])
    g.set(op.outputs[0], g.node("OneHot", inputs, axis=op.options["axis"]))


@reads("WHERE")
def where(g: OnnxGraph, op: Op) -> None:
    """NonZero, a row for each place."""
    nonzero = g.node("NonZero", [g.value(op.inputs[0])])
    rows = g.node("Transpose", [nonzero], perm=(1, 0))
    dtype = g.dtype(op.outputs[0])
    g.set(op.outputs[0], rows if dtype == "int64" else g.cast(rows, dtype))
