"""Products of matrices: the inverse of ops_matmul.py."""

from __future__ import annotations

import math

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.read_conv import DYNAMIC_RANGE
from edgekit_tflite.importer.readers import activated, need_rank, reads


@reads("FULLY_CONNECTED", inputs=2)
def fully_connected(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Gemm of the data as rows, with the weights transposed."""
    x, w, out = op.inputs[0], op.inputs[1], op.outputs[0]
    units, length = need_rank(g, w, 2)
    shape, options = g.shape(x), op.options
    if options["weights_format"] != 0:
        raise UnreadableError(op, "its weights are shuffled for one processor; export it with plain weights")
    if not length or math.prod(shape) % length:
        raise UnreadableError(op, f"its weights are {g.shape(w)}, its data {shape}")
    rows = (math.prod(shape) // length, length)
    if g.is_dynamic_range(x, w):
        g.notes[DYNAMIC_RANGE] = None
    value = g.value(x) if shape == rows else g.reshape(g.value(x), rows)
    inputs = [value, g.value(w), *([] if g.is_left_out(2) else [g.value(op.inputs[2])])]
    y = activated(g, g.node("Gemm", inputs, transB=1))
    result_shape = (rows[0], units)
    if math.prod(result_shape) != math.prod(g.shape(out)):
        raise UnreadableError(op, f"it makes {g.shape(out)} of {shape} and {g.shape(w)}")
    g.set(out, y if g.shape(out) == result_shape else g.reshape(y, g.shape(out)))


@reads("BATCH_MATMUL", inputs=2)
def batch_matmul(g: OnnxGraph, op: Op) -> None:
    """MatMul, its operands transposed where the operator says so."""
    if g.is_dynamic_range(op.inputs[0], op.inputs[1]):
        g.notes[DYNAMIC_RANGE] = None
    operands = []
    for i, swapped in zip(op.inputs[:2], (op.options["adj_x"], op.options["adj_y"]), strict=True):
        rank = len(g.shape(i))
        if rank < 2:
            raise UnreadableError(op, f"it multiplies {g.shape(i)}")
        perm = (*range(rank - 2), rank - 1, rank - 2)
        operands.append(g.weights(i, perm) if swapped else g.value(i))
    g.set(op.outputs[0], g.node("MatMul", operands))
