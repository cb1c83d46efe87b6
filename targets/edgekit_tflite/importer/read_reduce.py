"""Reductions and positions of extremes: the inverse of ops_reduce.py."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph
from edgekit_tflite.importer.read_shape import axis_of
from edgekit_tflite.importer.readers import reads

REDUCTIONS: Mapping[str, str] = {
    "MEAN": "ReduceMean",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
    "SUM": "ReduceSum",
}
OF_BOOLS: Mapping[str, str] = {"REDUCE_ALL": "ReduceMin", "REDUCE_ANY": "ReduceMax"}


def _reduced(g: OnnxGraph, op_type: str, value: str) -> str:
    rank = len(g.shape(g.op.inputs[0]))
    axes = sorted({axis_of(g, axis, rank) for axis in g.ints(g.op.inputs[1])})
    if not axes:  # no axis is all of them to ONNX, unless it is told
        return g.node("Identity", [value])
    return g.node(op_type, [value, g.int64(axes)], keepdims=int(g.op.options["keep_dims"]))


@reads(*REDUCTIONS, inputs=2)
def reduction(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to one reduction node."""
    g.set(op.outputs[0], _reduced(g, REDUCTIONS[op.code], g.value(op.inputs[0])))


@reads(*OF_BOOLS, inputs=2)
def reduction_of_bools(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to the minimum or maximum, computed as integers."""
    reduced = _reduced(g, OF_BOOLS[op.code], g.cast(g.value(op.inputs[0]), "int32"))
    g.set(op.outputs[0], g.cast(reduced, "bool"))


@reads("ARG_MAX", "ARG_MIN", inputs=2)
def arg_extreme(g: OnnxGraph, op: Op) -> None:
    """ArgMax or ArgMin, in the integers that the result has."""
    axis = axis_of(g, g.integer(op.inputs[1]), len(g.shape(op.inputs[0])))
    op_type = "ArgMax" if op.code == "ARG_MAX" else "ArgMin"
    indices = g.node(op_type, [g.value(op.inputs[0])], axis=axis, keepdims=0)
    dtype = g.dtype(op.outputs[0])
    g.set(op.outputs[0], indices if dtype == "int64" else g.cast(indices, dtype))


@reads("TOPK_V2", inputs=2, outputs=2)
def top_k(g: OnnxGraph, op: Op) -> None:
    """TopK along the last axis, sorted."""
    k = [g.integer(op.inputs[1])]
    values, indices = g.nodes("TopK", [g.value(op.inputs[0]), g.int64(k)], 2, axis=-1, largest=1, sorted=1)
    g.set(op.outputs[0], values)
    dtype = g.dtype(op.outputs[1])
    g.set(op.outputs[1], indices if dtype == "int64" else g.cast(indices, dtype))
